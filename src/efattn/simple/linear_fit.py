"""The coefficients of a linear model of one column, by penalised maximum likelihood.

    f_i = overall + own[x_i] + shared . s_i + others[x_i] . cells_i + by_item[x_i] . t_i       its first output
    f_i = overall + spread[x_i] + scatter . h_i  (the second: + shift - certainty * told_i)      the others

Every block of coefficients has a ridge penalty of its own. They draw coefficients to those of a mixed model, and are
chosen one after the other, from strong to weak, by the log-likelihood of groups that were left out. Rows that a model
was fitted to lie nearer to it than others do: the shift is what makes the dispersion that of groups left out.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from efattn.simple.linear_features import SCATTER, Base, Column, Known
from efattn.simple.newton import Arrow, Pair, newton

STRONG = (10_000.0, 1000.0, 300.0, 100.0, 30.0, 10.0, 3.0, 1.0, 0.3, 0.1, 0.03, 0.01, 1e-3, 1e-4)
PATHS = {
    "spread": STRONG,
    "others": STRONG,
    "extras": STRONG,
    "by_item": STRONG,
    "bent": STRONG,
    "scatter": STRONG,
    "own": STRONG,
    "linear": STRONG,
    "moved": STRONG,
}  # in the order in which they are chosen; the first is where each starts
FIXED = {"overall": 0.01, "level": 0.3}
CHOSEN = tuple(PATHS)
FIRST = FIXED | {name: path[0] for name, path in PATHS.items()}
SHIFTS = (0.0, -0.1, -0.2, -0.3, -0.4, -0.6, -0.8, -1.0, -1.25, -1.5, -2.0, -2.5, -3.0, -4.0, -5.0)
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

    def __init__(self, column: Column, base: Base, rows: Rows, items: int, certainty: float = 0.0) -> None:
        self.column, self.family = column, column.family
        self.free, self.certainty = column.free, certainty
        self.told = -certainty * rows.known.told[:, column.column]
        self.start, self.base, self.rows = base.start, base, rows
        self._arrow: Arrow | None = None
        self.noisy = bool((rows.error > 0).any())
        known = rows.known
        self.shared = torch.cat([known.level, known.linear, known.bent, known.extras], -1)
        self.by_item = known.by_item if items > 1 else known.by_item[..., :0]
        self.scatter = known.scatter[:, column.column] if column.scattered else known.scatter[:, 0, :0]
        widths = [x.shape[-1] for x in known[:-1]]  # told is no number to have a coefficient
        self.widths = widths[:4]
        self.shapes = shapes(column, items, widths)
        self.aim = torch.zeros(self.shapes["shared"], dtype=torch.float64)
        if widths[0]:
            self.aim[column.column] = 1.0  # what a mixed model says, as it says it
            self.aim[widths[0] : sum(widths[:3])] = base.shared

    def with_certainty(self, certainty: float) -> "Problem":
        return Problem(self.column, self.base, self.rows, len(self.base.own) - 1, certainty)

    def start_values(self) -> Coefficients:
        zero = {name: torch.zeros(shape, dtype=torch.float64) for name, shape in self.shapes.items()}
        return Coefficients(**(zero | {"shared": self.aim.clone(), "own": self.base.own, "spread": self.base.spread}))

    def weights(self, penalties: Mapping[str, float]) -> list[Tensor]:
        """A penalty per coefficient, or per block."""
        shared = _each(self.widths, [penalties[name] for name in SHARED])
        least = min(SCATTER, len(self.scatter.mT))
        moved = _each([least, len(self.scatter.mT) - least], [penalties["scatter"], penalties.get("moved", 0.0)])
        several = {"shared": shared, "scatter": moved[:, None]}
        return [several.get(n, torch.tensor(penalties.get(n, 0.0), dtype=torch.float64)) for n in BLOCKS]

    def outputs(self, c: Coefficients) -> Tensor:
        known = self.rows.known
        return outputs(self.start, c, self.rows.item, self.shared, known.cells, self.by_item, self.scatter, self.told)

    def log_prob(self, f: Tensor) -> Tensor:
        """Of each row, times its weight."""
        return self.family.log_prob(self._measured(self._exposed(f), self.rows.error), self.rows.y) * self.rows.weight

    def log_likelihood(self, c: Coefficients) -> Tensor:
        return self.log_prob(self.outputs(c))

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
            begin = shifted(self.start[rows.item], self.told)
            y, weight, start = rows.y[order], rows.weight[order], self._exposed(begin)[order]
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


def _each(counts: Sequence[int], numbers: Sequence[float]) -> Tensor:
    """So many of each number."""
    return torch.repeat_interleave(torch.tensor(numbers, dtype=torch.float64), torch.tensor(counts))


def shifted(f: Tensor, by: Tensor) -> Tensor:
    """With a second output, if there is one, that is so much more (...,)."""
    return torch.cat([f[..., :1], f[..., 1:2] + by[..., None], f[..., 2:]], -1) if bool(by.any()) else f


def outputs(
    start: Tensor,
    c: Coefficients,
    item: Tensor,
    shared: Tensor,
    cells: Tensor,
    by_item: Tensor,
    scatter: Tensor,
    told: Tensor,
) -> Tensor:
    """f (..., size)"""
    begin, count = shifted(start[item], told), len(c.overall)
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


class Found(NamedTuple):
    """scores: the log-likelihood of each group that is left out, under the shift that suits them; each: of each fold,
    its coefficients."""

    scores: Tensor
    each: Sequence[Coefficients]
    shift: float


def certain(folds: Sequence[Fold], end: float) -> list[Fold]:
    """The folds with the certainty under which groups that were left out are likelier: as they have it, or the other of
    all and none, for a gain of more than its standard error over the groups."""
    first = folds[0].train
    if not first.column.measured or end < time.thread_time():
        return list(folds)
    others = [Fold(*(one.with_certainty(1.0 - first.certainty) for one in fold)) for fold in folds]
    return others if clear(_found(others, FIRST, end).scores - _found(folds, FIRST, end).scores) else list(folds)


def search(
    folds: Sequence[Fold], end: float, tick: Callable[[int, int], object], shifts: bool
) -> tuple[dict[str, float], float]:
    """Penalties under which groups that were left out are most likely, one block after the other, and the shift, if
    there is to be one. A block leaves where it starts only for a clear gain."""
    chosen = dict(FIRST)
    blocks = [name for name in CHOSEN if _present(folds[0].train, name)]
    rows = sum(len(fold.test.rows.y) for fold in folds)
    here = _found(folds, chosen, end, shifts=shifts)
    for number, name in enumerate(blocks):
        best, last, late = (here, chosen), here, 0
        for penalty in PATHS[name][1:]:
            tick(number, len(blocks))
            if time.thread_time() > end:
                break
            tried = chosen | {name: penalty}
            last = _found(folds, tried, end, last.each, shifts=shifts)
            late += 1
            if last.scores.sum() > best[0].scores.sum():
                best, late = (last, tried), 0
            elif late > 1 or last.scores.sum() < best[0].scores.sum() - WORSE * rows:
                break
        if clear(best[0].scores - here.scores):
            here, chosen = best
    return chosen, here.shift


def clear(gain: Tensor) -> bool:
    """Whether the sum over groups is more than its standard error."""
    return float(gain.sum()) > float(gain.std(correction=0)) * len(gain) ** 0.5


def _found(
    folds: Sequence[Fold],
    penalties: Mapping[str, float],
    end: float,
    start: Sequence[Coefficients] = (),
    shifts: bool = True,
) -> Found:
    each = [fold.train.maximise(penalties, start[k] if start else None, end) for k, fold in enumerate(folds)]
    f = [fold.test.outputs(c) for fold, c in zip(folds, each, strict=True)]
    tried = SHIFTS if shifts and folds[0].train.column.scattered else SHIFTS[:1]
    totals = {shift: _by_group(folds, f, shift) for shift in tried}
    best = max(totals, key=lambda shift: float(totals[shift].sum()))
    return Found(totals[best], each, best)


def _by_group(folds: Sequence[Fold], f: Sequence[Tensor], shift: float) -> Tensor:
    """The log-likelihood of each group that is left out."""
    sums = []
    for fold, mine in zip(folds, f, strict=True):
        number = fold.test.rows.group.unique(return_inverse=True)[1]
        scores = fold.test.log_prob(shifted(mine, torch.tensor(shift))).nan_to_num(-1e6, neginf=-1e6)
        sums.append(scores.new_zeros(int(number.max()) + 1 if len(number) else 0).index_add(0, number, scores))
    return torch.cat(sums)


def _present(problem: Problem, name: str) -> bool:
    if name in SHARED:
        return problem.widths[SHARED.index(name)] > (name == "linear")
    if name == "moved":
        return problem.scatter.shape[-1] > SCATTER
    return math.prod(problem.shapes[name]) > 0 and (name not in ("own", "spread") or problem.shapes[name][0] > 2)
