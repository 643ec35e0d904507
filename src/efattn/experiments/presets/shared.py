"""What several experiments share: the paper's optimiser, peers of items and of values."""

from collections.abc import Callable
from typing import Any, Literal

from efattn import baselines
from efattn.estimators import EFA, LatentFactor
from efattn.experiments.paper import PaperEFA
from efattn.experiments.settings import Entry
from efattn.training import Training

Context = Literal["past", "others"]


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


def untuned(**question: Any) -> Entry:
    """The library's defaults: only the question is told."""
    return Entry("EFA", "defaults", lambda seed: EFA(**question, seed=seed))


def best(**options: Any) -> Entry:
    """Tuned on validation groups. Seeds are far apart, so that ensembles of different seeds share no member."""
    return Entry("EFA", "best", lambda seed: EFA(**options, seed=100 * seed))


def peer(model: str, make: Callable[[], Any]) -> Entry:
    return Entry(model, "peer", lambda seed: make(), fixed=True)


def item_entries(
    context: Context, papers_numbers: tuple[float, float], training: Training, attention: Training | None = None
) -> tuple[Entry, ...]:
    """Of a table of items: peers with and without distinct support, latent factors and EFA as in the paper. attention:
    how EFA is trained, if otherwise."""
    fm, efa = papers_numbers
    found = [peer("popularity", lambda: baselines.Popularity(context, "all"))]
    found += [peer("popularity, distinct", lambda: baselines.Popularity(context, "distinct"))]
    if context == "past":
        found += [peer("Markov chain", lambda: baselines.MarkovChain("all"))]
        found += [peer("Markov chain, distinct", lambda: baselines.MarkovChain("distinct"))]

    def additive(support: Any) -> Callable[[int], Any]:
        return lambda seed: baselines.AdditiveLogit(context, support=support, seed=seed)

    found += [Entry("additive logit", "peer", additive("all"))]
    found += [Entry("additive logit, distinct", "peer", additive("distinct"))]
    options: dict[str, Any] = {"context": context, "terms": "item", "support": "all"}
    found += [latent("latent factors", fm, training, **options)]
    found += [latent("latent factors, intercept", None, training, **options, intercept=True)]
    found += [papers("EFA", efa, attention or training, **options)]
    return (*found, untuned(context=context, terms="item"))


def value_peers(family: Any, context: Context) -> tuple[Entry, ...]:
    """Of values by item: means, regressions, one Gaussian."""
    return (
        peer("item mean", lambda: baselines.ItemMean(family, context)),
        peer("shrunk item and user mean", lambda: baselines.ShrunkMean(family, context)),
        peer("ridge per item", lambda: baselines.RidgePerItem(family, context)),
        peer("Gaussian conditional", lambda: baselines.GaussianConditional(family, context)),
    )
