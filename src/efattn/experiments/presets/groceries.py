"""Instacart baskets: which of 63 groceries comes next, or goes with the others."""

from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl

from efattn import datasets
from efattn.estimators.base import GroupEstimator
from efattn.experiments.presets import notes
from efattn.experiments.presets.shared import Context, adam, best, item_entries
from efattn.experiments.settings import CROSS_ENTROPY, Entry, Setting, Split, quarter_held
from efattn.inference.embeddings import item_vectors
from efattn.models import Term
from efattn.training import Training

ROLES: dict[str, Any] = {"group": "basket", "item": "product", "order": "rank"}
PAPER = {"past": (3.715, 3.706), "others": (3.476, 3.420)}
AIM = {"past": 3.66, "others": 3.34}
REPRESENTATIVE = ("Asparagus", "Carrots", "Fresh Cauliflower", "Organic Avocado")
TRAINING, ATTENTION = adam(500, 20), adam(200, 20)  # the paper runs 1,000 epochs
ONE_CYCLE = Training(epochs=30, decay="cosine", rate=1e-2, tokens=4096)
BEST: dict[str, dict[str, Any]] = {
    "past": {"layers": 3, "dropout": 0.2, "training": ONE_CYCLE},
    "others": {"training": Training(average=0.998)},
}
BASKETS = 2


def split(seed: int) -> Split:
    return quarter_held(datasets.instacart("train"), datasets.instacart("test"), "basket", seed)


def companions(estimator: GroupEstimator, parts: Split) -> dict[str, Any]:
    """The three items that go best with each of four."""
    return {"companions": {item: estimator.similar(item, k=3)["product"].to_list() for item in REPRESENTATIVE}}


def inside(estimator: GroupEstimator, parts: Split) -> dict[str, Any]:
    """Companions; attention in the first two test baskets, averaged over heads; queries, keys and values of each item
    in the first layer."""
    record = companions(estimator, parts)
    record["attention"] = []
    for basket in parts.test["basket"].unique(maintain_order=True)[:BASKETS]:
        seen = estimator.attention(parts.test.filter(pl.col("basket") == basket))
        weights = np.round(seen.weights.mean(1, dtype=float), 4).tolist()  # (layer, target, context)
        record["attention"].append({"items": [str(name) for name in seen.targets], "weights": weights})
    term, vectors = estimator.model_["item"], item_vectors(estimator.model_)
    assert isinstance(term, Term)
    assert vectors is not None
    layer = term.stack.layers[0].attention
    heads = {  # (head, item, size)
        what: np.round((vectors @ layer.matrix(which)[0].detach().mT).double().numpy(), 4).tolist()
        for which, what in enumerate(("query", "key", "value"))
    }
    names = estimator.embeddings("item")["product"].to_list()
    return {**record, "vectors": {"items": names, **heads}}


def _look(entry: Entry) -> Entry:
    if entry.preset == "paper" and entry.model == "EFA":
        return replace(entry, look=inside)
    return replace(entry, look=companions) if entry.preset != "peer" else entry


def _setting(context: Context) -> Setting:
    tuned = best(context=context, terms="item", width=64, ensemble=2, **BEST[context])
    entries = tuple(map(_look, (*item_entries(context, PAPER[context], TRAINING, ATTENTION), tuned)))
    known: dict[str, Any] = {"aim": AIM[context], "notes": notes.INSTACART, "seconds": 400.0}
    return Setting("instacart", context, split, ROLES, CROSS_ENTROPY, entries, **known)


SETTINGS = (_setting("past"), _setting("others"))
