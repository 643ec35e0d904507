"""The continuous ranked probability score of mixtures: how far a law lies from what happened, in the units of y.

    CRPS(F, y) = integral of (F(x) - 1{x >= y})^2 dx = E|Y - y| - E|Y - Y'| / 2

Of normal laws by the second form, exactly. Of whole numbers the first is a sum over them. Of all others it is an
integral over panels between quantiles of the components, with the nodes of Gauss and Legendre: right to about a
millionth of the spread. Wide ranges of whole numbers are integrated, too, between points half a step up.
"""

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from efattn.inference.laws import Laws

TAIL, NODES = 5.2, 6  # how many standard deviations of a normal law the panels reach; nodes in each
PANELS = 24  # of one component
MOST = 1024  # whole numbers that are summed one by one
SURE = 1e-12  # the probability beyond the sum


def crps(laws: Laws, y: Tensor) -> Tensor:
    """(row,): the smaller, the better. NaN where y is."""
    found = torch.full_like(y, torch.nan)
    there = y.isfinite().nonzero().squeeze(-1)
    if not len(there):
        return found
    laws, y = laws.take(there), y[there]
    if laws.family.squared_loss:
        found[there] = _normal(laws, y)
    elif laws.family.discrete:
        found[there] = _whole(laws, y)
    else:
        found[there] = _integrated(laws, y, laws.cdf)
    return found


def _normal(laws: Laws, y: Tensor) -> Tensor:
    """Of normal components, E|Y - y| and E|Y - Y'| are means of folded normal laws."""
    family, shares = laws.family, laws.shares.unbind(1)
    mean, variance = ([ask(f) for f in laws.outputs] for ask in (family.mean, family.variance))
    score = torch.zeros_like(y)
    for k, share in enumerate(shares):
        score += share * _folded(y - mean[k], variance[k])
        for j in range(k + 1):
            twice = 1.0 if j == k else 2.0
            both = _folded(mean[k] - mean[j], variance[k] + variance[j])
            score -= twice * share * shares[j] * both / 2
    return score


def _folded(mean: Tensor, variance: Tensor) -> Tensor:
    """E|X| of a normal X."""
    sd = variance.sqrt()
    z = mean / sd
    return sd * math.sqrt(2 / math.pi) * (-(z**2) / 2).exp() + mean * torch.erf(z / math.sqrt(2))


def _whole(laws: Laws, y: Tensor) -> Tensor:
    """Between k and k + 1, F is F(k): a sum over k from where F is next to 0 to where it is next to 1."""
    low, high = _ends(laws, SURE)
    inside, found = torch.minimum(torch.maximum(y, low), high), torch.zeros_like(y)
    wide = high - low >= MOST
    narrow, rest = (~wide).nonzero().squeeze(-1), wide.nonzero().squeeze(-1)
    if len(narrow):
        steps = torch.arange(int((high - low)[narrow].max()), dtype=y.dtype)
        k = low[narrow, None] + steps
        f, reached = laws.take(narrow).cdf(k), (k + 1 - inside[narrow, None]).clamp(0, 1)
        score = (1 - reached) * f**2 + reached * (1 - f) ** 2
        found[narrow] = torch.where(k < high[narrow, None], score, 0.0).sum(-1) + (y - inside)[narrow].abs()
    if len(rest):
        some = laws.take(rest)
        found[rest] = _integrated(some, y[rest], lambda x: _between(some, x))
    return found


def _between(laws: Laws, x: Tensor) -> Tensor:
    """F at k for x = k + 1/2, a line in between: what a smooth sum over whole numbers integrates."""
    k = (x - 0.5).floor()
    low, high = laws.cdf(k), laws.cdf(k + 1)
    return low + (x - 0.5 - k) * (high - low)


def _integrated(laws: Laws, y: Tensor, cdf: Callable[[Tensor], Tensor]) -> Tensor:
    """Beyond the last panels F is 0 or 1 to about 1e-7, and its square to 1e-14."""
    edges = _edges(laws)
    inside = torch.minimum(torch.maximum(y, edges[:, 0]), edges[:, -1])
    edges = torch.cat([edges, inside[:, None]], 1).sort(1).values
    t, weight = (torch.from_numpy(x) for x in np.polynomial.legendre.leggauss(NODES))
    half, middle = (edges[:, 1:] - edges[:, :-1]) / 2, (edges[:, 1:] + edges[:, :-1]) / 2  # (row, panel)
    x = middle[..., None] + half[..., None] * t  # (row, panel, node)
    reached = (middle >= inside[:, None]).to(y.dtype)[..., None]
    miss = cdf(x.reshape(len(y), -1)).reshape(x.shape) - reached
    return (miss**2 * weight).sum(-1).mul(half).sum(-1) + (y - inside).abs()


def _edges(laws: Laws) -> Tensor:
    """(row, edge): quantiles of all components, of many alike one of three."""
    levels = torch.special.ndtr(torch.linspace(-TAIL, TAIL, PANELS + 1, dtype=torch.float64))
    every = torch.cat([one.quantiles(levels) for one in laws.components], 1).sort(1).values
    step = -(-len(laws.outputs) // 3)
    return torch.cat([every[:, :-1:step], every[:, -1:]], 1)


def _ends(laws: Laws, p: float) -> tuple[Tensor, Tensor]:
    low, high = (torch.stack([laws.family.quantile(f, q) for f in laws.outputs]) for q in (p, 1 - p))
    return low.amin(0), high.amax(0)
