"""Folds for cross-validation that never part a group: the rows of one group see each other, so row folds leak."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from efattn.data.groups import Groups
from efattn.data.keys import distinct
from efattn.data.table import Table
from efattn.errors import DataError, counted


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
    order = np.arange(count) if seed is None else np.random.default_rng(seed).permutation(count)
    fold = np.empty(count, np.int64)
    fold[order] = np.arange(count) * folds // count
    mine = fold[number]
    return [(np.sort(row[mine != k]), np.sort(row[mine == k])) for k in range(folds)]
