"""`efattn reproduce`: the runs that are missing, then the summary and the page, made from files only.

A setting whose data cannot be loaded is left out, and told in the end: what can be run is run.
"""

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from efattn.errors import DataError
from efattn.experiments import page, records, runner, summary, theory
from efattn.experiments.presets import EXPERIMENTS, SETTINGS
from efattn.experiments.records import Record
from efattn.experiments.runner import Run
from efattn.experiments.settings import PRESETS, PROTOCOLS
from efattn.experiments.strangers import running as strangers

OTHERS = ("strangers", "theory")  # which have neither presets nor seeds


@final
@dataclass(frozen=True)
class Asked:
    """What is to be run, all where nothing is named. names: experiments, "strangers" and "theory"; seeds: how many,
    from 0 on; units: single runs, by their files; tables: of the strangers, only these."""

    names: Sequence[str] = ()
    presets: Sequence[str] = ()
    seeds: int = 3
    protocols: Sequence[str] = ()
    settings: Sequence[str] = ()
    models: Sequence[str] = ()
    units: Sequence[str] = ()
    tables: Sequence[str] = ()

    @property
    def part(self) -> bool:
        """Whether it names parts of experiments."""
        return bool(self.presets or self.protocols or self.settings or self.models or self.units)

    def also(self, name: str) -> bool:
        """Whether strangers or theory are asked for."""
        return name in self.names or not (self.names or self.part)

    def check(self) -> None:
        """A DataError for a name that is none."""
        settings, entries = {s.name for s in SETTINGS}, {e.model for s in SETTINGS for e in s.entries}
        for what, asked, there in (
            ("experiment", self.names, (*EXPERIMENTS, *OTHERS)),
            ("preset", self.presets, PRESETS),
            ("protocol", self.protocols, PROTOCOLS),
            ("setting", self.settings, sorted(settings)),
            ("model", self.models, sorted(entries)),
        ):
            for name in asked:
                if name not in there:
                    apart = "; " if any("," in one for one in there) else ", "
                    raise DataError(f"There is no {what} {name!r}; there are {apart.join(there)}.")

    def runs(self) -> list[Run]:
        if self.units:
            return [runner.named(unit) for unit in self.units]
        chosen = [name for name in self.names if name not in OTHERS]
        if self.names and not chosen:
            return []
        more: dict[str, Any] = {"protocols": self.protocols, "settings": self.settings, "models": self.models}
        return runner.planned(chosen, self.presets, self.seeds, **more)


def plan(asked: Asked, folder: Path) -> list[Record]:
    """Every run that is asked for: its unit, about how many seconds it takes on one core, and whether it is done."""
    asked.check()
    return [
        {"unit": str(run.path.with_suffix("")), "seconds": round(run.cost), "done": run.done(folder)}
        for run in asked.runs()
    ]


def reproduce(
    asked: Asked, folder: Path, *, jobs: int = 1, pages: Path | None = None, console: Console
) -> list[Record]:
    """pages: the folder for results.md, results.html and figures. Single units leave the summary as it is, so that
    many processes can each run some."""
    asked.check()
    runs = asked.runs()
    lacking = runner.without_data(runs, folder)
    runs = [run for run in runs if run.setting not in lacking or run.done(folder)]
    if lacking and not runs:
        raise DataError(_left_out(lacking))
    for setting in lacking:
        console.print(f"{SETTINGS[setting].title}: left out, its data cannot be loaded.", highlight=False)
    failed = _run(runs, folder, jobs, console)
    strange = _strangers(folder, asked.tables, jobs, console) if asked.also("strangers") else {}
    if asked.also("theory"):
        theory.run_all(folder, lambda part, r: console.print(f"theory: {part} {r['seconds']:.1f} s", highlight=False))
    lines = [] if asked.units else _summary(folder, pages)
    words = [_left_out(lacking)] if lacking else []
    words += [f"Not run: {title}: {why}" for title, why in failed.items()]
    if strange:
        words += [f"Strangers not compared: {', '.join(strange)}.", *dict.fromkeys(strange.values())]
    if words:
        raise DataError("\n".join(words))
    return lines


def _run(runs: Sequence[Run], folder: Path, jobs: int, console: Console) -> dict[str, str]:
    """Those that failed, and why."""
    failed: dict[str, str] = {}
    with _bar(console, jobs, runs, folder) as tick:

        def on_result(run: Run, record: Record) -> None:
            if "error" in record:
                failed[run.title] = record["error"]
                console.print(f"{run.title}: {record['error']}", highlight=False)
            else:
                console.print(f"{run.title:<80} {record['value']:9.4f} {record['seconds']:8.1f} s", highlight=False)
            tick()

        runner.run_all(runs, folder, jobs=jobs, on_result=on_result, bar=None if jobs == 1 else False)
    return failed


def _summary(folder: Path, pages: Path | None) -> list[Record]:
    records.pack(folder)
    lines = summary.write(folder, records.read(folder))
    if pages is not None:
        page.write(pages, folder)
    return lines


def _strangers(folder: Path, tables: Sequence[str], jobs: int, console: Console) -> dict[str, str]:
    """Those that could not be compared, and why."""
    failed = {}
    for name, record in strangers.run_all(folder, tables, jobs=jobs):
        if "error" in record:
            failed[name] = record["error"]
        else:
            verdict = record["verdict"].splitlines()[0]
            console.print(f"strangers, {name}: {record['seconds']:.1f} s. {verdict}", highlight=False)
    return failed


def _left_out(lacking: dict[int, str]) -> str:
    """Which settings, and for each data set once what to do."""
    names = "; ".join(SETTINGS[setting].title for setting in lacking)
    return "\n".join([f"Not run, because their data cannot be loaded: {names}.", *dict.fromkeys(lacking.values())])


@contextlib.contextmanager
def _bar(console: Console, jobs: int, runs: Sequence[Run], folder: Path) -> Iterator[Callable[[], object]]:
    """With several jobs one bar over all runs; with one, each fit shows its own."""
    missing = sum(not run.done(folder) for run in runs)
    started = time.monotonic()
    if jobs == 1 or not missing:
        yield lambda: None
    else:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, TimeRemainingColumn(), console=console, transient=True) as bar:
            task = bar.add_task("runs", total=missing)
            yield lambda: bar.advance(task)
    if missing:
        console.print(f"{missing} runs in {time.monotonic() - started:.0f} s.", highlight=False)
