"""Every option of a model, of its training and of fit, once: its name, default, what it accepts and what it does.

    a field below  ->  constructor, scikit-learn's parameters, docstring, check, an option of `efattn fit`

Nothing here needs torch, so that a shell can refuse what cannot be before it is imported.
"""
# ruff: noqa: RUF009 (_field is dataclasses.field with a name for what goes into its metadata)

import math
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, final

from efattn.declared import Role, check, described, differing, explained, listed
from efattn.errors import DataError, named, option

MOST_MEMBERS = 1000
MOST_EPOCHS = 2000  # that are planned
STEPS = 12_000
USUAL, LARGE, LASTING = 1024, 4096, 0.998  # cells of a batch; of a large one, and the running mean that goes with it
ROUND = 8  # steps at least between two looks at what is held out
PATIENT, LEAST = 60, 60  # patience as a share of all steps, and in steps
EXACT, DRAWN = 200_000, 8_192  # items up to which the loss is of all of them, and how many stand for them beyond
SLOW_EXACT, SLOW_DRAWN = 5_000, 2_048  # the same on a CPU, up to as many as there
DROPS, FACTOR = 2, 0.25  # how often and by how much the rate falls on a plateau
FAMILIES = (
    "bernoulli", "beta", "binomial", "censored", "exponential", "gamma", "gaussian", "hurdle", "johnson",
    "log_normal", "multivariate_gaussian", "negative_binomial", "nominal", "ordinal", "per_item", "poisson",
    "student_t", "successes", "truncated", "weibull", "zero_inflated", "zero_or",
)  # fmt: skip
Context = Literal["others", "past", "any"]
OneWay = Literal["others", "past"]
Own = Literal["auto", "known", "hidden"]


def _field(default: Any, words: str, **more: Any) -> Any:
    """words: what it does, for docstrings and for a shell. more: low, high, above, below (of a number); several (words
    in a shell); zero (which stands for None there); metavar."""
    return field(default=default, metadata={"help": words, **more})


