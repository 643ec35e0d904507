"""Simple correlations between items, and between items and their earlier selves, to draw a sample covariance to.

    exchangeable   (c + (1 - c) [i = j]) q^|a - b|                                   items i, j at lags a, b
    matern         c exp(-|a - b| / u) + (1 - c - n) M(sqrt((d_ij / l)^2 + (|a - b| / t)^2)) + n [i = j, a = b]

M is the Matern correlation with smoothness 1/2, 3/2 or 5/2, d the great-circle distance of places, or the Euclidean one
of other attributes. Its numbers maximise the Gaussian likelihood of a sample correlation. Both are positive definite.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from efattn.data import Groups
from efattn.models.distances import haversine


class Matern(NamedTuple):
    smoothness: float
    common: float  # c
    nugget: float  # n
    length: float  # l, in the distance's units
    time: float  # t, in steps
    common_time: float  # u

    def correlation(self, distance: Tensor, lags: int) -> Tensor:
        """(cell, cell), cells being items within lags."""
        gap = lag_gaps(lags)
        items = len(distance)
        apart = ((distance / self.length) ** 2).repeat(lags + 1, lags + 1)
        later = torch.kron(gap, torch.ones(items, items, dtype=torch.float64))
        near = matern((apart + (later / self.time) ** 2).sqrt(), self.smoothness)
        same = torch.eye(len(near), dtype=torch.float64)
        rest = 1 - self.common - self.nugget
        return self.common * (-later / self.common_time).exp() + rest * near + self.nugget * same

    def at(self, distance: Tensor, gap: Tensor) -> Tensor:
        """Of two rows that are not the same one: so far from each other, and so many lags apart."""
        near = matern(((distance / self.length) ** 2 + (gap / self.time) ** 2).sqrt(), self.smoothness)
        return self.common * (-gap / self.common_time).exp() + (1 - self.common - self.nugget) * near


def matern(r: Tensor, smoothness: float) -> Tensor:
    """At r length scales."""
    s = math.sqrt(2 * smoothness) * r
    polynomial = {0.5: torch.ones_like(s), 1.5: 1 + s, 2.5: 1 + s + s**2 / 3}[smoothness]
    return polynomial * (-s).exp()


def lag_gaps(lags: int) -> Tensor:
    """(lag, lag): |a - b|"""
    steps = torch.arange(lags + 1, dtype=torch.float64)
    return (steps[:, None] - steps).abs()


def exchangeable(common: float, memory: float, items: int, lags: int) -> Tensor:
    """common: c; memory: q."""
    space = common + (1 - common) * torch.eye(items, dtype=torch.float64)
    return torch.kron(memory ** lag_gaps(lags), space)


def common_and_memory(z: np.ndarray, items: int) -> tuple[float, float]:
    """c and q from standardised rows z (row, cell), NaN where missing: mean products of pairs."""
    seen, filled = ~np.isnan(z), np.nan_to_num(z)
    now, there = filled[:, :items], seen[:, :items]
    pairs = (there.sum(1) ** 2 - there.sum(1)).sum()
    products = (now.sum(1) ** 2 - (now**2).sum(1)).sum()
    common = float(np.clip(products / pairs, 0.0, 0.95)) if pairs else 0.0
    both = (there & seen[:, items : 2 * items]).sum() if z.shape[1] > items else 0
    memory = float((now * filled[:, items : 2 * items]).sum() / both) if both else 0.0
    return common, float(np.clip(memory, 0.0, 0.99))


def fit_matern(sample: Tensor, distance: Tensor, lags: int) -> Matern:
    """The one under which a sample correlation (cell, cell) is most likely."""
    from scipy.optimize import minimize

    apart = distance[distance > 0]
    scale = float(apart.median()) if len(apart) else 1.0

    def named(theta: np.ndarray, smoothness: float) -> Matern:
        share = np.exp(np.clip([*theta[:2], 0.0], -12, 12))
        length, time, common_time = np.exp(np.clip(theta[2:], -6, 6))
        common, nugget = share[:2] / share.sum()
        return Matern(smoothness, float(common), float(nugget) + 1e-6, length * scale, time, common_time)

    def misfit(smoothness: float) -> Callable[[np.ndarray], float]:
        def value(free: np.ndarray) -> float:
            theta = free if lags else np.append(free, (0.0, 0.0))
            factor, failed = torch.linalg.cholesky_ex(named(theta, smoothness).correlation(distance, lags))
            if failed:
                return 1e10
            spread = torch.cholesky_solve(sample, factor).trace()
            return float(factor.diagonal().log().sum() + spread / 2)

        return value

    start = np.array([-1.0, -2.0, 0.0, 0.0, 0.0] if lags else [-1.0, -2.0, 0.0])
    options: Any = {"maxiter": 150 * len(start), "xatol": 1e-3, "fatol": 1e-3}
    fits = [(minimize(misfit(s), start, method="Nelder-Mead", options=options), s) for s in (0.5, 1.5, 2.5)]
    best, smoothness = min(fits, key=lambda pair: pair[0].fun)
    return named(best.x if lags else np.append(best.x, (0.0, 0.0)), smoothness)


def item_attributes(groups: Groups, items: int) -> np.ndarray | None:
    """(item, attribute): of each item the mean; None where there is no place for each item. What rows of one item
    differ in more than items do, as the day's weather at all stations, is no place: all have its mean."""
    attributes, item = groups.attributes, groups.item
    if attributes is None or item is None:
        return None
    known = item < items
    count = np.bincount(item[known], minlength=items)
    if not count.all():
        attributes, item = groups.every.attributes, groups.every.item  # places are known outside of this part too
        assert attributes is not None
        assert item is not None
        known = item < items
        count = np.bincount(item[known], minlength=items)
    if not count.all():
        return None
    item, attributes = item[known], attributes[known]
    places = np.stack([np.bincount(item, a, minlength=items) / count for a in attributes.T], 1)
    within, among = ((attributes - places[item]) ** 2).mean(0), ((places[item] - attributes.mean(0)) ** 2).mean(0)
    told = among > within
    return np.where(told, places, attributes.mean(0)) if told.any() else None


def geographic(x: Tensor) -> bool:
    """Whether these can be latitude and longitude in degrees."""
    return x.shape[-1] == 2 and bool((x[..., 0].abs() <= 90).all() and (x[..., 1].abs() <= 360).all())


def fit_units(x: Tensor) -> Tensor:
    """(2, attribute): centre and spread of places (place, attribute)."""
    spread = x.std(0, correction=0) if len(x) > 1 else torch.ones(x.shape[1], dtype=torch.float64)
    return torch.stack([x.mean(0), torch.where(spread > 0, spread, 1.0)])


def between(one: Tensor, other: Tensor, units: Tensor, earth: bool) -> Tensor:
    """(..., one, other): great-circle on earth, else Euclidean in units of each attribute's spread."""
    if earth:
        return haversine(one[..., :, None, :], other[..., None, :, :])
    return torch.cdist(one / units[1], other / units[1])


def distances(attributes: np.ndarray) -> Tensor:
    """(item, item)"""
    x = torch.as_tensor(attributes).double()
    return between(x, x, fit_units(x), geographic(x))
