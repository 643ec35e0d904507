"""Waiting times.

log p(y) = -y / mean - log mean          f = log mean,   eta = -1 / mean,   t(y) = y,   A = -log(-eta),   h = 1
"""

from dataclasses import dataclass
from typing import Any, ClassVar, final

import torch

from efattn.families.base import ExponentialFamily, Frozen, ScipyFamily, to_numpy
from efattn.families.marginal import average, observed
from efattn.families.moments import LEAST
from efattn.families.stable import bounded, precisely, unbounded
from efattn.families.supports import LARGEST, SMALLEST, PositiveReals

BOUND = 30.0


@final
@dataclass(frozen=True)
class Exponential(ScipyFamily, ExponentialFamily):
    """Finite numbers > 0 without memory: the standard deviation is the mean."""

    name: ClassVar[str] = "exponential"
    discrete = False
    exposures = ()
    shared = (False,)
    support = PositiveReals()

    @classmethod
    def examples(cls) -> "tuple[Exponential, ...]":
        return (cls(),)

    def natural(self, f: torch.Tensor) -> torch.Tensor:
        return -(-bounded(f, BOUND)).exp()

    def statistic(self, y: torch.Tensor) -> torch.Tensor:
        return y.unsqueeze(-1)

    def log_partition(self, eta: torch.Tensor) -> torch.Tensor:
        return -(-eta[..., 0]).log()

    def log_base(self, y: torch.Tensor) -> torch.Tensor:
        return torch.zeros_like(y)

    @precisely
    def log_prob(self, f: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        log_mean = bounded(f[..., 0], BOUND)
        return -y * (-log_mean).exp() - log_mean

    def mean(self, f: torch.Tensor) -> torch.Tensor:
        return bounded(f[..., 0], BOUND).exp()

    def variance(self, f: torch.Tensor) -> torch.Tensor:
        return self.mean(f) ** 2

    def sample(self, f: torch.Tensor, generator: torch.Generator | None = None) -> torch.Tensor:
        y = torch.empty_like(f[..., 0]).exponential_(generator=generator) * self.mean(f.detach())
        return y.clamp(SMALLEST, LARGEST)

    def distribution(self, f: torch.Tensor) -> Any:
        from scipy import stats

        return Frozen(stats.expon, scale=to_numpy(self.mean(f.double())))

    def start(self, y: torch.Tensor, weight: torch.Tensor | None = None) -> torch.Tensor:
        rows, weights = observed(y, weight)
        if not len(rows):
            return rows.new_zeros(1)
        return unbounded(average(rows, weights).log(), BOUND).reshape(1)

    def from_moments(self, mean: torch.Tensor, variance: torch.Tensor, start: torch.Tensor) -> torch.Tensor:
        mean = torch.maximum(mean, LEAST * self.mean(start).to(mean))
        return unbounded(mean.log(), BOUND).unsqueeze(-1)
