"""Running experiments: one JSON file per run, finished runs are skipped, interrupted ones go on where they were.

    results/EXPERIMENT/SETTING/MODEL-PRESET-SEED.json            train only
    results/EXPERIMENT/SETTING/MODEL-PRESET-refitted-SEED.json   refitted

A record has all that tables and figures need: the metric and the full log-likelihood, both by test group, and of a fit
to training rows alone those on validation rows; shares of the mixture and its networks alone; cover of intervals;
epochs, seconds, versions, commit, the estimator's parameters, and what the experiment wants to look at. See records.py
for the files.
"""

import logging
import platform
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, final

import torch

from efattn import __version__
from efattn.errors import FAILURES, DataError, EfattnError
from efattn.estimators import LatentFactor, SimpleModel, saving
from efattn.experiments import measuring, pool, records
from efattn.experiments.presets import EXPERIMENTS, SETTINGS
from efattn.experiments.records import Record
from efattn.experiments.settings import PROTOCOLS, TRAIN, Entry, Protocol, Setting, Split
from efattn.training import forget, left_in, resolve_device

log = logging.getLogger("efattn")
OnResult = Callable[["Run", Record], object]
SHARE = {"peer": 0.2, "paper": 5.0, "defaults": 1.0, "best": 5.0}  # of the seconds that a default fit takes
AGAIN = 1.8  # times as long, refitted


@final
@dataclass(frozen=True)
class Run:
    """One model, fitted once and tested. Named by its place in the presets, so that another process can run it."""

    setting: int
    entry: int
    seed: int
    protocol: Protocol = TRAIN

    @property
    def setting_and_entry(self) -> tuple[Setting, Entry]:
        setting = SETTINGS[self.setting]
        return setting, setting.entries[self.entry]

    @property
    def settings(self) -> list[Setting]:
        """Those that it is tested on: its own, and others that take its fits. What has no seed of its own is tested
        once, except where splits move."""
        setting, entry = self.setting_and_entry
        others = [one for one in SETTINGS if one.fits_of == setting.title and entry in one.entries]
        return [one for one in (setting, *others) if self.seed == 0 or one.moving or not entry.fixed]

    @property
    def paths(self) -> list[Path]:
        return [self._path(setting) for setting in self.settings]

    @property
    def path(self) -> Path:
        """Of its own setting."""
        return self._path(self.setting_and_entry[0])

    def _path(self, setting: Setting) -> Path:
        entry = self.setting_and_entry[1]
        again = "" if self.protocol == TRAIN else f"-{slug(self.protocol)}"
        name = f"{slug(entry.model)}-{entry.preset}{again}-{self.seed}.json"
        return Path(slug(setting.experiment), slug(setting.name), name)

    @property
    def title(self) -> str:
        setting, entry = self.settings[0], self.setting_and_entry[1]
        return f"{setting.title}: {entry.model} ({entry.preset}, {self.protocol}), seed {self.seed}"

    @property
    def cost(self) -> float:
        """Seconds on one core, roughly."""
        setting, entry = self.setting_and_entry
        return setting.seconds * SHARE[entry.preset] * (1.0 if self.protocol == TRAIN else AGAIN)

    def done(self, folder: Path) -> bool:
        return all((folder / path).exists() for path in self.paths)


