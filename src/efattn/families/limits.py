"""A normal law between two limits: how much of it lies there, and its moments. For censored and truncated values.

    w = y, or log y where y is log-normal;    z = (w - m) / s;    a, b = z of the limits

Integrals are taken around the mode r of what is left (0, or the nearer limit) with Gauss and Legendre's nodes, over the
stretch where the density exceeds e^-40 of its largest: far out in a tail nothing cancels.

    log(Phi(b) - Phi(a)) = -r^2 / 2 - log(2 pi) / 2 + log of the integral of exp(-r t - t^2 / 2),      z = r + t
"""

import math
from abc import abstractmethod
from dataclasses import dataclass
from functools import cache
from numbers import Real
from typing import NamedTuple, final

import numpy as np
import torch

from efattn.errors import DataError
from efattn.families.base import Family
from efattn.families.gaussian import Gaussian
from efattn.families.log_normal import MEAN_BOUND, VARIANCE_BOUND, LogNormal
from efattn.families.moments import LEAST
from efattn.families.stable import LOG_2_PI, bounded, precise
from efattn.families.supports import DOUBLE, LARGEST, SINGLE, SMALLEST, Between

NODES, DEEP, FAR = 64, 80.0, 60.0  # DEEP: z^2 - r^2 where the integral ends
STEPS, SMALL, NEAR = 20, 1e-5, 1e-7  # of Newton; of its slopes, and where it has arrived, in standard deviations
SPREAD_BOUND = {False: 30.0, True: 10.0}  # of log-precisions of the two bases, whether of logarithms
Limit = float | None


class Inner(NamedTuple):
    """Of y between the limits: log of how probable that is, mean, variance."""

    log_mass: torch.Tensor
    mean: torch.Tensor
    variance: torch.Tensor


