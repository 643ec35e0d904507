"""From a mean and a variance to the probabilities of ordered levels, as they turned out where both were predicted.

    P(y <= k) = sigmoid((c_k - c) w^p - exp(b) u w^q),     u = (mean - centre) / scale,   w = scale / standard deviation

Cut-points and slope are those under which groups that the moments were predicted without are most likely; each item has
its own, drawn to those of all. How strongly, and whether it is done at all, is decided by groups left out once more:
moments of rows that a model was fitted to say too little about how far off it is.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import logsigmoid, pad

from efattn.families import Family

SCALES = (0.05, 0.1, 0.2, 0.4, 0.8)  # of items' departures from all, in units of log odds
LOGISTIC = 1.7  # standard deviations of a normal law in one of the logistic: a slope of 1 is a normal law's
FOLDS, ROWS = 3, 10_000  # ROWS: that decide how strongly
SLOPE, POWERS = 1.0, 4.0  # what log slope and powers are drawn together by: one over a variance
STEPS, HALVES, STILL, FARTHEST = 30, 8, 1e-7, 2.0  # STILL: nats a row
FEWEST = 5  # rows for each number that all share
LEAST = 1e-9  # between two cut-points


class Predicted(NamedTuple):
    """Rows whose group the moments were predicted without: y, mean, variance, item and group (row,)."""

    y: Tensor
    mean: Tensor
    variance: Tensor
    item: Tensor
    group: Tensor

    def some(self, rows: Tensor) -> "Predicted":
        return Predicted(*(x[rows] for x in self))

    @classmethod
    def joined(cls, several: Sequence["Predicted"]) -> "Predicted":
        return cls(*(torch.cat(x) for x in zip(*several, strict=True)))


class Levels(NamedTuple):
    """units (2,): centre and scale of the moments, a scale of 0 where nothing was learnt; shared (cuts + 3,): the
    middle cut-point c, b, log distances of the others, p, q; own (items + 1, cuts + 1): what is added to all but p and
    q, the last that of an item never seen."""

    units: Tensor
    shared: Tensor
    own: Tensor

    @classmethod
    def empty(cls, cuts: int, items: int) -> "Levels":
        sizes = ((2,), (cuts + 3,), (items + 1, cuts + 1))
        return cls(*(torch.zeros(size, dtype=torch.float64) for size in sizes))

    @property
    def usable(self) -> bool:
        return bool(self.units[1] > 0)

    def outputs(self, family: Family, mean: Tensor, variance: Tensor, item: Tensor) -> Tensor:
        """f (..., size)"""
        return family.from_margins(_margins(self, *_features(self.units, mean, variance), item)[0])


def learnt(family: Family, rows: Predicted, items: int, start: Tensor) -> Levels:
    """Empty where the family's own way with moments (`from_moments`, from its marginal fit) is as good."""
    cuts, empty = family.cut_points, Levels.empty(family.cut_points, items)
    if len(rows.y) < FEWEST * (cuts + 3):
        return empty
    scale = float(rows.variance.log().mean().exp().sqrt())
    units = torch.tensor([float(rows.mean.mean()), scale], dtype=torch.float64)
    fold = _folds(rows.group)
    some = fold >= 0
    tried = [0.0, *SCALES] if items > 1 else [0.0]
    scores = [0.0] * len(tried)
    plain = family.log_prob(family.from_moments(rows.mean[some], rows.variance[some], start), rows.y[some])
    for k in range(int(fold.max()) + 1):
        known, left = rows.some(some & (fold != k)), rows.some(fold == k)
        at = _shared(family, known, empty._replace(units=units))
        for number, size in enumerate(tried):
            at = _own(family, known, at, size) if size else at
            scores[number] += float(family.log_prob(_outputs(family, at, left), left.y).sum())
            if number and scores[number] < scores[number - 1] and k == 0:
                del tried[number + 1 :]
                break
    best = int(np.argmax(scores[: len(tried)]))
    if not scores[best] > float(plain.sum()):
        return empty
    found = _shared(family, rows, empty._replace(units=units))
    return _own(family, rows, found, tried[best]) if tried[best] else found


def _outputs(family: Family, at: Levels, rows: Predicted) -> Tensor:
    return at.outputs(family, rows.mean, rows.variance, rows.item)


def _folds(group: Tensor) -> Tensor:
    """(row,): in which fold each is, by group; -1 of what is not needed. Of one group, by row."""
    _, number = group.unique(return_inverse=True)
    if int(number.max()) + 1 < FOLDS:
        number = torch.arange(len(group))
    order = torch.as_tensor(np.random.default_rng(0).permutation(int(number.max()) + 1))
    place = order[number]
    used = place < max(len(order) * ROWS / len(group), FOLDS)
    return torch.where(used, place % FOLDS, -1)


