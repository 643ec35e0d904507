"""The mixed model of a group's residuals: how rows of a group go together, and what the others say about each.

    r = u + e,   Cov(u) = intercept + same item + slopes t t' + decay in time (of all, of the same item) + decay in
                          the attributes,       Cov(e) = noise * q

    others:  E[r_i | r_-i] = - sum_(j != i) A_ij r_j / A_ii,    Var = 1 / A_ii,       A = (Cov u + Cov e)^-1
    past:    E[r_i | r_<i] = - sum_(j < i)  M_ij r_j / M_ii,    Var = 1 / M_ii^2,     M = the inverse Cholesky factor

Random intercepts and slopes, autoregression and smooth curves are special cases. The variances and lengths are those
under which training groups are most likely. q: how noisy each row is beside the others, from the family.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from efattn.network import Context
from efattn.simple.conditioning import misfit

NONE = -30.0  # the logarithm of a variance that is not there
UNSEEN = 1e8  # the noise of a row without a value
LONG, CHUNK = 800, 2**21  # rows of a group, beyond which only its level counts; numbers of a matrix at a time
FIT_ROWS, FIT_WORK = 300, 2e7  # rows of a group, and cubes of them over all groups, that variances are fitted to
ROUNDS, PRIOR = 30, 0.05  # PRIOR: how firmly logarithms stay near their start, in nats
LITTLE = 1e-6  # of a likelihood, which is no gain
SLOPES = 6  # attributes, up to which each has a variance of its own
NOISE, LEVEL, ITEM, TIME, REACH, ITEM_TIME, ITEM_REACH, SMOOTH, SMOOTH_REACH, SLOPE = range(10)


class Rows(NamedTuple):
    """Rows of a batch (batch, row). time: in typical steps, None without an order; item: None where none repeats; x:
    (batch, row, a) what slopes are of and varies within groups, standardised; clocks: how many of these, the last, say
    where in its group a row stands, and are no places in which rows are near or far."""

    exists: Tensor
    item: Tensor | None
    time: Tensor | None
    x: Tensor
    clocks: int = 0

    @property
    def places(self) -> Tensor:
        return self.x[..., : self.x.shape[-1] - self.clocks]

    def part(self, chosen: slice, rows: slice = slice(None)) -> "Rows":
        tensors = (None if field is None else field[chosen, rows] for field in self[:-1])
        return Rows(*tensors, clocks=self.clocks)  # type: ignore[arg-type, misc]


class Seen(NamedTuple):
    """Residuals and their noise (batch, row), and whether they are there."""

    rest: Tensor
    noise: Tensor
    seen: Tensor


def size(attributes: int, clocks: int = 0) -> int:
    """How many parameters there are; clocks: how many of the attributes say where in its group a row stands."""
    return SLOPE + (attributes if attributes - clocks <= SLOPES else 1)


class Pairs(NamedTuple):
    """What pairs of rows (batch, row, row) have to do with each other, whatever the parameters: whether both are there,
    whether they have the same item, how far apart they are in time and in attributes."""

    both: Tensor
    same: Tensor | None
    gap: Tensor | None
    far: Tensor | None

    @classmethod
    def of(cls, rows: Rows) -> "Pairs":
        item, time, x, far = rows.item, rows.time, rows.places, None
        if x.shape[-1]:
            squares = (x**2).sum(-1)
            far = (squares[:, :, None] + squares[:, None] - 2 * x @ x.mT).clamp_min(1e-12).sqrt()
        return cls(
            (rows.exists[:, :, None] & rows.exists[:, None]).double(),
            None if item is None else (item[:, :, None] == item[:, None]).double(),
            None if time is None else (time[:, :, None] - time[:, None]).abs(),
            far,
        )


def covariance(theta: Tensor, rows: Rows, pairs: Pairs | None = None) -> Tensor:
    """(batch, row, row)"""
    both, same, gap, far = pairs or Pairs.of(rows)
    level, slopes = theta.exp(), theta[SLOPE:].exp()
    total = level[LEVEL].expand(both.shape)
    if same is not None:
        total = total + level[ITEM] * same
    if gap is not None:
        total = total + level[TIME] * (gap * -(1 / level[REACH])).exp()
        if same is not None:
            total = total + level[ITEM_TIME] * (gap * -(1 / level[ITEM_REACH])).exp() * same
    if rows.x.shape[-1]:
        scaled = rows.x * slopes.sqrt()
        total = total + scaled @ scaled.mT
    if far is not None:
        total = total + level[SMOOTH] * (far * -(1 / level[SMOOTH_REACH])).exp()
    return total * both


def _whole(theta: Tensor, rows: Rows, given: Seen, pairs: Pairs | None = None) -> Tensor:
    noise = torch.where(given.seen, given.noise * theta[NOISE].exp(), UNSEEN)
    return covariance(theta, rows, pairs) + torch.diag_embed(noise)


def _factor(theta: Tensor, rows: Rows, given: Seen) -> Tensor:
    return torch.linalg.cholesky_ex(_whole(theta, rows, given))[0]


def predict(theta: Tensor, rows: Rows, given: Seen, context: Context) -> tuple[Tensor, Tensor]:
    """Mean and variance (batch, row) of u, the part of a residual that is no noise, given the others or the past."""
    n = rows.exists.shape[1]
    if n > LONG or bool((theta[LEVEL + 1 :] <= NONE).all()):
        return _level(theta, given, context)
    parts = []
    step = max(1, CHUNK // max(n * n, 1))
    for first in range(0, len(rows.exists), step):
        chosen = slice(first, first + step)
        here, mine = rows.part(chosen), Seen(*(x[chosen] for x in given))
        factor = _factor(theta, here, mine)
        eye = torch.eye(n, dtype=factor.dtype).expand_as(factor)
        inverse = torch.linalg.solve_triangular(factor, eye, upper=False)
        a = inverse if context == "past" else inverse.mT @ inverse
        diagonal = a.diagonal(dim1=1, dim2=2)
        rest = torch.where(mine.seen, mine.rest, 0.0)
        mean = -((a - torch.diag_embed(diagonal)) @ rest[..., None])[..., 0] / diagonal
        own = torch.where(mine.seen, mine.noise * theta[NOISE].exp(), UNSEEN)
        variance = (diagonal**-2 if context == "past" else 1 / diagonal) - own
        parts.append((mean, variance.clamp_min(0.0)))
    means, variances = zip(*parts, strict=True)
    return torch.cat(means), torch.cat(variances)


def _level(theta: Tensor, given: Seen, context: Context) -> tuple[Tensor, Tensor]:
    """The same where the level is all there is, and of long groups."""
    weight = torch.where(given.seen, 1 / (given.noise * theta[NOISE].exp()), 0.0)
    value = weight * torch.where(given.seen, given.rest, 0.0)

    def without(x: Tensor) -> Tensor:
        zero = torch.zeros_like(x[:, :1])
        before = torch.cat([zero, x[:, :-1].cumsum(1)], 1)
        if context == "past":
            return before
        return before + torch.cat([x[:, 1:].flip(1).cumsum(1).flip(1), zero], 1)

    variance = 1 / (without(weight) + (-theta[LEVEL]).exp())
    return variance * without(value), variance


def start(rows: Sequence[Rows], size: int) -> tuple[Tensor, Tensor]:
    """Where the search begins, and which parameters take part."""
    theta = torch.full((size,), NONE, dtype=torch.float64)
    theta[NOISE], theta[LEVEL] = np.log(0.7), np.log(0.2)
    free = [NOISE, LEVEL]
    if any(one.item is not None for one in rows):
        free += [ITEM]
    if any(one.time is not None for one in rows):
        free += [TIME, REACH]
        if ITEM in free:
            free += [ITEM_TIME, ITEM_REACH]
    if any(bool(one.places.any()) for one in rows):
        free += [SMOOTH, SMOOTH_REACH]
    if any(bool(one.x.any()) for one in rows):
        free += [*range(SLOPE, len(theta))]
    for one in free[2:]:
        theta[one] = np.log({REACH: 3.0, ITEM_REACH: 3.0, SMOOTH_REACH: 1.0}.get(one, 0.03))
    return theta, torch.tensor(free)


def fitted(batches: Sequence[tuple[Rows, Seen]], size: int, near: Tensor | None = None) -> Tensor:
    """The most likely parameters, from as many groups as are looked at in a moment. near: where to look first."""
    from scipy.optimize import minimize

    chosen = _sample(batches)
    first, free = start([rows for rows, _ in chosen], size)
    if not chosen or not any(bool((mine.seen.sum(1) > 1).any()) for _, mine in chosen):
        return first
    known = [(rows, mine, Pairs.of(rows), torch.where(mine.seen, mine.rest, 0.0)) for rows, mine in chosen]

    def objective(point: np.ndarray) -> tuple[float, np.ndarray]:
        moved = torch.tensor(point, requires_grad=True)
        with torch.enable_grad():
            theta = first.clone().index_copy(0, free, moved)
            loss = PRIOR * ((moved - first[free]) ** 2).sum()
            try:
                parts = [misfit(_whole(theta, rows, mine, pairs), rest) for rows, mine, pairs, rest in known]
            except torch.linalg.LinAlgError:
                return 1e30, np.zeros_like(point)
            loss = torch.stack([loss, *parts]).sum()
            (gradient,) = torch.autograd.grad(loss, moved)
        if not bool(loss.isfinite() & gradient.isfinite().all()):
            return 1e30, np.zeros_like(point)
        return float(loss.detach()), gradient.numpy()

    limits = [(-9.0, 5.0)] * len(free)
    begin = first if near is None else near
    found = minimize(
        objective,
        begin[free].numpy(),
        jac=True,
        bounds=limits,
        method="L-BFGS-B",
        options={"maxiter": ROUNDS, "ftol": LITTLE},
    )
    return first.index_copy(0, free, torch.tensor(found.x))


def equations(theta: Tensor, rows: Rows, given: Seen, design: Tensor) -> tuple[Tensor, Tensor]:
    """X' V^-1 X and X' V^-1 r of generalised least squares: design (batch, row, any). Long groups in pieces."""
    size = design.shape[-1]
    matrix, vector = torch.zeros(size, size, dtype=torch.float64), torch.zeros(size, dtype=torch.float64)
    n = rows.exists.shape[1]
    step = max(1, CHUNK // max(min(n, FIT_ROWS) * (min(n, FIT_ROWS) + size), 1))
    for first in range(0, n, FIT_ROWS):
        for group in range(0, len(rows.exists), step):
            chosen, cut = slice(group, group + step), slice(first, first + FIT_ROWS)
            mine = Seen(*(x[chosen, cut] for x in given))
            factor = _factor(theta, rows.part(chosen, cut), mine)
            both = torch.cat([design[chosen, cut], mine.rest[..., None]], -1) * mine.seen[..., None]
            white = torch.linalg.solve_triangular(factor, both, upper=False).flatten(0, 1)
            matrix += white[:, :-1].T @ white[:, :-1]
            vector += white[:, :-1].T @ white[:, -1]
    return matrix, vector


def _sample(batches: Sequence[tuple[Rows, Seen]]) -> list[tuple[Rows, Seen]]:
    """Pieces of at most so many rows, and as many groups as FIT_WORK allows, spread over all batches."""
    each = [len(rows.exists) * min(rows.exists.shape[1], FIT_ROWS) ** 3 for rows, _ in batches]
    stride = max(1, int(np.ceil(sum(each) / FIT_WORK)))
    cut, kept = slice(0, FIT_ROWS), slice(0, None, stride)
    return [
        (rows.part(kept, cut), Seen(*(x[kept, cut] for x in mine)))
        for rows, mine in batches
        if rows.exists.shape[1] > 1
    ]
