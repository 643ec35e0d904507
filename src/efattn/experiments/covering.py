"""What intervals hold after `calibrate`: fitted to some years, calibrated by groups of later ones, asked about others.

    before     without calibration, of the last years
    years      calibrated by the years between, asked about the last ones, which may be another weather
    weeks      calibrated by every other week of the later years, asked about the rest, and the other way round:
               groups that are alike, for which calibration promises something
    cover      the share of rows inside their interval of 50, 80, 90 and 95 %
    error      its standard error over weeks, as days that follow each other are alike
    z          (cover - level) / error

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


def covers(*parts: tuple[Distribution, np.ndarray]) -> list[Record]:
    """Of each level, over the rows of all parts that are scored. Each is laws and their weeks (row,)."""
    some = [(law[there], week[there]) for law, week in parts for there in (law.scored & ~np.isnan(law.observed),)]
    inside, weeks = [row_errors(law, levels=LEVELS) for law, _ in some], np.concatenate([week for _, week in some])
    told = []
    for level in LEVELS:
        mine = np.concatenate([one[f"inside_{100 * level:g}"] for one in inside])
        share, error = clustered(mine.astype(float), weeks)
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
    before = model.predict_distribution(parts.test)[value]
    after = model.calibrate(parts.validation).predict_distribution(parts.test)[value]
    week = _weeks(parts.test[group])
    told: Record = {"set": name, "effort": effort, "seed": seed, "rows": int(after.scored.sum())}
    told |= {"before": covers((before, week)), "years": covers((after, week)), "items_90": by_item(after)}
    held, halves = pl.concat([parts.validation, parts.test]), list[tuple[Distribution, np.ndarray]]()
    for half in (0, 1):
        here = pl.Series(_weeks(held[group]) % 2 == half)
        model.calibrate(_some(held, ~here, roles))
        mine = _some(held, here, roles)
        halves.append((model.predict_distribution(mine)[value], _weeks(mine[group])))
    told |= {"weeks": covers(*halves), "held": sum(int(law.scored.sum()) for law, _ in halves)}
    return told | {"seconds": round(time.perf_counter() - begun, 1)}


def _weeks(days: pl.Series) -> np.ndarray:
    return np.asarray(days.cast(pl.Date).to_physical().to_numpy() // 7)


def _some(table: pl.DataFrame, rows: pl.Series, roles: dict[str, Any]) -> pl.DataFrame:
    """Some rows; with lags, all of them, of which the others are context only."""
    if "target" not in roles:
        return table.filter(rows)
    return table.with_columns(table[roles["target"]] & rows)


def markdown(records: Sequence[Record]) -> str:
    lines = ["| set | calibrated by | rows | 50 % | 80 % | 90 % | 95 % |", "|---" * 7 + "|"]
    for one in records:
        for key, words in {"before": "nothing", "years": "years between", "weeks": "other weeks"}.items():
            told = " | ".join(f"{x['cover']:.1%} ± {x['error']:.1%}" for x in one[key])
            count = one["held"] if key == "weeks" else one["rows"]
            lines.append(f"| {one['set']} | {words} | {count:,} | {told} |")
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
