"""Newton's steps for a penalised likelihood of outputs that are linear in shared and in per-item coefficients.

    minimise  sum w / 2 (theta - aim)^2 - sum_i log p(y_i | f_i),      f_i = offset_i + G_i shared + D_i own[x_i]

The matrix of second derivatives is an arrow: a block for each item, a border for what is shared. It is solved block by
block, so that a thousand items take a thousand small systems and no large one.
"""

import time
from collections.abc import Callable
from typing import NamedTuple, Self

import torch
from torch import Tensor

STEPS, HALVES, TOLERANCE, NEAR = 25, 12, 1e-6, 1e-4  # TOLERANCE: nats a row; NEAR: what differences are taken over
AT_ONCE = 2**24  # numbers that are formed for all rows at once, and not item by item


class Pair(NamedTuple):
    """Numbers for shared (g,) and for each item's own coefficients (item, q)."""

    shared: Tensor
    own: Tensor

    def moved(self, step: Self, scale: float) -> "Pair":
        return Pair(self.shared - scale * step.shared, self.own - scale * step.own)


class Arrow(NamedTuple):
    """Rows, sorted by their items. log_prob: (row,) of f (row, size); shared: G (row, size, g); own: D (row, size, q);
    item: (row,); ends: where each item's rows end, and the next one's begin."""

    log_prob: Callable[[Tensor], Tensor]
    offset: Tensor
    shared: Tensor
    own: Tensor
    item: Tensor
    ends: list[int]

    def outputs(self, at: Pair) -> Tensor:
        return self.offset + self.shared @ at.shared + (self.own * at.own[self.item][:, None]).sum(-1)

    def spans(self) -> list[tuple[int, slice]]:
        """The items that have rows, and these."""
        starts = [0, *self.ends[:-1]]
        return [(x, slice(a, b)) for x, (a, b) in enumerate(zip(starts, self.ends, strict=True)) if b > a]


def newton(rows: Arrow, weight: Pair, aim: Pair, first: Pair, end: float) -> Pair:
    """The best coefficients from a first guess on, until `end` at the latest."""

    def loss(point: Pair) -> float:
        drawn = sum(float((w / 2 * (x - a) ** 2).sum()) for w, x, a in zip(weight, point, aim, strict=True))
        value = drawn - float(rows.log_prob(rows.outputs(point)).sum())
        return value if value == value else float("inf")

    at, value = first, loss(first)
    for _ in range(STEPS):
        step = _step(rows, weight, aim, at)
        if step is None:
            break
        moved, scale = -1.0, 1.0
        for _ in range(HALVES):
            there = at.moved(step, scale)
            new = loss(there)
            if new < value:
                moved, at, value = value - new, there, new
                break
            scale /= 2
        if moved < TOLERANCE * len(rows.offset) or time.thread_time() > end:
            break
    return at


def _step(rows: Arrow, weight: Pair, aim: Pair, at: Pair) -> Pair | None:
    gradient, curvature = derivatives(rows.log_prob, rows.outputs(at))
    g, d = rows.shared, rows.own
    curved_g, curved_d = -curvature @ g, -curvature @ d  # (row, size, any)
    flat = [x.flatten(0, 1) for x in (g, curved_g, d, curved_d)]
    down = weight.shared * (at.shared - aim.shared) - flat[0].T @ gradient.flatten()
    downs = weight.own * (at.own - aim.own)
    downs = downs.index_add(0, rows.item, -(gradient[..., None] * d).sum(1))
    corner = flat[0].T @ flat[1] + torch.diag(weight.shared)
    blocks = torch.diag_embed(weight.own).clone()
    border = blocks.new_zeros(*weight.own.shape, g.shape[-1])
    size = g.shape[1]
    if len(d) * d.shape[-1] * (d.shape[-1] + g.shape[-1]) <= AT_ONCE:
        blocks.index_add_(0, rows.item, d.mT @ curved_d)
        border.index_add_(0, rows.item, curved_d.mT @ g)
        return _solved(corner, border, blocks, down, downs)
    for x, span in rows.spans():
        here = slice(span.start * size, span.stop * size)
        blocks[x] += flat[2][here].T @ flat[3][here]
        border[x] = flat[3][here].T @ flat[0][here]
    return _solved(corner, border, blocks, down, downs)


def _solved(corner: Tensor, border: Tensor, blocks: Tensor, down: Tensor, downs: Tensor) -> Pair | None:
    """A step downwards: where the curve is no bowl, it is made one."""
    damping = 0.0
    for _ in range(10):
        diagonal = torch.diag_embed(damping * blocks.diagonal(dim1=1, dim2=2).abs())
        factors, wrong = torch.linalg.cholesky_ex(blocks + diagonal)
        if not bool(wrong.any()):
            solved = torch.cholesky_solve(torch.cat([border, downs[..., None]], -1), factors)
            inner, outer = solved[..., :-1], solved[..., -1]
            rest = corner + torch.diag(damping * corner.diagonal().abs()) - torch.einsum("xqg,xqh->gh", border, inner)
            factor, bad = torch.linalg.cholesky_ex(rest)
            if not int(bad):
                right = down - torch.einsum("xqg,xq->g", border, outer)
                shared = torch.cholesky_solve(right[:, None], factor)[:, 0]
                step = Pair(shared, outer - inner @ shared)
                return step if all(bool(x.isfinite().all()) for x in step) else None
        damping = max(damping * 4, 0.01)
    return None


def derivatives(log_prob: Callable[[Tensor], Tensor], f: Tensor) -> tuple[Tensor, Tensor]:
    """Of each row's log-probability in its outputs: first (row, size), second (row, size, size). The second are
    differences of the first, which any family has; steps need them to a few digits."""

    step = NEAR * (1 + f.abs())
    moves = torch.diag_embed(step).movedim(-1, 0)  # (size, row, size)
    with torch.enable_grad():
        points = torch.cat([f[None], f + moves, f - moves]).detach().requires_grad_()
        (slopes,) = torch.autograd.grad(log_prob(points).sum(), points)
    first, up, down = slopes.nan_to_num(0.0).split([1, f.shape[1], f.shape[1]])
    second = ((up - down) / (2 * step.T[..., None])).movedim(0, 1)
    return first[0], (second + second.mT) / 2
