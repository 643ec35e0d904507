"""What an evaluation says: means with standard errors, by group, by item, and how far probabilities can be trusted.

    mean             sum of w_i x_i over all predicted rows / sum of w_i,       w_i the row's weight, 1 without one
    standard error   of that, clustered by group:  sqrt( G / (G - 1) sum_g (s_g - n_g mean)^2 ) / sum_g n_g
                     s_g the sum of w_i x_i over the rows of group g, n_g that of w_i

Where each group has one predicted row, these are the mean over groups and its usual standard error.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, final

import numpy as np

from efattn.errors import DataError, counted
from efattn.inference import frames
from efattn.inference.reliability import Coverage, Mean, Reliability

SURE = 2.0  # standard errors, from which on a difference is one


class Line(NamedTuple):
    """One number. of: the column it is about; part: which rows, "all", "repeat" (the item is in the row's context too)
    or "new"; k: the length of the lists, or how likely an interval should hold a value; rows: how many."""

    of: str
    part: str
    metric: str
    k: float | None
    mean: float | None
    error: float | None
    rows: int


class Bin(NamedTuple):
    """Rows whose lists of k items have about the same mass: how many rows, the mean mass, the share of hits and its
    standard error over groups."""

    k: int
    rows: int
    mass: float
    hits: float
    error: float | None


def _names(line: Line) -> tuple[str, str]:
    """What its column may be called in frames by group and by item: of items without theirs."""
    return line.metric, f"{line.of}_{line.metric}"


@final
@dataclass(frozen=True, eq=False)
class Evaluation:
    """about: how many rows and groups were predicted and which, how many items were unknown, tied or repeated; lines:
    every mean; bins: mass of the lists against hits; groups, items: the same by group and, of values, by item, as
    polars frames; pit: by value column, where each value lies in its law, (row,), NaN where there is none; metrics:
    those that the frames show, None for all."""

    about: Mapping[str, Any]
    lines: Sequence[Line]
    bins: Sequence[Bin]
    by_group: Any
    by_item: Any
    kind: str = field(default="polars")
    pit: Mapping[str, np.ndarray] = field(default_factory=dict)
    metrics: tuple[str, ...] | None = None

    def showing(self, metrics: str | Sequence[str]) -> "Evaluation":
        """The same, of whose numbers the frames show some, as ["log_score", "crps"]."""
        wanted = (metrics,) if isinstance(metrics, str) else tuple(metrics)
        known = list(dict.fromkeys(line.metric for line in self.lines))
        for name in wanted:
            if name not in known:
                raise DataError(
                    f"There is no metric {name!r} of these rows; there are {', '.join(known)}.", option="metrics"
                )
        return replace(self, metrics=wanted)

    def frame(self, by: str) -> Any:
        """By "group", or by "item"."""
        if by not in ("group", "item") or (by == "item" and self.by_item is None):
            found = "this model knows no items" if by == "item" else f"found {by!r}"
            raise DataError(f"An evaluation is by 'group' or by 'item'; {found}.", option="by")
        return self.groups if by == "group" else self.items

    @property
    def _shown(self) -> list[Line]:
        return [line for line in self.lines if self.metrics is None or line.metric in self.metrics]

    def _with_shown(self, frame: Any) -> Any:
        """Without the columns of metrics that are not shown."""
        if frame is None or self.metrics is None:
            return frame
        rest = [line for line in self.lines if line.metric not in self.metrics]
        names = {f"{name}{'' if line.k is None else f'@{line.k:g}'}" for line in rest for name in _names(line)}
        return frame.drop([name for name in frame.columns if name in names])

    @property
    def table(self) -> Any:
        """A frame, a row per number: of, part, metric, k, mean, error (standard, over groups), rows (how many)."""
        return frames.frame({name: [getattr(line, name) for line in self._shown] for name in Line._fields}, self.kind)

    @property
    def groups(self) -> Any:
        """A frame, a row per group: how many rows of it were predicted, and the mean of each metric over them."""
        return frames.of_kind(self._with_shown(self.by_group), self.kind)

    @property
    def items(self) -> Any:
        """A frame, a row per item: how well its values are predicted."""
        return frames.of_kind(self._with_shown(self.by_item), self.kind)

    def mean(self, metric: str, k: float | None = None, *, of: str | None = None, part: str = "all") -> float:
        """One number, as mean("ndcg", 10)."""
        return self._one(metric, k, of, part, "mean")

    def error(self, metric: str, k: float | None = None, *, of: str | None = None, part: str = "all") -> float:
        """Its standard error."""
        return self._one(metric, k, of, part, "error")

    def _one(self, metric: str, k: float | None, of: str | None, part: str, what: str) -> float:
        for line in self.lines:
            if (line.metric, line.k, line.part) == (metric, k, part) and of in (None, line.of):
                value = getattr(line, what)
                return float("nan") if value is None else value
        known = ", ".join(dict.fromkeys(x.metric if x.k is None else f"{x.metric} at {x.k:g}" for x in self.lines))
        raise DataError(f"There is no {metric!r} at {k} of these rows here; there are {known}.", option="k")

    def plot(self, k: int | None = None, *, of: str | None = None) -> Any:
        """The Axes, or several: the mass of lists of k items against how often they held the item that came; of a value
        column, or where there are no lists, where values lie in their laws and how often intervals hold them."""
        from efattn.plots import list_mass, reliability

        if of is None and (self.bins or not self.pit):
            return list_mass(self, k)
        return reliability(self.reliability(of))

    def reliability(self, of: str | None = None) -> Reliability:
        """How far the distributions of a value column can be trusted; by default of the first."""
        name = next(iter(self.pit), None) if of is None else of
        if name is None or name not in self.pit:
            raise DataError(f"There is no value column {of!r} here; there are {', '.join(self.pit) or 'none'}.")
        mine = {(line.metric, line.k): line for line in self.lines if line.part == "all" and line.of == name}
        coverage = []
        for (metric, level), line in mine.items():
            if metric == "inside" and level is not None and line.mean is not None:
                promised = mine.get(("promised", level))
                coverage.append(Coverage(level, (promised and promised.mean) or level, line.mean, line.error))
        pit, crps = self.pit[name][~np.isnan(self.pit[name])], mine["crps", None]
        return Reliability(
            name, len(pit), self.about["groups"], Mean(crps.mean or 0.0, crps.error), tuple(coverage), pit
        )

    def to_json(self) -> dict[str, Any]:
        lines = [{name: x for name, x in line._asdict().items() if x is not None} for line in self.lines]
        return {**self.about, "table": lines, "reliability": [one._asdict() for one in self.bins]}

    def __str__(self) -> str:
        table = frames.frame({name: [getattr(line, name) for line in self._shown] for name in Line._fields})
        return f"{table}\n{self.words}\n{self.trust}"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """As a notebook shows it."""
        printer.text(str(self))

    @property
    def words(self) -> str:
        """What was predicted, in a sentence or two."""
        about = self.about
        told = f"{counted(about['predicted'], 'row')} of {counted(about['groups'], 'group')} predicted"
        told += {"target": ", those of the target column.", "last": ", the last of each.", "all": "."}[about["rows"]]
        if "items" in about:
            told += f" Ranked among {counted(about['items'], 'item')}"
            told += "." if about["seen"] else ", those of a row's context left out."
            told += f" {counted(about['ties'], 'row')} tied with other items." if about["ties"] else ""
            missed = about["unknown"]
            told += f" {counted(missed, 'row')} of an unknown item: they count as missed." if missed else ""
        return told

    @property
    def trust(self) -> str:
        """Whether the mass of the lists is the share of their hits, in a sentence; empty without items."""
        lengths = [line.k for line in self.lines if line.metric == "excess" and line.part == "all"]
        if not lengths:
            return ""
        k = min(lengths, key=lambda length: abs(float(length or 0) - 10))
        mass, hits, excess, error = (
            self._one(metric, k, None, "all", what)
            for metric, what in (("mass", "mean"), ("recall", "mean"), ("excess", "mean"), ("excess", "error"))
        )
        told = f"Lists of {k:g} should hit {mass:.4f} of the time by their own mass, and do {hits:.4f} of the time"
        if not abs(excess) > SURE * error:
            return f"{told}: within two standard errors ({excess:+.4f} ± {error:.4f})."
        return f"{told}: the model is too {'sure' if excess < 0 else 'modest'} ({excess:+.4f} ± {error:.4f})."


def per_row(sums: np.ndarray, weight: np.ndarray) -> tuple[float | None, float | None]:
    """sums: of an entry over the rows of each group, times their weights; weight: of those rows. The mean per row and
    its standard error over groups, None where there is no telling."""
    total = float(weight.sum())
    if not total:
        return None, None
    mean = float(sums.sum()) / total
    many = int((weight > 0).sum())
    if many < 2:
        return mean, None
    spread = float(((sums - weight * mean) ** 2).sum()) * many / (many - 1)
    return mean, float(np.sqrt(spread)) / total
