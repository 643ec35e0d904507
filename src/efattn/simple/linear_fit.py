"""The coefficients of a linear model of one column, by penalised maximum likelihood.

    f_i = overall + own[x_i] + shared . s_i + others[x_i] . cells_i + by_item[x_i] . t_i       its first output
    f_i = overall + spread[x_i] + scatter . h_i                                                 the others

Every block of coefficients has a ridge penalty of its own. They draw coefficients to those of a mixed model, and are
chosen one after the other, from strong to weak, by the log-likelihood of groups that were left out.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from efattn.families import Family
from efattn.simple.linear_features import Base, Column, Known
from efattn.simple.newton import Arrow, Pair, newton

STRONG = (10_000.0, 1000.0, 300.0, 100.0, 30.0, 10.0, 3.0, 1.0, 0.3)
PATHS = {
    "spread": STRONG,
    "others": STRONG,
    "extras": STRONG,
    "by_item": STRONG,
    "bent": STRONG,
    "scatter": STRONG,
    "own": STRONG,
    "linear": STRONG,
}  # in the order in which they are chosen; the first is where each starts
FIXED = {"overall": 0.01, "level": 0.3}
CHOSEN = tuple(PATHS)
FIRST = FIXED | {name: path[0] for name, path in PATHS.items()}
WORSE = 0.002  # nats a row, after which no weaker penalty is tried
ROUNDS = 60  # of L-BFGS
ROOM, WORK = 2e7, 1e9  # numbers, and products of a step, for Newton's steps
SHARED = ("level", "linear", "bent", "extras")
BLOCKS = ("overall", "own", "shared", "others", "by_item", "spread", "scatter")


class Rows(NamedTuple):
    """Scored rows of one column: what is known of them, item, log exposure, y, weight, group (row,), and
    the variance of measurement errors."""

    known: Known
    item: Tensor
    exposure: Tensor
    y: Tensor
    weight: Tensor
    group: Tensor
    error: Tensor


class Coefficients(NamedTuple):
    """overall: from the marginal fit on, of all outputs that are fitted."""

    overall: Tensor
    own: Tensor
    shared: Tensor
    others: Tensor
    by_item: Tensor
    spread: Tensor
    scatter: Tensor


def shapes(column: Column, items: int, known: Sequence[int]) -> dict[str, tuple[int, ...]]:
    """Of the coefficients. known: how many numbers there are of level, linear, bent, extras, cells, scatter."""
    level, linear, bent, extras, cells, scatter = known
    more = column.free
    shared, by_item = level + linear + bent + extras, linear - 1 + level
    told = scatter if column.scattered else 0
    return {
        "overall": (more + 1,),
        "own": (items + 1,),
        "shared": (shared,),
        "others": (items + 1, cells),
        "by_item": (items + 1, by_item if level and items > 1 else 0),
        "spread": (items + 1, more),
        "scatter": (told, more),
    }


class Problem:
    """One column's rows, and what the coefficients are drawn to: the base, and the level of the mixed model."""

    def __init__(self, column: Column, base: Base, rows: Rows, items: int) -> None:
        self.family: Family = column.family
        self.free = column.free
        self.start, self.base, self.rows = base.start, base, rows
        self._arrow: Arrow | None = None
        self.noisy = bool((rows.error > 0).any())
        known = rows.known
        self.shared = torch.cat([known.level, known.linear, known.bent, known.extras], -1)
        self.by_item = known.by_item if items > 1 else known.by_item[..., :0]
        self.scatter = known.scatter[:, column.column] if column.scattered else known.scatter[:, 0, :0]
        widths = [x.shape[-1] for x in known]
        self.widths = widths[:4]
        self.shapes = shapes(column, items, widths)
        self.aim = torch.zeros(self.shapes["shared"], dtype=torch.float64)
        if widths[0]:
            self.aim[column.column] = 1.0  # what a mixed model says, as it says it
            self.aim[widths[0] : sum(widths[:3])] = base.shared

    def start_values(self) -> Coefficients:
        zero = {name: torch.zeros(shape, dtype=torch.float64) for name, shape in self.shapes.items()}
        return Coefficients(**(zero | {"shared": self.aim.clone(), "own": self.base.own, "spread": self.base.spread}))

    def weights(self, penalties: Mapping[str, float]) -> list[Tensor]:
        """A penalty per coefficient, or per block."""
        each = [penalties[name] for name in SHARED]
        shared = torch.cat([torch.full((n,), w, dtype=torch.float64) for n, w in zip(self.widths, each, strict=True)])
        return [shared if n == "shared" else torch.tensor(penalties[n], dtype=torch.float64) for n in BLOCKS]

    def log_likelihood(self, c: Coefficients) -> Tensor:
        known = self.rows.known
        f = outputs(self.start, c, self.rows.item, self.shared, known.cells, self.by_item, self.scatter)
        return self.family.log_prob(self._measured(self._exposed(f), self.rows.error), self.rows.y) * self.rows.weight

    def _exposed(self, f: Tensor) -> Tensor:
        if not self.family.exposures:
            return f
        index = torch.tensor(self.family.exposures)
        return f.index_add(-1, index, self.rows.exposure[:, None].expand(-1, len(index)))

    def _measured(self, f: Tensor, error: Tensor) -> Tensor:
        """Of values that have measurement errors."""
        return self.family.with_noise(f, error) if self.noisy else f

    def arrow(self) -> Arrow:
        """The rows as Newton's steps take them. Shared: overall, shared, scatter; own: own, others, by item, spread."""
        if self._arrow is None:
            rows, more = self.rows, self.free
            order = rows.item.argsort(stable=True)
            item, one = rows.item[order], rows.y.new_ones(len(order), 1)
            first = torch.cat([one, self.shared[order]], 1)
            rest = torch.cat([one, self.scatter[order]], 1)
            mine = torch.cat([one, rows.known.cells[order], self.by_item[order]], 1)
            shared, own = _side_by_side(first, rest, more), _side_by_side(mine, one, more)
            ends = torch.bincount(item, minlength=len(self.base.own)).cumsum(0).tolist()
            y, weight, start = rows.y[order], rows.weight[order], self._exposed(self.start[rows.item])[order]
            offset, fixed, error = start[:, : 1 + more], start[:, 1 + more :], rows.error[order]

            def log_prob(f: Tensor) -> Tensor:
                whole = torch.cat([f, fixed.expand(*f.shape[:-1], -1)], -1)
                return self.family.log_prob(self._measured(whole, error), y) * weight

            self._arrow = Arrow(log_prob, offset, shared, own, item, ends)
        return self._arrow

    def maximise(
        self, penalties: Mapping[str, float], start: Coefficients | None = None, end: float = float("inf")
    ) -> Coefficients:
        """The best coefficients: by Newton's steps where they are few, else by L-BFGS, until `end` at the latest."""
        first = start or self.start_values()
        blocks = zip(BLOCKS, self.weights(penalties), strict=True)
        weight = Coefficients(*(w.expand(self.shapes[name]) for name, w in blocks))
        if self.small:
            found = newton(self.arrow(), as_pair(weight), as_pair(self.start_values()), as_pair(first), end)
            return as_coefficients(found, self.shapes)
        return unpack(torch.as_tensor(self._descend(pack(weight), pack(first).numpy(), end)), self.shapes)

    @property
    def small(self) -> bool:
        own = 1 + self.shapes["others"][1] + self.shapes["by_item"][1] + self.free
        shared, items, rows = self.shapes["shared"][0] + 1 + self.free, len(self.base.own), len(self.rows.y)
        return rows * (1 + self.free) * own <= ROOM and (rows * own + items * own**2) * (own + shared) <= WORK

    def _descend(self, weight: Tensor, first: np.ndarray, end: float) -> np.ndarray:
        from scipy.optimize import minimize

        count, aim = max(float(self.rows.weight.sum()), 1.0), pack(self.start_values())
        best: tuple[float, np.ndarray] = (float("inf"), first)

        def objective(point: np.ndarray) -> tuple[float, np.ndarray]:
            nonlocal best
            flat = torch.tensor(point, requires_grad=True)
            with torch.enable_grad():
                loss = (weight / 2 * (flat - aim) ** 2).sum() - self.log_likelihood(unpack(flat, self.shapes)).sum()
                (gradient,) = torch.autograd.grad(loss / count, flat)
            value = float(loss.detach()) / count
            if not np.isfinite(value) or not bool(gradient.isfinite().all()):
                return 1e30, np.zeros_like(point)
            if value < best[0]:
                best = (value, point.copy())
            if time.thread_time() > end:
                raise _Late
            return value, gradient.numpy()

        with suppress(_Late):
            minimize(objective, first, jac=True, method="L-BFGS-B", options={"maxiter": ROUNDS, "ftol": 1e-7})
        return best[1]