def slug(words: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-")


def planned(
    experiments: Sequence[str] = (),
    presets: Sequence[str] = (),
    seeds: int = 3,
    *,
    protocols: Sequence[str] = (),
    settings: Sequence[str] = (),
    models: Sequence[str] = (),
) -> list[Run]:
    """Every run that is asked for, by seed, quick models first; all where nothing is named. What has no seed of its own
    runs once per split."""
    for name in experiments:
        if name not in EXPERIMENTS:
            raise DataError(f"There is no experiment {name!r}; there are {', '.join(EXPERIMENTS)} and theory.")
    runs = []
    for s, setting in enumerate(SETTINGS):
        if setting.fits_of is not None:
            continue
        for e, entry in enumerate(setting.entries):
            if (presets and entry.preset not in presets) or (models and entry.model not in models):
                continue
            every = [
                Run(s, e, seed, protocol)
                for seed in range(setting.splits or seeds)
                for protocol in entry.protocols
                if protocol in (protocols or PROTOCOLS)
            ]
            runs += [run for run in every if any(_asked(one, experiments, settings) for one in run.settings)]
    return sorted(runs, key=lambda run: run.seed)


def _asked(setting: Setting, experiments: Sequence[str], settings: Sequence[str]) -> bool:
    return (not experiments or setting.experiment in experiments) and (not settings or setting.name in settings)


def named(unit: str) -> Run:
    """The run with this file, as EXPERIMENT/SETTING/MODEL-PRESET-SEED."""
    name = unit.removesuffix(".json")
    most = int(name.rpartition("-")[2]) + 1 if name.rpartition("-")[2].isdigit() else 1
    for run in planned(seeds=most):
        if any(str(path.with_suffix("")) == name for path in run.paths):
            return run
    raise DataError(f"There is no run {unit!r}; `efattn reproduce --plan` lists them.")


def without_data(runs: Iterable[Run], folder: Path) -> dict[int, str]:
    """The settings among runs still to be made whose data cannot be loaded, and why."""
    reasons = {}
    for setting in dict.fromkeys(run.setting for run in runs if not run.done(folder)):
        try:
            _split(setting, 0)
        except DataError as error:
            reasons[setting] = str(error)
    return reasons


def run_all(
    runs: Iterable[Run], folder: Path, *, jobs: int = 1, on_result: OnResult | None = None, bar: bool | None = None
) -> int:
    """Run what is not there yet, in `jobs` processes of one thread each, of a seed the longest first. Gives the number
    of runs that were made. A run that fails is told as {"error": why}, and the others go on."""
    missing = [run for run in runs if not run.done(folder)]
    count = 0
    for run, record in _results(missing, folder, jobs, bar):
        count += "error" not in record
        if on_result is not None:
            on_result(run, record)
        elif "error" in record:
            raise DataError(f"{run.title}: {record['error']}")
    return count


def _results(runs: list[Run], folder: Path, jobs: int, bar: bool | None) -> Iterator[tuple[Run, Record]]:
    if jobs == 1:
        for run in runs:
            yield run, attempt(run, folder, bar=bar)
        return
    ordered = sorted(runs, key=lambda run: (run.seed, -run.cost))
    yield from pool.each(attempt, ordered, jobs, folder=folder, bar=False)


def attempt(run: Run, folder: Path, *, bar: bool | None = None) -> Record:
    """The record of its own setting, or {"error": why}."""
    try:
        return run_one(run, folder, bar=bar)
    except FAILURES as error:
        return {"error": str(error) if isinstance(error, EfattnError) else f"{type(error).__name__}: {error}"}


@cache
def _split(setting: int, seed: int) -> Split:
    return SETTINGS[setting].split(seed)


def run_one(run: Run, folder: Path, *, bar: bool | None = None) -> Record:
    """Fit, test, write; files that are there stay. Gives the first of its records."""
    setting, entry = run.setting_and_entry
    rows = _split(run.setting, run.seed)
    unfinished = folder / ".unfinished" / run.path.with_suffix("")
    commit = records.commit()  # of now: it may move while we fit
    estimator, start = entry.make(run.seed), time.perf_counter()
    fitted(estimator, entry, setting, rows, run.protocol, unfinished, bar)
    seconds = max(time.perf_counter() - start, sum(record["seconds"] for record in estimator.history_))
    told: Record = {"model": entry.model, "preset": entry.preset, "protocol": run.protocol, "seed": run.seed}
    told |= {"commit": commit, "seconds": round(seconds, 2), "epochs": len(estimator.history_), **_machine(estimator)}
    made = []
    for one in run.settings:
        parts = rows if one is setting else _split(SETTINGS.index(one), run.seed)
        record = {"experiment": one.experiment, "setting": one.name, **told}
        record |= _measured(one, entry, estimator, parts, run)
        made.append(record)
        if not (folder / run._path(one)).exists():
            records.write(folder / run._path(one), record)
    forget(unfinished)
    return made[0]


def fitted(
    estimator: Any,
    entry: Entry,
    setting: Setting,
    rows: Split,
    protocol: Protocol,
    unfinished: Path | None = None,
    bar: bool | None = None,
) -> None:
    """Train only: validation is a table. Refitted: both are one table, of which networks hold a share out and are then
    fitted to all; simple models choose penalties by folds of their own."""
    roles = {role: name for role, name in setting.roles.items() if role not in entry.without}
    more: dict[str, Any] = {} if unfinished is None else {"checkpoint": unfinished, "resume": bool(left_in(unfinished))}
    if protocol == TRAIN:
        estimator.fit(rows.train, **roles, validation=rows.validation, **more, progress=bar)
    else:
        if isinstance(estimator, LatentFactor):
            estimator.set_params(refit="auto")
        validation = None if isinstance(estimator, SimpleModel) else "auto"
        estimator.fit(rows.whole, **roles, validation=validation, **more, progress=bar)
    if getattr(estimator, "interrupted_", False):
        raise KeyboardInterrupt  # a fit that was cut short is no result; the next call goes on with it


def _measured(setting: Setting, entry: Entry, estimator: Any, rows: Split, run: Run) -> Record:
    record = measuring.tested(setting, estimator, rows.test)
    if run.protocol == TRAIN:
        held = rows.validation if setting.check is None else setting.check(run.seed)
        record["held_out"] = measuring.overall(setting, estimator, held)
    record |= measuring.parts(setting, estimator, rows.test) | measuring.coverage(setting, estimator, rows.test)
    looks = (setting.look, entry.look if run.seed == 0 else None) if run.protocol == TRAIN else ()
    for look in looks:
        if look is not None and hasattr(estimator, "model_"):
            record |= look(estimator, rows)
    return record


def _machine(estimator: Any) -> Record:
    options = estimator.training if getattr(estimator, "training", None) is not None else None
    gpu = torch.cuda.is_available() and (options is None or resolve_device(options).type == "cuda")
    versions = {"efattn": __version__, "torch": torch.__version__, "python": platform.python_version()}
    parameters = saving.plain(estimator.get_params(deep=False))
    device = torch.cuda.get_device_name() if gpu else f"cpu, {torch.get_num_threads()} threads"
    return {"versions": versions, "device": device, "parameters": parameters}
