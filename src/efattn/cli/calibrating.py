"""efattn calibrate: a model whose intervals hold what they promise, by groups that it has not seen."""

from pathlib import Path
from typing import Annotated

import typer

from efattn.cli import arguments, output, tables
from efattn.cli.messages import note, say
from efattn.errors import counted

OUTPUT = Annotated[
    Path, typer.Option("--output", "-o", metavar="FILE", help="Where the calibrated model goes.", show_default=False)
]
PIECE = 128.0
EXAMPLE = "Example:\n\nefattn calibrate m.efattn held.csv -o calibrated.efattn"


def add_to(app: typer.Typer) -> None:
    app.command(epilog=EXAMPLE)(calibrate)


def calibrate(
    model: arguments.Model,
    table: arguments.Source,
    output_: OUTPUT,
    force: arguments.Force = False,
    piece_size: arguments.PieceSize = PIECE,
    separator: arguments.Separator = None,
    decimal: arguments.Decimal = None,
    header: arguments.Header = None,
    columns: arguments.Columns = None,
    encoding: arguments.Encoding = None,
    baskets: arguments.Baskets = False,
) -> None:
    """Adjust intervals and quantiles by rows of groups that a model has not seen.

    Groups that were there when it was fitted are refused. Means, densities and scores stay as they are."""
    layout = arguments.layout(separator, decimal, header, columns, encoding, baskets)
    output.check_output(output_, force)
    output.check_apart(output_, "The model", table)
    arguments.check_piece_size(piece_size)
    tables.check_model(model)
    tables.look(table, layout)
    fitted = tables.load(model)

    from efattn import inference
    from efattn.estimators import saving

    pieces = tables.pieces(fitted, table, layout, piece_size, "Calibrating")
    adjusted = inference.calibrate(fitted, pieces, tell=note)
    saving.save(adjusted, output_)
    for name, one in adjusted.calibration.items():
        by = f"{counted(one.rows, 'row')} in {counted(one.groups, 'group')}"
        say(f"Intervals and quantiles of {name} are calibrated by {by}.")
    say(f"Wrote {output_}.")
