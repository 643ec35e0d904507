"""Positive numbers between skewed to the right and skewed to the left.

log p(y) = log k - log y + t - e^t,   t = k (log y - log l),   l = mean / Gamma(1 + 1/k) the scale,   k the shape

f = (log mean, log k). Below k = 1 most lie near 0 and a few far out; about 3.6 it is nearly symmetric, and then skewed
to the left. With a known k an exponential family in y^k, else a relative.
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar, final

import torch

from efattn.families.base import Family, Frozen, ScipyFamily, to_numpy
from efattn.families.dispersion import Dispersion, check_dispersion, log_dispersion, outputs
from efattn.families.marginal import average, maximise, moments, observed
from efattn.families.moments import LEAST
from efattn.families.stable import bounded, precise, precisely, unbounded
from efattn.families.supports import LARGEST, SMALLEST, PositiveReals

MEAN_BOUND, SHAPE_BOUND = 24.0, 3.5  # of logarithms
VARIANCE_BOUND = 60.0  # of its logarithm: beyond, single precision would be infinite
STEPS = 60  # halves of the range of log k
FAR = 60.0  # of t


@final
@dataclass(frozen=True)
class Weibull(ScipyFamily, Family):
    """Finite numbers > 0, such as strengths, speeds of wind and times until something fails. The second output, where
    there is one, is the log shape."""

    shape: Dispersion = "learned"
    name: ClassVar[str] = "weibull"
    discrete = False
    exposures = ()
    support = PositiveReals()

    def __post_init__(self) -> None:
        check_dispersion("Weibull", "shape", self.shape)

    @classmethod
    def examples(cls) -> "tuple[Weibull, ...]":
        return cls(), cls(shape=2.5), cls(shape="predicted")

    @property
    def shared(self) -> tuple[bool, ...]:
        return outputs(self.shape)

    @precisely
    def log_prob(self, f: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        log_mean, log_shape = self._logs(f)
        t = log_shape.exp() * (y.log() - _log_scale(log_mean, log_shape))
        far = (t - FAR).clamp_min(0)  # a tangent, where e^t would be infinite
        return log_shape - y.log() + t - t.clamp_max(FAR).exp() * (1 + far)

    def mean(self, f: torch.Tensor) -> torch.Tensor:
        return self._logs(f)[0].exp()

    def variance(self, f: torch.Tensor) -> torch.Tensor:
        log_mean, log_shape = self._logs(f)
        ratio = _ratio(log_shape)
        log_excess = ratio + (-(-ratio).expm1()).clamp_min(torch.finfo(f.dtype).tiny).log()  # log(exp(ratio) - 1)
        return bounded(2 * log_mean + log_excess, VARIANCE_BOUND).exp()

    def sample(self, f: torch.Tensor, generator: torch.Generator | None = None) -> torch.Tensor:
        log_mean, log_shape = self._logs(precise(f.detach()))
        waits = torch.empty_like(log_mean).exponential_(generator=generator)
        y = (_log_scale(log_mean, log_shape) + waits.log() / log_shape.exp()).exp()
        return y.to(f.dtype).clamp(SMALLEST, LARGEST)

    def distribution(self, f: torch.Tensor) -> Any:
        from scipy import stats

        log_mean, log_shape = self._logs(f.double())
        scale = _log_scale(log_mean, log_shape).clamp(-700, 700).exp()
        return Frozen(stats.weibull_min, to_numpy(log_shape.exp()), scale=to_numpy(scale))

    def start(self, y: torch.Tensor, weight: torch.Tensor | None = None) -> torch.Tensor:
        rows, weights = observed(y, weight)
        if not len(rows):
            return rows.new_zeros(self.size)
        mean, variance = moments(rows, weights)
        guess = self.from_moments(mean, variance, rows.new_zeros(self.size))
        return maximise(lambda f: average(self.log_prob(f, rows), weights), guess)

    def from_moments(self, mean: torch.Tensor, variance: torch.Tensor, start: torch.Tensor) -> torch.Tensor:
        mean = torch.maximum(mean, LEAST * self.mean(start).to(mean))
        wanted = (variance / mean / mean).clamp_min(0).log1p()
        low, high = torch.full_like(wanted, -SHAPE_BOUND), torch.full_like(wanted, SHAPE_BOUND)
        for _ in range(STEPS):
            middle = (low + high) / 2
            wide = _ratio(middle) > wanted
            low, high = torch.where(wide, middle, low), torch.where(wide, high, middle)
        return torch.stack([unbounded(mean.log(), MEAN_BOUND), unbounded(low, SHAPE_BOUND)][: self.size], -1)

    def _logs(self, f: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        log_mean = bounded(f[..., 0], MEAN_BOUND)
        if not isinstance(self.shape, str):
            return log_mean, torch.full_like(log_mean, math.log(self.shape))
        return log_mean, log_dispersion(self.shape, f, SHAPE_BOUND)


def _log_scale(log_mean: torch.Tensor, log_shape: torch.Tensor) -> torch.Tensor:
    return log_mean - torch.lgamma(1 + (-log_shape).exp())


def _ratio(log_shape: torch.Tensor) -> torch.Tensor:
    """log of E[y^2] / E[y]^2, which falls with the shape"""
    part = (-log_shape.double()).exp()
    return (torch.lgamma(1 + 2 * part) - 2 * torch.lgamma(1 + part)).clamp_min(0).to(log_shape)
