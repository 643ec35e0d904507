"""Imputers side by side on scikit-learn's bundled tables and on weather: cells are hidden, filled in, and compared.

    error     root mean square of (filled - true) / the column's spread, over hidden cells        rank  1 is the best
    MCAR      every cell with the same probability
    MAR       cells of all columns but the first, the more probable the larger the first column is
    MNAR      every cell, the more probable the larger it is itself
    stations  of weather: whole stations, which report nothing in the second half of the days

    python -m efattn.experiments.imputing --tables iris wine --rates 0.3 -o results/imputing.json

Each run is written when it is done; finished ones are kept in the file and skipped. Lots that ran elsewhere, each into
a file of its own, are put together by `--join lots/*.json`. Every imputer gets the table as it is; those that need
columns of one scale get them so. Nothing is tuned.
"""

import argparse
import itertools
import json
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import efattn
from efattn import storage

WEATHER = ("US cities", "NOAA")
TABLES = ("iris", "wine", "diabetes", "breast cancer", *WEATHER)
WAYS, RATES = ("MCAR", "MAR", "MNAR", "stations"), (0.1, 0.3, 0.5)
ROWS = 200  # of breast cancer, a random part
STATIONS = 40  # of NOAA, a random part
STEEP = 2.0  # how much more probable in standard deviations of what it hangs on
IMPUTERS = ("EFA", "iterative", "forest", "nearest", "mean")
LOT, DRAW = ("table", "way", "rate"), ("table", "way", "rate", "seed")  # of one kind; of the same cells
MARKS = "<!-- imputers -->", "<!-- /imputers -->"
Record = dict[str, Any]


def table(name: str) -> np.ndarray:
    """(row, column), complete."""
    if name in WEATHER:
        return _days(name)
    from sklearn import datasets

    load = {"iris": datasets.load_iris, "wine": datasets.load_wine, "diabetes": datasets.load_diabetes}
    x: np.ndarray = load.get(name, datasets.load_breast_cancer)().data
    if name == "breast cancer":
        x = x[np.random.default_rng(0).permutation(len(x))[:ROWS]]
    return x.astype(np.float64)


def _days(name: str) -> np.ndarray:
    """A row a day, a column a place: October temperatures of cities from 2017 on, or of stations."""
    import polars as pl

    from efattn import datasets

    if name == "NOAA":
        long = datasets.noaa_october().select("date", "station", "tmean")
        x = long.pivot("station", index="date", values="tmean").sort("date").drop("date").drop_nulls().to_numpy()
        return x[:, np.random.default_rng(0).permutation(x.shape[1])[:STATIONS]].astype(np.float64)
    day = pl.col("date").dt
    long = (
        datasets.us_cities("paper")
        .filter(day.month() == 10, day.year() >= 2017)
        .with_columns(place=pl.concat_str("city", "state", separator=", "))
    )
    return long.pivot("place", index="date", values="temperature").sort("date").drop("date").to_numpy()


