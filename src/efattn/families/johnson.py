"""Real numbers that are skewed, or far out on both sides: normal on a bent scale (Johnson's S_U).

u = (y - centre) / width,   g = asinh u,   log p(y) = -(g - m)^2 e^b / 2 + (b - log(2 pi)) / 2 - log(width)
                                                      - log(1 + u^2) / 2,      b = -log s^2,   s^2 = Var[g]

spread a number           f = m         eta = m / s^2               t = g          A = s^2 eta^2 / 2
"learned", "predicted"    f = (m, b)    eta = (m e^b, -e^b / 2)     t = (g, g^2)   A = -eta_1^2 / (4 eta_2)
                                                                                       - log(-2 eta_2) / 2
E[y] = centre + width w^(1/2) sinh m,   Var[y] = width^2 (w - 1) (w cosh 2m + 1) / 2,   w = exp(s^2)

Near the centre the scale is that of y, beyond the width that of its logarithm: delays, profits, balances. Moments are
finite, and a wide width makes it a normal law.
"""

import math
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, ClassVar, final

import numpy as np
import torch

from efattn.errors import DataError
from efattn.families.base import ExponentialFamily, Frozen, ScipyFamily, to_numpy
from efattn.families.dispersion import Dispersion, check_dispersion, log_dispersion, outputs
from efattn.families.marginal import moments, observed
from efattn.families.stable import LOG_2_PI, bounded, precise, precisely, unbounded
from efattn.families.supports import DOUBLE, SINGLE, RealLine

BOUND = 10.0  # of b
MEAN_BOUND, VARIANCE_BOUND = 24.0, 60.0  # of logarithms: beyond, single precision would be infinite
NARROW, WIDE, LOOKED = 0.02, 50.0, 4000  # of the width, in standard deviations; values that it is found by


