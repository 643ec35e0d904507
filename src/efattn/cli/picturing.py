"""efattn report: one page about a model; efattn embeddings: item vectors, and these in a plane."""

from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

from efattn.cli import arguments, tables
from efattn.cli import output as out
from efattn.cli.messages import say
from efattn.cli.output import Answer


class Which(Enum):
    item, centre = "item", "centre"


def add_to(app: typer.Typer) -> None:
    for verb, *examples in (
        (
            report,
            "efattn report m.efattn test.csv -o report.html",
            "efattn report m.efattn -o model.html",
        ),
        (
            embeddings,
            "efattn embeddings m.efattn -o items.parquet",
            "embedding-atlas items.parquet --x x --y y --text movie",
        ),
    ):
        arguments.add(app, verb, *examples)


@arguments.spelled_out
def report(
    model: arguments.Model,
    table: Annotated[
        str | None,
        typer.Argument(
            metavar="[TABLE]",
            help="Rows to look at, best of groups that the fit has not seen; without, the model alone.",
            show_default=False,
        ),
    ] = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE.html", help="Where to write the page.")
    ] = Path("report.html"),
    rows: Annotated[int, typer.Option(min=1, help="A larger table is looked at in part, whole groups.")] = 20_000,
    seed: Annotated[int, typer.Option(min=0, help="Of the groups that are drawn then.")] = 0,
    title: Annotated[str | None, typer.Option(help="Of the page.", show_default=False)] = None,
    force: arguments.Force = False,
    json: arguments.Json = False,
    *,
    layout: dict[str, Any],
) -> None:
    """One self-contained page about a model and a table.

    Data, model, fit, scores beside simple models, calibration, shares of the mixture, the best and worst predictions,
    attention, items and notes, with pictures; no script and no network, light and dark, on paper too."""
    out.check_output(output, force, (".html",))
    out.check_apart(output, "The page", model, table)
    fitted = tables.load(model) if table is None else tables.load_for(model, table, layout)

    from efattn import reporting

    source = None if table is None else tables.read(table, layout)
    with tables.working("Writing the page"):
        path = reporting.report(fitted, source, output, rows=rows, seed=seed, title=title)
    if json:
        out.print_json({"output": str(path), "bytes": path.stat().st_size})
    else:
        say(f"Wrote {path}: open it in a browser.")


@arguments.spelled_out
def embeddings(
    model: arguments.Model,
    which: Annotated[
        Which, typer.Option(help="item: what an item contributes as context; centre: what it is predicted with.")
    ] = Which.item,
    member: arguments.OneMember = 0,
    *,
    answer: Answer,
) -> None:
    """Item vectors: a row per item with its name, x and y to draw it at, and v0, v1, ...

    x and y are the first two principal components. A .parquet file is what embedding-atlas opens."""
    answer.check(model)
    fitted = tables.load(model)

    from efattn import inference

    rows = inference.embeddings(fitted, which.value, member=member, kind="polars")
    answer.give([rows])
