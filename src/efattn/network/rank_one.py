"""Attention with one column swapped, for every column at once.

In the sequence of target i, the first layer's row j differs from the unmasked pass in one column: content i gives way
to its masked form. With a_jk = exp(q_j . k_k), N_j = sum_k a_jk v_k, Z_j = sum_k a_jk, and a'_ji, v'_i for the masked
form,

    out_ij = (N_j - a_ji v_i + a'_ji v'_i) / (Z_j - a_ji + a'_ji)                              (linear: the numerator)

Z_j - a_ji cancels where row j looks mainly at i, and only its largest entry can. So each row is kept in two pieces,
its largest entry (the largest) and the rest, each with a maximum of its own: leaving out the largest leaves the rest,
untouched by any subtraction, and leaving out another entry leaves at least the largest, so that nothing cancels. The
maxima are of content scores only; a masked score far above them wins by a bounded exponential.

The backward pass is written out: it needs four I x I arrays per head where recording every step would keep a dozen.
"""

from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from efattn.network.attention import Attention
from efattn.network.visibility import Visibility

BLOCK = 2**25  # bytes of an array of all columns and some rows
FLOOR = -1e30  # stands for the maximum of nothing


@dataclass(frozen=True)
class LargestEntry:
    """Where the largest entry of each row stands among the targets, (batch, head, 1, row), and whether it does at all
    (valid; None: always). Arrays of pairs may have one more dimension between head and target."""

    target: Tensor
    valid: Tensor | None

    def pick(self, x: Tensor) -> Tensor:
        """(batch, head, .., target, row) -> (batch, head, .., 1, row), 0 where the largest is no target"""
        entries = x.gather(-2, _widen(self.target, x))
        return entries if self.valid is None else entries * _widen(self.valid, x)

    def put(self, x: Tensor, values: Tensor) -> None:
        """Write values (batch, head, .., 1, row) into x (batch, head, .., target, row)."""
        index = _widen(self.target, x)
        if self.valid is not None:
            values = torch.where(_widen(self.valid, x), values, x.gather(-2, index))
        x.scatter_(-2, index, values)

    def rows(self, x: Tensor) -> Tensor:
        """(batch, head, .., target, size) -> (batch, head, .., row, size): the target at each row's largest entry"""
        index = _widen(self.target, x).mT  # (batch, head, .., row, 1)
        first = torch.arange(index.shape[:-2].numel(), device=x.device) * x.shape[-2]
        index = index.squeeze(-1) + first.view(*index.shape[:-2], 1)
        rows = x.reshape(-1, x.shape[-1]).index_select(0, index.flatten()).view(*index.shape, -1)
        return rows if self.valid is None else rows * _widen(self.valid, x).mT

    def add_rows(self, x: Tensor, values: Tensor) -> None:
        """Add values (batch, head, .., row, size) into x (batch, head, .., target, size)."""
        values = values if self.valid is None else values * _widen(self.valid, x).mT
        x.scatter_add_(-2, _widen(self.target, x).mT.expand(values.shape), values)

    def part(self, some: slice) -> "LargestEntry":
        return LargestEntry(self.target[some], None if self.valid is None else self.valid[some])


def _widen(y: Tensor, x: Tensor) -> Tensor:
    return y if x.dim() == 4 else y[:, :, None].expand(-1, -1, x.shape[2], -1, -1)


@dataclass(frozen=True)
class Swap:
    """out_ij = keep_ij total_j - drop_ij old_i + add_ij new_i, with rest_j in place of total_j at the largest of row j.

    keep, drop, add: (batch, head, target, row); total, rest: (batch, head, row, size); old, new: (batch, head,
    target, size)
    """

    keep: Tensor
    drop: Tensor
    add: Tensor
    total: Tensor
    rest: Tensor
    largest: LargestEntry | None
    old: Tensor
    new: Tensor

    def form(self, some: slice) -> Tensor:
        """out_ij itself for some targets: (batch, target, row, width)"""
        keep, drop, add = (c[:, :, some, :, None] for c in (self.keep, self.drop, self.add))
        total = self.total[:, :, None]
        if self.largest is not None:
            here = torch.arange(self.keep.shape[2], device=keep.device)[some, None]
            largest = self.largest.target == here
            largest = largest if self.largest.valid is None else largest & self.largest.valid
            total = torch.where(largest[..., None], self.rest[:, :, None], total)
        out = keep * total - drop * self.old[:, :, some, None] + add * self.new[:, :, some, None]
        return out.permute(0, 2, 3, 1, 4).flatten(-2)


