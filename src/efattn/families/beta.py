"""Proportions.

    log p(y) = (a - 1) log y + (b - 1) log(1 - y) - log B(a, b),   a = m k,   b = (1 - m) k

f = (logit m, log k): mean m and concentration k.
eta = (a - 1, b - 1),   t(y) = (log y, log(1 - y)),   A = log B(a, b),   h = 1
"""

from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np
import torch
from torch.nn.functional import logsigmoid

from efattn.families.base import Claim, ExponentialFamily, Frozen, ScipyFamily, to_numpy
from efattn.families.dispersion import Dispersion, check_dispersion, log_dispersion, outputs
from efattn.families.marginal import by_statistics, moments, observed
from efattn.families.moments import LEAST, log, logit
from efattn.families.stable import bounded, log_standard_gamma, precise, precisely
from efattn.families.supports import SMALLEST, UnitInterval

MEAN_BOUND, CONCENTRATION_BOUND = 12.0, 10.0  # log Gamma of tiny and of huge numbers cancels
FAR_FROM_ONE = 0.1  # what no value of a column exceeds is small numbers in some unit, rather than proportions


@final
@dataclass(frozen=True)
class Beta(ScipyFamily, ExponentialFamily):
    """Numbers between 0 and 1, both excluded. The second output, where there is one, is the log concentration."""

    concentration: Dispersion = "learned"
    name: ClassVar[str] = "beta"
    discrete = False
    exposures = ()
    support = UnitInterval()

    def __post_init__(self) -> None:
        check_dispersion("Beta", "concentration", self.concentration)

    @classmethod
    def examples(cls) -> "tuple[Beta, ...]":
        return cls(), cls(concentration=6.0), cls(concentration="predicted")

    @property
    def shared(self) -> tuple[bool, ...]:
        return outputs(self.concentration)

    def natural(self, f: torch.Tensor) -> torch.Tensor:
        return self._counts(f) - 1

    def statistic(self, y: torch.Tensor) -> torch.Tensor:
        return torch.stack([y.log(), (-y).log1p()], -1)

    def log_partition(self, eta: torch.Tensor) -> torch.Tensor:
        a, b = (eta + 1).unbind(-1)
        return torch.lgamma(a) + torch.lgamma(b) - torch.lgamma(a + b)

    def log_base(self, y: torch.Tensor) -> torch.Tensor:
        return torch.zeros_like(y)

    @precisely
    def log_prob(self, f: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        a, b = self._counts(f).unbind(-1)
        log_beta = torch.lgamma(a) + torch.lgamma(b) - torch.lgamma(a + b)
        return (a - 1) * y.log() + (b - 1) * (-y).log1p() - log_beta

    def mean(self, f: torch.Tensor) -> torch.Tensor:
        return bounded(f[..., 0], MEAN_BOUND).sigmoid()

    def variance(self, f: torch.Tensor) -> torch.Tensor:
        logit = bounded(f[..., 0], MEAN_BOUND)
        log_k = log_dispersion(self.concentration, f, CONCENTRATION_BOUND)
        return logit.sigmoid() * (-logit).sigmoid() / (1 + log_k.exp())

    def sample(self, f: torch.Tensor, generator: torch.Generator | None = None) -> torch.Tensor:
        a, b = self._counts(precise(f.detach())).unbind(-1)
        y = (log_standard_gamma(a, generator) - log_standard_gamma(b, generator)).sigmoid()
        return y.to(f.dtype).clamp(SMALLEST, 1 - torch.finfo(torch.float32).eps)

    def distribution(self, f: torch.Tensor) -> Any:
        from scipy import stats

        a, b = self._counts(f.double()).unbind(-1)
        return Frozen(stats.beta, to_numpy(a), to_numpy(b))

    def start(self, y: torch.Tensor, weight: torch.Tensor | None = None) -> torch.Tensor:
        rows, weights = observed(y, weight)
        if not len(rows):
            return rows.new_zeros(self.size)
        mean, variance = moments(rows, weights)
        spread = mean * (1 - mean)
        log_k = (spread / variance.clamp(1e-4 * spread, 0.9 * spread) - 1).log()
        return by_statistics(self, rows, weights, torch.stack([mean.logit(), log_k][: self.size]))

    def from_moments(self, mean: torch.Tensor, variance: torch.Tensor, start: torch.Tensor) -> torch.Tensor:
        mean = mean.clamp(LEAST, 1 - LEAST)
        log_k = log(mean * (1 - mean) / variance.clamp_min(1e-30) - 1)
        return torch.stack([logit(mean), log_k.clamp(-CONCENTRATION_BOUND, CONCENTRATION_BOUND)][: self.size], -1)

    @classmethod
    def applicable(cls, values: np.ndarray) -> Claim | None:
        inside = values.size and cls.support.contains(values).all() and values.max() > FAR_FROM_ONE
        return Claim(4, "strictly between 0 and 1") if inside else None

    def _counts(self, f: torch.Tensor) -> torch.Tensor:
        """a and b, (..., 2)."""
        logit = bounded(f[..., 0], MEAN_BOUND)
        log_k = log_dispersion(self.concentration, f, CONCENTRATION_BOUND)
        return torch.stack([logsigmoid(logit) + log_k, logsigmoid(-logit) + log_k], -1).exp()
