"""Runs that make their own data: bench, demo, reproduce."""

import contextlib
import importlib
import json as json_
import sys
import tempfile
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from efattn.cli import arguments
from efattn.cli import output as out
from efattn.errors import DataError

REPRODUCE = (
    "Examples:\n\nefattn reproduce\n\nefattn reproduce instacart --preset paper --seeds 3\n\n"
    "efattn reproduce cities synthetic --jobs 2 --pages docs\n\n"
    'efattn reproduce cities --setting "no lag" --model EFA --preset defaults --protocol refitted\n\n'
    "efattn reproduce strangers --only grunfeld --only epil\n\nefattn reproduce theory"
)


class Demo(StrEnum):
    synthetic = "synthetic"
    weather = "weather"


class Bench(StrEnum):
    conditionals = "conditionals"
    tables = "tables"
    race = "race"
    catalogue = "catalogue"
    busy = "busy"
    serving = "serving"
    stream = "stream"


def add_to(app: typer.Typer) -> None:
    app.command(epilog="Examples:\n\nefattn bench\n\nefattn bench tables --rows 100000 -o results")(bench)
    app.command(epilog="Examples:\n\nefattn demo\n\nefattn demo weather -o weather-demo\n\nefattn demo --serve")(demo)
    app.command(epilog=REPRODUCE)(reproduce)


def bench(
    which: Annotated[
        list[Bench] | None,
        typer.Argument(help=f"{', '.join(Bench)}; all unless said.", show_default=False),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FOLDER", help="Keep results there.", show_default=False),
    ] = None,
    rows: Annotated[int, typer.Option(min=1, help="Of the table that is read.")] = 10_000_000,
    json: arguments.Json = False,
) -> None:
    """Speed and memory, as ratios within one run: minutes."""
    chosen = list(dict.fromkeys(which or Bench))
    if output is not None and output.exists() and not output.is_dir():
        raise DataError(f"{str(output)!r} is not a folder.")
    with tempfile.TemporaryDirectory() as temporary:
        folder = output or Path(temporary)
        with contextlib.redirect_stdout(sys.stderr) if json else contextlib.nullcontext():
            for one in chosen:
                _measure(one, folder, rows)
        if json:
            out.print_json({one.value: json_.loads((folder / f"{one}.json").read_text()) for one in chosen})


def _measure(one: Bench, folder: Path, rows: int) -> None:
    module = importlib.import_module(f"efattn.bench.{one}")
    module.main(folder, **({"rows": rows} if one is Bench.tables else {}))


def demo(
    name: Annotated[
        Demo | None,
        typer.Argument(
            help="The paper's synthetic study, or weather stations.", show_default="synthetic; weather with --serve"
        ),
    ] = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FOLDER", help="Where the model and pictures go.")
    ] = Path("efattn-demo"),
    serve: Annotated[bool, typer.Option("--serve", help="Then explore the model on a page, until Ctrl-C.")] = False,
    port: Annotated[int, typer.Option(min=0, max=65_535, help="Of that page; 0 for any that is free.")] = 8765,
    json: arguments.Json = False,
) -> None:
    """A small study on data that come with efattn: a table, a model, pictures.

    With --serve the page that efattn serve shows is opened on it."""
    from efattn.cli import serving

    sock = serving.prepared("127.0.0.1", port) if serve else None

    from rich.console import Console

    from efattn.experiments import demo as demos

    chosen = name or (Demo.weather if serve else Demo.synthetic)
    answer = demos.run(chosen.value, output, console=Console(stderr=json, highlight=False))
    if json:
        out.print_json(answer)
    if sock is not None:
        serving.show(output / f"{chosen}.efattn", output / "test.csv", sock)


def reproduce(
    experiments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[EXPERIMENT]...",
            help="synthetic, sequences, ratings, instacart, cities, beyond, strangers, theory; all unless said.",
            show_default=False,
        ),
    ] = None,
    preset: Annotated[
        list[str] | None,
        typer.Option(help="peer, paper, defaults or best; may be given again. All unless said.", show_default=False),
    ] = None,
    protocol: Annotated[
        list[str] | None,
        typer.Option(help="train only, or refitted, of peers and defaults; both unless said.", show_default=False),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="How many, from 0 on.")] = 3,
    setting: Annotated[
        list[str] | None, typer.Option(help="One of an experiment's; may be given again.", show_default=False)
    ] = None,
    model: Annotated[
        list[str] | None, typer.Option(help="One of a setting's; may be given again.", show_default=False)
    ] = None,
    unit: Annotated[
        list[str] | None,
        typer.Option(help="A single run, as --plan names it; the summary is left as it is.", show_default=False),
    ] = None,
    results: Annotated[
        Path, typer.Option("--results", "-o", metavar="FOLDER", help="One file per run; finished runs are skipped.")
    ] = Path("results"),
    pages: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Write the results page and its figures there.", show_default=False),
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Runs side by side, one thread each.")] = 1,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="TABLE", help="Of the strangers, this table; may be given again.", show_default=False),
    ] = None,
    plan: Annotated[bool, typer.Option("--plan", help="List the runs, about how long each takes, and end.")] = False,
    json: arguments.Json = False,
) -> None:
    """The paper's experiments and more beside honest peers: hours for all, minutes for one."""
    from rich.console import Console

    from efattn.experiments import reproducing

    asked = reproducing.Asked(
        names=experiments or [],
        presets=preset or [],
        seeds=seeds,
        protocols=protocol or [],
        settings=setting or [],
        models=model or [],
        units=unit or [],
        tables=only or [],
    )
    if plan:
        _list(reproducing.plan(asked, results), json)
        return
    console = Console(stderr=True, highlight=False)
    records = reproducing.reproduce(asked, results, jobs=jobs, pages=pages, console=console)
    if json:
        out.print_json(records)


def _list(units: list[dict[str, Any]], json: bool) -> None:
    if json:
        out.print_json(units)
        return
    for one in units:
        typer.echo(f"{one['unit']}\t{one['seconds']}\t{'done' if one['done'] else 'missing'}")
