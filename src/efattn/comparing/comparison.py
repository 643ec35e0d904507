"""What a comparison says: scores side by side, paired differences, a verdict in words.

    mean of a model      sum of log p over all test rows / their number, each group scored once, in the table's units
    difference           its mean less EFA's
    standard error       of that, clustered by group:  sqrt( G / (G - 1) sum_g (d_g - n_g d)^2 ) / sum_g n_g
                         d_g the sum of differences over the n_g rows of group g

Folds share most of their training groups; the standard error is of the test groups alone.
"""

import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, final

import numpy as np

from efattn import storage
from efattn.errors import DataError
from efattn.inference import frames

Record = dict[str, Any]
FORMAT = 1
SURE = 2.0  # standard errors, from which on a difference is one
ALONE = "network alone"


class Line(NamedTuple):
    """A model on one term. difference, error: to the reference, None of itself; peer: whether it competes."""

    term: str
    model: str
    log_likelihood: float
    difference: float | None
    error: float | None
    standing: str
    seconds: float | None
    lacks: str
    peer: bool = True


@final
@dataclass(frozen=True)
class Comparison:
    """about: roles, folds, seed, rows, groups and what else is known of the table; models: who competed, the reference
    first; out: why the others did not; runs: a record per model and fold; kind: of frame."""

    about: Mapping[str, Any]
    models: tuple[str, ...]
    out: Mapping[str, str]
    runs: Sequence[Record]
    kind: str = field(default="polars", compare=False)

    @property
    def reference(self) -> str:
        return self.models[0]

    @cached_property
    def lines(self) -> list[Line]:
        """The best first, term by term."""
        return [line for term in self.terms for line in sorted(self._lines(term), key=lambda x: -x.log_likelihood)]

    @property
    def table(self) -> Any:
        """A frame, a row per model and term: log_likelihood per row, difference to EFA with its standard error, and
        whether the model is ahead, level or behind; seconds to fit, a fold; what it does not see."""
        columns = {name: [getattr(line, name) for line in self.lines] for name in Line._fields if name != "peer"}
        return frames.frame(columns, self.kind)

    @property
    def verdict(self) -> str:
        """In words, a sentence or two per term."""
        return "\n".join(self._verdict(term) for term in self.terms)

    @property
    def terms(self) -> list[str]:
        return list(dict.fromkeys(name for run in self._of(self.reference) for name in run["terms"]))

    def best_peer(self, term: str) -> Line | None:
        return next((x for x in self.lines if x.term == term and x.peer and x.model != self.reference), None)

    def shares(self, term: str) -> dict[str, float]:
        """Of EFA's mixture, on average over folds: the network's and its companions'."""
        each = [run["shares"][term] for run in self._of(self.reference) if term in run.get("shares", {})]
        names = dict.fromkeys(name for one in each for name in one)
        return {name: float(np.mean([one.get(name, 0.0) for one in each])) for name in names}

    def plot(self) -> Any:
        """The Axes, or several: a dot for each model's difference to EFA, a line for two standard errors."""
        from efattn.plots import differences

        return differences(self)

    def to_json(self) -> Record:
        table = [{name: x for name, x in line._asdict().items() if x is not None} for line in self.lines]
        return {**self._plain(), "table": table, "verdict": self.verdict}

    def write(self, path: str | Path) -> None:
        write(path, self.to_json())

    @classmethod
    def read(cls, path: str | Path) -> "Comparison":
        """What `to_json` gave."""
        try:
            return cls.from_json(json.loads(text_of(path)))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DataError(
                f"{str(path)!r} is no comparison that efattn wrote: {error}. Choose another file."
            ) from error

    @classmethod
    def from_json(cls, saved: Any) -> "Comparison":
        if saved["format"] != FORMAT:
            raise ValueError(f"its format is {saved['format']!r}")
        return cls(saved["about"], tuple(saved["models"]), saved["out"], saved["runs"])

    def __str__(self) -> str:
        return f"{frames.frame({n: [getattr(x, n) for x in self.lines] for n in Line._fields[:6]})}\n{self.verdict}"

    def _plain(self) -> Record:
        return {
            "format": FORMAT,
            "about": dict(self.about),
            "models": list(self.models),
            "out": dict(self.out),
            "runs": list(self.runs),
        }

    def _of(self, model: str) -> list[Record]:
        return [run for run in self.runs if run["model"] == model and "terms" in run]

    def _lines(self, term: str) -> Iterator[Line]:
        mine = _gathered(self._of(self.reference), "terms", term)
        for model in self.models:
            runs = self._of(model)
            theirs = _gathered(runs, "terms", term)
            if not theirs:
                continue
            lacks = ", ".join(next((run["lacks"] for run in runs if "lacks" in run), []))
            took = float(np.mean([run["seconds"] for run in runs]))
            yield self._line(term, model, mine, theirs, took, lacks)
        alone = _gathered(self._of(self.reference), "alone", term)
        if alone:
            line = self._line(term, f"{self.reference}, {ALONE}", mine, alone, None, "")
            yield line._replace(peer=False)

    def _line(self, term: str, model: str, mine: Any, theirs: Any, seconds: float | None, lacks: str) -> Line:
        """On the groups that both have scored the same rows of."""
        shared = [g for g in mine if g in theirs and np.isclose(mine[g][0], theirs[g][0])]
        if len(shared) < len(mine):
            lacks = ", ".join(filter(None, (lacks, f"{len(mine) - len(shared)} groups")))
        rows = np.array([theirs[g][0] for g in shared])
        sums = np.array([theirs[g][1] for g in shared])
        mean = float(sums.sum() / rows.sum()) if len(shared) else float("nan")
        if model == self.reference:
            return Line(term, model, mean, None, None, "", seconds, lacks)
        gap = sums - np.array([mine[g][1] for g in shared])
        difference, error = paired(gap, rows)
        return Line(term, model, mean, difference, error, standing(difference, error), seconds, lacks)

    def _verdict(self, term: str) -> str:
        of = f"{term}: " if len(self.terms) > 1 else ""
        best, efa = self.best_peer(term), self.reference
        if best is None or best.difference is None or best.error is None:
            return f"{of}there is nothing to compare {efa} with."
        told = f"{abs(best.difference):.3f} ± {best.error:.3f} nats a row"
        network = self.shares(term).get("network")
        share = "" if network is None else f" The network's own share of {efa} is {network:.0%}."
        if best.standing == "ahead":
            return f"{of}{best.model} is ahead of {efa} by {told}: take the simple model.{share}"
        level = [x.model for x in self.lines if x.term == term and x.peer and x.standing == "level"]
        if best.standing == "level":
            also = f" So {'is' if len(level) == 2 else 'are'} {_listing(level[1:])}." if len(level) > 1 else ""
            return (
                f"{of}{best.model} is level with {efa} (difference {best.difference:+.3f} ± {best.error:.3f}): the "
                f"simple model is enough.{also}{share}"
            )
        but = f" {_listing(level)} cannot be told from it, for want of groups." if level else ""
        return f"{of}{efa} is ahead of every other model; the nearest, {best.model}, is {told} behind.{but}{share}"


