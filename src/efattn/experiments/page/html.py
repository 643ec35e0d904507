"""Blocks as one HTML file that needs nothing else: no script, no network, light and dark, any width."""

import base64
from collections.abc import Sequence

from efattn.experiments.page.blocks import TIED, Block

MANY = 8  # columns, which fit on a screen only if they are narrow


def page(title: str, blocks: Sequence[Block]) -> str:
    """From a Jinja2 template, every text escaped; words between backticks are code."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    loader = PackageLoader("efattn.experiments.page")
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["base64"] = lambda data: base64.b64encode(data).decode()
    named = [(type(block).__name__, block) for block in blocks]
    return environment.get_template("results.html").render(title=title, blocks=named, tied=TIED, many=MANY)
