"""What isolated content costs in nats: networks alone, on six sets, beside those whose content mixes positions.

    python -m efattn.bench.isolated FOLDER --jobs 16 --seeds 2 --layers 2 --layers 3

Fitted on training groups (no companions, nothing refitted), stopped and chosen among depths on validation groups; the
chosen network of each kind then scores the test groups, once. Sets are those of the experiments, with as many groups as
give about `rows` training rows. One layer is the same model for both.
"""

import argparse
import tempfile
import time
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from efattn import EFA, Training, load
from efattn.bench.keeping import keep
from efattn.experiments.pool import each
from efattn.experiments.presets import SETTINGS
from efattn.experiments.settings import Setting

SETS = (
    "cities, no lag",
    "beyond, NOAA stations",
    "beyond, MovieLens ratings, others",
    "ratings, v1, others",
    "instacart, others",
    "sequences, others",
)
KINDS = ("one layer", "mixing", "isolated")
LAYERS = (2, 3)
ROWS, LONGEST, STEPS = 12_000, 110, 3_000
Unit = tuple[str, str, int, int]  # set, kind, layers, seed


def setting_of(title: str) -> Setting:
    (found,) = (one for one in SETTINGS if one.title == title)
    return found


def some(frame: pl.DataFrame, group: str, rows: int, seed: int) -> pl.DataFrame:
    """Whole groups drawn at random, about so many rows; of long groups the first ones."""
    frame = frame.filter(pl.int_range(pl.len()).over(group) < LONGEST)
    if len(frame) <= rows:
        return frame
    names = frame[group].unique().sort().to_numpy()
    most = max(round(len(names) * rows / len(frame)), 1)
    drawn = np.random.default_rng(seed).permutation(names)[:most]
    return frame.filter(pl.col(group).is_in(pl.Series(drawn).implode()))


