"""Blocks as GitHub's Markdown."""

import html
import re
from collections.abc import Sequence

from efattn.experiments.page.blocks import Block, Bullets, Cell, Heading, Picture, Table, Text


def page(title: str, blocks: Sequence[Block]) -> str:
    return "\n\n".join([f"# {escaped(title)}", *map(block, blocks)]) + "\n"


def block(one: Block) -> str:
    match one:
        case Heading(text, level):
            return f"{'#' * level} {escaped(text)}"
        case Text(text):
            return inline(text)
        case Bullets(texts):
            return "\n".join(f"- {inline(text)}" for text in texts)
        case Table():
            return _table(one)
        case Picture(name, _, caption):
            alone = escaped(caption.replace("`", ""))
            return f"![{alone}](figures/{name}.png)\n\n*{alone}*"


def _table(table: Table) -> str:
    rule = ["---" if k < table.words else "---:" for k in range(len(table.head))]
    lines = [[inline(x) for x in table.head], rule, *([_cell(cell) for cell in row] for row in table.rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(cell: Cell) -> str:
    text = inline(cell.text)
    return f"**{text}**" if cell.bold and text else text


def inline(text: str) -> str:
    """Every second part between backticks is code."""
    parts = text.split("`")
    return "".join(f"`{part}`".replace("|", r"\|") if k % 2 else escaped(part) for k, part in enumerate(parts))


def escaped(text: str) -> str:
    return re.sub(r"([\\|*\[\]])", r"\\\1", html.escape(re.sub(r"[ \n]+", " ", text), quote=False))
