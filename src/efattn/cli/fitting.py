"""efattn fit: what was understood, then progress, then a verdict.

Its options are those of EFA, LatentFactor, Training and fit, read off their declarations. Whatever can be refused
without a model is refused before torch is imported.
"""

import inspect
import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from efattn.cli import arguments, launched, output, tables
from efattn.cli.declaring import from_option, from_role, parameter, values, with_parameters
from efattn.cli.names import flag, shell_option
from efattn.cli.outcome import Interrupted
from efattn.cli.report import conclude, describe, report, understood
from efattn.declared import described
from efattn.errors import DataError, shown
from efattn.options import FAMILIES, FIT, ROLES, EFAOptions, LatentFactorOptions, check_model
from efattn.training_options import Training

if TYPE_CHECKING:
    from efattn.data import Table
    from efattn.data.stored import Stored
    from efattn.estimators.blueprint import Blueprint

WHICH, MODEL, TRAINING = "Which column is what", "The model", "How it is fitted"
EXAMPLES = """Examples:

efattn fit ratings.csv --group user --item movie --value rating --family poisson \\

  --order timestamp --context past -o ratings.efattn

efattn fit weather.parquet --group date --item city,state --value temperature \\

  --attributes latitude,longitude --time date --lags 1 --terms value -o weather.efattn

efattn fit parts/ --group user --item product --order at --context past -o parts.efattn

efattn fit baskets.txt --baskets -o baskets.efattn

efattn fit people.csv --wide --id name -o people.efattn"""
OUTPUT = Annotated[
    Path, typer.Option("--output", "-o", metavar="FILE", help="The model to write, *.efattn.", show_default=False)
]
COMPARE = Annotated[
    bool, typer.Option("--compare/--no-compare", help="Fit latent factors to compare with.", show_default=False)
]
WIDE = Annotated[
    bool,
    typer.Option(
        "--wide", help="A row is a group and a column an item with a family of its own.", rich_help_panel=WHICH
    ),
]


class Kind(StrEnum):
    efa = "efa"
    latent = "latent"


KINDS: dict[Kind, type[EFAOptions] | type[LatentFactorOptions]] = {
    Kind.efa: EFAOptions,
    Kind.latent: LatentFactorOptions,
}


def add_to(app: typer.Typer) -> None:
    app.command(epilog=EXAMPLES)(with_parameters(fit, parameters()))


def parameters() -> list[inspect.Parameter]:
    """Every option of fit, from where it is declared."""
    model = {**described(EFAOptions), **described(LatentFactorOptions), **described(EFAOptions)}
    told = {name: shown(words, shell_option) for name, words in FIT.items()}
    return [
        known("table", arguments.Source),
        known("output", OUTPUT),
        *(from_role(role, WHICH) for role in ROLES),
        known("wide", WIDE, False),
        parameter("id", str, "With --wide, a column that names rows.", WHICH, "COLUMN"),
        parameter("exclude", list[str], "With --wide, columns that are not modelled.", WHICH, "COLUMN,..."),
        parameter("item_features", str, told["item_features"], WHICH, "FILE"),
        parameter("missing", list[str], told["missing"], MODEL, "CODE"),
        known("model", Annotated[Kind, typer.Option(help="Attention, or latent factors.", rich_help_panel=MODEL)],
               Kind.efa),
        *(from_option(one, MODEL, more_words(name)) for name, one in model.items() if name != "training"),
        *(from_option(one, TRAINING) for one in described(Training).values()),
        parameter("validation", str, f"{told['validation']} Default auto.", TRAINING, "FOLDS|SHARE|last|TABLE|none"),
        parameter("on_disk", bool, told["on_disk"], TRAINING, flags="--on-disk/--in-memory"),
        parameter("checkpoint", Path, told["checkpoint"], TRAINING, "FOLDER"),
        parameter("resume", bool, told["resume"], TRAINING, flags="--resume"),
        parameter("history", Path, told["history"], TRAINING, "FILE"),
        known("compare", COMPARE, True),
        known("force", arguments.Force, False),
        known("json", arguments.Json, False),
        *arguments.layout_parameters(),
    ]  # fmt: skip


def more_words(name: str) -> str:
    if name == "family":
        return "As poisson, rating=poisson or a,b=multivariate_gaussian; may be given again."
    if name == "refit":
        return "Not with --model latent, unless said."
    only = [str(kind) for kind, options in KINDS.items() if name in described(options)]
    return f"Only with --model {only[0]}." if only == [Kind.latent] else ""


