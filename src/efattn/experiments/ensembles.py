"""One model beside ensembles of two, three and five members, on US cities with the paper's years.

python -m efattn.experiments.ensembles [JOBS]      writes results/ensembles/us-cities.json and prints its table
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from efattn import EFA, Training, __version__, datasets

RESULTS = Path("results/ensembles/us-cities.json")
ROLES: dict[str, Any] = {
    "group": "date",
    "item": ["city", "state"],
    "attributes": ["latitude", "longitude"],
    "value": "temperature",
}
MEMBERS = 5


def run(jobs: int = 1) -> dict[str, Any]:
    """Fit all members once; an ensemble of the first two or three is a part of it."""
    table = datasets.us_cities("paper").filter(pl.col("date").dt.month() == 10)
    year = pl.col("date").dt.year()
    train, held, test = (table.filter(year.is_between(*years)) for years in ((2007, 2012), (2013, 2016), (2017, 2019)))
    model = EFA(terms="value", ensemble=MEMBERS, training=Training(jobs=jobs))
    start = time.perf_counter()
    model.fit(train, **ROLES, validation=held)
    seconds = time.perf_counter() - start
    members, found = model.members_, {"study": "us-cities", "version": __version__, "jobs": jobs, "seconds": seconds}
    found["alone"] = [measures(model, test, member) for member in range(MEMBERS)]
    for number in (2, 3, MEMBERS):
        model.members_ = members[:number]
        found[str(number)] = measures(model, test)
    return found


def measures(model: EFA, test: pl.DataFrame, member: int | None = None) -> dict[str, float]:
    predicted = model.predict(test, member=member)
    actual, mean, low, high = (predicted[f"temperature{x}"].to_numpy() for x in ("", "_mean", "_lower", "_upper"))
    inside = float(((low <= actual) & (actual <= high)).mean())
    likelihood = model.score(test, member=member)
    return {"mse": float(((actual - mean) ** 2).mean()), "log_likelihood": likelihood, "inside": inside}


def table(found: dict[str, Any]) -> str:
    lines = ["| | test MSE | log-likelihood per row | in the 90% interval |", "|---|---|---|---|"]
    alone = {name: np.array([one[name] for one in found["alone"]]) for name in found["alone"][0]}
    mean, sd = ({name: f(x) for name, x in alone.items()} for f in (np.mean, lambda x: np.std(x, ddof=1)))
    lines.append(
        f"| one model ({MEMBERS} seeds: mean and sd) | {mean['mse']:.2f} ± {sd['mse']:.2f} "
        f"| {mean['log_likelihood']:.3f} ± {sd['log_likelihood']:.3f} | {mean['inside']:.1%} |"
    )
    for number in ("2", "3", str(MEMBERS)):
        mixed = found[number]
        lines.append(
            f"| {number} members | {mixed['mse']:.2f} | {mixed['log_likelihood']:.3f} | {mixed['inside']:.1%} |"
        )
    return "\n".join(lines)


def main() -> None:
    found = run(*map(int, sys.argv[1:2]))
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    RESULTS.write_text(json.dumps(found, indent=1) + "\n")
    sys.stdout.write(table(found) + "\n")


if __name__ == "__main__":
    main()
