"""Positive numbers whose logarithm is normal.

log p(y) = -(log y - m)^2 e^b / 2 + b / 2 - log(2 pi) / 2 - log y,          b = -log s^2,   s^2 = Var[log y]

log_variance a number     f = m         eta = m / s^2               t = log y             A = s^2 eta^2 / 2
"learned", "predicted"    f = (m, b)    eta = (m e^b, -e^b / 2)     t = (log y, log^2 y)  A = -eta_1^2 / (4 eta_2)
                                                                                              - log(-2 eta_2) / 2
E[y] = exp(m + s^2 / 2),   Var[y] = (exp(s^2) - 1) E[y]^2
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar, final

import torch

from efattn.families.base import ExponentialFamily, Frozen, ScipyFamily, to_numpy
from efattn.families.dispersion import Dispersion, check_dispersion, log_dispersion, outputs
from efattn.families.marginal import moments, observed
from efattn.families.moments import LEAST
from efattn.families.stable import LOG_2_PI, bounded, precise, precisely, unbounded
from efattn.families.supports import LARGEST, SMALLEST, PositiveReals

BOUND = 10.0  # of b
MEAN_BOUND, VARIANCE_BOUND = 24.0, 60.0  # of their logarithms: beyond, single precision would be infinite


@final
@dataclass(frozen=True)
class LogNormal(ScipyFamily, ExponentialFamily):
    """Finite numbers > 0, spread over orders of magnitude. The second output, where there is one, is the log precision
    of log y."""

    log_variance: Dispersion = "learned"
    name: ClassVar[str] = "log_normal"
    around_first: ClassVar[bool] = True
    discrete = False
    exposures = ()
    support = PositiveReals()

    def __post_init__(self) -> None:
        check_dispersion("LogNormal", "log_variance", self.log_variance)

    @classmethod
    def examples(cls) -> "tuple[LogNormal, ...]":
        return cls(), cls(log_variance=0.5), cls(log_variance="predicted")

    @property
    def shared(self) -> tuple[bool, ...]:
        return outputs(self.log_variance)

    def natural(self, f: torch.Tensor) -> torch.Tensor:
        precision = self._log_precision(f).exp()
        return torch.stack([f[..., 0] * precision, -precision / 2][: self.size], -1)

    def statistic(self, y: torch.Tensor) -> torch.Tensor:
        return torch.stack([y.log(), y.log() ** 2][: self.size], -1)

    def log_partition(self, eta: torch.Tensor) -> torch.Tensor:
        if not isinstance(self.log_variance, str):
            return self.log_variance * eta[..., 0] ** 2 / 2
        return -(eta[..., 0] ** 2) / (4 * eta[..., 1]) - (-2 * eta[..., 1]).log() / 2

    def log_base(self, y: torch.Tensor) -> torch.Tensor:
        if isinstance(self.log_variance, str):
            return -LOG_2_PI / 2 - y.log()
        return -(y.log() ** 2) / (2 * self.log_variance) - (LOG_2_PI + math.log(self.log_variance)) / 2 - y.log()

    @precisely
    def log_prob(self, f: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        b = self._log_precision(f)
        return -((y.log() - f[..., 0]) ** 2) * b.exp() / 2 + (b - LOG_2_PI) / 2 - y.log()

    def mean(self, f: torch.Tensor) -> torch.Tensor:
        return bounded(f[..., 0] + self._squared(f) / 2, MEAN_BOUND).exp()

    def variance(self, f: torch.Tensor) -> torch.Tensor:
        s2 = self._squared(f)
        log_excess = s2 + (-(-s2).expm1()).clamp_min(torch.finfo(f.dtype).tiny).log()  # log(exp(s2) - 1)
        return bounded(2 * f[..., 0] + s2 + log_excess, VARIANCE_BOUND).exp()

    def sample(self, f: torch.Tensor, generator: torch.Generator | None = None) -> torch.Tensor:
        exact = precise(f.detach())
        y = torch.normal(exact[..., 0], self._squared(exact).sqrt(), generator=generator).exp()
        return y.to(f.dtype).clamp(SMALLEST, LARGEST)

    def distribution(self, f: torch.Tensor) -> Any:
        from scipy import stats

        f = f.double()
        sigma, scale = self._squared(f).sqrt(), f[..., 0].clamp(-700, 700).exp()
        return Frozen(stats.lognorm, to_numpy(sigma), scale=to_numpy(scale))

    def start(self, y: torch.Tensor, weight: torch.Tensor | None = None) -> torch.Tensor:
        rows, weights = observed(y, weight)
        if not len(rows):
            return rows.new_zeros(self.size)
        mean, variance = moments(rows.log(), weights)
        return torch.stack([mean, unbounded(-variance.clamp_min(1e-8).log(), BOUND)][: self.size])

    def from_moments(self, mean: torch.Tensor, variance: torch.Tensor, start: torch.Tensor) -> torch.Tensor:
        mean = torch.maximum(mean, LEAST * self.mean(start).to(mean))
        if isinstance(self.log_variance, str):
            ratio = variance / mean.clamp_min(1e-18) / mean.clamp_min(1e-18)
            s2 = ratio.clamp(1e-8, 1e12).log1p()
        else:
            s2 = torch.full_like(mean, self.log_variance)
        return torch.stack([unbounded(mean.log(), MEAN_BOUND) - s2 / 2, unbounded(-s2.log(), BOUND)][: self.size], -1)

    def from_log_moments(
        self, mean: torch.Tensor, variance: torch.Tensor, start: torch.Tensor, more: float = 0.0
    ) -> torch.Tensor:
        return torch.stack([unbounded(mean, MEAN_BOUND), unbounded(-variance.log(), BOUND)][: self.size], -1)

    def on_its_scale(self, f: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return y.clamp_min(SMALLEST).log() - f[..., 0], self._squared(f)

    def _log_precision(self, f: torch.Tensor) -> torch.Tensor:
        known = self.log_variance
        return log_dispersion(known if isinstance(known, str) else 1 / known, f, BOUND)

    def _squared(self, f: torch.Tensor) -> torch.Tensor:
        return (-self._log_precision(f)).exp()
