"""Synthetic ratings, in which order is everything: 5 movies, 10,000 users, a Bayes floor that is known."""

from typing import Any

import numpy as np
import polars as pl
from sklearn.base import BaseEstimator

from efattn import datasets, families
from efattn.experiments.presets import notes
from efattn.experiments.presets.shared import Context, adam, best, latent, papers, untuned, value_peers
from efattn.experiments.settings import FLOOR, MSE, Entry, Setting, Split, quarter_held
from efattn.training import Training

ROLES: dict[str, Any] = {"group": "user", "item": "movie", "value": "rating", "order": "position"}
PAPER = {"past": (4.519, 1.033), "others": (2.636, 1.038)}
TRAINING = adam(1000, 10)
QUICK = Training(epochs=12, tokens=640, rate=0.01, decay="cosine", patience=None)


def split(seed: int) -> Split:
    frame = datasets.synthetic_ratings()
    return quarter_held(frame.filter(pl.col("user") <= 7500), frame.filter(pl.col("user") > 7500), "user", seed)


class Truth(BaseEstimator):
    """The mean that each rating was drawn around: no model can do better but by luck."""

    history_: tuple[Any, ...] = ()

    def fit(self, table: Any, **roles: Any) -> "Truth":
        self.schema_ = self
        self.roles = self
        return self

    def of(self, role: str) -> tuple[str, ...]:
        return ("rating",)

    def predict(self, table: pl.DataFrame, interval: float | None = None) -> pl.DataFrame:
        return table.with_columns(rating_mean="mean")

    def log_likelihood(self, table: pl.DataFrame) -> pl.DataFrame:
        error = table["rating"] - table["mean"]
        return table.with_columns(rating_log_likelihood=-0.5 * error**2 - 0.5 * np.log(2 * np.pi))


def _setting(context: Context) -> Setting:
    fm, efa = PAPER[context]
    known: dict[str, Any] = {"family": families.Gaussian(variance=1.0), "context": context, "terms": "value"}
    entries = (
        Entry(FLOOR, "peer", lambda seed: Truth(), fixed=True),
        *value_peers("gaussian", context),
        latent("latent factors", fm, TRAINING, **known),
        latent("latent factors, intercept", None, TRAINING, **known, intercept=True),
        papers("EFA", efa, TRAINING, **known),
        untuned(family="gaussian", context=context, terms="value"),
        best(
            family="gaussian", context=context, terms="value", dropout=0.0, ensemble=3, companions=None, training=QUICK
        ),
    )
    return Setting("synthetic", context, split, ROLES, MSE, entries, aim=1.028, notes=notes.SYNTHETIC)


SETTINGS = (_setting("past"), _setting("others"))
