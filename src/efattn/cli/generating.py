"""What a model makes up, and what it would ask: sample, forecast, where-next."""

from typing import Annotated, Any

import typer

from efattn.cli import arguments, tables
from efattn.cli.messages import note
from efattn.cli.output import Answer

BurnIn = Annotated[
    int | None,
    typer.Option(
        min=0,
        help="Sweeps over each group, cells by turns; by default a few over items, none over values given others.",
        show_default=False,
    ),
]


def add_to(app: typer.Typer) -> None:
    for verb, *examples in (
        (
            sample,
            "efattn sample m.efattn --groups 5 -o new.csv",
            "efattn sample m.efattn --given histories.csv --length 20 --seed 1",
        ),
        (forecast, "efattn forecast m.efattn days.csv --steps 5 -o next.csv"),
        (where_next, "efattn where-next m.efattn stations.csv places.csv", "efattn where-next wide.efattn people.csv"),
    ):
        arguments.add(app, verb, *examples)


@arguments.spelled_out
def sample(
    model: arguments.Model,
    groups: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="How many new groups, 5 unless said; with --given, how often each is completed.",
            show_default=False,
        ),
    ] = None,
    length: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Rows of each group, given ones among them; by default drawn from those of the fit.",
            show_default=False,
        ),
    ] = None,
    given: Annotated[
        str | None,
        typer.Option(
            metavar="TABLE",
            help="Groups to complete: their rows stay, nulls are drawn, rows are added.",
            show_default=False,
        ),
    ] = None,
    seed: arguments.Seed = 0,
    burn_in: BurnIn = None,
    member: arguments.Member = None,
    *,
    answer: Answer,
    layout: dict[str, Any],
) -> None:
    """New groups, or given ones completed: items and values drawn jointly.

    Attributes are not drawn: give the rows of such a model, with nulls for what is to be drawn."""
    answer.check(given, model)
    fitted = tables.load(model) if given is None else tables.load_for(model, given, layout)

    from efattn import inference

    rows = None if given is None else tables.read(given, layout)
    how: dict[str, Any] = {"seed": seed, "burn_in": burn_in, "member": member, "tell": note}
    with tables.working("Drawing"):
        drawn = inference.sample(fitted, groups, length, rows, **how)
    answer.give([_as_polars(drawn)])


@arguments.spelled_out
def forecast(
    model: arguments.Model,
    table: arguments.Source,
    steps: Annotated[int, typer.Option(min=1, help="How many groups to come.")] = 5,
    draws: Annotated[int, typer.Option(min=1, help="How many paths are drawn.")] = 200,
    interval: arguments.Interval = 0.9,
    paths: Annotated[bool, typer.Option("--paths", help="Give all paths, not means and intervals.")] = False,
    seed: arguments.Seed = 0,
    burn_in: BurnIn = None,
    member: arguments.Member = None,
    *,
    answer: Answer,
    layout: dict[str, Any],
) -> None:
    """What follows the last group of each series, with intervals; of a model with lags.

    Values in between are drawn, so that intervals widen with each step."""
    answer.check(table, model)
    fitted = tables.load_for(model, table, layout)

    from efattn import inference

    how: dict[str, Any] = {"draws": draws, "interval": interval, "paths": paths, "seed": seed, "burn_in": burn_in}
    with tables.working("Drawing"):
        told = inference.forecast(fitted, tables.read(table, layout), steps, **how, member=member, tell=note)
    answer.give([_as_polars(told)])


@arguments.spelled_out
def where_next(
    model: arguments.Model,
    table: arguments.Source,
    candidates: Annotated[
        str | None,
        typer.Argument(
            metavar="[CANDIDATES]",
            help="Rows that might be measured; of a wide table, its missing cells are.",
            show_default=False,
        ),
    ] = None,
    draws: Annotated[int, typer.Option(min=1, help="Of what each measurement may give.")] = 20,
    seed: arguments.Seed = 0,
    member: arguments.Member = None,
    *,
    answer: Answer,
    layout: dict[str, Any],
) -> None:
    """Which of some candidates to measure next.

    Those first whose measurement would lower the expected variance of the other candidates most. Of a wide table, which
    missing cell would tell most about the others of its row."""
    answer.check(table, *([] if candidates is None else [candidates]), model)
    fitted = tables.load_for(model, table, layout)
    if candidates is not None:
        tables.check_table(candidates, layout)

    from efattn import inference

    both = tables.read(table, layout), None if candidates is None else tables.read(candidates, layout)
    with tables.working("Drawing"):
        told = inference.where_next(fitted, *both, draws=draws, seed=seed, member=member, tell=note)
    answer.give([_as_polars(told)])


def _as_polars(frame: Any) -> Any:
    """Of a frame of whatever kind the model was fitted to."""
    from efattn.data import Table
    from efattn.inference.blank_tables import as_polars

    return as_polars(Table.read(frame))
