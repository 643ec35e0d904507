"""Keys and values of groups that grow together, kept from one target to the next (kept.py: of one group).

    target t     content up to t - 1: only what is new goes through the layers, and looks at what was kept
                 masked form of t: looks at all of it, and at itself

From the past, content never looks at what comes later, so that a step takes as long as the sequence is, and not as its
square. Equal to `two_streams` to rounding.
"""

from typing import final

import torch
from torch import Tensor

from efattn.network.stack import Stack


@final
class KeptContent:
    """Of sequences that grow, all of them at once."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        self.seen: Tensor | None = None
        self.kept: list[tuple[Tensor, Tensor] | None] = [None] * len(stack.layers)

    def target(self, content: Tensor, masked: Tensor, seen: Tensor) -> Tensor:
        """The row (batch, 1, width) of a target that stands behind all content so far. content: (batch, new, width),
        what is new of it; masked: (batch, 1, width); seen: (batch, new), which of the new can be looked at."""
        new = content.shape[1]
        self.seen = seen if self.seen is None else torch.cat((self.seen, seen), 1)
        size = self.seen.shape[1]
        x, visible = torch.cat((content, masked), 1), self._visible(self.seen, new)
        for number, block in enumerate(self.stack.layers):
            q, k, v = block.attention.parts(block.enter(x))
            before = self.kept[number]
            if before is not None:
                k, v = torch.cat((before[0], k), -2), torch.cat((before[1], v), -2)
            self.kept[number] = (k[..., :size, :], v[..., :size, :])
            x = block.leave(x, block.attention.look(q, k, v, visible))
        found: Tensor = self.stack.final(x[:, new:])
        return found

    def _visible(self, seen: Tensor, new: int) -> Tensor:
        """(batch, new + 1, t + 1): the last row and column are the target's."""
        size, own = seen.shape[1], self.stack.own
        column = torch.arange(size, device=seen.device)
        row = column[size - new :, None]
        alone, before = (column == row) & own, column < row
        content = seen[:, None] & (alone if self.stack.isolated else alone | before)
        content = torch.cat((content, content.new_zeros(len(seen), new, 1)), -1)
        target = torch.cat((seen, seen.new_full((len(seen), 1), own)), 1)[:, None]
        return torch.cat((content, target), 1)
