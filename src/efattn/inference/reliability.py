"""How far predictive distributions can be trusted, beside what happened.

    pit        P(Y <= y) of each row, uniform if the laws are right
    coverage   how many values lie in the middle interval of a level, beside how many it promises: of whole numbers (and
               of limits) an interval cannot hold exactly 90 %, and promises what it does hold
    crps       the mean continuous ranked probability score, in the units of the column

Standard errors are clustered by group: sqrt(G / (G - 1) sum_g (s_g - n_g mean)^2) / sum_g n_g, with s_g the sum over
the n_g rows of group g.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, final

import numpy as np

from efattn.errors import DataError, counted
from efattn.inference import frames
from efattn.inference.distribution import Distribution, probability

LEVELS = (0.5, 0.8, 0.9, 0.95)


class Mean(NamedTuple):
    """Over rows, and its standard error clustered by group; None where there is one group."""

    mean: float
    error: float | None


class Coverage(NamedTuple):
    """Of one level: which share of the rows lies inside, its standard error, and which was promised."""

    level: float
    promised: float
    covered: float
    error: float | None


@final
@dataclass(frozen=True, eq=False)
class Reliability:
    """Of one value column. pit: (row,), of the rows that are scored; by_item: a frame with rows, crps and the coverage
    of each level, where there are items."""

    column: str
    rows: int
    groups: int
    crps: Mean
    coverage: tuple[Coverage, ...]
    pit: np.ndarray
    log_score: Mean | None = None
    by_item: Any = None

    def __str__(self) -> str:
        lines = [f"{self.column}: {counted(self.rows, 'row')} in {counted(self.groups, 'group')}."]
        lines.append(f"  CRPS {_words(self.crps, 4)}")
        lines += [] if self.log_score is None else [f"  log score {_words(self.log_score, 4)} nats"]
        for one in self.coverage:
            promised = "" if abs(one.promised - one.level) < 5e-4 else f" where {one.promised:.1%} were promised"
            error = "" if one.error is None else f" ± {one.error:.1%}"
            lines.append(f"  {one.level:.0%} intervals hold {one.covered:.1%}{error}{promised}")
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """Without the rows' own."""
        told = {name: x for name, x in asdict(self).items() if name not in ("pit", "by_item")}
        told |= {"crps": self.crps._asdict()}
        told["log_score"] = None if self.log_score is None else self.log_score._asdict()
        return told | {"coverage": [one._asdict() for one in self.coverage]}


def reliability(law: Distribution, y: Any = None, *, levels: Sequence[float] = LEVELS, seed: int = 0) -> Reliability:
    """y: one per row, by default the table's own values of the rows that are scored. seed: of the draws by which whole
    numbers get a place within their probability."""
    there = law.scored if y is None else ~np.isnan(np.asarray(y, np.float64))
    if not there.any():
        raise DataError(f"No row of {law.column!r} can be scored: every value is missing, or none counts.")
    mine, values = law[there], None if y is None else np.asarray(y, np.float64)[there]
    entries = row_errors(mine, values, levels=levels, seed=seed)
    coverage = []
    for level in levels:
        covered = clustered(entries[f"inside_{_percent(level)}"], mine.group)
        promised = entries[f"promised_{_percent(level)}"].mean() if mine.stepped.any() else level
        coverage.append(Coverage(float(level), float(promised), *covered))
    return Reliability(
        law.column,
        len(mine),
        len(np.unique(mine.group)),
        clustered(entries["crps"], mine.group),
        tuple(coverage),
        entries["pit"],
        clustered(mine.log_score(values), mine.group),
        _by_item(mine, entries),
    )


def row_errors(
    law: Distribution, y: Any = None, *, levels: Sequence[float] = LEVELS, seed: int = 0
) -> dict[str, np.ndarray]:
    """(row,) each, NaN where y is: crps, pit, and of each level inside_90, whether y lies in the interval, and
    promised_90, the probability that the interval has."""
    values = law.observed if y is None else np.asarray(y, np.float64)
    checked = [probability("levels", level) for level in levels]
    found = {"crps": law.crps(values), "pit": law.pit(values, seed)}
    ends = law.quantiles([(1 + sign * level) / 2 for level in checked for sign in (-1, 1)])
    gone = np.isnan(values)
    for k, level in enumerate(checked):
        lower, upper = ends[:, 2 * k], ends[:, 2 * k + 1]
        inside = ((lower <= values) & (values <= upper)).astype(float)
        promised = np.full(len(law), level)
        whole = law.stepped
        if whole.any():
            some = law[whole]
            promised[whole] = some.probability(between=(lower[whole], upper[whole]))
        found[f"inside_{_percent(level)}"] = np.where(gone, np.nan, inside)
        found[f"promised_{_percent(level)}"] = np.where(gone, np.nan, promised)
    return found


def clustered(x: np.ndarray, group: np.ndarray) -> Mean:
    """The mean over rows, with its standard error over groups."""
    _, number = np.unique(group, return_inverse=True)
    sums, counts = np.bincount(number, x), np.bincount(number)
    mean, groups = float(x.mean()), len(counts)
    if groups < 2:
        return Mean(mean, None)
    spread = float(((sums - counts * mean) ** 2).sum())
    return Mean(mean, float(np.sqrt(groups / (groups - 1) * spread) / len(x)))


def _by_item(law: Distribution, entries: dict[str, np.ndarray]) -> Any:
    if law.item is None or law.items is None:
        return None
    known = law.item < len(law.items)
    numbers, at = np.unique(law.item[known], return_inverse=True)
    count = np.bincount(at, minlength=len(numbers))
    columns: dict[str, Any] = {"rows": count}
    for name, x in entries.items():
        if name != "pit" and not name.startswith("promised"):
            columns[name] = np.bincount(at, x[known], len(numbers)) / np.maximum(count, 1)
    names = frames.item_columns(law.items, numbers)
    return frames.frame(names | frames.renamed(columns, names))


def _percent(level: float) -> str:
    return f"{100 * float(level):.12g}"


def _words(one: Mean, digits: int) -> str:
    return f"{one.mean:.{digits}f}" + ("" if one.error is None else f" ± {one.error:.{digits}f}")
