"""The conditionals of every target: row i of the sequence (c_1, .., m_i, .., c_J), for all i at once.

    literal      builds every sequence: the definition, O(I^3)
    copied       the same, the last layer for one row only: the fewest steps, for small groups on a CPU
    two_streams  content and masked rows side by side; exact where content never sees the target: `past`, one layer, or
                 content that is isolated
    folded       `others`, two layers, nothing non-linear between: a few I x I products per pair of heads
    formed       `others`, any stack: the first layer by swapping one column, the last for one row only; the copies
                 between are formed for a chunk of targets at a time and formed again in the backward pass

All give the same numbers and the same gradients. The stack chooses.
"""

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from efattn.network.attention import Attention
from efattn.network.fold import look_at_swapped
from efattn.network.rank_one import Swap, swap
from efattn.network.stack import Block, Inputs, Noise, Stack
from efattn.network.visibility import Visibility


def literal(stack: Stack, given: Inputs) -> Tensor:
    """One copy of the group per target, its slot replaced by its masked form; row i of copy i is the answer."""
    visibility = given.visibility
    slot = visibility.slot_columns()[..., None]  # (batch, target, context, 1)
    x = torch.where(slot, given.masked[:, :, None], given.content[:, None])  # (batch, target, context, width)
    x = _through_copies(stack.layers, x, visibility, given.noise, given.weights)
    return _own_rows(x, visibility.slots)


def copied(stack: Stack, given: Inputs) -> Tensor:
    """One copy of the group per target up to the last layer, which is for row i of copy i."""
    (*before, last), visibility = stack.layers, given.visibility
    x = torch.where(visibility.slot_columns()[..., None], given.masked[:, :, None], given.content[:, None])
    x = _through_copies(before, x, visibility, given.noise[:-1], None)
    visible, gap, h = visibility.copies(), visibility.gap_from_slots(), last.enter(x)
    if visible.shape[2] > 1:
        visible = _own_rows(visible, visibility.slots)[:, :, None]
    attended = last.attention(
        _own_rows(h, visibility.slots)[:, :, None], h, visible, gap=None if gap is None else gap[:, :, None]
    )
    return last.leave(_own_rows(x, visibility.slots), attended.squeeze(2), given.noise[-1])


def two_streams(stack: Stack, given: Inputs) -> Tensor:
    """Content looks at content, a masked row at content and at itself."""
    visibility, size = given.visibility, given.content.shape[1]
    x = torch.cat((given.content, given.masked), 1)  # (batch, context + target, width)
    for block, noise in zip(stack.layers, given.noise, strict=True):
        parts = block.attention.parts(block.enter(x))
        attended = _targets_look(block.attention, parts, visibility, given.weights)
        if block is stack.blocks[-1]:  # content has nobody left to look at it
            x = x[:, size:]
        else:
            attended = torch.cat((_content_looks(block.attention, parts, visibility), attended), 1)
        x = block.leave(x, attended, noise)
    return x


def folded(stack: Stack, given: Inputs) -> Tensor:
    """Two layers: the second's keys and the first's output matrix go into the query, the values come after
    averaging."""
    (one, two), visibility = stack.layers, given.visibility
    row, swapped = _first_layer(one, given)
    kept = 1.0 if given.noise[0] is None else given.noise[0][0]  # (batch, 1, width): of what the first layer adds
    plain = given.content if one.residual else torch.zeros_like(given.content)
    if one.attention.output.bias is not None:
        plain = plain + one.attention.output.bias * kept
    out = one.attention.output.weight.unflatten(1, (one.attention.heads, one.attention.size))  # (width, head, size)

    layer = two.attention
    fold, constant = _fold_keys(layer, row)  # (batch, head2, target, width), (batch, head2, target, 1)
    kept = kept if isinstance(kept, float) else kept[:, None]
    g = torch.einsum("bgid,dhs->bhgis", fold * kept, out)
    own = (fold * row[:, None]).sum(-1, keepdim=True)  # the target's own slot holds its row
    bias = layer.bias(visibility.gap_from_slots())  # (batch, head2, target, row)
    if bias is not None:
        own = own + _own_bias(bias, visibility)
    if layer.kind == "linear":  # a softmax does not see the constant
        own, fold, plain = own + constant, torch.cat((fold, constant), -1), F.pad(plain, (0, 1), value=1.0)
    visible = visibility.targets_and_own()
    mixed, mean, own, total = look_at_swapped(swapped, g, fold, plain, own, visible, layer.average, bias)
    mean = mean[..., : stack.width] + own * row[:, None] + torch.einsum("bhgis,dhs->bgid", mixed, out) * kept
    return two.leave(row, _apply_values(layer, mean, total), given.noise[1])


