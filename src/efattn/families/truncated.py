"""Values beyond limits are never seen: they are not in the table at all.

    log p(y) = log p_base(y) - log P_base(lower <= Y <= upper)

f is that of the base, whose own law is `underlying`. An exponential family as the base is, with the same natural
parameter and statistic; its log-partition is that of the base and the logarithm of what lies between the limits.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar, final

import numpy as np
import torch

from efattn.families.base import ExponentialFamily, Family
from efattn.families.gaussian import Gaussian
from efattn.families.limits import SPREAD_BOUND, BetweenLimits, Limit, Limits, units
from efattn.families.log_normal import LogNormal
from efattn.families.marginal import average, maximise, observed
from efattn.families.stable import bounded, precise, precisely, unbounded
from efattn.families.supports import Between

BASE = Gaussian()


@final
@dataclass(frozen=True)
class Truncated(BetweenLimits, ExponentialFamily):
    """Numbers from lower to upper, either of which may be None; base: Gaussian() or LogNormal()."""

    base: Family = BASE
    lower: Limit = None
    upper: Limit = None
    name: ClassVar[str] = "truncated"

    def __post_init__(self) -> None:
        Limits.of("Truncated", self.base, self.lower, self.upper)

    @classmethod
    def examples(cls) -> "tuple[Truncated, ...]":
        return cls(Gaussian(variance="predicted"), -1.0, 1.5), cls(LogNormal(), upper=2.0)

    @classmethod
    def sized(cls, values: np.ndarray, columns: int) -> dict[str, Any]:
        """From the smallest value on: other limits have to be told."""
        seen = values[np.isfinite(values)]
        return {"lower": float(seen.min()) if seen.size else 0.0}

    @property
    def support(self) -> Between:
        return self.limits.support("Values beyond the limits do not go with this family: widen them, or leave it out.")

    def in_units(self, centre: float, scale: float) -> "Truncated":
        lower, upper = self.limits.in_units(centre, scale)
        return replace(self, lower=lower, upper=upper)

    def natural(self, f: torch.Tensor) -> torch.Tensor:
        return self._base.natural(f)

    def statistic(self, y: torch.Tensor) -> torch.Tensor:
        return self._base.statistic(y)

    def log_partition(self, eta: torch.Tensor) -> torch.Tensor:
        return self._base.log_partition(eta) + self._log_mass(self._outputs(eta))

    def log_base(self, y: torch.Tensor) -> torch.Tensor:
        return self._base.log_base(y)

    @precisely
    def log_prob(self, f: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return self.base.log_prob(f, y) - self._log_mass(f)

    def moments(self, f: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        inner = self.limits.inner(f)
        return inner.mean, inner.variance

    def sample(self, f: torch.Tensor, generator: torch.Generator | None = None) -> torch.Tensor:
        p = torch.rand(f.shape[:-1], dtype=torch.float64, device=f.device, generator=generator)
        return self.quantile(f, p)

    def cdf(self, f: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        exact, (low, high) = precise(f.detach()), self.limits.ends
        inside = precise(y).clamp(low, high)
        a, b = self.limits.scores(exact)
        z = self.limits.score(exact, inside)
        below = (self.limits.log_mass(a.expand(z.shape), z) - self.limits.log_mass(a, b)).exp().clamp(0, 1)
        below = torch.where(z > a, below, 0.0)
        return torch.where(y >= high, 1.0, below).to(f.dtype)

    def quantile(self, f: torch.Tensor, p: float | torch.Tensor) -> torch.Tensor:
        exact = precise(f.detach())
        levels = torch.as_tensor(p, dtype=torch.float64, device=f.device)
        return self.limits.inverse(exact, levels.expand(torch.broadcast_shapes(levels.shape, f.shape[:-1]))).to(f.dtype)

    def start(self, y: torch.Tensor, weight: torch.Tensor | None = None) -> torch.Tensor:
        rows, weights = observed(y, weight)
        return marginal(self, rows, weights) if len(rows) else rows.new_zeros(self.size)

    def identified(self, f: torch.Tensor, mean: torch.Tensor) -> torch.Tensor:
        """Of values in units of each fit's own, their mean."""
        return mean if self.standardised else self.natural(f)

    @property
    def _base(self) -> ExponentialFamily:
        assert isinstance(self.base, ExponentialFamily)
        return self.base

    def _log_mass(self, f: torch.Tensor) -> torch.Tensor:
        return self.limits.log_mass(*self.limits.scores(f))

    def _outputs(self, eta: torch.Tensor) -> torch.Tensor:
        """f of eta"""
        if self.size == 1:
            known = self.base.noise if isinstance(self.base, Gaussian) else getattr(self.base, "log_variance", 1.0)
            return eta * float(known)
        return torch.stack([-eta[..., 0] / (2 * eta[..., 1]), (-2 * eta[..., 1]).log()], -1)


def marginal(family: Any, rows: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """The marginal fit of a limited law, in units of the rows' own spread: of log y as of y, but for a constant."""
    base, low, high = family.base, family.lower, family.upper
    if isinstance(base, LogNormal):
        rows = rows.log()
        low, high = (None if x is None else float(np.log(x)) for x in (low, high))
    noise = base.noise if isinstance(base, Gaussian) else base.log_variance
    centre, scale = units(base, rows)
    inner = replace(family, base=Gaussian(noise), lower=low, upper=high).in_units(centre, scale)
    z = (rows - centre) / scale
    guess = inner.base.start(z, weights)
    best = maximise(lambda f: average(inner.log_prob(f, z), weights), guess)
    best[0] = best[0] * scale + centre
    if len(best) > 1:
        bound = SPREAD_BOUND[isinstance(base, LogNormal)]
        best[1] = unbounded(bounded(best[1], SPREAD_BOUND[False]) - 2 * float(np.log(scale)), bound)
    return best
