"""Log-probabilities of one item among many, from logits that are never formed whole.

    f_i = V h_i + b + what is added at single items,          log p_i = f_i[y_i] - log sum_d exp f_i[d]

    dL/dh_i  = g_i (V[y_i] - sum_d p_id V[d]),     dL/dV[d] = sum_i g_i (1[y_i = d] - p_id) h_i,     g_i = dL/dlog p_i

for n rows h and D items, whose n x D logits are the `literal` form. `log_prob` walks over blocks of items that stay in
cache: forward with the largest logit so far and the sum of exponentials beside it, backward with each block formed once
more. Minus infinity, added at an item, rules it out. Inside, logarithms are to base 2: 2^x takes a third of the time
that e^x takes.
"""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple, final

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

CACHE, ROOM = 2**19, 2**26  # numbers of a block: on a CPU it should stay in cache, elsewhere launches cost more
LEAST = 64  # items of a block
BITS = 1 / math.log(2)  # of a nat


class Added(NamedTuple):
    """amount (any,) is added at row and item (any,), which may come again; in the order of the items."""

    row: Tensor
    item: Tensor
    amount: Tensor

    def of_rows(self, start: int, stop: int) -> "Added":
        here = (self.row >= start) & (self.row < stop)
        return Added(self.row[here] - start, self.item[here], self.amount[here])


@final
class Logits(NamedTuple):
    """f (row, item) before it is formed: rows (row, width), vectors (item, width), bias (item,)."""

    rows: Tensor
    vectors: Tensor
    bias: Tensor | None = None
    added: tuple[Added, ...] = ()

    def log_prob(self, target: Tensor) -> Tensor:
        """(row,), of the items `target` (row,)."""
        rows, kind = self.rows, self.rows.device.type
        if torch.is_autocast_enabled(kind):
            rows = rows.to(torch.get_autocast_dtype(kind))
        found: Tensor = _LogProb.apply(rows, self.vectors, self.bias, target, *(x for one in self.added for x in one))
        return found

    def formed(self) -> Tensor:
        """f, (row, item)"""
        f = self.rows @ self.vectors.mT if self.bias is None else torch.addmm(self.bias, self.rows, self.vectors.mT)
        for row, item, amount in self.added:
            f = f.view(-1).index_add(0, row * len(self.vectors) + item, amount.to(f.dtype)).view(f.shape)
        return f

    def split(self, most: int) -> "Iterator[Logits]":
        """At most so many rows at a time."""
        for start in range(0, len(self.rows), most):
            stop = min(start + most, len(self.rows))
            yield self._replace(rows=self.rows[start:stop], added=tuple(one.of_rows(start, stop) for one in self.added))


def literal(logits: Logits, target: Tensor) -> Tensor:
    """The definition."""
    return logits.formed().log_softmax(-1).gather(-1, target[:, None])[:, 0]


class _Block:
    """Some items, from start to stop - 1, of all rows."""

    def __init__(self, whole: "_Blocks", start: int, stop: int, added: list[tuple[Tensor, ...]]) -> None:
        self.whole, self.start, self.stop = whole, start, stop
        self.vectors, self.bias = whole.vectors[start:stop], whole.bias[start:stop] * BITS
        self.added = [(row * (stop - start) + item - start, amount * BITS) for row, item, amount in added]
        place = whole.target - start
        self.inside = (place >= 0) & (place < stop - start)
        self.place = place.clamp(0, stop - start - 1)[:, None]  # of the target, where it is among these items

    def form(self) -> Tensor:
        """f (row, item) in bits, in the scratch array."""
        rows = self.whole.rows
        f = self.whole.scratch[: len(rows) * len(self.vectors)].view(len(rows), len(self.vectors))
        if rows.dtype != f.dtype:  # products of less precision
            f.copy_(rows @ self.vectors.mT.to(rows.dtype)).mul_(BITS).add_(self.bias)
        else:
            torch.addmm(self.bias, rows, self.vectors.mT, out=f)
        for at, amount in self.added:
            f.view(-1).index_add_(0, at, amount)
        return f

    def take_target(self, f: Tensor, before: Tensor) -> Tensor:
        return torch.where(self.inside, f.gather(1, self.place)[:, 0], before)

    def less_target(self, p: Tensor) -> Tensor:
        return p.scatter_add_(1, self.place, -self.inside.to(p.dtype)[:, None])


