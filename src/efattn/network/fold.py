"""The second of two layers, looking at rows out_ij that are never formed.

    p_i. = weigh_j( fold_i . plain_j + sum_h g_ih . out_ijh )
    mean_i = sum_j p_ij plain_j,     mixed_ih = sum_j p_ij out_ijh

With out_ij = keep_ij total_j - drop_ij old_i + add_ij new_i (rank_one.py) both sums over out_ij are products of I x I
arrays. The gradient of a score has the form of `mixed` and the gradient of `mixed` that of a score, so the backward
pass is the same two sums again. It takes a few groups at a time in two scratch arrays, and keeps nothing but p and
what rank_one.py keeps: on a CPU most of the time would otherwise go into fresh memory.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from efattn.network.rank_one import LargestEntry, Swap

CACHE, ROOM = 2**21, 2**28  # bytes of a scratch array: on a CPU it should stay in cache, elsewhere launches cost more


def look_at_swapped(
    swap: Swap,
    g: Tensor,
    fold: Tensor,
    plain: Tensor,
    own: Tensor,
    visible: Tensor,
    average: bool,
    bias: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """g (batch, head, head2, target, size), fold (batch, head2, target, width), plain (batch, row, width), own (batch,
    head2, target, 1) the score of a target's own slot, visible (batch, target, row + 1), the own slot's last, bias
    (batch, head2, target, row) what is added to the scores.

    Gives mixed (as g), mean (as fold), the weight of the own slot and the sum of all weights (as own).
    """
    largest = (None, None) if swap.largest is None else (swap.largest.target, swap.largest.valid)
    pairs = (swap.keep, swap.drop, swap.add, swap.total, swap.rest, swap.old, swap.new)
    return _Fold.apply(visible, *largest, average, bias, *pairs, g, fold, plain, own)


class _Pairs:
    """out_ij of some groups, through the two sums over it. s: (group, any, target, row); t: (group, head, any,
    target, size)."""

    def __init__(self, largest: LargestEntry | None, scratch: Tensor, *parts: Tensor) -> None:
        self.largest, self.scratch = largest, scratch
        self.keep, self.drop, self.add, self.total, self.rest, self.old, self.new = (x[:, :, None] for x in parts)

    def room(self, which: int, t: Tensor, last: int) -> Tensor:
        shape = (*t.shape[:-1], last)
        return self.scratch[which, : torch.Size(shape).numel()].view(shape)

    def along(self, t: Tensor) -> Tensor:
        """t_i . total_j, with rest_j at the largest: (group, head, any, target, row), in scratch 0"""
        x = self.room(0, t, self.keep.shape[-1])
        torch.matmul(t.flatten(2, 3), self.total[:, :, 0].mT, out=x.flatten(2, 3))
        if self.largest is not None:
            self.largest.put(x, (self.largest.rows(t) * self.rest).sum(-1).unsqueeze(-2))
        return x

    def ends(self, t: Tensor) -> tuple[Tensor, Tensor]:
        """t_i . old_i and t_i . new_i: (group, head, any, target, 1)"""
        y = self.room(1, t, t.shape[-1])
        old, new = (torch.mul(t, x, out=y).sum(-1, keepdim=True) for x in (self.old, self.new))
        return old, new

    def dot(self, x: Tensor, old: Tensor, new: Tensor) -> Tensor:
        """sum_head t_i . out_ij, from along(t) and ends(t): (group, any, target, row)"""
        y = self.room(1, x, x.shape[-1])
        return torch.mul(x, self.keep, out=y).addcmul_(self.drop, old, value=-1).addcmul_(self.add, new).sum(1)

    def times(self, s: Tensor, factor: Tensor, like: Tensor) -> Tensor:
        """sum over j of s_ij factor: factor (group, head, 1, target, row)"""
        return torch.mul(s[:, None], factor, out=self.room(1, like, s.shape[-1])).sum(-1, keepdim=True)

    @staticmethod
    def over_any(s: Tensor, factor: Tensor) -> Tensor:
        """sum over any of s_ij factor, a pass for each: factor (group, head, any, target, row or 1)"""
        total = s[:, None, 0] * factor[:, :, 0]
        for k in range(1, s.shape[1]):
            total.addcmul_(s[:, None, k], factor[:, :, k])
        return total

    def kept(self, s: Tensor, like: Tensor) -> tuple[Tensor, Tensor | None]:
        """s_ij keep_ij without the largest, in scratch 1, and at it (group, head, any, row, 1)"""
        kept = torch.mul(s[:, None], self.keep, out=self.room(1, like, s.shape[-1]))
        if self.largest is None:
            return kept, None
        at_largest = self.largest.pick(kept)
        self.largest.put(kept, torch.zeros_like(at_largest))
        return kept, at_largest.mT

    def mixed(self, kept: Tensor, at_largest: Tensor | None, dropped: Tensor, added: Tensor) -> Tensor:
        """sum_j s_ij out_ij, from kept(s) and the sums of s times drop and add: (group, head, any, target, size)"""
        out = (kept.flatten(2, 3) @ self.total[:, :, 0]).unflatten(2, kept.shape[2:4])
        out.addcmul_(dropped, self.old, value=-1).addcmul_(added, self.new)
        if self.largest is not None and at_largest is not None:
            self.largest.add_rows(out, at_largest * self.rest)
        return out


class _Fold(torch.autograd.Function):
    @staticmethod
    @torch.amp.custom_fwd(device_type="cuda", cast_inputs=torch.float32)
    def forward(
        ctx: Any,
        visible: Tensor,
        target: Tensor | None,
        valid: Tensor | None,
        average: bool,
        bias: Tensor | None,
        *xs: Tensor,
    ) -> Any:
        *_, g, fold, plain, own = xs
        largest = None if target is None else LargestEntry(target, valid)
        mixed, mean = torch.empty_like(g), torch.empty_like(fold)
        p = fold.new_empty(*fold.shape[:-1], plain.shape[1] + 1)
        for some, pairs in _spans(largest, xs, 1):
            t = g[some]
            score = pairs.dot(pairs.along(t), *pairs.ends(t)).add_(fold[some] @ plain[some, None].mT)
            score = score if bias is None else score.add_(bias[some])
            q = _weigh(torch.cat((score, own[some]), -1), visible[some, None], largest is not None, average)
            s = q[..., :-1]
            p[some], mean[some] = q, s @ plain[some, None]
            dropped, added = (pairs.times(s, x, t) for x in (pairs.drop, pairs.add))
            mixed[some] = pairs.mixed(*pairs.kept(s, t), dropped, added)
        ctx.save_for_backward(visible, target, valid, p, *xs)
        ctx.average, ctx.biased = average, bias is not None
        return mixed, mean, p[..., -1:].clone(), p.sum(-1, keepdim=True)

    @staticmethod
    @torch.amp.custom_bwd(device_type="cuda")
    def backward(ctx: Any, d_mixed: Tensor, d_mean: Tensor, d_own: Tensor, d_sum: Tensor) -> Any:
        visible, target, valid, p, *xs = ctx.saved_tensors
        largest = None if target is None else LargestEntry(target, valid)
        grads = [torch.empty_like(x) for x in xs]
        d_bias = torch.empty_like(p[..., :-1]) if ctx.biased else None
        for some, pairs in _spans(largest, xs, 2):
            g, fold, plain = (x[some] for x in xs[7:10])
            t = torch.cat((g, d_mixed[some]), 2)
            x, (old, new) = pairs.along(t), pairs.ends(t)
            half = slice(g.shape[2], None)
            above = pairs.dot(x[:, :, half], old[:, :, half], new[:, :, half])
            above.add_(d_mean[some] @ plain[:, None].mT)
            above = torch.cat((above, d_own[some]), -1).add_(d_sum[some])
            d_score = _weigh_back(above, p[some], visible[some, None], largest is not None, ctx.average)
            if d_bias is not None:
                d_bias[some] = d_score[..., :-1]
            s = torch.cat((d_score[..., :-1], p[some][..., :-1]), 1)  # along t: of the score, and of the mixture
            around = torch.cat((fold, d_mean[some]), 1)
            parts = (*_pairs_back(pairs, s, t, x, old, new), s[:, : g.shape[2]] @ plain[:, None])
            parts = (*parts, s.flatten(1, 2).mT @ around.flatten(1, 2), d_score[..., -1:])
            for whole, part in zip(grads, parts, strict=True):
                whole[some] = part
        return None, None, None, None, d_bias, *grads


def _pairs_back(pairs: _Pairs, s: Tensor, t: Tensor, x: Tensor, old: Tensor, new: Tensor) -> tuple[Tensor, ...]:
    """Gradients of sum_any s_ij (t_i . out_ij) in keep, drop, add, total, rest, old, new and in the first half of t."""
    d_keep, d_drop, d_add = pairs.over_any(s, x), pairs.over_any(s, old.neg_()), pairs.over_any(s, new)
    dropped, added = pairs.times(s, pairs.drop, t), pairs.times(s, pairs.add, t)
    kept, at_largest = pairs.kept(s, t)
    d_total = kept.flatten(2, 3).mT @ t.flatten(2, 3)
    half = slice(0, t.shape[2] // 2)
    largest = None if at_largest is None else at_largest[:, :, half]
    d_g = pairs.mixed(kept[:, :, half], largest, dropped[:, :, half], added[:, :, half])
    d_rest = torch.zeros_like(d_total)
    if pairs.largest is not None and at_largest is not None:
        d_rest = (at_largest * pairs.largest.rows(t)).sum(2)
    return d_keep, d_drop, d_add, d_total, d_rest, -(dropped * t).sum(2), (added * t).sum(2), d_g


def _weigh(score: Tensor, visible: Tensor, softmax: bool, average: bool) -> Tensor:
    if softmax:
        return score.masked_fill_(~visible, torch.finfo(score.dtype).min).softmax(-1).masked_fill_(~visible, 0)
    score = score.masked_fill_(~visible, 0)
    return score.div_(visible.sum(-1, keepdim=True).clamp_min(1)) if average else score


def _weigh_back(d_p: Tensor, p: Tensor, visible: Tensor, softmax: bool, average: bool) -> Tensor:
    if softmax:
        return (d_p - (d_p * p).sum(-1, keepdim=True)).mul_(p)
    d_p = d_p.masked_fill_(~visible, 0)
    return d_p.div_(visible.sum(-1, keepdim=True).clamp_min(1)) if average else d_p


def _spans(largest: LargestEntry | None, xs: Any, times: int) -> Iterator[tuple[slice, _Pairs]]:
    """Some groups at a time: their slice and their pairs, which share the scratch for `times` as many rows as g has."""
    *pairs, g, _, plain, _ = xs
    size = times * g[:1].numel() // g.shape[-1] * max(plain.shape[1], g.shape[-1])
    working = CACHE if g.device.type == "cpu" else ROOM
    step = min(max(1, working // (size * g.element_size())), g.shape[0])
    scratch = g.new_empty(2, step * size)
    for start in range(0, g.shape[0], step):
        some = slice(start, start + step)
        yield some, _Pairs(None if largest is None else largest.part(some), scratch, *(x[some] for x in pairs))
