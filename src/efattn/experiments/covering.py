"""What intervals hold after `calibrate`: fitted to some groups, calibrated by others, asked about others again.

    before     without calibration, of the groups asked about
    after      calibrated by the groups between, asked about the last ones: of weather, by the years between about the
               last years, which may be another weather
    ways       of stations: fitted to two Octobers, calibrated by a third, asked about the fourth, all twelve ways
    weeks      calibrated by every other week of the later years, asked about the rest, and the other way round: groups
               that are alike, and what one half has more than the other cancels
    cover      the share of rows inside their interval of 50, 80, 90 and 95 %
    error      its standard error over weeks, as days that follow each other are alike; in `after` over years, or over
               users, of both the rows asked about and those calibrated by, since few groups tell a level roughly; where
               there is one year of each, the root mean square of what is missed in all ways
    z          (cover - level) / error

    python -m efattn.experiments.covering -o results/covering.json

Neither training rows nor rows that were calibrated by are asked about. A network of `effort="quick"`, a few minutes; of
stations six. Finished sets are kept in the file and skipped.
"""

import argparse
import itertools
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

import efattn
from efattn import EFA, storage
from efattn.experiments.presets import beyond, cities, synthetic
from efattn.experiments.settings import Split
from efattn.inference.distribution import Distribution
from efattn.inference.reliability import LEVELS, clustered, row_errors

Record = dict[str, Any]
QUESTION = {"family": "gaussian", "context": "others", "terms": "value"}


Part = tuple[Distribution, np.ndarray]  # laws, and of each row what it goes together with (row,)


class Study(NamedTuple):
    """dated: whether groups are days."""

    split: Split
    roles: dict[str, Any]
    question: dict[str, Any]
    dated: bool = True


def _cities(lags: int) -> Study:
    return Study(cities.split(0, lags), cities.LAGGED if lags else cities.ROLES, {**QUESTION, "lags": lags})


def _ratings() -> Study:
    parts = Split(*(part.filter(pl.col("user") % 5 == 0) for part in synthetic.split(0)))
    return Study(parts, synthetic.ROLES, {**QUESTION, "context": "past"}, dated=False)


SETS = {
    "synthetic ratings": _ratings,
    "US cities": lambda: _cities(0),
    "US cities, one day of lag": lambda: _cities(1),
    "NOAA stations": lambda: Study(beyond.years(0), beyond.STATIONS, QUESTION),
}


def _there(part: Part) -> Part:
    law, cluster = part
    there = law.scored & ~np.isnan(law.observed)
    return law[there], cluster[there]


def covers(*asked: Part, by: Part | None = None) -> list[Record]:
    """Of each level, over the rows of all parts that are scored. by: the part that was calibrated by, whose own error
    counts too, as levels are learnt from it."""
    some, other = [_there(part) for part in asked], [] if by is None else [_there(by)]
    inside = [row_errors(law, levels=LEVELS) for law, _ in (*some, *other)]
    told, cluster = [], np.concatenate([one for _, one in some])
    for level in LEVELS:
        mine = [one[f"inside_{100 * level:g}"].astype(float) for one in inside]
        share, error = clustered(np.concatenate(mine[: len(some)]), cluster)
        errors = [error, *(clustered(x, one).error for x, (_, one) in zip(mine[len(some) :], other, strict=True))]
        told.append(_line(level, share, float(np.sqrt(sum((x or 0.0) ** 2 for x in errors)))))
    return told


def _line(level: float, share: float, error: float) -> Record:
    z = round((share - level) / error, 2) if error else None
    return {"level": level, "cover": round(share, 4), "error": round(error, 4), "z": z}


def by_item(law: Distribution, level: float = 0.9, least: int = 20) -> list[float]:
    """The tenth and the ninetieth percentile of items' covers."""
    mine, _ = _there((law, np.zeros(len(law))))
    if mine.item is None:
        return []
    inside = row_errors(mine, levels=(level,))[f"inside_{100 * level:g}"].astype(float)
    count = np.bincount(mine.item)
    share = np.bincount(mine.item, inside)[count >= least] / count[count >= least]
    return [round(float(x), 3) for x in np.quantile(share, (0.1, 0.9))]


def run(name: str, effort: str = "quick", seed: int = 0) -> Record:
    study, begun = SETS[name](), time.perf_counter()
    parts, roles, _, dated = study
    value, group = roles["value"], roles["group"]
    model = _fitted(study, parts.train, effort, seed)
    before = model.predict_distribution(parts.test)[value]
    model.calibrate(parts.validation)
    after, by = (model.predict_distribution(table)[value] for table in (parts.test, parts.validation))
    last, between = ((_years if dated else _itself)(table[group]) for table in (parts.test, parts.validation))
    told: Record = {"set": name, "effort": effort, "seed": seed, "rows": int(after.scored.sum())}
    told["before"] = covers((before, _weeks(parts.test[group]) if dated else last))
    told |= {"after": covers((after, last), by=(by, between)), "items_90": by_item(after)}
    if dated and len(np.unique(between)) == len(np.unique(last)) == 1:
        told["ways"] = ways = _ways(study, effort, seed)
        for k, one in enumerate(told["after"]):
            missed = np.sqrt(np.mean([(way[k] - one["level"]) ** 2 for way in ways.values()]))
            told["after"][k] = _line(one["level"], one["cover"], float(missed))
    if dated:
        told |= _halves(study, model)
    return told | {"seconds": round(time.perf_counter() - begun, 1)}


