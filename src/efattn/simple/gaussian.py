"""One Gaussian over all items (and their earlier selves), each row conditioned on what it may see of its group.

    x ~ N(mu, Sigma),   Sigma = (1 - w) sample + w target       (by EM where rows are incomplete: em.py)

The target is a fitted Matern where items have places, else the same correlation for all pairs. w is chosen on held-out
groups. An item that a group has twice shares all but the noise share of its variance. Of thousands of items the
covariance has low rank (low_rank.py); an item that was never seen, at a place that is known, is kriged
(new_places.py); without items rows are a field over their attributes (field.py).
"""

import time
from dataclasses import dataclass, replace
from typing import Any, Literal, final

import numpy as np
import torch
from torch import Tensor

from efattn.data import Batch, Groups
from efattn.errors import DataError, option
from efattn.models import Conditionals
from efattn.simple import em
from efattn.simple.at_positions import at_positions
from efattn.simple.base import TOKENS, Cells, MeanAndVariance, Recipe, Setting, Tick, tuning_parts
from efattn.simple.conditioning import choose_tails, conditioned, told
from efattn.simple.correlations import (
    Matern,
    common_and_memory,
    distances,
    exchangeable,
    fit_matern,
    item_attributes,
)
from efattn.simple.effects import item_means, item_variances, observed
from efattn.simple.field import FieldOverRows
from efattn.simple.logs import of_logs
from efattn.simple.low_rank import RANK, LowRankGaussian
from efattn.simple.new_places import Known, Rows, joined

WEIGHTS = (1.0, 0.95, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.05, 0.02, 0.01, 3e-3, 1e-3, 1e-4, 1e-5, 1e-6)
NOISE = 0.02  # the smallest share of an item's variance that is not repeated
ROUGH = 0.05  # the weight under which places are looked at
FULL, MOST = 300, 5000  # cells that a covariance has a number for each pair of: unasked, and at most


@final
@dataclass(frozen=True)
class GaussianConditional(Recipe):
    """One Gaussian over all items, by EM on incomplete groups; each row conditioned on the others, or the earlier ones.

    weight: of the simple covariance that the sample's is drawn to, from above 0 to 1, None to choose it on held-out
    groups. places: whether that is a Matern covariance of the attributes' distances (great-circle for latitude and
    longitude), else the same correlation for all pairs. seconds: how long to look for a better weight, at most; what
    was found by then is kept. rank: "full" for a covariance of every pair, a number for so many factors at most and a
    noise per item, None for the first up to 300 items and lags, and factors beyond. tails: degrees of freedom of a
    scale that each group has, 0 for the same in all, None to choose them on held-out groups. logs: whether it is of
    logarithms of positive numbers or counts. by_position: with a row's position as its item, where rows have none and
    groups have their times or ranks in common.
    """

    weight: float | None = None
    places: bool = True
    seconds: float = 60.0
    rank: int | Literal["full"] | None = None
    tails: float | None = None
    logs: bool = False
    by_position: bool = False
    models = "value"
    by_size = True

    def build(self, setting: Setting) -> Conditionals:
        self.check_number("weight", 1e-6, 1)
        self.check_number("seconds", 0)
        self.check_number("tails", 0)
        if self.rank != "full":
            self.check_number("rank", 1)
        if self.by_position:
            return at_positions(replace(self, by_position=False), setting)
        if self.logs:
            return of_logs(replace(self, logs=False), setting)
        cells = max(setting.items, 1) * (setting.lags + 1)
        if isinstance(self.rank, int) or (self.rank is None and cells > FULL):
            return LowRankGaussian(setting, self.rank if isinstance(self.rank, int) else RANK, self.tails, self.seconds)
        return GaussianOverItems(setting, self.weight, self.places, self.seconds, self.tails)


@final
@dataclass(frozen=True)
class Kriging(Recipe):
    """A Gaussian process over places, and time with lags. Of items: item means and variances, and a fitted Matern
    correlation with a nugget, the GaussianConditional with weight 1; an item never seen is kriged from its place.
    Without items: drift, and a Matern over the attributes of the rows of each group. tails, logs: as there."""

    tails: float | None = None
    logs: bool = False
    models = "value"

    def build(self, setting: Setting) -> Conditionals:
        self.check_number("tails", 0)
        if self.logs:
            return of_logs(replace(self, logs=False), setting)
        if not setting.attributes:
            places = option("attributes", ["latitude", "longitude"])
            raise DataError(f"Kriging needs to know where rows are: pass {places}.", option="attributes")
        if not setting.items:
            return FieldOverRows(setting, self.tails)
        return GaussianOverItems(setting, 1.0, tails=self.tails)


