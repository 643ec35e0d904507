"""One Gaussian over all items (and their earlier selves), each row conditioned on what it may see of its group.

    x ~ N(mu, Sigma),   Sigma = (1 - w) sample + w target       (by EM where rows are incomplete: em.py)
    others   E[x_i | x_-i] = mu_i - sum_{j != i} P_ij (x_j - mu_j) / P_ii,   variance 1 / P_ii,   P = Sigma_seen^-1
    past     from the rows of the Cholesky factor of Sigma_seen, which condition on what stands before

The target is a fitted Matern where items have places, else the same correlation for all pairs. w is chosen on held-out
groups. An item that a group has twice shares all but the noise share of its variance.
"""

import time
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from efattn.data import Batch, Groups
from efattn.errors import DataError, option
from efattn.models import Conditionals
from efattn.simple import em
from efattn.simple.base import TOKENS, Cells, MeanAndVariance, Recipe, Setting, Tick, tuning_parts
from efattn.simple.correlations import (
    common_and_memory,
    distances,
    exchangeable,
    fit_matern,
    item_attributes,
)
from efattn.simple.effects import item_means, item_variances, observed

WEIGHTS = (1.0, 0.95, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.05)
NOISE = 0.02  # the smallest share of an item's variance that is not repeated
MOST = 5000  # cells


@final
@dataclass(frozen=True)
class GaussianConditional(Recipe):
    """One Gaussian over all items, by EM on incomplete groups; each row conditioned on the others, or the earlier ones.

    weight: of the simple covariance that the sample's is drawn to, from above 0 to 1, None to choose it on held-out
    groups. places: whether that is a Matern covariance of the attributes' distances (great-circle for latitude and
    longitude), else the same correlation for all pairs. seconds: how long to look for a better weight, at most; what
    was found by then is kept.
    """

    weight: float | None = None
    places: bool = True
    seconds: float = 60.0
    models = "value"

    def build(self, setting: Setting) -> Conditionals:
        self.check_number("weight", 1e-6, 1)
        self.check_number("seconds", 0)
        return GaussianOverItems(setting, self.weight, self.places, self.seconds)


@final
@dataclass(frozen=True)
class Kriging(Recipe):
    """A Gaussian process over places, and time with lags: item means and variances, and a fitted Matern correlation
    with a nugget. The GaussianConditional with weight 1."""

    models = "value"

    def build(self, setting: Setting) -> Conditionals:
        if not setting.attributes:
            places = option("attributes", ["latitude", "longitude"])
            raise DataError(f"Kriging needs to know where items are: pass {places}.", option="attributes")
        return GaussianOverItems(setting, 1.0)


@final
class GaussianOverItems(MeanAndVariance):
    """weight: w, None to choose it; places: whether attributes are places to fit a Matern to."""

    def __init__(
        self, setting: Setting, weight: float | None = None, places: bool = True, seconds: float = 60.0
    ) -> None:
        super().__init__(setting)
        size = self.cells_in_all
        if size > MOST:
            raise DataError(
                f"A Gaussian over {size} items and lags is too large; it takes at most {MOST}.", option="item"
            )
        self.weight, self.places, self.seconds = weight, places, seconds
        self.register_buffer("covariance", torch.eye(size + 1, dtype=torch.float64))  # the last: an unknown item
        self.register_buffer("noise", torch.zeros(size + 1, dtype=torch.float64))
        self.register_buffer("chosen", torch.zeros(1, dtype=torch.float64))

    def chosen_options(self) -> dict[str, float]:
        return {"weight": float(self.get_buffer("chosen"))} if self.weight is None else {}

    def fit_moments(self, groups: Groups, held: Groups | None, tick: Tick) -> None:
        if not self.has_items:
            raise DataError(f"A Gaussian over items needs an item column: pass {option('item')}.", option="item")
        weight, end = self.weight, time.monotonic() + self.seconds
        if weight is None:
            train, check = tuning_parts(groups, held)
            weight = self._search(_Sample(self, train, end), check, tick)
            if train is groups:
                return
        sample = _Sample(self, groups, end + self.seconds)
        self._take(sample, weight, sample.blend(weight, sample.start))

    def _search(self, sample: "_Sample", check: Groups, tick: Tick) -> float:
        """From strong shrinking to weak, which takes the longest, until it no longer pays or the time is up."""
        best: tuple[float, float, em.Normal] | None = None
        normal = sample.start
        for number, weight in enumerate(WEIGHTS):
            tick(number, len(WEIGHTS))
            normal = sample.blend(weight, normal)
            self._take(sample, weight, normal)
            score = self.score(check)
            if best is None or score > best[0]:
                best = (score, weight, normal)
            elif weight < 0.6 * best[1]:
                break
            if time.monotonic() > sample.end:
                break
        assert best is not None
        self._take(sample, best[1], best[2])
        return best[1]

    def _take(self, sample: "_Sample", weight: float, normal: em.Normal) -> None:
        size = self.cells_in_all
        mean = np.append(normal.mean[: self.items].numpy(), sample.overall)
        covariance = torch.zeros(size + 1, size + 1, dtype=torch.float64)
        covariance[:size, :size] = normal.covariance
        covariance[size, size] = sample.spread
        own = torch.linalg.eigvalsh(normal.covariance / _outer(normal.covariance.diagonal().sqrt()))
        share = min(max(NOISE, 0.5 * float(own[0])), float(own[0]))
        noise = covariance.diagonal() * share
        self._set(mean=mean, covariance=covariance, noise=noise, chosen=weight)

    def moments(self, batch: Batch) -> tuple[Tensor, Tensor]:
        cells, n = self.cells(batch), batch.length
        turn = torch.cat([torch.arange(n, cells.index.shape[1]), torch.arange(n)])  # earlier groups first
        index, seen = cells.index[:, turn], cells.seen[:, turn]
        mean = self.get_buffer("mean")[cells.item[:, turn]]
        rest = torch.where(seen, cells.y[:, turn] - mean, 0.0)
        k = self._covariances(index)
        both = seen[:, :, None] & seen[:, None]
        factor = torch.linalg.cholesky(torch.where(both, k, 0.0) + torch.diag_embed((~seen).double()))
        looked = torch.where(seen[:, :, None], k, 0.0)[..., -n:]  # (batch, context, target)
        prior = k.diagonal(dim1=1, dim2=2)[:, -n:]
        moments = _past(factor, looked, rest, prior) if self.context == "past" else _others(factor, looked, rest, seen)
        shift, variance = moments
        if self.context == "others":
            variance = torch.where(seen[:, -n:], variance, prior - variance)
        return mean[:, -n:] + shift, variance.clamp_min(1e-12)

    def _covariances(self, index: Tensor) -> Tensor:
        """(batch, cell, cell)"""
        k = self.get_buffer("covariance")[index[:, :, None], index[:, None]]
        again = (index[:, :, None] == index[:, None]) & ~torch.eye(index.shape[1], dtype=torch.bool)
        k = k - torch.where(again, self.get_buffer("noise")[index][:, None], 0.0)
        strange = again & (index == self.cells_in_all)[:, None]
        return k.masked_fill(strange, 0.0)  # two unknown items are two items