def hidden(x: np.ndarray, way: str, rate: float, seed: int) -> np.ndarray:
    """(row, column): which cells are hidden; of no row all, and of no column all but two."""
    draw = np.random.default_rng([seed, WAYS.index(way), round(1000 * rate)])
    if way == "stations":
        gone = np.zeros(x.shape, bool)
        gone[len(x) // 2 :, draw.permutation(x.shape[1])[: min(round(2 * rate * x.shape[1]), x.shape[1] - 1)]] = True
        return gone
    z = (x - x.mean(0)) / x.std(0)
    if way == "MCAR":
        p = np.full(x.shape, rate)
    else:
        drive = z if way == "MNAR" else np.repeat(z[:, :1], x.shape[1], 1)
        share = rate if way == "MNAR" else rate * x.shape[1] / (x.shape[1] - 1)
        p = np.stack([_probability(column, min(share, 0.95)) for column in drive.T], 1)
    gone = draw.random(x.shape) < p
    if way == "MAR":
        gone[:, 0] = False
    gone[gone.all(1), draw.integers(x.shape[1])] = False
    gone[:2, (~gone).sum(0) < 2] = False
    return gone


def _probability(drive: np.ndarray, rate: float) -> np.ndarray:
    """Logistic in what it hangs on, of that mean."""
    low, high = -20.0, 20.0
    for _ in range(60):
        middle = (low + high) / 2
        mean = float(np.mean(1 / (1 + np.exp(-(STEEP * drive + middle)))))
        low, high = (middle, high) if mean < rate else (low, middle)
    return np.asarray(1 / (1 + np.exp(-(STEEP * drive + low))))


def _scaled(imputer: Any) -> Callable[[np.ndarray], np.ndarray]:
    def fill(x: np.ndarray) -> np.ndarray:
        centre, scale = np.nanmean(x, 0), np.nanstd(x, 0)
        scale = np.where(scale > 0, scale, 1.0)
        return np.asarray(imputer.fit_transform((x - centre) / scale) * scale + centre)

    return fill


def peer(name: str, seed: int) -> Callable[[np.ndarray], np.ndarray]:
    from sklearn.ensemble import RandomForestRegressor
    from sklearn.experimental import enable_iterative_imputer  # noqa: F401
    from sklearn.impute import IterativeImputer, KNNImputer, SimpleImputer

    if name == "iterative":
        return _scaled(IterativeImputer(max_iter=20, random_state=seed))
    if name == "forest":  # as MissForest: forests in turn, columns with fewest holes first
        forest = RandomForestRegressor(100, max_features="sqrt", n_jobs=1, random_state=seed)
        return _scaled(IterativeImputer(forest, max_iter=5, random_state=seed))
    return _scaled(KNNImputer(n_neighbors=10) if name == "nearest" else SimpleImputer())


def run(name: str, way: str, rate: float, seed: int, imputer: str) -> Record:
    """One imputer on one table with one lot of hidden cells."""
    x = table(name)
    gone = hidden(x, way, rate, seed)
    seen = np.where(gone, np.nan, x)
    begun, more = time.perf_counter(), dict[str, Any]()
    if imputer == "EFA":
        model = efattn.EFAImputer(seed=seed).fit(seen)
        filled = model.transform(seen)
        more = _intervals(model, seen, x, gone)
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that it has not converged
            filled = peer(imputer, seed)(seen)
    seconds = time.perf_counter() - begun
    error = float(np.sqrt(np.mean((((filled - x) / x.std(0))[gone]) ** 2)))
    about = {"table": name, "way": way, "rate": rate, "seed": seed, "imputer": imputer}
    return {**about, "error": error, "cells": int(gone.sum()), "seconds": round(seconds, 2), **more}


def _intervals(model: Any, seen: np.ndarray, x: np.ndarray, gone: np.ndarray) -> dict[str, Any]:
    """How many of the hidden values lie in intervals of 90 %, and the CRPS in units of each column's spread."""
    columns = {f"x{k}": column for k, column in enumerate(seen.T)}
    told = model.model_.impute(columns, interval=0.9)
    low, high = (np.stack([told[f"{name}_{end}"].to_numpy() for name in columns], 1) for end in ("lower", "upper"))
    laws = model.model_.predict_distribution(columns)
    crps = np.stack([laws[name].crps(x[:, k]) for k, name in enumerate(columns)], 1) / x.std(0)
    return {"cover": float(((x >= low) & (x <= high))[gone].mean()), "crps": float(crps[gone].mean())}


def by(records: Sequence[Record], keys: Sequence[str]) -> dict[tuple[Any, ...], list[Record]]:
    found = dict[tuple[Any, ...], list[Record]]()
    for record in records:
        found.setdefault(tuple(record[key] for key in keys), []).append(record)
    return found


def ranked(records: Sequence[Record]) -> list[Record]:
    """With the rank of each among those of the same cells, ties shared, and its error relative to the best of them."""
    for several in by(records, DRAW).values():
        errors = np.array([record["error"] for record in several])
        for record in several:
            mine = record["error"]
            record["rank"] = float(1 + (errors < mine).sum() + ((errors == mine).sum() - 1) / 2)
            record |= {"of": len(several), "ratio": float(mine / errors.min())}
    return list(records)


def _names(records: Sequence[Record]) -> list[str]:
    """Those of imputers that have run."""
    return [name for name in IMPUTERS if any(record["imputer"] == name for record in records)]


def summary(records: Sequence[Record]) -> list[Record]:
    """By imputer, over cells that all have filled: mean rank, error relative to the best of each, seconds. Draws of one
    kind of lot count as one, however many there are."""
    names, found = _names(records), list[Record]()
    whole = [record for record in ranked(records) if record["of"] == len(names)]
    for name in names:
        lots = by([record for record in whole if record["imputer"] == name], LOT).values()
        if not lots:
            continue
        told = {"imputer": name, "lots": len(lots), "draws": sum(map(len, lots))}
        for key in ("rank", "error", "ratio", "seconds", "cover"):
            if all(key in record for lot in lots for record in lot):
                told[key] = float(np.mean([_mean(lot, key) for lot in lots]))
        found.append(told)
    return sorted(found, key=lambda one: one["rank"])


def _mean(records: Sequence[Record], key: str) -> float:
    return float(np.mean([record[key] for record in records]))


def markdown(records: Sequence[Record]) -> str:
    """A line for each kind of lot, means over draws: an error for each imputer, the best in bold; of EFA also cover and
    CRPS."""
    names = _names(records)
    lines = [f"| table | hidden | rate | draws | {' | '.join(names)} | cover | CRPS |", "|---" * (len(names) + 6) + "|"]
    for (name, way, rate), lot in sorted(by(records, LOT).items(), key=lambda one: _place(one[1][0])):
        mine = by(lot, ("imputer",))
        told = [f"{_mean(mine[one,], 'error'):.3f}" if (one,) in mine else "" for one in names]
        best = min(filter(None, told))
        told = [f"**{word}**" if word == best else word for word in told]
        ours, draws = mine.get(("EFA",), []), len(by(lot, DRAW))
        ends = (f"{_mean(ours, 'cover'):.2f}", f"{_mean(ours, 'crps'):.3f}") if ours else ("", "")
        lines.append(f"| {' | '.join([name, way, f'{rate:.0%}', str(draws), *told, *ends])} |")
    return "\n".join(lines)


def words(records: Sequence[Record]) -> str:
    """What the table says in all."""
    whole = summary(records)
    ranks, ratios = (", ".join(f"{one[key]:.2f} ({one['imputer']})" for one in whole) for key in ("rank", "ratio"))
    told = [f"Mean ranks over {whole[0]['lots']} lots: {ranks}. Errors in units of the best of each draw: {ratios}."]
    ours = by([record for record in records if "cover" in record], LOT)
    for name, only in (("Intervals of 90 % hold", False), ("where cells are hidden for what they hold (MNAR),", True)):
        covers = [_mean(lot, "cover") for key, lot in ours.items() if (key[1] == "MNAR") == only]
        if covers:
            told.append(f"{name} {min(covers):.0%} to {max(covers):.0%} of the cells, {np.mean(covers):.1%} on average")
    rest = "; ".join(told[1:])
    return f"{told[0]} {rest[:1].upper()}{rest[1:]}." if rest else told[0]


def rewrite(page: Path, records: Sequence[Record]) -> None:
    """Table and words between the two marks of a page."""
    before, rest = page.read_text().split(MARKS[0])
    told = f"{MARKS[0]}\n{markdown(records)}\n\n{words(records)}\n{MARKS[1]}"
    page.write_text(before + told + rest.split(MARKS[1])[1])


def _place(record: Record) -> tuple[Any, ...]:
    lists: tuple[tuple[str, Sequence[str]], ...] = (("table", TABLES), ("way", WAYS), ("imputer", IMPUTERS))
    table, way, imputer = (names.index(record[key]) for key, names in lists)
    return table, way, record["rate"], record["seed"], imputer


def write(path: Path, records: Sequence[Record]) -> None:
    """A line a run, and what they say together."""
    lines = ",\n".join(f"  {json.dumps(record)}" for record in ranked(records))
    together = ",\n".join(f"  {json.dumps(one)}" for one in summary(records))
    path.parent.mkdir(parents=True, exist_ok=True)
    with storage.beside(path) as part:
        part.write_text(f'{{"version": "{efattn.__version__}",\n "summary": [\n{together}],\n "runs": [\n{lines}]}}\n')


def read(path: Path) -> list[Record]:
    runs: list[Record] = json.loads(path.read_text())["runs"]
    return runs


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", nargs="+", choices=TABLES, default=TABLES)
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS)
    parser.add_argument("--rates", nargs="+", type=float, default=RATES)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0], help="each draws other cells")
    parser.add_argument("--imputers", nargs="+", choices=IMPUTERS, default=IMPUTERS)
    parser.add_argument("--join", nargs="+", type=Path, default=[], help="files of other runs; nothing else is run")
    parser.add_argument("--page", type=Path, help="a page whose table is written anew, as docs/imputation.md")
    parser.add_argument("-o", "--output", type=Path, default=Path("results/imputing.json"))
    asked = parser.parse_args(arguments)
    keys = (*DRAW, "imputer")
    known = [*asked.join, *([asked.output] if asked.output.exists() else [])]
    done = {tuple(one[key] for key in keys): one for path in known for one in read(path)}
    lots = itertools.product(asked.tables, asked.ways, asked.rates, asked.seeds, asked.imputers)
    for key in () if asked.join else lots:
        if key not in done and (key[1] != "stations" or key[0] in WEATHER):
            done[key] = run(*key)
            write(asked.output, sorted(done.values(), key=_place))
            sys.stdout.write("  ".join(str(done[key][name]) for name in (*keys, "error", "seconds")) + "\n")
            sys.stdout.flush()
    records = sorted(done.values(), key=_place)
    write(asked.output, records)
    if asked.page:
        rewrite(asked.page, records)
    sys.stdout.write(f"{markdown(records)}\n\n{words(records)}\n")


if __name__ == "__main__":
    main()
