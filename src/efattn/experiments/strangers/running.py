"""`efattn reproduce strangers`: every table compared with defaults, one compressed JSON file each.

    results/strangers/NAME.json.gz  what `compare` says, with source, commit, seed, seconds and versions

A table whose file is there is skipped; one that was interrupted goes on with the fits it lacks.
"""

import json
import platform
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from efattn import __version__
from efattn.comparing import Comparison, compare
from efattn.comparing.comparison import text_of, write
from efattn.errors import DataError
from efattn.experiments import pool, records
from efattn.experiments.strangers.tables import STRANGERS, Stranger, named

Record = dict[str, Any]
FOLDER = "strangers"
FOLDS, SEED = 5, 0


def path_of(folder: Path, name: str) -> Path:
    return folder / FOLDER / f"{name}.json.gz"


def run_all(
    folder: Path, names: Sequence[str] = (), *, jobs: int = 1, options: dict[str, Any] | None = None
) -> Iterator[tuple[str, Record]]:
    """Each table that is missing, as it is finished; `jobs` at a time, each in a process with one thread. A table that
    cannot be compared is told as {"error": why}. options: of EFA, for trials."""
    chosen = [named(name) for name in names] or STRANGERS
    missing = [one.name for one in chosen if not path_of(folder, one.name).exists()]
    if jobs == 1:
        for name in missing:
            yield name, run_one(name, folder, options)
        return
    yield from pool.each(run_one, missing, jobs, folder=folder, options=options)


def run_one(name: str, folder: Path, options: dict[str, Any] | None = None) -> Record:
    """Load, compare, write."""
    one, start, commit = named(name), time.perf_counter(), records.commit()
    unfinished = (
        folder / ".unfinished" / FOLDER / f"{name}-{(commit or 'installed')[:12]}.json"
    )  # of one state of the code
    unfinished.parent.mkdir(parents=True, exist_ok=True)
    try:
        comparison = compare(
            one.load(),
            **one.roles,
            context=one.context,
            terms="value" if "value" in one.roles else "item",
            folds=FOLDS,
            seed=SEED,
            output=unfinished,
            progress=False,
            **(options or {}),
        )
    except DataError as error:
        return {"error": str(error)}
    spent = sum(run["seconds"] for run in comparison.runs)
    record = {**comparison.to_json(), **_provenance(one), "commit": commit}
    record["seconds"] = round(max(time.perf_counter() - start, spent), 1)
    path_of(folder, name).parent.mkdir(parents=True, exist_ok=True)
    write(path_of(folder, name), record)
    unfinished.unlink(missing_ok=True)
    return record


def _provenance(one: Stranger) -> Record:
    versions = {"efattn": __version__, "torch": torch.__version__, "python": platform.python_version()}
    device = f"cpu, {torch.get_num_threads()} threads"
    if torch.cuda.is_available():
        device = torch.cuda.get_device_name()
    told = {"name": one.name, "kind": one.kind, "source": one.source, "why": one.why}
    return {**told, "seed": SEED, "versions": versions, "device": device}


def read(folder: Path) -> dict[str, tuple[Record, Comparison]]:
    """What is there, in the order in which the tables are listed."""
    found = {}
    for one in STRANGERS:
        path = path_of(folder, one.name)
        if path.exists():
            record = json.loads(text_of(path))
            found[one.name] = record, Comparison.from_json(record)
    return found
