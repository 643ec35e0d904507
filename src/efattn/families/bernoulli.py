"""Yes or no.

log p(y) = y f - log(1 + exp(f))          eta = f = logit p,   t(y) = y,   A = softplus,   h = 1
"""

from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np
import torch
from torch.nn.functional import logsigmoid, softplus

from efattn.families.base import Claim, ExponentialFamily, Frozen, ScipyFamily, to_numpy
from efattn.families.evidence import are_whole
from efattn.families.marginal import average, observed
from efattn.families.moments import logit
from efattn.families.supports import WholeNumbers


@final
@dataclass(frozen=True)
class Bernoulli(ScipyFamily, ExponentialFamily):
    """0 or 1."""

    name: ClassVar[str] = "bernoulli"
    discrete = True
    exposures = ()
    shared = (False,)
    cut_points = 1
    support = WholeNumbers(0, 1)

    @classmethod
    def examples(cls) -> "tuple[Bernoulli, ...]":
        return (cls(),)

    def natural(self, f: torch.Tensor) -> torch.Tensor:
        return f

    def statistic(self, y: torch.Tensor) -> torch.Tensor:
        return y.unsqueeze(-1)

    def log_partition(self, eta: torch.Tensor) -> torch.Tensor:
        return softplus(eta[..., 0])

    def log_base(self, y: torch.Tensor) -> torch.Tensor:
        return torch.zeros_like(y)

    def log_prob(self, f: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return logsigmoid((2 * y.to(f.dtype) - 1) * f[..., 0])

    def mean(self, f: torch.Tensor) -> torch.Tensor:
        return f[..., 0].sigmoid()

    def variance(self, f: torch.Tensor) -> torch.Tensor:
        return f[..., 0].sigmoid() * (-f[..., 0]).sigmoid()

    def sample(self, f: torch.Tensor, generator: torch.Generator | None = None) -> torch.Tensor:
        return torch.bernoulli(f[..., 0].detach().sigmoid(), generator=generator)

    def distribution(self, f: torch.Tensor) -> Any:
        from scipy import stats

        return Frozen(stats.bernoulli, to_numpy(f[..., 0].double().sigmoid()))

    def start(self, y: torch.Tensor, weight: torch.Tensor | None = None) -> torch.Tensor:
        rows, weights = observed(y, weight)
        if not len(rows):
            return rows.new_zeros(1)
        rim = 0.5 / (len(rows) + 1)  # half a yes, half a no
        return average(rows, weights).clamp(rim, 1 - rim).logit().reshape(1)

    def from_moments(self, mean: torch.Tensor, variance: torch.Tensor, start: torch.Tensor) -> torch.Tensor:
        return logit(mean).unsqueeze(-1)

    def from_margins(self, margins: torch.Tensor) -> torch.Tensor:
        return -margins

    @classmethod
    def applicable(cls, values: np.ndarray) -> Claim | None:
        return Claim(1, "only 0 and 1") if are_whole(values) and values.min() >= 0 and values.max() <= 1 else None
