"""efattn fit: what was understood, then progress, then a verdict."""

import logging
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from efattn.cli import options, tables
from efattn.cli.running import Interrupted, in_the_shell, say
from efattn.errors import DataError

if TYPE_CHECKING:
    from efattn.estimators.plan import Plan

ROLES, MODEL, TRAINING = "Which column is what", "The model", "How it is fitted"


class Kind(StrEnum):
    efa = "efa"
    latent = "latent"


class Context(StrEnum):
    others = "others"
    past = "past"


def _role(words: str) -> Any:
    return typer.Option(metavar="COLUMN", help=words, rich_help_panel=ROLES, show_default=False)


def _model(words: str, metavar: str | None = None) -> Any:
    return typer.Option(help=words, rich_help_panel=MODEL, show_default=False, metavar=metavar)


def _training(words: str, metavar: str | None = None) -> Any:
    return typer.Option(help=words, rich_help_panel=TRAINING, show_default=False, metavar=metavar)


Names = list[str] | None
ONLY_EFA = (
    "layers", "heads", "feed_forward", "norm", "dropout", "context_dropout", "lags", "max_length", "gaps", "ensemble",
    "prior", "prior_weight", "prior_use",
)  # fmt: skip
ROLE_NAMES = ("group", "item", "value", "attributes", "order", "time", "series", "exposure", "weight", "target")
SHARED = ("width", "neighbours", "support", "standardise", "seed")
TRAINED = (
    "epochs", "steps", "rate", "optimiser", "weight_decay", "warmup", "decay", "average", "clip", "patience", "tokens",
    "draws", "precision", "device", "jobs", "checkpoint_seconds",
)  # fmt: skip
EXAMPLES = """Examples:

efattn fit ratings.csv --group user --item movie --value rating --family poisson \\

  --order timestamp --context past -o ratings.efattn

efattn fit weather.parquet --group date --item city --item state --value temperature \\

  --attributes latitude --attributes longitude --time date --lags 1 --terms value -o weather.efattn"""


def add_to(app: typer.Typer) -> None:
    app.command(epilog=EXAMPLES)(fit)


