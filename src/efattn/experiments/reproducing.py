"""`efattn reproduce`: the runs that are missing, then the summary and the page, made from files only.

A setting whose data cannot be loaded is left out, and told in the end: what can be run is run.
"""

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from efattn.errors import DataError
from efattn.experiments import page, records, runner, summary, theory
from efattn.experiments.presets import EXPERIMENTS, SETTINGS
from efattn.experiments.records import Record
from efattn.experiments.runner import Run
from efattn.experiments.settings import PRESETS
from efattn.experiments.strangers import running as strangers

OTHERS = ("strangers", "theory")  # which have neither presets nor seeds


def reproduce(
    names: Sequence[str],
    presets: Sequence[str],
    seeds: int,
    folder: Path,
    *,
    jobs: int = 1,
    pages: Path | None = None,
    tables: Sequence[str] = (),
    console: Console,
) -> list[Record]:
    """names: experiments, "strangers" and "theory", all if there are none. tables: of the strangers, only these. pages:
    the folder for results.md, results.html and figures."""
    _check(names, presets)
    chosen = [name for name in names if name not in OTHERS]
    runs = runner.planned(chosen, presets, seeds) if chosen or not names else []
    lacking = runner.without_data(runs, folder)
    runs = [run for run in runs if run.setting not in lacking or (folder / run.path).exists()]
    if lacking and not runs:
        raise DataError(_left_out(lacking))
    for setting in lacking:
        console.print(f"{SETTINGS[setting].title}: left out, its data cannot be loaded.", highlight=False)
    with _bar(console, jobs, runs, folder) as tick:

        def on_result(run: Run, record: Record) -> None:
            console.print(f"{run.title:<70} {record['value']:9.4f} {record['seconds']:8.1f} s", highlight=False)
            tick()

        runner.run_all(runs, folder, jobs=jobs, on_result=on_result, bar=None if jobs == 1 else False)
    failed = _strangers(folder, tables, jobs, console) if not names or "strangers" in names else {}
    if not names or "theory" in names:
        theory.run_all(folder, lambda part, r: console.print(f"theory: {part} {r['seconds']:.1f} s", highlight=False))
    records.pack(folder)
    lines = summary.write(folder, records.read(folder))
    if pages is not None:
        page.write(pages, folder)
    if lacking or failed:
        words = [_left_out(lacking)] if lacking else []
        words += [f"Strangers not compared: {', '.join(failed)}.", *dict.fromkeys(failed.values())] if failed else []
        raise DataError("\n".join(words))
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


def _check(names: Sequence[str], presets: Sequence[str]) -> None:
    for what, asked, there in (
        ("experiment", names, (*EXPERIMENTS, *OTHERS)),
        ("preset", presets, tuple(preset for preset in PRESETS if preset != "peer")),
    ):
        for name in asked:
            if name not in there:
                raise DataError(f"There is no {what} {name!r}; there are {', '.join(there)}.")


def _left_out(lacking: dict[int, str]) -> str:
    """Which settings, and for each data set once what to do."""
    names = "; ".join(SETTINGS[setting].title for setting in lacking)
    return "\n".join([f"Not run, because their data cannot be loaded: {names}.", *dict.fromkeys(lacking.values())])


@contextlib.contextmanager
def _bar(console: Console, jobs: int, runs: Sequence[Run], folder: Path) -> Iterator[Callable[[], object]]:
    """With several jobs one bar over all runs; with one, each fit shows its own."""
    missing = sum(not (folder / run.path).exists() for run in runs)
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
