"""Keys and values of a history that grows: one more row costs one row, not all of them.

content of row t looks at the keys and values of rows 1 .. t, and no later row changes any of them (context past)
what comes next looks at all of them and at itself
"""

from typing import final

import torch
from torch import Tensor

from efattn.network.attention import Attention
from efattn.network.gaps import FARTHEST
from efattn.network.stack import Stack


@final
class Kept:
    """Of one group, (1, head, row, size) for each layer."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        self.keys: list[Tensor | None] = [None] * len(stack.layers)
        self.values: list[Tensor | None] = [None] * len(stack.layers)

    def add(self, content: Tensor, gap: Tensor | None = None) -> None:
        """content: (1, row, width), of further rows; gap: (1, row, all rows), from each of them to all up to the
        last."""
        x, layers = content, self.stack.layers
        for number, block in enumerate(layers):
            q, k, v = block.attention.parts(block.enter(x))
            self.keys[number], self.values[number] = self._with(number, k, v)
            if number + 1 < len(layers):
                alone = self.stack.isolated
                attended = block.attention.alone(q, k, v) if alone else self._looked(number, q, gap)
                x = block.leave(x, attended)

    def next(self, masked: Tensor, gap: Tensor | None = None) -> Tensor:
        """(1, 1, width): what a head reads of the row that comes; gap: (1, 1, all rows), to those that are there."""
        x = masked
        whole = None if gap is None else torch.cat((gap, torch.full_like(gap[..., :1], FARTHEST)), -1)
        for number, block in enumerate(self.stack.layers):
            q, k, v = block.attention.parts(block.enter(x))
            x = block.leave(x, _look(block.attention, q, *self._with(number, k, v), whole, self.stack.own))
        return self.stack.final(x)

    def _looked(self, number: int, q: Tensor, gap: Tensor | None) -> Tensor:
        keys, values = self.keys[number], self.values[number]
        assert keys is not None
        assert values is not None
        return _look(self.stack.layers[number].attention, q, keys, values, gap, self.stack.own)

    def _with(self, number: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        keys, values = self.keys[number], self.values[number]
        if keys is None or values is None:
            return k, v
        return torch.cat((keys, k), -2), torch.cat((values, v), -2)


def _look(layer: Attention, q: Tensor, k: Tensor, v: Tensor, gap: Tensor | None, own: bool) -> Tensor:
    """The last rows look at all up to themselves."""
    rows, columns = q.shape[-2], k.shape[-2]
    last = torch.arange(columns - rows, columns, device=q.device)[:, None]
    column = torch.arange(columns, device=q.device)
    visible = column <= last if own else column < last
    return layer.look(q, k, v, visible[None], gap=gap)
