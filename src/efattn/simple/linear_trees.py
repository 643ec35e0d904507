"""A linear model, and regression trees of what it leaves: what bends, and what depends on something else.

    f_i = g_i + s u[x_i] r(z_i)                                        its first output
    f_i = g_i + shift - w log(v(z_i) / usual)                          the second, where that is a dispersion

g: the linear model's; z: all that it knows of row i, and g itself; r(z): the mean over trees of the leaf that z falls
into, v(z) the spread inside it; u: the spread of an item's rows in units of f. Trees are grown on steps of Newton's
method, dlog p / (-d^2 log p), at g of a linear model that was fitted without the row's group, each of them on groups
drawn at random. The groups that a tree has not seen choose s, w and shift.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, NamedTuple, final

import numpy as np
import torch
from torch import Tensor

from efattn.data import Batch, Groups
from efattn.errors import DataError
from efattn.models import Conditionals
from efattn.simple import trees
from efattn.simple.at_positions import alike, at_positions
from efattn.simple.base import DirectlyFitted, Recipe, Setting, Tick
from efattn.simple.linear_features import Known
from efattn.simple.linear_fit import Problem
from efattn.simple.linear_model import LinearModel, PenalisedLinear

LEAST, FEWEST = 5, 8  # rows of a leaf; groups of a fit
FAR = 6.0  # usual spreads, beyond which a step is cut
FLAT = 0.1  # of the usual curvature: the least that a row has
ROWS = 5000  # that a tree is grown on, about, at most
LARGEST = 1e30  # number that trees are shown, in single precision
FEW = 20.0  # rows that draw an item's spread to that of all
SHARES, WIDTHS = (0.0, 0.25, 0.5, 0.75, 1.0), (0.0, 0.3, 0.6, 1.0)
SHIFTS = (-0.4, -0.2, -0.1, 0.0, 0.1, 0.2, 0.3, 0.5)


@final
@dataclass(frozen=True)
class LinearTrees(Recipe):
    """A linear model (LinearModel), and a forest of regression trees of what it leaves, from all that it knows of a
    row. trees: how many; penalty, spread, seconds, by_position: of the linear model."""

    trees: int = 60
    penalty: float | tuple[float, ...] | None = None
    seconds: float = 20.0
    spread: tuple[float, ...] | None = None
    by_position: bool = False
    models = "value"
    exposure = True
    noise = True
    times = True

    def taking_over(self, others: Sequence[Conditionals]) -> Recipe:
        """The penalties of a linear model."""
        for model in alike(others, self.by_position):
            if isinstance(model, PenalisedLinear) and self.penalty is None:
                return replace(self, **model.chosen_options())
        return self

    def build(self, setting: Setting) -> Conditionals:
        self.check_number("trees", 1)
        if self.by_position:
            return at_positions(replace(self, by_position=False), setting)
        linear = LinearModel(self.penalty, self.seconds, self.spread).build(setting)
        assert isinstance(linear, PenalisedLinear)
        return TreesOnLinear(setting, linear, self.trees)


class Left(NamedTuple):
    """Rows whose groups were left out: their problems fold by fold, f, what is known (row, any), item, group."""

    problems: tuple[Problem, ...]
    f: Tensor
    x: Tensor
    item: Tensor
    group: np.ndarray

    def log_prob(self, f: Tensor) -> Tensor:
        parts = f.split([len(one.rows.y) for one in self.problems])
        return torch.cat([one.log_prob(part) for one, part in zip(self.problems, parts, strict=True)])


@final
class TreesOnLinear(DirectlyFitted):
    """Nodes of trees as flat tables (tree, node). added: s, w, shift, log usual."""

    def __init__(self, setting: Setting, linear: PenalisedLinear, count: int) -> None:
        super().__init__(setting.family, setting.context)
        if len(linear.columns) != 1:
            raise DataError("Trees of what a linear model leaves are of one value column.", option="value")
        self.linear, self.count, self.items, self.has_items = linear, count, linear.items, linear.has_items
        for name, x in trees.empty(count).items():
            self.register_buffer(name, x)
        self.register_buffer("added", torch.zeros(4, dtype=torch.float64))
        self.register_buffer("units", torch.ones(linear.items + 1, dtype=torch.float64))

    def chosen_options(self) -> dict[str, Any]:
        return self.linear.chosen_options()

    # ---- what it says

    @torch.no_grad()
    def raw_outputs(self, batch: Batch, slots: Tensor) -> Tensor:
        item, known = self.linear.described(batch, slots)
        f = self.linear.column_outputs(0, item, known)
        x = self._features(known, item, f).flatten(0, 1)
        every = torch.arange(self.count).expand(len(x), -1)
        said = trees.said({name: self.get_buffer(name) for name in trees.empty(0)}, x, every)
        return self._moved(f, said.unflatten(0, item.shape), item, *self.get_buffer("added").tolist()).to(slots.device)

    def _features(self, known: Known, item: Tensor, f: Tensor) -> Tensor:
        """(..., any): items as numbers by where they stand without any context."""
        own = self.linear.get_buffer("base_own_0")[item][..., None]
        scatter = known.scatter[..., 0, :]
        parts = [known.level, known.linear, known.extras, known.cells, scatter, known.told, f[..., :2], own]
        return torch.cat(parts, -1).nan_to_num(0.0).clamp(-LARGEST, LARGEST)

    def _moved(
        self, f: Tensor, said: Tensor, item: Tensor, share: float, width: float, shift: float, usual: float
    ) -> Tensor:
        first = f[..., 0] + share * self.get_buffer("units")[item] * said[..., 0]
        rest = f[..., 1:]
        if width or shift:
            wider = width * (trees.within(said, share).log() - usual) - shift
            rest = torch.cat([rest[..., :1] - wider[..., None], rest[..., 1:]], -1)
        return torch.cat([first[..., None], rest], -1)

    # ---- how it is fitted

    def fit(self, groups: Groups, held: Groups | None = None, tick: Tick | None = None) -> None:
        """held is not looked at."""
        if len(groups) < FEWEST:
            raise DataError(f"Trees of what a linear model leaves need {FEWEST} groups at least.")
        self.linear.fit(groups, None, tick)
        left = self._left(groups)
        step, weight = self._steps(left)
        said, unseen = self._grow(left, step.numpy(), weight.numpy())
        if unseen.any():
            self._judge(left, torch.as_tensor(said), torch.as_tensor(unseen))

    def _left(self, groups: Groups) -> Left:
        parts = self.linear.left_out(groups)
        f = torch.cat([mine for _, mine in parts])
        item = torch.cat([problem.rows.item for problem, _ in parts])
        known = Known(*(torch.cat(x) for x in zip(*(problem.rows.known for problem, _ in parts), strict=True)))
        group = np.concatenate(
            [np.stack([np.full(len(p.rows.y), k), p.rows.group.numpy()], 1) for k, (p, _) in enumerate(parts)]
        )
        number = np.unique(group, axis=0, return_inverse=True)[1].reshape(-1)
        return Left(tuple(problem for problem, _ in parts), f, self._features(known, item, f), item, number)

    def _steps(self, left: Left) -> tuple[Tensor, Tensor]:
        """Newton's steps in units of their item's spread, and their weights."""
        step = torch.zeros(len(left.f), dtype=torch.float64, requires_grad=True)
        with torch.enable_grad():
            scores = left.log_prob(torch.cat([(left.f[:, 0] + step)[:, None], left.f[:, 1:]], -1))
            (slope,) = torch.autograd.grad(scores.sum(), step, create_graph=True)
            (curve,) = torch.autograd.grad(slope.sum(), step)
        slope, curve = slope.detach().nan_to_num(0.0, 0.0, 0.0), (-curve).nan_to_num(0.0, 0.0, 0.0).clamp_min(0.0)
        usual = float(curve.mean()) or 1.0
        total, rows = torch.zeros(2, len(self.get_buffer("units")), dtype=torch.float64)
        total.index_add_(0, left.item, curve)
        rows.index_add_(0, left.item, torch.ones_like(curve))
        unit = ((total + FEW * usual) / (rows + FEW)).rsqrt()
        self._set(units=unit)
        curve = (curve * unit[left.item] ** 2).clamp_min(FLAT)  # about 1
        return (slope * unit[left.item] / curve).clamp(-FAR, FAR), curve

    def _grow(self, left: Left, step: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """What trees that have not seen a row's group say of it: (row, mean and mean of squares), and whether there are
        any."""
        draw, x = np.random.default_rng(0), np.ascontiguousarray(left.x.numpy(), np.float32)
        groups = int(left.group.max()) + 1
        drawn = max(round(groups * min(1.0, ROWS / len(step))), 1)
        total, count = np.zeros((len(step), 2)), np.zeros(len(step))
        for t in range(self.count):
            times = np.bincount(draw.integers(groups, size=drawn), minlength=groups)[left.group]
            some, out = times > 0, times == 0
            tree = trees.grown(x[some], step[some], LEAST, t, (weight * times)[some])
            nodes = trees.table(tree)
            for name, mine in nodes.items():
                buffer = self.get_buffer(name)
                buffer[t, : len(mine)] = torch.as_tensor(mine).to(buffer.dtype)
            total[out] += nodes["leaf"][tree.apply(x[out])] if out.any() else 0.0
            count += out
        return total / np.maximum(count, 1)[:, None], count > 0

    def _judge(self, left: Left, said: Tensor, unseen: Tensor) -> None:
        """How much of what trees say is added."""
        spread = self.linear.columns[0].scattered
        best = (-float("inf"), (0.0, 0.0, 0.0, 0.0))
        for share in SHARES:
            usual = float(trees.within(said[unseen], share).log().mean())
            for width, shift in product(WIDTHS, SHIFTS) if spread else ((0.0, 0.0),):
                tried = (share, width, shift, usual)
                scores = left.log_prob(self._moved(left.f, said, left.item, *tried))[unseen]
                total = float(scores.nan_to_num(-1e6, neginf=-1e6).sum())
                best = max(best, (total, tried))
        self._set(added=np.array(best[1]))
