"""Numbers that stay finite.

    bounded(f) = f  for |f| <= c,     sign(f) (c + log(1 + |f| - c))  beyond

A head may say anything. bounded is exact wherever a model is sensible, its gradient is never zero, and its exponential
never overflows. Log-gamma differences cancel in single precision, so log_prob is computed in double and rounded once.
"""

import math
from collections.abc import Callable
from functools import wraps
from typing import TypeVar

import torch

LOG_2_PI = math.log(2 * math.pi)
Self = TypeVar("Self")


def bounded(f: torch.Tensor, bound: float) -> torch.Tensor:
    """The identity up to the bound, logarithmic beyond."""
    return f.clamp(-bound, bound) + f.sign() * (f.abs() - bound).relu().log1p()


def unbounded(value: torch.Tensor, bound: float) -> torch.Tensor:
    """The f with bounded(f) = value."""
    return value.clamp(-bound, bound) + value.sign() * (value.abs() - bound).clamp(0, 9).expm1()


def precise(x: torch.Tensor) -> torch.Tensor:
    """In double precision, where the device has it."""
    return x.float() if x.device.type == "mps" else x.double()


def precisely(
    log_prob: Callable[[Self, torch.Tensor, torch.Tensor], torch.Tensor],
) -> Callable[[Self, torch.Tensor, torch.Tensor], torch.Tensor]:
    """log_prob(f, y) computed in double precision and given back in that of f."""

    @wraps(log_prob)
    def rounded_once(self: Self, f: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return log_prob(self, precise(f), precise(y)).to(f.dtype)

    return rounded_once


def pick(table: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """table[..., index]: one entry of (..., n) per row."""
    index = index.long()
    table = table.expand(*torch.broadcast_shapes(table.shape[:-1], index.shape), table.shape[-1])
    return table.gather(-1, index.expand(table.shape[:-1]).unsqueeze(-1)).squeeze(-1)


def log_standard_gamma(shape: torch.Tensor, generator: torch.Generator | None) -> torch.Tensor:
    """The logarithm of a Gamma(shape, 1) draw. G(a) = G(a + 1) U^(1/a) is right for tiny shapes, too."""
    uniform = torch.rand(shape.shape, dtype=shape.dtype, device=shape.device, generator=generator)
    uniform = uniform.clamp_min(torch.finfo(shape.dtype).tiny)
    return torch._standard_gamma(shape + 1, generator=generator).log() + uniform.log() / shape