def fit(
    table: options.Source,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="The model to write, *.efattn.", show_default=False)
    ],
    group: Annotated[Names, _role("The set or sequence a row belongs to. Roles of several columns: repeat.")] = None,
    item: Annotated[Names, _role("Its category.")] = None,
    value: Annotated[Names, _role("Its numbers.")] = None,
    attributes: Annotated[Names, _role("What else is known about a row.")] = None,
    order: Annotated[str | None, _role("Its place in the group; 'row' for the order of the table.")] = None,
    time: Annotated[str | None, _role("When a group was, with --lags.")] = None,
    series: Annotated[Names, _role("Which series a group is of, with --lags.")] = None,
    exposure: Annotated[str | None, _role("Multiplies a rate.")] = None,
    weight: Annotated[str | None, _role("How much a row counts.")] = None,
    target: Annotated[str | None, _role("True where a row is predicted, false where it is context only.")] = None,
    missing: Annotated[Names, _model("A code such as -1 for a missing value.", "CODE")] = None,
    model: Annotated[Kind, _model("Attention, or latent factors. Default efa.")] = Kind.efa,
    family: Annotated[
        Names, _model("Of the values, as 'poisson', 'rating=poisson', 'a,b=multivariate_gaussian'.", "FAMILY")
    ] = None,
    context: Annotated[Context, _model("What a row is predicted from. Default others.")] = Context.others,
    terms: Annotated[Names, _model("What is modelled: item, value, or both. Default: all named.", "TERM")] = None,
    layers: Annotated[int | None, _model("Layers of attention. Default 2.")] = None,
    heads: Annotated[int | None, _model("Heads of each layer. Default 2.")] = None,
    width: Annotated[int | None, _model("Of the vectors. Default 32.")] = None,
    feed_forward: Annotated[int | None, _model("Width of a block behind each layer. Default 0: none.")] = None,
    norm: Annotated[str | None, _model("pre, post or none. Default none.")] = None,
    dropout: Annotated[float | None, _model("Of embeddings and layers. Default 0.1; items in few groups 0.3.")] = None,
    context_dropout: Annotated[float | None, _model("Share of the context hidden in training. Default 0.")] = None,
    support: Annotated[str | None, _model("auto, all, or distinct: no item twice in a group. Default auto.")] = None,
    standardise: Annotated[str | None, _model("auto, global, item or none. Default auto.")] = None,
    lags: Annotated[int | None, _model("How many earlier time steps are seen. Default 0.")] = None,
    neighbours: Annotated[int | None, _model("Look only at the so many nearest places.")] = None,
    max_length: Annotated[int | None, _model("Cut longer groups.")] = None,
    gaps: Annotated[
        bool | None,
        typer.Option(
            "--gaps/--no-gaps",
            help="Let attention know how much time lies between rows. Default: of items, if --order is a time.",
            rich_help_panel=MODEL,
            show_default=False,
        ),
    ] = None,
    ensemble: Annotated[int | None, _model("Fit so many members, whose mixture predicts. Default 1.")] = None,
    seed: Annotated[int | None, _model("Of everything random. Default 0.")] = None,
    prior: Annotated[
        str | None,
        _model("A simple model: gaussian (of values), additive (of items), none, or auto (beside it). Default auto."),
    ] = None,
    prior_weight: Annotated[float | None, _model("Share of its draws in each step. Default 0.5.")] = None,
    prior_use: Annotated[
        str | None,
        _model(
            "draws, offset (the network adds to it), start (draws first), or member (of the mixture). Default draws."
        ),
    ] = None,
    epochs: Annotated[int | None, _training("At most so many passes. Default: from --steps.")] = None,
    steps: Annotated[int | None, _training("About so many steps. Default 12000.")] = None,
    rate: Annotated[float | None, _training("The highest learning rate. Default 0.003.")] = None,
    patience: Annotated[int | None, _training("Stop after so many epochs without gain; 0: never.")] = None,
    tokens: Annotated[int | None, _training("Padded cells per batch. Default 1024.")] = None,
    draws: Annotated[int | None, _training("Score so many targets per group and step.")] = None,
    optimiser: Annotated[str | None, _training("adamw or adam. Default adamw.")] = None,
    weight_decay: Annotated[float | None, _training("Of adamw. Default 0.01.")] = None,
    warmup: Annotated[float | None, _training("Share of steps until the highest rate. Default 0.05.")] = None,
    decay: Annotated[str | None, _training("Of the rate: plateau, cosine or none. Default plateau.")] = None,
    average: Annotated[float | None, _training("Decay of a running mean of the weights. Default 0: none.")] = None,
    clip: Annotated[float | None, _training("The largest norm of a gradient. Default 1; 0: any.")] = None,
    precision: Annotated[str | None, _training("float32, or mixed on a GPU. Default float32.")] = None,
    device: Annotated[str | None, _training("auto, cpu, cuda, ... Default auto.")] = None,
    jobs: Annotated[int | None, _training("Train so many members of an ensemble side by side. Default 1.")] = None,
    validation: Annotated[
        str, _training("Held out to stop early: a share of the groups, a table, or none. Default 0.2.", "SHARE")
    ] = "0.2",
    checkpoint: Annotated[Path | None, _training("A folder to keep the state of training in.", "FOLDER")] = None,
    checkpoint_seconds: Annotated[float | None, _training("How often it is kept. Default 30.")] = None,
    resume: Annotated[bool, _training("Go on from --checkpoint.")] = False,
    history: Annotated[Path | None, _training("A file to append a line of JSON to per epoch.", "FILE")] = None,
    compare: Annotated[
        bool, typer.Option("--compare/--no-compare", help="Fit latent factors to compare with.", show_default=False)
    ] = True,
    force: options.Force = False,
    json: options.Json = False,
    separator: options.Separator = None,
    decimal: options.Decimal = None,
    header: options.Header = None,
    columns: options.Columns = None,
    encoding: options.Encoding = None,
) -> None:
    """Fit a model to a table."""
    asked = dict(locals())
    tables.check_output(output, force)
    if resume and checkpoint is None:
        raise DataError("--resume needs --checkpoint, the folder that the interrupted fit wrote to.")
    layout = options.layout(separator, decimal, header, columns, encoding)
    estimator = _estimator(asked)
    estimator.training.resolve_device()  # better now than after the table was read
    source = tables.read(table, layout)
    told: list[Any] = []
    roles = {name: asked[name] or None for name in ROLE_NAMES}
    roles |= {name: roles[name] or () for name in ("group", "item", "value", "attributes")}

    def planned(plan: "Plan") -> None:
        told.append(plan)
        describe(understood(plan), table)

    estimator.fit(
        source,
        **roles,
        missing=[_code(word) for word in missing or ()] or None,
        validation=_validation(validation, layout),
        checkpoint=checkpoint,
        resume=resume,
        history=history,
        planned=planned,
    )
    estimator.save(output)
    if estimator.interrupted_:
        raise Interrupted(f"Interrupted; the model as far as it was fitted is in {str(output)!r}.")
    report(estimator, told[0], output, compare, json)


def report(estimator: Any, plan: "Plan", output: Path, compare: bool, as_json: bool) -> None:
    """What was fitted, beside what is easily had."""
    from efattn.estimators.verdict import verdict

    try:
        found = verdict(estimator, plan) if compare else {}
    except KeyboardInterrupt:
        raise Interrupted(f"Interrupted while comparing; the model is in {str(output)!r}.") from None
    if as_json:
        tables.print_json({"model": str(output), **understood(plan), "held_out": found})
        return
    if found:
        import polars as pl

        name = type(estimator).__name__
        typer.echo("\nHeld-out log-likelihood per target, in nats: the higher, the better.\n")
        heads = {"model": name, "latent": "latent factors", "marginal": "marginal"}
        rows = {"term": list(found)} | {head: [s[k] for s in found.values()] for k, head in heads.items()}
        known = [head for head, column in rows.items() if any(x is not None for x in column)]
        tables.show(pl.DataFrame(rows).select(known))
        typer.echo()
        for term, scores in found.items():
            typer.echo(_sentence(name, term, scores))
    typer.echo(f"Wrote {output}. Next: efattn summary {output}")


