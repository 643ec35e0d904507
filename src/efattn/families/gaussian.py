"""Real numbers.

log p(y) = -(y - mu)^2 e^b / 2 + b / 2 - log(2 pi) / 2,          b = log precision = -log sigma^2

variance a number         f = mu        eta = mu / sigma^2          t = y          A = sigma^2 eta^2 / 2
"learned", "predicted"    f = (mu, b)   eta = (mu e^b, -e^b / 2)    t = (y, y^2)   A = -eta_1^2 / (4 eta_2)
                                                                                       - log(-2 eta_2) / 2
"""

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar, final

import numpy as np
import torch

from efattn.families.base import Claim, ExponentialFamily, Frozen, ScipyFamily, to_numpy
from efattn.families.dispersion import Dispersion, check_dispersion, outputs
from efattn.families.marginal import moments, observed
from efattn.families.moments import log
from efattn.families.stable import LOG_2_PI, bounded, precisely, unbounded
from efattn.families.supports import DOUBLE, RealLine

BOUND = 30.0
LEFT = 0.05  # of a variance, where noise would explain all of it


@final
@dataclass(frozen=True, init=False, repr=False)
class Gaussian(ScipyFamily, ExponentialFamily):
    """Any finite number. The second output, where there is one, is the log precision."""

    noise: Dispersion = field(default="learned", metadata={"argument": "variance"})  # variance is a method
    name: ClassVar[str] = "gaussian"
    around_first: ClassVar[bool] = True
    discrete = False
    exposures = ()
    squared_loss = True

    def __init__(self, variance: Dispersion = "learned") -> None:
        check_dispersion("Gaussian", "variance", variance)
        object.__setattr__(self, "noise", variance)

    def __repr__(self) -> str:
        return f"Gaussian(variance={self.noise!r})"

    @classmethod
    def examples(cls) -> "tuple[Gaussian, ...]":
        return cls(), cls(variance=2.5), cls(variance="predicted")

    @property
    def standardised(self) -> bool:
        return isinstance(self.noise, str)

    @property
    def support(self) -> RealLine:
        return RealLine(DOUBLE) if self.standardised else RealLine()

    @property
    def shared(self) -> tuple[bool, ...]:
        return outputs(self.noise)

    @property
    def measured(self) -> bool:
        return isinstance(self.noise, str)

    def with_noise(self, f: torch.Tensor, variance: torch.Tensor) -> torch.Tensor:
        """A variance below 0 is taken away, down to a small part of what was there."""
        if not self.measured:
            return super().with_noise(f, variance)
        own = self.variance(f)
        b = -torch.maximum(own + variance.to(f.dtype), LEFT * own).log()
        return torch.stack([f[..., 0], unbounded(b, BOUND)], -1)

    def natural(self, f: torch.Tensor) -> torch.Tensor:
        precision = self._log_precision(f).exp()
        if self.size == 1:
            return f * precision.unsqueeze(-1)
        return torch.stack([f[..., 0] * precision, -precision / 2], -1)

    def statistic(self, y: torch.Tensor) -> torch.Tensor:
        return torch.stack([y, y**2][: self.size], -1)

    def log_partition(self, eta: torch.Tensor) -> torch.Tensor:
        if not isinstance(self.noise, str):
            return self.noise * eta[..., 0] ** 2 / 2
        return -(eta[..., 0] ** 2) / (4 * eta[..., 1]) - (-2 * eta[..., 1]).log() / 2

    def log_base(self, y: torch.Tensor) -> torch.Tensor:
        if isinstance(self.noise, str):
            return torch.full_like(y, -LOG_2_PI / 2)
        return -(y**2) / (2 * self.noise) - (LOG_2_PI + math.log(self.noise)) / 2

    @precisely
    def log_prob(self, f: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        b = self._log_precision(f)
        return -((y - f[..., 0]) ** 2) * b.exp() / 2 + (b - LOG_2_PI) / 2

    def mean(self, f: torch.Tensor) -> torch.Tensor:
        return f[..., 0]

    def variance(self, f: torch.Tensor) -> torch.Tensor:
        return (-self._log_precision(f)).exp()

    def sample(self, f: torch.Tensor, generator: torch.Generator | None = None) -> torch.Tensor:
        return torch.normal(f[..., 0].detach(), self.variance(f.detach()).sqrt(), generator=generator)

    def distribution(self, f: torch.Tensor) -> Any:
        from scipy import stats

        return Frozen(stats.norm, to_numpy(f[..., 0]), to_numpy(self.variance(f.double()).sqrt()))

    def start(self, y: torch.Tensor, weight: torch.Tensor | None = None) -> torch.Tensor:
        rows, weights = observed(y, weight)
        if not len(rows):
            return rows.new_zeros(self.size)
        mean, variance = moments(rows, weights)
        b = -variance.clamp_min(
            1e-10 * (1 + mean**2)
        ).log()  # a constant column has a sharp density, not an endless one
        return torch.stack([mean, unbounded(b, BOUND)][: self.size])

    def from_moments(self, mean: torch.Tensor, variance: torch.Tensor, start: torch.Tensor) -> torch.Tensor:
        return torch.stack([mean, unbounded(-log(variance), BOUND)][: self.size], -1)

    def identified(self, f: torch.Tensor, mean: torch.Tensor) -> torch.Tensor:
        """The mean, which is the natural parameter times the variance, and where predicted the log variance: the units
        in which f stands are each fit's own."""
        return torch.cat([mean, self.variance(f).log().unsqueeze(-1)], -1) if self.noise == "predicted" else mean

    @classmethod
    def applicable(cls, values: np.ndarray) -> Claim | None:
        return Claim(6, "real numbers" if values.size else "nothing observed")

    def _log_precision(self, f: torch.Tensor) -> torch.Tensor:
        if isinstance(self.noise, str):
            return bounded(f[..., 1], BOUND)
        return torch.full_like(f[..., 0], -math.log(self.noise))
