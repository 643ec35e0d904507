"""The results page, made from the files of a results folder and from nothing else.

    results.md     for a repository's pages, with pictures in figures/
    results.html   the same in one file that needs no network: pictures and style are inside

What has not run yet is named as missing, and the rest is shown.
"""

from pathlib import Path

from efattn import storage
from efattn.errors import DataError
from efattn.experiments.page import (
    aims,
    html,
    leading_table,
    markdown,
    protocols,
    provenance,
    sections,
    strangers,
    theorems,
)
from efattn.experiments.page.blocks import Block, Picture
from efattn.experiments.page.results import Results

TITLE = "Results"


def write(pages: Path, folder: Path) -> None:
    """pages: the folder to write to. folder: the results."""
    blocks = page(Results.read(folder))
    try:
        (pages / "figures").mkdir(parents=True, exist_ok=True)
        for block in blocks:
            if isinstance(block, Picture):
                with storage.beside(pages / "figures" / f"{block.name}.png") as part:
                    part.write_bytes(block.png)
        for name, text in (("results.md", markdown.page), ("results.html", html.page)):
            with storage.beside(pages / name) as part:
                part.write_text(text(TITLE, blocks), encoding="utf-8")
    except OSError as error:
        raise DataError(f"{str(pages)!r} cannot be written: {error.strerror or error}. Name another folder.") from error


def page(results: Results) -> list[Block]:
    """All that the page says, in its order."""
    return [
        *leading_table.blocks(results),
        *protocols.blocks(results),
        *aims.blocks(results),
        *sections.blocks(results),
        *strangers.blocks(results),
        *theorems.blocks(results),
        *provenance.blocks(results),
    ]