def _sentence(name: str, term: str, scores: dict[str, float | None]) -> str:
    mine, others = scores["model"], {k: x for k, x in scores.items() if k != "model" and x is not None}
    if mine is None or not others:
        return f"{term}: nothing held out could be scored."
    best = max(others, key=lambda k: others[k])
    words = {"latent": "the latent factor model", "marginal": "the marginal fit"}[best]
    if mine > others[best]:
        return f"{term}: {name} is ahead of {words} by {mine - others[best]:.4f}."
    advice = {"latent": "try more --steps, or another --rate or --width"}
    advice["marginal"] = "fit for longer, or check that groups and context are what you mean"
    return f"{term}: {words} is ahead by {others[best] - mine:.4f}; {advice[best]}."


def understood(plan: "Plan") -> dict[str, Any]:
    """What is known before training starts."""
    import numpy as np

    groups, roles, lengths = plan.groups, plan.schema.roles, plan.groups.lengths
    found: dict[str, Any] = {"rows": len(groups.rows), "groups": len(groups), "group": list(roles.of("group"))}
    found["lengths"] = {"min": int(lengths.min()), "median": float(np.median(lengths)), "max": int(lengths.max())}
    found |= {"items": plan.items, "item": list(roles.of("item")), "terms": list(plan.terms)}
    found["held_out_groups"] = 0 if plan.held is None else len(plan.held)
    found["families"], found["missing"] = {}, {}
    why = {
        note.split("'")[1]: note.rsplit(" (", 1)[1][:-2]
        for note in map(str, groups.notes)
        if note.startswith("Family of '")
    }
    for part, _, columns in plan.family.slices() if plan.family is not None else ():
        names = roles.of("value")[columns]
        found["families"][",".join(names)] = {"family": repr(part), "why": why.get(names[0], "as asked")}
    if groups.value is not None:
        absent = np.isnan(groups.value).sum(0)
        found["missing"] = {name: int(n) for name, n in zip(roles.of("value"), absent, strict=True)}
    found["notes"] = [note for note in map(str, groups.notes) if not note.startswith("Family of '")]
    return found


def describe(found: dict[str, Any], source: str) -> None:
    """The same in words, on standard error."""
    lengths, name = found["lengths"], "standard input" if source == "-" else source
    by = f" ({', '.join(found['group'])})" if found["group"] else ""
    spread = f"{lengths['min']} to {lengths['max']} rows, median {lengths['median']:g}"
    say(f"{name}: {found['rows']:,} rows in {found['groups']:,} groups{by} of {spread}.")
    if found["items"]:
        say(f"{found['items']:,} items ({', '.join(found['item'])}).")
    for names, family in found["families"].items():
        absent = sum(found["missing"][name] for name in found["missing"] if name in names.split(","))
        say(f"{names}: {family['family']}, {family['why']}; {absent or 'no'} values missing.")
    say(f"Modelled: {' and '.join(found['terms'])}. Held out: {found['held_out_groups']:,} groups.")
    if not logging.getLogger("efattn").isEnabledFor(logging.INFO):  # else they are logged
        for note in found["notes"]:
            say(f"note: {in_the_shell(note)}")


def _estimator(asked: dict[str, Any]) -> Any:
    latent = asked["model"] == Kind.latent
    wrong = [name for name in ONLY_EFA if latent and asked[name] is not None]
    if wrong:
        raise DataError(f"--{wrong[0].replace('_', '-')} is for --model efa; a latent factor model has none.")
    family = _families(asked["family"] or [], asked["value"] or [])

    from efattn import EFA, LatentFactor, Training

    given = {name: asked[name] for name in TRAINED if asked[name] is not None}
    given |= {name: None for name in ("patience", "clip") if given.get(name) == 0}
    chosen = {name: asked[name] for name in (*SHARED, *(() if latent else ONLY_EFA)) if asked[name] is not None}
    chosen |= {name: None for name in ("norm", "prior") if chosen.get(name) == "none"}
    chosen |= {"family": family, "context": str(asked["context"]), "terms": asked["terms"] or None}
    return (LatentFactor if latent else EFA)(training=Training(**given), **chosen)


def _families(words: Sequence[str], columns: Sequence[str]) -> Any:
    """'poisson' for all; 'rating=poisson' for one column; 'a,b=multivariate_gaussian' for several together."""
    general, named = [], dict[tuple[str, ...], str]()
    for word in words:
        left, sign, right = word.rpartition("=")
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


def _validation(word: str, layout: dict[str, Any]) -> Any:
    if word.lower() in ("none", "no", "0"):
        return None
    try:
        return float(word)
    except ValueError:
        return tables.read(word, layout)


def _code(word: str) -> float | str:
    try:
        return float(word)
    except ValueError:
        return word