class _Late(Exception):
    pass


def outputs(
    start: Tensor, c: Coefficients, item: Tensor, shared: Tensor, cells: Tensor, by_item: Tensor, scatter: Tensor
) -> Tensor:
    """f (..., size)"""
    begin, count = start[item], len(c.overall)
    first = begin[..., 0] + c.overall[0] + c.own[item] + shared @ c.shared
    if cells.shape[-1]:
        first = first + (c.others[item] * cells).sum(-1)
    if by_item.shape[-1]:
        first = first + (c.by_item[item] * by_item).sum(-1)
    rest = begin[..., 1:count] + c.overall[1:] + c.spread[item]
    if len(c.scatter):
        rest = rest + scatter @ c.scatter
    return torch.cat([first[..., None], rest, begin[..., count:]], -1)


def as_pair(c: Coefficients) -> Pair:
    """As Newton's steps have them. Of the outputs after the first, each has its overall and its scatter together."""
    rest = torch.cat([c.overall[None, 1:], c.scatter]).T.reshape(-1)
    return Pair(
        torch.cat([c.overall[:1], c.shared, rest]), torch.cat([c.own[:, None], c.others, c.by_item, c.spread], 1)
    )


def as_coefficients(pair: Pair, shape: Mapping[str, tuple[int, ...]]) -> Coefficients:
    shared, cells, by_item = shape["shared"][0], shape["others"][1], shape["by_item"][1]
    more = shape["spread"][1]
    first, b, rest = pair.shared.split([1, shared, len(pair.shared) - 1 - shared])
    rest = rest.view(more, -1).T if more else rest.new_zeros(1, 0)
    own, others, mine, spread = pair.own.split([1, cells, by_item, more], 1)
    return Coefficients(torch.cat([first, rest[0]]), own[:, 0], b, others, mine, spread, rest[1:])


