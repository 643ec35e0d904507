"""Several real numbers that vary together.

    log p(y) = -|z|^2 / 2 + sum_j b_j - d log(2 pi) / 2,   z = R (y - mu),   R = diag(e^b) U,   precision = R^T R

U is unit lower triangular: row j regresses column j on the columns before it, and e^b_j is the precision that is left.
f = (mu, b, U below the diagonal, row by row).
eta = (precision mu, -precision / 2),   t(y) = (y, y y^T),   A = mu^T precision mu / 2 - log det(precision) / 2
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, final

import numpy as np
import torch

from efattn.families.base import ExponentialFamily, Family, Frozen, ScipyFamily, to_numpy
from efattn.families.dispersion import check_choice, check_whole
from efattn.families.gaussian import Gaussian
from efattn.families.marginal import average, moments, observed
from efattn.families.stable import LOG_2_PI, bounded, precisely, unbounded
from efattn.families.supports import DOUBLE, Columns, RealLine

LOG_BOUND = 15.0  # of b: z is squared
SLOPE_BOUND = 100.0  # of U: its inverse holds products of d - 1 of its entries


@final
@dataclass(frozen=True)
class MultivariateGaussian(ScipyFamily, ExponentialFamily):
    """d finite numbers with a full covariance. cdf and quantile are those of each column on its own."""

    columns: int = 2
    covariance: Literal["learned", "predicted"] = "learned"
    name: ClassVar[str] = "multivariate_gaussian"
    scalar: ClassVar[bool] = False
    several_columns: ClassVar[bool] = True
    partial: ClassVar[bool] = True
    standardised = True
    discrete = False
    exposures = ()

    def __post_init__(self) -> None:
        check_whole("MultivariateGaussian", "columns", self.columns, low=1)
        check_choice("MultivariateGaussian", "covariance", self.covariance, ("learned", "predicted"))

    @classmethod
    def examples(cls) -> "tuple[MultivariateGaussian, ...]":
        return cls(columns=2), cls(columns=3, covariance="predicted")

    @classmethod
    def sized(cls, values: np.ndarray, columns: int) -> dict[str, Any]:
        return {"columns": columns}

    @property
    def numbers(self) -> int:
        return 2 * self.columns + self.columns**2

    @property
    def shared(self) -> tuple[bool, ...]:
        d = self.columns
        return (False,) * d + (self.covariance == "learned",) * (d + d * (d - 1) // 2)

    @property
    def support(self) -> Columns:
        return Columns((("MultivariateGaussian", RealLine(DOUBLE)),) * self.columns)

    def natural(self, f: torch.Tensor) -> torch.Tensor:
        mean, b, unit = self._parts(f)
        root = b.exp().unsqueeze(-1) * unit
        precision = root.mT @ root  # (..., d, d)
        weighted = (precision @ mean.unsqueeze(-1)).squeeze(-1)
        return torch.cat([weighted, -precision.flatten(-2) / 2], -1)

    def statistic(self, y: torch.Tensor) -> torch.Tensor:
        return torch.cat([y, (y.unsqueeze(-1) * y.unsqueeze(-2)).flatten(-2)], -1)

    def log_partition(self, eta: torch.Tensor) -> torch.Tensor:
        weighted, half = eta[..., : self.columns], eta[..., self.columns :].unflatten(-1, (self.columns, self.columns))
        root = torch.linalg.cholesky(-half - half.mT)  # of the precision
        z = torch.linalg.solve_triangular(root, weighted.unsqueeze(-1), upper=False).squeeze(-1)
        return (z**2).sum(-1) / 2 - root.diagonal(dim1=-2, dim2=-1).log().sum(-1)

    def log_base(self, y: torch.Tensor) -> torch.Tensor:
        return torch.full_like(y[..., 0], -LOG_2_PI * self.columns / 2)

    @precisely
    def log_prob(self, f: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Of the columns that are there, where some are NaN: 0 of none."""
        shape = torch.broadcast_shapes(f.shape[:-1], y.shape[:-1])
        f, y = f.expand(*shape, -1), y.expand(*shape, -1)
        mean, b, unit = self._parts(f)
        there = ~y.isnan()
        away = torch.where(there, y, mean) - mean
        z = b.exp() * (unit @ away.unsqueeze(-1)).squeeze(-1)
        whole = -(z**2).sum(-1) / 2 + b.sum(-1) - LOG_2_PI * self.columns / 2
        some = ~there.all(-1)
        if y.device.type != "cpu":  # finding such rows would wait for a GPU
            return torch.where(some, self._marginal(f, away, there), whole)
        if not bool(some.any()):
            return whole
        return whole.masked_scatter(some, self._marginal(f[some], away[some], there[some]))

    def mean(self, f: torch.Tensor) -> torch.Tensor:
        return f[..., : self.columns]

    def variance(self, f: torch.Tensor) -> torch.Tensor:
        return (self._scale(f) ** 2).sum(-1)

    def sample(self, f: torch.Tensor, generator: torch.Generator | None = None) -> torch.Tensor:
        mean, scale = self.mean(f.detach()), self._scale(f.detach())
        noise = torch.randn(mean.shape, dtype=f.dtype, device=f.device, generator=generator)
        return mean + (scale @ noise.unsqueeze(-1)).squeeze(-1)

    def distribution(self, f: torch.Tensor) -> Any:
        from scipy import stats

        return Frozen(stats.norm, to_numpy(self.mean(f)), to_numpy(self.variance(f.double()).sqrt()))

    def column(self, f: torch.Tensor, number: int) -> tuple[Family, torch.Tensor]:
        one = Gaussian(variance="predicted")
        return one, one.from_moments(self.mean(f)[..., number], self.variance(f)[..., number], f)

    def start(self, y: torch.Tensor, weight: torch.Tensor | None = None) -> torch.Tensor:
        d = self.columns
        rows, weights = observed(y, weight, columns=d)
        if not len(rows):
            return self._by_column(y, weight)
        mean = average(rows, weights)
        centred = rows - mean
        covariance = (centred * weights.unsqueeze(-1)).T @ centred / weights.sum()
        ridge = 1e-10 * (covariance.diagonal() + 1e-2 * (1 + mean**2))
        return self.from_law(mean, covariance + ridge.diag())

    def _by_column(self, y: torch.Tensor, weight: torch.Tensor | None) -> torch.Tensor:
        """Where no row has all columns: each by itself."""
        each = [moments(*observed(column, weight)) for column in y.unbind(-1)]
        mean, variance = (torch.stack(x).nan_to_num(0.0) for x in zip(*each, strict=True))
        return self.from_law(mean, variance.clamp_min(1e-10 * (1 + mean**2)).diag())

    def from_law(self, mean: torch.Tensor, covariance: torch.Tensor) -> torch.Tensor:
        """The f (..., size) with this mean (..., columns) and covariance (..., columns, columns)."""
        scale = torch.linalg.cholesky(covariance)
        eye = torch.eye(self.columns, dtype=mean.dtype, device=mean.device).expand_as(scale)
        root = torch.linalg.solve_triangular(scale, eye, upper=False)
        diagonal = root.diagonal(dim1=-2, dim2=-1)
        below = torch.tril_indices(self.columns, self.columns, -1, device=mean.device)
        slopes = (root / diagonal.unsqueeze(-1))[..., below[0], below[1]]
        return torch.cat([mean, unbounded(diagonal.log(), LOG_BOUND), unbounded(slopes, SLOPE_BOUND)], -1)

    def _marginal(self, f: torch.Tensor, away: torch.Tensor, there: torch.Tensor) -> torch.Tensor:
        """log p (row,) of the columns that are there (row, d): a column that is not has variance 1, and is its mean."""
        scale = self._scale(f)
        both = there.unsqueeze(-1) & there.unsqueeze(-2)
        covariance = torch.where(both, scale @ scale.mT, torch.diag_embed((~there).to(f.dtype)))
        root = torch.linalg.cholesky_ex(covariance).L
        z = torch.linalg.solve_triangular(root, away.unsqueeze(-1), upper=False).squeeze(-1)
        log_det = root.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        return -(z**2).sum(-1) / 2 - log_det - LOG_2_PI * there.sum(-1) / 2

    def identified(self, f: torch.Tensor, mean: torch.Tensor) -> torch.Tensor:
        """The means: the units in which f stands are each fit's own."""
        return mean

    def _parts(self, f: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """mu (..., d), b (..., d) and U (..., d, d)."""
        d = self.columns
        unit = torch.eye(d, dtype=f.dtype, device=f.device).repeat(*f.shape[:-1], 1, 1)
        below = torch.tril_indices(d, d, -1, device=f.device)
        unit[..., below[0], below[1]] = bounded(f[..., 2 * d :], SLOPE_BOUND)
        return f[..., :d], bounded(f[..., d : 2 * d], LOG_BOUND), unit

    def _scale(self, f: torch.Tensor) -> torch.Tensor:
        """R^-1 (..., d, d): the covariance is R^-1 R^-T."""
        _, b, unit = self._parts(f)
        eye = torch.eye(self.columns, dtype=f.dtype, device=f.device).expand_as(unit)
        return torch.linalg.solve_triangular(unit, eye, upper=False, unitriangular=True) * (-b).exp().unsqueeze(-2)
