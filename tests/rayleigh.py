"""A family that efattn does not have, as a user would add it: one class, and nothing else.

log p(y) = log y - 2 log s - y^2 / (2 s^2)    f = log s,   eta = -1 / (2 s^2),   t(y) = y^2,   A = -log(-2 eta),   h = y
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar, final

import torch

from efattn.families.base import ExponentialFamily, ScipyFamily, to_numpy
from efattn.families.marginal import average, observed
from efattn.families.stable import bounded, precisely, unbounded
from efattn.families.supports import LARGEST, SMALLEST, PositiveReals

BOUND = 20.0


@final
@dataclass(frozen=True)
class Rayleigh(ScipyFamily, ExponentialFamily):
    """The length of a vector of two Gaussian numbers of scale s, as wind speeds are."""

    name: ClassVar[str] = "rayleigh"
    discrete = False
    exposures = ()
    shared = (False,)
    support = PositiveReals()

    @classmethod
    def examples(cls) -> "tuple[Rayleigh, ...]":
        return (cls(),)

    def natural(self, f: torch.Tensor) -> torch.Tensor:
        return -(-2 * bounded(f, BOUND)).exp() / 2

    def statistic(self, y: torch.Tensor) -> torch.Tensor:
        return (y**2).unsqueeze(-1)

    def log_partition(self, eta: torch.Tensor) -> torch.Tensor:
        return -(-2 * eta[..., 0]).log()

    def log_base(self, y: torch.Tensor) -> torch.Tensor:
        return y.log()

    @precisely
    def log_prob(self, f: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return self.natural_log_prob(f, y)

    def mean(self, f: torch.Tensor) -> torch.Tensor:
        return math.sqrt(math.pi / 2) * self._scale(f)

    def variance(self, f: torch.Tensor) -> torch.Tensor:
        return (2 - math.pi / 2) * self._scale(f) ** 2

    def sample(self, f: torch.Tensor, generator: torch.Generator | None = None) -> torch.Tensor:
        squared = torch.empty_like(f[..., 0]).exponential_(generator=generator)
        return ((2 * squared).sqrt() * self._scale(f.detach())).clamp(SMALLEST, LARGEST)

    def distribution(self, f: torch.Tensor) -> Any:
        from scipy import stats

        return stats.rayleigh(scale=to_numpy(self._scale(f.double())))

    def start(self, y: torch.Tensor, weight: torch.Tensor | None = None) -> torch.Tensor:
        rows, weights = observed(y, weight)
        if not len(rows):
            return rows.new_zeros(1)
        return unbounded((average(rows**2, weights) / 2).log() / 2, BOUND).reshape(1)

    def _scale(self, f: torch.Tensor) -> torch.Tensor:
        return bounded(f[..., 0], BOUND).exp()
