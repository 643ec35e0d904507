"""EFA with nothing tuned, on every data set, beside latent factors and the marginal fit.

    python -m efattn.experiments.defaults     runs what is not in results/defaults yet, then writes docs/defaults.md

Each run fits on the training groups with only the column roles given and scores the test groups: mean log-likelihood
per row, in nats, in the table's units, nothing dropped. The test groups are split off before anything is fitted.
"""

import argparse
import json
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from efattn import __version__, datasets, storage
from efattn.errors import DataError
from efattn.estimators import EFA, LatentFactor

log = logging.getLogger("efattn")
Parts = tuple[pl.DataFrame, pl.DataFrame]


@dataclass(frozen=True)
class Study:
    """A data set in training and test rows, its column roles, and what is not an option but part of the question."""

    name: str
    load: Callable[[], Parts]
    roles: dict[str, Any]
    question: dict[str, Any]
    latent: dict[str, Any]


def by_group(frame: pl.DataFrame, group: str) -> Parts:
    """A quarter of the groups, drawn with seed 0, to test."""
    names = frame[group].unique(maintain_order=True)
    held = names.gather(np.random.default_rng(0).permutation(len(names))[: len(names) // 4])
    test = pl.col(group).is_in(held.implode())
    return frame.filter(~test), frame.filter(test)


def by_year(frame: pl.DataFrame, year: int) -> Parts:
    return frame.filter(pl.col("date").dt.year() < year), frame.filter(pl.col("date").dt.year() >= year)


def october(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.filter(pl.col("date").dt.month() == 10)


MOVIES = {"group": "user", "item": "movie", "value": "rating"}
BASKETS = {"group": "basket", "item": "product", "order": "rank"}
RATED = {"group": "user", "item": "movie", "value": "rating", "order": "position"}
CITIES = {"group": "date", "item": ["city", "state"], "attributes": ["latitude", "longitude"], "value": "temperature"}
STATIONS = {"group": "date", "item": "station", "attributes": ["latitude", "longitude"], "value": "tmean"}
PAST, OTHERS, VALUES = {"context": "past"}, {"context": "others"}, {"context": "others", "terms": "value"}
NEAREST = {"neighbours": 5, "standardise": "item"}  # the paper's best number of neighbours


def _synthetic() -> Parts:
    frame = datasets.synthetic_ratings()
    return frame.filter(pl.col("user") <= 7500), frame.filter(pl.col("user") > 7500)


def _instacart() -> Parts:
    return datasets.instacart("train"), datasets.instacart("test")


def _cities() -> pl.DataFrame:
    return datasets.us_cities("paper")


STUDIES = (
    Study("synthetic, past", _synthetic, RATED, {**PAST, "terms": "value"}, {}),
    Study("synthetic, others", _synthetic, RATED, VALUES, {}),
    Study(
        "movielens-100k, past",
        lambda: by_group(datasets.movielens_100k(), "user"),
        {**MOVIES, "order": "timestamp"},
        PAST,
        {},
    ),
    Study("movielens-100k, others", lambda: by_group(datasets.movielens_100k(), "user"), MOVIES, OTHERS, {}),
    Study("instacart, past", _instacart, BASKETS, PAST, {}),
    Study("instacart, others", _instacart, BASKETS, OTHERS, {}),
    Study("us-cities", lambda: by_year(october(_cities()), 2017), CITIES, VALUES, NEAREST),
    Study(
        "us-cities, one day of lag",
        lambda: by_year(_cities(), 2017),
        {**CITIES, "time": "date"},
        {**VALUES, "lags": 1},
        NEAREST,
    ),
    Study("noaa-october", lambda: by_year(datasets.noaa_october(), 1993), STATIONS, VALUES, NEAREST),
)


def run(study: Study, model: str, seed: int) -> dict[str, Any]:
    """Fit, score, and say how long it took."""
    train, test = study.load()
    if model == "EFA":
        roles, estimator = study.roles, EFA(**study.question, seed=seed)
    else:  # which knows no lags
        roles = {role: name for role, name in study.roles.items() if role != "time"}
        question = {name: x for name, x in study.question.items() if name != "lags"}
        estimator = LatentFactor(**question, **study.latent, seed=seed)
    start = time.perf_counter()
    estimator.fit(train, **roles)
    seconds = time.perf_counter() - start
    found = estimator.scores(test)
    epochs = {name: sum(r["term"] == name for r in estimator.history_) for name in estimator.model_.terms}
    record = {"study": study.name, "model": model, "seed": seed, "version": __version__, "seconds": seconds}
    record |= {
        "epochs": epochs,
        "family": repr(estimator.family_),
        "error": mean_squared_error(estimator, test),
        **found,
    }
    return record


def mean_squared_error(estimator: Any, test: pl.DataFrame) -> float | None:
    """Of the predicted means, where there are values."""
    if estimator.family_ is None:
        return None
    (value,) = estimator.schema_.roles.of("value")
    told = estimator.predict(test, interval=None)
    return float(((told[f"{value}_mean"] - told[value]) ** 2).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description="EFA with nothing tuned, on every data set.")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--only", default="", help="studies whose name contains this")
    parser.add_argument("--results", type=Path, default=Path("results/defaults"))
    parser.add_argument("--page", type=Path, default=Path("docs/defaults.md"))
    asked = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    asked.results.mkdir(parents=True, exist_ok=True)
    for seed in range(asked.seeds):
        for study in (s for s in STUDIES if asked.only in s.name):
            for model in ("latent factors", "EFA"):
                path = (
                    asked.results
                    / f"{study.name.replace(', ', '-').replace(' ', '-')}-{model.replace(' ', '-')}-{seed}.json"
                )
                if not path.exists():
                    try:
                        record = run(study, model, seed)
                    except DataError as error:
                        log.error("%s: %s", study.name, error)
                        continue
                    with storage.beside(path) as part:
                        part.write_text(json.dumps(record, indent=1) + "\n")
                    log.info(
                        "%-28s %-15s %9.4f %8.1f s", study.name, model, record["mean_log_likelihood"], record["seconds"]
                    )
    records = [json.loads(path.read_text()) for path in sorted(asked.results.glob("*.json"))]
    with storage.beside(asked.page) as part:
        part.write_text(page(records))


def page(records: list[dict[str, Any]]) -> str:
    """The results as a page of Markdown."""
    lines = ["| data set, context | latent factors | EFA | difference | seconds (EFA) |", "|---|---|---|---|---|"]
    for study in STUDIES:
        cells = {
            m: [r for r in records if r["study"] == study.name and r["model"] == m] for m in ("latent factors", "EFA")
        }
        if not all(cells.values()):
            continue
        fm, efa = ([r["mean_log_likelihood"] for r in cells[m]] for m in ("latent factors", "EFA"))
        took = np.mean([r["seconds"] for r in cells["EFA"]])
        lines.append(
            f"| {study.name} | {_spread(fm)} | {_spread(efa)} | {np.mean(efa) - np.mean(fm):+.3f} | {took:.0f} |"
        )
    return HEAD + "\n".join(lines) + "\n"


def _spread(values: list[float]) -> str:
    spread = f" ± {np.std(values, ddof=1):.3f}" if len(values) > 1 else ""
    return f"{np.mean(values):.3f}{spread}"


HEAD = """# Nothing tuned

Test log-likelihood per row (nats, full, in the table's units; higher is better) of `EFA()` and `LatentFactor()` with
only the column roles given, and for cities and stations the paper's five nearest neighbours for the latter. A row's
score is the sum of its terms: with an item and a value column, both. Written by
`python -m efattn.experiments.defaults` from the files in `results/defaults`, which have seeds, seconds, epochs and mean
squared errors.

"""


if __name__ == "__main__":
    main()
