"""The time between two positions, in classes.

    class = sign * round( log2( 1 + |time of the row - time of the column| / unit ) )

A factor of two makes a class, so that seconds and years both have theirs; the unit is a small gap of the training data.
Attention learns, for each head and class, what to add to a score. The time of a target is known as its place is, or
hidden: then it takes the time of the row before.
"""

from typing import TYPE_CHECKING, Any, final

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

if TYPE_CHECKING:
    from efattn.network.visibility import Context

ROOM = 2**26  # numbers at a time, where classes are counted on a GPU
FARTHEST = 27  # classes to each side: a factor of 10^8
SMALL = 0.1  # the quantile of the gaps that eight units make


def opposite(gap: Tensor) -> Tensor:
    """The classes of the same gaps, seen from the other side."""
    return 2 * FARTHEST - gap


def looked_up(table: Tensor, gap: Tensor) -> Tensor:
    """table (head, class) at gap (..., row, column): (..., head, row, column)"""
    if table.device.type == "cpu":
        return table[:, gap].movedim(0, -3)
    found: Tensor = _LookedUp.apply(table, gap)
    return found


class _LookedUp(torch.autograd.Function):
    """On a GPU, adding all entries of a class to one number would be done one after the other. They are summed by a
    product with indicators of the classes instead, for some groups at a time."""

    @staticmethod
    def forward(ctx: Any, table: Tensor, gap: Tensor) -> Tensor:
        ctx.save_for_backward(gap)
        ctx.classes = table.shape[1]
        return table[:, gap].movedim(0, -3)

    @staticmethod
    def backward(ctx: Any, d: Tensor) -> Any:
        (gap,) = ctx.saved_tensors
        gap, d = gap.flatten(0, -3).flatten(1), d.flatten(0, -4).flatten(2)  # (any, pair), (any, head, pair)
        classes = torch.arange(ctx.classes, device=d.device)
        step, total = max(1, ROOM // max(gap.shape[1] * ctx.classes, 1)), d.new_zeros(d.shape[1], ctx.classes)
        for start in range(0, len(gap), step):
            some = slice(start, start + step)
            of_class = (gap[some, :, None] == classes).to(d.dtype)  # (any, pair, class)
            total = total + torch.bmm(d[some], of_class).sum(0)
        return total, None


@final
class Gaps(nn.Module):
    """unit: of time. usual: the time from one row to the next."""

    size = 2 * FARTHEST + 1

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("unit", torch.ones((), dtype=torch.float64))
        self.register_buffer("usual", torch.ones((), dtype=torch.float64))

    def fit(self, steps: np.ndarray) -> None:
        """steps: the times between rows of a group that follow each other."""
        steps = steps[steps > 0]
        if len(steps):
            self.get_buffer("unit").fill_(float(np.quantile(steps, SMALL)) / 8)
            self.get_buffer("usual").fill_(float(np.median(steps)))

    def forward(self, when: Tensor) -> Tensor:
        """(batch, context) -> (batch, row, column), from 0 to size - 1"""
        return self.between(when[:, :, None], when[:, None])

    def without_own(self, when: Tensor, exists: Tensor, length: int, context: "Context") -> Tensor:
        """(batch, target, column): the same for targets in the first `length` columns that do not show their own time.
        Each takes the time of the row before it; where there is none, in `others` that of the row after it, else the
        last of those at a lag. A target is at no distance from itself."""
        here = exists[:, :length]
        place = torch.arange(length, device=when.device).expand(here.shape)
        before = F.pad(torch.where(here, place, -1).cummax(1).values[:, :-1], (1, 0), value=-1)
        if context == "others":
            after = torch.where(here, place, length).flip(1).cummin(1).values.flip(1)
            after = F.pad(after[:, 1:], (0, 1), value=length)
            before = torch.where(before < 0, torch.where(after < length, after, -1), before)
        lagged = torch.where(exists, when, -torch.inf)[:, length:]
        lagged = F.pad(lagged, (1, 0), value=-torch.inf).amax(1, keepdim=True)
        lagged = torch.where(lagged.isinf(), 0.0, lagged)
        taken = torch.where(before < 0, lagged, when[:, :length].gather(1, before.clamp_min(0)))
        gap = self.between(taken[:, :, None], when[:, None])
        own = place[..., None] == torch.arange(when.shape[1], device=when.device)
        return gap.masked_fill(own, FARTHEST)

    def between(self, row: Tensor, column: Tensor) -> Tensor:
        """The class of the time from each column to its row, from 0 to size - 1."""
        apart = (row - column) / self.get_buffer("unit")
        apart = apart.nan_to_num(0.0)  # whatever the unit is said to be
        far = torch.log2(1 + apart.abs()).round().clamp_max(FARTHEST)
        return (far * apart.sign()).long() + FARTHEST
