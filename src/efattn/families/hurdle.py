"""Counts whose zeros are more, or fewer, than their law has: the hurdle, counted from the base's own odds of a zero.

    P(y) = p_y e^(z [y = 0]) / D,      D = 1 - p_0 + p_0 e^z,          f = (those of the base, z)

z = 0 is the base itself; the odds of a zero are e^z times the base's, and values above 0 are those of the base, given
that they are. So a zero is rarer where the rate is higher, whatever z. Of an exponential family it is one as well, with
natural parameters (eta, z), statistics (t(y), [y = 0]) and log-partition A + log D.
"""

from dataclasses import dataclass, field
from typing import ClassVar, Literal, final

import torch

from efattn.errors import EfattnError
from efattn.families.base import ExponentialFamily, Family
from efattn.families.dispersion import check_choice
from efattn.families.marginal import observed
from efattn.families.negative_binomial import NegativeBinomial
from efattn.families.poisson import Poisson
from efattn.families.stable import bounded, precise, precisely
from efattn.families.zeros import BOUND, ZerosOfTheirOwn, check_counts, log_rest, marginal_counts, whole_quantile

RARE, MANY = 1e-9, 1e6  # a probability of any count above 0, below which a draw of such is 1, and a mean above which


BASE = NegativeBinomial()


@final
@dataclass(frozen=True)
class Hurdle(ZerosOfTheirOwn, ExponentialFamily):
    """0, 1, 2, ... with zeros of their own. zeros: whether their odds, relative to those of `base`, are the same for
    all rows ("learned", around which a network may still move them) or "predicted" as the rate is."""

    base: Family = BASE
    zeros: Literal["learned", "predicted"] = "learned"
    exponential: bool = field(init=False, repr=False, compare=False)
    name: ClassVar[str] = "hurdle"

    def __post_init__(self) -> None:
        check_counts("Hurdle", self.base)
        check_choice("Hurdle", "zeros", self.zeros, ("learned", "predicted"))
        object.__setattr__(self, "exponential", self.base.exponential)

    @classmethod
    def examples(cls) -> "tuple[Hurdle, ...]":
        return cls(), cls(Poisson(), zeros="predicted")

    def natural(self, f: torch.Tensor) -> torch.Tensor:
        return torch.cat([self._exponential().natural(f[..., :-1]), self._z(f).unsqueeze(-1)], -1)

    def statistic(self, y: torch.Tensor) -> torch.Tensor:
        return torch.cat([self._exponential().statistic(y), (y == 0).to(y.dtype).unsqueeze(-1)], -1)

    def log_partition(self, eta: torch.Tensor) -> torch.Tensor:
        base, inner, zero = self._exponential(), eta[..., :-1], torch.zeros_like(eta[..., 0])
        whole = base.log_partition(inner)
        return whole + _log_d((inner * base.statistic(zero)).sum(-1) - whole + base.log_base(zero), eta[..., -1])

    def log_base(self, y: torch.Tensor) -> torch.Tensor:
        return self._exponential().log_base(y)

    @precisely
    def log_prob(self, f: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        log_d = _log_d(self._log_zero(f), self._z(f))
        return self.base.log_prob(f[..., :-1], y) + torch.where(y == 0, self._z(f), 0.0) - log_d

    def mean(self, f: torch.Tensor) -> torch.Tensor:
        exact = precise(f)
        d = _log_d(self._log_zero(exact), self._z(exact)).exp()
        return (self.base.mean(exact[..., :-1]) / d).to(f.dtype)

    def variance(self, f: torch.Tensor) -> torch.Tensor:
        exact = precise(f)
        log_zero, z = self._log_zero(exact), self._z(exact)
        mean, variance, d = self.base.mean(exact[..., :-1]), self.base.variance(exact[..., :-1]), _log_d(log_zero, z)
        more = (log_zero - d).exp() * z.expm1()  # (D - 1) / D
        return ((variance + mean**2 * more) / d.exp()).clamp(1e-30, 1e37).to(f.dtype)

    def sample(self, f: torch.Tensor, generator: torch.Generator | None = None) -> torch.Tensor:
        exact = precise(f.detach())
        log_zero, z = self._log_zero(exact), self._z(exact)
        zero, some = (log_zero + z - _log_d(log_zero, z)).exp(), log_rest(log_zero).exp()
        uniform, other = torch.rand(2, *some.shape, dtype=some.dtype, device=some.device, generator=generator)
        y = self.base.sample(f[..., :-1], generator).to(some)  # above 0 it is a draw of what is above 0
        again = torch.ones_like(y)
        redo = (y == 0) & (uniform >= zero) & (some > RARE) & (self.base.mean(exact[..., :-1]) < MANY)
        if redo.any():
            inner = (1 - some * other)[redo].clamp_max(1 - 1e-15)
            again[redo] = self.base.quantile(exact[redo][..., :-1], inner).clamp(1, 2.0**62)
        return torch.where(uniform < zero, 0.0, torch.where(y > 0, y, again)).to(f.dtype)

    def cdf(self, f: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        exact = precise(f.detach())
        log_zero, z = self._log_zero(exact), self._z(exact)
        above = 1 - self.base.cdf(exact[..., :-1], precise(y))
        p = 1 - above / _log_d(log_zero, z).exp()
        return torch.where(y < 0, 0.0, p.clamp(0, 1)).to(f.dtype)

    def quantile(self, f: torch.Tensor, p: float | torch.Tensor) -> torch.Tensor:
        exact = precise(f.detach())
        levels = torch.as_tensor(p, dtype=torch.float64, device=f.device)
        d = _log_d(self._log_zero(exact), self._z(exact)).exp()
        near = self.base.quantile(exact[..., :-1], (1 - (1 - levels) * d).clamp(0, 1))
        return whole_quantile(lambda y: self.cdf(exact, y), near, levels).to(f.dtype)

    def start(self, y: torch.Tensor, weight: torch.Tensor | None = None) -> torch.Tensor:
        rows, weights = observed(y, weight)
        if not len(rows):
            return rows.new_zeros(self.size)
        there = self.base.start(rows, weights)
        return marginal_counts(self, rows, weights, torch.cat([there, there.new_zeros(1)]))

    def _z(self, f: torch.Tensor) -> torch.Tensor:
        return bounded(f[..., -1], BOUND)

    def _log_zero(self, f: torch.Tensor) -> torch.Tensor:
        """log p_0"""
        return self.base.log_prob(f[..., :-1], torch.zeros_like(f[..., 0]))

    def _exponential(self) -> ExponentialFamily:
        if not self.exponential or not isinstance(self.base, ExponentialFamily):
            raise EfattnError(f"{self!r} has no natural form, as its base has none.")
        return self.base


def _log_d(log_zero: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
    """log D, from log p_0."""
    return torch.logaddexp(log_rest(log_zero), log_zero + z)