def formed(stack: Stack, given: Inputs) -> Tensor:
    """First layer by swapping, middle layers on the copies of a chunk of targets, last layer for one row of each
    copy."""
    (first, *middle, last), visibility = stack.layers, given.visibility
    row, swapped = _first_layer(first, given)

    def chunk(start: int, stop: int) -> tuple[Tensor, ...]:
        some = slice(start, stop)
        here = visibility.at(visibility.slots[:, some])
        weights = _list_if(given.weights)
        attended = first.attention.output(swapped.form(some))
        x = first.leave(given.content[:, None], attended, _per_copy(given.noise[0]))
        x = torch.where(here.slot_columns()[..., None], row[:, some, None], x)  # (batch, target, context, width)
        x = _through_copies(middle, x, here, given.noise[1:-1], weights)
        out = _one_row(last, x, here, given.noise[-1], weights)
        return (out, *(weights or ()))

    step, total = _targets_per_chunk(stack, given.content), given.masked.shape[1]
    spans = [(start, min(start + step, total)) for start in range(0, total, step)]
    again = len(spans) > 1 and torch.is_grad_enabled()
    parts = [
        checkpoint(chunk, *s, use_reentrant=False, preserve_rng_state=False) if again else chunk(*s) for s in spans
    ]
    out, *weights = zip(*parts, strict=True)
    if given.weights is not None:
        given.weights.extend(torch.cat(pieces, 2) for pieces in weights)
    return torch.cat(out, 1)


def _first_layer(block: Block, given: Inputs) -> tuple[Tensor, Swap]:
    """Row i of copy i after the first layer (batch, target, width), and the other rows as a swap."""
    parts = block.attention.parts(block.enter(torch.cat((given.content, given.masked), 1)))
    row = block.leave(
        given.masked, _targets_look(block.attention, parts, given.visibility, given.weights), given.noise[0]
    )
    return row, swap(block.attention, parts, given.visibility, given.kept)


def _content_looks(layer: Attention, parts: tuple[Tensor, Tensor, Tensor], visibility: Visibility) -> Tensor:
    """Content looks at what it may see of content: parts as below."""
    q, k, v = (x[:, :, : visibility.seen.shape[1]] for x in parts)
    if visibility.isolated:
        return layer.alone(q, k, v)
    return layer.look(q, k, v, visibility.content(), gap=visibility.gap)


def _targets_look(
    layer: Attention, parts: tuple[Tensor, Tensor, Tensor], visibility: Visibility, weights: list[Tensor] | None
) -> Tensor:
    """Masked rows look at content and at themselves: parts, queries, keys and values of [content; masked]."""
    size, bias = visibility.seen.shape[1], layer.bias(visibility.gap_from_slots())
    if layer.kind == "softmax" and bias is None and weights is None:  # fused, and nobody sees the rest
        return layer.look(parts[0][:, :, size:], *parts[1:], visibility.masked_stream())
    (_, q), (k, k_own), (v, v_own) = (x.split((size, x.shape[2] - size), 2) for x in parts)
    score, own = q @ k.mT, (q * k_own).sum(-1, keepdim=True)
    if bias is not None:
        score, own = score + bias, own + _own_bias(bias, visibility)
    p = layer.weigh(torch.cat((score, own), -1), visibility.targets_and_own()[:, None], some=visibility.own)
    if weights is not None:
        weights.append(torch.where(visibility.slot_columns()[:, None], p[..., -1:], p[..., :-1]))
    return layer.merge(p[..., :-1] @ v + p[..., -1:] * v_own)


