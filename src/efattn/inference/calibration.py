"""A monotone map of probability levels, learnt from groups that a model has not seen.

    F*(y) = G(F(y)),     G(u_(i)) = (k c_i + 1/2) / (k + 1),     k = n / (1 + (n_0 - 1) rho) (1 - r) / (1 + r)

u_(i): the sorted places P(Y <= y) of n calibration rows in their laws, c_i = (i - 1/2) / n. In between G is a line;
below the first and above the last place it goes straight to 0 and 1, so that there the model's own law is kept. Of the
probability 1 / (k + 1) lies outside all places, as for one more row. k: how many independent rows these are, whose
places are correlated within groups of about n_0 rows; rho: that correlation; r: the one of groups that follow each
other, as days do, 0 unless it is certain. Both of u or of |2 u - 1|, whichever leaves fewer. With a row a group of
which no two are alike, k is n and this is split conformal prediction: whatever the laws are, intervals that leave out a
multiple of 2 / (n + 1) hold on average exactly what they promise.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from efattn.errors import counted

SERIES, SURE = 10, 1.645  # groups in a row, at least, to be found alike; standard errors: one side of 5 %
FEW = 3  # columns that are told of by name
KNOTS = 512  # places that are kept; of more, as many in equal steps of G


@final
@dataclass(frozen=True, eq=False)
class Calibration:
    """Of one value column. own, adjusted: (knot,), rising from 0 to 1: the model's level, and what it turned out to be;
    rows, groups: that it was learnt from."""

    own: np.ndarray
    adjusted: np.ndarray
    rows: int
    groups: int

    @classmethod
    def fit(cls, pit: np.ndarray, group: np.ndarray) -> "Calibration":
        """pit, group: (row,); groups are numbered in the order in which they follow each other."""
        m, n, k = len(np.unique(group)), len(pit), independent(pit, group)
        places, g = np.sort(np.clip(pit, 0.0, 1.0)), (k * (np.arange(n) + 0.5) / n + 0.5) / (k + 1)
        if n > KNOTS:
            steps = np.linspace(g[0], g[-1], KNOTS)
            places, g = np.interp(steps, g, places), steps
        inside = (places > 0) & (places < 1)
        own, adjusted = np.r_[0.0, places[inside], 1.0], np.r_[0.0, g[inside], 1.0]
        last = np.r_[own[1:] > own[:-1], True]  # of equal places the last: G jumps there
        return cls(own[last], adjusted[last], n, m)

    def level(self, p: Any) -> Any:
        """The model's level at which the adjusted law has p."""
        return np.interp(p, self.adjusted, self.own)

    def probability(self, u: Any) -> Any:
        """What the model's probability u of a value or less turned out to be."""
        return np.interp(u, self.own, self.adjusted)

    def to_json(self) -> dict[str, Any]:
        return {"own": self.own.tolist(), "adjusted": self.adjusted.tolist(), "rows": self.rows, "groups": self.groups}

    @classmethod
    def from_json(cls, saved: Mapping[str, Any]) -> "Calibration":
        own, adjusted = (np.array(saved[name], np.float64) for name in ("own", "adjusted"))
        return cls(own, adjusted, saved["rows"], saved["groups"])


def told(calibration: Mapping[str, Calibration]) -> list[str]:
    """Which columns are calibrated, and by how much."""
    if len(calibration) > FEW:
        rows = [one.rows for one in calibration.values()]
        how_many = f"{min(rows):,} to {max(rows):,}" if min(rows) < max(rows) else f"{rows[0]:,}"
        return [f"Intervals and quantiles of {len(calibration)} columns are calibrated by {how_many} rows each"]
    return [
        f"Intervals and quantiles of {name} are calibrated by {counted(one.rows, 'row')} in "
        f"{counted(one.groups, 'group')}"
        for name, one in calibration.items()
    ]


def independent(pit: np.ndarray, group: np.ndarray) -> float:
    """How many independent rows these are worth: all of them, or one a group, or fewer where groups are alike that
    follow each other."""
    _, number = np.unique(group, return_inverse=True)
    count = np.bincount(number)
    if len(count) < 2:
        return float(len(count))
    return min(_worth(x, number, count) / _alike(np.bincount(number, x) / count) for x in (pit, np.abs(2 * pit - 1)))


def _worth(x: np.ndarray, number: np.ndarray, count: np.ndarray) -> float:
    """By the correlation of two rows of one group, from the analysis of variance."""
    m, n, means = len(count), len(x), np.bincount(number, x) / count
    if m == n:
        return float(n)
    typical = (n - (count**2).sum() / n) / (m - 1)
    between = (count * (means - x.mean()) ** 2).sum() / (m - 1)
    inside = ((x - means[number]) ** 2).sum() / (n - m)
    whole = between + (typical - 1) * inside
    rho = float(np.clip((between - inside) / whole, 0.0, 1.0)) if whole > 0 else 0.0
    return float(np.clip(n / (1 + (typical - 1) * rho), m, n))


def _alike(means: np.ndarray) -> float:
    """(1 + r) / (1 - r): how many groups in a row say what one does on its own; at most all of them. means: (group,)"""
    m, away = len(means), means - means.mean()
    whole = float(away @ away)
    if m < SERIES or whole <= 0:
        return 1.0
    found = float(away[1:] @ away[:-1]) / whole
    r = min(found + (1 + 3 * found) / m, 1 - 2 / m)  # found from so few it is too small by that much
    return (1 + r) / (1 - r) if r > SURE / np.sqrt(m) else 1.0
