"""The coefficients of a linear model of one column, by penalised maximum likelihood.

    f_i = start + own[x_i] + shared . s_i + others[x_i] . cells_i + by_item[x_i] . t_i       its first output
    f_i = start + spread[x_i] + scatter . h_i                                                 the others

Every block of coefficients has a ridge penalty of its own. Those that are not fixed are chosen one after the other,
from strong to weak, by the log-likelihood of groups that were left out.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from efattn.families import Family
from efattn.simple.linear_features import Column, Known
from efattn.simple.newton import newton

FIXED = {"own": 0.3, "level": 0.3, "linear": 0.1, "spread": 3.0}
CHOSEN = ("others", "extras", "by_item", "bent", "scatter")  # in the order in which they are chosen
PATH = (1000.0, 300.0, 100.0, 30.0, 10.0, 3.0, 1.0, 0.3)
WORSE = 0.002  # nats a row, after which no weaker penalty is tried
ROUNDS = 60  # of L-BFGS
MOST, WORK = 300, 2e8  # coefficients, and rows times their square, for Newton's steps
BLOCKS = ("own", "shared", "others", "by_item", "spread", "scatter")


class Rows(NamedTuple):
    """Scored rows of one column: item, log exposure, y, weight, group (row,), and what is known of them."""

    item: Tensor
    exposure: Tensor
    y: Tensor
    weight: Tensor
    group: Tensor
    known: Known

    def at(self, index: Tensor) -> "Rows":
        return Rows(*(x[index] for x in self[:5]), Known(*(x[index] for x in self.known)))


class Coefficients(NamedTuple):
    own: Tensor
    shared: Tensor
    others: Tensor
    by_item: Tensor
    spread: Tensor
    scatter: Tensor


def shapes(column: Column, items: int, known: Sequence[int]) -> dict[str, tuple[int, ...]]:
    """Of the coefficients. known: how many numbers there are of level, linear, bent, extras, cells, scatter."""
    level, linear, bent, extras, cells, scatter = known
    more = column.family.size - 1
    shared, by_item = level + linear + bent + extras, linear - 1 + level
    told = scatter if column.scattered else 0
    return {
        "own": (items + 1,),
        "shared": (shared,),
        "others": (items + 1, cells),
        "by_item": (items + 1, by_item if level else 0),
        "spread": (items + 1, more),
        "scatter": (told, more),
    }


class Problem:
    """One column's rows, and what the coefficients are drawn to."""

    def __init__(self, column: Column, start: Tensor, rows: Rows, items: int) -> None:
        self.family: Family = column.family
        self.start, self.rows = start, rows
        self._design: list[tuple[Tensor, Tensor]] | None = None
        known = rows.known
        self.shared = torch.cat([known.level, known.linear, known.bent, known.extras], -1)
        self.by_item = known.by_item
        self.scatter = known.scatter[:, column.column] if column.scattered else known.scatter[:, 0, :0]
        widths = [x.shape[-1] for x in known]
        self.widths = widths[:4]
        self.shapes = shapes(column, items, widths)
        self.aim = torch.zeros(self.shapes["shared"], dtype=torch.float64)
        if widths[0]:
            self.aim[column.column] = 1.0  # what a mixed model says, as it says it

    def start_values(self) -> Coefficients:
        zero = {name: torch.zeros(shape, dtype=torch.float64) for name, shape in self.shapes.items()}
        return Coefficients(**(zero | {"shared": self.aim.clone()}))

    def weights(self, penalties: Mapping[str, float]) -> list[Tensor]:
        """A penalty per coefficient, or per block."""
        each = [penalties[name] for name in ("level", "linear", "bent", "extras")]
        shared = torch.cat([torch.full((n,), w, dtype=torch.float64) for n, w in zip(self.widths, each, strict=True)])
        names = ("own", "others", "by_item", "spread", "scatter")
        own, others, by_item, spread, scatter = (torch.tensor(penalties[n], dtype=torch.float64) for n in names)
        return [own, shared, others, by_item, spread, scatter]

    def log_likelihood(self, c: Coefficients) -> Tensor:
        known = self.rows.known
        f = outputs(self.start, c, self.rows.item, self.shared, known.cells, self.by_item, self.scatter)
        return self.row_log_likelihood(f + (self.offset() - self.start))

    def row_log_likelihood(self, f: Tensor) -> Tensor:
        return self.family.log_prob(f, self.rows.y) * self.rows.weight

    def offset(self) -> Tensor:
        """f (row, size) without any coefficient."""
        f = self.start.expand(len(self.rows.y), -1).clone()
        if self.family.exposures:
            f[:, list(self.family.exposures)] += self.rows.exposure[:, None]
        return f

    def aims(self) -> Tensor:
        return pack(self.start_values())

    def design(self) -> list[tuple[Tensor, Tensor]]:
        """For each output, what its coefficients are multiplied with (row, any), and where these stand."""
        if self._design is None:
            index = unpack(torch.arange(len(self.aims())), self.shapes)
            own = torch.nn.functional.one_hot(self.rows.item, len(index.own)).double()
            maps = [(own[..., None] * x[:, None]).flatten(1) for x in (self.rows.known.cells, self.by_item)]
            first = torch.cat([own, self.shared, *maps], 1)
            places = [torch.cat([x.reshape(-1) for x in index[:4]])]
            more = torch.cat([own, self.scatter], 1)
            places += [torch.cat([index.spread[:, k], index.scatter[:, k]]) for k in range(len(self.start) - 1)]
            self._design = [(first if k == 0 else more, place) for k, place in enumerate(places)]
        return self._design

    def maximise(
        self, penalties: Mapping[str, float], start: Coefficients | None = None, end: float = float("inf")
    ) -> Coefficients:
        """The best coefficients: by Newton's steps where they are few, else by L-BFGS, until `end` at the latest."""
        first = start or self.start_values()
        weight = torch.cat([w.expand(self.shapes[n]).reshape(-1) for n, w in zip(BLOCKS, self.weights(penalties), strict=True)])
        if self.small:
            found = newton(self, weight, pack(first), end)
        else:
            found = torch.as_tensor(self._descend(weight, pack(first).numpy(), end))
        return unpack(found, self.shapes)

    @property
    def small(self) -> bool:
        count = sum(math.prod(shape) for shape in self.shapes.values())
        return count <= MOST and len(self.rows.y) * count**2 <= WORK

    def _descend(self, weight: Tensor, first: np.ndarray, end: float) -> np.ndarray:
        from scipy.optimize import minimize

        count, aim = max(float(self.rows.weight.sum()), 1.0), self.aims()
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
            if time.monotonic() > end:
                raise _Late
            return value, gradient.numpy()

        try:
            minimize(
                objective, best[1], jac=True, method="L-BFGS-B", options={"maxiter": ROUNDS, "ftol": 1e-7, "gtol": 1e-5}
            )
        except _Late:
            pass
        return best[1]


