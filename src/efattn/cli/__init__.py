"""The command line: one verb is one call into the library.

    efattn fit | score | predict | impute | sample | forecast | where-next | recommend | similar | attention | explain |
    summary | embeddings | evaluate | calibrate | update | split | compare | report | serve | datasets | bench | demo |
    reproduce

Results go to standard output, or to the file named by -o, which is there whole or not at all; everything else goes to
standard error. Exit 0; 2 for the user's mistake, in one line; 130 when interrupted; 1 for a mistake of ours.
"""

from typing import Annotated

import typer

from efattn.cli import (
    benching,
    calibrating,
    comparing,
    datasets,
    evaluating,
    fitting,
    generating,
    imputing,
    joint,
    picturing,
    serving,
    studies,
    updating,
    verbs,
)
from efattn.cli.outcome import run

app = typer.Typer(
    name="efattn",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
    epilog="Example:\n\nefattn fit ratings.csv --group user --item movie --value rating -o m.efattn",
)


def _version(wanted: bool) -> None:
    if wanted:
        from efattn import __version__

        typer.echo(f"efattn {__version__}")
        raise typer.Exit


@app.callback()
def top(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    verbose: Annotated[int, typer.Option("-v", "--verbose", count=True, help="Say more; -vv says all.")] = 0,
    debug: Annotated[bool, typer.Option("--debug", help="Say all, with a traceback for every error.")] = False,
) -> None:
    """Exponential Family Attention: probabilistic models of grouped observations, from any table.

    -v, -vv and --debug may also stand behind the verb."""


fitting.add_to(app)
verbs.add_to(app)
generating.add_to(app)
joint.add_to(app)
evaluating.add_to(app)
calibrating.add_to(app)
updating.add_to(app)
imputing.add_to(app)
comparing.add_to(app)
serving.add_to(app)
picturing.add_to(app)
datasets.add_to(app)
benching.add_to(app)
studies.add_to(app)


def main() -> None:
    """The installed command."""
    run(app)
