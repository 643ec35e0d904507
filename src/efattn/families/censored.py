"""Values that are known up to a limit only: below what an instrument detects, above what a scale shows.

    P(y = lower) = P_base(Y <= lower),    P(y = upper) = P_base(Y >= upper),    density between them: that of the base

A value at a limit says "here or beyond". f is that of the base, so that the law of what is there, seen or not, is
`underlying`; mean, quantiles and draws of the family itself are those of what is recorded, limits and all.
"""

import math
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, final

import numpy as np
import torch

from efattn.families.base import Family
from efattn.families.gaussian import Gaussian
from efattn.families.limits import BetweenLimits, Limit, Limits, log_below
from efattn.families.log_normal import LogNormal
from efattn.families.marginal import observed
from efattn.families.stable import precise, precisely
from efattn.families.supports import NEAR, Between
from efattn.families.truncated import marginal

BASE = Gaussian()


@final
@dataclass(frozen=True)
class Censored(BetweenLimits):
    """Numbers from lower to upper, either of which may be None; a value at a limit lies there or beyond. base:
    Gaussian() or LogNormal(). unit: how many of the table's units one of its own is."""

    base: Family = BASE
    lower: Limit = None
    upper: Limit = None
    unit: float = field(default=1.0, repr=False)
    name: ClassVar[str] = "censored"

    def __post_init__(self) -> None:
        Limits.of("Censored", self.base, self.lower, self.upper)

    @classmethod
    def examples(cls) -> "tuple[Censored, ...]":
        return cls(Gaussian(variance="predicted"), -1.0, 1.5), cls(LogNormal(), lower=0.5)

    @classmethod
    def sized(cls, values: np.ndarray, columns: int) -> dict[str, Any]:
        """At the smallest value, and at the largest where several have it: other limits have to be told."""
        seen = values[np.isfinite(values)]
        if not seen.size:
            return {"lower": 0.0}
        low, high = float(seen.min()), float(seen.max())
        return {"lower": low, "upper": high if np.sum(seen == high) > 1 and high > low else None}

    @property
    def support(self) -> Between:
        return self.limits.support("A value beyond a limit is written as the limit.")

    @property
    def atoms(self) -> tuple[float, ...]:
        return tuple(x for x in (self.lower, self.upper) if x is not None)

    def in_units(self, centre: float, scale: float) -> "Censored":
        lower, upper = self.limits.in_units(centre, scale)
        return replace(self, lower=lower, upper=upper, unit=self.unit * scale)

    @precisely
    def log_prob(self, f: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        low, high = self._at(y)
        (a, b), inside = self.limits.scores(f), torch.where(low | high, self.support.inside, y)
        found, unit = self.base.log_prob(f, inside), math.log(self.unit)
        if self.lower is not None:
            found = torch.where(low, log_below(a) + unit, found)
        return found if self.upper is None else torch.where(high, log_below(-b) + unit, found)

    def mass(self, f: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        exact, (low, high) = precise(f.detach()), self._at(y)
        a, b = self.limits.scores(exact)
        p = torch.where(low, torch.special.ndtr(a), torch.where(high, torch.special.ndtr(-b), 0.0))
        return p.to(f.dtype)

    def sample(self, f: torch.Tensor, generator: torch.Generator | None = None) -> torch.Tensor:
        return self.base.sample(f, generator).clamp(*self.limits.ends)

    def cdf(self, f: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        p = torch.where(self._at(y)[1], 1.0, self.base.cdf(f, y))
        return p if self.lower is None else torch.where((y < self.lower) & ~self.is_atom(y), 0.0, p)

    def quantile(self, f: torch.Tensor, p: float | torch.Tensor) -> torch.Tensor:
        return self.base.quantile(f, p).clamp(*self.limits.ends)

    def start(self, y: torch.Tensor, weight: torch.Tensor | None = None) -> torch.Tensor:
        rows, weights = observed(y, weight)
        return marginal(self, rows, weights) if len(rows) else rows.new_zeros(self.size)

    def identified(self, f: torch.Tensor, mean: torch.Tensor) -> torch.Tensor:
        """Of values in units of each fit's own, their mean."""
        return mean if self.standardised else super().identified(f, mean)

    def _at(self, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Whether y is at the lower, or the upper limit, or beyond it."""
        never = torch.zeros_like(y, dtype=torch.bool)
        low = never if self.lower is None else y <= self.lower + NEAR * abs(self.lower)
        return low, never if self.upper is None else y >= self.upper - NEAR * abs(self.upper)

    def moments(self, f: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Of what lies at the limits and between them."""
        exact = precise(f)
        (a, b), inner = self.limits.scores(exact), self.limits.inner(exact)
        parts = [(inner.log_mass.exp(), inner.mean, inner.variance)]
        nothing = torch.zeros_like(inner.mean)
        if self.lower is not None:
            parts.append((torch.special.ndtr(a), nothing + self.lower, nothing))
        if self.upper is not None:
            parts.append((torch.special.ndtr(-b), nothing + self.upper, nothing))
        mean = sum((p * m for p, m, _ in parts), nothing).clamp(*self.limits.ends)
        return mean, sum((p * (v + (m - mean) ** 2) for p, m, v in parts), nothing)
