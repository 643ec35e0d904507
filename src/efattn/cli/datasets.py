"""efattn datasets: what there is, and each as one tidy table."""

from typing import Annotated

import typer

from efattn.cli import arguments
from efattn.cli import output as out
from efattn.cli.messages import tell
from efattn.cli.output import Answer
from efattn.errors import DataError

EXAMPLES = "Examples:\n\nefattn datasets\n\nefattn datasets export noaa-october -o noaa.csv"


def add_to(app: typer.Typer) -> None:
    sets = typer.Typer(invoke_without_command=True, rich_markup_mode="rich", help="Data sets that are ready for fit.")
    sets.callback(epilog=EXAMPLES)(datasets)
    sets.command("list", epilog="Example:\n\nefattn datasets list --json")(list_)
    sets.command("export", epilog="Example:\n\nefattn datasets export noaa-october -o noaa.csv")(export)
    app.add_typer(sets, name="datasets")


def datasets(context: typer.Context, json: arguments.Json = False) -> None:
    """Data sets that are ready for fit: where each was found, or how to get it."""
    if context.invoked_subcommand is None:
        list_(json)


def list_(json: arguments.Json = False) -> None:
    """What there is, where it was found, or how to get it."""
    from efattn.datasets import DATASETS

    entries = [
        {"name": s.name, "what": s.what, "here": s.here, "where": s.where, "licence": s.licence, "source": s.source}
        for s in DATASETS
    ]
    if json:
        out.print_json(entries)
        return
    for one in entries:
        tell(f"{one['name']}{'' if one['here'] else ' (not here)'}: {one['what']}")
        tell(f"    {one['where']}")
        tell(f"    {one['source']}; {one['licence']}")


@arguments.spelled_out
def export(
    name: Annotated[str, typer.Argument(metavar="NAME", help="As efattn datasets lists it.", show_default=False)],
    *,
    answer: Answer,
) -> None:
    """Write a data set as one tidy table."""
    from difflib import get_close_matches

    from efattn.datasets import DATASETS

    answer.check()
    known = {one.name: one for one in DATASETS}
    if name not in known:
        near = get_close_matches(name, known, 1, 0.4)
        hint = f"Did you mean {near[0]!r}?" if near else f"There are {', '.join(known)}."
        raise DataError(f"There is no data set {name!r}. {hint}")
    answer.give([known[name].load()])
