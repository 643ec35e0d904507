"""What a model makes up: sample."""

from typing import Annotated, Any

import typer

from efattn.cli import arguments, tables
from efattn.cli import output as out
from efattn.cli.messages import note, say
from efattn.errors import counted

Seed = Annotated[int, typer.Option(min=0, help="Decides everything that is drawn.")]
BurnIn = Annotated[int, typer.Option(min=1, help="Sweeps over each group, where cells are drawn by turns.")]


def add_to(app: typer.Typer) -> None:
    for verb, *examples in (
        (
            sample,
            "efattn sample m.efattn --groups 5 -o new.csv",
            "efattn sample m.efattn --given histories.csv --length 20 --seed 1",
        ),
    ):
        app.command(epilog="\n\n".join(["Examples:" if len(examples) > 1 else "Example:", *examples]))(verb)


@arguments.laid_out
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
    seed: Seed = 0,
    burn_in: BurnIn = 20,
    member: arguments.Member = None,
    output: arguments.Output = None,
    force: arguments.Force = False,
    json: arguments.Json = False,
    *,
    layout: dict[str, Any],
) -> None:
    """New groups, or given ones completed: items and values drawn jointly.

    Attributes are not drawn: give the rows of such a model, with nulls for what is to be drawn."""
    out.check_output(output, force, out.FORMATS)
    out.check_apart(output, "What is drawn", given, model)
    fitted = tables.load(model) if given is None else tables.both(model, given, layout)

    from efattn import inference

    rows = None if given is None else tables.read(given, layout)
    how: dict[str, Any] = {"seed": seed, "burn_in": burn_in, "member": member, "tell": note}
    with tables.working("Drawing"):
        drawn = inference.sample(fitted, groups, length, rows, **how)
    _deliver(drawn, output, json)


def _deliver(frame: Any, output: Any, json: bool) -> None:
    """A frame of whatever kind the model was fitted to."""
    from efattn.data import Table
    from efattn.inference.blank_tables import as_polars

    rows = out.deliver([as_polars(Table.read(frame))], output, json)
    if output is not None:
        say(f"Wrote {counted(rows, 'row')} to {output}.")