def parts(setting: Setting, seed: int, rows: int) -> tuple[pl.DataFrame, ...]:
    """Of training, validation and test, of which the last two have half as many rows."""
    group = setting.roles["group"]
    split = setting.split(seed)
    return some(split.train, group, rows, seed), *(some(x, group, rows // 2, seed) for x in split[1:])


def fit(unit: Unit, folder: str, rows: int, steps: int, device: str) -> dict[str, Any]:
    """The validation score, in nats a row; the model goes into the folder."""
    title, kind, layers, seed = unit
    setting = setting_of(title)
    (entry,) = (x for x in setting.entries if x.preset == "defaults" and x.model == "EFA")
    model: EFA = entry.make(seed)
    model.set_params(
        content="isolated" if kind == "isolated" else "mixing", layers=layers, companions=None, refit=False, ensemble=1
    )
    model.set_params(training=Training(steps=steps, device=device))
    train, validation, _ = parts(setting, seed, rows)
    start = time.perf_counter()
    model.fit(train, **setting.roles, validation=validation, progress=False)
    model.save(_file(folder, unit))
    seconds, best = time.perf_counter() - start, model.history_[-1]["best"]
    return {"validation": best, "seconds": seconds, "epochs": len(model.history_)}


def scored(unit: Unit, folder: str, rows: int) -> pl.DataFrame:
    """block, score: the log score of every test row in nats, by what rows count together in standard errors."""
    setting = setting_of(unit[0])
    test = parts(setting, unit[3], rows)[2]
    told = load(_file(folder, unit)).log_likelihood(test)
    (name,) = (x for x in told.columns if x.endswith("_log_likelihood"))
    blocks = [str(setting.block(str(x))) for x in test[setting.cluster or setting.roles["group"]]]
    return pl.DataFrame({"block": blocks, "score": told[name].fill_null(np.nan)}).filter(pl.col("score").is_not_nan())


def compared(units: Sequence[Unit], found: Mapping[Unit, dict[str, Any]], folder: str, rows: int) -> dict[str, Any]:
    """Of one set and seed, each kind at the depth that validation groups chose, and the difference with its standard
    error."""
    title, _, _, seed = units[0]
    record: dict[str, Any] = {"set": title, "seed": seed, "kinds": {}}
    tests = {}
    for kind in KINDS:
        mine = [unit for unit in units if unit[1] == kind]
        best = max(mine, key=lambda unit: found[unit]["validation"])
        tests[kind] = scored(best, folder, rows)
        tried = {str(unit[2]): found[unit] for unit in mine}
        record["kinds"][kind] = {"layers": best[2], "test": tests[kind]["score"].mean(), "tried": tried}
    apart = (tests["isolated"]["score"] - tests["mixing"]["score"]).to_numpy()
    sums = pl.DataFrame({"block": tests["mixing"]["block"], "apart": apart - apart.mean()}).group_by("block").sum()
    error = float(np.sqrt((sums["apart"].to_numpy() ** 2).sum()) / len(apart))
    return record | {"rows": len(apart), "isolated_minus_mixing": float(apart.mean()), "standard_error": error}


def run(titles: Sequence[str], seeds: int, layers: Sequence[int], jobs: int, **how: Any) -> list[dict[str, Any]]:
    """All sets and seeds; prints a row as soon as it is known. how: rows, steps, device."""
    units = [
        (title, kind, depth, seed)
        for seed, title, kind in product(range(seeds), titles, KINDS)
        for depth in ((1,) if kind == "one layer" else layers)
    ]
    units.sort(key=lambda unit: (unit[1] != "mixing", -unit[2]))  # what takes longest first
    found: dict[Unit, dict[str, Any]] = {}
    records = []
    print(f"{'test log score, nats a row':44}" + "".join(f"{x:>17}" for x in KINDS) + f"{'isolated - mixing':>22}")
    with tempfile.TemporaryDirectory() as folder:
        for unit, one in each(fit, units, jobs, folder=folder, **how):
            found[unit] = one
            mine = [x for x in units if (x[0], x[3]) == (unit[0], unit[3])]
            if set(mine) <= set(found):
                records.append(compared(mine, found, folder, how["rows"]))
                print(_words(records[-1]), flush=True)
    return sorted(records, key=lambda one: (titles.index(one["set"]), one["seed"]))


def _words(record: dict[str, Any]) -> str:
    kinds = "".join(f"{x['test']:13.4f} ({x['layers']})" for x in record["kinds"].values())
    apart = f"{record['isolated_minus_mixing']:+13.4f} ± {record['standard_error']:.4f}"
    return f"{record['set'] + ', seed ' + str(record['seed']):44}{kinds}{apart}"


def _file(folder: str, unit: Unit) -> Path:
    title, kind, layers, seed = unit
    return Path(folder) / f"{title}-{kind}-{layers}-{seed}.efattn".replace(" ", "_").replace(",", "")


def main() -> None:
    asked = argparse.ArgumentParser(description="What isolated content costs in nats, on six sets.")
    asked.add_argument("folder", nargs="?", default="benchmarks/results", help="where isolated.json goes")
    asked.add_argument("--jobs", type=int, default=1, help="fits side by side, one thread each")
    asked.add_argument("--seeds", type=int, default=2)
    asked.add_argument("--layers", type=int, action="append", help="to choose from; may be given again")
    asked.add_argument("--rows", type=int, default=ROWS, help="of training, about")
    asked.add_argument("--steps", type=int, default=STEPS, help="planned, of each fit")
    asked.add_argument("--device", default="cpu")
    asked.add_argument("--only", action="append", help="one set; may be given again")
    told = asked.parse_args()
    layers, how = told.layers or LAYERS, {"rows": told.rows, "steps": told.steps, "device": told.device}
    records = run(told.only or SETS, told.seeds, layers, told.jobs, **how)
    options = {"seeds": told.seeds, **how, "jobs": told.jobs}
    command = " ".join(["python -m efattn.bench.isolated", *(f"--{name} {x}" for name, x in options.items())])
    about = {"layers": list(layers), "protocol": "train only, networks alone", "command": command}
    keep(Path(told.folder), "isolated", records, **options, **about)


if __name__ == "__main__":
    main()
