"""Blocks as one HTML file that needs nothing else: no script, no network, light and dark, any width."""

import base64
from collections.abc import Sequence
from html import escape

from efattn.experiments.page.blocks import TIED, Block, Bullets, Cell, Heading, Picture, Table, Text

MANY = 8  # columns, which fit on a screen only if they are narrow

STYLE = """
:root { --ink: #222; --quiet: #5c5c5c; --line: #dcdcdc; --paper: #fff; --shade: #f5f6f8; --accent: #005f96; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e6e6; --quiet: #a9a9a9; --line: #3a3d42; --paper: #16181b; --shade: #1f2226; --accent: #6db9ea; }
}
* { box-sizing: border-box; }
html { scroll-behavior: smooth; }
@media (prefers-reduced-motion: reduce) { html { scroll-behavior: auto; } }
body { margin: 0; background: var(--paper); color: var(--ink); line-height: 1.55;
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
main { max-width: 72rem; margin: 0 auto; padding: 1.5rem 1.25rem 5rem; }
p, li { max-width: 46rem; }
h1 { font-size: 1.9rem; margin: .4rem 0 1rem; }
h2 { font-size: 1.4rem; margin: 3.2rem 0 .8rem; padding-top: 1rem; border-top: 1px solid var(--line); }
h3 { font-size: 1.1rem; margin: 2rem 0 .6rem; }
nav { display: flex; flex-wrap: wrap; gap: .3rem 1.1rem; font-size: .93rem; }
a { color: var(--accent); text-underline-offset: .15em; }
.wide { overflow-x: auto; margin: 1rem 0 1.4rem; }
table { border-collapse: collapse; font-size: .88rem; font-variant-numeric: tabular-nums; }
th, td { padding: .36rem .7rem; text-align: right; vertical-align: top; border-bottom: 1px solid var(--line); }
th { color: var(--quiet); font-weight: 600; vertical-align: bottom; }
th.word, td.word { text-align: left; }
td:first-child { min-width: 8rem; }
small { display: block; font-size: .85em; font-weight: normal; color: var(--quiet); }
tbody tr:hover { background: var(--shade); }
figure { margin: 1.4rem 0 2rem; }
figure img { display: block; max-width: 100%; height: auto; background: #fff; border: 1px solid var(--line);
  border-radius: 6px; }
figcaption { color: var(--quiet); font-size: .9rem; margin-top: .5rem; max-width: 46rem; }
code { font: .9em ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; background: var(--shade);
  padding: .08em .3em; border-radius: 4px; }
@media print { nav { display: none; } h2 { break-after: avoid; } figure, tr { break-inside: avoid; } }
"""


def page(title: str, blocks: Sequence[Block]) -> str:
    heads = [block for block in blocks if isinstance(block, Heading) and block.level == 2]
    links = "\n".join(f'<a href="#{escape(head.anchor)}">{escape(head.text)}</a>' for head in heads)
    body = "\n".join(map(_block, blocks))
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(title)} - efattn</title>
<style>{STYLE}</style>
</head>
<body>
<main>
<h1>{escape(title)}</h1>
<nav aria-label="Contents">
{links}
</nav>
{body}
</main>
</body>
</html>
"""


def _block(block: Block) -> str:
    match block:
        case Heading(text, level):
            return f'<h{level} id="{escape(block.anchor)}">{escape(text)}</h{level}>'
        case Text(text):
            return f"<p>{inline(text)}</p>"
        case Bullets(texts):
            return "<ul>\n" + "\n".join(f"<li>{inline(text)}</li>" for text in texts) + "\n</ul>"
        case Table():
            return _table(block)
        case Picture(_, png, caption):
            data, alone = base64.b64encode(png).decode(), caption.replace("`", "")
            return (
                f'<figure><img alt="{escape(alone)}" src="data:image/png;base64,{data}">\n'
                f"<figcaption>{inline(caption)}</figcaption></figure>"
            )


def _table(table: Table) -> str:
    """A region that scrolls by itself, also with the keyboard, so that the page never does sideways."""
    narrow = len(table.head) > MANY
    head = "".join(_one("th", Cell(text), k < table.words, ' scope="col"') for k, text in enumerate(table.head))
    rows = "\n".join(
        "<tr>" + "".join(_one("td", cell, k < table.words, narrow=narrow) for k, cell in enumerate(row)) + "</tr>"
        for row in table.rows
    )
    label = escape(f"Table by {table.head[0]}")
    opened = f'<div class="wide" tabindex="0" role="region" aria-label="{label}">'
    return f"{opened}<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}\n</tbody>\n</table></div>"


def _one(tag: str, cell: Cell, word: bool, more: str = "", narrow: bool = False) -> str:
    """narrow: what stands behind a number, its spread and seeds, goes below it."""
    first, tied, rest = cell.text.partition(TIED) if narrow else (cell.text, "", "")
    text = f"<strong>{inline(first)}</strong>" if cell.bold and first else inline(first)
    below = f"<small>{inline(rest)}</small>" if tied else ""
    kind = ' class="word"' if word else ""
    return f"<{tag}{kind}{more}>{text}{below}</{tag}>"


def inline(text: str) -> str:
    """Every second part between backticks is code."""
    return "".join(f"<code>{escape(x)}</code>" if k % 2 else escape(x) for k, x in enumerate(text.split("`")))