def paired(gap: np.ndarray, rows: np.ndarray) -> tuple[float, float]:
    """gap: sums of differences by group; rows: how many. The mean per row and its standard error over groups."""
    if not len(gap):
        return float("nan"), float("nan")
    mean = float(gap.sum() / rows.sum())
    spread = np.sum((gap - rows * mean) ** 2) * len(gap) / max(len(gap) - 1, 1)
    return mean, float(np.sqrt(spread) / rows.sum())


def standing(difference: float, error: float) -> str:
    """Of a model beside the reference."""
    if not abs(difference) > SURE * error:
        return "level"
    return "ahead" if difference > 0 else "behind"


def write(path: str | Path, saved: Record) -> None:
    """As JSON, there whole or not at all; a line per run. Compressed where the name ends on .gz."""
    runs = ",\n  ".join(json.dumps(run) for run in saved["runs"])
    rest = ",\n ".join(f"{json.dumps(name)}: {json.dumps(x)}" for name, x in saved.items() if name != "runs")
    try:
        text = f'{{\n {rest},\n "runs": [\n  {runs}\n ]\n}}\n'.encode()
        with storage.beside(path) as part:
            part.write_bytes(gzip.compress(text, mtime=0) if Path(path).suffix == ".gz" else text)
    except OSError as error:
        raise DataError(f"{str(path)!r} cannot be written: {error.strerror or error}. Choose another path.") from error


def text_of(path: str | Path) -> str:
    """Of a file that `write` wrote."""
    saved = Path(path).read_bytes()
    return (gzip.decompress(saved) if Path(path).suffix == ".gz" else saved).decode()


def _gathered(runs: Sequence[Record], part: str, term: str) -> dict[int, tuple[float, float]]:
    """{group: (rows, sum of log p)} of all folds."""
    groups: dict[int, tuple[float, float]] = {}
    for run in runs:
        one = run.get(part, {}).get(term)
        if one is not None:
            groups |= {g: (n, x) for g, n, x in zip(one["group"], one["rows"], one["sum"], strict=True)}
    return groups


def _listing(names: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
