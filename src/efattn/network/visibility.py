"""Who may look at whom.

The sequence for target i is (c_1, .., m_i, .., c_J): its own slot holds its masked form, all others their content.
`past`: position i looks at current positions up to itself and at lagged ones; lagged ones look at lagged ones only.
`others`: everything looks at everything; `any` too, unless there is an order to go by (orders.py). A pair mask narrows
either; a hidden position is looked at by nobody, except that the masked form of a target stands in its slot of its own
copy in any case. Isolated content looks at itself alone; targets look at what they may see as before.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import wraps
from typing import Literal, TypeVar

import torch
from torch import Tensor

from efattn.network.gaps import opposite

Context = Literal["past", "others", "any"]
Found = TypeVar("Found")


def without_orders(context: Context) -> Context:
    """What is asked of a model that knows no orders, beside one that does: each row given all others."""
    return "others" if context == "any" else context


def once(method: Callable[["Visibility"], Found]) -> Callable[["Visibility"], Found]:
    """What a method finds is kept: every layer asks for the same."""
    name = f"_{method.__name__}"

    @wraps(method)
    def kept(self: "Visibility") -> Found:
        if name not in self.__dict__:
            self.__dict__[name] = method(self)
        found: Found = self.__dict__[name]
        return found

    return kept


@dataclass(frozen=True)
class Visibility:
    """seen (batch, context): which content can be looked at at all; slots (batch, target): where each target stands;
    allowed (batch or 1, context, context): which row may look at which column, None for all; own: rows see themselves;
    causal: content never looks at a target that looks at it; leading: the targets are the first columns, in order; gap
    (batch, row, column): the class of the time between two positions, None where that is not known; hidden (batch,
    slot, column): the same from targets that do not show their own time, None where they do; isolated: content looks at
    nothing but itself."""

    seen: Tensor
    slots: Tensor
    allowed: Tensor | None
    own: bool = True
    causal: bool = False
    leading: bool = False
    gap: Tensor | None = None
    hidden: Tensor | None = None
    isolated: bool = False

    @classmethod
    def of(
        cls,
        context: Context,
        exists: Tensor,
        length: int,
        *,
        pairs: Tensor | None = None,
        own: bool = True,
        gap: Tensor | None = None,
        hidden: Tensor | None = None,
    ) -> "Visibility":
        """exists (batch, context), its first `length` columns the current group; pairs (batch, context, context)."""
        batch, size = exists.shape
        here = torch.arange(size, device=exists.device)
        allowed = pairs
        if context == "past":
            causal = (here <= here[:, None]) & (here[:, None] < length) | (here >= length)  # (context, context)
            allowed = causal[None] if pairs is None else causal & pairs
        if allowed is not None or not own:
            eye = torch.eye(size, dtype=torch.bool, device=exists.device)
            base = torch.ones_like(eye)[None] if allowed is None else allowed
            allowed = base | eye if own else base & ~eye
        return cls(exists, here[:length].expand(batch, length), allowed, own, context == "past", True, gap, hidden)

    def at(self, slots: Tensor) -> "Visibility":
        """The same, for other targets."""
        return replace(self, slots=slots, leading=False)

    @once
    def content(self) -> Tensor:
        """(batch, row or 1, column): what each row sees when nothing is masked."""
        seen = self.seen[:, None]
        if self.isolated:
            return seen & self._alone()
        return seen if self.allowed is None else seen & self.allowed

    @once
    def slot_columns(self) -> Tensor:
        """(batch, target, context): true at each target's own slot."""
        return self.slots[..., None] == torch.arange(self.seen.shape[1], device=self.slots.device)

    def from_slots(self) -> Tensor | None:
        """(batch, target, context): what a target's row may look at, by `allowed` alone; None for all."""
        index = self._by_slot()
        return None if self.allowed is None else self.allowed.expand(len(index), -1, -1).gather(1, index)

    def onto_slots(self) -> Tensor | None:
        """(batch, target, context): which rows may look at a target's slot, by `allowed` alone; None for all."""
        if self.isolated:
            return self.slot_columns() & self.own
        if self.allowed is None:
            return None
        index = self._by_slot()
        return self.allowed.mT.expand(len(index), -1, -1).gather(1, index)

    @once
    def targets(self) -> Tensor:
        """(batch, target, context): the content that a target's masked row sees; never its own."""
        if self.leading:
            n, size = self.slots.shape[1], self.seen.shape[1]
            others = ~torch.eye(n, size, dtype=torch.bool, device=self.seen.device)
            return self.seen[:, None] & (others if self.allowed is None else others & self.allowed[:, :n])
        seen, allowed = self.seen[:, None] & ~self.slot_columns(), self.from_slots()
        return seen if allowed is None else seen & allowed

    @once
    def targets_and_own(self) -> Tensor:
        """(batch, target, context + 1): the same, and whether it sees itself."""
        seen = self.targets()
        return torch.cat((seen, torch.full_like(seen[..., :1], self.own)), -1)

    @once
    def masked_stream(self) -> Tensor:
        """(batch, target, context + target): what masked rows see of [content; masked]."""
        batch, n = self.slots.shape
        own = torch.eye(n, dtype=torch.bool, device=self.seen.device).expand(batch, n, n) & self.own
        return torch.cat((self.targets(), own), -1)

    @once
    def copies(self) -> Tensor:
        """(batch, target, row or 1, column): the sequence of each target, its slot seen by whoever may look at
        it."""
        seen = (self.seen[:, None] | self.slot_columns())[:, :, None]
        if self.isolated:
            mine = self.from_slots()
            mine = torch.ones_like(self.slot_columns()) if mine is None else mine
            return seen & torch.where(self.slot_columns()[..., None], mine[:, :, None], self._alone())
        return seen if self.allowed is None else seen & self.allowed[:, None]

    @once
    def gap_from_slots(self) -> Tensor | None:
        """(batch, target, context): the gap from each target to each position."""
        gap = self.gap if self.hidden is None else self.hidden
        return None if gap is None else gap.gather(1, self._by_slot())

    def gap_onto_slots(self) -> Tensor | None:
        """(batch, target, context): the gap from each position to each target, in whose slot its masked form is."""
        mine = self.gap_from_slots()
        return None if mine is None else opposite(mine)

    def gap_in_copies(self) -> Tensor | None:
        """(batch, target or 1, row, column): the gaps in the sequence of each target."""
        if self.gap is None or self.hidden is None:
            return None if self.gap is None else self.gap[:, None]
        slot, mine = self.slot_columns(), self.gap_from_slots()
        assert mine is not None
        gap = torch.where(slot[..., None, :], opposite(mine)[..., None], self.gap[:, None])
        return torch.where(slot[..., None], mine[:, :, None], gap)

    def _alone(self) -> Tensor:
        """(context, context): what isolated content looks at."""
        return torch.eye(self.seen.shape[1], dtype=torch.bool, device=self.seen.device) & self.own

    def _by_slot(self) -> Tensor:
        return self.slots[..., None].expand(-1, -1, self.seen.shape[1])

    def without(self, hidden: Tensor) -> "Visibility":
        """Hide the same part of the context, (batch, context), from all targets of a group."""
        return replace(self, seen=self.seen & ~hidden)
