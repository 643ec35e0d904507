"""Where the values of a family may lie, and what to tell a user whose value lies elsewhere.

DataError: Poisson values must be whole numbers >= 0; column 'rating' has -1.0 at row 17 (user 'u3').
If -1 marks a missing value, pass missing=-1.

A value must also be one that computing can hold: networks see values in single precision, where 1e-50 is 0.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
import torch

from efattn.errors import DataError, option

SMALLEST, LARGEST = (float(x) for x in (np.finfo(np.float32).tiny, np.finfo(np.float32).max))
SINGLE, DOUBLE = 1e18, 1e150  # beyond them squares are infinite; values that are standardised first are so in double
NEAR = 1e-6  # relative: what a limit may differ by once values were in other units and in single precision
WHOLE, COUNT = 2**53, 2**63  # beyond WHOLE neighbouring whole numbers are one number; a count ends where int64 does


class Support(ABC):
    """A set of values."""

    @abstractmethod
    def contains(self, y: torch.Tensor | np.ndarray) -> np.ndarray:
        """True where y lies inside, elementwise. NaN lies outside."""

    @abstractmethod
    def check(
        self, title: str, y: torch.Tensor | np.ndarray, column: str | Sequence[str], label: Callable[[int], str]
    ) -> None:
        """Raise a DataError for the first value that is neither inside nor NaN; its row: which of y."""


class ScalarSupport(Support):
    """A set of numbers."""

    @property
    @abstractmethod
    def words(self) -> str:
        """The set in words."""

    @property
    @abstractmethod
    def bounds(self) -> tuple[float, float]:
        """Between which numbers it lies, whether or not they belong to it."""

    @property
    @abstractmethod
    def inside(self) -> float:
        """Some value inside, to stand where one is missing."""

    @abstractmethod
    def remedy(self, value: float) -> str:
        """What to do about a finite value outside."""

    @final
    def check(
        self, title: str, y: torch.Tensor | np.ndarray, column: str | Sequence[str], label: Callable[[int], str]
    ) -> None:
        values = _array(y).reshape(-1)
        outside = np.flatnonzero(~self.contains(values) & (values == values))
        if not outside.size:
            return
        row, value = int(outside[0]), values[outside[0]].item()
        remedy = self.remedy(value) if np.isfinite(value) else "Infinity is not a value: make it missing or mend it."
        name = column if isinstance(column, str) else column[0]
        text = f"{title} values must be {self.words}; column {name!r} has {value!r} at {label(row)}. {remedy}"
        raise DataError(text, column=name, row=row)


@final
@dataclass(frozen=True)
class RealLine(ScalarSupport):
    largest: float = SINGLE
    words = "finite numbers"
    bounds = (-np.inf, np.inf)
    inside = 0.0

    def contains(self, y: torch.Tensor | np.ndarray) -> np.ndarray:
        return np.abs(_array(y)) <= self.largest

    def remedy(self, value: float) -> str:
        return f"Beyond {self.largest:g} squares are infinite: choose other units, make it missing or mend it."


@final
@dataclass(frozen=True)
class PositiveReals(ScalarSupport):
    words = "finite numbers > 0"
    bounds = (0.0, np.inf)
    inside = 1.0

    def contains(self, y: torch.Tensor | np.ndarray) -> np.ndarray:
        return _positive(_array(y))

    def remedy(self, value: float) -> str:
        if value > 0:
            return _other_units(value)
        other = "'poisson' (counts) or 'gaussian'" if value == 0 else "'gaussian'"
        return f"{_if_a_code(value)} Otherwise choose a family that has it: {other}."


@final
@dataclass(frozen=True)
class ZeroAndMore(ScalarSupport):
    """0 itself, and the numbers > 0."""

    words = "finite numbers >= 0"
    bounds = (0.0, np.inf)
    inside = 1.0

    def contains(self, y: torch.Tensor | np.ndarray) -> np.ndarray:
        values = _array(y)
        return (values == 0) | _positive(values)

    def remedy(self, value: float) -> str:
        if value > 0:
            return _other_units(value)
        return f"{_if_a_code(value)} Otherwise choose {option('family', 'gaussian')}."


@final
@dataclass(frozen=True)
class Between(ScalarSupport):
    """Numbers from low to high, with both, either of which may be infinite; positive: and > 0. advice: what to do about
    others."""

    low: float
    high: float
    positive: bool = False
    largest: float = SINGLE
    advice: str = ""

    @property
    def words(self) -> str:
        low, high = f"{self.low:g}", f"{self.high:g}"
        above = f"numbers >= {low}" if np.isfinite(self.low) else "numbers > 0" if self.positive else "numbers"
        if np.isfinite(self.low) and np.isfinite(self.high):
            return f"numbers from {low} to {high}"
        return f"{above}, at most {high}" if np.isfinite(self.high) else above

    @property
    def bounds(self) -> tuple[float, float]:
        return max(self.low, 0.0) if self.positive else self.low, self.high

    @property
    def inside(self) -> float:
        low, high = self.bounds
        if np.isfinite(low):
            return (low + high) / 2 if np.isfinite(high) else low + 1
        return high - 1 if np.isfinite(high) else 0.0

    def contains(self, y: torch.Tensor | np.ndarray) -> np.ndarray:
        values = _array(y)
        low, high = (x - sign * NEAR * abs(x) if np.isfinite(x) else x for x, sign in ((self.low, 1), (self.high, -1)))
        found: np.ndarray = (values >= low) & (values <= high) & (np.abs(values) <= self.largest)
        return found & (values >= SMALLEST) if self.positive else found

    def remedy(self, value: float) -> str:
        return f"{_if_a_code(value)} {self.advice}".strip()


@final
@dataclass(frozen=True)
class UnitInterval(ScalarSupport):
    words = "numbers between 0 and 1, both excluded"
    bounds = (0.0, 1.0)
    inside = 0.5

    def contains(self, y: torch.Tensor | np.ndarray) -> np.ndarray:
        values = _array(y)
        inside = (values >= SMALLEST) & (values < 1)
        return inside & (np.where(inside, values, 0.5).astype(np.float32) < 1)

    def remedy(self, value: float) -> str:
        if 0 <= value <= 1:
            rounded = _in_single(value) + " " if 0 < value < 1 else ""
            return (
                f"{rounded}The interval is open: with n rows, (y * (n - 1) + 0.5) / n moves the ends inside; "
                f"{option('family', 'bernoulli')} is for values that are all 0 or 1."
            )
        return f"{_if_a_code(value)} Divide percentages by 100; otherwise choose {option('family', 'gaussian')}."


@final
@dataclass(frozen=True)
class WholeNumbers(ScalarSupport):
    """low, low + 1, ..., high; without end (but for that of computing) where high is None."""

    low: int = 0
    high: int | None = None

    @property
    def words(self) -> str:
        return f"whole numbers {f'>= {self.low}' if self.high is None else f'from {self.low} to {self.high}'}"

    @property
    def bounds(self) -> tuple[float, float]:
        return float(self.low), np.inf if self.high is None else float(self.high)

    @property
    def inside(self) -> float:
        return float(self.low)

    def contains(self, y: torch.Tensor | np.ndarray) -> np.ndarray:
        values = _array(y)
        high = COUNT if self.high is None else self.high
        return (values >= self.low) & (values <= high) & (np.floor(values) == values)

    def remedy(self, value: float) -> str:
        if abs(value) > WHOLE:
            return f"{_if_a_code(value)} Numbers as large as this want {option('family', 'gaussian')}, or other units."
        if value != int(value):
            return f"Values with a fraction want {option('family', 'gaussian')} (any number) or 'gamma' (numbers > 0)."
        if self.high is not None and value > self.high:
            return f"{_if_a_code(value)} Otherwise give the family a larger range."
        return _if_a_code(value)


@final
@dataclass(frozen=True)
class OneOf(ScalarSupport):
    """Inside any of several, each for rows of its own. No number is inside all of them: NaN stands in."""

    several: tuple[ScalarSupport, ...]
    inside = np.nan

    @property
    def words(self) -> str:
        return " or ".join(dict.fromkeys(one.words for one in self.several))

    @property
    def bounds(self) -> tuple[float, float]:
        lows, highs = zip(*(one.bounds for one in self.several), strict=True)
        return min(lows), max(highs)

    def contains(self, y: torch.Tensor | np.ndarray) -> np.ndarray:
        inside: np.ndarray = np.logical_or.reduce([one.contains(y) for one in self.several])
        return inside

    def remedy(self, value: float) -> str:
        return self.several[0].remedy(value)


@final
@dataclass(frozen=True)
class Columns(Support):
    """Several columns side by side: for each the title of its family and its support. y is (..., columns)."""

    parts: tuple[tuple[str, ScalarSupport], ...]

    @property
    def inside(self) -> tuple[float, ...]:
        """Some value inside, for each column."""
        return tuple(support.inside for _, support in self.parts)

    def contains(self, y: torch.Tensor | np.ndarray) -> np.ndarray:
        values = _array(y)
        return np.stack([support.contains(values[..., j]) for j, (_, support) in enumerate(self.parts)], axis=-1)

    def check(
        self, title: str, y: torch.Tensor | np.ndarray, column: str | Sequence[str], label: Callable[[int], str]
    ) -> None:
        values = _array(y)
        if values.ndim == 0 or values.shape[-1] != len(self.parts):
            raise DataError(f"{title} covers {len(self.parts)} value columns; the values have shape {values.shape}.")
        many = len(self.parts) > 1
        for j, (part, support) in enumerate(self.parts):
            name = column[j] if not isinstance(column, str) else f"{column}[{j}]" if many else column
            support.check(part, values[..., j], name, label)


def _if_a_code(value: float) -> str:
    plain = int(value) if value == int(value) and abs(value) < WHOLE else value
    return f"If {plain!r} marks a missing value, pass {option('missing', plain)}."


def _positive(values: np.ndarray) -> np.ndarray:
    return (values >= SMALLEST) & (values <= LARGEST)


def _other_units(value: float) -> str:
    return f"{_in_single(value)} Choose other units: multiply the column by a power of ten."


def _in_single(value: float) -> str:
    what = "infinite" if value > LARGEST else "0" if value < SMALLEST else "1"
    return f"In single precision, in which networks compute, it is {what}."


def _array(y: torch.Tensor | np.ndarray) -> np.ndarray:
    if isinstance(y, torch.Tensor):
        y = y.detach().cpu()
        return (y.double() if y.is_floating_point() else y.long()).numpy()
    values = np.asarray(y)
    return values.astype(np.int64 if values.dtype == bool else np.float64) if values.dtype.kind in "bf" else values
