"""A Gaussian over items, and regression trees of what it leaves: bends and thresholds that no covariance has.

    y_i = g_i + s_j r(x) + noise       j: the item,  g: the Gaussian's mean of y_i given what row i may see,
                                       x: every item as it is seen or as the Gaussian completes it (x_j = g_i)
    r(x) = mean over trees of the leaf that x falls into
    noise: the spread inside these leaves, scaled, and as much wider as the Gaussian's is than it was at the fit

Each tree is grown on a random part of the rows, and the rows it has not seen tell how much of what trees say is to be
added (s, from 0 to 1) and how wide the noise is. A value that is missing is never a feature as such: it is completed
from the others, and never from the target.
"""

import time
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, final

import numpy as np
import torch
from torch import Tensor

from efattn.data import Batch, Groups
from efattn.models import Conditionals
from efattn.simple import trees
from efattn.simple.at_positions import at_positions
from efattn.simple.base import TOKENS, MeanAndVariance, Recipe, Setting, Tick
from efattn.simple.gaussian import GaussianOverItems
from efattn.simple.linear_features import completed
from efattn.simple.logs import of_logs

LEAST = 3  # rows of a leaf
ROWS = 2000  # that a tree is grown on, at most
FEW = 20.0  # rows that draw an item's share and noise to those of all items


@final
@dataclass(frozen=True)
class Forest(Recipe):
    """A Gaussian over all items, and for each item a forest of regression trees of what it leaves, from all that the
    row may see. trees: how many of each item; weight, tails: of the Gaussian (GaussianConditional). seconds: how long
    to grow trees, at most; items that are left without are the Gaussian's alone. logs: whether it is of logarithms of
    positive numbers or counts. by_position: with a row's position as its item, where rows have none and groups have
    their times or ranks in common."""

    trees: int = 50
    weight: float | None = None
    tails: float | None = None
    seconds: float = 60.0
    logs: bool = False
    by_position: bool = False
    models = "value"
    by_size = True

    def build(self, setting: Setting) -> Conditionals:
        self.check_number("trees", 1)
        self.check_number("weight", 1e-6, 1)
        self.check_number("tails", 0)
        self.check_number("seconds", 0)
        if self.by_position:
            return at_positions(replace(self, by_position=False), setting)
        if self.logs:
            return of_logs(replace(self, logs=False), setting)
        return ForestOverItems(setting, self)


class Rows(NamedTuple):
    """x (row, cell), what the Gaussian leaves of y (row,), its variance, item (row,)."""

    x: np.ndarray
    rest: np.ndarray
    variance: np.ndarray
    item: np.ndarray


