"""What every family promises, and what an exponential family promises besides.

    log p(y | eta) = <eta, t(y)> - A(eta) + log h(y),     E[t(Y)] = grad A(eta),     Cov[t(Y)] = Hessian of A

The head of a network gives f, `size` numbers per row; the family turns f into eta. A family is a frozen dataclass
without state and never sees a network. Nothing is dropped from log_prob. All that anybody else may want to know about a
family it says itself: a new one is one class.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, ClassVar, NamedTuple, Self, final

import numpy as np
import torch

from efattn.errors import DataError, EfattnError
from efattn.families.moments import at_mean
from efattn.families.supports import NEAR, ScalarSupport, Support

LARGEST_LOG, LEAST_LEFT = 80.0, 1e-3  # of an expected value; of it, what is left where more is taken away

VAST, VASTEST = 1e9, 1e300  # whole numbers whose quantiles are looked for here; where the search ends


class Claim(NamedTuple):
    """That a column looks like a family's own: the lowest rank of all families wins; why, in words: what its values
    are, and looks, of what shape."""

    rank: float
    why: str
    looks: str = ""


class Family(ABC):
    """A distribution of y given f (..., size). y is (...,) where `scalar`, else (..., columns)."""

    name: ClassVar[str]  # as in family="poisson"
    scalar: ClassVar[bool] = True
    of_values: ClassVar[bool] = True  # whether a value column may have it; of a category and of a product it is no
    several_columns: ClassVar[bool] = False  # whether one of it takes all value columns
    around_first: ClassVar[bool] = False  # whether output 2, if any, is the log precision on the scale of output 1
    partial: ClassVar[bool] = False  # whether log_prob takes rows of which some columns are missing (NaN)
    known_outputs: ClassVar[int] = 0  # how many of its last outputs each row's exposure tells, and nothing is learnt of
    columns: int = 1  # how many value columns y has
    exponential: bool = False  # whether natural, statistic, log_partition and log_base define it

    # ---- what it is

    @classmethod
    @abstractmethod
    def examples(cls) -> tuple[Self, ...]:
        """One of each kind there is of it. Every law of the tests is about these."""

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
        """A probability (True) or a density (False): never compare one with the other. A density with atoms is neither,
        and compares with its like alone."""

    @property
    def brief(self) -> str:
        """As it is told: without what is said of each of many items."""
        return repr(self)

    @property
    def measured(self) -> bool:
        """Whether values may have a measurement error of known size besides (`with_noise`)."""
        return False

    def with_noise(self, f: torch.Tensor, variance: torch.Tensor) -> torch.Tensor:
        """The f of y plus an independent normal error of this variance (...,) and mean 0."""
        raise DataError(f"{self!r} takes no noise of known size: 'gaussian' with a variance that is learnt does.")

    @property
    def dispersions(self) -> tuple[bool, ...]:
        """The shared outputs that a network may also let vary, which say how far y lies from its location."""
        return self.shared

    @property
    @final
    def size(self) -> int:
        """How many numbers f the head gives per row."""
        return len(self.shared)

    @property
    def numbers(self) -> int:
        """At least `size`, told without making room for it: what a file must hold that says it has this family."""
        return self.size

    @property
    @final
    def exposure(self) -> int | None:
        """The one output that takes the logarithm of an exposure, or None."""
        if len(self.exposures) > 1:
            raise EfattnError(f"{self!r} takes an exposure at several outputs: use exposures, {self.exposures}.")
        return self.exposures[0] if self.exposures else None

    @property
    def mean_bounds(self) -> tuple[float, float]:
        """Between which numbers its means lie; of several columns, all of them."""
        return self.support.bounds if isinstance(self.support, ScalarSupport) else (-np.inf, np.inf)

    @property
    def level_names(self) -> tuple[int, ...]:
        """Its levels, each of which has a probability worth telling; of most families none."""
        return ()

    @property
    def cut_points(self) -> int:
        """Between its levels, where they are few and ordered: one less than there are. 0 of most families."""
        return 0

    @property
    def standardised(self) -> bool:
        """Whether values may be shifted and scaled before it sees them."""
        return False

    @property
    def squared_loss(self) -> bool:
        """Whether it has one column and log p is quadratic in y - mean."""
        return False

    @property
    def origin(self) -> float:
        """What may be taken from all values before they lose digits, for `at_origin` in place of this family."""
        return 0.0

    def at_origin(self) -> "Family":
        """The family of y - origin, with the same f."""
        return self

    @property
    def units_by_item(self) -> bool:
        """Whether values of each item may have units of their own: not where numbers of the family are in theirs."""
        return True

    def in_units(self, centre: float, scale: float) -> "Family":
        """The family of (y - centre) / scale, with the f of values in those units. Where it has atoms, log_prob gives
        them log scale more, so that what is added for a density is right for them, too."""
        return self.at_origin() if self.origin and centre == self.origin else self

    @property
    def atoms(self) -> tuple[float, ...]:
        """Values with a probability of their own where all others have a density; of most families none."""
        return ()

    @final
    def is_atom(self, y: torch.Tensor) -> torch.Tensor:
        """Whether each is one, but for rounding."""
        found = torch.zeros_like(y, dtype=torch.bool)
        for atom in self.atoms:
            found |= (y - atom).abs() <= NEAR * abs(atom)
        return found

    @property
    def underlying(self) -> "Family":
        """That of values before limits were put on them, with the same f."""
        return self

    # ---- what it computes

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

    def mass(self, f: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """P(Y = y) of each column on its own, shaped like y: that of atoms, and 0 of what has a density."""
        return self.log_prob(f, y).exp() if self.discrete else torch.zeros_like(self.cdf(f, y))

    def column(self, f: torch.Tensor, number: int) -> "tuple[Family, torch.Tensor]":
        """One of its columns on its own: a family of one column, and its outputs."""
        return self, f

    def laws(self, f: torch.Tensor) -> "Iterator[tuple[torch.Tensor, Family, slice]]":
        """Of one column: rows (index into the flattened ...), the family that they have, and its outputs. One family
        for all rows, mostly."""
        yield torch.arange(f[..., 0].numel()), self, slice(0, self.size)

    @abstractmethod
    def start(self, y: torch.Tensor, weight: torch.Tensor | None = None) -> torch.Tensor:
        """The one f (size,), float64, that fits all of y best: where training starts. NaN is missing."""

    def exposed_start(
        self, y: torch.Tensor, exposure: torch.Tensor, weight: torch.Tensor | None = None
    ) -> torch.Tensor:
        """The same where the logarithm of each row's exposure (...,) is added to the outputs that take it. Here: less
        that of their mean, which fits well where f is the logarithm of a rate."""
        f, rows = self.start(y, weight), exposure.double()
        mean = rows.mean() if weight is None else (rows * weight).sum() / weight.sum()
        f[list(self.exposures)] -= mean.log()
        return f

    def probabilities(self, f: torch.Tensor) -> torch.Tensor:
        """Of each of its `level_names`, (..., levels)."""
        raise EfattnError(f"{self!r} has no levels to tell the probabilities of.")

    def from_moments(self, mean: torch.Tensor, variance: torch.Tensor, start: torch.Tensor) -> torch.Tensor:
        """The f (..., size) with this mean and, where the family has a dispersion that is not known, this variance; a
        mean or a variance that it cannot have is moved just inside. start: its marginal fit (size,), for what moments
        do not say. Here: the first output is found that gives the mean, the others are those of the start."""
        if self.columns != 1 or not self.scalar or not self.of_values:
            raise DataError(f"{self!r} is not the family of one value column, which a mean and a variance describe.")
        return at_mean(self.mean, mean, start)

    def from_log_moments(
        self, mean: torch.Tensor, variance: torch.Tensor, start: torch.Tensor, more: float = 0.0
    ) -> torch.Tensor:
        """The same, of values from a lowest on: with this mean and variance of log(y - lowest + more). Here: by those
        that y has then, if the logarithm is normal."""
        level, low = (mean + variance / 2).clamp(-LARGEST_LOG, LARGEST_LOG).exp(), self.mean_bounds[0]
        expected = torch.maximum(level - more, LEAST_LEFT * level) + low
        return self.from_moments(expected, variance.expm1() * level**2, start)

    def on_its_scale(self, f: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor] | None:
        """How far y is from the first output on the scale on which it is normal around that, and its variance there;
        None of most families, whose moments say as much."""
        return None

    def from_margins(self, margins: torch.Tensor) -> torch.Tensor:
        """The f (..., size) with P(y <= level k) = sigmoid(margins_k). margins: (..., cut_points), which grow."""
        raise EfattnError(f"{self!r} has no levels to tell the probabilities of.")

    def identified(self, f: torch.Tensor, mean: torch.Tensor) -> torch.Tensor:
        """What two fits have in common up to a linear map, (..., any): the natural parameter. Here, where there is
        none, the outputs that vary from row to row. mean: (..., columns), in the table's units."""
        return f[..., [i for i, shared in enumerate(self.shared) if not shared]]

    # ---- what it says about a table's values

    @classmethod
    def sized(cls, values: np.ndarray, columns: int) -> dict[str, Any]:
        """The arguments of its constructor that data decide. values: any shape, NaN where missing."""
        return {}

    @classmethod
    def applicable(cls, values: np.ndarray) -> Claim | None:
        """Whether a column looks like its own, which family="auto" asks. values: (n,), all finite."""
        return None

    def by_item(self, item: np.ndarray) -> Iterator[tuple[np.ndarray, int, "Family"]]:
        """Where its law depends on a row's item: rows, their column, and the family that they have. item: (row,)."""
        yield from ()

    @final
    def check(
        self,
        y: torch.Tensor | np.ndarray,
        column: str | Sequence[str] = "value",
        label: Callable[[int], str] | None = None,
        row: Callable[[int], int] | None = None,
        item: np.ndarray | None = None,
    ) -> None:
        """Raise a DataError for the first value outside the support. NaN is missing, and passes. label: a row of y in
        words; row: its number in the table, for the error's `row`; item: the number of each row's."""
        words = label or (lambda index: f"row {index}")
        try:
            self.support.check(type(self).__name__, y, column, words)
            if item is not None:
                self._check_by_item(np.asarray(y).reshape(len(item), self.columns), column, words, item)
        except DataError as error:
            if error.row is not None and label is not None:
                error.row = None if row is None else row(error.row)
            raise

    def _check_by_item(
        self, y: np.ndarray, column: str | Sequence[str], label: Callable[[int], str], item: np.ndarray
    ) -> None:
        for rows, c, part in self.by_item(item):
            name = column if isinstance(column, str) else column[c]
            try:
                part.support.check(type(part).__name__, y[rows, c], name, partial(_one_of, label, rows))
            except DataError as error:
                error.row = None if error.row is None else int(rows[error.row])
                raise


