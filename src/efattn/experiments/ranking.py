"""Recommenders, measured by `evaluate`: where the item that came stands in the whole catalogue, nothing sampled.

value      1 - NDCG of lists of k items, by user: a loss, as all others are
lists      recall, NDCG, MRR, coverage, novelty, mass and excess at each length, with standard errors over users
"""

from typing import Any

import numpy as np
import polars as pl

from efattn.experiments.records import Record
from efattn.experiments.settings import Setting

LENGTHS = (1, 5, 10, 20)
DIGITS = 6
FEW = 3  # digits of a user's log-likelihood: thousands of users make up for them


def tested(setting: Setting, estimator: Any, rows: pl.DataFrame) -> Record:
    """What a record keeps: the loss and the log-likelihood overall and by user, and every number about lists. An item
    that is not in training is missed by lists, and has no log-likelihood."""
    k = setting.metric.lists
    assert k is not None
    found = estimator.evaluate(rows, k=sorted({*LENGTHS, k}))
    users = pl.DataFrame(found.by_group)
    loss, likely = 1 - users[f"ndcg@{k}"].to_numpy(), users["log_score"].fill_null(np.nan).to_numpy()
    overall = found.mean("log_score")
    likely = np.where(np.isnan(likely), overall, likely)
    lists = {
        name: [float(f"{x:.{DIGITS}g}") for x in (line.mean, line.error) if x is not None]
        for line in found.lines
        if line.part == "all" and (name := _named(line.metric, line.k))
    }
    told = {name: found.about[name] for name in ("predicted", "items", "unknown", "ties", "repeats", "seen")}
    return {
        "metric": setting.metric.name,
        "value": float(np.average(loss, weights=users["predicted"].to_numpy())),
        "log_likelihood": overall,
        "rows": int(users["predicted"].sum()),
        "lists": {**told, **lists},
        "groups": {
            "names": [str(name) for name in users[setting.roles["group"]]],
            "rows": users["predicted"].to_list(),
            "value": [float(f"{x:.{DIGITS}g}") for x in loss],
            "log_likelihood": [float(f"{x:.{FEW}g}") for x in likely],
        },
    }


def _named(metric: str, k: float | None) -> str:
    return metric if k is None else f"{metric}@{k:g}"
