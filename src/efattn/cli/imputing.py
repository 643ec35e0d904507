"""efattn impute: a table with its nulls filled in, or completed several times by draws."""

from typing import Annotated, Any

import typer

from efattn.cli import arguments, tables
from efattn.cli.messages import note
from efattn.cli.output import Answer


def add_to(app: typer.Typer) -> None:
    examples = (
        "efattn impute m.efattn holes.csv -o filled.csv",
        "efattn impute m.efattn holes.csv --draws 5 -o completed.csv",
    )
    arguments.add(app, impute, *examples)


@arguments.spelled_out
def impute(
    model: arguments.Model,
    table: arguments.Source,
    draws: Annotated[int, typer.Option(min=0, help="Complete the table so many times by joint draws.")] = 0,
    seed: arguments.Seed = 0,
    interval: arguments.Interval = 0.9,
    *,
    answer: Answer,
    piece_size: arguments.PieceSize = arguments.PIECE,
    layout: dict[str, Any],
) -> None:
    """A table with its nulls filled in.

    By what is expected of each given all that is observed in its group, or in its row of a wide table; of words by the
    most probable. <value>_sd, _lower and _upper stand beside. With --draws m, m completed tables one below the other,
    numbered in a column draw."""
    answer.check(table, model)
    fitted = tables.load_for(model, table, layout)

    from efattn import inference
    from efattn.inference import frames

    pieces = tables.Pieces(fitted, table, layout, piece_size, "Imputing", answer.check_columns)
    answers = inference.impute(fitted, pieces, draws=draws, seed=seed, interval=interval, tell=note)
    answer.give(map(frames.numbered, answers) if draws else pieces.in_order(answers))