def _side_by_side(first: Tensor, rest: Tensor, more: int) -> Tensor:
    """(row, 1 + more, any): what the first output is multiplied with, then what each of the others is."""
    wide = first.new_zeros(len(first), 1 + more, first.shape[1] + more * rest.shape[1])
    wide[:, 0, : first.shape[1]] = first
    for k in range(more):
        start = first.shape[1] + k * rest.shape[1]
        wide[:, 1 + k, start : start + rest.shape[1]] = rest
    return wide


def pack(c: Coefficients) -> Tensor:
    return torch.cat([x.reshape(-1) for x in c])


def unpack(flat: Tensor, shape: Mapping[str, tuple[int, ...]]) -> Coefficients:
    parts = flat.split([math.prod(shape[name]) for name in BLOCKS])
    return Coefficients(*(x.view(shape[name]) for x, name in zip(parts, BLOCKS, strict=True)))


class Fold(NamedTuple):
    """Groups to fit to and groups to choose by."""

    train: Problem
    test: Problem


def search(folds: Sequence[Fold], end: float, tick: Callable[[int, int], object]) -> dict[str, float]:
    """Penalties under which groups that were left out are most likely, one block after the other. A block leaves where
    it starts only for a gain of more than its standard error over the groups."""
    chosen = dict(FIRST)
    blocks = [name for name in CHOSEN if _present(folds[0].train, name)]
    rows = sum(len(fold.test.rows.y) for fold in folds)
    here: Sequence[Coefficients | None] = [None] * len(folds)
    before, here = _scores(folds, chosen, here, end)
    for number, name in enumerate(blocks):
        best, found, late = (before, chosen, here), here, 0
        for penalty in PATHS[name][1:]:
            tick(number, len(blocks))
            if time.thread_time() > end:
                break
            tried = chosen | {name: penalty}
            scores, found = _scores(folds, tried, found, end)
            late += 1
            if scores.sum() > best[0].sum():
                best, late = (scores, tried, found), 0
            elif late > 1 or scores.sum() < best[0].sum() - WORSE * rows:
                break
        gain = best[0] - before
        if float(gain.sum()) > float(gain.std(correction=0)) * len(gain) ** 0.5:
            before, chosen, here = best
    return chosen


def _scores(
    folds: Sequence[Fold], penalties: Mapping[str, float], start: Sequence[Coefficients | None], end: float
) -> tuple[Tensor, list[Coefficients]]:
    """The log-likelihood of each group that is left out, and the coefficients of each fold."""
    found = [fold.train.maximise(penalties, c, end) for fold, c in zip(folds, start, strict=True)]
    each = []
    for fold, c in zip(folds, found, strict=True):
        number = fold.test.rows.group.unique(return_inverse=True)[1]
        scores = fold.test.log_likelihood(c).nan_to_num(-1e6, neginf=-1e6)
        each.append(scores.new_zeros(int(number.max()) + 1 if len(number) else 0).index_add(0, number, scores))
    return torch.cat(each), found


def _present(problem: Problem, name: str) -> bool:
    if name in SHARED:
        return problem.widths[SHARED.index(name)] > (name == "linear")
    return math.prod(problem.shapes[name]) > 0 and (name not in ("own", "spread") or problem.shapes[name][0] > 2)
