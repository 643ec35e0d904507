"""Item means, and item and group effects, shrunk as far as the data say.

    ItemMean     y ~ N(m_item, v_item)
    ShrunkMean   y = m + a_item + b_group + e,     a ~ N(0, r^2),  b ~ N(0, t^2),  e ~ N(0, s^2)

Given n context rows of the group with residuals r_j = y_j - m - a_j, b has mean sum_j r_j / (n + s^2 / t^2)
and variance s^2 t^2 / (n t^2 + s^2). Variances come from moments (unbalanced one-way analysis of variance).
"""

from dataclasses import dataclass
from typing import NamedTuple, final

import numpy as np
import torch
from torch import Tensor

from efattn.data import Batch, Groups
from efattn.models import Conditionals
from efattn.simple.base import MeanAndVariance, Recipe, Setting, Tick

ROUNDS = 8
PRIOR_ROWS = 5.0  # a variance of an item counts the overall one as so many rows


class Column(NamedTuple):
    """Observed values that are targets: y, item (below `items`, or `items` for unknown) and group of each."""

    y: np.ndarray
    item: np.ndarray
    group: np.ndarray


def observed(groups: Groups, items: int, has_items: bool) -> Column:
    value, target = groups.value, groups.target
    assert value is not None
    kept = ~np.isnan(value[:, 0]) & (True if target is None else target)
    item = groups.item if has_items and groups.item is not None else np.zeros(len(kept), np.int64)
    return Column(value[kept, 0], np.minimum(item[kept], items).astype(np.int64), groups.group[kept])


def components(y: np.ndarray, of: np.ndarray, number: int) -> tuple[float, float]:
    """Variance within and between the `number` classes, by moments."""
    count = np.bincount(of, minlength=number).astype(float)
    total, n, present = np.bincount(of, y, minlength=number), float(len(y)), int((count > 0).sum())
    means = np.divide(total, count, out=np.zeros(number), where=count > 0)
    spread = float(np.var(y)) if n else 1.0
    if present < 2 or n <= present:
        return max(spread, 1e-12), 0.0
    within = float(((y - means[of]) ** 2).sum() / (n - present))
    between = float((count * (means - total.sum() / n) ** 2).sum() / (present - 1))
    typical = (n - (count**2).sum() / n) / (present - 1)
    return max(within, 1e-12 * (1 + spread)), max((between - within) / typical, 0.0)


def shrunk(y: np.ndarray, of: np.ndarray, number: int) -> np.ndarray:
    """(number,): the posterior mean of each class's deviation from 0."""
    within, between = components(y, of, number)
    count, total = np.bincount(of, minlength=number), np.bincount(of, y, minlength=number)
    return total * between / (count * between + within)


def item_means(data: Column, items: int) -> np.ndarray:
    """(items + 1,): shrunk to the overall mean, which is the last."""
    overall = float(data.y.mean()) if len(data.y) else 0.0
    known = data.item < items
    return np.append(overall + shrunk(data.y[known] - overall, data.item[known], items), overall)


def item_variances(rest: np.ndarray, item: np.ndarray, items: int) -> np.ndarray:
    """(items + 1,): of residuals, each drawn to the overall one, which is the last."""
    overall = max(float(np.mean(rest**2)), 1e-12) if len(rest) else 1.0
    known = item < items
    count = np.bincount(item[known], minlength=items)
    total = np.bincount(item[known], rest[known] ** 2, minlength=items)
    return np.append((total + PRIOR_ROWS * overall) / (count + PRIOR_ROWS), overall)


@final
@dataclass(frozen=True)
class ItemMean(Recipe):
    """The mean and variance of each item's values, whatever the context; the overall ones for an item without any."""

    models = "value"

    def build(self, setting: Setting) -> Conditionals:
        return ItemMeans(setting)


@final
class ItemMeans(MeanAndVariance):
    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self.register_buffer("variance", torch.ones(self.items + 1, dtype=torch.float64))

    def fit_moments(self, groups: Groups, held: Groups | None, tick: Tick) -> None:
        data = observed(groups, self.items, self.has_items)
        overall = float(data.y.mean())
        count = np.bincount(data.item, minlength=self.items + 1)
        total = np.bincount(data.item, data.y, minlength=self.items + 1)
        mean = np.divide(total, count, out=np.full(self.items + 1, overall), where=count > 0)
        mean[-1] = overall
        variance = item_variances(data.y - mean[data.item], data.item, self.items)
        variance[-1] = np.var(data.y) + 1e-12
        self._set(mean=mean, variance=variance)

    def moments(self, batch: Batch) -> tuple[Tensor, Tensor]:
        item = self.cells(batch).item[:, : batch.length]
        return self.get_buffer("mean")[item], self.get_buffer("variance")[item]


@final
@dataclass(frozen=True)
class ShrunkMean(Recipe):
    """Item and group effects, shrunk by empirical Bayes; a row's group effect comes from its context only."""

    models = "value"

    def build(self, setting: Setting) -> Conditionals:
        return ShrunkMeans(setting)


@final
class ShrunkMeans(MeanAndVariance):
    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self.register_buffer("within", torch.ones(1, dtype=torch.float64))  # s^2
        self.register_buffer("between", torch.zeros(1, dtype=torch.float64))  # t^2
        self.register_buffer("items_spread", torch.zeros(1, dtype=torch.float64))  # r^2

    def fit_moments(self, groups: Groups, held: Groups | None, tick: Tick) -> None:
        data, size = observed(groups, self.items, self.has_items), len(groups)
        effect, mean, within, between = np.zeros(size), np.zeros(self.items + 1), 1.0, 0.0
        for _ in range(ROUNDS):
            mean = item_means(data._replace(y=data.y - effect[data.group]), self.items)
            rest = data.y - mean[data.item]
            within, between = components(rest, data.group, size)
            effect = shrunk(rest, data.group, size)
        self._set(mean=mean, within=within, between=between, items_spread=float(np.var(mean[:-1])))

    def moments(self, batch: Batch) -> tuple[Tensor, Tensor]:
        cells, n = self.cells(batch), batch.length
        seen = cells.visible(self.context)[..., :n].double()  # (batch, target, context)
        mean = self.get_buffer("mean")[cells.item[:, :n]]
        rest = torch.where(cells.seen[:, :n], cells.y[:, :n] - mean, 0.0)
        within, between = self.get_buffer("within"), self.get_buffer("between")
        count, total = seen.sum(-1), (seen @ rest[..., None])[..., 0]
        effect = total * between / (count * between + within)
        left = within * between / (count * between + within)
        strange = (cells.item[:, :n] == self.items) * self.get_buffer("items_spread")
        return mean + effect, within + left + strange