class _Late(Exception):
    pass


def outputs(
    start: Tensor, c: Coefficients, item: Tensor, shared: Tensor, cells: Tensor, by_item: Tensor, scatter: Tensor
) -> Tensor:
    """f (..., size)"""
    first = start[0] + c.own[item] + shared @ c.shared
    if cells.shape[-1]:
        first = first + (c.others[item] * cells).sum(-1)
    if by_item.shape[-1]:
        first = first + (c.by_item[item] * by_item).sum(-1)
    rest = start[1:] + c.spread[item]
    if len(c.scatter):
        rest = rest + scatter @ c.scatter
    return torch.cat([first[..., None], rest], -1)


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
    """Penalties under which groups that were left out are most likely, one block after the other."""
    chosen = FIXED | dict.fromkeys(CHOSEN, PATH[0])
    blocks = [name for name in CHOSEN if _present(folds[0].train, name)]
    at: list[Coefficients | None] = [None] * len(folds)
    rows = sum(len(fold.test.rows.y) for fold in folds)

    def score(penalties: Mapping[str, float], start: list[Coefficients | None]) -> tuple[float, list[Coefficients]]:
        found = [fold.train.maximise(penalties, c, end) for fold, c in zip(folds, start, strict=True)]
        each = [float(fold.test.log_likelihood(c).sum()) for fold, c in zip(folds, found, strict=True)]
        return sum(each), found

    best, here = score(chosen, at)
    for number, name in enumerate(blocks):
        start, late = list[Coefficients | None](here), 0
        for step, penalty in enumerate(PATH[1:]):
            tick(number * len(PATH) + step, len(blocks) * len(PATH))
            if time.monotonic() > end:
                return chosen
            total, found = score(chosen | {name: penalty}, start)
            start, late = list(found), late + 1
            if total > best:
                best, here, chosen, late = total, found, chosen | {name: penalty}, 0
            elif late > 1 or total < best - WORSE * rows:
                break
    return chosen


def _present(problem: Problem, name: str) -> bool:
    if name in ("bent", "extras"):
        return problem.widths[("level", "linear", "bent", "extras").index(name)] > 0
    return all(problem.shapes[name])
