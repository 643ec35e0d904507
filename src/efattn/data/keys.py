"""Columns as exact names, and the distinct ones among them.

keys       numbers or strings that are equal exactly where the names are, and their kind (`names`)
distinct   of one or several columns: the number of each row's name, and the names
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from efattn.data.columns import in_words, plain
from efattn.data.names import NULL, Names, texts
from efattn.errors import DataError

if TYPE_CHECKING:
    import polars as pl

FEW = 1000  # rows
_EXACT = 2.0**53  # beyond it a float has no odd numbers


def keys(column: "pl.Series", role: str, *, first: int = 0) -> tuple["pl.Series", str]:
    """Exact keys (nulls stay) as a series of numbers or strings, and their kind."""
    import polars as pl

    s = plain(column)
    dtype = s.dtype
    if dtype == pl.String:
        return s, "text"
    if dtype == pl.Null:
        return s.cast(pl.Int64), NULL
    if dtype == pl.Boolean:
        return s.cast(pl.Int64), "boolean"
    if dtype == pl.Date:
        return s.to_physical().cast(pl.Int64), "date"
    if isinstance(dtype, pl.Datetime):
        kind = "datetime" if dtype.time_zone is None else f"datetime[{dtype.time_zone}]"
        return _microseconds(s, role, first), kind
    if dtype.is_float():
        return _floats(s, role, first)
    if dtype.is_integer():
        return _integers(s, role, first)
    raise DataError(
        f"The role {role} needs whole numbers, text, booleans or dates; column {s.name!r} holds {in_words(s, first)}. "
        "Turn it into text.",
        column=s.name,
    )


def distinct(
    columns: Sequence["pl.Series"], role: str, length: int, *, sort: bool = False, first: int = 0
) -> tuple[np.ndarray, Names]:
    """The number of each row's name among the distinct names, -1 where any key is null. Names are numbered by first
    appearance or, with `sort`, by themselves: by the first key, then the second, ..."""
    import polars as pl

    if not columns:
        return np.zeros(length, np.int32), Names((), ())
    pairs = [keys(column, role, first=first) for column in columns]
    if length <= FEW:
        return _few(pairs, sort)
    frame = pl.DataFrame([s.alias(f"k{c}") for c, (s, _) in enumerate(pairs)])
    unique = frame.unique(keep="any" if sort else "first", maintain_order=not sort).drop_nulls()
    unique = unique.sort(unique.columns) if sort else unique
    numbered = unique.with_row_index("number").cast({"number": pl.Int32})
    number = frame.join(numbered, on=frame.columns, how="left", maintain_order="left")["number"]
    kinds = tuple(kind for _, kind in pairs)
    names = [texts(s.to_list()) if s.dtype == pl.String else s.to_numpy() for s in unique.get_columns()]
    return number.fill_null(-1).to_numpy(), Names(kinds, tuple(names))


def _few(pairs: Sequence[tuple["pl.Series", str]], sort: bool) -> tuple[np.ndarray, Names]:
    """The same of few rows, one by one: a question about one group is answered sooner."""
    import polars as pl

    rows = list(zip(*(s.to_list() for s, _ in pairs), strict=True))
    known = dict.fromkeys(row for row in rows if None not in row)
    ordered = sorted(known) if sort else list(known)
    place = {row: k for k, row in enumerate(ordered)}
    number = np.array([place.get(row, -1) for row in rows], np.int32)
    columns: list[np.ndarray] = []
    for c, (s, _) in enumerate(pairs):
        mine = [row[c] for row in ordered]
        kind = np.uint64 if s.dtype == pl.UInt64 else np.float64 if s.dtype == pl.Float64 else np.int64
        columns.append(texts(mine) if s.dtype == pl.String else np.array(mine, kind))
    return number, Names(tuple(kind for _, kind in pairs), tuple(columns))


def _microseconds(s: "pl.Series", role: str, first: int) -> "pl.Series":
    import polars as pl

    coarse = s.dt.cast_time_unit("us")
    if s.dtype.time_unit == "ns" and (s.to_physical() % 1000 != 0).any():  # type: ignore[attr-defined]
        row = first + int((s.to_physical() % 1000 != 0).arg_true()[0])
        raise DataError(
            f"The role {role} tells datetimes apart by microseconds; column {s.name!r} has nanoseconds at row {row}. "
            "Turn it into whole numbers or text first.",
            column=s.name,
            row=row,
        )
    return coarse.to_physical().cast(pl.Int64)


def _floats(s: "pl.Series", role: str, first: int) -> tuple["pl.Series", str]:
    """Whole numbers, as pandas makes floats of ids with nulls among them; or numbers with fractions, as doses are."""
    import polars as pl

    if ((s != s.floor()) & s.is_finite()).any() and not s.is_infinite().any():
        return s.cast(pl.Float64), "number"
    bad = (s.abs() > _EXACT).fill_null(False)
    if bad.any():
        row = int(bad.arg_true()[0])
        raise DataError(
            f"The role {role} needs exact names; column {s.name!r} has the float {s[row]!r} at row {first + row}, "
            "which is past 2^53, where floats lose digits. Read the column as integers or text, or round it first.",
            column=s.name,
            row=first + row,
        )
    return s.cast(pl.Int64), "integer"


def _integers(s: "pl.Series", role: str, first: int) -> tuple["pl.Series", str]:
    import polars as pl

    for dtype, kind in ((pl.Int64, "integer"), (pl.UInt64, "unsigned")):
        whole = s.cast(dtype, strict=False)
        if whole.null_count() == s.null_count():
            return whole, kind
    row = int((whole.is_null() & s.is_not_null()).arg_true()[0])
    raise DataError(
        f"The role {role} takes integers of 64 bits; column {s.name!r} has {s[row]} at row {first + row}. "
        "Read the column as text.",
        column=s.name,
        row=first + row,
    )
