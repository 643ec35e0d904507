"""Counts that vary more than Poisson ones: variance m + m^2 / r.

log p(y) = y log(m / (m + r)) + r log(r / (m + r)) + log Gamma(y + r) - log Gamma(r) - log y!,   f = (log m, log r)

r a number                eta = -softplus(log r - f),   t(y) = y,   A = -r log(1 - exp(eta)): an exponential family
"learned", "predicted"    y and r meet in log Gamma(y + r): a relative, not an exponential family
"""

from dataclasses import dataclass, field
from typing import Any, ClassVar, final

import numpy as np
import torch
from torch.nn.functional import softplus

from efattn.errors import EfattnError
from efattn.families.base import Claim, ExponentialFamily, Frozen, ScipyFamily, to_numpy
from efattn.families.dispersion import Dispersion, check_dispersion, log_dispersion, outputs
from efattn.families.evidence import OVERDISPERSED, dispersion_of_counts
from efattn.families.marginal import average, maximise, moments, observed
from efattn.families.moments import LEAST, log
from efattn.families.stable import bounded, log_standard_gamma, precise, precisely, unbounded
from efattn.families.supports import WholeNumbers

MEAN_BOUND, R_BOUND = 24.0, 10.0  # the variance is m + m^2 / r, and log Gamma of a huge r cancels


@final
@dataclass(frozen=True)
class NegativeBinomial(ScipyFamily, ExponentialFamily):
    """0, 1, 2, ... With r learned or predicted it has no natural form: `exponential` is False."""

    r: Dispersion = "learned"
    exponential: bool = field(init=False, repr=False, compare=False)
    name: ClassVar[str] = "negative_binomial"
    discrete = True
    exposures = (0,)
    support = WholeNumbers(0)

    def __post_init__(self) -> None:
        check_dispersion("NegativeBinomial", "r", self.r)
        object.__setattr__(self, "exponential", not isinstance(self.r, str))

    @classmethod
    def examples(cls) -> "tuple[NegativeBinomial, ...]":
        return cls(r=1.5), cls(), cls(r="predicted")

    @property
    def shared(self) -> tuple[bool, ...]:
        return outputs(self.r)

    def natural(self, f: torch.Tensor) -> torch.Tensor:
        self._known_r()
        log_mean, log_r = self._logs(f)
        return -softplus(log_r - log_mean).unsqueeze(-1)

    def statistic(self, y: torch.Tensor) -> torch.Tensor:
        return y.unsqueeze(-1)

    def log_partition(self, eta: torch.Tensor) -> torch.Tensor:
        return -self._known_r() * (-eta[..., 0].expm1()).log()

    def log_base(self, y: torch.Tensor) -> torch.Tensor:
        return _log_choose(y, torch.full_like(y, self._known_r()))

    @precisely
    def log_prob(self, f: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        log_mean, log_r = self._logs(f)
        r = log_r.exp()
        return -y * softplus(log_r - log_mean) - r * softplus(log_mean - log_r) + _log_choose(y, r)

    def mean(self, f: torch.Tensor) -> torch.Tensor:
        return self._logs(f)[0].exp()

    def variance(self, f: torch.Tensor) -> torch.Tensor:
        log_mean, log_r = self._logs(f)
        return log_mean.exp() + (2 * log_mean - log_r).exp()

    def sample(self, f: torch.Tensor, generator: torch.Generator | None = None) -> torch.Tensor:
        log_mean, log_r = self._logs(precise(f.detach()))
        rate = (log_standard_gamma(log_r.exp(), generator) + log_mean - log_r).clamp_max(42).exp()  # int64 ends at e^43
        return torch.poisson(rate, generator=generator).to(f.dtype)

    def distribution(self, f: torch.Tensor) -> Any:
        from scipy import stats

        log_mean, log_r = self._logs(f.double())
        return Frozen(stats.nbinom, to_numpy(log_r.exp()), to_numpy((log_r - log_mean).sigmoid()))

    def start(self, y: torch.Tensor, weight: torch.Tensor | None = None) -> torch.Tensor:
        rows, weights = observed(y, weight)
        if not len(rows):
            return rows.new_zeros(self.size)
        mean, variance = moments(rows, weights)
        mean = mean.clamp_min(0.5 / (len(rows) + 1))
        log_r = (mean**2 / (variance - mean).clamp_min(0.01 * mean**2)).log()
        guess = torch.stack([unbounded(mean.log(), MEAN_BOUND), log_r][: self.size])
        if self.size == 1:
            return guess
        counts, where = rows.unique(return_inverse=True)
        times = torch.zeros_like(counts).index_add_(0, where, weights)
        return maximise(lambda f: average(self.log_prob(f, counts), times), guess)

    def from_moments(self, mean: torch.Tensor, variance: torch.Tensor, start: torch.Tensor) -> torch.Tensor:
        mean = mean.clamp_min(LEAST)
        log_r = (2 * mean.log() - log(variance - mean)).clamp(-R_BOUND, R_BOUND)  # Poisson is r = infinity
        return torch.stack([unbounded(mean.log(), MEAN_BOUND), log_r][: self.size], -1)

    @classmethod
    def applicable(cls, values: np.ndarray) -> Claim | None:
        ratio = dispersion_of_counts(values)
        if ratio is None or ratio <= OVERDISPERSED:
            return None
        return Claim(3, "counts", f"variance {ratio:.1f} times the mean")

    def _logs(self, f: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return bounded(f[..., 0], MEAN_BOUND), log_dispersion(self.r, f, R_BOUND)

    def _known_r(self) -> float:
        if isinstance(self.r, str):
            raise EfattnError(
                f"{self!r} has no natural form: only with a known r, NegativeBinomial(r=1.0), has it one."
            )
        return self.r


def _log_choose(y: torch.Tensor, r: torch.Tensor) -> torch.Tensor:
    return torch.lgamma(y + r) - torch.lgamma(r) - torch.lgamma(y + 1)