@final
@dataclass(frozen=True)
class Johnson(ScipyFamily, ExponentialFamily):
    """Any finite number. centre, width: where the scale bends, in units of y, found from the data by family="auto" and
    by name. The second output, where there is one, is the log precision of g."""

    centre: float = 0.0
    width: float = 1.0
    spread: Dispersion = "learned"
    name: ClassVar[str] = "johnson"
    around_first: ClassVar[bool] = True
    discrete = False
    exposures = ()
    standardised = True
    units_by_item = False
    support = RealLine(DOUBLE)

    def __post_init__(self) -> None:
        check_dispersion("Johnson", "spread", self.spread)
        check_dispersion("Johnson", "width", self.width)
        if isinstance(self.width, str) or not isinstance(self.centre, Real) or not math.isfinite(self.centre):
            raise DataError(f"Johnson: centre and width must be finite numbers, not {self.centre!r}, {self.width!r}.")

    @classmethod
    def examples(cls) -> "tuple[Johnson, ...]":
        return cls(), cls(-0.5, 2.0, spread=0.5), cls(0.3, 0.7, spread="predicted")

    @classmethod
    def sized(cls, values: np.ndarray, columns: int) -> dict[str, Any]:
        """Centre and width under which the values, each without its context, are most likely."""
        from scipy.optimize import minimize

        y = values[np.isfinite(values)].astype(float)
        y = y[:: -(-len(y) // LOOKED)] if len(y) else y
        if not y.size or y.min() == y.max():
            return {}
        middle, sd = float(np.median(y)), float(y.std())
        z = (y - middle) / sd

        def loss(point: np.ndarray) -> float:
            log_width = float(np.clip(point[1], math.log(NARROW), math.log(WIDE)))
            u = (z - point[0]) / math.exp(log_width)
            return float(np.log(np.arcsinh(u).std()) + log_width + np.log1p(u**2).mean() / 2)

        starts = [np.array([0.0, math.log(w)]) for w in (0.1, 0.5, 2.0)]
        best = min((minimize(loss, one, method="Nelder-Mead") for one in starts), key=lambda found: found.fun).x
        return {
            "centre": middle + sd * float(np.clip(best[0], z.min(), z.max())),
            "width": sd * math.exp(float(np.clip(best[1], math.log(NARROW), math.log(WIDE)))),
        }

    @property
    def shared(self) -> tuple[bool, ...]:
        return outputs(self.spread)

    def in_units(self, centre: float, scale: float) -> "Johnson":
        return replace(self, centre=(self.centre - centre) / scale, width=self.width / scale)

    def natural(self, f: torch.Tensor) -> torch.Tensor:
        precision = self._log_precision(f).exp()
        return torch.stack([f[..., 0] * precision, -precision / 2][: self.size], -1)

    def statistic(self, y: torch.Tensor) -> torch.Tensor:
        g = self._bent(y)
        return torch.stack([g, g**2][: self.size], -1)

    def log_partition(self, eta: torch.Tensor) -> torch.Tensor:
        if not isinstance(self.spread, str):
            return self.spread * eta[..., 0] ** 2 / 2
        return -(eta[..., 0] ** 2) / (4 * eta[..., 1]) - (-2 * eta[..., 1]).log() / 2

    def log_base(self, y: torch.Tensor) -> torch.Tensor:
        scale = math.log(self.width) + (((y - self.centre) / self.width) ** 2).log1p() / 2
        if isinstance(self.spread, str):
            return -LOG_2_PI / 2 - scale
        return -(self._bent(y) ** 2) / (2 * self.spread) - (LOG_2_PI + math.log(self.spread)) / 2 - scale

    @precisely
    def log_prob(self, f: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        b, u = self._log_precision(f), (y - self.centre) / self.width
        far = -((u.asinh() - f[..., 0]) ** 2) * b.exp() / 2
        return far + (b - LOG_2_PI) / 2 - math.log(self.width) - (u**2).log1p() / 2

    def mean(self, f: torch.Tensor) -> torch.Tensor:
        exact = precise(f)
        m, half = exact[..., 0], self._squared(exact) / 2
        up, down = (bounded(half + x, MEAN_BOUND).exp() for x in (m, -m))
        return (self.centre + self.width * (up - down) / 2).to(f.dtype)

    def variance(self, f: torch.Tensor) -> torch.Tensor:
        exact = precise(f)
        m, s2 = exact[..., 0], self._squared(exact)
        excess = s2 + (-(-s2).expm1()).clamp_min(torch.finfo(f.dtype).tiny).log()  # log(w - 1)
        parts = [excess + s2 + 2 * m - math.log(2), excess + s2 - 2 * m - math.log(2), excess]
        total = torch.stack([bounded(x, VARIANCE_BOUND).exp() for x in parts]).sum(0)
        return (self.width**2 * total / 2).to(f.dtype)

    def sample(self, f: torch.Tensor, generator: torch.Generator | None = None) -> torch.Tensor:
        exact = precise(f.detach())
        g = torch.normal(exact[..., 0], self._squared(exact).sqrt(), generator=generator)
        return (self.centre + self.width * g.clamp(-700, 700).sinh()).clamp(-SINGLE, SINGLE).to(f.dtype)

    def distribution(self, f: torch.Tensor) -> Any:
        from scipy import stats

        f = f.double()
        sharp = (self._log_precision(f) / 2).exp()
        shapes = (to_numpy(-f[..., 0] * sharp), to_numpy(sharp))
        return Frozen(stats.johnsonsu, *shapes, loc=self.centre, scale=self.width)

    def start(self, y: torch.Tensor, weight: torch.Tensor | None = None) -> torch.Tensor:
        rows, weights = observed(y, weight)
        if not len(rows):
            return rows.new_zeros(self.size)
        mean, variance = moments(self._bent(rows), weights)
        return torch.stack([mean, unbounded(-variance.clamp_min(1e-8).log(), BOUND)][: self.size])

    def from_moments(self, mean: torch.Tensor, variance: torch.Tensor, start: torch.Tensor) -> torch.Tensor:
        """From w^2 + 2 c w = 1 + 2 c + 2 v, where c = (mean - centre)^2 / width^2 and v = variance / width^2."""
        at = (mean - self.centre) / self.width
        if isinstance(self.spread, str):
            v = (variance / self.width**2).clamp(1e-8, 1e12)
            w = 1 + 2 * v / (1 + at**2 + ((1 + at**2) ** 2 + 2 * v).sqrt())
            s2 = w.log().clamp(1e-8)
        else:
            s2 = torch.full_like(at, self.spread)
        m = ((-s2 / 2).exp() * at).asinh()
        return torch.stack([m, unbounded(-s2.log(), BOUND)][: self.size], -1)

    def on_its_scale(self, f: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self._bent(y) - f[..., 0], self._squared(f)

    def _bent(self, y: torch.Tensor) -> torch.Tensor:
        return ((y - self.centre) / self.width).asinh()

    def _log_precision(self, f: torch.Tensor) -> torch.Tensor:
        known = self.spread
        return log_dispersion(known if isinstance(known, str) else 1 / known, f, BOUND)

    def _squared(self, f: torch.Tensor) -> torch.Tensor:
        return (-self._log_precision(f)).exp()
