"""How far predicted values are from those that came, and how often intervals hold them, in the table's units.

log_score    log p of all value columns of a row that are observed
mse, mae     (y - mean)^2, |y - median|
crps         the continuous ranked probability score
inside       at 0.5, 0.8, 0.9, 0.95: whether y lies in the middle interval that should hold it so often; of whole
             numbers it should as often as `promised`
pit          P(Y <= y), uniform if the laws are right
"""

from dataclasses import replace

import numpy as np

from efattn.data import Groups
from efattn.inference.fitted import Fitted
from efattn.inference.predict_distribution import columns_of, distributions
from efattn.inference.reliability import LEVELS, row_errors
from efattn.inference.score import term_scores


def value_errors(
    fitted: Fitted, groups: Groups, rows: int, member: int | None = None
) -> dict[tuple[str, str, float | None], np.ndarray]:
    """By (column, metric, interval): (row,) in the order of the groups, NaN where nothing is observed. groups: in the
    table's units; rows: of the table."""
    order = groups.every.row
    term = next(name for name in fitted.names if not fitted.members[0][name].of_items)
    scores = term_scores(fitted, term, groups, rows, member)
    log_score = np.where(scores.scored, scores.values, np.nan)
    found: dict[tuple[str, str, float | None], np.ndarray] = {(term, "log_score", None): log_score}
    parts = fitted.parts_of("value", "be evaluated", member)
    calibration = fitted.calibration if member is None else {}
    for name, law in distributions(fitted, parts, groups, rows, calibration).items():
        y = np.where(np.isnan(log_score), np.nan, law.observed)
        entries: dict[str, np.ndarray] = {}
        for column, mine in columns_of(fitted, name, law):
            one = law
            if fitted.wide is not None:
                one = replace(law[mine], calibration=calibration.get(column, law.calibration))
            for key, x in (row_errors(one, y[mine]) | {"median": one.median}).items():
                entries.setdefault(key, np.full(len(law), np.nan))[mine] = x
        found[name, "mse", None] = (y - law.mean) ** 2
        found[name, "mae", None] = np.abs(y - entries["median"])
        found[name, "crps", None] = entries["crps"]
        for p in LEVELS:
            found[name, "inside", p] = entries[f"inside_{100 * p:.12g}"]
            if law.stepped.any():
                found[name, "promised", p] = entries[f"promised_{100 * p:.12g}"]
        found[name, "pit", None] = entries["pit"]
    return {metric: x[order] for metric, x in found.items()}
