"""Every option of a model and of fit, once: its name, default, what it accepts and what it does.

    a field below  ->  constructor, scikit-learn's parameters, docstring, check, an option of `efattn fit`

Those of training are in training_options.py. Nothing here needs torch, so that a shell can refuse what cannot be before
it is imported.
"""
# ruff: noqa: RUF009 (option_of is dataclasses.field with a name for what goes into its metadata)

from dataclasses import dataclass
from typing import Any, Literal

from efattn.declared import Role, check, listed, option_of
from efattn.errors import DataError, named, option
from efattn.training_options import Training

MOST_MEMBERS = 1000
FAMILIES = (
    "bernoulli", "beta", "binomial", "censored", "exponential", "gamma", "gaussian", "hurdle", "johnson",
    "log_normal", "multivariate_gaussian", "negative_binomial", "nominal", "ordinal", "per_item", "poisson",
    "student_t", "successes", "truncated", "weibull", "zero_inflated", "zero_or",
)  # fmt: skip
Context = Literal["others", "past", "any"]
OneWay = Literal["others", "past"]
Own = Literal["auto", "known", "hidden"]


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

    family: Any = option_of("auto", _FAMILY, several=True, metavar="FAMILY")
    context: Context = option_of("others", _ANY)
    terms: Any = option_of(None, _TERMS, several=True, metavar="TERM")
    effort: Literal["quick", "normal", "best"] = option_of(
        "normal",
        "How much work a fit may be: quick takes a quarter of the steps, one split and no second fit; best tries other "
        "sizes on held-out groups and trains an ensemble. What is said explicitly stays.",
    )
    layers: int | Literal["auto"] = option_of(
        "auto",
        "Layers of attention; auto for 2, and 1 of more than 300 items with fewer than 30 rows each.",
        low=1,
        high=256,
    )
    content: Literal["mixing", "isolated"] = option_of(
        "mixing",
        "What rows of the context look at: mixing, each other, so that in others every target needs a context of its "
        "own from two layers on; or isolated, themselves alone, another model whose cost per layer is one pass's.",
    )
    heads: int | Literal["auto"] = option_of("auto", "Heads of each layer; auto for 2, or 4.", low=1, high=_WIDEST)
    width: int | Literal["auto"] = option_of(
        "auto",
        f"Of the vectors, a multiple of {named('heads')}; auto for 32, and up to 128 as items and rows grow.",
        low=1,
        high=_WIDEST,
    )
    feed_forward: int | Literal["auto"] = option_of(
        "auto",
        f"Width of a block behind each layer, 0 for none; auto for twice the {named('width')} of tied items that have "
        "30 rows each, and else for none.",
        low=0,
        high=_WIDEST,
    )
    norm: Literal["auto", "pre", "post"] | None = option_of(
        "auto",
        "Layer norm before or behind each layer; auto for pre where tied items have 30 rows each, else none.",
    )
    dropout: float | Literal["auto"] = option_of(
        "auto",
        "Of embeddings and layers; auto for 0.1, 0.3 for items of fewer than 100,000 rows, and where they are tied for "
        "0.6 down to 0.1, the less the more rows each has.",
        low=0,
        below=1,
    )
    tied: bool | Literal["auto"] = option_of(
        "auto",
        "Predict an item by the vector that it has as context, as sure of itself as held-out groups ask for; auto does "
        "for more than 300 items in past, and in others where they have fewer than 30 rows each.",
    )
    previous: bool | Literal["auto"] = option_of(
        "auto",
        "In past, show each row what stood in the one before it, which attention would have to look for; auto does for "
        "values, and for items whose vectors are tied.",
    )
    hide: float | Literal["auto"] = option_of(
        "auto",
        "While training, hide up to this share of the context of half of the groups, and take items for unknown at "
        "up to 0.3 of it, so that missing cells, new items and new places are nothing new; auto for 0.9 where values "
        f"are predicted from at least 100 rows for each unit of {named('width')}, else 0.",
        low=0,
        below=1,
    )
    dispersion: Literal["auto", "shared", "predicted"] = option_of(
        "auto",
        "Of the values: variances, shapes and cut-points that are the same for all rows, or predicted for each, "
        f"starting from the same; auto for predicted from at least 100 rows for each unit of {named('width')}.",
    )
    support: Literal["auto", "all", "distinct"] = option_of("auto", _SUPPORT)
    standardise: Literal["auto", "global", "item", "none"] = option_of("auto", _STANDARDISE)
    lags: int = option_of(0, "How many earlier time steps are seen.", low=0, high=10_000)
    neighbours: int | None = option_of(None, _NEIGHBOURS, low=1)
    max_length: int | None = option_of(None, "Cut longer groups into pieces of so many rows.", low=1)
    gaps: bool | Literal["auto"] = option_of(
        "auto",
        "Let attention know how much time lies between two rows, by the order column; auto does for items where that "
        "column holds times, or numbers at uneven steps; of values simple models beside the network know it then.",
    )
    own_time: Own = option_of("auto", _OWN_TIME)
    own_attributes: Own = option_of("auto", _OWN_ATTRIBUTES)
    ensemble: int | Literal["auto"] = option_of(
        "auto",
        "How many members, from other start values, whose mixture predicts; auto for 1, and with the best effort "
        "for 3, unless many items are seen seldom.",
        low=1,
        high=MOST_MEMBERS,
    )
    seed: int = option_of(0, _SEED, low=0, high=_LARGEST_SEED)
    training: Training | None = option_of(Training(), _TRAINING)
    companions: Any = option_of(
        "auto",
        "Simple models that predict together with the networks, as much as held-out groups ask for: one of "
        "efattn.simple or several; auto for a linear model, a Gaussian where it is quickly fitted with trees of what "
        "it leaves, and an additive logit of items, with a Markov chain in past; none for networks alone.",
        several=True,
        metavar="MODEL",
    )
    refit: bool | Literal["auto"] = option_of("auto", _REFIT)