def _fitted(study: Study, train: pl.DataFrame, effort: str, seed: int) -> EFA:
    return EFA(**study.question, effort=effort, seed=seed).fit(train, **study.roles, progress=False)


def _ways(study: Study, effort: str, seed: int) -> dict[str, list[float]]:
    """Every year asked about, calibrated by every other, fitted to the rest: the covers of each."""
    whole, (value, group), found = pl.concat(study.split), (study.roles["value"], study.roles["group"]), {}
    year = pl.col(group).dt.year()
    years = whole[group].dt.year().unique().sort().to_list()
    for held in itertools.combinations(years, 2):
        model = _fitted(study, whole.filter(~year.is_in(held)), effort, seed)
        for by, asked in (held, held[::-1]):
            table = whole.filter(year == asked)
            law = model.calibrate(whole.filter(year == by)).predict_distribution(table)[value]
            found[f"{asked} by {by}"] = [one["cover"] for one in covers((law, _weeks(table[group])))]
    return found


def _halves(study: Study, model: EFA) -> Record:
    held, roles, parts = pl.concat(study.split[1:]), study.roles, list[Part]()
    for half in (0, 1):
        here = pl.Series(_weeks(held[roles["group"]]) % 2 == half)
        model.calibrate(_some(held, ~here, roles))
        mine = _some(held, here, roles)
        parts.append((model.predict_distribution(mine)[roles["value"]], _weeks(mine[roles["group"]])))
    return {"weeks": covers(*parts), "held": sum(int(law.scored.sum()) for law, _ in parts)}


def _weeks(days: pl.Series) -> np.ndarray:
    return np.asarray(days.cast(pl.Date).to_physical().to_numpy() // 7)


def _years(days: pl.Series) -> np.ndarray:
    return days.dt.year().to_numpy()


def _itself(names: pl.Series) -> np.ndarray:
    return names.to_numpy()


def _some(table: pl.DataFrame, rows: pl.Series, roles: dict[str, Any]) -> pl.DataFrame:
    """Some rows; with lags, all of them, of which the others are context only."""
    if "target" not in roles:
        return table.filter(rows)
    return table.with_columns(table[roles["target"]] & rows)


def markdown(records: Sequence[Record]) -> str:
    lines = ["| set | calibrated by | rows | 50 % | 80 % | 90 % | 95 % |", "|---" * 7 + "|"]
    for one in records:
        dated = "weeks" in one
        rows = [("before", "nothing", one["rows"]), ("after", "years between" if dated else "other users", one["rows"])]
        told = [
            (words, count, [f"{x['cover']:.1%} ± {x['error']:.1%}" for x in one[key]]) for key, words, count in rows
        ]
        if "ways" in one:
            each = np.array(list(one["ways"].values()))
            cells = [f"{mean:.1%} (sd {sd:.1%})" for mean, sd in zip(each.mean(0), each.std(0, ddof=1), strict=True)]
            told.append((f"one other year, {len(each)} ways", one["rows"], cells))
        if dated:
            cells = [f"{x['cover']:.1%} ± {x['error']:.1%}" for x in one["weeks"]]
            told.append(("other weeks", one["held"], cells))
        lines += [f"| {one['set']} | {words} | {count:,} | {' | '.join(cells)} |" for words, count, cells in told]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", choices=tuple(SETS), default=tuple(SETS))
    parser.add_argument("--effort", choices=("quick", "normal", "best"), default="quick")
    parser.add_argument("-o", "--output", type=Path, default=Path("results/covering.json"))
    asked = parser.parse_args(arguments)
    known = json.loads(asked.output.read_text())["runs"] if asked.output.exists() else []
    records = {record["set"]: record for record in known}
    for name in asked.sets:
        if name in records:
            continue
        records[name] = run(name, asked.effort)
        asked.output.parent.mkdir(parents=True, exist_ok=True)
        with storage.beside(asked.output) as part:
            lines = ",\n".join(f"  {json.dumps(records[one])}" for one in SETS if one in records)
            part.write_text(f'{{"version": "{efattn.__version__}",\n "runs": [\n{lines}]}}\n')
        sys.stdout.write(json.dumps(records[name]) + "\n")
    sys.stdout.write(markdown(list(records.values())) + "\n")


if __name__ == "__main__":
    main()
