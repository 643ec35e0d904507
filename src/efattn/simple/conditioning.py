"""Conditionals of a Gaussian vector, each entry given what it may see of the others, never itself.

    others   E[x_i | x_-i] = mu_i - sum_{j != i} P_ij (x_j - mu_j) / P_ii,   variance 1 / P_ii,   P = Sigma_seen^-1
    past     from the rows of the Cholesky factor of Sigma_seen, which condition on what stands before

    scale    variance * (a + Q) / (a + n),     Q = r' Sigma^-1 r of the n entries that it sees

The last is for groups that are calm or wild as a whole, with `a` degrees of freedom: a group's scale is seen from the
context alone.
"""

from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from efattn.data import Groups
from efattn.network import Context

NONE = 1e9
ROUNDED = (1e-12, 1e-10, 1e-8, 1e-6, 1e-4, 1e-2)  # noise, as a share of the variances
TAILS = (100.0, 50.0, 20.0, 10.0, 5.0, 3.0)


class Seen(NamedTuple):
    """Of each target (batch, target): how far its mean is shifted, its variance, Q and n of what it sees."""

    shift: Tensor
    variance: Tensor
    distance: Tensor
    number: Tensor

    def scaled(self, tails: Tensor) -> Tensor:
        """The variance at the group's own scale; tails: a, 0 for one scale of all groups."""
        a = float(tails)
        if a <= 0:
            return self.variance.clamp_min(1e-12)
        factor = (a + self.distance.clamp_min(0)) / (a + self.number)
        return (self.variance * factor).clamp_min(1e-12)


def conditioned(k: Tensor, rest: Tensor, seen: Tensor, targets: int, context: Context) -> Seen:
    """k: (batch, cell, cell); rest: departures from the mean, 0 where not seen; targets: the last cells."""
    both = seen[:, :, None] & seen[:, None]
    factor = _factor(torch.where(both, k, 0.0) + torch.diag_embed((~seen).double()))
    looked = torch.where(seen[:, :, None], k, 0.0)[..., -targets:]  # (batch, context, target)
    prior = k.diagonal(dim1=1, dim2=2)[:, -targets:]
    if context == "past":
        return _past(factor, looked, rest, prior, seen)
    return _others(factor, looked, rest, prior, seen)


def _factor(k: Tensor) -> Tensor:
    """Of Cholesky. What is not positive by rounding, as where attributes lie 1e8 spreads off, gets a little noise;
    where that does not do, cells are taken to be independent."""
    factor, wrong = torch.linalg.cholesky_ex(k)
    for share in ROUNDED:
        if not bool(wrong.any()):
            return factor
        more = torch.where(wrong > 0, share, 0.0)[:, None] * k.diagonal(dim1=1, dim2=2)
        factor, wrong = torch.linalg.cholesky_ex(k + torch.diag_embed(more))
    if not bool(wrong.any()):
        return factor
    return torch.where((wrong > 0)[:, None, None], torch.diag_embed(k.diagonal(dim1=1, dim2=2).abs().sqrt()), factor)


def _past(factor: Tensor, looked: Tensor, rest: Tensor, prior: Tensor, seen: Tensor) -> Seen:
    size, n = looked.shape[1:]
    before = torch.arange(size)[:, None] < torch.arange(size - n, size)  # (context, target)
    z = torch.linalg.solve_triangular(factor, rest[..., None], upper=False)
    a = torch.linalg.solve_triangular(factor, looked, upper=False) * before
    distance, count = (z**2)[..., 0] @ before.double(), seen.double() @ before.double()
    return Seen((a * z).sum(1), prior - (a**2).sum(1), distance, count)


def _others(factor: Tensor, looked: Tensor, rest: Tensor, prior: Tensor, seen: Tensor) -> Seen:
    n = looked.shape[-1]
    inverse = torch.cholesky_inverse(factor)
    own = inverse.diagonal(dim1=1, dim2=2)
    off = inverse - torch.diag_embed(own)
    known = -(off @ rest[..., None])[..., 0] / own
    weights = inverse @ looked
    unknown, falls = (weights * rest[..., None]).sum(1), (weights * looked).sum(1)
    here, total = seen[:, -n:], (rest * (inverse @ rest[..., None])[..., 0]).sum(1, keepdim=True)
    away = (rest - known)[:, -n:] ** 2 * own[:, -n:]
    return Seen(
        torch.where(here, known[:, -n:], unknown),
        torch.where(here, (1 / own)[:, -n:], prior - falls),
        torch.where(here, total - away, total),
        seen.sum(1, keepdim=True) - here.double(),
    )


