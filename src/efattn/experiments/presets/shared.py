"""What several experiments share: the paper's optimiser, peers of items and of values."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal

from efattn import simple
from efattn.estimators import EFA, LatentFactor, SimpleModel
from efattn.experiments.paper import PaperEFA
from efattn.experiments.settings import Entry
from efattn.training import Training

Context = Literal["past", "others"]
Support = Literal["all", "distinct"]


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


def untuned(model: str = "EFA", **question: Any) -> Entry:
    """The library's defaults: only the question is told."""
    return Entry(model, "defaults", lambda seed: EFA(**question, seed=seed))


def untuned_latent(**question: Any) -> Entry:
    """Latent factors with the library's defaults."""
    return Entry("latent factors", "defaults", lambda seed: LatentFactor(**question, seed=seed))


def best(model: str = "EFA", **options: Any) -> Entry:
    """Tuned on validation groups. Seeds are far apart, so that ensembles of different seeds share no member."""
    return Entry(model, "best", lambda seed: EFA(**options, seed=100 * seed))


def peer(name: str, recipe: simple.Recipe, family: Any = "gaussian", **options: Any) -> Entry:
    """A simple model, which has no seed."""
    return Entry(name, "peer", lambda seed: SimpleModel(recipe, family=family, **options), fixed=True)


def item_peers(context: Context, supports: Sequence[Support] = ("all", "distinct")) -> tuple[Entry, ...]:
    """Of a table of items, each with these supports: popularity, Markov chain, additive logit."""
    makers: dict[str, Callable[[Support, int], Any]] = {
        "popularity": lambda support, seed: SimpleModel(simple.Popularity(), context=context, support=support),
        "Markov chain": lambda support, seed: SimpleModel(simple.MarkovChain(), context="past", support=support),
        "additive logit": lambda support, seed: SimpleModel(
            simple.AdditiveLogit(), context=context, support=support, seed=seed
        ),
    }
    if context == "others":
        del makers["Markov chain"]
    entries = []
    for name, make in makers.items():
        for support in supports:
            model = name if support == "all" else f"{name}, {support}"
            entries.append(Entry(model, "peer", partial(make, support), fixed=name != "additive logit"))
    return tuple(entries)


def item_entries(
    context: Context, papers_numbers: tuple[float, float], training: Training, attention: Training | None = None
) -> tuple[Entry, ...]:
    """Of a table of items: peers with and without distinct support, latent factors and EFA as in the paper. attention:
    how EFA is trained, if otherwise."""
    fm, efa = papers_numbers
    options: dict[str, Any] = {"context": context, "terms": "item", "support": "all"}
    return (
        *item_peers(context),
        latent("latent factors", fm, training, **options),
        latent("latent factors, intercept", None, training, **options, intercept=True),
        papers("EFA", efa, attention or training, **options),
        untuned(context=context, terms="item"),
    )


def value_peers(family: Any, context: Context) -> tuple[Entry, ...]:
    """Of values by item: means, regressions, one Gaussian."""
    return (
        peer("item mean", simple.ItemMean(), family=family, context=context),
        peer("shrunk item and user mean", simple.ShrunkMean(), family=family, context=context),
        peer("ridge per item", simple.RidgePerItem(), family=family, context=context),
        peer("Gaussian conditional", simple.GaussianConditional(), family=family, context=context),
    )
