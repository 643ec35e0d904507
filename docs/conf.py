"""How the site is built: pages in Markdown, tutorials that are run, the library's docstrings as they are written.

Nothing is fetched, while it is built or when it is read: formulas become MathML, fonts and icons come with the theme.
"""

import hashlib
import os
import sys
from pathlib import Path

HERE = Path(__file__).parent
HOME = HERE.parent
sys.path.insert(0, str(HERE / "_site"))

import efattn  # noqa: E402

project, author = "efattn", "The efattn authors"
version = release = efattn.__version__
extensions = ["sphinx.ext.autodoc", "myst_nb", "docstrings", "formulas"]
root_doc = "index"
exclude_patterns = ["_site", "figures"]
templates_path: list[str] = []

# Tutorials are run in an empty folder. What they gave is kept as long as neither they nor the library change.
_code = hashlib.sha256((HOME / "constraints.txt").read_bytes())
for _file in sorted((HOME / "src").rglob("*.py")):
    _code.update(_file.read_bytes())
nb_execution_mode = "cache"
nb_execution_cache_path = str(HOME / "build" / "tutorials" / _code.hexdigest()[:16])
nb_execution_in_temp = True
nb_execution_timeout = 300
nb_execution_raise_on_error = True
nb_merge_streams = True
nb_render_markdown_format = "myst"  # which knows tables
_profile = HOME / "build" / "ipython" / "profile_default"  # the reader's own IPython profile plays no part
_profile.mkdir(parents=True, exist_ok=True)
(_profile / "ipython_kernel_config.py").write_text('get_config().IPKernelApp.log_level = "ERROR"\n')
os.environ["IPYTHONDIR"] = str(_profile.parent)
os.environ["EFATTN_DOCS"] = str(HERE)  # for pages whose cells read files of this repository
os.environ["OMP_NUM_THREADS"] = "1"  # the same numbers whatever the machine

myst_enable_extensions = ["dollarmath", "deflist", "colon_fence"]
myst_heading_anchors = 3
highlight_language = "none"  # a block says what it is
smartquotes = False

autodoc_typehints = "none"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_class_signature = "mixed"
add_module_names = False
python_maximum_signature_line_length = 100
toc_object_entries_show_parents = "hide"

html_theme = "pydata_sphinx_theme"
html_title = "efattn"
html_static_path = ["_site/static"]
html_css_files = ["efattn.css"]
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
html_sidebars = {"index": [], "results": [], "tutorials/start": []}
html_theme_options = {
    "show_prev_next": True,
    "navbar_align": "left",
    "header_links_before_dropdown": 6,
    "navigation_with_keys": False,
    "navbar_end": ["theme-switcher"],
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
html_context = {"default_mode": "auto"}
copyright = "the efattn authors, Apache-2.0"