class _Sample:
    """What is learnt from groups before the weight is chosen: incomplete rows, the target, a place to start."""

    def __init__(self, model: GaussianOverItems, groups: Groups, end: float) -> None:
        data, items, lags = observed(groups, model.items, True), model.items, model.lags
        self.end = end
        self.overall, self.spread = float(data.y.mean()), float(np.var(data.y)) + 1e-12
        x = dense(model, groups)
        means = item_means(data, items)
        variances = item_variances(data.y - means[data.item], data.item, items)
        mean, sd = np.tile(means[:-1], lags + 1), np.sqrt(np.tile(variances[:-1], lags + 1))
        simple = exchangeable(*common_and_memory((x - mean) / sd, items), items, lags)
        self.rows, self.lags = em.Rows(x), lags
        self.target = simple * _outer(torch.as_tensor(sd)) + 1e-9 * torch.eye(len(sd), dtype=torch.float64)
        self.start = em.Normal(torch.as_tensor(mean), self.target, [])
        if lags:  # one mean per item, whatever its lag
            now = em.Normal(self.start.mean[:items], self.target[:items, :items], [])
            fitted = em.fit(em.Rows(x[:, :items]), now, now.covariance, 0.05 * len(x))
            self.start = self.start._replace(mean=fitted.mean.repeat(lags + 1))
        attributes = item_attributes(groups, items) if model.places else None
        if attributes is not None and items > 2:
            self._fit_places(attributes)

    def _fit_places(self, attributes: np.ndarray) -> None:
        rough = self.blend(0.05, self.start)
        sd = rough.covariance.diagonal().sqrt()
        distance = distances(attributes)
        self.matern = fit_matern(rough.covariance / _outer(sd), distance, self.lags)
        self.target = self.matern.correlation(distance, self.lags) * _outer(sd)
        self.start = em.Normal(rough.mean, self.target, [])

    def blend(self, weight: float, start: em.Normal) -> em.Normal:
        if weight >= 1:
            return em.Normal(start.mean, self.target, [])
        strength = len(self.rows) * weight / (1 - weight)
        return em.fit(self.rows, start, self.target, strength, fixed_mean=self.lags > 0, end=self.end)


def dense(model: MeanAndVariance, groups: Groups) -> np.ndarray:
    """(group, cell) of the groups that have a target, NaN where missing; repeats are averaged."""
    size, parts = model.cells_in_all, []
    for batch in groups.batches(TOKENS, dtype=torch.float64):
        cells: Cells = model.cells(batch)
        index = torch.where(cells.seen, cells.index, size)
        blank = torch.zeros(len(index), size + 1, dtype=torch.float64)
        total = blank.scatter_add(1, index, cells.y)
        count = blank.scatter_add(1, index, torch.ones_like(cells.y))
        parts.append((total / count)[batch.target.any(1), :size].numpy())  # 0 / 0: missing
    return np.concatenate(parts) if parts else np.zeros((0, size))


def _outer(x: Any) -> Tensor:
    return torch.outer(x, x)


def _past(factor: Tensor, looked: Tensor, rest: Tensor, prior: Tensor) -> tuple[Tensor, Tensor]:
    n = looked.shape[-1]
    size = looked.shape[1]
    before = torch.arange(size)[:, None] < torch.arange(size - n, size)  # (context, target)
    z = torch.linalg.solve_triangular(factor, rest[..., None], upper=False)
    a = torch.linalg.solve_triangular(factor, looked, upper=False) * before
    return (a * z).sum(1), prior - (a**2).sum(1)


def _others(factor: Tensor, looked: Tensor, rest: Tensor, seen: Tensor) -> tuple[Tensor, Tensor]:
    """Of a target that is observed, the shift of its mean and its variance; of another one, the shift and by how much
    its variance falls."""
    n = looked.shape[-1]
    inverse = torch.cholesky_inverse(factor)
    own = inverse.diagonal(dim1=1, dim2=2)
    off = inverse - torch.diag_embed(own)
    known = -(off @ rest[..., None])[..., 0] / own
    weights = inverse @ looked
    unknown, falls = (weights * rest[..., None]).sum(1), (weights * looked).sum(1)
    here = seen[:, -n:]
    return torch.where(here, known[:, -n:], unknown), torch.where(here, (1 / own)[:, -n:], falls)
