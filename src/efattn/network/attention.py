"""One attention layer, of rows on columns.

    out_i = W_O  sum_j p_ij (W_V h_j + b_V) + b_O,      p_i. = softmax_j( q_i . k_j / scale )   over what i may see

With `gaps`, each head learns what to add to the score for each class of the time between row and column (gaps.py).

Linear attention takes p_ij = q_i . k_j / scale itself, optionally divided by the number of columns seen. Looking at
nothing gives the zero vector in place of the average. The paper prints scale = width, its code sqrt(width / heads).
"""

import math
from typing import Literal, final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from efattn.network.gaps import looked_up

Kind = Literal["softmax", "linear"]
Scale = Literal["head", "width"]


@final
class Attention(nn.Module):
    """Attention of `heads` heads, each `size` wide; by default they share `width` evenly. `own`: whether a position may
    look at itself. `gaps`: how many classes of gaps between two positions there are, 0 to know of none."""

    def __init__(
        self,
        width: int,
        heads: int = 1,
        *,
        kind: Kind = "softmax",
        scale: Scale = "head",
        own: bool = True,
        average: bool = False,
        bias: bool = True,
        size: int | None = None,
        gaps: int = 0,
    ) -> None:
        super().__init__()
        if gaps and kind != "softmax":
            raise ValueError("gaps go with softmax attention")
        if size is None and width % heads:
            raise ValueError(f"width {width} is not a multiple of heads {heads}")
        if average and kind != "linear":
            raise ValueError("average=True is an option of kind='linear'; softmax attention averages by itself")
        self.width, self.heads, self.size = width, heads, size or width // heads
        self.inner = self.heads * self.size
        self.kind, self.own, self.average = kind, own, average
        self.factor = 1 / math.sqrt(self.size) if scale == "head" else 1 / width
        self.project = nn.Linear(width, 3 * self.inner, bias=bias)  # queries, keys, values
        self.gaps = nn.Parameter(torch.zeros(heads, gaps)) if gaps else None
        self.output = nn.Linear(self.inner, width, bias=bias)

    def split(self, x: Tensor) -> Tensor:
        """(..., position, head * size) -> (..., head, position, size)"""
        return x.unflatten(-1, (self.heads, self.size)).transpose(-2, -3)

    def merge(self, x: Tensor) -> Tensor:
        """(..., head, position, size) -> (..., position, width), through W_O"""
        return self.output(x.transpose(-2, -3).flatten(-2))

    def matrix(self, which: int) -> tuple[Tensor, Tensor | None]:
        """Weight (head, size, width) and bias (head, size) of queries (0), keys (1) or values (2)."""
        rows = slice(which * self.inner, (which + 1) * self.inner)
        weight, bias = self.project.weight[rows], self.project.bias
        shape = (self.heads, self.size)
        return weight.unflatten(0, shape), None if bias is None else bias[rows].unflatten(0, shape)

    def parts(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries (already scaled), keys and values, each (..., head, position, size)."""
        q, k, v = self.project(x).chunk(3, -1)
        return self.split(q * self.factor), self.split(k), self.split(v)

    def weigh(self, scores: Tensor, visible: Tensor, some: bool = False) -> Tensor:
        """Scores (..., row, column) -> weights; a row that sees nothing gets zeros. some: each row sees something."""
        if self.kind == "linear":
            weights = scores.masked_fill(~visible, 0)
            return weights / visible.sum(-1, keepdim=True).clamp_min(1) if self.average else weights
        weights = scores.masked_fill(~visible, torch.finfo(scores.dtype).min).softmax(-1)
        return weights if some else weights.masked_fill(~visible, 0)

    def bias(self, gap: Tensor | None) -> Tensor | None:
        """What is added to the scores for the gap (..., row, column) between a row and a column: (..., head, row,
        column)"""
        return None if gap is None or self.gaps is None else looked_up(self.gaps, gap)

    def forward(
        self,
        rows: Tensor,
        columns: Tensor,
        visible: Tensor,
        weights: list[Tensor] | None = None,
        gap: Tensor | None = None,
    ) -> Tensor:
        """rows (..., row, width) look at columns (..., column, width) where visible (..., row or 1, column).

        A list given as `weights` receives the attention weights (..., head, row, column).
        """
        if rows is columns:
            q, k, v = self.parts(rows)
        else:
            q = self.split(F.linear(rows, *self._rows(0, 1)) * self.factor)
            k, v = map(self.split, F.linear(columns, *self._rows(1, 3)).chunk(2, -1))
        return self.look(q, k, v, visible, weights, gap)

    def look(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        visible: Tensor,
        weights: list[Tensor] | None = None,
        gap: Tensor | None = None,
    ) -> Tensor:
        """The same from queries, keys and values (..., head, position, size)."""
        visible, bias = visible.unsqueeze(-3), self.bias(gap)  # (..., 1, row, column), (..., head, row, column)
        if self.kind == "softmax" and weights is None and bias is None:
            return self.merge(_fused(q, k, v, visible))
        p = self.weigh(q @ k.mT if bias is None else q @ k.mT + bias, visible)
        if weights is not None:
            weights.append(p)
        return self.merge(p @ v)

    def alone(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """The same where each position looks at itself only."""
        if not self.own:
            v = torch.zeros_like(v)
        elif self.kind == "linear":
            v = (q * k).sum(-1, keepdim=True) * v
        return self.merge(v)

    def _rows(self, first: int, last: int) -> tuple[Tensor, Tensor | None]:
        rows = slice(first * self.inner, last * self.inner)
        return self.project.weight[rows], None if self.project.bias is None else self.project.bias[rows]


def _fused(q: Tensor, k: Tensor, v: Tensor, visible: Tensor) -> Tensor:
    """Softmax attention without its weights. The fused kernels want exactly one leading dimension."""
    lead = q.shape[:-3]
    if len(lead) > 1:
        q, k, v = (x.flatten(0, -4) for x in (q, k, v))
        visible = visible.expand(*lead, *visible.shape[-3:]).flatten(0, -4)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=visible, scale=1.0).unflatten(0, lead)
