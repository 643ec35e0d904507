"""Folds for cross-validation that never part a group: the rows of one group see each other, so row folds leak.

Where there is one group only, its rows are held out: gone from what is trained on, context included.
"""

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np

from efattn.data.groups import Groups
from efattn.data.keys import distinct
from efattn.data.table import Table
from efattn.errors import DataError, counted, option

Parts = tuple[Groups, Groups]  # what is trained on, what is held out


def group_folds(
    source: Any, group: str | Sequence[str] | None = None, folds: int = 5, seed: int | None = 0
) -> list[tuple[np.ndarray, np.ndarray]]:
    """(train rows, test rows) for each fold, as scikit-learn's `cv=` takes them.

    `GridSearchCV(model, grid, cv=group_folds(table, "user"))`. Each group is in the test rows of one fold, which does
    not depend on the order of the table. seed=None: groups in the order of the table instead of at random.
    """
    if isinstance(source, Groups):
        row, number, count = source.rows, source.group, len(source)
    else:
        table = Table.read(source)
        names = [group] if isinstance(group, str) else list(group or ())
        if not names:
            raise DataError("group_folds needs the group column: group_folds(table, 'user').", option="group")
        number, labels = distinct(table.columns(names, "group"), "group", len(table), sort=seed is not None)
        if (number < 0).any():
            at = int(np.flatnonzero(number < 0)[0])
            raise DataError(
                f"The role group allows no nulls; column {names[0]!r} is null at row {at}. Fill it in or drop the row.",
                column=names[0],
                row=at,
            )
        row, count = np.arange(len(table)), len(labels)
    if not 2 <= folds <= count:
        said = f"{counted(count, 'group')} cannot make {folds} folds. Pass folds= between 2 and {count}."
        raise DataError(said, option="folds")
    mine = _fold(count, folds, "group", seed)[number]
    return [(np.sort(row[mine != k]), np.sort(row[mine == k])) for k in range(folds)]


def parts_in_turn(groups: Groups, folds: int, seed: int = 0) -> list[Parts]:
    """Each group is held out once: at random, with lags the times in blocks. Of the only group there is, its rows."""
    if len(groups) == 1 and groups.count == len(groups.every.row):
        fold = _fold(groups.count, folds, "row", seed)
        return [rows_apart(groups, fold == k) for k in range(folds)]
    if groups.lagged is not None and groups.time is not None:
        times, at = np.unique(groups.time[groups.numbers], return_inverse=True)
        fold = _fold(len(times), folds, "time", None)[at]
    else:
        fold = _fold(len(groups), folds, "group", seed)
    return [(groups.subset(fold != k), groups.subset(fold == k)) for k in range(folds)]


def _fold(count: int, folds: int, what: str, seed: int | None) -> np.ndarray:
    """(count,): in which fold each is; seed=None for blocks."""
    if not 2 <= folds <= count:
        most = f"Pass {option('validation')} as a number of folds from 2 to {count}, or as a share."
        raise DataError(f"{counted(count, what)} cannot make {folds} folds. {most}", option="validation")
    order = np.arange(count) if seed is None else np.random.default_rng(seed).permutation(count)
    fold = np.empty(count, np.int64)
    fold[order] = np.arange(count) * folds // count
    return fold


def last_groups(groups: Groups, fraction: float) -> Parts:
    """Those of the last times are held out."""
    if groups.time is None:
        raise DataError(
            f"{option('validation', 'last')} needs to know when a group was: pass {option('time')}.",
            option="validation",
        )
    return groups.split_by_time(fraction)


def rows_of_one(groups: Groups, fraction: float, *, last: bool, seed: int = 0) -> Parts:
    """About that share of the rows of the only group: the last ones, or some at random."""
    count = groups.count
    if count < 2:
        raise DataError(
            f"One group of {counted(count, 'row')} cannot be split in two. Check the role group, or pass "
            f"{option('validation', None)}.",
            option="validation",
        )
    size = min(max(round(fraction * count), 1), count - 1)
    order = np.arange(count)[::-1] if last else np.random.default_rng(seed).permutation(count)
    return rows_apart(groups, np.isin(np.arange(count), order[:size]))


def rows_apart(groups: Groups, held: np.ndarray) -> Parts:
    """The only group without some rows, and whole with these alone as targets. held: (row,), truth values."""
    every = groups.every
    known = {f.name: getattr(every, f.name) for f in fields(every)}
    less = replace(every, **{name: x[~held] for name, x in known.items() if x is not None})
    targets = held if every.target is None else held & every.target
    train = replace(groups, every=less, offsets=np.array([0, int((~held).sum())], groups.offsets.dtype), home=None)
    return train, replace(groups, every=replace(every, target=targets), home=None)