def _own_bias(bias: Tensor, visibility: Visibility) -> Tensor:
    """(batch, head, target, row) -> (batch, head, target, 1): of a target's own slot"""
    return bias.gather(-1, visibility.slots[:, None, :, None].expand(-1, bias.shape[1], -1, 1))


def _through_copies(
    blocks: list[Block], x: Tensor, visibility: Visibility, noise: list[Noise], weights: list[Tensor] | None
) -> Tensor:
    """Whole layers on copies (batch, target, context, width)."""
    visible, gap = visibility.copies(), visibility.gap_in_copies()
    for block, drawn in zip(blocks, noise, strict=True):
        looked = _list_if(weights)
        h = block.enter(x)
        x = block.leave(x, block.attention(h, h, visible, looked, gap), _per_copy(drawn))
        if weights is not None and looked:
            weights.append(_own_rows(looked[0].transpose(2, 3), visibility.slots).transpose(1, 2))
    return x


def _one_row(block: Block, x: Tensor, visibility: Visibility, noise: Noise, weights: list[Tensor] | None) -> Tensor:
    """Row i of copy i through a block: x (batch, target, context, width) -> (batch, target, width)"""
    seen = _own_rows(visibility.copies().expand(*x.shape[:3], -1), visibility.slots)  # (batch, target, context)
    h = block.enter(x)
    fold, constant = _fold_keys(block.attention, _own_rows(h, visibility.slots))
    score, bias = torch.einsum("bgid,bijd->bgij", fold, h) + constant, block.attention.bias(visibility.gap_from_slots())
    score = score if bias is None else score + bias
    p = block.attention.weigh(score, seen[:, None])
    if weights is not None:
        weights.append(p)
    mean = torch.einsum("bgij,bijd->bgid", p, h)
    attended = _apply_values(block.attention, mean, p.sum(-1, keepdim=True))
    return block.leave(_own_rows(x, visibility.slots), attended, noise)


def _fold_keys(layer: Attention, rows: Tensor) -> tuple[Tensor, Tensor]:
    """W_K^T q_i (batch, head, target, width) and q_i . b_K (batch, head, target, 1)"""
    (wq, bq), (wk, bk) = layer.matrix(0), layer.matrix(1)
    q = torch.einsum("bid,gsd->bgis", rows, wq)
    q = (q if bq is None else q + bq[:, None]) * layer.factor
    constant = torch.zeros_like(q[..., :1]) if bk is None else torch.einsum("bgis,gs->bgi", q, bk)[..., None]
    return torch.einsum("bgis,gsd->bgid", q, wk), constant


def _apply_values(layer: Attention, mean: Tensor, total: Tensor) -> Tensor:
    """W_O (W_V mean + b_V total): mean (batch, head, target, width), total (batch, head, target, 1) the sum of
    weights"""
    weight, bias = layer.matrix(2)
    value = torch.einsum("bgid,gsd->bgis", mean, weight)
    if bias is not None:
        value = value + total * bias[:, None]
    return layer.merge(value)


def _targets_per_chunk(stack: Stack, content: Tensor) -> int:
    """How many targets' copies fit into the stack's memory setting, counting what the backward pass keeps of them."""
    batch, size, width = content.shape
    block = stack.layers[0]
    inner = 0 if block.feed_forward is None else stack.feed_forward
    per_layer = 8 * width + 2 * inner + (4 * width if block.norm else 0)
    looked = 3 * block.attention.heads * size if block.attention.kind == "linear" else 0
    floats = batch * size * (len(stack.blocks) * (per_layer + looked) + 4 * width)
    return max(1, stack.memory // (floats * content.element_size()))


def _own_rows(x: Tensor, slots: Tensor) -> Tensor:
    """(batch, target, context, ...) -> (batch, target, ...): row i of copy i"""
    index = slots.reshape(*slots.shape, *[1] * (x.dim() - 2)).expand(*slots.shape, 1, *x.shape[3:])
    return x.gather(2, index).squeeze(2)


def _list_if(weights: list[Tensor] | None) -> list[Tensor] | None:
    return None if weights is None else []


def _per_copy(noise: Noise) -> Noise:
    return None if noise is None else (noise[0][:, None], noise[1][:, None])