def swap(
    layer: Attention, parts: tuple[Tensor, Tensor, Tensor], visibility: Visibility, kept: list[Any] | None = None
) -> Swap:
    """parts: queries, keys and values of [content; masked], (batch, head, context + target, size). kept: where what
    belongs to rows is kept for other targets of the same groups, where nothing is differentiated."""
    size = visibility.seen.shape[1]
    (q, _), (k, k_new), (v, new) = (x.split((size, x.shape[2] - size), 2) for x in parts)
    visible = visibility.content().mT[:, None]  # (batch, 1, column, row or 1)
    onto = visibility.onto_slots()
    onto = None if onto is None else onto[:, None]
    old = _at(v, visibility.slots, visibility.leading)
    if layer.kind == "softmax":
        bias = layer.bias(None if visibility.gap is None else visibility.gap.mT)  # (batch, head, column, row)
        if bias is None or visibility.hidden is None:
            onto_new = None if bias is None else _at(bias, visibility.slots, visibility.leading)
        else:
            onto_new = layer.bias(visibility.gap_onto_slots())  # (batch, head, target, row)
        rows = (q, bias, onto_new, visible, onto)
        if kept is not None and not torch.is_grad_enabled():
            if not kept:
                kept.append(_Rows.in_blocks(q, k, v, bias, visible))
            places = (bias, visible, visibility.slots, visibility.leading)
            return kept[0].swap(k, q, _scores(k_new, q, onto_new, onto), places, (old, new))

        def swapped(q: Tensor, bias: Any, new: Any, visible: Tensor, onto: Any) -> tuple[Tensor, ...]:
            where = (visible, onto, visibility.slots, visibility.leading)
            return _SoftmaxSwap.apply(q, k, v, k_new, bias, new, *where)

        keep, drop, add, total, rest, target, valid = _by_rows(swapped, rows)
        return Swap(keep, drop, add, total, rest, LargestEntry(target, valid), old, new)
    keep, drop, add, total = _linear(q, k, v, k_new, visible, onto, visibility.slots, layer.average)
    return Swap(keep, drop, add, total, total, None, old, new)


def _by_rows(swapped: Any, rows: tuple[Tensor | None, ...]) -> Any:
    """Of rows in blocks, where one array of all columns and rows would be large: no row knows of another. In the
    backward pass each block is computed once more."""
    q = rows[0]
    assert q is not None
    count, step = q.shape[2], _rows_at_once(q, q.shape[2])
    if count <= step:
        return swapped(*rows)
    parts = []
    for start in range(0, count, step):
        some = slice(start, start + step)
        mine = [q[:, :, some]]
        mine += [x if x is None or x.shape[-1] == 1 else x[..., some] for x in rows[1:]]  # type: ignore[misc]
        again = torch.is_grad_enabled()
        parts.append(
            checkpoint(swapped, *mine, use_reentrant=False, preserve_rng_state=False) if again else swapped(*mine)
        )
    keep, drop, add, total, rest, target, valid = zip(*parts, strict=True)
    wide = [torch.cat(x, -1) for x in (keep, drop, add)]
    far = [torch.cat(x, 2) for x in (total, rest)]
    return (*wide, *far, torch.cat(target, -1), None if valid[0] is None else torch.cat(valid, -1))


