"""The next item, ranked over the whole catalogue: Amazon Beauty and MovieLens 100K, leave-last-out.

Of each user the last item tests and the one before it validates. Networks and peers are fitted to the earlier ones
alone: the validation item is history at test time, never a training target.
"""

from typing import Any

import numpy as np
import polars as pl

from efattn import datasets, simple
from efattn.data import split
from efattn.estimators import EFA, SimpleModel
from efattn.experiments.presets import notes
from efattn.experiments.settings import NDCG, Entry, Setting, Split

BEAUTY: dict[str, Any] = {"group": "user", "item": "item", "order": "position", "target": "target"}
MOVIES: dict[str, Any] = {"group": "user", "item": "movie", "order": "timestamp", "target": "target"}
QUESTION: dict[str, Any] = {"context": "past", "terms": "item"}
PUBLISHED: dict[str, dict[str, tuple[float, float]]] = {  # NDCG@10, recall@10: full ranking, leave-last-out, ids alone
    "Beauty": {
        "S3-Rec": (0.0327, 0.0647),
        "TIGER": (0.0384, 0.0648),
        "HSTU": (0.0439, 0.0788),
        "eSASRec": (0.0523, 0.0928),
        "SASRec, sampled softmax": (0.0531, 0.0921),
    }
}
LAST, FOLLOWERS = 5, 256  # rows that the Markov chain looks back at, items that it knows to follow one
PEERS: dict[str, simple.Recipe] = {
    "popularity": simple.Popularity(),
    "late popularity": simple.LatePopularity(),
    "Markov chain": simple.MarkovChain(last=LAST, followers=FOLLOWERS),
    "additive logit": simple.AdditiveLogit(),
    "EASE": simple.EASE(),
    "item kNN": simple.ItemNeighbours(),
}


def beauty(seed: int) -> Split:
    return last_out(datasets.amazon_beauty(), "position")


def movies(seed: int) -> Split:
    """Ties in time stand as one draw has them: by id, as the table is sorted, the order within a tie would tell what
    comes next."""
    frame = datasets.movielens_100k().select("user", "movie", "timestamp")
    drawn = frame.with_columns(draw=np.random.default_rng(0).random(len(frame))).sort("user", "timestamp", "draw")
    return last_out(drawn.drop("draw"), "timestamp")


def last_out(frame: pl.DataFrame, order: str) -> Split:
    """Of each user the last row tests, the one before it validates; the others train."""
    return Split(*split(frame, "last", group="user", order=order))


def _peer(name: str, recipe: simple.Recipe) -> Entry:
    return Entry(name, "peer", lambda seed: SimpleModel(recipe, context="past"), fixed=True, again=False)


ENTRIES = (
    *(_peer(name, recipe) for name, recipe in PEERS.items()),
    Entry("EFA", "defaults", lambda seed: EFA(**QUESTION, seed=seed), again=False),
    Entry("EFA", "best", lambda seed: EFA(**QUESTION, effort="best", seed=100 * seed)),
)
SETTINGS = (
    Setting("recommending", "Beauty", beauty, BEAUTY, NDCG, ENTRIES, notes=notes.RECOMMENDING, seconds=1500.0),
    Setting("recommending", "MovieLens 100K", movies, MOVIES, NDCG, ENTRIES, notes=notes.RECOMMENDING, seconds=500.0),
)
