"""What the files of a results folder say, by setting and model, and how numbers are printed."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, final

from efattn.experiments import records, summary, theory
from efattn.experiments.page.blocks import TIED
from efattn.experiments.presets import SETTINGS
from efattn.experiments.records import Record
from efattn.experiments.settings import Entry, Setting

NONE = "–"  # noqa: RUF001
MINUS = "\N{MINUS SIGN}"


@final
@dataclass(frozen=True)
class Results:
    """records: of every run; theory: of every part of it."""

    records: Sequence[Record]
    theory: dict[str, dict[str, Any]]

    @classmethod
    def read(cls, folder: Path) -> "Results":
        return cls(records.read(folder), theory.read(folder))

    @cached_property
    def _summary(self) -> dict[tuple[str, ...], Record]:
        return {_name(r["experiment"], r["setting"], r): r for r in summary.summarised(self.records)}

    @cached_property
    def _runs(self) -> dict[tuple[str, ...], list[Record]]:
        found: dict[tuple[str, ...], list[Record]] = {}
        for record in sorted(self.records, key=lambda r: r["seed"]):
            found.setdefault(_name(record["experiment"], record["setting"], record), []).append(record)
        return found

    def of(self, setting: Setting, entry: Entry | None) -> Record | None:
        """Its line of the summary, if it has run."""
        return None if entry is None else self._summary.get(_key(setting, entry))

    def runs(self, setting: Setting, entry: Entry | None) -> list[Record]:
        """Its records by seed."""
        return [] if entry is None else self._runs.get(_key(setting, entry), [])

    def on_equal_rows(self, setting: Setting, entries: Iterable[Entry | None]) -> bool:
        """Whether those that have run were tested on the same rows: where splits move, with the same seeds."""
        seeds = {tuple(run["seed"] for run in runs) for one in entries if (runs := self.runs(setting, one))}
        return not setting.moving or len(seeds) <= 1

    def together(self, setting: Setting, entries: Sequence[Entry | None]) -> list[Record | None]:
        """Their lines of the summary; where splits move, over the seeds that all of them have run."""
        if self.on_equal_rows(setting, entries):
            return [self.of(setting, one) for one in entries]
        every = [{run["seed"] for run in runs} for one in entries if (runs := self.runs(setting, one))]
        shared = set.intersection(*every)
        found: list[Record | None] = []
        for one in entries:
            mine = [run for run in self.runs(setting, one) if run["seed"] in shared]
            found.append(summary.record(setting, one, mine) if one is not None and mine else None)
        return found

    def peer(self, setting: Setting) -> Entry | None:
        return summary.best_peer(setting, self.records)

    def with_key(self, setting: Setting, entry: Entry | None, key: str) -> list[Record]:
        """Those of its records that keep something more."""
        return [run for run in self.runs(setting, entry) if run.get(key)]


def _name(experiment: str, setting: str, record: Record) -> tuple[str, ...]:
    return experiment, setting, record["model"], record["preset"]


def _key(setting: Setting, entry: Entry) -> tuple[str, ...]:
    return setting.experiment, setting.name, entry.model, entry.preset


def settings(experiment: str) -> list[Setting]:
    return [setting for setting in SETTINGS if setting.experiment == experiment]


def entry(setting: Setting, preset: str, test: Callable[[str], bool]) -> Entry | None:
    """The first model of a preset with such a name."""
    return next((e for e in setting.entries if e.preset == preset and test(e.model)), None)


def papers(setting: Setting, kind: str) -> Entry | None:
    """The model of the paper's preset that the paper prints its lowest number for. kind: how its name begins."""
    mine = [e for e in setting.entries if e.preset == "paper" and e.model.startswith(kind) and e.paper is not None]
    return min(mine, key=lambda e: e.paper or 0.0) if mine else None


def efa(setting: Setting, preset: str) -> Entry | None:
    """EFA under a preset of ours."""
    return entry(setting, preset, lambda model: model.startswith("EFA"))


def named(setting: Setting) -> str:
    """To stand in a list."""
    return f"{setting.experiment} ({setting.name})"


def digits(setting: Setting) -> int:
    return 4 if setting.aim is not None and setting.aim < 2 else 3


def number(x: float | None, places: int = 3, sign: bool = False) -> str:
    if x is None or x != x:
        return NONE
    return f"{x:{'+' if sign else ''}.{places}f}".replace("-", MINUS)


def short(x: Any) -> str:
    """Four digits, or the word."""
    if isinstance(x, bool):
        return "yes" if x else "no"
    if isinstance(x, float):
        if abs(x) == float("inf"):
            return "∞" if x > 0 else f"{MINUS}∞"
        if 1000 <= abs(x) < 1e7:
            return f"{x:,.0f}".replace("-", MINUS)
        return NONE if x != x else f"{x:.4g}".replace("-", MINUS)
    return NONE if x is None else f"{x:,}" if isinstance(x, int) else str(x)


def spread(found: Record | None, places: int) -> str:
    """mean ± sd, in one line"""
    if found is None:
        return NONE
    sd = "" if found["sd"] is None else f"{TIED}±{TIED}{number(found['sd'], places)}"
    return f"{number(found['mean'], places)}{sd}"


def seconds(x: float) -> str:
    """In words that suit its size."""
    if x < 0.1:
        return "< 0.1"
    return f"{x:.1f}" if x < 10 else f"{x:,.0f}"
