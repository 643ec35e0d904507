"""What several members say together: each is as probable as the others.

    p(y) = sum_k p_k(y) / K          E[y] = mean of m_k          Var[y] = mean of v_k + mean of (m_k - E[y])^2

The members' f (K of them, each (..., size)) come in, numbers of the mixture go out; of one member, exactly its own.
"""

import math
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from efattn.data import Batch, Groups
from efattn.families import Product
from efattn.models import Conditionals
from efattn.models.scoring import Scores

HALVINGS, CLOSE = 200, 2.0**-48  # at most so many, until ends are so close, relative to their size


def log_prob(terms: Sequence[Conditionals], batch: Batch) -> Scores:
    """Of each target, in double precision: a mixture of what is scored together, so of all its columns at once."""
    found = [term.log_prob(batch) for term in terms]
    values = torch.stack([scores.values.double() for scores in found]).logsumexp(0) - math.log(len(found))
    return found[0]._replace(values=torch.where(found[0].scored, values, 0.0))


def mean_log_prob(terms: Sequence[Conditionals], data: Groups, tokens: int) -> float | None:
    """Per scored target, weighted; None where nothing is scored."""
    total = weight = 0.0
    with torch.no_grad():
        for batch in data.batches(tokens, context=terms[0].context):
            scores = log_prob(terms, batch)
            total += float((scores.values * scores.weight).sum())
            weight += float((scores.weight * scores.scored).sum())
    return total / weight if weight else None


def average(members: Iterable[Tensor]) -> Tensor:
    """Of probabilities or means; one at a time in memory."""
    total, number = torch.zeros((), dtype=torch.float64), 0
    for x in members:
        total, number = total + x.double(), number + 1
    return total / number


def mean(family: Product, members: Sequence[Tensor]) -> Tensor:
    return average(family.mean(f) for f in members)


def variance(family: Product, members: Sequence[Tensor]) -> Tensor:
    """Within the members and between them."""
    middle = mean(family, members)
    return average(family.variance(f) + (family.mean(f) - middle) ** 2 for f in members)


def cdf(family: Product, members: Sequence[Tensor], y: Tensor) -> Tensor:
    return average(family.cdf(f, y) for f in members)


def quantile(family: Product, members: Sequence[Tensor], p: float) -> Tensor:
    """The smallest y with cdf >= p, of each column on its own. It lies between the members' own quantiles; halving
    ends at the exact one of whole numbers, and at rounding of all others."""
    own = torch.stack([family.quantile(f, p) for f in members])
    low, high = own.amin(0), own.amax(0)
    step = torch.tensor([float(part.discrete) for part in family.parts for _ in range(part.columns)])
    for _ in range(HALVINGS):
        if not (high - low > torch.where(step > 0, 0.0, CLOSE * torch.maximum(low.abs(), high.abs()))).any():
            break
        middle = torch.where(step > 0, ((low + high) / 2).floor(), (low + high) / 2)
        enough = cdf(family, members, middle) >= p
        low, high = torch.where(enough, low, middle + step), torch.where(enough, middle, high)
    return high