@final
class GaussianOverItems(MeanAndVariance):
    """weight: w, None to choose it; places: whether attributes are places to fit a Matern to; tails: None to choose."""

    def __init__(
        self,
        setting: Setting,
        weight: float | None = None,
        places: bool = True,
        seconds: float = 60.0,
        tails: float | None = None,
    ) -> None:
        super().__init__(setting)
        size = self.cells_in_all
        if size > MOST:
            raise DataError(
                f"A Gaussian over {size} items and lags is too large; it takes at most {MOST}.", option="item"
            )
        self.weight, self.places, self.seconds, self.asked = weight, places, seconds, tails
        self.register_buffer("covariance", torch.eye(size + 1, dtype=torch.float64))  # the last: an unknown item
        self.register_buffer("noise", torch.zeros(size + 1, dtype=torch.float64))
        self.register_buffer("chosen", torch.zeros(1, dtype=torch.float64))
        self.register_buffer("tails", torch.zeros(1, dtype=torch.float64))
        for name, x in Known.empty(self.items, setting.attributes)._asdict().items():
            self.register_buffer(f"known_{name}", x)

    def chosen_options(self) -> dict[str, float]:
        chosen = {"weight": float(self.get_buffer("chosen"))} if self.weight is None else {}
        return chosen | ({"tails": told(self.get_buffer("tails"))} if self.asked is None else {})

    def fit_moments(self, groups: Groups, held: Groups | None, tick: Tick) -> None:
        if not self.has_items:
            raise DataError(f"A Gaussian over items needs an item column: pass {option('item')}.", option="item")
        weight, end = self.weight, time.thread_time() + self.seconds
        self._set(tails=0.0 if self.asked is None else self.asked)
        if weight is None or self.asked is None:
            train, check = tuning_parts(groups, held)
            sample = _Sample(self, train, end)
            if weight is None:
                weight = self._search(sample, check, tick)
            else:
                self._take(sample, weight, sample.blend(weight, sample.start))
            if self.asked is None:
                choose_tails(self, check, sample.freedom(weight))
            if train is groups:
                self._take_places(sample, groups)
                return
        sample = _Sample(self, groups, end + self.seconds)
        self._take(sample, weight, sample.blend(weight, sample.start))
        self._take_places(sample, groups)

    def _search(self, sample: "_Sample", check: Groups, tick: Tick) -> float:
        """From strong shrinking to weak, which takes the longest, until it no longer pays or the time is up."""
        best: tuple[float, float, em.Normal] | None = None
        normal = sample.start
        for number, weight in enumerate(weight for weight in WEIGHTS if weight >= sample.least):
            tick(number, len(WEIGHTS))
            normal = sample.blend(weight, normal)
            self._take(sample, weight, normal)
            score = self.judged(check)
            if best is None or score > best[0]:
                best = (score, weight, normal)
            elif weight < 0.6 * best[1]:
                break
            if time.thread_time() > sample.end:
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

    def _take_places(self, sample: "_Sample", groups: Groups) -> None:
        """Means and spreads as surfaces over places, for items that were never seen."""
        if sample.places is None or sample.matern is None:
            return
        mean = self.get_buffer("mean")[:-1].clone()
        if groups.centres is not None:
            mean += torch.as_tensor(groups.centres[:-1, 0])
        sd = self.get_buffer("covariance").diagonal()[: self.items].sqrt()
        found = Known.fit(torch.as_tensor(sample.places), sample.matern, mean, sd)
        self._set(**{f"known_{name}": x for name, x in found._asdict().items()})

    def moments(self, batch: Batch) -> tuple[Tensor, Tensor]:
        cells, n = self.cells(batch), batch.length
        turn = torch.cat([torch.arange(n, cells.index.shape[1]), torch.arange(n)])  # earlier groups first
        index, seen = cells.index[:, turn], cells.seen[:, turn]
        mean, k = self.get_buffer("mean")[cells.item[:, turn]], self._covariances(index)
        new = (batch.exists & (cells.index == self.cells_in_all))[:, turn]
        known = Known(*(self.get_buffer(f"known_{name}") for name in Known._fields))
        if batch.attributes is not None and known.usable and bool(new.any()):
            again = (index[:, :, None] == index[:, None]) & seen[:, :, None] & seen[:, None]
            noise = self.get_buffer("noise")[:-1] * (again.sum((1, 2)) > seen.sum(1))[:, None]
            rows = Rows(index, cells.lag[:, turn], batch.attributes[:, turn].double(), new, noise)
            mean, k = joined(known, self.get_buffer("covariance")[:-1, :-1], rows, mean, k)
            seen = seen | (new & cells.present[:, turn])
        rest = torch.where(seen, cells.y[:, turn] - mean, 0.0)
        found = conditioned(k, rest, seen, n, self.context)
        return mean[:, -n:] + found.shift, found.scaled(self.get_buffer("tails"))

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
        if groups.centres is not None:
            self.spread += float(np.var(groups.centres[:-1, 0]))
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
        self.places = item_attributes(groups, items) if model.places else None
        self.matern: Matern | None = None
        if self.places is not None and items > 2:
            self._fit_places(self.places)

    def _fit_places(self, attributes: np.ndarray) -> None:
        rough = self.blend(ROUGH, self.start)
        sd = rough.covariance.diagonal().sqrt()
        distance = distances(attributes)
        bare = (rough.covariance - ROUGH * self.target) / (1 - ROUGH)  # what was drawn to the target is no nugget
        self.matern = fit_matern(bare / _outer(sd), distance, self.lags)
        self.target = self.matern.correlation(distance, self.lags) * _outer(sd)
        self.start = em.Normal(rough.mean, self.target, [])

    @property
    def least(self) -> float:
        """The least weight: where groups are no more than cells, and so say nothing of some direction, that of one."""
        count, cells = len(self.rows), len(self.target)
        return 1 / (count + 1) if count <= cells + 1 else 0.0

    def freedom(self, weight: float) -> float:
        """Degrees of freedom of a new group's law, where the covariance is that of a posterior (inverse Wishart)."""
        if weight >= 1:
            return float("inf")
        return max(len(self.rows) / (1 - weight) - len(self.target) + 1, 1.0)

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