@final
class ForestOverItems(MeanAndVariance):
    """Nodes of trees as flat tables (item, tree, node)."""

    def __init__(self, setting: Setting, recipe: Forest) -> None:
        super().__init__(setting)
        self.recipe = recipe
        self.base = GaussianOverItems(setting, recipe.weight, True, recipe.seconds, recipe.tails)
        for name, x in trees.empty(self.items, recipe.trees).items():
            self.register_buffer(name, x)
        self.register_buffer("share", torch.zeros(self.items + 1, dtype=torch.float64))
        self.register_buffer("noise", torch.ones(self.items + 1, dtype=torch.float64))
        self.register_buffer("usual", torch.ones(self.items + 1, dtype=torch.float64))  # variance of the Gaussian

    def chosen_options(self) -> dict[str, Any]:
        return self.base.chosen_options()

    def fit_moments(self, groups: Groups, held: Groups | None, tick: Tick) -> None:
        self.base.fit(self.as_scored(groups), None if held is None else self.as_scored(held))
        self._set(mean=self.base.get_buffer("mean"), share=0.0 * self.get_buffer("share"))
        rows, end = self._rows(groups), time.thread_time() + self.recipe.seconds
        sums = np.zeros((self.items, 4))  # rest * said, said^2, rest^2, rows: of rows that trees have not seen
        unseen = dict[int, tuple[np.ndarray, np.ndarray]]()
        for item in range(self.items):
            tick(item, self.items)
            mine = np.flatnonzero(rows.item == item)
            if len(mine) < 4 * LEAST or time.thread_time() > end:
                continue
            unseen[item] = self._grow(item, rows.x[mine], rows.rest[mine])
            said, rest = unseen[item][0][:, 0], rows.rest[mine]
            sums[item] = np.nansum(rest * said), np.nansum(said**2), np.sum(rest**2), len(mine)
        if unseen:
            self._judge(rows, sums, unseen)

    def _grow(self, item: int, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """What trees that have not seen a row say of it: (row, mean and mean of squares), and whether there are any."""
        draw, x = np.random.default_rng([0, item]), np.ascontiguousarray(x, np.float32)
        total, count = np.zeros((len(y), 2)), np.zeros(len(y))
        for t in range(self.recipe.trees):
            some = draw.integers(len(y), size=min(len(y), ROWS))
            tree = trees.grown(x[some], y[some], LEAST, t)
            nodes = trees.table(tree)
            for name, mine in nodes.items():
                buffer = self.get_buffer(name)
                buffer[item, t, : len(mine)] = torch.as_tensor(mine).to(buffer.dtype)
            out = np.ones(len(y), bool)
            out[some] = False
            total[out] += nodes["leaf"][tree.apply(x[out])] if out.any() else 0.0
            count += out
        with np.errstate(invalid="ignore"):
            return total / count[:, None], count > 0

    def _judge(self, rows: Rows, sums: np.ndarray, unseen: dict[int, tuple[np.ndarray, np.ndarray]]) -> None:
        """Shares and noise by item, drawn to those of all."""
        some = sorted(unseen)
        spread = np.maximum(sums[:, 2] / np.maximum(sums[:, 3], 1), 1e-12)  # items are summed in units of their own
        both, own = sums[:, 0] / spread, sums[:, 1] / spread
        overall = both[some].sum() / max(own[some].sum(), 1e-12)
        size = FEW * own[some].sum() / max(sums[some, 3].sum(), 1.0)
        share = np.zeros(self.items + 1)
        share[some] = np.clip((both[some] + size * overall) / np.maximum(own[some] + size, 1e-12), 0, 1)
        ratios, expected = dict[int, np.ndarray](), np.ones(self.items + 1)
        for item in some:
            (told, there), mine = unseen[item], rows.item == item
            expected[item] = rows.variance[mine].mean()
            width = trees.within(told, share[item]) * rows.variance[mine] / expected[item]
            ratios[item] = ((rows.rest[mine] - share[item] * told[:, 0]) ** 2 / width)[there]
        usual = float(np.mean(np.concatenate(list(ratios.values()))))
        noise = np.ones(self.items + 1)
        for item, mine in ratios.items():
            noise[item] = (mine.sum() + FEW * usual) / (len(mine) + FEW)
        self._set(share=share, noise=noise, usual=expected)

    def moments(self, batch: Batch) -> tuple[Tensor, Tensor]:
        mean, variance = self.base.moments(batch)
        item = self.cells(batch).item[:, : batch.length]
        share = self.get_buffer("share")[item]
        here = (share > 0) & batch.exists[:, : batch.length]
        if not bool(here.any()):
            return mean, variance
        said = self._said(self._features(batch)[here], item[here])
        scale = self.get_buffer("noise")[item[here]] * variance[here] / self.get_buffer("usual")[item[here]]
        mean, variance = mean.clone(), variance.clone()
        mean[here] += share[here] * said[:, 0]
        variance[here] = (scale * trees.within(said, share[here])).clamp_min(1e-12)
        return mean, variance

    def _said(self, x: Tensor, item: Tensor) -> Tensor:
        """(row, 2): mean and mean of squares over all trees of each row's item. x: (row, cell)."""
        tables = {name: self.get_buffer(name) for name in trees.empty(0)}
        many = self.recipe.trees
        return trees.said(tables, x, item[:, None] * many + torch.arange(many))

    @torch.no_grad()
    def _rows(self, groups: Groups) -> Rows:
        """Of the targets that have a value."""
        pieces = []
        for batch in groups.batches(TOKENS, context=self.context, dtype=torch.float64):
            cells, n = self.cells(batch), batch.length
            kept = batch.target & cells.seen[:, :n]
            mean, variance = self.base.moments(batch)
            parts = (self._features(batch), cells.y[:, :n] - mean, variance, cells.item[:, :n])
            pieces.append([part[kept].numpy() for part in parts])
        return Rows(*(np.concatenate(parts) for parts in zip(*pieces, strict=True)))

    def _features(self, batch: Batch) -> Tensor:
        """(batch, length, cell): of each row, all that it may see and what that lets expect of the rest."""
        cells, size = self.cells(batch), self.cells_in_all
        seen = cells.visible(self.context).double()
        where = torch.nn.functional.one_hot(cells.index, size + 1)[..., :size].double()
        number = seen @ where
        rest = cells.y - self.get_buffer("mean")[cells.item]
        x = seen @ (where * rest[..., None]) / number.clamp_min(1)
        together = self.base.get_buffer("covariance")[:size, :size]
        return completed(x, number > 0, torch.ones_like(number, dtype=torch.bool), together)
