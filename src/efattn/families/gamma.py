"""Positive numbers.

log p(y) = (a - 1) log y - y r + a log r - log Gamma(a),   a = shape,   r = rate = a / mean

shape a number            f = log mean               eta = -r            t = y            A = -a log(-eta)
"learned", "predicted"    f = (log mean, log a)      eta = (a - 1, -r)   t = (log y, y)   A = log Gamma(a) - a log r
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np
import torch

from efattn.families.base import Claim, ExponentialFamily, Frozen, ScipyFamily, to_numpy
from efattn.families.dispersion import Dispersion, check_dispersion, log_dispersion, outputs
from efattn.families.marginal import by_statistics, moments, observed
from efattn.families.moments import LEAST, log
from efattn.families.stable import bounded, log_standard_gamma, precise, precisely, unbounded
from efattn.families.supports import LARGEST, SMALLEST, PositiveReals

MEAN_BOUND, SHAPE_BOUND = 24.0, 10.0  # the variance is mean^2 / shape


@final
@dataclass(frozen=True)
class Gamma(ScipyFamily, ExponentialFamily):
    """Finite numbers > 0, skewed to the right. The second output, where there is one, is the log shape."""

    shape: Dispersion = "learned"
    name: ClassVar[str] = "gamma"
    discrete = False
    exposures = ()
    support = PositiveReals()

    def __post_init__(self) -> None:
        check_dispersion("Gamma", "shape", self.shape)

    @classmethod
    def examples(cls) -> "tuple[Gamma, ...]":
        return cls(), cls(shape=2.5), cls(shape="predicted")

    @property
    def shared(self) -> tuple[bool, ...]:
        return outputs(self.shape)

    def natural(self, f: torch.Tensor) -> torch.Tensor:
        log_mean, log_shape = self._logs(f)
        rate = (log_shape - log_mean).exp()
        return torch.stack([log_shape.expm1(), -rate][-self.size :], -1)

    def statistic(self, y: torch.Tensor) -> torch.Tensor:
        return torch.stack([y.log(), y][-self.size :], -1)

    def log_partition(self, eta: torch.Tensor) -> torch.Tensor:
        if not isinstance(self.shape, str):
            return -self.shape * (-eta[..., 0]).log()
        shape = eta[..., 0] + 1
        return torch.lgamma(shape) - shape * (-eta[..., 1]).log()

    def log_base(self, y: torch.Tensor) -> torch.Tensor:
        if isinstance(self.shape, str):
            return torch.zeros_like(y)
        return (self.shape - 1) * y.log() - math.lgamma(self.shape)

    @precisely
    def log_prob(self, f: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        log_mean, log_shape = self._logs(f)
        a, ratio = log_shape.exp(), y.log() - log_mean
        return a * (log_shape + ratio - ratio.exp()) - y.log() - torch.lgamma(a)

    def mean(self, f: torch.Tensor) -> torch.Tensor:
        return self._logs(f)[0].exp()

    def variance(self, f: torch.Tensor) -> torch.Tensor:
        log_mean, log_shape = self._logs(f)
        return (2 * log_mean - log_shape).exp()

    def sample(self, f: torch.Tensor, generator: torch.Generator | None = None) -> torch.Tensor:
        log_mean, log_shape = self._logs(precise(f.detach()))
        y = (log_standard_gamma(log_shape.exp(), generator) + log_mean - log_shape).exp()
        return y.to(f.dtype).clamp(SMALLEST, LARGEST)

    def distribution(self, f: torch.Tensor) -> Any:
        from scipy import stats

        log_mean, log_shape = self._logs(f.double())
        return Frozen(stats.gamma, to_numpy(log_shape.exp()), scale=to_numpy((log_mean - log_shape).exp()))

    def start(self, y: torch.Tensor, weight: torch.Tensor | None = None) -> torch.Tensor:
        rows, weights = observed(y, weight)
        if not len(rows):
            return rows.new_zeros(self.size)
        mean, variance = moments(rows, weights)
        log_shape = (mean**2 / variance.clamp_min(1e-4 * mean**2)).log()
        guess = torch.stack([unbounded(mean.log(), MEAN_BOUND), log_shape][: self.size])
        return guess if self.size == 1 else by_statistics(self, rows, weights, guess)

    def from_moments(self, mean: torch.Tensor, variance: torch.Tensor, start: torch.Tensor) -> torch.Tensor:
        log_mean = torch.maximum(mean, LEAST * self.mean(start).to(mean)).log()
        log_shape = (2 * log_mean - log(variance)).clamp(-SHAPE_BOUND, SHAPE_BOUND)
        return torch.stack([unbounded(log_mean, MEAN_BOUND), log_shape][: self.size], -1)

    @classmethod
    def applicable(cls, values: np.ndarray) -> Claim | None:
        if not values.size or not cls.support.contains(values).all() or values.mean() <= 1.2 * np.median(values):
            return None
        return Claim(5, "positive and skewed")

    def _logs(self, f: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return bounded(f[..., 0], MEAN_BOUND), log_dispersion(self.shape, f, SHAPE_BOUND)
