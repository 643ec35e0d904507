"""What the files of a results folder say, by setting and model."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, final

from efattn.comparing import Comparison
from efattn.experiments import records, summary, theory
from efattn.experiments.presets import SETTINGS
from efattn.experiments.records import Record
from efattn.experiments.settings import TRAIN, Entry, Protocol, Setting
from efattn.experiments.strangers import running as strangers


@final
@dataclass(frozen=True)
class Results:
    """records: of every run; theory: of every part of it; strangers: of every table of that study, and what it says."""

    records: Sequence[Record]
    theory: dict[str, dict[str, Any]]
    strangers: dict[str, tuple[Record, Comparison]] = field(default_factory=dict)

    @classmethod
    def read(cls, folder: Path) -> "Results":
        return cls(records.read(folder), theory.read(folder), strangers.read(folder))

    @cached_property
    def _summary(self) -> dict[tuple[str, ...], Record]:
        return {summary.name_of(r): r for r in summary.summarised(self.records)}

    @cached_property
    def _runs(self) -> dict[tuple[str, ...], list[Record]]:
        by_name: dict[tuple[str, ...], list[Record]] = {}
        for record in sorted(self.records, key=lambda r: r["seed"]):
            by_name.setdefault(summary.name_of(record), []).append(record)
        return by_name

    def summary_of(self, setting: Setting, entry: Entry | None, protocol: Protocol = TRAIN) -> Record | None:
        """Its line of the summary, if it has run."""
        return None if entry is None else self._summary.get(_key(setting, entry, protocol))

    def runs(self, setting: Setting, entry: Entry | None, protocol: Protocol = TRAIN) -> list[Record]:
        """Its records by seed."""
        return [] if entry is None else self._runs.get(_key(setting, entry, protocol), [])

    def on_equal_rows(self, setting: Setting, entries: Iterable[Entry | None], protocol: Protocol = TRAIN) -> bool:
        """Whether those that have run were tested on the same rows: where splits move, with the same seeds."""
        seeds = {tuple(run["seed"] for run in runs) for one in entries if (runs := self.runs(setting, one, protocol))}
        return not setting.moving or len(seeds) <= 1

    def on_shared_seeds(
        self, setting: Setting, entries: Sequence[Entry | None], protocol: Protocol = TRAIN
    ) -> list[Record | None]:
        """Their lines of the summary; where splits move, over the seeds that all of them have run."""
        if self.on_equal_rows(setting, entries, protocol):
            return [self.summary_of(setting, one, protocol) for one in entries]
        every = [{run["seed"] for run in runs} for one in entries if (runs := self.runs(setting, one, protocol))]
        shared = set.intersection(*every)
        lines: list[Record | None] = []
        for one in entries:
            mine = [run for run in self.runs(setting, one, protocol) if run["seed"] in shared]
            lines.append(summary.of_runs(setting, one, mine) if one is not None and mine else None)
        return lines

    def chosen_peer(self, setting: Setting, protocol: Protocol, sees: Sequence[str] = ()) -> summary.Chosen | None:
        """The peer that EFA is compared with, and the rows that it was chosen on."""
        return summary.best_peer(setting, self._runs, protocol, sees)

    def chosen_peers(self, setting: Setting) -> set[Entry]:
        """Those that validation rows chose, for EFA as it is told least and most."""
        most = tuple(dict.fromkeys(name for entry in setting.entries for name in entry.sees))
        found = (self.chosen_peer(setting, TRAIN, sees) for sees in ((), most))
        return {one.entry for one in found if one is not None and one.by == "validation"}

    def best_peer(self, setting: Setting) -> Entry | None:
        """Train only."""
        found = self.chosen_peer(setting, TRAIN)
        return None if found is None else found.entry

    def with_key(self, setting: Setting, entry: Entry | None, key: str) -> list[Record]:
        """Those of its records that keep something more."""
        return [run for run in self.runs(setting, entry) if run.get(key)]


def _key(setting: Setting, entry: Entry, protocol: Protocol) -> tuple[str, ...]:
    return setting.experiment, setting.name, entry.model, entry.preset, protocol


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
