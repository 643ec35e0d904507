"""efattn compare: EFA beside latent factors and every simple model that suits a table, fold by fold of its groups."""

import inspect
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from efattn.cli import arguments, output, tables
from efattn.cli.declaring import from_option, from_role, parameter, with_parameters
from efattn.cli.fitting import KINDS, MODEL, TRAINING, WHICH, Kind, estimator_of, known, options_of, roles_of
from efattn.cli.messages import tell
from efattn.cli.names import shell_option
from efattn.cli.outcome import Interrupted
from efattn.declared import described
from efattn.errors import shown
from efattn.options import FIT, ROLES, EFAOptions
from efattn.training_options import Training

if TYPE_CHECKING:
    from efattn.comparing import Comparison

COMPARED = "The comparison"
EXAMPLES = """Examples:

efattn compare ratings.csv --group user --item movie --value rating --terms value

efattn compare visits.csv --group patient --value seizures --order period --context past \\

  -o visits.json --plot visits.png --jobs 2

efattn compare baskets.txt --baskets --models EFA,AdditiveLogit,Popularity"""
OUTPUT = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE.json",
        help="Write results as they come; where it is there already, finished fits are skipped.",
        show_default=False,
    ),
]
PLOT = Annotated[Path | None, typer.Option(metavar="FILE.png", help="Draw the differences.", show_default=False)]
FOLDS = Annotated[int, typer.Option(min=2, help="Of groups; each is left out once.", rich_help_panel=COMPARED)]
JOBS = Annotated[
    int, typer.Option(min=1, help="Fits side by side, each in a process with one thread.", rich_help_panel=COMPARED)
]
MODELS = "EFA, LatentFactor, names of simple models, or peers for all but EFA. Default all that suit the table."


def add_to(app: typer.Typer) -> None:
    app.command(epilog=EXAMPLES)(with_parameters(compare, parameters()))


def parameters() -> list[inspect.Parameter]:
    """Those of fit that say what is modelled and how, and how it is compared."""
    model = {name: one for name, one in described(EFAOptions).items() if name != "training"}
    training = {name: one for name, one in described(Training).items() if name not in ("jobs", "checkpoint_seconds")}
    return [
        known("table", arguments.Source),
        known("output", OUTPUT, None),
        known("plot", PLOT, None),
        parameter("models", list[str], MODELS, COMPARED, "MODEL,..."),
        known("folds", FOLDS, 5),
        known("jobs", JOBS, 1),
        *(from_role(role, WHICH) for role in ROLES),
        parameter("missing", list[str], shown(FIT["missing"], shell_option), MODEL, "CODE"),
        *(from_option(one, MODEL) for one in model.values()),
        *(from_option(one, TRAINING) for one in training.values()),
        known("force", arguments.Force, False),
        known("json", arguments.Json, False),
        *arguments.layout_parameters(),
    ]


def compare(**asked: Any) -> None:
    """Is attention worth it here? EFA beside every simple model that suits the table.

    Groups are dealt into folds. Each model is fitted to all folds but one and scored on that one, so that every group
    is scored once, by the same rows and the same family; differences to EFA have standard errors over groups."""
    path, plot = asked["output"], asked["plot"]
    output.check_output(path, True, (".json",))
    output.check_output(plot, asked["force"], (".png",))
    output.check_apart(path, "The comparison", asked["table"])
    layout = arguments.layout(asked)
    options = options_of({**dict.fromkeys(described(KINDS[Kind.latent])), **asked, "model": Kind.efa, "jobs": None})
    source = tables.read(asked["table"], layout)
    roles = roles_of(asked, source)
    efa = estimator_of(options)
    words = [name.strip() for word in asked["models"] or ["peers"] for name in word.split(",") if name.strip()]
    if path is not None and asked["force"]:
        path.unlink(missing_ok=True)

    from efattn.comparing import compare as run

    try:
        comparison = run(
            source,
            **roles,
            models=[efa, *words],
            folds=asked["folds"],
            seed=efa.seed,
            jobs=asked["jobs"],
            output=path,
            progress=None if sys.stderr.isatty() or not asked["json"] else False,
        )
    except KeyboardInterrupt:
        if path is None:
            raise
        raise Interrupted(f"Interrupted; what is finished is in {str(path)!r}, the same command goes on.") from None
    if plot is not None:
        from efattn.plots import save

        save(comparison.plot(), plot)
    if asked["json"]:
        output.print_json(comparison.to_json())
    else:
        report(comparison)


def report(comparison: "Comparison") -> None:
    """The table, who is not in it, and the verdict."""
    about = comparison.about
    tell(
        f"\nLog-likelihood per row of {about['groups']:,} groups, each left out once in {about['folds']} folds: the "
        "higher, the better.\n"
    )
    import polars as pl

    lines = [line._asdict() for line in comparison.lines]
    heads = {
        "term": "term", "model": "model", "log_likelihood": "log-likelihood", "difference": "difference",
        "error": "±", "standing": "", "seconds": "seconds", "lacks": "does not see",
    }  # fmt: skip
    shown_ = [name for name in heads if name != "term" or len(comparison.terms) > 1]
    shown_ = [name for name in shown_ if name != "lacks" or any(line["lacks"] for line in lines)]
    output.show(pl.DataFrame({heads[name]: [line[name] for line in lines] for name in shown_}, strict=False))
    tell()
    for name, why in comparison.out.items():
        tell(f"Not in it: {name}. {why}")
    tell(comparison.verdict)
