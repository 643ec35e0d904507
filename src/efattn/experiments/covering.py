"""What intervals hold after `calibrate`: fitted to some years, calibrated by others, asked about the last ones.

    cover      the share of test rows inside their interval of 50, 80, 90 and 95 %, before and after
    error      its standard error over weeks, as days that follow each other are alike
    z          (cover - level) / error: within 2 of 0, if intervals hold what they promise

    python -m efattn.experiments.covering -o results/covering.json

Neither training rows nor rows that were calibrated by are asked about. A network of `effort="quick"`, a few minutes.
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import efattn
from efattn import EFA, storage
from efattn.experiments.presets import beyond, cities
from efattn.experiments.settings import Split
from efattn.inference.distribution import Distribution
from efattn.inference.reliability import LEVELS, clustered, row_errors

Record = dict[str, Any]
QUESTION = {"family": "gaussian", "context": "others", "terms": "value"}


def _cities(lags: int) -> tuple[Split, dict[str, Any], dict[str, Any]]:
    return cities.split(0, lags), cities.LAGGED if lags else cities.ROLES, {**QUESTION, "lags": lags}


SETS = {
    "US cities": lambda: _cities(0),
    "US cities, one day of lag": lambda: _cities(1),
    "NOAA stations": lambda: (beyond.years(0), beyond.STATIONS, QUESTION),
}


def covers(law: Distribution, week: np.ndarray) -> list[Record]:
    """Of each level, over the rows that are scored. week: (row,)"""
    there = law.scored & ~np.isnan(law.observed)
    inside = row_errors(law[there], levels=LEVELS)
    told = []
    for level in LEVELS:
        share, error = clustered(inside[f"inside_{100 * level:g}"].astype(float), week[there])
        one: Record = {"level": level, "cover": round(share, 4), "error": round(error or 0.0, 4)}
        told.append(one | {"z": round((share - level) / error, 2) if error else None})
    return told


def by_item(law: Distribution, level: float = 0.9, least: int = 20) -> list[float]:
    """The tenth and the ninetieth percentile of items' covers."""
    there = law.scored & ~np.isnan(law.observed)
    mine = law[there]
    if mine.item is None:
        return []
    inside = row_errors(mine, levels=(level,))[f"inside_{100 * level:g}"].astype(float)
    count = np.bincount(mine.item)
    share = np.bincount(mine.item, inside)[count >= least] / count[count >= least]
    return [round(float(x), 3) for x in np.quantile(share, (0.1, 0.9))]


def run(name: str, effort: str = "quick", seed: int = 0) -> Record:
    parts, roles, question = SETS[name]()
    begun, (value, group) = time.perf_counter(), (roles["value"], roles["group"])
    model = EFA(**question, effort=effort, seed=seed).fit(parts.train, **roles, progress=False)
    week = parts.test[group].cast(pl.Date).to_physical().to_numpy() // 7
    before = model.predict_distribution(parts.test)[value]
    after = model.calibrate(parts.validation).predict_distribution(parts.test)[value]
    told: Record = {"set": name, "effort": effort, "seed": seed, "rows": int(after.scored.sum())}
    told |= {"before": covers(before, week), "after": covers(after, week), "items_90": by_item(after)}
    return told | {"seconds": round(time.perf_counter() - begun, 1)}


def markdown(records: Sequence[Record]) -> str:
    lines = ["| set | rows | before, 50 / 80 / 90 / 95 % | after | two errors | items, 90 % |", "|---" * 6 + "|"]
    for one in records:
        before, after = (" / ".join(f"{x['cover']:.1%}" for x in one[key]) for key in ("before", "after"))
        twice = " / ".join(f"{2 * x['error']:.1%}" for x in one["after"])
        items = " to ".join(f"{x:.2f}" for x in one["items_90"])
        lines.append(f"| {one['set']} | {one['rows']:,} | {before} | {after} | {twice} | {items} |")
    return "\n".join(lines)


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", choices=tuple(SETS), default=tuple(SETS))
    parser.add_argument("--effort", choices=("quick", "normal", "best"), default="quick")
    parser.add_argument("-o", "--output", type=Path, default=Path("results/covering.json"))
    asked = parser.parse_args(words)
    records = list[Record]()
    for name in asked.sets:
        records.append(run(name, asked.effort))
        asked.output.parent.mkdir(parents=True, exist_ok=True)
        with storage.beside(asked.output) as part:
            lines = ",\n".join(f"  {json.dumps(record)}" for record in records)
            part.write_text(f'{{"version": "{efattn.__version__}",\n "runs": [\n{lines}]}}\n')
        sys.stdout.write(json.dumps(records[-1]) + "\n")
    sys.stdout.write(markdown(records) + "\n")


if __name__ == "__main__":
    main()