def _rows_at_once(q: Tensor, columns: int) -> int:
    return max(BLOCK // max(q.shape[:2].numel() * columns * q.element_size(), 1), 1)


def _at(x: Tensor, slots: Tensor, leading: bool) -> Tensor:
    """(batch, head, column, any) -> (batch, head, target, any)"""
    return x[:, :, : slots.shape[1]] if leading else x.gather(2, _index(slots, x))


def _index(slots: Tensor, like: Tensor) -> Tensor:
    return slots[:, None, :, None].expand(-1, like.shape[1], -1, like.shape[-1])


def _scores(columns: Tensor, q: Tensor, bias: Tensor | None, visible: Tensor | None) -> Tensor:
    """(batch, head, column, row), minus infinity where a row does not see a column."""
    s = columns @ q.mT
    s = s if bias is None else s.add_(bias)
    return s if visible is None else s.masked_fill_(~visible, -torch.inf)


@dataclass(frozen=True)
class _Rows:
    """What a row is whichever target gives way: its largest entry and the rest of it. All (batch, head, 1, row), but
    total and rest, (batch, head, row, size)."""

    top: Tensor
    second: Tensor
    gap: Tensor
    one: Tensor
    where: Tensor
    size: Tensor  # of the rest
    total: Tensor
    rest: Tensor

    @classmethod
    def of(cls, s: Tensor, v: Tensor) -> "_Rows":
        """s: scores, which give way to the entries without the largest, by a maximum of their own."""
        top, where = s.max(-2, keepdim=True)
        s.scatter_(-2, where, -torch.inf)
        second = s.amax(-2, keepdim=True)
        gap = torch.where(second > -torch.inf, (second - top).exp(), 0.0)
        one = (top > -torch.inf).to(s.dtype)
        top, second = top.clamp_min(FLOOR), second.clamp_min(FLOOR)
        a = s.sub_(second).exp_()
        size, rest = a.sum(-2, keepdim=True), a.mT @ v
        total = gap.mT * rest + one.mT * v.gather(2, where.mT.expand(rest.shape))
        return cls(top, second, gap, one, where, size, total, rest)

    @classmethod
    def in_blocks(cls, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, visible: Tensor) -> "_Rows":
        """The same, some rows at a time."""
        step = _rows_at_once(q, k.shape[2])
        parts = []
        for start in range(0, q.shape[2], step):
            some = slice(start, start + step)
            mine = [x if x is None or x.shape[-1] == 1 else x[..., some] for x in (bias, visible)]
            parts.append(cls.of(_scores(k, q[:, :, some], *mine), v))
        far = ("total", "rest")
        return cls(*(torch.cat([getattr(p, f.name) for p in parts], 2 if f.name in far else -1) for f in fields(cls)))

    def coefficients(self, drop: Tensor, t: Tensor, largest: LargestEntry) -> tuple[Tensor, Tensor, Tensor]:
        """keep, drop and add of some targets. drop: their entries, 0 at the largest; t: scores of their masked forms.
        Both are overwritten."""
        keep = self.gap * self.size + self.one - drop
        largest.put(keep, self.size)
        t_star = t.gather(-2, largest.target)
        largest.put(t.sub_(self.top), t_star - self.second)
        add = t.clamp_max_(80.0 if t.dtype == torch.float32 else 600.0).exp_()
        keep.add_(add).reciprocal_().nan_to_num_(posinf=0.0)  # nothing is seen: the zero vector
        return keep, drop.mul_(keep), add.mul_(keep)

    def swap(self, k: Tensor, q: Tensor, t: Tensor, places: tuple[Any, ...], values: tuple[Tensor, Tensor]) -> Swap:
        """Without anything to differentiate. places: what is added to the scores, who sees whom, slots, leading."""
        bias, visible, slots, leading = places
        largest = _as_target(self.where, slots, leading, k.shape[2])
        at = [None if x is None else _at(x, slots, leading) for x in (bias, visible)]
        a = _scores(_at(k, slots, leading), q, *at).sub_(self.second).exp_()
        largest.put(a, torch.zeros_like(self.top))
        keep, drop, add = self.coefficients(a.mul_(self.gap), t, largest)
        return Swap(keep, drop, add, self.total, self.rest, largest, *values)


class _SoftmaxSwap(torch.autograd.Function):
    """(q, k, v, k', and what is added to the scores) -> keep, drop, add, total, rest, and where each row's largest
    entry stands."""

    @staticmethod
    @torch.amp.custom_fwd(device_type="cuda", cast_inputs=torch.float32)
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        k_new: Tensor,
        bias: Tensor | None,
        bias_new: Tensor | None,
        visible: Tensor,
        onto: Tensor | None,
        slots: Tensor,
        leading: bool,
    ) -> tuple[Tensor | None, ...]:
        a = _scores(k, q, bias, visible)
        rows = _Rows.of(a, v)
        largest = _as_target(rows.where, slots, leading, a.shape[-2])
        drop = _at(a, slots, leading) * rows.gap  # a_ji by the row's maximum, 0 at the largest
        keep, drop, add = rows.coefficients(drop, _scores(k_new, q, bias_new, onto), largest)
        saved = (a, rows.gap, rows.one, rows.where, largest.target, largest.valid)
        ctx.save_for_backward(q, k, v, k_new, *saved, slots, keep, drop, add)
        ctx.leading, ctx.biased = leading, bias is not None
        ctx.mark_non_differentiable(*(x for x in (largest.target, largest.valid) if x is not None))
        return keep, drop, add, rows.total, rows.rest, largest.target, largest.valid

    @staticmethod
    @torch.amp.custom_bwd(device_type="cuda")
    def backward(
        ctx: Any, d_keep: Tensor, d_drop: Tensor, d_add: Tensor, d_total: Tensor, d_rest: Tensor, *_: Any
    ) -> Any:
        q, k, v, k_new, a, gap, one, where, target, valid, slots, keep, drop, add = ctx.saved_tensors
        largest = LargestEntry(target, valid)
        # keep = 1 / (left + b), drop = a keep, add = b keep
        e = d_keep * keep
        e.addcmul_(d_drop, drop).addcmul_(d_add, add)
        d_t = add * (d_add - e)
        d_a_left = (d_drop + e).mul_(keep)  # through drop, and through left = size_all - a
        d_left = e.mul_(keep).neg_()
        at_star = largest.pick(d_left)
        d_all = d_left.sum(-2, keepdim=True) - at_star
        d_size = at_star + gap * d_all
        d_rest = d_rest + gap.mT * d_total
        wide = where.mT.expand(d_total.shape)
        d_star = (d_all + (d_total * v.gather(2, wide)).sum(-1).unsqueeze(-2)).mul_(one)
        d_s = (v @ d_rest.mT).add_(d_size)
        if ctx.leading:
            d_s[:, :, : slots.shape[1]] += d_a_left.mul_(gap)
        else:
            d_s.scatter_add_(-2, _index(slots, a), d_a_left.mul_(gap))
        d_s.mul_(a).scatter_(-2, where, d_star)
        d_v = a @ d_rest
        d_v.scatter_add_(2, wide, one.mT * d_total)
        biases = (d_s, d_t) if ctx.biased else (None, None)
        return d_s.mT @ k + d_t.mT @ k_new, d_s @ q, d_v, d_t @ q, *biases, None, None, None, None


