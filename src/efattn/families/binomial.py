"""Successes in n trials.

log p(y) = y f - n log(1 + exp(f)) + log C(n, y)          eta = f = logit p,   t(y) = y,   A = n softplus,   h = C(n, y)
"""

from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np
import torch
from torch.nn.functional import logsigmoid, softplus

from efattn.families.base import ExponentialFamily, Frozen, ScipyFamily, to_numpy
from efattn.families.dispersion import check_whole
from efattn.families.evidence import whole_ends
from efattn.families.marginal import average, observed
from efattn.families.moments import logit
from efattn.families.stable import precisely
from efattn.families.supports import WholeNumbers

MOST = 2**24  # trials: in single precision, larger whole numbers are not told apart


@final
@dataclass(frozen=True)
class Binomial(ScipyFamily, ExponentialFamily):
    """0, 1, ..., n successes out of n trials."""

    trials: int
    name: ClassVar[str] = "binomial"
    discrete = True
    exposures = ()
    shared = (False,)

    def __post_init__(self) -> None:
        why = "single precision cannot tell larger ones apart. Choose 'gaussian', or proportions and 'beta'."
        check_whole("Binomial", "trials", self.trials, 1, MOST, why)

    @classmethod
    def examples(cls) -> "tuple[Binomial, ...]":
        return (cls(trials=7),)

    @property
    def support(self) -> WholeNumbers:
        return WholeNumbers(0, self.trials)

    def natural(self, f: torch.Tensor) -> torch.Tensor:
        return f

    def statistic(self, y: torch.Tensor) -> torch.Tensor:
        return y.unsqueeze(-1)

    def log_partition(self, eta: torch.Tensor) -> torch.Tensor:
        return self.trials * softplus(eta[..., 0])

    def log_base(self, y: torch.Tensor) -> torch.Tensor:
        n = torch.full_like(y, self.trials)
        return torch.lgamma(n + 1) - torch.lgamma(y + 1) - torch.lgamma(n - y + 1)

    @precisely
    def log_prob(self, f: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        f = f[..., 0]
        return y * logsigmoid(f) + (self.trials - y) * logsigmoid(-f) + self.log_base(y)

    def mean(self, f: torch.Tensor) -> torch.Tensor:
        return self.trials * f[..., 0].sigmoid()

    def variance(self, f: torch.Tensor) -> torch.Tensor:
        return self.trials * f[..., 0].sigmoid() * (-f[..., 0]).sigmoid()

    def sample(self, f: torch.Tensor, generator: torch.Generator | None = None) -> torch.Tensor:
        p = f[..., 0].detach().sigmoid()
        return torch.binomial(torch.full_like(p, self.trials), p, generator=generator)

    def distribution(self, f: torch.Tensor) -> Any:
        from scipy import stats

        return Frozen(stats.binom, self.trials, to_numpy(f[..., 0].double().sigmoid()))

    def start(self, y: torch.Tensor, weight: torch.Tensor | None = None) -> torch.Tensor:
        rows, weights = observed(y, weight)
        if not len(rows):
            return rows.new_zeros(1)
        rim = 0.5 / (len(rows) * self.trials + 1)  # half a success, half a failure
        return (average(rows, weights) / self.trials).clamp(rim, 1 - rim).logit().reshape(1)

    def from_moments(self, mean: torch.Tensor, variance: torch.Tensor, start: torch.Tensor) -> torch.Tensor:
        return logit(mean / self.trials).unsqueeze(-1)

    @classmethod
    def sized(cls, values: np.ndarray, columns: int) -> dict[str, Any]:
        return {"trials": max(whole_ends(values)[1], 1)}