@dataclass(eq=False, repr=False)
class LatentFactorOptions(_Model):
    """The options of LatentFactor."""

    family: Any = option_of("auto", _FAMILY, several=True, metavar="FAMILY")
    context: OneWay = option_of("others", _CONTEXT)
    terms: Any = option_of(None, _TERMS, several=True, metavar="TERM")
    width: int = option_of(32, "Of the vectors.", low=1, high=_WIDEST)
    intercept: bool = option_of(False, "Add a learned vector to the context's.")
    neighbours: int | None = option_of(None, _NEIGHBOURS, low=1)
    support: Literal["auto", "all", "distinct"] = option_of("auto", _SUPPORT)
    standardise: Literal["auto", "global", "item", "none"] = option_of("auto", _STANDARDISE)
    seed: int = option_of(0, _SEED, low=0, high=_LARGEST_SEED)
    training: Training | None = option_of(Training(), _TRAINING)
    refit: bool | Literal["auto"] = option_of(False, _REFIT)


@dataclass(eq=False, repr=False)
class SimpleModelOptions(_Model):
    """The options of SimpleModel."""

    model: Any = option_of(None, "One of efattn.simple, as simple.ShrunkMean().", metavar="MODEL")
    family: Any = option_of("auto", _FAMILY, several=True, metavar="FAMILY")
    context: OneWay = option_of("others", _CONTEXT)
    lags: int = option_of(0, "How many earlier time steps are seen.", low=0, high=10_000)
    support: Literal["auto", "all", "distinct"] = option_of("auto", _SUPPORT)
    standardise: Literal["auto", "global", "item", "none"] = option_of("global", _STANDARDISE)
    own_time: Own = option_of("auto", _OWN_TIME)
    own_attributes: Own = option_of("auto", _OWN_ATTRIBUTES)
    seed: int = option_of(0, _SEED, low=0, high=_LARGEST_SEED)
    training: Training | None = option_of(
        Training(), "Of models in older files; simple models have options of their own."
    )
    refit: bool | Literal["auto"] = option_of(False, _REFIT)


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
