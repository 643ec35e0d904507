"""Formulas as MathML, which browsers show without any script: from TeX, by docutils."""

from typing import Any

from docutils import nodes
from docutils.utils.math import MathError, latex2mathml
from sphinx.util import logging

log = logging.getLogger(__name__)


def _mathml(node: nodes.Element, as_block: bool) -> str:
    try:
        made: str = latex2mathml.tex2mathml(node.astext(), as_block=as_block)
    except MathError as error:
        log.warning("%s in %s", error, node.astext(), location=node)
        return f"<code>{nodes.unescape(node.astext())}</code>"
    return made


def _inline(translator: Any, node: nodes.math) -> None:
    translator.body.append(_mathml(node, as_block=False))
    raise nodes.SkipNode


def _display(translator: Any, node: nodes.math_block) -> None:
    translator.body.append(f'<div class="formula">{_mathml(node, as_block=True)}</div>')
    raise nodes.SkipNode


def setup(app: Any) -> dict[str, Any]:
    app.add_html_math_renderer("mathml", (_inline, None), (_display, None))
    app.config.html_math_renderer = "mathml"
    return {"parallel_read_safe": True, "parallel_write_safe": True}
