"""Running experiments: one JSON file per run, finished runs are skipped, interrupted ones go on where they were.

    results/EXPERIMENT/SETTING/MODEL-PRESET-SEED.json

A record has all that tables and figures need: the metric, the full log-likelihood, both by test group, epochs, seconds,
versions, commit, the estimator's parameters, and what the experiment wants to look at. See records.py for the files.
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

import numpy as np
import polars as pl
import torch

from efattn import __version__
from efattn.errors import DataError
from efattn.estimators import saving
from efattn.experiments import pool, records
from efattn.experiments.presets import EXPERIMENTS, SETTINGS
from efattn.experiments.records import Record
from efattn.experiments.settings import PRESETS, Entry, Setting, Split
from efattn.training import forget, left_in, resolve_device

log = logging.getLogger("efattn")
OnResult = Callable[["Run", Record], object]
DIGITS = 6


@final
@dataclass(frozen=True)
class Run:
    """One model, fitted and tested once. Named by its place in the presets, so that another process can run it."""

    setting: int
    entry: int
    seed: int

    @property
    def setting_and_entry(self) -> tuple[Setting, Entry]:
        setting = SETTINGS[self.setting]
        return setting, setting.entries[self.entry]

    @property
    def path(self) -> Path:
        setting, entry = self.setting_and_entry
        return Path(
            slug(setting.experiment), slug(setting.name), f"{slug(entry.model)}-{entry.preset}-{self.seed}.json"
        )

    @property
    def title(self) -> str:
        setting, entry = self.setting_and_entry
        return f"{setting.title}: {entry.model} ({entry.preset}), seed {self.seed}"


def slug(words: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-")


def planned(experiments: Sequence[str] = (), presets: Sequence[str] = (), seeds: int = 3) -> list[Run]:
    """Every run that is asked for, quick models first. What has no seed of its own runs once per split."""
    for name in experiments:
        if name not in EXPERIMENTS:
            raise DataError(f"There is no experiment {name!r}; there are {', '.join(EXPERIMENTS)} and theory.")
    chosen = tuple(presets) or PRESETS
    runs = []
    for seed in range(seeds):
        for s, setting in enumerate(SETTINGS):
            if experiments and setting.experiment not in experiments:
                continue
            for e, entry in enumerate(setting.entries):
                again = seed == 0 or setting.moving or not entry.fixed
                if (entry.preset in chosen or entry.preset == "peer") and again:
                    runs.append(Run(s, e, seed))
    return runs


def without_data(runs: Iterable[Run], folder: Path) -> dict[int, str]:
    """The settings among runs still to be made whose data cannot be loaded, and why."""
    reasons = {}
    for setting in dict.fromkeys(run.setting for run in runs if not (folder / run.path).exists()):
        try:
            _split(setting, 0)
        except DataError as error:
            reasons[setting] = str(error)
    return reasons


def run_all(
    runs: Iterable[Run], folder: Path, *, jobs: int = 1, on_result: OnResult | None = None, bar: bool | None = None
) -> int:
    """Run what is not there yet, in `jobs` processes of one thread each. Gives the number of runs that were made."""
    missing = [run for run in runs if not (folder / run.path).exists()]
    count = 0
    for run, record in _results(missing, folder, jobs, bar):
        count += 1
        if on_result is not None:
            on_result(run, record)
    return count


def _results(runs: list[Run], folder: Path, jobs: int, bar: bool | None) -> Iterator[tuple[Run, Record]]:
    if jobs == 1:
        for run in runs:
            yield run, run_one(run, folder, bar=bar)
        return
    yield from pool.each(run_one, runs, jobs, folder=folder, bar=False)


@cache
def _split(setting: int, seed: int) -> Split:
    return SETTINGS[setting].split(seed)


def run_one(run: Run, folder: Path, *, bar: bool | None = None) -> Record:
    """Fit, test, write."""
    setting, entry = run.setting_and_entry
    path, parts = folder / run.path, _split(run.setting, run.seed)
    roles = {role: name for role, name in setting.roles.items() if role not in entry.without}
    unfinished = folder / ".unfinished" / run.path.with_suffix("")
    record: Record = {"experiment": setting.experiment, "setting": setting.name, "model": entry.model}
    record |= {"preset": entry.preset, "seed": run.seed, "commit": records.commit()}  # of now: it may move while we fit
    estimator, start = entry.make(run.seed), time.perf_counter()
    more: dict[str, Any] = {"checkpoint": unfinished, "resume": bool(left_in(unfinished)), "progress": bar}
    estimator.fit(parts.train, **roles, validation=parts.validation, **more)
    if getattr(estimator, "interrupted_", False):
        raise KeyboardInterrupt  # a fit that was cut short is no result; the next call goes on with it
    seconds = max(time.perf_counter() - start, sum(record["seconds"] for record in estimator.history_))
    record |= {**tested(setting, estimator, parts), "seconds": round(seconds, 2)}
    record |= {"epochs": len(estimator.history_), "validation": _best(estimator.history_), **_machine(estimator)}
    for look in (setting.look, entry.look if run.seed == 0 else None):
        if look is not None and hasattr(estimator, "model_"):
            record |= look(estimator, parts)
    records.write(path, record)
    forget(unfinished)
    return record


def tested(setting: Setting, estimator: Any, parts: Split) -> Record:
    """The metric and the full log-likelihood per scored row, over all test rows and by group."""
    loss = setting.metric.losses(estimator, parts.test)
    columns = [c for c in estimator.log_likelihood(parts.test).iter_columns() if c.name.endswith("_log_likelihood")]
    (likely,) = (c.fill_null(np.nan).to_numpy() for c in columns)
    target = setting.roles.get("target")
    scored = np.ones(len(loss), bool) if target is None else parts.test[target].to_numpy()
    if np.isnan(loss[scored]).any() or np.isnan(likely[scored]).any():
        raise DataError(
            f"{setting.title}: a test row has no score, so that models would not be compared on equal rows."
        )
    table = pl.DataFrame({"group": parts.test[setting.roles["group"]], "loss": loss, "likely": likely}).filter(scored)
    groups = table.group_by("group", maintain_order=True).agg(pl.col("loss", "likely").mean(), rows=pl.len())
    scores: Record = {"metric": setting.metric.name, "value": float(table["loss"].mean())}  # type: ignore[arg-type]
    scores |= {"log_likelihood": float(table["likely"].mean()), "rows": len(table)}  # type: ignore[arg-type]
    scores["groups"] = {
        "names": [str(name) for name in groups["group"]],
        "rows": groups["rows"].to_list(),
        "value": [float(f"{x:.{DIGITS}g}") for x in groups["loss"]],
        "log_likelihood": [float(f"{x:.{DIGITS}g}") for x in groups["likely"]],
    }
    return scores


def _best(history: Sequence[Record]) -> float | None:
    best = [record["best"] for record in history if record["best"] is not None]
    return max(best) if best else None


def _machine(estimator: Any) -> Record:
    options = estimator.training if getattr(estimator, "training", None) is not None else None
    gpu = torch.cuda.is_available() and (options is None or resolve_device(options).type == "cuda")
    versions = {"efattn": __version__, "torch": torch.__version__, "python": platform.python_version()}
    parameters = saving.plain(estimator.get_params(deep=False))
    device = torch.cuda.get_device_name() if gpu else f"cpu, {torch.get_num_threads()} threads"
    return {"versions": versions, "device": device, "parameters": parameters}
