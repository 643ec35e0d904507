"""What several models say together.

    p(y) = sum_k s_k p_k(y)          E[y] = sum_k s_k m_k          Var[y] = sum_k s_k (v_k + (m_k - E[y])^2)

The models' f (each (..., size)) come in, numbers of the mixture go out; of one model, exactly its own.
"""

import math
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from efattn.data import Batch, Groups
from efattn.families import Product
from efattn.inference.fitted import Part
from efattn.models import Scores

TURNS, CLOSE = 300, 2.0**-40  # at most so many, until ends are so close, relative to their size


def log_prob(parts: Sequence[Part], batch: Batch) -> Scores:
    """Of each target, in double precision: a mixture of what is scored together, so of all its columns at once."""
    scores = [part.log_prob(batch) for part in parts]
    if len(parts) == 1:
        return scores[0]._replace(values=scores[0].values.double())
    logs = [math.log(part.share) if part.share else -math.inf for part in parts]
    values = torch.stack([x.values.double() + log for x, log in zip(scores, logs, strict=True)]).logsumexp(0)
    return scores[0]._replace(values=torch.where(scores[0].scored, values, 0.0))


@torch.no_grad()
def log_probs(parts: Sequence[Part], data: Groups, tokens: int) -> tuple[Tensor, Tensor]:
    """Of all scored targets, and their weights."""
    scores = [log_prob(parts, batch) for batch in data.batches(tokens, context=parts[0].model.context)]
    values = [one.values[one.scored] for one in scores]
    return torch.cat(values).double(), torch.cat([one.weight[one.scored] for one in scores]).double()


def mean_log_prob(parts: Sequence[Part], data: Groups, tokens: int) -> float | None:
    """Per scored target, weighted; None where nothing is scored."""
    values, weight = log_probs(parts, data, tokens)
    return float(values @ weight / weight.sum()) if float(weight.sum()) else None


def average(members: Iterable[Tensor], parts: Sequence[float]) -> Tensor:
    """Of probabilities or means; one at a time in memory."""
    total = torch.zeros((), dtype=torch.float64)
    for x, part in zip(members, parts, strict=True):
        total = total + x.double() * part
    return total


def mean(family: Product, members: Sequence[Tensor], parts: Sequence[float]) -> Tensor:
    return average((family.mean(f) for f in members), parts)


def variance(family: Product, members: Sequence[Tensor], parts: Sequence[float]) -> Tensor:
    """Within the members and between them."""
    middle = mean(family, members, parts)
    return average((family.variance(f) + (family.mean(f) - middle) ** 2 for f in members), parts)


def cdf(family: Product, members: Sequence[Tensor], parts: Sequence[float], y: Tensor) -> Tensor:
    return average((family.cdf(f, y) for f in members), parts)


def quantile(family: Product, members: Sequence[Tensor], parts: Sequence[float], p: float) -> Tensor:
    """The smallest y with cdf >= p, of each column on its own: exact of whole numbers, to rounding of others. It lies
    between the members' own quantiles; from there on, cdf(low) < p <= cdf(high)."""
    own = torch.stack([family.quantile(f, p) for f in members])
    low, high = own.amin(0), own.amax(0)
    if len(members) == 1:
        return high
    step = torch.tensor([float(part.discrete) for part in family.parts for _ in range(part.columns)])
    below, above = cdf(family, members, parts, low) - p, cdf(family, members, parts, high) - p
    last = torch.zeros_like(low)
    for turn in range(TURNS):
        close = torch.where(step > 0, 0.0, CLOSE * torch.maximum(low.abs(), high.abs()))
        apart = high - low > close
        if not apart.any():
            break
        y = (low + high) / 2 if turn % 3 == 2 else _crossing(low, high, below, above, close)
        y = torch.where(step > 0, ((low + high) / 2).floor(), y)
        excess = cdf(family, members, parts, y) - p
        side = torch.where(excess >= 0, 1.0, -1.0)
        low, high = torch.where(apart & (side < 0), y + step, low), torch.where(apart & (side > 0), y, high)
        kept = torch.where(side == last, 0.5, 1.0)  # an end that stays is drawn in
        below, above = torch.where(side < 0, excess, below * kept), torch.where(side > 0, excess, above * kept)
        last = side
    return high


def _crossing(low: Tensor, high: Tensor, below: Tensor, above: Tensor, close: Tensor) -> Tensor:
    """Where the straight line from (low, below) to (high, above) is 0; a little inside of both ends."""
    middle, width = (low + high) / 2, high - low
    y = high - above * width / (above - below)
    y = torch.minimum(torch.maximum(y, low + close / 2), high - close / 2)
    return torch.where(y.isfinite(), y, middle)
