"""What runs leave behind: a small JSON file per run, and the scores by test group in one compressed file an experiment.

    results/EXPERIMENT/SETTING/MODEL-PRESET-SEED.json    written whole by the run, with its scores by group
    results/EXPERIMENT/groups.parquet                    setting, run, group, rows, value, log_likelihood

`pack` moves the scores of finished runs from the first to the second. Processes that run side by side write to no file
in common, and whenever one dies, a run's scores are in one of the two: where they are in both, those of the JSON file
count. In groups.parquet numbers are rounded to 16 bits, and log_likelihood is null where it is -value.
"""

import contextlib
import json
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import efattn
from efattn import storage
from efattn.errors import DataError

Record = dict[str, Any]
GROUPS = "groups.parquet"
BITS = 16  # of a score that are kept: relative errors below 2e-5, which the mean over groups makes smaller yet
COLUMNS = {
    "setting": pl.String,
    "run": pl.String,
    "group": pl.String,
    "rows": pl.Int32,
    "value": pl.Float32,
    "log_likelihood": pl.Float32,
}


def write(path: Path, record: Record) -> None:
    """As JSON, one line per key."""
    lines = ",\n".join(f" {json.dumps(key)}: {json.dumps(x)}" for key, x in record.items())
    path.parent.mkdir(parents=True, exist_ok=True)
    with storage.beside(path) as part:
        part.write_text("{\n" + lines + "\n}\n")


def read(folder: Path) -> list[Record]:
    """Every record in the folder, with its scores by group."""
    return [record for experiment in _experiments(folder) for record in _records(experiment).values()]


def pack(folder: Path) -> None:
    """Move scores by group out of the JSON files. What belongs to no JSON file is dropped."""
    with _alone(folder):
        for experiment in _experiments(folder):
            plain = {path: json.loads(path.read_text()) for path in _paths(experiment)}
            unpacked = {path: record for path, record in plain.items() if "groups" in record}
            if not unpacked:
                continue
            packed = _packed(experiment)
            frames = [
                _frame(path, record["groups"]) if path in unpacked else packed[_key(path)]
                for path, record in plain.items()
                if path in unpacked or _key(path) in packed
            ]
            with storage.beside(experiment / GROUPS) as part:
                pl.concat(frames).write_parquet(part, compression="zstd", compression_level=22, statistics=False)
            for path, record in unpacked.items():
                write(path, {name: x for name, x in record.items() if name != "groups"})


@cache
def commit() -> str | None:
    """Of the checkout that this code is part of, if it is of one."""
    home = Path(efattn.__file__).resolve().parent
    ask = ["git", "-C", str(home), "rev-parse", "--show-toplevel", "HEAD"]
    try:
        top, head = subprocess.run(ask, capture_output=True, check=True, text=True).stdout.splitlines()
    except (OSError, subprocess.CalledProcessError, ValueError):
        return None
    return head if Path(top).resolve() / "src" / "efattn" == home else None  # not of a project that installed it


def _records(experiment: Path) -> dict[Path, Record]:
    packed, records = _packed(experiment), {}
    for path in _paths(experiment):
        record = json.loads(path.read_text())
        if "groups" not in record and _key(path) in packed:
            record["groups"] = _groups(packed[_key(path)])
        _check(path, record)
        records[path] = record
    return records


def _check(path: Path, record: Record) -> None:
    """That the scores by group are there, and those of this run: they add up to what the record says."""
    groups = record.get("groups")
    if groups is None:
        wrong = f"'{path}' has no scores by group: they are neither in it nor in '{path.parent.parent / GROUPS}'."
    elif sum(groups["rows"]) != record["rows"] or not np.isclose(
        np.average(groups["value"], weights=groups["rows"]), record["value"], rtol=1e-4, atol=1e-6
    ):
        wrong = f"The scores by group of '{path}' are of another run: they do not add up to its rows and its loss."
    else:
        return
    raise DataError(f"{wrong} Delete this file, and `efattn reproduce` runs it again.")


def _experiments(folder: Path) -> list[Path]:
    """Without what another process has not finished, which is in a hidden folder."""
    return sorted({path.parent.parent for path in folder.glob("[!.]*/*/*.json")})


def _paths(experiment: Path) -> list[Path]:
    return sorted(experiment.glob("*/*.json"))


def _key(path: Path) -> tuple[str, str]:
    return path.parent.name, path.stem


def _packed(experiment: Path) -> dict[tuple[str, ...], pl.DataFrame]:
    """By setting and run."""
    if not (experiment / GROUPS).exists():
        return {}
    try:
        table = pl.read_parquet(experiment / GROUPS).select(*COLUMNS)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise DataError(
            f"'{experiment / GROUPS}' cannot be read: {error}. Take another copy of it; or delete it and the JSON "
            "files beside it, and `efattn reproduce` runs them again."
        ) from error
    return table.partition_by("setting", "run", maintain_order=True, as_dict=True)


def _frame(path: Path, groups: dict[str, list[Any]]) -> pl.DataFrame:
    setting, run = _key(path)
    value, likely = np.array(groups["value"], float), np.array(groups["log_likelihood"], float)
    same = np.allclose(value, -likely, rtol=2e-6, atol=1e-9)
    columns = {
        "setting": [setting] * len(value),
        "run": [run] * len(value),
        "group": groups["names"],
        "rows": groups["rows"],
        "value": rounded(value),
        "log_likelihood": [None] * len(value) if same else rounded(likely),
    }
    return pl.DataFrame(columns, schema=COLUMNS)


def _groups(frame: pl.DataFrame) -> dict[str, list[Any]]:
    frame = frame.with_columns(pl.col("log_likelihood").fill_null(-pl.col("value")))
    names = {"names": "group", "rows": "rows", "value": "value", "log_likelihood": "log_likelihood"}
    return {name: frame[column].to_list() for name, column in names.items()}


def rounded(x: np.ndarray) -> np.ndarray:
    """To so many bits: the zeros that are left take no room when compressed."""
    mantissa, exponent = np.frexp(x)
    return np.ldexp(np.round(mantissa * 2**BITS), exponent - BITS).astype(np.float32)


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """One process at a time; the lock goes with the process that holds it."""
    try:
        import fcntl
    except ImportError:  # not on Windows
        yield
        return
    lock = folder / ".unfinished" / "packing"
    lock.parent.mkdir(parents=True, exist_ok=True)
    with open(lock, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
