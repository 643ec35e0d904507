"""What every family promises, and what an exponential family promises besides.

    log p(y | eta) = <eta, t(y)> - A(eta) + log h(y),     E[t(Y)] = grad A(eta),     Cov[t(Y)] = Hessian of A

The head of a network gives f, `size` numbers per row; the family turns f into eta. A family is a frozen value without
state and never sees a network. Nothing is dropped from log_prob.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, final

import numpy as np
import torch

from efattn.errors import EfattnError
from efattn.families.supports import Support


class Family(ABC):
    """A distribution of y given f (..., size). y is (...,) where `scalar`, else (..., columns)."""

    name: ClassVar[str]  # as in family="poisson"
    scalar: ClassVar[bool] = True
    columns: int = 1  # how many value columns y has
    exponential: bool = False  # whether natural, statistic, log_partition and log_base define it

    @property
    @abstractmethod
    def shared(self) -> tuple[bool, ...]:
        """One flag per output of the head: True for a bias-only one (a learned variance, r, cut-point)."""

    @property
    @abstractmethod
    def exposures(self) -> tuple[int, ...]:
        """The outputs to which the logarithm of an exposure is added."""

    @property
    @abstractmethod
    def support(self) -> Support:
        """Where y may lie."""

    @property
    @abstractmethod
    def discrete(self) -> bool:
        """A probability (True) or a density (False): never compare one with the other."""

    @property
    @final
    def size(self) -> int:
        """How many numbers f the head gives per row."""
        return len(self.shared)

    @property
    @final
    def exposure(self) -> int | None:
        """The one output that takes the logarithm of an exposure, or None."""
        if len(self.exposures) > 1:
            raise EfattnError(f"{self!r} takes an exposure at several outputs: use exposures, {self.exposures}.")
        return self.exposures[0] if self.exposures else None

    @abstractmethod
    def log_prob(self, f: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """The full log-probability or log-density of y, (...,)."""

    @abstractmethod
    def mean(self, f: torch.Tensor) -> torch.Tensor:
        """E[y], shaped like y (Categorical: the probabilities of its levels)."""

    @abstractmethod
    def variance(self, f: torch.Tensor) -> torch.Tensor:
        """Var[y] of each column, shaped like mean."""

    @abstractmethod
    def sample(self, f: torch.Tensor, generator: torch.Generator | None = None) -> torch.Tensor:
        """One draw per row of f, inside the support, shaped like y."""

    @abstractmethod
    def cdf(self, f: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """P(Y <= y) of each column on its own, shaped like y."""

    @abstractmethod
    def quantile(self, f: torch.Tensor, p: float | torch.Tensor) -> torch.Tensor:
        """The smallest y with cdf >= p, for each column on its own."""

    @abstractmethod
    def start(self, y: torch.Tensor, weight: torch.Tensor | None = None) -> torch.Tensor:
        """The one f (size,), float64, that fits all of y best: where training starts. NaN is missing."""

    @final
    def check(
        self,
        y: torch.Tensor | np.ndarray,
        column: str | Sequence[str] = "value",
        label: Callable[[int], str] | None = None,
    ) -> None:
        """Raise a DataError for the first value outside the support. NaN is missing, and passes."""
        self.support.check(type(self).__name__, y, column, label or (lambda index: f"row {index}"))


class ExponentialFamily(Family):
    """A family by its definition. log_prob is the numerically stable form of natural_log_prob."""

    exponential: bool = True

    @abstractmethod
    def natural(self, f: torch.Tensor) -> torch.Tensor:
        """The natural parameter eta, (..., k)."""

    @abstractmethod
    def statistic(self, y: torch.Tensor) -> torch.Tensor:
        """The sufficient statistic t(y), (..., k)."""

    @abstractmethod
    def log_partition(self, eta: torch.Tensor) -> torch.Tensor:
        """A(eta), (...,)."""

    @abstractmethod
    def log_base(self, y: torch.Tensor) -> torch.Tensor:
        """log h(y), (...,)."""

    @final
    def natural_log_prob(self, f: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """<eta, t(y)> - A(eta) + log h(y): the definition."""
        eta = self.natural(f)
        return (eta * self.statistic(y)).sum(-1) - self.log_partition(eta) + self.log_base(y)


class ScipyFamily(Family):
    """A family whose cdf and quantiles scipy knows. scipy is loaded when one of them is first asked for."""

    @abstractmethod
    def distribution(self, f: torch.Tensor) -> Any:
        """The frozen scipy.stats distribution of y (of each column on its own)."""

    @final
    def cdf(self, f: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        values = self.distribution(f).cdf(to_numpy(y))
        return torch.as_tensor(np.asarray(values), dtype=f.dtype, device=f.device)

    @final
    def quantile(self, f: torch.Tensor, p: float | torch.Tensor) -> torch.Tensor:
        distribution = self.distribution(f)
        levels = to_numpy(p) if isinstance(p, torch.Tensor) else np.float64(p)
        values = np.clip(distribution.ppf(levels), *distribution.support())  # scipy: low - 1 at p = 0
        return torch.as_tensor(np.asarray(values), dtype=f.dtype, device=f.device)


def to_numpy(x: torch.Tensor) -> np.ndarray:
    return x.detach().cpu().double().numpy()
