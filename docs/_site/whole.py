"""A warning for every public name that the pages of the interface leave out."""

from typing import Any

from sphinx.util import logging

log = logging.getLogger(__name__)


def _check(app: Any, env: Any) -> None:
    import efattn
    from efattn import families, plots, simple

    shown = set(env.domains["py"].objects)
    for module in (efattn, families, plots, simple):
        for name in module.__all__:
            full = f"{module.__name__}.{name}"
            if full not in shown:
                log.warning("%s has no place on the pages of the interface", full)


def setup(app: Any) -> dict[str, Any]:
    app.connect("env-check-consistency", _check)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