class _Misfit(torch.autograd.Function):
    """Its gradients are K^-1 and K^-1 r, which take a third of what going back through a Cholesky factor does."""

    @staticmethod
    def forward(ctx: Any, k: Tensor, rest: Tensor) -> Tensor:
        factor, wrong = torch.linalg.cholesky_ex(k)
        if bool(wrong.any()):
            raise torch.linalg.LinAlgError("A covariance is not positive definite.")
        columns = rest.T[None] if len(k) == 1 else rest[..., None]
        white = torch.linalg.solve_triangular(factor, columns, upper=False)
        ctx.save_for_backward(factor, white)
        return (white**2).sum() / 2 + factor.diagonal(dim1=1, dim2=2).log().sum() * (len(rest) / len(k))

    @staticmethod
    def backward(ctx: Any, *gradient: Tensor) -> tuple[Tensor, Tensor]:
        factor, white = ctx.saved_tensors
        solved = torch.linalg.solve_triangular(factor.mT, white, upper=True)  # (matrix, row, group of it)
        change = torch.cholesky_inverse(factor) * (solved.shape[-1] / 2) - solved @ solved.mT / 2
        of_rest = solved[0].T if len(factor) == 1 else solved[..., 0]
        return gradient[0] * change, gradient[0] * of_rest


def misfit(k: Tensor, rest: Tensor) -> Tensor:
    """Minus the log-likelihood of departures (group, row) under N(0, k), less its constant; k (group, row, row), or one
    for all groups. A LinAlgError where a matrix is not positive."""
    return _Misfit.apply(k, rest)


def factored(loadings: Tensor, noise: Tensor, rest: Tensor, seen: Tensor, targets: int, context: Context) -> Seen:
    """The same where Sigma = loadings loadings' + diag noise: loadings (batch, cell, factor), noise (batch, cell)."""
    weight = torch.where(seen, 1 / noise, 0.0)
    pull, square = loadings * (weight * rest)[..., None], weight * rest**2
    eye = torch.eye(loadings.shape[-1], dtype=loadings.dtype)
    l, s, here = loadings[:, -targets:], noise[:, -targets:], seen[:, -targets:]
    if context == "past":
        earlier = slice(None, loadings.shape[1] - targets)
        outer = loadings[..., None] * (loadings * weight[..., None])[..., None, :]
        precision, b, total, count = (
            x[:, earlier].sum(1, keepdim=True) + _before(x[:, -targets:]) for x in (outer, pull, square, seen.double())
        )
        factor = torch.linalg.cholesky(precision + eye)  # (batch, target, factor, factor)
        z = torch.cholesky_solve(b[..., None], factor)[..., 0]
        spread = (torch.cholesky_solve(l[..., None], factor)[..., 0] * l).sum(-1)
        return Seen((l * z).sum(-1), s + spread, total - (b * z).sum(-1), count)
    precision = torch.einsum("bck,bc,bcl->bkl", loadings, weight, loadings) + eye
    factor, b = torch.linalg.cholesky(precision), pull.sum(1)
    z = torch.cholesky_solve(b[..., None], factor)
    mean = (l @ z)[..., 0]
    spread = (torch.cholesky_solve(l.mT, factor) * l.mT).sum(1)
    total = square.sum(1, keepdim=True) - (b * z[..., 0]).sum(1, keepdim=True)
    share = spread / s
    left = 1 - torch.where(here, share, 0.0)
    shift = (mean - torch.where(here, share * rest[:, -targets:], 0.0)) / left
    variance = torch.where(here, s / left, s + spread)
    away = (rest[:, -targets:] - shift) ** 2 / variance
    return Seen(shift, variance, torch.where(here, total - away, total), seen.sum(1, keepdim=True) - here.double())


def _before(x: Tensor) -> Tensor:
    """Sums over what stands before each entry of dimension 1."""
    return torch.cat([torch.zeros_like(x[:, :1]), x[:, :-1].cumsum(1)], 1)


class Scaled(Protocol):
    def get_buffer(self, target: str) -> Tensor: ...

    def judged(self, groups: Groups) -> float: ...


def choose_tails(model: Scaled, check: Groups, most: float = float("inf")) -> None:
    """The degrees of freedom under which groups that were left out are most likely; 0, one scale for all, if none.
    most: what there are of them for a covariance of few groups, which is not known better than that."""
    buffer = model.get_buffer("tails")
    first = most if most < TAILS[0] else 0.0
    buffer.fill_(first)
    found = {first: model.judged(check)}
    for a in (x for x in TAILS if x < most):
        buffer.fill_(a)
        found[a] = model.judged(check)
        if not found[a] > max(score for tried, score in found.items() if tried != a):
            break  # it is as good as it gets, or this family has no use for a variance
    buffer.fill_(max(found, key=lambda a: found[a]))


def told(tails: Tensor) -> float:
    """As an option that can be compared: one scale of all groups is the limit of many degrees of freedom."""
    return float(tails) or NONE
