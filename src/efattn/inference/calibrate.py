"""Intervals and quantiles that hold what they promise, by groups that neither fit nor refit has seen.

Means, densities and scores stay as they were: what changes is at which level of its own law a quantile is read off.
Each value column has a map of its own, and each column of a wide table.
"""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from efattn.data import Groups, Table
from efattn.data.fingerprints import fingerprints
from efattn.errors import DataError, Note, counted
from efattn.inference.calibration import Calibration
from efattn.inference.fitted import Fitted
from efattn.inference.predict_distribution import columns_of, distributions
from efattn.inference.tables import Tell, announce, encoded

SAME = 0.5  # the share of rows from which on they are those of the fit, and not others that are alike
FEWEST, ENOUGH = 5, 19  # groups; with as many of one row each, a 90 % interval has an end of its own on both sides


def calibrate(fitted: Fitted, tables: Iterable[Table], *, seed: int = 0, tell: Tell = announce) -> Fitted:
    """The same model with adjusted levels for each value column. seed: of the draws by which whole numbers get a place
    within their probability."""
    plain, first = replace(fitted, calibration={}), 0
    parts = plain.parts_of("value", "be calibrated")
    names = fitted.schema.roles.of("value") if fitted.wide is None else fitted.wide.names
    found: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {name: [] for name in names}
    for table, groups in encoded(fitted, tables, tell, need=("value",), items=False):
        new = _not_seen(fitted, groups, tell)
        place = _in_turn(groups)
        for name, law in distributions(plain, parts, groups, len(table)).items():
            mine = law[law.scored & new[law.group]]
            pit, group = mine.pit(seed=seed), place[mine.group] + first
            for key, rows in columns_of(fitted, name, mine):
                found[key].append((pit[rows], group[rows]))
        first += len(groups)
    calibration = {}
    for name, pieces in found.items():
        pit, group = (np.concatenate([piece[k] for piece in pieces] or [np.zeros(0)]) for k in (0, 1))
        few = len(np.unique(group)) < FEWEST
        if few and fitted.wide is not None:
            told = f"{name!r} has fewer than {FEWEST} values to be calibrated by, and stays as it is."
            tell(Note("few groups", told, column=name))
        else:
            calibration[name] = _fitted(name, pit, group, tell)
    if not calibration:
        raise DataError(f"Calibrating takes at least {FEWEST} rows with values; no column of this table has so many.")
    return replace(fitted, calibration=calibration)


def _fitted(name: str, pit: np.ndarray, group: np.ndarray, tell: Tell) -> Calibration:
    count = len(np.unique(group))
    if count < FEWEST:
        raise DataError(
            f"Calibrating {name!r} takes at least {FEWEST} groups with values; found {count}. Rows of one group say "
            "little about another.",
            column=name,
        )
    if count < ENOUGH:
        said = f"{name!r} is calibrated by {count} groups only: what they say about other groups is rough."
        tell(Note("few groups", said, column=name))
    return Calibration.fit(pit, group)


def _in_turn(groups: Groups) -> np.ndarray:
    """(group,): where each stands in its series, one series after the other; without times, among the names."""
    order = groups.labels.order()
    if groups.time is not None and groups.series is not None:
        order = np.lexsort((groups.time, groups.series))
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    return place


def _not_seen(fitted: Fitted, groups: Groups, tell: Tell) -> np.ndarray:
    """(group,): those that the fit has not seen, which are all, or it is refused. Rows of a wide table that have no
    names are known by what they hold, and two may hold the same: a few such are left out."""
    if fitted.seen is None:
        raise DataError("This file does not say which groups its model was fitted to: fit again, and calibrate that.")
    known = np.isin(fingerprints(groups), fitted.seen)
    nameless = fitted.wide is not None and fitted.wide.id is None
    if nameless and 0 < known.sum() < SAME * len(groups):
        told = f"{counted(int(known.sum()), 'row')} of {len(groups):,} hold what a row of the fit holds: left out."
        tell(Note("same rows", told))
    elif known.any():
        number = int(groups.numbers[np.flatnonzero(known)[0]])
        which = groups.group_label(number) or "the one group of this table"
        raise DataError(
            f"{int(known.sum()):,} of {len(groups):,} groups were there when this model was fitted, {which} first: "
            "calibrate with groups that it has not seen. If they are others of the same names, rename them."
        )
    return ~known