def _features(units: Tensor, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
    """u and log w."""
    return LOGISTIC * (mean.double() - units[0]) / units[1], units[1].log() - 0.5 * variance.double().log()


def _margins(at: Levels, u: Tensor, w: Tensor, item: Tensor) -> tuple[Tensor, Tensor]:
    """(..., cut), and their derivatives (..., cut, number)."""
    own = at.own[item]
    cuts = own.shape[-1] - 1
    theta = at.shared[:-2] + own
    p, q = at.shared[-2:]
    gaps = theta[..., 2:].exp()
    middle = (cuts - 1) // 2
    up = torch.ones(cuts, cuts - 1, dtype=gaps.dtype).tril(-1)
    turn = up - up[middle]  # (cut, gap)
    cut = (theta[..., :1] + gaps @ turn.T) * (p * w).exp()[..., None]
    shift = (theta[..., 1] + q * w).exp() * u
    wide = (p * w).exp()[..., None, None]
    columns = (
        wide.expand(*cut.shape, 1),
        -shift[..., None, None].expand(*cut.shape, 1),
        turn * gaps[..., None, :] * wide,
        (cut * w[..., None])[..., None],
        -(shift * w)[..., None, None].expand(*cut.shape, 1),
    )
    return cut - shift[..., None], torch.cat(columns, -1)


class _Rows(NamedTuple):
    """u, log w, level, item and weight (row,)."""

    u: Tensor
    w: Tensor
    level: Tensor
    item: Tensor
    weight: Tensor

    @classmethod
    def of(cls, family: Family, rows: Predicted, at: Levels) -> "_Rows":
        """With half a row of each level, at the centre, so that none is impossible."""
        u, w = _features(at.units, rows.mean, rows.variance)
        more = family.cut_points + 1
        level = torch.cat([(rows.y - family.support.bounds[0]).long(), torch.arange(more)])  # type: ignore[attr-defined]
        item = pad(rows.item, (0, more), value=len(at.own) - 1)
        return cls(pad(u, (0, more)), pad(w, (0, more)), level, item, pad(torch.ones_like(u), (0, more), value=0.5))

    def loss(self, at: Levels) -> Tensor:
        """(row,)"""
        logs = _log_levels(_margins(at, self.u, self.w, self.item)[0])
        return -self.weight * logs.gather(1, self.level[:, None])[:, 0]

    def slopes(self, at: Levels) -> tuple[Tensor, Tensor]:
        """Of the loss, (row, number), and what is expected of its second derivatives, (row, number, number)."""
        margins, by = _margins(at, self.u, self.w, self.item)
        chance = _log_levels(margins).exp().clamp_min(1e-300)
        density = margins.sigmoid() * (-margins).sigmoid()
        here = torch.nn.functional.one_hot(self.level, chance.shape[1]) / chance
        first = -density * (here[:, :-1] - here[:, 1:]) * self.weight[:, None]
        second = torch.diag_embed(density**2 * (1 / chance[:, :-1] + 1 / chance[:, 1:]))
        beside = -density[:, :-1] * density[:, 1:] / chance[:, 1:-1]
        second = second + torch.diag_embed(beside, 1) + torch.diag_embed(beside, -1)
        curve = by.mT @ (second * self.weight[:, None, None]) @ by
        return (first[:, None] @ by)[:, 0], curve


def _log_levels(margins: Tensor) -> Tensor:
    inner = (-(-margins.diff(dim=-1).clamp_min(LEAST)).expm1()).log()
    return pad(logsigmoid(margins), (0, 1)) + pad(logsigmoid(-margins), (1, 0)) + pad(inner, (1, 1))


def _start(rows: _Rows, at: Levels) -> Levels:
    """Cut-points of all rows together, a slope of 1, every power 1."""
    cuts = len(at.shared) - 3
    seen = torch.zeros(cuts + 1, dtype=torch.float64).index_add(0, rows.level, rows.weight).cumsum(0)
    cut = (seen[:-1] / seen[-1]).logit()
    shared = torch.cat([cut[(cuts - 1) // 2].reshape(1), cut.new_zeros(1), cut.diff().log(), cut.new_ones(2)])
    return at._replace(shared=shared)


def _shared(family: Family, predicted: Predicted, at: Levels) -> Levels:
    """The numbers that all items share, where none has its own. Slope and powers are drawn to 1, which a normal law
    has."""
    rows = _Rows.of(family, predicted, at)
    at = _start(rows, at)
    aim, weight = at.shared, torch.full_like(at.shared, LEAST)
    weight[1], weight[-2:] = SLOPE, POWERS

    def loss(x: Tensor) -> float:
        return float(rows.loss(at._replace(shared=x)).sum() + (weight / 2 * (x - aim) ** 2).sum())

    def step(x: Tensor) -> Tensor:
        first, second = rows.slopes(at._replace(shared=x))
        return torch.linalg.solve(second.sum(0) + weight.diag(), first.sum(0) + weight * (x - aim))

    return at._replace(shared=_descended(loss, step, at.shared, len(predicted.y)))


def _own(family: Family, predicted: Predicted, at: Levels, size: float) -> Levels:
    """What items have of their own, about that large."""
    rows, (items, numbers), weight = _Rows.of(family, predicted, at), at.own.shape, 1 / size**2

    def loss(x: Tensor) -> float:
        return float(rows.loss(at._replace(own=x)).sum() + weight / 2 * (x**2).sum())

    def step(x: Tensor) -> Tensor:
        first, second = rows.slopes(at._replace(own=x))
        slope = (weight * x).index_add(0, rows.item, first[:, :numbers])
        curve = (weight * torch.eye(numbers, dtype=x.dtype)).repeat(items, 1, 1)
        curve = curve.index_add(0, rows.item, second[:, :numbers, :numbers])
        slope[-1] = 0.0  # an item never seen is as all are
        return torch.linalg.solve(curve, slope)

    return at._replace(own=_descended(loss, step, at.own, len(predicted.y)))


def _descended(loss: Callable[[Tensor], float], step: Callable[[Tensor], Tensor], x: Tensor, rows: int) -> Tensor:
    """Newton's steps by expected curvature, halved until they help."""
    value = loss(x)
    for _ in range(STEPS):
        move = step(x).clamp(-FARTHEST, FARTHEST)
        there, new = x, value
        for half in range(HALVES):
            there = x - move / 2**half
            new = loss(there)
            if new < value:
                break
        if not new < value:
            break
        gained, x, value = value - new, there, new
        if gained < STILL * rows:
            break
    return x
