"""What is said of each row of one value column, as a law that can be asked anything, in the table's units.

    F(y) = F'((y - centre) / scale)          log p(y) = log p'((y - centre) / scale) - log scale

Each row's law is the exact mixture of all members and companions, from the row's context, never from itself.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from numbers import Real
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from efattn.data import Vocabulary
from efattn.errors import DataError, named
from efattn.inference.calibration import Calibration
from efattn.inference.crps import crps
from efattn.inference.laws import Laws

MOST_LEVELS = 10_000
Asked = Callable[[Laws, Tensor], Tensor]


@final
@dataclass(frozen=True, eq=False)
class Distribution:
    """One predictive law per row, in the order of the table. len, [i], [a:b] and [mask] give those of some rows.

        law.mean, law.sd, law.median        law.quantile(.5), law.quantiles([.1, .5, .9])       law.interval(.9)
        law.cdf(x), law.pdf(x), law.log_prob(x) (or log_pdf), law.pmf()       law.sample(100, seed=0)
        law.probability(above=30)           law.log_score(), law.crps(), law.pit()

    x is one number, one per row, or a (1, n) or (row, n) array; answers are arrays, one entry or line a row. Scores are
    of the table's own values unless others are passed, and NaN where there are none. Rows are each on their own: draws
    of two rows are not joint. A law of whole numbers has probabilities where others have densities. Of a model that was
    calibrated, quantiles, intervals, cdf, events and pit are adjusted; mean, sd, densities, draws, log score and CRPS
    are those of the model's own law, which `own` has whole.

    observed: the table's own values, NaN where missing; scored: which rows count in a score; group: the number of each
    row's group; item: of its item, in `items`; words: of a column of a wide table that holds words, what the whole
    numbers 0, 1, ... stand for: x and y may be words, and draws are."""

    column: str
    laws: tuple[tuple[np.ndarray, Laws], ...]  # rows, and what is said of them
    centre: np.ndarray
    scale: np.ndarray
    observed: np.ndarray
    scored: np.ndarray
    group: np.ndarray
    item: np.ndarray | None = None
    items: Vocabulary | None = None
    calibration: Calibration | None = None
    words: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.centre)

    def __repr__(self) -> str:
        kinds = ", ".join(dict.fromkeys(type(laws.family).__name__ for _, laws in self.laws))
        several = max((len(laws.outputs) for _, laws in self.laws), default=1)
        mixed = f", each a mixture of {several}" if several > 1 else ""
        return f"Distribution of {self.column!r}: {len(self):,} laws ({kinds}){mixed}"

    def __iter__(self) -> Iterator["Distribution"]:
        return (self[row] for row in range(len(self)))

    def __getitem__(self, which: Any) -> "Distribution":
        """Of some rows: a number, a slice, numbers or truth values. Its own column's name gives itself."""
        if isinstance(which, str):
            if which != self.column:
                raise KeyError(f"there is only {self.column!r}, not {which!r}")
            return self
        index = np.atleast_1d(np.arange(len(self))[which])
        laws = []
        for rows, some in self.laws:
            place = np.full(len(self), -1)
            place[rows] = np.arange(len(rows))
            kept = place[index]
            if (kept >= 0).any():
                laws.append((np.flatnonzero(kept >= 0), some.take(torch.from_numpy(kept[kept >= 0]))))
        names = ("centre", "scale", "observed", "scored", "group", "item")
        columns: dict[str, Any] = {name: x if (x := getattr(self, name)) is None else x[index] for name in names}
        return replace(self, laws=tuple(laws), **columns)

    # ---- what it is

    @cached_property
    def discrete(self) -> np.ndarray:
        """(row,): whether values are whole numbers, with a probability each."""
        whole = np.zeros(len(self), bool)
        for rows, laws in self.laws:
            whole[rows] = laws.family.discrete
        return whole

    @cached_property
    def stepped(self) -> np.ndarray:
        """(row,): whether some values have a probability of their own: whole numbers, limits, a zero."""
        some = np.zeros(len(self), bool)
        for rows, laws in self.laws:
            some[rows] = laws.stepped
        return some

    @cached_property
    def mean(self) -> np.ndarray:
        return self._told(lambda laws: laws.mean) * self.scale + self.centre

    @cached_property
    def sd(self) -> np.ndarray:
        return self._told(lambda laws: laws.variance.sqrt()) * self.scale

    @cached_property
    def median(self) -> np.ndarray:
        return self.quantiles(0.5)

    def quantiles(self, q: float | Sequence[float]) -> np.ndarray:
        """The smallest y with a probability of at least q to be there or below: (row,) for one q, (row, n) for n."""
        if isinstance(q, float | Real):
            return self.quantiles([q])[:, 0]
        asked = np.array([probability("q", one) for one in q], np.float64)
        levels = torch.from_numpy(asked if self.calibration is None else self.calibration.level(asked))
        found = np.zeros((len(self), len(levels)))
        for rows, laws in self.laws:
            found[rows] = laws.quantiles(levels).numpy()
        return found * self.scale[:, None] + self.centre[:, None]

    quantile = quantiles

    def interval(self, level: float = 0.9) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper end, with as much left out below as above."""
        level = probability("level", level)
        lower, upper = self.quantiles([(1 - level) / 2, (1 + level) / 2]).T
        return lower, upper

    # ---- at some x

    def cdf(self, x: Any) -> np.ndarray:
        """P(y <= x)"""
        return self._adjusted(self._at(Laws.cdf, x))

    def log_pdf(self, x: Any) -> np.ndarray:
        """The log-density, of whole numbers the log-probability; minus infinity where y cannot be."""
        values = self._at(Laws.log_prob, x)
        return values - (np.log(self.scale) if values.ndim == 1 else np.log(self.scale)[:, None])

    log_prob = log_pdf

    def pdf(self, x: Any) -> np.ndarray:
        """The density, of whole numbers the probability."""
        return np.exp(self.log_pdf(x))

    def pmf(self, x: Any = None) -> np.ndarray:
        """The probability of whole numbers x; without x, of each of `levels`, (row, level)."""
        if not self.discrete.all():
            raise DataError(f"{self.column!r} has densities, not probabilities of its values: ask for pdf, or cdf.")
        return self.pdf(self.levels[None] if x is None else x)

    @cached_property
    def levels(self) -> np.ndarray:
        """All values that y may have, where they are few: of ordered levels, yes or no, successes in n trials."""
        ends = [laws.support.bounds for rows, laws in self.laws if len(rows) and laws.family.discrete]
        low, high = min((a for a, _ in ends), default=0.0), max((b for _, b in ends), default=0.0)
        shift = self.centre[:1]
        if not self.discrete.all() or not high - low < MOST_LEVELS or (self.centre != shift).any():
            raise DataError(f"{self.column!r} has no list of a few values: pass those that you ask for.")
        return np.arange(low, high + 1) + (shift[0] if len(shift) else 0.0)

    def probability(self, *, above: Any = None, below: Any = None, between: Any = None) -> np.ndarray:
        """Of an event: y > above, y < below, or low <= y <= high for between=(low, high)."""
        if sum(x is not None for x in (above, below, between)) != 1:
            raise DataError("probability takes one of above=, below= and between=(low, high).", option="above")
        if above is not None:
            return 1 - self.cdf(above)
        if below is not None:
            return self._adjusted(self._at(Laws.below, below))
        if not isinstance(between, Sequence | np.ndarray) or len(between) != 2:
            raise DataError(f"{named('between')} is two numbers, or two columns of them; found {between!r}.")
        low, high = between
        return np.maximum(self.cdf(high) - self._adjusted(self._at(Laws.below, low)), 0.0)

    def sample(self, n: int = 1, seed: int = 0) -> np.ndarray:
        """(row, n): draws of each row's own law, independent of those of other rows."""
        if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 1:
            raise DataError(f"{named('n')} is how many draws of each row, at least 1; found {n!r}.", option="n")
        generator = torch.Generator().manual_seed(seed)
        found = np.zeros((len(self), int(n)))
        for rows, laws in self.laws:
            found[rows] = laws.sample(int(n), generator).numpy()
        found = found * self.scale[:, None] + self.centre[:, None]
        return np.array(self.words, object)[found.round().astype(int)] if self.words else found

    # ---- beside what happened

    def log_score(self, y: Any = None) -> np.ndarray:
        """log p(y) of each row: the higher, the better. y: one per row, by default the table's own."""
        return self.log_pdf(self._values(y))

    def crps(self, y: Any = None) -> np.ndarray:
        """The continuous ranked probability score of each row, in the units of y: the smaller, the better; of a law
        that is sure, the absolute error."""
        return self._at(crps, self._values(y)) * self.scale

    def pit(self, y: Any = None, seed: int = 0) -> np.ndarray:
        """P(Y <= y) of each row, which is uniform if the laws are right; of what has a probability of its own, such as
        whole numbers, a draw between P(Y < y) and P(Y <= y), which is uniform, too."""
        values = self._values(y)
        high = self._adjusted(self._at(Laws.cdf, values))
        if not self.stepped.any():
            return high
        low = self._adjusted(self._at(Laws.below, values))
        return np.where(self.stepped, low + np.random.default_rng(seed).random(len(self)) * (high - low), high)

    def to_skpro(self) -> Any:
        """The same as a distribution of skpro, where that has it: one column, rows from 0 on. It is the model's own
        law, without a calibration."""
        from efattn.inference.exporting import to_skpro

        return to_skpro(self)

    # ---- inside

    @property
    def own(self) -> "Distribution":
        """The model's own laws, before any calibration."""
        return replace(self, calibration=None)

    @property
    def underlying(self) -> "Distribution":
        """Of values before limits were put on them: of censored values what is there, seen or not; of truncated ones
        what would be without limits. Others are what they are. A calibration is one of what is seen, and is left out.
        """
        laws = tuple((rows, laws.underlying) for rows, laws in self.laws)
        return (
            self
            if all(laws.family.underlying == laws.family for _, laws in self.laws)
            else replace(self.own, laws=laws)
        )

    def _adjusted(self, p: np.ndarray) -> np.ndarray:
        return p if self.calibration is None else np.asarray(self.calibration.probability(p))

    def _values(self, y: Any) -> np.ndarray:
        values = self.observed if y is None else self._numbers("y", y)
        if values.shape != (len(self),):
            raise DataError(f"{named('y')} is one value per row, {len(self):,}; found shape {values.shape}.")
        return values

    def _numbers(self, name: str, x: Any) -> np.ndarray:
        """Words by what stands for them, NaN for none."""
        try:
            entries = np.asarray(x)
            if self.words and entries.dtype.kind not in "fiub":
                known = {word: float(number) for number, word in enumerate(self.words)}
                entries = np.vectorize(lambda one: np.nan if one is None else known[one], otypes=[float])(entries)
            return entries.astype(np.float64)
        except (KeyError, TypeError, ValueError) as error:
            wanted = f"a number, or numbers{', or words: ' + ', '.join(self.words[:12]) if self.words else ''}"
            raise DataError(f"{name} is {wanted}; found {x!r}.") from error

    def _told(self, ask: Callable[[Laws], Tensor]) -> np.ndarray:
        found = np.zeros(len(self))
        for rows, laws in self.laws:
            found[rows] = ask(laws).numpy()
        return found

    def _at(self, ask: Asked, x: Any) -> np.ndarray:
        """ask(laws, y'), at x in the table's units."""
        values = self._numbers("x", x)
        lines = (len(self), values.shape[1]) if values.ndim == 2 else (len(self),)
        if values.ndim > 2 or values.shape not in ((), lines, (1, *lines[1:])):
            raise DataError(
                f"There are {len(self):,} laws, so that x is one number, one per row, or (row, any); found shape "
                f"{values.shape}. The same n numbers for all rows are a (1, n) array."
            )
        values = np.broadcast_to(values, lines)
        centre, scale = (a if values.ndim == 1 else a[:, None] for a in (self.centre, self.scale))
        inside, found = (values - centre) / scale, np.full(lines, np.nan)
        for rows, laws in self.laws:
            found[rows] = ask(laws, torch.from_numpy(np.ascontiguousarray(inside[rows]))).numpy()
        return found


def probability(name: str, p: Any) -> float:
    """One, or a DataError."""
    if isinstance(p, bool) or not isinstance(p, Real) or not 0 <= float(p) <= 1:
        raise DataError(f"{named(name)} is a probability between 0 and 1; found {p!r}.", option=name)
    return float(p)
