"""Log-probabilities of one item among many, from some of the others.

    log p_i  ~  f_i[y_i] - log( exp f_i[y_i] + sum_{d in S, d != y_i} exp( f_i[d] - log pi_d ) )

S is drawn anew for each step, item d with probability pi_d, so that the sum is right on average (Horvitz and Thompson);
its logarithm, and the gradient, are so the more the larger S is. With all items drawn it is the exact one.
"""

from typing import NamedTuple, final

import torch
import torch.nn.functional as F
from torch import Tensor

from efattn.network.catalogue import Added, Logits

EVEN = 0.5  # the share of what is drawn that is spread over all items alike, so that none stands for too many


class Drawn(NamedTuple):
    """items (any,), in their order, and how probable it was to draw each."""

    items: Tensor
    probability: Tensor

    def find(self, items: Tensor) -> tuple[Tensor, Tensor]:
        """(any,): where they stand among the drawn, and whether they do."""
        place = torch.searchsorted(self.items, items).clamp_max(len(self.items) - 1)
        return place, self.items[place] == items


@final
class Candidates:
    """Draws about `number` of the items by how often they come, `counts` (item,), and evenly.

    All are put in a row, in an order that the seed decides, each as long as its probability: a comb of teeth at
    distance one, which starts anywhere, takes each item with just that probability and none twice.
    """

    def __init__(self, counts: Tensor, number: int, seed: int = 0) -> None:
        self.number = min(number, len(counts))
        self.probability = _probabilities(counts.double(), self.number)
        self.order = torch.randperm(len(counts), generator=torch.Generator().manual_seed(seed)).to(counts.device)
        self.ends = self.probability[self.order].cumsum(0)

    def draw(self) -> Drawn:
        teeth = torch.arange(self.number, dtype=torch.double, device=self.ends.device)
        start = torch.rand((), dtype=torch.double, device=self.ends.device)
        place = torch.searchsorted(self.ends, teeth + start, right=True).clamp_max(len(self.ends) - 1)
        items = self.order[place].unique()
        return Drawn(items, self.probability[items])


def log_prob(logits: Logits, target: Tensor, drawn: Drawn) -> Tensor:
    """(row,), of the items `target` (row,); `added` only ever rules out. Gradients of the vectors are sparse where
    they are parameters themselves.

    As f_i[y_i] is subtracted from all of them, it goes into the products: a last entry of the rows.
    """
    rows, vectors, bias, added = logits
    with torch.autocast(rows.device.type, enabled=False):
        mine = (rows * _rows(vectors, target)).sum(-1, dtype=vectors.dtype)
        some, weight = _rows(vectors, drawn.items), -drawn.probability.log().to(vectors.dtype)
        if bias is not None:
            mine, weight = mine + bias[target], weight + bias[drawn.items]
        one = torch.ones_like(some[:, :1])
        some = F.pad(torch.cat((some, one), 1), (0, 0, 0, 1))  # the last, of zeros, stands for the target
        weight = F.pad(weight, (0, 1))
        out = (_own(target, drawn, some), *(_among(one, drawn) for one in added))
        shifted = torch.cat((rows.to(vectors.dtype), -mine[:, None]), 1)
        return Logits(shifted, some, weight, out).log_prob(torch.full_like(target, len(drawn.items)))


def _own(target: Tensor, drawn: Drawn, like: Tensor) -> Added:
    """A target that was drawn is there already."""
    place, there = drawn.find(target)
    row = there.nonzero()[:, 0]
    row = row[place[row].argsort()]
    return Added(row, place[row], like.new_full((1,), -torch.inf).expand(len(row)))


def _among(added: Added, drawn: Drawn) -> Added:
    place, there = drawn.find(added.item)
    return Added(added.row[there], place[there], added.amount[there])


def _rows(vectors: Tensor, index: Tensor) -> Tensor:
    return F.embedding(index, vectors, sparse=vectors.is_leaf)


def _probabilities(counts: Tensor, number: int) -> Tensor:
    """(item,), which sum to the number of items that are drawn."""
    if number >= len(counts):
        return torch.ones_like(counts)
    share = EVEN / len(counts) + (1 - EVEN) * counts / counts.sum().clamp_min(1)
    found = torch.zeros_like(share)
    while True:  # what would be more than certain is certain, and the rest shares what is left
        free = found < 1
        left = number - (~free).sum()
        scaled = share * left / (share * free).sum().clamp_min(torch.finfo(share.dtype).tiny)
        if not bool((scaled[free] > 1).any()):
            return torch.where(free, scaled, found)
        found = torch.where(free & (scaled > 1), 1.0, found)
