"""efattn update: a model that has learnt from new rows too."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from efattn.cli import arguments, output, tables
from efattn.cli.messages import say
from efattn.cli.outcome import Interrupted

OUTPUT = Annotated[
    Path, typer.Option("--output", "-o", metavar="FILE", help="Where the new model goes.", show_default=False)
]


def add_to(app: typer.Typer) -> None:
    examples = (
        "efattn update m.efattn yesterday.csv -o today.efattn",
        "efattn update m.efattn histories.csv --target new --item-features products.csv -o today.efattn",
    )
    arguments.add(app, update, *examples)


@arguments.spelled_out
def update(
    model: arguments.Model,
    table: arguments.Source,
    output_: OUTPUT,
    target: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="True where a row is new, false where it is history.", show_default=False),
    ] = None,
    item_features: Annotated[
        str | None, typer.Option(metavar="FILE", help="What is known of new items.", show_default=False)
    ] = None,
    validation: Annotated[float, typer.Option(min=0, max=0.9, help="The share of groups to choose by.")] = 0.2,
    epochs: Annotated[int | None, typer.Option(min=1, help="At most; as in fit unless said.")] = None,
    force: arguments.Force = False,
    *,
    layout: dict[str, Any],
) -> None:
    """Go on training on new rows: new items are appended, old ones kept where they were.

    How far the networks move is chosen by groups that are held out of the new rows: not at all, unless these are surely
    predicted better."""
    output.check_output(output_, force)
    output.check_apart(output_, "The model", table)
    tables.check_table(table, layout)

    import efattn
    from efattn.training import Training

    estimator = efattn.load(model)
    before = estimator.training or Training()
    how = None if epochs is None else replace(before, epochs=epochs, rate=before.rate / 3)
    estimator.update(
        tables.read(table, layout),
        validation=validation or None,
        training=how,
        target=target,
        item_features=None if item_features is None else tables.read(item_features, layout),
        progress=None if sys.stderr.isatty() else False,
    )
    for note in estimator.notes_:
        say(str(note))
    estimator.save(output_)
    if estimator.interrupted_:
        raise Interrupted(f"Interrupted; the model as far as it was updated is in {str(output_)!r}.")
    say(f"Wrote {output_}.")