@final
@dataclass(frozen=True)
class Limits:
    """base: Gaussian or LogNormal; lower, upper: in the units of y, None where there is none."""

    base: Family
    lower: Limit
    upper: Limit

    @classmethod
    def of(cls, title: str, base: object, lower: object, upper: object) -> "Limits":
        """A DataError where they make no sense."""
        if not isinstance(base, Gaussian | LogNormal):
            raise DataError(
                f"{title}: base must be Gaussian() or LogNormal(), not {base!r}. Counts with a highest level are "
                "Ordinal, those without zeros Poisson(shift=1)."
            )
        for name, x in (("lower", lower), ("upper", upper)):
            if x is not None and (isinstance(x, bool) or not isinstance(x, Real) or not math.isfinite(float(x))):
                raise DataError(f"{title}: {name} must be a number, or None where there is no limit, not {x!r}.")
            if isinstance(x, Real) and isinstance(base, LogNormal) and float(x) <= 0:
                raise DataError(f"{title}: {name} must be > 0 for values that are, not {x!r}.")
        made = cls(base, *(None if x is None else float(x) for x in (lower, upper)))  # type: ignore[arg-type]
        if made.lower is None and made.upper is None:
            raise DataError(f"{title}: give lower, upper or both.")
        if made.lower is not None and made.upper is not None and made.lower >= made.upper:
            raise DataError(f"{title}: lower must be less than upper, not {lower!r} and {upper!r}.")
        return made

    @property
    def logs(self) -> bool:
        return isinstance(self.base, LogNormal)

    @property
    def ends(self) -> tuple[float, float]:
        low, high = self.lower, self.upper
        return (0.0 if self.logs else -math.inf) if low is None else low, math.inf if high is None else high

    def support(self, advice: str) -> Between:
        low, high = -math.inf if self.lower is None else self.lower, self.ends[1]
        return Between(
            low, high, self.logs, LARGEST if self.logs else DOUBLE if self.base.standardised else SINGLE, advice
        )

    def place(self, f: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """m and s of w."""
        return f[..., 0], (-self.base._log_precision(f) / 2).exp()  # type: ignore[attr-defined]

    def score(self, f: torch.Tensor, y: torch.Tensor | float) -> torch.Tensor:
        """z of y; the ends may be infinite."""
        middle, sd = self.place(f)
        if isinstance(y, float):
            w = (
                math.copysign(math.inf, y)
                if math.isinf(y)
                else (math.log(y) if y > 0 else -math.inf)
                if self.logs
                else y
            )
            return (w - middle) / sd if math.isfinite(w) else torch.full_like(middle, w)
        return ((y.clamp_min(1e-300).log() if self.logs else y) - middle) / sd

    def scores(self, f: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """a and b"""
        return self.score(f, self.ends[0]), self.score(f, self.ends[1])

    def unscored(self, f: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        """y of z, between the limits."""
        middle, sd = self.place(f)
        w = middle + sd * z
        return w.clamp_max(700).exp().clamp(SMALLEST, LARGEST).clamp(*self.ends) if self.logs else w.clamp(*self.ends)

    def log_mass(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        """log(Phi(b) - Phi(a)), where a < b."""
        if bool((b == math.inf).all()):
            return log_below(-a)
        if bool((a == -math.inf).all()):
            return log_below(b)
        return _integrals(a, b)[0]

    def inner(self, f: torch.Tensor) -> Inner:
        """What lies between the limits."""
        f = precise(f)
        (a, b), (middle, sd), (low, high) = self.scores(f), self.place(f), self.ends
        if not self.logs:
            log_mass, mode, mean, variance = _integrals(a, b)
            return Inner(log_mass, (middle + sd * mode + sd * mean).clamp(low, high), sd**2 * variance)
        log_mass, powers = self.log_mass(a, b), list[torch.Tensor]()
        for k in (1, 2):  # E[y^k] = exp(k m + k^2 s^2 / 2) P(a - k s < z < b - k s) / P(a < z < b)
            powers.append(k * middle + k**2 * sd**2 / 2 + self.log_mass(a - k * sd, b - k * sd) - log_mass)
        mean = bounded(powers[0], MEAN_BOUND).exp().clamp(low, high)
        excess = (powers[1] - 2 * powers[0]).clamp_min(1e-12)
        log_excess = excess + (-(-excess).expm1()).log()  # log(exp(excess) - 1)
        return Inner(log_mass, mean, bounded(2 * powers[0] + log_excess, VARIANCE_BOUND).exp())

    def inverse(self, f: torch.Tensor, p: torch.Tensor) -> torch.Tensor:
        """The y with a share p of what lies between the limits below it, from the nearer tail."""
        from scipy.special import ndtri_exp

        a, b = self.scores(f)
        flip = a + b > 0
        low, rest = torch.where(flip, -b, a), torch.where(flip, 1 - p, p)
        level = torch.logaddexp(log_below(low), rest.clamp_min(1e-300).log() + self.log_mass(a, b))
        z = torch.from_numpy(np.asarray(ndtri_exp(level.clamp_max(0).cpu().numpy()))).to(a)
        return self.unscored(f, torch.where(flip, -z, z))

    def in_units(self, centre: float, scale: float) -> tuple[Limit, Limit]:
        return tuple(None if x is None else (x - centre) / scale for x in (self.lower, self.upper))  # type: ignore[return-value]


def log_below(z: torch.Tensor) -> torch.Tensor:
    """log Phi(z), with a slope however far out: beyond -60 by its series."""
    far = z.clamp_max(-FAR)
    series = (-(far**-2) + 3 * far**-4 - 15 * far**-6).log1p() - (-far).log() - far**2 / 2 - LOG_2_PI / 2
    return torch.where(z < -FAR, series, torch.special.log_ndtr(z.clamp_min(-FAR)))


def units(base: Family, w: torch.Tensor) -> tuple[float, float]:
    """Centre and scale in which a marginal fit is looked for; a known variance has its own."""
    free = base.size > 1
    return float(w.mean()), float(w.std(correction=0).clamp_min(1e-6 * (1 + w.abs().max()))) if free else 1.0


def _integrals(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """log(Phi(b) - Phi(a)), the mode r, and mean and variance of t."""
    mode = torch.minimum(torch.maximum(torch.zeros_like(a), a), b)
    reach = DEEP / ((mode**2 + DEEP).sqrt() + mode.abs())
    low, high = torch.maximum(a - mode, -reach), torch.minimum(b - mode, reach)
    x, weight = _nodes(a)
    half = ((high - low) / 2).clamp_min(1e-300)
    t = (low + half).unsqueeze(-1) + half.unsqueeze(-1) * x  # (..., node)
    density = weight * (-mode.unsqueeze(-1) * t - t**2 / 2).exp()
    total = density.sum(-1)
    mean = (density * t).sum(-1) / total
    variance = (density * (t - mean.unsqueeze(-1)) ** 2).sum(-1) / total
    return -(mode**2) / 2 - LOG_2_PI / 2 + (total * half).log(), mode, mean, variance


@cache
def _legendre() -> tuple[np.ndarray, np.ndarray]:
    return np.polynomial.legendre.leggauss(NODES)


def _nodes(like: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    x, weight = (torch.from_numpy(part).to(like) for part in _legendre())
    return x, weight


class BetweenLimits(Family):
    """What censored and truncated values share: the base's outputs, and limits that move with the units."""

    base: Family
    lower: Limit
    upper: Limit
    discrete = False
    exposures = ()

    @property
    def limits(self) -> Limits:
        return Limits(self.base, self.lower, self.upper)

    @property
    def shared(self) -> tuple[bool, ...]:
        return self.base.shared

    @property
    def standardised(self) -> bool:
        return self.base.standardised

    @property
    def units_by_item(self) -> bool:
        return not self.standardised

    @property
    def underlying(self) -> Family:
        return self.base

    @abstractmethod
    def moments(self, f: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Mean and variance, in double precision."""

    def mean(self, f: torch.Tensor) -> torch.Tensor:
        return self.moments(f)[0].to(f.dtype)

    def variance(self, f: torch.Tensor) -> torch.Tensor:
        return self.moments(f)[1].clamp_min(1e-30).to(f.dtype)

    def from_moments(self, mean: torch.Tensor, variance: torch.Tensor, start: torch.Tensor) -> torch.Tensor:
        """The base whose spread is the one that is asked for, and whose place gives the mean. Simple models tell one
        spread for all rows of an item, seen or cut off, so that it says more about the base than about what is left of
        it here. Newton's steps; a mean at a limit or beyond is taken for one just inside."""
        if self.size == 1:
            return super().from_moments(mean, variance, start)
        f = precise(self.base.from_moments(mean, variance, start)).reshape(-1, self.size)
        (middle, sd), (low, high) = self.limits.place(f), self.limits.ends
        margin = LEAST * torch.minimum(precise(variance).reshape(-1).sqrt(), torch.full_like(sd, (high - low) / 4))
        wanted = torch.minimum(torch.maximum(precise(mean).reshape(-1), low + margin), high - margin)
        moving = torch.arange(len(f), device=f.device)
        for _ in range(STEPS if len(f) else 0):
            step, here = SMALL * sd[moving], f[moving]
            aside = torch.stack((middle[moving] + step, here[:, 1]), -1)
            found, other = self.moments(torch.stack((here, aside)))[0]
            slope = ((other - found) / SMALL).clamp_min(torch.finfo(sd.dtype).tiny)
            off = (wanted[moving] - found) / slope  # in spreads of the base
            middle[moving] += sd[moving] * off.nan_to_num(0.0).clamp(-1, 1)
            f[moving, 0] = middle[moving]
            moving = moving[off.abs() > NEAR]
            if not len(moving):
                break
        return f.reshape(*mean.shape, self.size).to(mean.dtype)
