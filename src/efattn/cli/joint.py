"""efattn joint: how probable whole groups are."""

from typing import Annotated, Any

import typer

from efattn.cli import arguments, tables
from efattn.cli.messages import note
from efattn.cli.output import Answer


def add_to(app: typer.Typer) -> None:
    examples = "efattn joint m.efattn test.csv --orders 16 -o densities.csv", "efattn joint m.efattn test.csv --json"
    arguments.add(app, joint, *examples)


@arguments.spelled_out
def joint(
    model: arguments.Model,
    table: arguments.Source,
    orders: Annotated[int, typer.Option(min=1, help="How many orders are mixed.")] = 8,
    seed: arguments.Seed = 0,
    member: arguments.Member = None,
    *,
    answer: Answer,
    piece_size: arguments.PieceSize = arguments.PIECE,
    layout: dict[str, Any],
) -> None:
    """The joint log-density of each group, of a model with --context any or past.

    One line per group: log_density, and for each term its own, mean and standard deviation over orders. Rows that are
    context only are given."""
    answer.check(table, model)
    fitted = tables.load_for(model, table, layout)

    from efattn import inference

    pieces = tables.Pieces(fitted, table, layout, piece_size, "Going through orders")
    told = inference.joint_log_density(fitted, pieces, orders=orders, seed=seed, member=member, tell=note)
    answer.give(told)
