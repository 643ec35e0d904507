"""What a page is made of: headings, sentences, tables, pictures. Words between backticks are code."""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, final

from efattn.plots.style import figure_of

TIED = "\N{NO-BREAK SPACE}"  # between what stays on one line
MOST_BYTES = 120_000
RESOLUTIONS = (160, 130, 100, 70, 40)  # dots per inch, the first that is small enough


@final
@dataclass(frozen=True)
class Heading:
    text: str
    level: int = 2

    @property
    def anchor(self) -> str:
        return "".join(c if c.isalnum() else "-" for c in self.text.lower()).strip("-")


@final
@dataclass(frozen=True)
class Text:
    text: str


@final
@dataclass(frozen=True)
class Bullets:
    texts: tuple[str, ...]


class Cell(NamedTuple):
    text: str
    bold: bool = False


@final
@dataclass(frozen=True)
class Table:
    """words: how many columns, from the left, hold words; the others are numbers and stand to the right."""

    head: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    words: int = 1


@final
@dataclass(frozen=True)
class Picture:
    """caption: what is to be seen; it is also what is read out to those who cannot."""

    name: str
    png: bytes
    caption: str


Block = Heading | Text | Bullets | Table | Picture


def table(head: Sequence[str], rows: Sequence[Sequence[str | Cell]], words: int = 1) -> Table:
    cells = tuple(tuple(x if isinstance(x, Cell) else Cell(x) for x in row) for row in rows)
    return Table(tuple(head), cells, words)


def picture(name: str, shown: Any, caption: str) -> Picture:
    """A figure, or Axes, as a small file, of 256 colours: a third of the bytes, and nobody sees it."""
    from PIL import Image  # which comes with matplotlib

    for dots in RESOLUTIONS:
        drawn, file = io.BytesIO(), io.BytesIO()
        figure_of(shown).savefig(drawn, format="png", dpi=dots)
        few = Image.open(drawn).convert("RGB").quantize(256, Image.Quantize.MAXCOVERAGE, kmeans=3)
        few.save(file, format="png", optimize=True)
        if file.tell() <= MOST_BYTES:
            break
    return Picture(name, file.getvalue(), caption)


def label(name: object) -> str:
    """A name from a file, to stand in a picture: no formula."""
    return str(name).replace("$", r"\$")


def listing(names: Sequence[str]) -> str:
    """a, b and c"""
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1]))) if names else ""
