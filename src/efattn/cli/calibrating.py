"""efattn calibrate: a model whose intervals hold what they promise, by groups that it has not seen."""

from pathlib import Path
from typing import Annotated, Any

import typer

from efattn.cli import arguments, output, tables
from efattn.cli.messages import note, say

OUTPUT = Annotated[
    Path, typer.Option("--output", "-o", metavar="FILE", help="Where the calibrated model goes.", show_default=False)
]
EXAMPLE = "Example:\n\nefattn calibrate m.efattn held.csv -o calibrated.efattn"


def add_to(app: typer.Typer) -> None:
    app.command(epilog=EXAMPLE)(calibrate)


@arguments.spelled_out
def calibrate(
    model: arguments.Model,
    table: arguments.Source,
    output_: OUTPUT,
    force: arguments.Force = False,
    piece_size: arguments.PieceSize = arguments.PIECE,
    *,
    layout: dict[str, Any],
) -> None:
    """Adjust intervals and quantiles by rows of groups that a model has not seen.

    Groups that were there when it was fitted are refused. Means, densities and scores stay as they are."""
    output.check_output(output_, force)
    output.check_apart(output_, "The model", table)
    fitted = tables.load_for(model, table, layout)

    from efattn import inference
    from efattn.estimators import saving
    from efattn.inference import calibration

    pieces = tables.Pieces(fitted, table, layout, piece_size, "Calibrating")
    adjusted = inference.calibrate(fitted, pieces, tell=note)
    saving.save(adjusted, output_)
    for told in calibration.told(adjusted.calibration):
        say(f"{told}.")
    say(f"Wrote {output_}.")
