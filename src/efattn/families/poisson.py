"""Counts.

log p(y) = eta z - exp(eta) - log z!,   z = y - shift          t(y) = z,   A = exp,   h = 1 / z!

link="log"       eta = f            rate exp(f); an exposure e makes it e exp(f)
link="softplus"  eta = softplus(f)  rate 1 + exp(f), the paper's "v2"
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, final

import numpy as np
import torch
from torch.nn.functional import softplus

from efattn.families.base import Claim, ExponentialFamily, Frozen, ScipyFamily, to_numpy
from efattn.families.dispersion import check_choice, check_whole
from efattn.families.evidence import OVERDISPERSED, dispersion_of_counts
from efattn.families.marginal import average, observed
from efattn.families.moments import LEAST
from efattn.families.stable import bounded, precise, precisely, unbounded
from efattn.families.supports import WHOLE, WholeNumbers

BOUND = 30.0


@final
@dataclass(frozen=True)
class Poisson(ScipyFamily, ExponentialFamily):
    """shift, shift + 1, shift + 2, ..."""

    shift: int = 0
    link: Literal["log", "softplus"] = "log"
    name: ClassVar[str] = "poisson"
    discrete = True
    shared = (False,)

    def __post_init__(self) -> None:
        check_whole("Poisson", "shift", self.shift, -WHOLE, WHOLE, "larger ones cannot be told apart.")
        check_choice("Poisson", "link", self.link, ("log", "softplus"))

    @classmethod
    def examples(cls) -> "tuple[Poisson, ...]":
        return cls(), cls(shift=1), cls(link="softplus")

    @property
    def exposures(self) -> tuple[int, ...]:
        return (0,) if self.link == "log" else ()

    @property
    def support(self) -> WholeNumbers:
        return WholeNumbers(self.shift)

    @property
    def mean_bounds(self) -> tuple[float, float]:
        return float(self.shift + (self.link == "softplus")), np.inf

    @property
    def origin(self) -> float:
        return float(self.shift)

    def at_origin(self) -> "Poisson":
        return replace(self, shift=0)

    def natural(self, f: torch.Tensor) -> torch.Tensor:
        f = bounded(f, BOUND)
        return f if self.link == "log" else softplus(f)

    def statistic(self, y: torch.Tensor) -> torch.Tensor:
        return (y - self.shift).unsqueeze(-1)

    def log_partition(self, eta: torch.Tensor) -> torch.Tensor:
        return eta[..., 0].exp()

    def log_base(self, y: torch.Tensor) -> torch.Tensor:
        return -torch.lgamma(y - self.shift + 1)

    @precisely
    def log_prob(self, f: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return self.natural_log_prob(f, y)

    def mean(self, f: torch.Tensor) -> torch.Tensor:
        return self.shift + self.variance(f)

    def variance(self, f: torch.Tensor) -> torch.Tensor:
        return self.natural(f)[..., 0].exp()

    def sample(self, f: torch.Tensor, generator: torch.Generator | None = None) -> torch.Tensor:
        return self.shift + torch.poisson(self.variance(precise(f.detach())), generator=generator).to(f.dtype)

    def distribution(self, f: torch.Tensor) -> Any:
        from scipy import stats

        return Frozen(stats.poisson, to_numpy(self.variance(f.double())), loc=self.shift)

    def start(self, y: torch.Tensor, weight: torch.Tensor | None = None) -> torch.Tensor:
        rows, weights = observed(y, weight)
        if not len(rows):
            return rows.new_zeros(1)
        rate = average(rows, weights) - self.shift
        rate = rate.clamp_min(0.5 / (len(rows) + 1)) if self.link == "log" else (rate - 1).clamp_min(0.01)
        return unbounded(rate.log(), BOUND).reshape(1)

    def from_moments(self, mean: torch.Tensor, variance: torch.Tensor, start: torch.Tensor) -> torch.Tensor:
        rate = (mean - self.mean_bounds[0]).clamp_min(LEAST)
        return unbounded(rate.log(), BOUND).unsqueeze(-1)

    @classmethod
    def applicable(cls, values: np.ndarray) -> Claim | None:
        ratio = dispersion_of_counts(values)
        if ratio is None or ratio > OVERDISPERSED:
            return None
        return Claim(3, "counts", f"variance {ratio:.1f} times the mean")
