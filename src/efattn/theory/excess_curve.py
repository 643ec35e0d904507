"""Excess loss against the number of groups, on data whose best predictor is known.

    y = z + noise,  z a Gaussian process at fixed places        E[y_i | y_-i] = - sum_{j != i} P_ij y_j / P_ii

with P the precision of y. Of the loss MSE/2, a predictor's excess over this one is half its mean squared distance to
it, without the noise of y. What the network cannot represent is part of it, so that the curve may end in a plateau.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from sklearn.base import clone

from efattn.estimators import EFA
from efattn.families import Gaussian
from efattn.theory.excess_loss import bound, log_log_slope
from efattn.theory.table import text
from efattn.training import Training

ROLES: dict[str, Any] = {"group": "group", "attributes": ["east", "north"], "value": "y"}


@final
@dataclass(frozen=True)
class Field:
    """Places (I, 2) in the unit square, and the covariance (I, I) of what is observed there."""

    places: np.ndarray
    covariance: np.ndarray

    @classmethod
    def of(cls, places: int = 8, reach: float = 0.5, noise: float = 0.5, seed: int = 0) -> "Field":
        """A process of variance 1 - noise^2 with a squared exponential kernel, and independent noise: y has variance
        1."""
        where = np.random.default_rng(seed).random((places, 2))
        square = ((where[:, None] - where) ** 2).sum(-1)
        return cls(where, (1 - noise**2) * np.exp(-square / (2 * reach**2)) + noise**2 * np.eye(places))

    def draw(self, groups: int, seed: int | Sequence[int]) -> np.ndarray:
        """(group, place): the first groups of a longer draw are those of a shorter one."""
        normal = np.random.default_rng(seed).normal(size=(groups, len(self.places)))
        return normal @ np.linalg.cholesky(self.covariance).T

    def best(self, y: np.ndarray) -> np.ndarray:
        """E[y_i | y_-i], (group, place)."""
        precision = np.linalg.inv(self.covariance)
        return y - y @ precision / np.diag(precision)

    @property
    def floor(self) -> float:
        """The loss MSE/2 of the best predictor."""
        return float((1 / np.diag(np.linalg.inv(self.covariance))).mean() / 2)

    @property
    def without_context(self) -> float:
        """The excess loss of predicting the mean."""
        return float(np.diag(self.covariance).mean() / 2) - self.floor

    def table(self, y: np.ndarray) -> Any:
        """One row per group and place."""
        import polars as pl

        groups, places = y.shape
        east, north = np.tile(self.places, (groups, 1)).T
        return pl.DataFrame(
            {"group": np.repeat(np.arange(groups), places), "east": east, "north": north, "y": y.ravel()}
        )


@final
@dataclass(frozen=True)
class Excess:
    """excess, norm, term (F, seed): held-out excess loss, the fitted model's norm, and the bound's term with it."""

    groups: tuple[int, ...]
    seeds: tuple[int, ...]
    excess: np.ndarray
    norm: np.ndarray
    term: np.ndarray
    floor: float
    without_context: float

    @property
    def slope(self) -> float:
        return log_log_slope(self.groups, self.excess)

    def columns(self) -> dict[str, list[Any]]:
        """One row per F and seed."""
        return {
            "groups": [n for n in self.groups for _ in self.seeds],
            "seed": [seed for _ in self.groups for seed in self.seeds],
            "excess": self.excess.ravel().tolist(),
            "norm": self.norm.ravel().tolist(),
            "term": self.term.ravel().tolist(),
        }

    def __str__(self) -> str:
        return text(self.columns())


def small_efa() -> EFA:
    """One small spatial network, trained for long enough that what is left is for want of data. It stands alone: a
    bound on networks says nothing of simple models beside them."""
    training = Training(steps=2000, tokens=1024, rate=5e-3, device="cpu")
    sizes: dict[str, Any] = {"layers": 1, "heads": 2, "width": 16, "dropout": 0.0}
    return EFA(Gaussian(), terms="value", standardise="none", companions=None, training=training, **sizes)


def excess_experiment(
    groups: Sequence[int] = (64, 256, 1024),
    seeds: Sequence[int] = (0, 1),
    *,
    model: EFA | None = None,
    field: Field | None = None,
    test: int = 1000,
    progress: bool = False,
) -> Excess:
    """Fit a copy of `model` to so many groups, once per seed (of data and network), and measure it on the same `test`
    others. A quarter as many groups again are held out to stop early by; they do not count into F."""
    field, model = field or Field.of(), model or small_efa()
    y = field.draw(test, (2**31,))
    measured = np.empty((3, len(groups), len(seeds)))
    for j, seed in enumerate(seeds):
        drawn, held = field.draw(max(groups), (seed, 0)), field.draw(max(groups), (seed, 1))
        for i, number in enumerate(groups):
            train, stop = field.table(drawn[:number]), field.table(held[: max(number // 4, 16)])
            fitted = clone(model).set_params(seed=seed).fit(train, **ROLES, validation=stop, progress=progress)
            predicted = np.asarray(fitted.predict(field.table(y), interval=None)["y_mean"]).reshape(y.shape)
            of_bound = bound(fitted, train)
            measured[:, i, j] = ((predicted - field.best(y)) ** 2).mean() / 2, of_bound.norms.total, of_bound.term
    excess, norm, term = measured
    return Excess(tuple(groups), tuple(seeds), excess, norm, term, field.floor, field.without_context)