class _Blocks:
    """The blocks of all items, in one scratch array."""

    def __init__(self, rows: Tensor, vectors: Tensor, bias: Tensor | None, target: Tensor, *added: Tensor) -> None:
        self.rows, self.vectors, self.target = rows, vectors, target
        if rows.dtype == vectors.dtype:
            self.rows = rows * BITS
        self.bias = vectors.new_zeros(1).expand(len(vectors)) if bias is None else bias
        self.added = [added[k : k + 3] for k in range(0, len(added), 3)]
        number, items = max(len(rows), 1), len(vectors)
        room = CACHE if rows.device.type == "cpu" else ROOM
        self.size = min(max(room // number, LEAST), items)
        self.scratch = vectors.new_empty(number * self.size)
        starts = torch.arange(0, items + self.size, self.size, device=rows.device)
        self.bounds = [torch.searchsorted(item.contiguous(), starts).tolist() for _, item, _ in self.added]

    def __iter__(self) -> Iterator[_Block]:
        for number, start in enumerate(range(0, len(self.vectors), self.size)):
            some = [
                tuple(x[bound[number] : bound[number + 1]] for x in one)
                for one, bound in zip(self.added, self.bounds, strict=True)
            ]
            yield _Block(self, start, min(start + self.size, len(self.vectors)), some)


class _LogProb(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, vectors: Tensor, bias: Tensor | None, target: Tensor, *added: Tensor) -> Tensor:
        with torch.autocast(rows.device.type, enabled=False):
            blocks, low = _Blocks(rows, vectors, bias, target, *added), torch.finfo(vectors.dtype).min
            highest = vectors.new_full((len(rows), 1), low)
            total, mine = torch.zeros_like(highest), torch.zeros_like(highest[:, 0])
            for block in blocks:
                f = block.form()
                mine = block.take_target(f, mine)
                top = torch.maximum(highest, f.amax(1, keepdim=True))  # never below `low`, were all of it ruled out
                total = total * (highest - top).exp2_() + f.sub_(top).exp2_().sum(1, keepdim=True)
                highest = top
            shift = highest + total.log2()
            ctx.save_for_backward(rows, vectors, bias, target, shift, *added)
        return (mine - shift[:, 0]) / BITS

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        rows, vectors, bias, target, shift, *added = ctx.saved_tensors
        blocks, scale = _Blocks(rows, vectors, bias, target, *added), -g[:, None].to(vectors.dtype)
        scaled = torch.cat((rows * scale, scale), 1).mT.contiguous()  # (width + 1, row): the last gives the bias'
        of_rows, of_vectors = torch.zeros_like(rows, dtype=vectors.dtype), torch.empty_like(vectors)
        of_bias = vectors.new_empty(len(vectors))
        of_added: list[list[Tensor]] = [[] for _ in blocks.added]
        for block in blocks:
            p = block.less_target(block.form().sub_(shift).exp2_())
            _add_product(of_rows, p, block.vectors, rows.dtype)
            both = _product(scaled, p, rows.dtype)
            of_vectors[block.start : block.stop], of_bias[block.start : block.stop] = both[:-1].mT, both[-1]
            for k, (at, _) in enumerate(block.added):
                if ctx.needs_input_grad[6 + 3 * k]:
                    of_added[k].append(p.view(-1)[at] * scale[at // len(block.vectors), 0])
        amounts = [x for parts in of_added for x in (None, None, torch.cat(parts) if parts else None)]
        found = ((of_rows * scale).to(rows.dtype), of_vectors, of_bias, None, *amounts)
        return tuple(x if wanted else None for x, wanted in zip(found, ctx.needs_input_grad, strict=True))


def _product(x: Tensor, y: Tensor, dtype: torch.dtype) -> Tensor:
    """x y, in this precision."""
    return (x.to(dtype) @ y.to(dtype)).to(x.dtype)


def _add_product(total: Tensor, x: Tensor, y: Tensor, dtype: torch.dtype) -> None:
    if dtype == total.dtype:
        total.addmm_(x, y)
    else:
        total += _product(x, y, dtype)
