"""efattn bench: run benches, compare two runs, write the page."""

import contextlib
import importlib
import json as json_
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer

from efattn.bench import BENCHES, NAMES, Bench
from efattn.cli import arguments
from efattn.cli import output as out
from efattn.errors import DataError

EXAMPLES = (
    "Examples:\n\nefattn bench\n\nefattn bench conditionals gpu -o results\n\nefattn bench tables --rows 100000\n\n"
    "efattn bench compare benchmarks/results results\n\nefattn bench page --pages docs"
)


def add_to(app: typer.Typer) -> None:
    app.command(epilog=EXAMPLES)(bench)


def bench(
    which: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME]...",
            help=f"{', '.join(NAMES)}, in full; all, but small, unless said. Or: compare OLD NEW, two folders or files "
            "of results, figure by figure; or page, which writes what the results say of each aim.",
            show_default=False,
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FOLDER", help="Keep results there.", show_default=False),
    ] = None,
    rows: Annotated[
        int | None, typer.Option(min=1, help="Of the table that is read.", show_default="10,000,000")
    ] = None,
    results: Annotated[Path, typer.Option(metavar="FOLDER", help="The results that page shows.")] = Path(
        "benchmarks/results"
    ),
    pages: Annotated[Path, typer.Option(metavar="FOLDER", help="Where page writes speed.md.")] = Path("docs"),
    json: arguments.Json = False,
) -> None:
    """Speed and memory, as ratios within one run: minutes. What is kept names the machine and the commit."""
    words = which or []
    if words[:1] == ["compare"]:
        _compare(words[1:], json)
    elif words[:1] == ["page"]:
        from efattn.bench import page

        typer.echo(f"{page.write(pages, results)}")
    else:
        _run(_chosen(words, rows), output, json)


def _chosen(words: list[str], rows: int | None) -> list[tuple[Bench, dict[str, Any]]]:
    """Benches and their options: in full what is named, small where nothing is."""
    for word in words:
        if word not in NAMES:
            raise DataError(f"There is no bench {word!r}: {', '.join(NAMES)}, compare or page.")
    chosen = [one for one in BENCHES if not words or one.name in words]
    options = [dict(one.small or {}) if not words else {} for one in chosen]
    for one, mine in zip(chosen, options, strict=True):
        if one.name == "tables" and rows is not None:
            mine["rows"] = rows
    return list(zip(chosen, options, strict=True))


def _run(chosen: list[tuple[Bench, dict[str, Any]]], output: Path | None, json: bool) -> None:
    if output is not None and output.exists() and not output.is_dir():
        raise DataError(f"{str(output)!r} is not a folder.")
    with tempfile.TemporaryDirectory() as temporary:
        folder = output or Path(temporary)
        with contextlib.redirect_stdout(sys.stderr) if json else contextlib.nullcontext():
            for one, options in chosen:
                typer.echo(f"\n{one.name}: {one.words}")
                _measure(one, folder, options, alone=len(chosen) == 1)
        files = {one.name: folder / f"{one.name}.json" for one, _ in chosen}
        if json:
            out.print_json({name: json_.loads(file.read_text()) for name, file in files.items() if file.exists()})


def _measure(one: Bench, folder: Path, options: dict[str, Any], *, alone: bool) -> None:
    """Of several, one that cannot be run (data that are not here) does not keep the others from it."""
    try:
        importlib.import_module(f"efattn.bench.{one.name}").main(folder, **options)
    except DataError as error:
        if alone:
            raise
        typer.echo(f"left out: {error}")


def _compare(words: list[str], json: bool) -> None:
    from efattn.bench import compare

    if len(words) != 2:
        raise DataError("compare takes two folders or files of results: efattn bench compare OLD NEW.")
    lines = compare.compared(*map(Path, words))
    if json:
        out.print_json([line._asdict() for line in lines])
    else:
        typer.echo(compare.told(lines))
