"""Models that know more items than they were fitted to: what `update` begins with."""

from collections.abc import Mapping, Sequence
from typing import final

import torch
from torch import Tensor

from efattn.data import Batch
from efattn.errors import DataError
from efattn.families import Family
from efattn.inference import Companion
from efattn.models import Conditionals, Model, Term
from efattn.network import FeaturedItems, Gaps, Logits


@torch.no_grad()
def grow(new: Model, old: Model) -> None:
    """Take over weights where shapes agree; where items were appended, the new ones start as the unknown item did."""
    mine, theirs = new.state_dict(), old.state_dict()
    if mine.keys() != theirs.keys():
        raise DataError("This model is of an older kind that cannot be trained any further: fit it anew.")
    for name, x in mine.items():
        before = theirs[name]
        if x.dtype == torch.bool:  # which outputs are shared is a matter of the family
            continue
        if x.shape == before.shape:
            x.copy_(before)
            continue
        known = before.shape[0] - (2 if name.endswith("vectors.weight") else 0)
        if name.endswith("vectors.weight"):  # rows: items, unknown, MASK
            x[:known], x[known:-1], x[-1] = before[:known], before[known], before[-1]
        else:  # a row per item of a head: as an average item
            x[:known] = before
            x[known:] = before.mean(0)
    for name in new.terms:
        term = new[name]
        if isinstance(term, Term) and isinstance(term.head.body, FeaturedItems) and term.head.bias is not None:
            term.head.body.begin(term.head.bias, old[name].family.size)


def beside(companions: Mapping[str, Sequence[Companion]], model: Model) -> dict[str, tuple[Companion, ...]]:
    """The same companions, of as many items as the terms of this model."""
    return {
        name: tuple(one._replace(model=grown(one.model, model[name].family)) for one in several)
        for name, several in companions.items()
    }


def grown(simple: Conditionals, family: Family) -> Conditionals:
    """A simple model for a family of more items. Of values it takes them for unknown ones by itself."""
    inner = simple.inner if isinstance(simple, Grown) else simple
    return Grown(inner, family).eval() if inner.of_items and inner.family.size < family.size else inner


@final
class Grown(Conditionals):
    """A model of items that knows fewer than there are now: each of the others is as an average one."""

    def __init__(self, inner: Conditionals, family: Family) -> None:
        super().__init__(family, inner.context, inner.support)
        self.inner = inner

    @property
    def gaps(self) -> Gaps | None:
        """What knows the usual time between rows, if anything does."""
        return getattr(self.inner, "gaps", None)

    def raw_outputs(self, batch: Batch, slots: Tensor) -> Tensor:
        f = self.inner.raw_outputs(batch, slots)
        more = f.mean(-1, keepdim=True).expand(*f.shape[:-1], self.family.size - f.shape[-1])
        return torch.cat([f, more], -1)

    def raw_logits(self, batch: Batch, slots: Tensor, chosen: Tensor) -> Logits | None:
        known = self.inner.raw_logits(batch, slots, chosen)
        if known is None:
            return None
        items, more = len(known.vectors), self.family.size - len(known.vectors)
        extra = known.rows.new_zeros(len(known.rows))  # what is added at single items, on average
        for row, _, amount in known.added:
            extra = extra.index_add(0, row, amount / items)
        vectors = torch.cat([known.vectors, known.vectors.mean(0).expand(more, -1)])
        new = (torch.arange(self.family.size, device=vectors.device) >= items).to(vectors.dtype)
        bias = None if known.bias is None else torch.cat([known.bias, known.bias.mean().expand(more)])
        rows = torch.cat([known.rows, extra[:, None]], 1)
        return Logits(rows, torch.cat([vectors, new[:, None]], 1), bias, known.added)

    def start(self, batch: Batch) -> None:
        """It is fitted."""