def known(name: str, kind: Any, default: Any = inspect.Parameter.empty) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)


def fit(**asked: Any) -> None:
    """Fit a model to a table.

    Where torchrun starts several processes, they fit it together: torchrun --nproc-per-node 2 -m efattn fit ..."""
    with launched.together() as first:
        _fit(asked, first)


def _fit(asked: dict[str, Any], first: bool) -> None:
    """first: of several processes, the one that reads and writes what is no table."""
    path, checkpoint, history = asked["output"], asked["checkpoint"], asked["history"]
    resume = launched.told("whether to go on", lambda: bool(asked["resume"]) or _restarted(checkpoint))
    if first:
        output.check_output(path, asked["force"])
        output.check_apart(path, "The model", asked["table"], asked["validation"])
        output.check_apart(history, "--history", asked["table"], asked["validation"], path)
        _check_checkpoint(checkpoint, resume, asked["force"])
    layout = arguments.layout(asked)
    options = options_of(asked)
    source = tables.to_fit(asked, layout)
    roles = _wide_of(asked, source) if asked["wide"] else roles_of(asked, source)
    validation = _validation(asked["validation"], layout)
    roles |= _features_of(asked, layout)
    estimator = estimator_of(options)
    told: list[Any] = []

    def planned(blueprint: "Blueprint") -> None:
        told.append(blueprint)
        describe(understood(blueprint), asked["table"], asked["wide"])

    _clear(checkpoint if first and asked["force"] and not resume else None)
    (estimator.fit_wide if asked["wide"] else estimator.fit)(
        source,
        **roles,
        validation=validation,
        **({} if asked["wide"] else {"on_disk": "auto" if asked["on_disk"] is None else asked["on_disk"]}),
        checkpoint=checkpoint,
        resume=resume,
        history=history,
        progress=None if sys.stderr.isatty() else False,
        planned=planned,
    )
    if not first:
        return
    conclude(estimator)
    estimator.save(path)
    if estimator.interrupted_:
        more = "" if checkpoint is None else " The same command with --resume and --force goes on."
        raise Interrupted(f"Interrupted; the model as far as it was fitted is in {str(path)!r}.{more}")
    report(estimator, told[0], path, asked["compare"], asked["json"])


def options_of(asked: dict[str, Any]) -> EFAOptions | LatentFactorOptions:
    """The model that is asked for, as a value that needs no torch."""
    mine = described(KINDS[asked["model"]])
    for kind, other in KINDS.items():
        wrong = [name for name in described(other) if name not in mine and asked[name] is not None]
        if wrong:
            whose = "a latent factor model" if kind == Kind.efa else "attention"
            raise DataError(f"{flag(wrong[0])} is for --model {kind}; {whose} has none.", option=wrong[0])
    given = values(mine, asked)
    given["family"] = _families(asked["family"] or [], asked["value"] or [])
    training = Training(**values(described(Training), asked))
    model = KINDS[asked["model"]](**{**given, "training": training})
    check_model(model)
    return model


def estimator_of(options: EFAOptions | LatentFactorOptions) -> Any:
    from efattn import EFA, LatentFactor
    from efattn.training import resolve_device

    resolve_device(options.training or Training())
    if not isinstance(options, EFAOptions):
        return LatentFactor(**vars(options))
    return EFA(**{**vars(options), "companions": _companions(options.companions)})


def _companions(words: Any) -> Any:
    """Simple models by their names, in any spelling."""
    if words in ("auto", ["auto"]):
        return "auto"
    if words in (None, ["none"]):
        return None
    from efattn import simple

    return [simple.named(word) for word in words]


def roles_of(asked: dict[str, Any], source: "Table | Stored") -> dict[str, Any]:
    """Which column is what, all of them there."""
    from efattn.data import Roles

    columns: dict[str, Any] = {}
    for name in ("id", "exclude"):
        if asked.get(name) is not None:
            raise DataError(f"{flag(name)} is for --wide tables.", option=name)
    for role in ROLES:
        words = asked[role.name]
        if words is not None:
            columns[role.name] = _columns(words, source.names) if role.several else words
    if asked["baskets"] and not columns:
        columns = dict(zip(("group", "item"), source.names, strict=False))
    columns["missing"] = [_code(word) for word in asked["missing"] or ()] or None
    roles = Roles(**columns)
    for role in ROLES:
        source.require(roles.of(role.name), role.name)
    return columns


