"""What isolated content costs in nats: networks alone, on six sets, beside those whose content mixes positions.

    python -m efattn.bench.isolated --jobs 16 --seeds 2

Fitted on training groups (no companions, nothing refitted), stopped and chosen among sizes on validation groups; the
chosen network of each kind then scores the test groups, once. Sets are those of the experiments, with as many groups as
give about `rows` training rows. One layer is the same model for both.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

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
ROWS, LONGEST, STEPS = 8_000, 110, 2_500


class Unit(NamedTuple):
    """One fit. feed_forward: with a norm before, where there is one."""

    title: str
    kind: str
    layers: int
    feed_forward: int
    seed: int

    @property
    def sizes(self) -> str:
        return f"{self.layers}, {self.feed_forward}"

    @property
    def options(self) -> dict[str, Any]:
        content = "isolated" if self.kind == "isolated" else "mixing"
        norm = "pre" if self.feed_forward else None
        return {"content": content, "layers": self.layers, "feed_forward": self.feed_forward, "norm": norm}

    def file(self, folder: str) -> Path:
        return Path(folder) / f"{'-'.join(map(str, self))}.efattn".replace(" ", "_").replace(",", "")


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
    setting = setting_of(unit.title)
    (entry,) = (x for x in setting.entries if x.preset == "defaults" and x.model == "EFA")
    model: EFA = entry.make(unit.seed)
    model.set_params(**unit.options, companions=None, refit=False, ensemble=1)
    model.set_params(training=Training(steps=steps, device=device))
    train, validation, _ = parts(setting, unit.seed, rows)
    start = time.perf_counter()
    model.fit(train, **setting.roles, validation=validation, progress=False)
    model.save(unit.file(folder))
    seconds, best = time.perf_counter() - start, model.history_[-1]["best"]
    return {"validation": best, "seconds": seconds, "epochs": len(model.history_)}


def scored(unit: Unit, folder: str, rows: int) -> pl.DataFrame:
    """block, score: the log score of every test row in nats, by what rows count together in standard errors."""
    setting = setting_of(unit.title)
    test = parts(setting, unit.seed, rows)[2]
    told = load(unit.file(folder)).log_likelihood(test)
    (name,) = (x for x in told.columns if x.endswith("_log_likelihood"))
    blocks = [str(setting.block(str(x))) for x in test[setting.cluster or setting.roles["group"]]]
    return pl.DataFrame({"block": blocks, "score": told[name].fill_null(np.nan)}).filter(pl.col("score").is_not_nan())


def compared(units: Sequence[Unit], found: Mapping[Unit, dict[str, Any]], folder: str, rows: int) -> dict[str, Any]:
    """Of one set and seed, each kind at the sizes that validation groups chose, and the difference with its standard
    error."""
    record: dict[str, Any] = {"set": units[0].title, "seed": units[0].seed, "kinds": {}}
    tests = {}
    for kind in KINDS:
        mine = [unit for unit in units if unit.kind == kind]
        best = max(mine, key=lambda unit: found[unit]["validation"])
        tests[kind] = scored(best, folder, rows)
        tried = {unit.sizes: found[unit] for unit in mine}
        record["kinds"][kind] = {"chosen": best.sizes, "test": tests[kind]["score"].mean(), "tried": tried}
    apart = (tests["isolated"]["score"] - tests["mixing"]["score"]).to_numpy()
    sums = pl.DataFrame({"block": tests["mixing"]["block"], "apart": apart - apart.mean()}).group_by("block").sum()
    error = float(np.sqrt((sums["apart"].to_numpy() ** 2).sum()) / len(apart))
    return record | {"rows": len(apart), "isolated_minus_mixing": float(apart.mean()), "standard_error": error}


def run(
    titles: Sequence[str], seeds: int, depths: Mapping[str, Sequence[int]], inner: Sequence[int], jobs: int, **how: Any
) -> list[dict[str, Any]]:
    """All sets and seeds; prints a row as soon as it is known. depths: by kind; inner: widths of feed-forward blocks;
    how: rows, steps, device."""
    units = [
        Unit(title, kind, depth, width, seed)
        for seed, title, kind, width in product(range(seeds), titles, KINDS, inner)
        for depth in depths[kind]
    ]
    units.sort(key=lambda unit: (unit.kind != "mixing", -unit.layers, -unit.feed_forward))  # what takes longest first
    found: dict[Unit, dict[str, Any]] = {}
    records = []
    print(f"{'test log score, nats a row':44}" + "".join(f"{x:>17}" for x in KINDS) + f"{'isolated - mixing':>22}")
    with tempfile.TemporaryDirectory() as folder:
        for unit, one in each(fit, units, jobs, folder=folder, **how):
            found[unit] = one
            mine = [x for x in units if (x.title, x.seed) == (unit.title, unit.seed)]
            if set(mine) <= set(found):
                records.append(compared(mine, found, folder, how["rows"]))
                print(_words(records[-1]), flush=True)
    return sorted(records, key=lambda one: (titles.index(one["set"]), one["seed"]))


def _words(record: dict[str, Any]) -> str:
    kinds = "".join(f"{x['test']:9.4f} ({x['chosen']:>5})" for x in record["kinds"].values())
    apart = f"{record['isolated_minus_mixing']:+13.4f} ± {record['standard_error']:.4f}"
    return f"{record['set'] + ', seed ' + str(record['seed']):44}{kinds}{apart}"


def main() -> None:
    asked = argparse.ArgumentParser(description="What isolated content costs in nats, on six sets.")
    asked.add_argument("folder", nargs="?", default="benchmarks/results", help="where isolated.json goes")
    asked.add_argument("--jobs", type=int, default=1, help="fits side by side, one thread each")
    asked.add_argument("--seeds", type=int, default=2)
    asked.add_argument("--mixing", type=int, nargs="+", default=(2,), help="layers to choose from")
    asked.add_argument("--isolated", type=int, nargs="+", default=(2, 3, 4), help="the same, of isolated content")
    asked.add_argument("--feed-forward", type=int, nargs="+", default=(0,), help="widths to choose from, of both")
    asked.add_argument("--rows", type=int, default=ROWS, help="of training, about")
    asked.add_argument("--steps", type=int, default=STEPS, help="planned, of each fit")
    asked.add_argument("--device", default="cpu")
    asked.add_argument("--only", action="append", help="one set; may be given again")
    told = asked.parse_args()
    depths = {"one layer": (1,), "mixing": told.mixing, "isolated": told.isolated}
    how = {"rows": told.rows, "steps": told.steps, "device": told.device}
    records = run(told.only or SETS, told.seeds, depths, told.feed_forward, told.jobs, **how)
    about = {"protocol": "train only, networks alone", "seeds": told.seeds, **how}
    command = " ".join(["python -m efattn.bench.isolated", *sys.argv[1:]])
    keep(Path(told.folder), "isolated", records, **about, command=command)


if __name__ == "__main__":
    main()