@final
@explained
@dataclass(frozen=True, repr=False)
class Training:
    """How a model is fitted, apart from what it is: a value that never changes. The best weights on held-out groups are
    restored in any case."""

    epochs: int | None = _field(
        None,
        f"Passes over the data, at most; none for as many as give about {named('steps')} steps, from 5 to 2,000, and "
        f"up to twice as many while held-out groups are still predicted better; an epoch is then {ROUND} steps at "
        "least, several passes over a small table.",
        low=1,
    )
    seconds: float | None = _field(
        None, "About how long all networks may train together; none for as long as it takes.", above=0
    )
    steps: int | None = _field(
        None,
        f"About so many steps, where {named('epochs')} says nothing; none for {STEPS:,}, or by effort. A large batch "
        f"that {named('tokens')} chose counts as {LARGE // USUAL}.",
        low=1,
    )
    rate: float = _field(3e-3, f"The highest learning rate, reached after {named('warmup')}.", above=0)
    optimiser: Literal["adamw", "adam"] = _field("adamw", "adam is without weight decay, as in the paper.")
    weight_decay: float = _field(0.01, "Of adamw.", low=0)
    warmup: float = _field(0.05, "Share of all steps (at most of 1,000) until the highest rate.", low=0, high=1)
    decay: Literal["plateau", "cosine", "none"] = _field(
        "plateau",
        f"Of the rate: plateau keeps it until the validation score has not risen for {named('patience')} epochs, then "
        "goes back to the best weights and on with a quarter of it, twice; cosine, which plateau means without "
        "validation, lets it fall to 0; none keeps it.",
    )
    average: float | Literal["auto"] = _field(
        "auto",
        f"Decay of a running mean of the weights, as {LASTING}, kept in their place; 0 for none; auto for {LASTING} "
        f"where {named('tokens')} chose large batches.",
        low=0,
        below=1,
    )
    clip: float | None = _field(1.0, "The largest norm of a gradient; none for any.", above=0, zero=True)
    patience: int | Literal["auto"] | None = _field(
        "auto",
        "Epochs without a better validation score before the rate falls or training stops; auto for 5, or those of "
        f"{STEPS // PATIENT} steps (a sixtieth of {named('steps')}, and at least {LEAST}); none to run all epochs.",
        low=1,
        zero=True,
    )
    tokens: int | Literal["auto"] = _field(
        "auto",
        f"Padded cells per batch; auto for {USUAL:,}, and for {LARGE:,} in the past of more than 300 items of 30 rows "
        "each.",
        low=1,
    )
    draws: int | Literal["auto"] | None = _field(
        "auto",
        f"Score so many targets per group and step, drawn at random, for very long groups; auto for {named('tokens')}, "
        "none for all.",
        low=1,
    )
    candidates: int | Literal["auto"] | None = _field(
        "auto",
        "Of items: so many, drawn for each step by how often they come and corrected for that, stand for all others in "
        f"the loss of training; none for all of them, exactly, as auto up to {EXACT:,} items, with {DRAWN:,} of more; "
        f"on a CPU up to {SLOW_EXACT:,}, with {SLOW_DRAWN:,}. "
        "Held-out groups and all answers are computed exactly in any case.",
        low=1,
        zero=True,
    )
    precision: Literal["float32", "mixed"] = _field("float32", "mixed computes in bfloat16 on a GPU.")
    device: str = _field(
        "auto", "auto takes a GPU if there is one; or cpu, cuda, ... Networks are fitted and answer there."
    )
    jobs: int | Literal["auto"] = _field(
        "auto",
        "How many folds, or members of an ensemble, are trained side by side, each in a process with one thread. auto "
        "is one after the other, helped by a process for each idle core where the table is small and it takes longer "
        "than a few seconds; the result is the same.",
        low=1,
    )
    checkpoint_seconds: float = _field(
        30.0, f"How often a checkpoint is written, where {named('checkpoint')} asks for one.", low=0
    )

    def __post_init__(self) -> None:
        check(self, "Training: ")

    def __repr__(self) -> str:
        return f"Training({', '.join(f'{name}={value!r}' for name, value in differing(self).items())})"

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """As scikit-learn asks for them, so that a grid may have training__rate."""
        return {one.name: getattr(self, one.name) for one in fields(self)}

    def set_params(self, **options: Any) -> "Training":
        """Another value: this one stays what it is."""
        known = described(Training)
        for name in options:
            if name not in known:
                raise DataError(f"Invalid parameter {name!r} for Training. Valid parameters are: {sorted(known)}.")
        return replace(self, **options)

    def to_json(self) -> dict[str, Any]:
        return {name: x.item() if hasattr(x, "item") else x for name, x in self.get_params().items()}  # numpy's, plain

    @classmethod
    def from_json(cls, saved: Any) -> "Training":
        known = described(cls)
        if not isinstance(saved, dict) or not set(saved) <= set(known):
            raise DataError(f"Training options are an object with {', '.join(sorted(known))}.")
        return cls(**saved)

    @property
    def most_targets(self) -> int | None:
        """Of one group in a step; none for all."""
        return self.cells if self.draws == "auto" else self.draws

    def settled(self, *, large: bool) -> "Training":
        """Of one term, with nothing left open about its batches; large: those that the table asks for."""
        average = LASTING if large and self.average == "auto" else self.decay_of_mean
        if not large or self.tokens != "auto":
            return replace(self, average=average, tokens=self.cells)
        return replace(self, average=average, tokens=LARGE, steps=max(self.planned_steps * USUAL // LARGE, 1))

    @property
    def decay_of_mean(self) -> float:
        """Of the weights, in the usual case."""
        return 0.0 if self.average == "auto" else self.average

    @property
    def cells(self) -> int:
        """Of a batch, in the usual case."""
        return USUAL if self.tokens == "auto" else self.tokens

    @property
    def planned_steps(self) -> int:
        return STEPS if self.steps is None else self.steps

    def passes_for(self, batches: int) -> int:
        """Over the data in an epoch, of so many batches each."""
        return 1 if self.epochs is not None else -(-ROUND // max(batches, 1))

    def epochs_for(self, batches: int) -> int:
        planned = min(max(round(self.planned_steps / max(batches, 1)), 5), MOST_EPOCHS)
        return -(-planned // self.passes_for(batches)) if self.epochs is None else self.epochs

    def patience_for(self, batches: int) -> int | None:
        steps, mine = max(self.planned_steps // PATIENT, LEAST), max(batches, 1) * self.passes_for(batches)
        return max(5, -(-steps // mine)) if self.patience == "auto" else self.patience

    def candidates_for(self, items: int, *, cpu: bool = False) -> int | None:
        """How many are drawn of so many items; None for all. A GPU is done with all of many as soon as with some."""
        some = DRAWN if items > EXACT else SLOW_DRAWN if cpu and items > SLOW_EXACT else None
        number = some if self.candidates == "auto" else self.candidates
        return None if number is None or number >= items else number

    def warm_steps(self, total: int) -> int:
        """How many steps it takes until the highest rate."""
        return max(round(self.warmup * min(total, 1000)), 1)

    def rate_at(self, step: int, total: int, drops: int | None = None) -> float:
        """The learning rate of a step, 0 .. total - 1, after so many drops; None where nothing tells of a plateau."""
        warm = self.warm_steps(total)
        if step < warm:
            return self.rate * (step + 1) / warm
        if self.decay == "none":
            return self.rate
        if self.decay == "plateau" and drops is not None:
            return self.rate * FACTOR**drops
        return self.rate * 0.5 * (1 + math.cos(math.pi * (step - warm) / max(total - warm, 1)))


class _Model:
    """scikit-learn's nested set_params, where what is nested is a value."""

    training: Training | None

    def set_params(self, **options: Any) -> Any:
        """training__rate=... takes the place of one option of training."""
        nested = [name for name in options if name.startswith("training__")]
        inner = {name.removeprefix("training__"): options.pop(name) for name in nested}
        super().set_params(**options)  # type: ignore[misc]
        if inner:
            self.training = (self.training or Training()).set_params(**inner)
        return self


_FAMILY = (
    "Of the values: auto chooses by what each column holds; or one name for all columns, or one for each. Names: "
    f"{', '.join(FAMILIES)}."
)
_CONTEXT = "What a row is predicted from: others of its group, or past, what came earlier."
_ANY = (
    f"{_CONTEXT[:-1]}; or any, trained on any part of its group in any order, which has a joint density besides and no "
    "companions."
)
_TERMS = "What is modelled: item, value or both; none for all that is named."
_SUPPORT = "distinct rules out items that are in the group already; auto does if none repeats in training."
_STANDARDISE = "Real values by their mean and spread: global, by item, none, or auto."
_NEIGHBOURS = "Look only at the so many nearest places, by latitude and longitude as the first two attributes."
_OWN_TIME = (
    "Whether a row that is predicted shows its own time, where the order column says when rows were: known, hidden (it "
    "takes the time of the row before), or auto, hidden in past and known in others."
)
_OWN_ATTRIBUTES = (
    "Which attributes a row whose item is predicted shows of itself: known for all, hidden for none, or auto for those "
    "that the table shows not to depend on the item. Rows of the context show all."
)
_REFIT = (
    "Once all is chosen on held-out groups, fit once more to all groups; auto does where validation is a share of the "
    "table's own. With folds, simple models are, and networks of all folds predict together."
)
_TRAINING = "How it is fitted: efattn.Training(...)."
_SEED = "Of everything random."
_WIDEST, _LARGEST_SEED = 2**16, 2**62


@dataclass(eq=False, repr=False)
class EFAOptions(_Model):
    """The options of EFA."""

    family: Any = _field("auto", _FAMILY, several=True, metavar="FAMILY")
    context: Context = _field("others", _ANY)
    terms: Any = _field(None, _TERMS, several=True, metavar="TERM")
    effort: Literal["quick", "normal", "best"] = _field(
        "normal",
        "How much work a fit may be: quick takes a quarter of the steps, one split and no second fit; best tries other "
        "sizes on held-out groups and trains an ensemble. What is said explicitly stays.",
    )
    layers: int | Literal["auto"] = _field(
        "auto",
        "Layers of attention; auto for 2, and 1 of more than 300 items with fewer than 30 rows each.",
        low=1,
        high=256,
    )
    content: Literal["mixing", "isolated"] = _field(
        "mixing",
        "What rows of the context look at: mixing, each other, so that in others every target needs a context of its "
        "own from two layers on; or isolated, themselves alone, another model whose cost per layer is one pass's.",
    )
    heads: int | Literal["auto"] = _field("auto", "Heads of each layer; auto for 2, or 4.", low=1, high=_WIDEST)
    width: int | Literal["auto"] = _field(
        "auto",
        f"Of the vectors, a multiple of {named('heads')}; auto for 32, and up to 128 as items and rows grow.",
        low=1,
        high=_WIDEST,
    )
    feed_forward: int | Literal["auto"] = _field(
        "auto",
        f"Width of a block behind each layer, 0 for none; auto for twice the {named('width')} of tied items that have "
        "30 rows each, and else for none.",
        low=0,
        high=_WIDEST,
    )
    norm: Literal["auto", "pre", "post"] | None = _field(
        "auto",
        "Layer norm before or behind each layer; auto for pre where tied items have 30 rows each, else none.",
    )
    dropout: float | Literal["auto"] = _field(
        "auto",
        "Of embeddings and layers; auto for 0.1, 0.3 for items of fewer than 100,000 rows, and where they are tied for "
        "0.6 down to 0.1, the less the more rows each has.",
        low=0,
        below=1,
    )
    tied: bool | Literal["auto"] = _field(
        "auto",
        "Predict an item by the vector that it has as context, as sure of itself as held-out groups ask for; auto does "
        "for more than 300 items in past, and in others where they have fewer than 30 rows each.",
    )
    previous: bool | Literal["auto"] = _field(
        "auto",
        "In past, show each row what stood in the one before it, which attention would have to look for; auto does for "
        "values, and for items whose vectors are tied.",
    )
    hide: float | Literal["auto"] = _field(
        "auto",
        "While training, hide up to this share of the context of half of the groups, and take items for unknown at "
        "up to 0.3 of it, so that missing cells, new items and new places are nothing new; auto for 0.9 where values "
        f"are predicted from at least 100 rows for each unit of {named('width')}, else 0.",
        low=0,
        below=1,
    )
    dispersion: Literal["auto", "shared", "predicted"] = _field(
        "auto",
        "Of the values: variances, shapes and cut-points that are the same for all rows, or predicted for each, "
        f"starting from the same; auto for predicted from at least 100 rows for each unit of {named('width')}.",
    )
    support: Literal["auto", "all", "distinct"] = _field("auto", _SUPPORT)
    standardise: Literal["auto", "global", "item", "none"] = _field("auto", _STANDARDISE)
    lags: int = _field(0, "How many earlier time steps are seen.", low=0, high=10_000)
    neighbours: int | None = _field(None, _NEIGHBOURS, low=1)
    max_length: int | None = _field(None, "Cut longer groups into pieces of so many rows.", low=1)
    gaps: bool | Literal["auto"] = _field(
        "auto",
        "Let attention know how much time lies between two rows, by the order column; auto does for items where that "
        "column holds times, or numbers at uneven steps; of values simple models beside the network know it then.",
    )
    own_time: Own = _field("auto", _OWN_TIME)
    own_attributes: Own = _field("auto", _OWN_ATTRIBUTES)
    ensemble: int | Literal["auto"] = _field(
        "auto",
        "How many members, from other start values, whose mixture predicts; auto for 1, and with the best effort "
        "for 3, unless many items are seen seldom.",
        low=1,
        high=MOST_MEMBERS,
    )
    seed: int = _field(0, _SEED, low=0, high=_LARGEST_SEED)
    training: Training | None = _field(Training(), _TRAINING)
    companions: Any = _field(
        "auto",
        "Simple models that predict together with the networks, as much as held-out groups ask for: one of "
        "efattn.simple or several; auto for a linear model, a Gaussian where it is quickly fitted with trees of what "
        "it leaves, and an additive logit of items, with a Markov chain in past; none for networks alone.",
        several=True,
        metavar="MODEL",
    )
    refit: bool | Literal["auto"] = _field("auto", _REFIT)


@dataclass(eq=False, repr=False)
class LatentFactorOptions(_Model):
    """The options of LatentFactor."""

    family: Any = _field("auto", _FAMILY, several=True, metavar="FAMILY")
    context: OneWay = _field("others", _CONTEXT)
    terms: Any = _field(None, _TERMS, several=True, metavar="TERM")
    width: int = _field(32, "Of the vectors.", low=1, high=_WIDEST)
    intercept: bool = _field(False, "Add a learned vector to the context's.")
    neighbours: int | None = _field(None, _NEIGHBOURS, low=1)
    support: Literal["auto", "all", "distinct"] = _field("auto", _SUPPORT)
    standardise: Literal["auto", "global", "item", "none"] = _field("auto", _STANDARDISE)
    seed: int = _field(0, _SEED, low=0, high=_LARGEST_SEED)
    training: Training | None = _field(Training(), _TRAINING)
    refit: bool | Literal["auto"] = _field(False, _REFIT)


@dataclass(eq=False, repr=False)
class SimpleModelOptions(_Model):
    """The options of SimpleModel."""

    model: Any = _field(None, "One of efattn.simple, as simple.ShrunkMean().", metavar="MODEL")
    family: Any = _field("auto", _FAMILY, several=True, metavar="FAMILY")
    context: OneWay = _field("others", _CONTEXT)
    lags: int = _field(0, "How many earlier time steps are seen.", low=0, high=10_000)
    support: Literal["auto", "all", "distinct"] = _field("auto", _SUPPORT)
    standardise: Literal["auto", "global", "item", "none"] = _field("global", _STANDARDISE)
    own_time: Own = _field("auto", _OWN_TIME)
    own_attributes: Own = _field("auto", _OWN_ATTRIBUTES)
    seed: int = _field(0, _SEED, low=0, high=_LARGEST_SEED)
    training: Training | None = _field(Training(), "Of models in older files; simple models have options of their own.")
    refit: bool | Literal["auto"] = _field(False, _REFIT)


def check_model(chosen: Any) -> None:
    """A DataError for an option of an estimator that cannot be."""
    check(chosen)
    if chosen.training is not None and not isinstance(chosen.training, Training):
        raise DataError(f"training is an efattn.Training(...) or None; found {chosen.training!r}.", option="training")
    check_terms(getattr(chosen, "terms", None))
    heads, width = getattr(chosen, "heads", 1), getattr(chosen, "width", 0)
    if "auto" not in (heads, width) and width % heads:
        raise DataError(
            f"{option('width', chosen.width)} is not a multiple of {option('heads', heads)}. Choose one that is.",
            option="width",
        )
    if getattr(chosen, "previous", False) is True and chosen.context != "past":
        past = option("context", "past")
        raise DataError(
            f"{option('previous', True)} is for {past}, where a row sees all that came earlier.", option="previous"
        )


def check_terms(terms: Any) -> None:
    """A DataError for what is neither of the terms that there are."""
    several = [] if terms is None else [terms] if isinstance(terms, str) else terms
    if not isinstance(several, list | tuple):
        raise DataError(f"terms are 'item', 'value' or both in a list; found {terms!r}.", option="terms")
    for term in several:
        if term not in ("item", "value"):
            raise DataError(f"terms are 'item', 'value' or both in a list; found {term!r}.", option="terms")


# what fit is told about the table
ROLES = (
    Role("group", "The set or sequence a row belongs to.", several=True),
    Role("item", "Its category.", several=True),
    Role("value", "Its numbers.", several=True),
    Role("attributes", "What else is known about a row.", several=True),
    Role("order", "Its place in the group; 'row' for the order of the table."),
    Role("time", f"When a group was, with {named('lags')}."),
    Role("series", f"Which series a group is of, with {named('lags')}.", several=True),
    Role("exposure", "Multiplies a rate."),
    Role("noise", "Standard deviation of the value's own measurement error, where it is known; 0 where exact."),
    Role("weight", "How much a row counts."),
    Role("target", "True where a row is predicted, false where it is context only."),
)
# and how it goes about it
FIT = {
    "item_features": (
        "A second table, or a file, keyed by the item's columns: what is known of items. Words are levels, lists of "
        "words several; lists of numbers are vectors. Items that only this table has are new ones, and recommended by "
        "their features."
    ),
    "missing": "A code such as -1 that stands for a missing value; or several.",
    "validation": (
        "Held out to stop early and to choose by: a share of the groups (with lags: of the times), a number of folds, "
        "so that each group is held out once, 'last' for the last times, a table, or none. auto is five folds of a "
        "table with fewer than 1,000 rows, three of one with fewer than 5,000, and else, or where refit is off, a "
        "fifth of the groups, of at most a million rows. Of one group rows are held out, in the past its last ones."
    ),
    "on_disk": (
        "Whether the table stays on disk and is read as it is needed, so that it may be larger than memory: yes, no, "
        "or auto, which does with files that would take more than a quarter of the memory. What is made of it is kept "
        "in the cache for a week after its last use."
    ),
    "checkpoint": "A folder to keep the state of training in, until the model is saved.",
    "resume": f"Go on from {named('checkpoint')}.",
    "history": "A file to append a line of JSON to per epoch.",
    "callbacks": "Called with each epoch's record.",
    "progress": "yes for a bar, no for silence; by default a bar on a terminal or in a notebook, else lines.",
    "planned": "Called with what was understood, before training starts.",
}


def fit_words() -> str:
    """The arguments of fit, a line each, for its docstring."""
    roles = {role.name: role.help + (" One column or several." if role.several else "") for role in ROLES}
    return listed({**roles, **FIT})