def _features_of(asked: dict[str, Any], layout: dict[str, Any]) -> dict[str, Any]:
    """What is known of items, if that is asked for."""
    if asked["item_features"] is None:
        return {}
    if asked["wide"]:
        raise DataError("--item-features is for long tables, where a column names items.", option="item_features")
    return {"item_features": tables.read(asked["item_features"], layout)}


def _wide_of(asked: dict[str, Any], source: "Table | Stored") -> dict[str, Any]:
    """What fit_wide takes."""
    for role in ROLES:
        if asked[role.name] is not None:
            said = f"Of a wide table every row is a group and every column an item: leave {flag(role.name)} out."
            raise DataError(said, option=role.name)
    exclude = _columns(asked["exclude"] or (), source.names)
    source.require([asked["id"]] if asked["id"] else [], "id")
    source.require(exclude, "exclude")
    codes = [_code(word) for word in asked["missing"] or ()] or None
    return {"id": asked["id"], "exclude": exclude, "missing": codes}


def _columns(words: Sequence[str], names: Sequence[str]) -> list[str]:
    """lat,lon is two columns, where none has that very name."""
    columns: list[str] = []
    for word in words:
        parts = [part.strip() for part in word.split(",")]
        columns += [word] if word in names or not all(parts) else parts
    return columns


def _check_checkpoint(folder: Path | None, resume: bool, force: bool) -> None:
    """Nothing is started anew that should go on, and nothing lost that could."""
    if folder is None:
        if resume:
            raise DataError("--resume needs --checkpoint, the folder that the interrupted fit wrote to.")
        return
    if resume and not _kept(folder):
        raise DataError(
            f"There is nothing to resume in {str(folder)!r}: no fit has kept anything there. Leave --resume out to "
            "start one, or check the folder.",
            option="resume",
        )
    if _kept(folder) and not resume and not force:
        raise DataError(
            f"{str(folder)!r} holds the state of an unfinished fit. Go on with --resume, start anew with --force, or "
            "choose another folder.",
            option="checkpoint",
        )


def _restarted(folder: Path | None) -> bool:
    """Whether torchrun starts it once more, with something to go on from."""
    return launched.restarted() and folder is not None and bool(_kept(folder))


def _kept(folder: Path) -> list[Path]:
    return [*folder.glob("*.checkpoint"), *folder.glob("member-*/*.checkpoint")]


def _clear(folder: Path | None) -> None:
    """Away with what an unfinished fit left, unless it is still at work."""
    if folder is None or not _kept(folder):
        return
    from efattn.training.lock import locked

    with locked(folder):
        for path in _kept(folder):
            path.unlink()


def _families(words: Sequence[str], columns: Sequence[str]) -> Any:
    """'poisson' for all; 'rating=poisson' for one column; 'a,b=multivariate_gaussian' for several together."""
    general, named = [], dict[tuple[str, ...], str]()
    for word in words:
        left, sign, right = word.rpartition("=")
        _check_family(right.strip())
        if not sign:
            general.append(word)
            continue
        keys = (left,) if left in columns else tuple(name.strip() for name in left.split(","))
        named[keys] = right.strip()
    if not named:
        if len(general) > 1:
            raise DataError("Several families: say of which column each is, as --family rating=poisson.")
        return general[0] if general else "auto"
    if len(general) > 1:
        raise DataError(f"Of which column is the family {general[1]!r}? Say --family COLUMN={general[1]}.")
    rest = [name for name in columns if not any(name in keys for keys in named)]
    return named | {(name,): general[0] for name in rest if general}


def _check_family(name: str) -> None:
    """A DataError for a name that no family has. Those in the help are known without torch."""
    if name.lower().replace("-", "_").replace(" ", "_") not in ("auto", *FAMILIES):
        from efattn import families

        families.kind(name)


def _validation(word: str | None, layout: dict[str, Any]) -> Any:
    if word is None or word.lower() == "auto":
        return "auto"
    if word.lower() in ("none", "no", "0"):
        return None
    if word.lower() == "last":
        return "last"
    try:
        return int(word) if word.isdecimal() else float(word)
    except ValueError:
        return word if word.isidentifier() and not Path(word).exists() else tables.read(word, layout)


def _code(word: str) -> float | str:
    try:
        return float(word)
    except ValueError:
        return word
