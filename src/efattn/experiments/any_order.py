"""A model of any order beside one that is always given all others, on the same questions, networks alone.

    all others     each held-out row given all others of its group
    30 %, 70 %     values: that share of the rows is hidden, and each hidden value is asked for given the rest;
                   items: one item given 70 %, 30 % of the others, at least one

    python -m efattn.experiments.any_order --tables stations ratings baskets -o results/any_order.json

Scores are mean log-probabilities of what is asked for, in the table's units; rows are those of training sets, a part of
whose groups is held out. Finished runs are kept in the file and skipped. Nothing is tuned.
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from efattn import EFA, Training, datasets, storage
from efattn.errors import DataError

HIDDEN = (0.3, 0.7)
CONTEXTS = ("others", "any")
Record = dict[str, Any]


class Study(NamedTuple):
    train: pl.DataFrame
    test: pl.DataFrame
    roles: dict[str, Any]
    family: str = "auto"


def study(name: str) -> Study:
    if name == "stations":
        table = datasets.noaa_october().filter(pl.col("date").dt.year() < 1993)
        days = table["date"].unique().sort()
        last = pl.col("date").is_in(days[-20:].implode())
        roles = {"group": "date", "item": "station", "value": "tmean", "attributes": ["latitude", "longitude"]}
        return Study(table.filter(~last), table.filter(last), roles, "gaussian")
    if name == "ratings":
        return _parts(datasets.movielens_ratings(), {"group": "user", "item": "movie", "value": "rating"}, 500, 150)
    if name == "baskets":
        return _parts(datasets.instacart(), {"group": "basket", "item": "item"}, 6000, 1000)
    raise DataError(f"There is no table {name!r} here: stations, ratings, baskets.")


def _parts(table: pl.DataFrame, roles: dict[str, Any], train: int, test: int) -> Study:
    name = roles["group"]
    groups = np.random.default_rng(0).permutation(table[name].unique().sort().to_numpy())
    first, second = groups[:train].tolist(), groups[train : train + test].tolist()
    return Study(table.filter(pl.col(name).is_in(first)), table.filter(pl.col(name).is_in(second)), roles)


def values_asked(model: EFA, test: pl.DataFrame, value: str, share: float) -> tuple[float, float]:
    """Mean log score, mean squared error."""
    hide = np.ones(len(test), bool) if not share else np.random.default_rng(1).random(len(test)) < share
    asked = test if not share else test.with_columns(pl.when(pl.Series(~hide)).then(value).alias(value))
    laws, true = model.predict_distribution(asked), test[value].to_numpy()
    error = np.asarray(laws.mean)[hide] - true[hide]
    return float(laws.log_score(true)[hide].mean()), float((error**2).mean())


def items_asked(model: EFA, test: pl.DataFrame, group: str, share: float) -> float:
    """Mean log score of one item of each group of two or more, the first in a random order."""
    draw = np.random.default_rng(1)
    table = test.with_columns(at=pl.Series(draw.random(len(test)))).sort(group, "at").drop("at")
    if not share:
        return float(model.score(table))
    place, number = pl.int_range(pl.len()).over(group), pl.len().over(group)
    seen = ((1 - share) * (number - 1)).ceil().clip(1)
    table = table.filter((number > 1) & (place <= seen))
    scores = model.log_likelihood(table)["item_log_likelihood"].to_numpy()
    return float(scores[table.select(place == 0).to_series().to_numpy()].mean())


def run(name: str, context: str, steps: int | None) -> Record:
    one = study(name)
    value, terms = one.roles.get("value"), "value" if "value" in one.roles else "item"
    how: dict[str, Any] = {"context": context, "family": one.family, "terms": terms, "training": Training(steps=steps)}
    start = time.monotonic()
    model = EFA(companions=None, refit=False, **how).fit(one.train, **one.roles, validation=0.15, progress=False)
    record: Record = {"table": name, "context": context, "steps": steps, "seconds": round(time.monotonic() - start, 1)}
    for share in (0.0, *HIDDEN):
        words = f"{share:.0%} hidden" if share else "all others"
        if value is not None:
            score, error = values_asked(model, one.test, value, share)
            record[words] = {"log_score": score, "error": error}
        else:
            record[words] = {"log_score": items_asked(model, one.test, one.roles["group"], share)}
    if context == "any":
        told = model.joint_log_density(one.test, orders=8)
        rows = told[f"{value or 'item'}_targets"].sum()
        record["joint"] = {
            "log_density_per_row": told["log_density"].sum() / rows,
            "orders_mean_per_row": told[f"{value or 'item'}_orders_mean"].sum() / rows,
            "orders_sd": told[f"{value or 'item'}_orders_sd"].mean(),
        }
    return record


def table(records: Sequence[Record]) -> str:
    """The records as Markdown: log scores, and errors of values behind them."""
    lines = ["| groups | question | others | any |", "|---|---|---|---|"]
    for name in dict.fromkeys(one["table"] for one in records):
        mine = {one["context"]: one for one in records if one["table"] == name}
        for question in ("all others", *(f"{share:.0%} hidden" for share in HIDDEN)):
            lines.append(f"| {name} | {question} | " + " | ".join(_cell(mine[x][question]) for x in CONTEXTS) + " |")
    return "\n".join(lines)


def _cell(found: Record) -> str:
    return f"{found['log_score']:.3f}" + (f" ({found['error']:.3f})" if "error" in found else "")


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--tables", nargs="*", default=["stations", "ratings", "baskets"])
    parser.add_argument("--steps", type=int, default=None)
    parser.add_argument("-o", "--output", type=Path, default=Path("results/any_order.json"))
    asked = parser.parse_args(words)
    known: list[Record] = json.loads(asked.output.read_text())["records"] if asked.output.exists() else []
    for name in asked.tables:
        for context in CONTEXTS:
            if not any((one["table"], one["context"]) == (name, context) for one in known):
                known.append(run(name, context, asked.steps))
                with storage.beside(asked.output) as part:
                    part.write_text(json.dumps({"records": known}, indent=1) + "\n")
    for one in known:
        sys.stdout.write(json.dumps(one) + "\n")


if __name__ == "__main__":
    main()
