"""Lists whose items are not all alike: maximal marginal relevance.

    the first      the most probable item
    each next      the x with the largest  (1 - d) p(x) / p(first) - d max_{y on the list} sim(x, y)

among the POOL k most probable. sim is the cosine of the vectors that items are predicted with, 0 where it is negative;
d, the diversity, is from 0 (by probability alone) to 1 (whatever is least like the list so far). Probabilities stay
what they are; only which items are listed, and in which order, changes.
"""

from numbers import Real
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from efattn.errors import DataError, named
from efattn.inference.embeddings import item_vectors
from efattn.inference.fitted import Fitted

POOL = 10  # times as many as are listed
PAIRS = 2**22  # similarities at a time


def check_diversity(diversity: Any) -> None:
    if isinstance(diversity, bool) or not isinstance(diversity, Real) or not 0 <= float(diversity) <= 1:
        raise DataError(f"{named('diversity')} is a number from 0 to 1; found {diversity!r}.", option="diversity")


def directions(fitted: Fitted, member: int | None) -> Tensor:
    """(item, width), of length 1: of the first network, unless another is asked."""
    model = fitted.member(member or 0)
    vectors = item_vectors(model, "centre")
    vectors = item_vectors(model, "context") if vectors is None else vectors
    if vectors is None:
        said = f"This model has no item vectors to tell which items are alike: leave {named('diversity')} out."
        raise DataError(said, option="diversity")
    return F.normalize(vectors.cpu().double(), dim=1)


def diverse(items: Tensor, p: Tensor, towards: Tensor, k: int, diversity: float) -> tuple[Tensor, Tensor]:
    """(group, k) of items, p (group, pool), the most probable first; towards: `directions`."""
    most = max(PAIRS // max(items.shape[1] ** 2, 1), 1)
    parts = [_listed(*some, towards, k, diversity) for some in zip(items.split(most), p.split(most), strict=True)]
    place = torch.cat(parts)
    return items.gather(1, place), p.gather(1, place)


def _listed(items: Tensor, p: Tensor, towards: Tensor, k: int, diversity: float) -> Tensor:
    """(group, k): places in the pool."""
    mine = towards[items.clamp_min(0)]
    alike = (mine @ mine.mT).clamp_min(0)  # (group, pool, pool)
    worth = (1 - diversity) * p / p[:, :1].clamp_min(torch.finfo(p.dtype).tiny)
    nearest, chosen = torch.zeros_like(worth), list[Tensor]()
    out = p <= 0  # what cannot come is listed last
    taken = torch.zeros_like(out)
    for number in range(min(k, items.shape[1])):
        score = (worth - diversity * nearest).masked_fill(out, -3.0).masked_fill(taken, -4.0)
        best = score.argmax(1, keepdim=True) if number else torch.zeros(len(p), 1, dtype=torch.long)
        chosen.append(best)
        taken = taken.scatter(1, best, True)
        nearest = torch.maximum(nearest, alike.gather(1, best[..., None].expand(-1, -1, alike.shape[2]))[:, 0])
    return torch.cat(chosen, 1)
