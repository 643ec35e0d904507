"""The documentation site, without building it: it leaves out no public name, and what it runs is Python."""

import ast
import importlib.util
import re
from pathlib import Path

import pytest

import efattn
from efattn import families, plots, simple

DOCS = Path(__file__).parent.parent / "docs"
NAMED = re.compile(r"^\.\. (?:py:)?(currentmodule|module|automodule|autoclass|autofunction|data):: (\S+)", re.M)


def shown():
    """The names that the pages of the interface have, with their modules."""
    found = set()
    for page in (DOCS / "api").glob("*.rst"):
        home = ""
        for kind, name in NAMED.findall(page.read_text()):
            if kind in ("currentmodule", "module", "automodule"):
                home = name
                found.add(name)
            else:
                found.add(f"{home}.{name}")
    return found


@pytest.mark.parametrize("module", [efattn, families, plots, simple], ids=lambda module: module.__name__)
def test_every_public_name_has_a_place_in_the_interface(module):
    assert not {f"{module.__name__}.{name}" for name in module.__all__} - shown()


CELLS = sorted(path for folder in ("tutorials", "guide") for path in (DOCS / folder).glob("*.md"))


@pytest.mark.parametrize("page", CELLS, ids=lambda path: path.stem)
def test_cells_are_python_and_links_lead_somewhere(page):
    text = page.read_text()
    for cell in re.findall(r"```\{code-cell\}(?:\n:.*\n)?\n(.*?)```", text, re.S):
        ast.parse(cell)
    for link in re.findall(r"\]\(([\w./-]+\.(?:md|rst))\)", text):
        assert (page.parent / link).exists(), link


def test_docstrings_keep_their_words_and_blocks():
    spec = importlib.util.spec_from_file_location("docstrings", DOCS / "_site" / "docstrings.py")
    docstrings = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(docstrings)
    for text in (efattn.EFA.__doc__, efattn.EFA.fit.__doc__, plots.__doc__, families.__doc__):
        made = "\n".join(docstrings.rendered(text.splitlines()))
        assert re.findall(r"\w+", made) == re.findall(r"\w+", text)
    assert "``seed=0``\n    Of everything random." in "\n".join(docstrings.rendered(efattn.EFA.__doc__.splitlines()))
