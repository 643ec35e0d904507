"""Keys and values of groups that grow, kept: one more row costs one row, not all of them.

    content of row t looks at the keys and values of rows 1 .. t, and no later row changes any of them (context past)
    what comes next looks at all of them and at itself

A step takes as long as a group is, and not as its square. Equal to `two_streams` to rounding.
"""

from typing import final

import torch
from torch import Tensor

from efattn.network.gaps import FARTHEST
from efattn.network.stack import Stack


@final
class Kept:
    """Of groups that grow together: (batch, head, row, size) for each layer."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        self.seen: Tensor | None = None  # (batch, row): which rows can be looked at
        self.keys: list[Tensor | None] = [None] * len(stack.layers)
        self.values: list[Tensor | None] = [None] * len(stack.layers)

    def add(self, content: Tensor, seen: Tensor | None = None, gap: Tensor | None = None) -> None:
        """content: (batch, row, width), of further rows; seen: (batch, row), all unless said; gap: (batch, row, all
        rows), from each of them to all up to the last."""
        seen = torch.ones(content.shape[:2], dtype=torch.bool, device=content.device) if seen is None else seen
        self.seen = seen if self.seen is None else torch.cat((self.seen, seen), 1)
        x, layers, visible = content, self.stack.layers, self._visible(content.shape[1])
        for number, block in enumerate(layers):
            q, k, v = block.attention.parts(block.enter(x))
            keys, values = self.keys[number], self.values[number] = self._with(number, k, v)
            if number + 1 < len(layers):
                alone, layer = self.stack.isolated, block.attention
                x = block.leave(x, layer.alone(q, k, v) if alone else layer.look(q, keys, values, visible, gap=gap))

    def next(self, masked: Tensor, gap: Tensor | None = None) -> Tensor:
        """(batch, 1, width): what a head reads of the row that comes; gap: (batch, 1, all rows), to those that are
        there."""
        own = torch.full((len(masked), 1), self.stack.own, device=masked.device)
        visible = (own if self.seen is None else torch.cat((self.seen, own), 1))[:, None]
        whole = None if gap is None else torch.cat((gap, torch.full_like(gap[..., :1], FARTHEST)), -1)
        x = masked
        for number, block in enumerate(self.stack.layers):
            q, k, v = block.attention.parts(block.enter(x))
            x = block.leave(x, block.attention.look(q, *self._with(number, k, v), visible, gap=whole))
        return self.stack.final(x)

    def _visible(self, rows: int) -> Tensor:
        """(batch, row, all rows): the last so many look at all up to themselves."""
        assert self.seen is not None
        column = torch.arange(self.seen.shape[1], device=self.seen.device)
        last = column[len(column) - rows :, None]
        return self.seen[:, None] & (column <= last if self.stack.own else column < last)

    def _with(self, number: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        keys, values = self.keys[number], self.values[number]
        if keys is None or values is None:
            return k, v
        return torch.cat((keys, k), -2), torch.cat((values, v), -2)
