"""Counts, some of which are 0 for a reason of their own: nobody fished, the machine was off.

    P(0) = s + (1 - s) p_0,      P(y) = (1 - s) p_y  for y > 0,          s = sigmoid(z),   p of the base

f = (those of the base, z). A mixture, and no exponential family.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal, final

import torch
from torch.nn.functional import logsigmoid

from efattn.families.base import Family
from efattn.families.dispersion import check_choice
from efattn.families.marginal import observed
from efattn.families.moments import LEAST
from efattn.families.negative_binomial import NegativeBinomial
from efattn.families.poisson import Poisson
from efattn.families.stable import bounded, precise, precisely
from efattn.families.zeros import BOUND, ZerosOfTheirOwn, check_counts, marginal_counts, whole_quantile

MOST = 0.9  # of the largest share of extra zeros that a mean and a variance allow


BASE = NegativeBinomial()


@final
@dataclass(frozen=True)
class ZeroInflated(ZerosOfTheirOwn):
    """0, 1, 2, ... with more zeros than `base` has. zeros: whether their share is the same for all rows ("learned",
    around which a network may still move it) or "predicted" as the rate is."""

    base: Family = BASE
    zeros: Literal["learned", "predicted"] = "learned"
    name: ClassVar[str] = "zero_inflated"

    def __post_init__(self) -> None:
        check_counts("ZeroInflated", self.base)
        check_choice("ZeroInflated", "zeros", self.zeros, ("learned", "predicted"))

    @classmethod
    def examples(cls) -> "tuple[ZeroInflated, ...]":
        return cls(), cls(Poisson(), zeros="predicted")

    @precisely
    def log_prob(self, f: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        z = self._logit(f)
        counted = logsigmoid(-z) + self.base.log_prob(f[..., :-1], y)
        return torch.where(y == 0, torch.logaddexp(logsigmoid(z), counted), counted)

    def mean(self, f: torch.Tensor) -> torch.Tensor:
        return (-self._logit(f)).sigmoid() * self.base.mean(f[..., :-1])

    def variance(self, f: torch.Tensor) -> torch.Tensor:
        z, mean, variance = self._logit(f), self.base.mean(f[..., :-1]), self.base.variance(f[..., :-1])
        return (-z).sigmoid() * (variance + z.sigmoid() * mean**2)

    def sample(self, f: torch.Tensor, generator: torch.Generator | None = None) -> torch.Tensor:
        f = f.detach()
        kept = torch.rand(f.shape[:-1], dtype=f.dtype, device=f.device, generator=generator) >= self._logit(f).sigmoid()
        return self.base.sample(f[..., :-1], generator) * kept

    def cdf(self, f: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        z = self._logit(f.detach())
        return torch.where(y < 0, 0.0, z.sigmoid() + (-z).sigmoid() * self.base.cdf(f[..., :-1], y))

    def quantile(self, f: torch.Tensor, p: float | torch.Tensor) -> torch.Tensor:
        f = f.detach()
        p, z = torch.as_tensor(p, dtype=torch.float64, device=f.device), self._logit(precise(f))
        inner = ((p - z.sigmoid()) / (-z).sigmoid()).clamp(0, 1)
        near = self.base.quantile(f[..., :-1], inner)
        return whole_quantile(lambda y: self.cdf(f, y), near, p.to(f.dtype))

    def start(self, y: torch.Tensor, weight: torch.Tensor | None = None) -> torch.Tensor:
        rows, weights = observed(y, weight)
        if not len(rows):
            return rows.new_zeros(self.size)
        there = self.base.start(rows[rows > 0], weights[rows > 0]) if (rows > 0).any() else self.base.start(rows)
        return marginal_counts(self, rows, weights, torch.cat([there, there.new_zeros(1)]))

    def from_moments(self, mean: torch.Tensor, variance: torch.Tensor, start: torch.Tensor) -> torch.Tensor:
        """With the start's share of extra zeros, or as much as the variance leaves room for."""
        start = start.to(mean)
        mean, z = mean.clamp_min(LEAST), start[-1].expand(mean.shape)
        if self.base.size == 1:
            base = self.base.from_moments(mean * (1 + self._logit(start).exp()), variance, start[:-1])
            return torch.cat([base, z.unsqueeze(-1)], -1)
        room, mine = _room(mean, variance), _room(self.mean(start), self.variance(start))
        share = self._logit(start).sigmoid()
        most = max(MOST, float(share / mine)) * room
        capped = share > most
        share = torch.where(capped, most, share)
        inner = mean / (1 - share)
        base = self.base.from_moments(inner, variance / (1 - share) - share * inner**2, start[:-1])
        return torch.cat([base, torch.where(capped, share.logit(), z).unsqueeze(-1)], -1)

    def _logit(self, f: torch.Tensor) -> torch.Tensor:
        """Of the share of extra zeros."""
        return bounded(f[..., -1], BOUND)


def _room(mean: torch.Tensor, variance: torch.Tensor) -> torch.Tensor:
    """The share of extra zeros under which the rest would be Poisson: e / (1 + e), e = variance / mean^2 - 1 / mean."""
    excess = ((variance - mean) / mean / mean).clamp(1e-8, 1e8)
    return excess / (1 + excess)
