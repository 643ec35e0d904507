"""What an experiment is, as data: rows to learn from and to be tested on, a measure, and the models that compete.

    Setting   one table of the paper, or one half of it: a split for every seed, column roles, a metric
    Entry     one model of that table under one preset: how it is made for a seed, and the paper's number for it

Simple models and defaults are run under two protocols. *Train only*: fitted to training groups, everything chosen on
validation groups. *Refitted*: given the rows of both, EFA does what its defaults do, peers choose penalties inside.

The runner (runner.py) is one function over these values; tables and figures are made from the files it writes.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import Any, Literal, NamedTuple, final

import numpy as np
import polars as pl

Preset = Literal["peer", "paper", "defaults", "best"]
PRESETS: tuple[Preset, ...] = ("peer", "paper", "defaults", "best")
Protocol = Literal["train only", "refitted"]
TRAIN: Protocol = "train only"
REFITTED: Protocol = "refitted"
PROTOCOLS = (TRAIN, REFITTED)
FLOOR = "Bayes floor"  # what drew the data: a limit, not a peer
Look = Callable[[Any, "Split"], dict[str, Any]]


class Split(NamedTuple):
    """Rows by part. With lags a part also has rows that are context only: the roles name a target column."""

    train: pl.DataFrame
    validation: pl.DataFrame
    test: pl.DataFrame

    @property
    def whole(self) -> pl.DataFrame:
        """Of training and validation."""
        return pl.concat([self.train, self.validation])


@final
@dataclass(frozen=True)
class Metric:
    """A loss per row: of the predicted mean and the actual value, or of the log-probability of the item. lists: a
    length k; the loss is then 1 - NDCG of lists of k items, ranked among the whole catalogue (ranking.py)."""

    name: str
    of_mean: Callable[[np.ndarray, np.ndarray], np.ndarray] | None = None
    lists: int | None = None

    def losses(self, estimator: Any, test: pl.DataFrame, likely: np.ndarray) -> np.ndarray:
        """(row,), NaN where a row is not scored. likely: the log-likelihood of each."""
        if self.of_mean is None:
            return -likely
        (value,) = estimator.schema_.roles.of("value")
        predicted = estimator.predict(test, interval=None)
        return self.of_mean(predicted[f"{value}_mean"].to_numpy(), predicted[value].to_numpy())


def squared(mean: np.ndarray, y: np.ndarray) -> np.ndarray:
    return (mean - y) ** 2


def poisson_v1(mean: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The paper's loss of y - 1, without log (y - 1)!: it is the rate that is one less than the mean."""
    return (mean - 1) - (y - 1) * np.log(mean - 1)


def poisson_v2(mean: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The paper's loss of y, without log y!"""
    return mean - y * np.log(mean)


MSE = Metric("test mean squared error", squared)
CROSS_ENTROPY = Metric("test cross-entropy")
NDCG = Metric("test loss, 1 - NDCG@10", lists=10)
V1, V2 = Metric("test Poisson loss, v1", poisson_v1), Metric("test Poisson loss, v2", poisson_v2)


@final
@dataclass(frozen=True)
class Entry:
    """make: an estimator for a seed. paper: the number the paper prints for it. fixed: it has no seed of its own, so
    that it runs once per split. without: roles it does not take. sees: what only some models of the setting are told,
    as "own time". look: more to be kept of the first seed's fit. again: whether it is refitted too, if it is a peer or
    has defaults."""

    model: str
    preset: Preset
    make: Callable[[int], Any]
    paper: float | None = None
    fixed: bool = False
    without: tuple[str, ...] = ()
    sees: tuple[str, ...] = ()
    look: Look | None = None
    again: bool = True

    @property
    def competes(self) -> bool:
        """Whether it is a peer: a simple model, or latent factors with the library's defaults."""
        latent = self.preset == "defaults" and self.model.startswith("latent factors")
        return latent or (self.preset == "peer" and self.model != FLOOR)

    @property
    def protocols(self) -> tuple[Protocol, ...]:
        both = self.again and (self.competes or self.preset == "defaults")
        return PROTOCOLS if both else (TRAIN,)


@final
@dataclass(frozen=True)
class Setting:
    """split: of a seed. moving: whether the test rows move with the seed. aim: the number the best preset should
    reach. splits: how many there are, each run once, whatever the number of seeds. scored: a column that says which
    test rows count; cluster: one whose rows go together, the group unless said. block: of such a name, under which it
    counts in standard errors. check: of a seed, the rows to choose
    peers on, where those of validation are not like those of the test. fits_of: the title of a setting whose fits are
    tested here on other rows. seconds: about what a default fit takes on one core."""

    experiment: str
    name: str
    split: Callable[[int], Split]
    roles: Mapping[str, Any]
    metric: Metric
    entries: tuple[Entry, ...]
    moving: bool = False
    aim: float | None = None
    look: Look | None = None
    notes: tuple[str, ...] = field(default=())
    splits: int | None = None
    scored: str | None = None
    cluster: str | None = None
    block: Callable[[str], object] = str
    check: Callable[[int], pl.DataFrame] | None = None
    fits_of: str | None = None
    seconds: float = 60.0

    @property
    def title(self) -> str:
        return f"{self.experiment}, {self.name}"


def week(day: str) -> int:
    """Days that follow each other are alike: they count together in standard errors."""
    return date.fromisoformat(day).toordinal() // 7


def by_groups(frame: pl.DataFrame, group: str, parts: Mapping[str, np.ndarray]) -> Split:
    """Rows of the groups named in each part."""
    rows = {name: frame.filter(pl.col(group).is_in(pl.Series(which).implode())) for name, which in parts.items()}
    return Split(**rows)


def random_users(frame: pl.DataFrame, seed: int, group: str = "user") -> Split:
    """56.25, 18.75 and 25 % of the groups, in the order of a permutation of their sorted names."""
    names = frame[group].unique().sort().to_numpy()
    drawn = names[np.random.default_rng(seed).permutation(len(names))]
    a, b = int(0.5625 * len(names)), int(0.75 * len(names))
    return by_groups(frame, group, {"train": drawn[:a], "validation": drawn[a:b], "test": drawn[b:]})


def quarter_held(train: pl.DataFrame, test: pl.DataFrame, group: str, seed: int) -> Split:
    """A quarter of the training groups to validate on; the test groups are given."""
    names = train[group].unique().sort().to_numpy()
    drawn = names[np.random.default_rng(seed).permutation(len(names))]
    a = int(0.75 * len(names))
    split = by_groups(train, group, {"train": drawn[:a], "validation": drawn[a:], "test": drawn[:0]})
    return split._replace(test=test)
