"""Rows that are there twice in a group: each is the context of the other, and so gives its answer away.

    copies     rows that agree with an earlier one of their group in item, order, attributes, exposure and value
    repeats    rows that agree in all of that but the value

What may well repeat is no copy: two equal purchases of a basket, equal weights in a litter. Copies are spoken of where
something beside the value tells rows apart (an item, an order, attributes), and where repeats are seldom beside them.
Of items without values only an order tells one event from the next, and an item that comes back at other times says
that coming back is usual.
"""

from collections.abc import Mapping

import numpy as np

from efattn.data.groups import Groups
from efattn.errors import Note

SELDOM = 0.25  # repeats for a copy, at most


def duplicated(groups: Groups, order: np.ndarray | None, words: Mapping[str, np.ndarray]) -> Note | None:
    """order: of each row of the table; words: columns whose levels do not tell all of them apart, numbered."""
    every, value = groups.every, groups.every.value
    keys = {"group": groups.group, "item": every.item, "order": None if order is None else order[every.row]}
    keys |= {f"attribute {k}": x for k, x in enumerate(() if every.attributes is None else every.attributes.T)}
    keys |= {f"words {name}": x[every.row] for name, x in words.items()}
    known = {name: x for name, x in keys.items() if x is not None}
    looser = dict(known)
    if value is None:
        if order is None or every.item is None:
            return None
        looser = {name: known[name] for name in ("group", "item")}
    elif len(known) == 1:
        return None
    else:
        known |= {f"value {k}": x for k, x in enumerate(value.T)}
        known |= {} if every.exposure is None else {"exposure": every.exposure}
    seen = np.ones(len(every.row), bool) if value is None else ~np.isnan(value).all(1)
    copies = _repeats_an_earlier_row(known) & seen
    count = int(copies.sum())
    if not count or int((_repeats_an_earlier_row(looser) & seen & ~copies).sum()) > SELDOM * count:
        return None
    first = int(every.row[copies].min())
    where = groups.first_row + first
    said = (
        f"{count:,} of {len(every.row):,} rows repeat another row of their group in every column named, the first at "
        f"row {where}: each shows the other's answer, so that scores are too good. Drop them, as by frame.unique(); if "
        "they are rows of their own, name a column that tells them apart."
    )
    return Note("duplicates", said, row=where, important=True)


def _repeats_an_earlier_row(columns: dict[str, np.ndarray]) -> np.ndarray:
    """(row,): whether an earlier row has the same; rows stand as in the groups."""
    import polars as pl

    frame = pl.DataFrame({name: np.ascontiguousarray(x) for name, x in columns.items()}, nan_to_null=True)
    if frame.hash_rows().n_unique() == len(frame):  # mostly so, and quickly seen
        return np.zeros(len(frame), bool)
    first = frame.select(pl.struct(pl.all()).is_first_distinct()).to_series()
    return ~first.to_numpy()