def _one_of(label: Callable[[int], str], rows: np.ndarray, index: int) -> str:
    return label(int(rows[index]))


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

    def identified(self, f: torch.Tensor, mean: torch.Tensor) -> torch.Tensor:
        return self.natural(f) if self.exponential else super().identified(f, mean)


@final
class Frozen:
    """One of scipy.stats with its parameters, for a row each. scipy's own writes its documentation anew each time,
    which takes longer than a thousand quantiles."""

    def __init__(self, law: Any, *shapes: Any, **place: Any) -> None:
        self.law, self.shapes, self.place = law, shapes, place

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """cdf, ppf, mean, ... as those of scipy's."""
        method = getattr(self.law, name)
        return lambda *given, **more: method(*given, *self.shapes, **self.place, **more)


class ScipyFamily(Family):
    """A family whose cdf and quantiles scipy knows. scipy is loaded when one of them is first asked for."""

    @abstractmethod
    def distribution(self, f: torch.Tensor) -> Any:
        """That of scipy.stats which y has (each column on its own), `Frozen` or as scipy freezes it."""

    @final
    def cdf(self, f: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        values = self.distribution(f).cdf(to_numpy(y))
        return torch.as_tensor(np.asarray(values), dtype=f.dtype, device=f.device)

    @final
    def quantile(self, f: torch.Tensor, p: float | torch.Tensor) -> torch.Tensor:
        distribution = self.distribution(f)
        levels = to_numpy(p) if isinstance(p, torch.Tensor) else np.float64(p)
        values = _halved(distribution, levels) if _vast(distribution) else np.asarray(distribution.ppf(levels))
        values = np.clip(values, *distribution.support())  # scipy: low - 1 at p = 0
        return torch.as_tensor(np.asarray(values), dtype=f.dtype, device=f.device)


def _vast(distribution: Any) -> bool:
    """Whether whole numbers go beyond where scipy counts: from 1e11 on it says NaN, or looks for hours."""
    if not hasattr(distribution.law if isinstance(distribution, Frozen) else distribution, "pmf"):
        return False
    mean, variance = distribution.stats(moments="mv")
    return bool(np.any(np.abs(mean) > VAST) or np.any(variance > VAST**1.5))


def _halved(distribution: Any, p: np.ndarray | np.float64) -> np.ndarray:
    """The least whole number whose cdf is at least p, between two that are doubled and then halved."""
    mean, variance = distribution.stats(moments="mv")
    low, high = distribution.support()
    below = np.full(np.broadcast(mean, p).shape, low - 1.0)
    above = np.ceil(mean + np.sqrt(variance)) + np.zeros_like(below) + 1.0
    while ((short := distribution.cdf(above) < p) & (above < VASTEST)).any():
        below, above = np.where(short, above, below), np.where(short, 2 * above, above)
    while (above - below > np.maximum(1.0, 4e-16 * above)).any():
        middle = np.floor((below + above) / 2)
        short = distribution.cdf(middle) < p
        below, above = np.where(short, middle, below), np.where(short, above, middle)
    return np.where(p < 1, above, high)


def to_numpy(x: torch.Tensor) -> np.ndarray:
    return x.detach().cpu().double().numpy()
