"""What several experiments share: the paper's optimiser, peers of items and of values."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from efattn import simple
from efattn.estimators import EFA, LatentFactor, SimpleModel
from efattn.experiments.paper import PaperEFA
from efattn.experiments.settings import Entry
from efattn.options import Own
from efattn.simple.low_rank import RANK
from efattn.training import Training

Context = Literal["past", "others"]
Support = Literal["all", "distinct"]
OWN_TIME = "own time"


def adam(epochs: int, patience: int | None, rate: float = 1e-4, tokens: int = 256, device: str = "auto") -> Training:
    """The paper's: Adam at one rate, the best weights by validation restored."""
    return Training(
        epochs=epochs,
        patience=patience,
        rate=rate,
        tokens=tokens,
        optimiser="adam",
        warmup=0.0,
        decay="none",
        clip=None,
        device=device,
    )


def latent(model: str, paper: float | None, training: Training, **options: Any) -> Entry:
    def make(seed: int) -> Any:
        return LatentFactor(**options, standardise="none", seed=seed, training=training)

    return Entry(model, "paper", make, paper, without=("time",))


def papers(model: str, paper: float | None, training: Training, **options: Any) -> Entry:
    return Entry(model, "paper", lambda seed: PaperEFA(**options, seed=seed, training=training), paper)


def untuned(model: str = "EFA", without: tuple[str, ...] = (), **question: Any) -> Entry:
    """The library's defaults: only the question is told."""
    return Entry(model, "defaults", lambda seed: EFA(**question, seed=seed), without=without, sees=_sees(question))


def _sees(question: Mapping[str, Any]) -> tuple[str, ...]:
    """What EFA is told that peers need not be: in `past`, when the row that is predicted was."""
    known = question.get("own_time", "auto")
    return (OWN_TIME,) if question["context"] == "past" and known == "known" else ()


def untuned_latent(**question: Any) -> Entry:
    """Latent factors with the library's defaults."""
    return Entry("latent factors", "defaults", lambda seed: LatentFactor(**question, seed=seed))


def best(model: str = "EFA", **options: Any) -> Entry:
    """Tuned on validation groups. Seeds are far apart, so that ensembles of different seeds share no member."""
    return Entry(model, "best", lambda seed: EFA(**options, seed=100 * seed), sees=_sees(options))


def peer(
    name: str, recipe: simple.Recipe, family: Any = "gaussian", without: tuple[str, ...] = (), **options: Any
) -> Entry:
    """A simple model, which has no seed."""
    return Entry(name, "peer", lambda seed: SimpleModel(recipe, family=family, **options), fixed=True, without=without)


def item_peers(
    context: Context, supports: Sequence[Support] = ("all", "distinct"), times: bool = False
) -> tuple[Entry, ...]:
    """Of a table of items, each with these supports: popularity, Markov chain, additive logit with gaps in rank. times:
    whether rows say when they were; the additive logit then has gaps in time, and in `past` there is one more, which
    knows when the row that is predicted was."""
    kinds: dict[str, tuple[simple.Recipe, Own]] = {"popularity": (simple.Popularity(), "auto")}
    if context == "past":
        kinds["Markov chain"] = (simple.MarkovChain(), "auto")
    kinds["additive logit"] = (simple.AdditiveLogit(), "auto")
    if context == "past" and times:
        kinds[f"additive logit, {OWN_TIME} known"] = (simple.AdditiveLogit(), "known")
    return tuple(
        _item_peer(name, recipe, context, support, own) for name, (recipe, own) in kinds.items() for support in supports
    )


def _item_peer(name: str, recipe: simple.Recipe, context: Context, support: Support, own: Own) -> Entry:
    def make(seed: int) -> Any:
        return SimpleModel(recipe, context=context, support=support, own_time=own, seed=seed)

    model = name if support == "all" else f"{name}, {support}"
    sees = (OWN_TIME,) if own == "known" else ()
    return Entry(model, "peer", make, fixed=not isinstance(recipe, simple.AdditiveLogit), sees=sees)


def item_entries(
    context: Context,
    papers_numbers: tuple[float, float],
    training: Training,
    attention: Training | None = None,
    times: bool = False,
) -> tuple[Entry, ...]:
    """Of a table of items: peers with and without distinct support, latent factors and EFA as in the paper, EFA's
    defaults. attention: how EFA is trained, if otherwise. times: as of peers."""
    fm, efa = papers_numbers
    options: dict[str, Any] = {"context": context, "terms": "item", "support": "all"}
    return (
        *item_peers(context, times=times),
        latent("latent factors", fm, training, **options),
        latent("latent factors, intercept", None, training, **options, intercept=True),
        papers("EFA", efa, attention or training, **options),
        *item_defaults(context, times),
    )


def item_defaults(context: Context, times: bool) -> tuple[Entry, ...]:
    """EFA's; in `past` and with times also as one that knows when the row that is predicted was."""
    question: dict[str, Any] = {"context": context, "terms": "item"}
    told = (untuned(f"EFA, {OWN_TIME} known", **question, own_time="known"),) if context == "past" and times else ()
    return (untuned(**question), *told)


def value_peers(family: Any, context: Context) -> tuple[Entry, ...]:
    """Of values by item: means, regressions, one Gaussian of every pair of items and one of factors."""
    known: dict[str, Any] = {"family": family, "context": context}
    return (
        peer("item mean", simple.ItemMean(), **known),
        peer("shrunk item and user mean", simple.ShrunkMean(), **known),
        peer("linear model", simple.LinearModel(), **known),
        peer("ridge per item", simple.RidgePerItem(), **known),
        peer("Gaussian conditional", simple.GaussianConditional(rank="full"), **known),
        peer("low-rank Gaussian", simple.GaussianConditional(rank=RANK), **known),
    )
