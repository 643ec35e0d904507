"""efattn impute: a table with its nulls filled in, or completed several times by draws."""

from typing import Annotated, Any

import typer

from efattn.cli import arguments, tables
from efattn.cli import output as out
from efattn.cli.messages import note

EXAMPLES = """Examples:

efattn impute m.efattn holes.csv -o filled.csv

efattn impute m.efattn holes.csv --draws 5 -o completed.csv"""


def add_to(app: typer.Typer) -> None:
    app.command(epilog=EXAMPLES)(impute)


@arguments.laid_out
def impute(
    model: arguments.Model,
    table: arguments.Source,
    draws: Annotated[int, typer.Option(min=0, help="Complete the table so many times by joint draws.")] = 0,
    seed: arguments.Seed = 0,
    interval: arguments.Interval = 0.9,
    output: arguments.Output = None,
    force: arguments.Force = False,
    json: arguments.Json = False,
    piece_size: arguments.PieceSize = arguments.PIECE,
    *,
    layout: dict[str, Any],
) -> None:
    """A table with its nulls filled in.

    By what is expected of each given all that is observed in its group, or in its row of a wide table; of words by the
    most probable. <value>_sd, _lower and _upper stand beside. With --draws m, m completed tables one below the other,
    numbered in a column draw."""
    out.check_output(output, force, out.FORMATS)
    arguments.check_piece_size(piece_size)
    arguments.check_interval(interval)
    fitted = tables.both(model, table, layout)

    from efattn import inference
    from efattn.inference import frames

    pieces = tables.Pieces(fitted, table, layout, piece_size, "Imputing", out.checker(output, json))
    answers = inference.impute(fitted, pieces, draws=draws, seed=seed, interval=interval, tell=note)
    out.deliver_rows(map(frames.numbered, answers) if draws else pieces.in_order(answers), output, json)
