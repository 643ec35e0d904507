"""The order in which the rows of a table stand in groups.

    by group; within a group by its order, and ties as in the table

To fit on, a table is put into an order that does not depend on how it came: groups by their names and, where no order
is asked for, rows by what they hold.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np


@final
@dataclass(frozen=True, eq=False)
class RowOrder:
    """`by`: the table's rows in the order of the groups, None where they already stand so."""

    by: np.ndarray | None
    offsets: np.ndarray
    ties: int
    length: int

    @classmethod
    def of(cls, number: np.ndarray, order: np.ndarray | None, held: Sequence[np.ndarray] = ()) -> "RowOrder":
        """number: (row,), the group of each row; order: (row,), whatever sorts; held: what rows without an order are
        sorted by within their group, whole numbers or floats."""
        change = np.diff(number)
        grouped = not (change < 0).any()
        by = None
        if order is None and held:
            by = _by_content(number, held)
        elif not grouped or (order is not None and ((order[1:] < order[:-1]) & (change == 0)).any()):
            by = np.argsort(number, kind="stable") if order is None else np.lexsort((order, number))
        if by is not None:
            by = by.astype(np.int32) if len(by) < 2**31 else by
        offsets = (
            np.concatenate((np.zeros(1, np.int64), np.cumsum(np.bincount(number))))
            if len(number)
            else np.zeros(1, np.int64)
        )
        ties = 0
        if order is not None:
            here, key = (number, order) if by is None else (number[by], order[by])
            ties = int(((key[1:] == key[:-1]) & (here[1:] == here[:-1])).sum())
        return cls(by, offsets, ties, len(number))

    @property
    def row(self) -> np.ndarray:
        return (
            np.arange(self.length, dtype=np.int32 if self.length < 2**31 else np.int64) if self.by is None else self.by
        )

    def sort(self, column: np.ndarray) -> np.ndarray:
        """A column of the table in the order of the groups."""
        return column if self.by is None else column[self.by]


def _by_content(number: np.ndarray, held: Sequence[np.ndarray]) -> np.ndarray | None:
    """The rows by group, then by the columns one after the other, equal ones as in the table; None where they already
    stand so. Most often the group and the item settle it: only what they leave equal is sorted by the rest."""
    first, rest = held[0], held[1:]
    if first.dtype.kind != "i":
        by = np.lexsort((*reversed(held), number))
    else:
        key = number.astype(np.int64) * (int(first.max(initial=0)) + 1) + first
        by = np.arange(len(key)) if not (np.diff(key) < 0).any() else np.argsort(key, kind="stable")
        same = np.diff(key[by]) == 0
        if rest and same.any():
            tied = np.flatnonzero(np.append(same, False) | np.append(False, same))
            rows = by[tied]
            by[tied] = rows[np.lexsort((*(column[rows] for column in reversed(rest)), key[rows]))]
    return None if (np.diff(by) == 1).all() else by
