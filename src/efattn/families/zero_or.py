"""Nothing, or a positive amount: rain, spending, hours of work.

    P(0) = sigmoid(-s),      density of y > 0 = sigmoid(s) p(y),          s = z + log(mean of the base) / 2

f = (those of the base, z). The odds of an amount grow as the square root of its mean, so that one location says both:
where it rains often it rains much. 0 has a probability and all else a density, which is what scores are made of.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, final

import numpy as np
import torch
from torch.nn.functional import logsigmoid

from efattn.errors import DataError
from efattn.families.base import Family
from efattn.families.dispersion import check_choice
from efattn.families.gamma import Gamma
from efattn.families.log_normal import LogNormal
from efattn.families.marginal import average, observed
from efattn.families.moments import LEAST
from efattn.families.stable import bounded, precise, precisely, unbounded
from efattn.families.supports import PositiveReals, ZeroAndMore

BOUND, POWER = 20.0, 0.5
ODDS = 12.0  # of the logarithm of odds
MOST = 0.9  # of the largest probability of 0 that a mean and a variance allow
STEPS = 30  # of Newton's
SMALL = 2.0  # standard deviations below the usual amount


BASE = Gamma()


@final
@dataclass(frozen=True)
class ZeroOr(Family):
    """0, or a number > 0 of `base`: Gamma(), LogNormal() or Weibull(). zeros: whether the odds of 0, relative to the
    mean, are the same for all rows ("learned", around which a network may still move them) or "predicted"."""

    base: Family = BASE
    zeros: Literal["learned", "predicted"] = "learned"
    name: ClassVar[str] = "zero_or"
    discrete = False
    exposures = ()
    support = ZeroAndMore()
    atoms = (0.0,)

    def __post_init__(self) -> None:
        if not isinstance(self.base, Family) or self.base.support != PositiveReals() or self.base.atoms:
            raise DataError(
                f"ZeroOr: base must be a family of numbers > 0, such as Gamma() or LogNormal(), not {self.base!r}."
            )
        check_choice("ZeroOr", "zeros", self.zeros, ("learned", "predicted"))

    @classmethod
    def examples(cls) -> "tuple[ZeroOr, ...]":
        return cls(), cls(LogNormal(log_variance=0.5), zeros="predicted")

    @classmethod
    def sized(cls, values: np.ndarray, columns: int) -> dict[str, Any]:
        return {"base": Gamma()}

    @property
    def shared(self) -> tuple[bool, ...]:
        return (*self.base.shared, self.zeros == "learned")

    @precisely
    def log_prob(self, f: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        s = self._logit(f)
        amount = self.base.log_prob(f[..., :-1], torch.where(y > 0, y, 1.0))
        return torch.where(y > 0, logsigmoid(s) + amount, logsigmoid(-s))

    def mass(self, f: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.where(y == 0, (-self._logit(f)).sigmoid(), 0.0)

    def mean(self, f: torch.Tensor) -> torch.Tensor:
        return self._logit(f).sigmoid() * self.base.mean(f[..., :-1])

    def variance(self, f: torch.Tensor) -> torch.Tensor:
        s, mean, variance = self._logit(f), self.base.mean(f[..., :-1]), self.base.variance(f[..., :-1])
        return s.sigmoid() * (variance + (-s).sigmoid() * mean**2)

    def sample(self, f: torch.Tensor, generator: torch.Generator | None = None) -> torch.Tensor:
        f = f.detach()
        some = torch.rand(f.shape[:-1], dtype=f.dtype, device=f.device, generator=generator) < self._logit(f).sigmoid()
        return torch.where(some, self.base.sample(f[..., :-1], generator), 0.0)

    def cdf(self, f: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        s = self._logit(f.detach())
        below = self.base.cdf(f[..., :-1], y.clamp_min(0))
        return torch.where(y < 0, 0.0, (-s).sigmoid() + s.sigmoid() * below)

    def quantile(self, f: torch.Tensor, p: float | torch.Tensor) -> torch.Tensor:
        exact = precise(f.detach())
        p, s = torch.as_tensor(p, dtype=torch.float64, device=f.device), self._logit(exact)
        inner = 1 - (1 - p) * (1 + (-s).exp())  # 1 - (1 - p) / P(y > 0)
        nothing = p <= (-s).sigmoid()
        amount = self.base.quantile(exact[..., :-1], torch.where(nothing, 0.5, inner).clamp(0, 1))
        return torch.where(nothing, 0.0, amount).to(f.dtype)

    def start(self, y: torch.Tensor, weight: torch.Tensor | None = None) -> torch.Tensor:
        rows, weights = observed(y, weight)
        if not len(rows):
            return rows.new_zeros(self.size)
        some = rows > 0
        base = self.base.start(rows[some], weights[some])
        share = average(some.double(), weights).clamp(0.5 / (len(rows) + 1), 1 - 0.5 / (len(rows) + 1))
        z = share.logit() - POWER * self.base.mean(base).log()
        return torch.cat([base, z.reshape(1)])

    def from_moments(self, mean: torch.Tensor, variance: torch.Tensor, start: torch.Tensor) -> torch.Tensor:
        """With the start's odds of 0, or as much of it as the variance leaves room for."""
        start = start.to(mean)
        mean, z = torch.maximum(mean, LEAST * self.mean(start)), start[-1].expand(mean.shape)
        log_inner = _log_amount(mean.double().log(), z.double())
        if self.base.size == 1:
            base = self.base.from_moments(log_inner.exp().to(mean), variance, start[:-1])
            return torch.cat([base, z.unsqueeze(-1)], -1)
        zero, room = (-bounded(z + POWER * log_inner, BOUND)).sigmoid(), _room(mean.double(), variance.double())
        mine = (-self._logit(start)).sigmoid() / _room(self.mean(start), self.variance(start))
        most = max(MOST, float(mine)) * room
        capped = zero > most
        zero = torch.where(capped, most, zero)
        log_inner = torch.where(capped, mean.double().log() - (1 - zero).log(), log_inner)
        inner, some = log_inner.exp(), 1 - zero
        base = self.base.from_moments(inner, variance / some - zero * inner**2, start[:-1].double())
        own = torch.where(capped, -zero.logit() - POWER * log_inner, z)
        return torch.cat([base, own.unsqueeze(-1)], -1).to(mean.dtype)

    def of_parts(self, logit: torch.Tensor, amount: torch.Tensor) -> torch.Tensor:
        """f with these odds of an amount (...,), and this law of it (..., size of the base)."""
        z = unbounded(logit.clamp(-ODDS, ODDS), BOUND) - POWER * self.base.mean(amount).log()
        return torch.cat([amount, z[..., None]], -1)

    def on_its_scale(self, f: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor] | None:
        """That of the base; nothing lies as far below as a small amount."""
        inner = self.base.on_its_scale(f[..., :-1], torch.where(y > 0, y, 1.0))
        if inner is None:
            return None
        rest, variance = inner
        return torch.where(y > 0, rest, -SMALL * variance.sqrt()), variance

    def _logit(self, f: torch.Tensor) -> torch.Tensor:
        """s: of an amount"""
        return bounded(f[..., -1] + POWER * self.base.mean(f[..., :-1]).log(), BOUND)


def _log_amount(log_mean: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
    """u with u + log sigmoid(z + u / 2) = log_mean, by Newton's steps: its slope lies between 1 and 1.5."""
    u = log_mean
    for _ in range(STEPS):
        s = z + POWER * u
        u = u - (u + logsigmoid(s) - log_mean) / (1 + POWER * (-s).sigmoid())
    return u


def _room(mean: torch.Tensor, variance: torch.Tensor) -> torch.Tensor:
    """The probability of 0 that leaves no variance to the amounts."""
    return 1 / (1 + mean**2 / variance.clamp_min(1e-30)).clamp_max(1e12)
