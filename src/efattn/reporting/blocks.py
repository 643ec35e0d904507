"""What a page is made of: sections of text, tables, numbers and pictures. Names from a table are text, never markup.

A picture is SVG inside the page, so that it is sharp in print and its inks follow the page's, light or dark. Letters
stay letters, in any script.
"""

import io
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from efattn.errors import EfattnError
from efattn.plots import style

if TYPE_CHECKING:
    from markupsafe import Markup

# colours of the plots that are the page's own; what stands on a fill keeps its colour
INKS = {
    style.INK: "ink", style.GREY: "quiet", style.PALE: "line", "#ffffff": "paper",
    style.BLUE: "blue", style.ORANGE: "orange", style.GREEN: "green",
}  # fmt: skip
INK = re.compile("(fill|stroke): (" + "|".join(INKS) + r")\b", re.I)
NONE = "\N{EN DASH}"
ID, USED = re.compile(r' id="([^"]*)"'), re.compile(r'(?:href="|url\()#([^")]*)')


class Text(NamedTuple):
    text: str
    quiet: bool = False
    kind: str = "text"


class Grid(NamedTuple):
    """words: how many of the first columns are text; strong: a row to be seen first."""

    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    words: int = 1
    caption: str = ""
    strong: int | None = None
    kind: str = "grid"


class Picture(NamedTuple):
    svg: "Markup"
    wide: bool
    kind: str = "picture"


class Bullets(NamedTuple):
    lines: Sequence[str]
    kind: str = "bullets"


class Tile(NamedTuple):
    """One number to begin with."""

    number: str
    what: str


class Section(NamedTuple):
    title: str
    anchor: str
    blocks: Sequence[Any]


def picture(drawn: Any, name: str) -> Picture:
    """name: one of its own on the page."""
    import matplotlib
    from markupsafe import Markup, escape

    figure, file = style.figure_of(drawn), io.BytesIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": name}), style.without_glyphs():
        figure.savefig(file, format="svg", transparent=True, metadata={"Date": None})
    svg = file.getvalue().decode()
    svg = INK.sub(_of_page, svg[svg.index("<svg") :])
    used = set(USED.findall(svg))
    svg = ID.sub(lambda found: found[0] if found[1] in used else "", svg)  # the rest are the same in every picture
    told = escape(figure.get_suptitle().replace(r"\$", "$"))
    svg = svg.replace("<svg ", f'<svg role="img" aria-label="{told}" ', 1)
    return Picture(Markup(svg), figure.get_figwidth() > 8)


def _of_page(found: re.Match[str]) -> str:
    inks = {colour.lower(): ink for colour, ink in INKS.items()}
    return f"{found[1]}: var(--{inks[found[2].lower()]})"


def attempted(draw: Callable[[], Any], name: str) -> list[Any]:
    """A picture, or why there is none: a page does not fail for one."""
    try:
        return [picture(draw(), name)]
    except EfattnError as error:
        return [Text(f"No picture here: {error}", quiet=True)]


def number(x: float | None, digits: int = 4) -> str:
    """Short, and as exact as one reads."""
    if x is None or x != x:
        return NONE
    return f"{x:,.{digits}g}" if abs(x) < 1e6 else f"{x:.3e}"


def score(x: float | None, error: float | None = None) -> str:
    """A log score, or a difference of two, with its standard error."""
    if x is None or x != x:
        return NONE
    return f"{x:.4f}" if error is None else f"{x:+.4f} ± {error:.4f}"
