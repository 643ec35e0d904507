"""Real numbers, some of them far out.

z = (y - mu) e^(b/2),   b = log precision = -2 log(scale),   v = degrees of freedom > 2

log p(y) = log Gamma((v + 1) / 2) - log Gamma(v / 2) - log(pi v) / 2 + b / 2 - (v + 1) / 2 log(1 + z^2 / v)

f = mu, then b where the scale is an output of the head, then c = log(v - 2) where v is learned. E[y] = mu and
Var[y] = scale^2 v / (v - 2), which is finite. No exponential family: y, mu and v meet inside a logarithm.
"""

import math
from dataclasses import dataclass
from numbers import Real
from typing import Any, ClassVar, Literal, final

import torch

from efattn.errors import DataError
from efattn.families.base import Family, Frozen, ScipyFamily, to_numpy
from efattn.families.dispersion import Dispersion, check_dispersion, outputs
from efattn.families.marginal import average, maximise, moments, observed
from efattn.families.moments import log
from efattn.families.stable import bounded, log_standard_gamma, precise, precisely, unbounded
from efattn.families.supports import DOUBLE, RealLine

BOUND, FREEDOM_BOUND = 30.0, 7.0  # of b and c: beyond a thousand degrees of freedom it is a normal law


@final
@dataclass(frozen=True)
class StudentT(ScipyFamily, Family):
    """Any finite number, with heavier tails than a Gaussian's. scale: a number, "learned" or "predicted"; degrees: of
    freedom, a number > 2 or "learned", one for all rows."""

    scale: Dispersion = "learned"
    degrees: float | Literal["learned"] = "learned"
    name: ClassVar[str] = "student_t"
    around_first: ClassVar[bool] = True
    discrete = False
    exposures = ()

    def __post_init__(self) -> None:
        check_dispersion("StudentT", "scale", self.scale)
        known = isinstance(self.degrees, Real) and not isinstance(self.degrees, bool)
        if self.degrees != "learned" and not (known and 2 < float(self.degrees) < math.inf):
            raise DataError(f"StudentT: degrees must be a number > 2 or 'learned', not {self.degrees!r}.")

    @classmethod
    def examples(cls) -> "tuple[StudentT, ...]":
        return cls(), cls(scale=1.5), cls(scale="predicted"), cls(degrees=5.0)

    @property
    def standardised(self) -> bool:
        return isinstance(self.scale, str)

    @property
    def support(self) -> RealLine:
        return RealLine(DOUBLE) if self.standardised else RealLine()

    @property
    def shared(self) -> tuple[bool, ...]:
        return outputs(self.scale) + ((True,) if isinstance(self.degrees, str) else ())

    @property
    def dispersions(self) -> tuple[bool, ...]:
        """The scale: of the degrees of freedom a row says next to nothing."""
        return outputs(self.scale) + ((False,) if isinstance(self.degrees, str) else ())

    @precisely
    def log_prob(self, f: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        b, v = self._log_precision(f), self._freedom(f)
        spread = ((y - f[..., 0]) ** 2 * b.exp() / v).log1p()
        constant = torch.lgamma((v + 1) / 2) - torch.lgamma(v / 2) - (math.pi * v).log() / 2
        return constant + b / 2 - (v + 1) / 2 * spread

    def mean(self, f: torch.Tensor) -> torch.Tensor:
        return f[..., 0]

    def variance(self, f: torch.Tensor) -> torch.Tensor:
        return (self._log_inflation(f) - self._log_precision(f)).exp()

    def sample(self, f: torch.Tensor, generator: torch.Generator | None = None) -> torch.Tensor:
        exact = precise(f.detach())
        v = self._freedom(exact)
        z = torch.normal(torch.zeros_like(exact[..., 0]), 1.0, generator=generator)
        log_ratio = log_standard_gamma(v / 2, generator) - (v / 2).log()  # of a chi-square to its mean
        y = exact[..., 0] + z * (-(self._log_precision(exact) + log_ratio) / 2).exp()
        limit = self.support.largest
        return y.clamp(-limit, limit).to(f.dtype)

    def distribution(self, f: torch.Tensor) -> Any:
        from scipy import stats

        f = f.double()
        scale = (-self._log_precision(f) / 2).exp()
        return Frozen(stats.t, to_numpy(self._freedom(f)), to_numpy(f[..., 0]), to_numpy(scale))

    def start(self, y: torch.Tensor, weight: torch.Tensor | None = None) -> torch.Tensor:
        rows, weights = observed(y, weight)
        if not len(rows):
            return rows.new_zeros(self.size)
        mean, variance = moments(rows, weights)
        unit = variance.clamp_min(1e-10 * (1 + mean**2)).sqrt() if isinstance(self.scale, str) else mean.new_ones(())
        z = (rows - mean) / unit
        guess = [z.median(), *([z.new_tensor(0.5)] if isinstance(self.scale, str) else [])]
        guess += [z.new_tensor(1.0)] if isinstance(self.degrees, str) else []
        best = maximise(lambda f: average(self.log_prob(f, z), weights), torch.stack(guess))
        best[0] = best[0] * unit + mean
        if isinstance(self.scale, str):
            best[1] = unbounded(bounded(best[1], BOUND) - 2 * unit.log(), BOUND)
        return best

    def from_moments(self, mean: torch.Tensor, variance: torch.Tensor, start: torch.Tensor) -> torch.Tensor:
        """With three degrees of freedom at least: a column whose items lie in different places looks far heavier than
        what is left once a mean is known, and with two a scale would be nothing beside the variance."""
        start = start.to(mean)
        start = torch.cat([start[:-1], start[-1:].clamp_min(0.0)]) if isinstance(self.degrees, str) else start
        f = [mean]
        if isinstance(self.scale, str):
            f.append(unbounded(self._log_inflation(start) - log(variance), BOUND))
        if isinstance(self.degrees, str):
            f.append(start[-1].expand(mean.shape))
        return torch.stack(f, -1)

    def identified(self, f: torch.Tensor, mean: torch.Tensor) -> torch.Tensor:
        """The mean, and where predicted the log variance, as a Gaussian's."""
        return torch.cat([mean, self.variance(f).log().unsqueeze(-1)], -1) if self.scale == "predicted" else mean

    def _log_precision(self, f: torch.Tensor) -> torch.Tensor:
        if isinstance(self.scale, str):
            return bounded(f[..., 1], BOUND)
        return torch.full_like(f[..., 0], -2 * math.log(self.scale))

    def _freedom(self, f: torch.Tensor) -> torch.Tensor:
        """v"""
        if isinstance(self.degrees, str):
            return 2 + bounded(f[..., -1], FREEDOM_BOUND).exp()
        return torch.full_like(f[..., 0], self.degrees)

    def _log_inflation(self, f: torch.Tensor) -> torch.Tensor:
        """log v / (v - 2)"""
        if isinstance(self.degrees, str):
            return torch.nn.functional.softplus(math.log(2) - bounded(f[..., -1], FREEDOM_BOUND))
        return torch.full_like(f[..., 0], math.log(self.degrees / (self.degrees - 2)))
