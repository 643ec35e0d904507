"""How far predicted values are from those that came, and how often intervals hold them, in the table's units.

log_score    log p of all value columns of a row that are observed
mse, mae     (y - mean)^2, |y - median|
inside       at 0.5, 0.8, 0.9: whether y lies in the middle interval that should hold it so often; of whole numbers it
             should more often
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from efattn.data import Groups
from efattn.families import Product
from efattn.inference import mixture
from efattn.inference.fitted import Fitted
from efattn.inference.predict import in_units
from efattn.inference.score import put, term_scores

INTERVALS = (0.5, 0.8, 0.9)


@torch.no_grad()
def value_errors(
    fitted: Fitted, groups: Groups, rows: int, member: int | None = None
) -> dict[tuple[str, str, float | None], np.ndarray]:
    """By (column, metric, interval): (row,) in the order of the groups, NaN where nothing is observed. groups: in the
    table's units; rows: of the table."""
    names, every = fitted.schema.roles.of("value"), groups.every
    assert every.value is not None
    term = next(name for name in fitted.names if not fitted.members[0][name].of_items)
    scores = term_scores(fitted, term, groups, rows, member)
    log_score = np.where(scores.scored, scores.values, np.nan)[every.row]
    found: dict[tuple[str, str, float | None], np.ndarray] = {(term, "log_score", None): log_score}
    told = _told(fitted, groups, rows, member)
    for c, name in enumerate(names):
        y, mine = every.value[:, c], {key: x[every.row, c] for key, x in told.items()}
        found[name, "mse", None] = (y - mine["mean"]) ** 2
        found[name, "mae", None] = np.abs(y - mine[0.5])
        for p in INTERVALS:
            inside = (mine[(1 - p) / 2] <= y) & (y <= mine[(1 + p) / 2])
            found[name, "inside", p] = np.where(np.isnan(y), np.nan, inside)
    return {key: np.where(np.isnan(log_score), np.nan, x) for key, x in found.items()}


def _told(fitted: Fitted, groups: Groups, rows: int, member: int | None) -> Mapping[Any, np.ndarray]:
    """(row, column), in the order of the table: "mean", and every quantile that is needed, by its probability."""
    parts = fitted.parts_of("value", "be evaluated", member)
    family = parts[0].model.family
    assert isinstance(family, Product)
    levels = sorted({0.5, *((1 + sign * p) / 2 for p in INTERVALS for sign in (-1, 1))})
    found = {key: np.full((rows, family.columns), np.nan) for key in ("mean", *levels)}
    for batch in fitted.batches(fitted.schema.standardise(groups), parts[0].model):
        members, shares = [part.outputs(batch).double() for part in parts], mixture.shares(parts, batch)
        item = None if batch.item is None else batch.item[:, : batch.length].numpy()
        answers: dict[Any, Any] = {"mean": mixture.mean(family, members, shares)}
        answers |= {level: mixture.quantile(family, members, shares, level) for level in levels}
        for key, values in answers.items():
            plain = in_units(fitted, values.numpy(), item, spread=False)
            put(found[key], batch, torch.from_numpy(np.ascontiguousarray(plain)))
    return found