def _as_target(where: Tensor, slots: Tensor, leading: bool, size: int) -> LargestEntry:
    """where: each row's largest entry as a column, (batch, head, 1, row)"""
    n = slots.shape[1]
    if leading and n == size:
        return LargestEntry(where, None)
    order = torch.arange(n, device=slots.device).expand(slots.shape)
    target = slots.new_full((slots.shape[0], size), n).scatter_(1, slots, order)  # (batch, column)
    target = target[:, None, None].expand(-1, where.shape[1], 1, -1).gather(-1, where)
    return LargestEntry(target.clamp_max(n - 1), target < n)


def _linear(
    q: Tensor, k: Tensor, v: Tensor, k_new: Tensor, visible: Tensor, onto: Tensor | None, slots: Tensor, average: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    s = (k @ q.mT).masked_fill(~visible, 0)
    t = k_new @ q.mT
    t = t if onto is None else t.masked_fill(~onto, 0)
    pick = _index(slots, s)
    drop, total = s.gather(-2, pick), s.mT @ v
    keep = torch.ones_like(drop)
    if average:
        visible = visible.expand(*visible.shape[:2], *s.shape[-2:]).int()
        count = visible.sum(-2, keepdim=True) - visible.gather(-2, pick[:, :1]) + (1 if onto is None else onto.int())
        keep = keep / count.clamp_min(1)
    return keep, drop * keep, t * keep, total
