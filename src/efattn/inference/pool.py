"""What several models of items say together, as a product: the log-linear pool.

    p(y) = prod_k p_k(y)^(a_k) / sum_d prod_k p_k(d)^(a_k)          a_k the powers, which may be negative

A mixture believes one of its parts at a time; a pool adds up what each knows. Of many items, of which each part ranks a
few thousand well, sums of log-probabilities rank better than sums of probabilities, and a negative power takes back
what all parts count, such as how often an item comes.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, final

import torch
from torch import Tensor

from efattn.data import Batch
from efattn.models import Conditionals
from efattn.models.scoring import every
from efattn.network import Gaps

if TYPE_CHECKING:
    from efattn.inference.fitted import Part

FLOOR = -30.0  # of a log-probability: no part rules out alone what the others find possible
CELLS = 2**21  # logits at a time


@final
class Pool(Conditionals):
    """parts: models of the same items, which stay where they are and no part of this one; powers: one for each."""

    def __init__(self, parts: Sequence["Part"], powers: Sequence[float]) -> None:
        first = parts[0].model
        super().__init__(first.family, first.context, first.support)
        self.parts, self.powers = tuple(parts), tuple(powers)

    @property
    def gaps(self) -> Gaps | None:
        """What knows the usual time between rows, if anything does."""
        known = (getattr(part.model, "gaps", None) for part in self.parts)
        return next((one for one in known if one is not None), None)

    def joined(self, outputs: Iterable[Tensor]) -> Tensor:
        """f (..., item) of the pool, from that of each part, where the first one is; minus infinity where all of them
        have it."""
        total, out, where = torch.zeros(()), torch.ones((), dtype=torch.bool), None
        for f, power in zip(outputs, self.powers, strict=True):
            where = f.device if where is None else where
            known, gone = log_probs(f.to(where))
            total, out = total + power * known, out & gone
        return total.masked_fill(out, -torch.inf)

    def raw_outputs(self, batch: Batch, slots: Tensor) -> Tensor:
        return self.joined(part.outputs(batch, slots) for part in self.parts)

    def item_outputs(self, batch: Batch, slots: Tensor, chosen: Tensor, most: int) -> Iterator[Tensor]:
        """f (row, item) of the chosen targets, at most so many rows at a time."""
        for several in zip(*(part.item_outputs(batch, slots, chosen, most) for part in self.parts), strict=True):
            yield self.joined(several)

    def _item_log_prob(self, batch: Batch, slots: Tensor | None, scored: Tensor) -> Tensor:
        assert batch.item is not None
        slots = every(batch) if slots is None else slots
        item, found, first = batch.item[:, : batch.length].gather(1, slots)[scored], list[Tensor](), 0
        for f in self.item_outputs(batch, slots, scored, max(CELLS // self.family.size, 1)):
            mine = item[first : first + len(f), None].to(f.device)
            found.append((f.gather(1, mine) - f.logsumexp(1, keepdim=True))[:, 0].cpu())
            first += len(f)
        values = torch.cat(found) if found else torch.zeros(0, dtype=torch.float64)
        return values.new_zeros(scored.shape).masked_scatter(scored, values)

    def start(self, batch: Any) -> None:
        """Its parts are fitted."""


def log_probs(f: Tensor) -> tuple[Tensor, Tensor]:
    """Of outputs (..., item): log-probabilities in double precision, none below the floor, and what is ruled out."""
    f = f.double()
    return f.log_softmax(-1).clamp_min(FLOOR), f.isneginf()
