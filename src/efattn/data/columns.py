"""One column of a table, as the numbers a role needs.

    numbers   float64, NaN where null or NaN        keys      exact: whole numbers, text, booleans, dates, datetimes
    ranks     whatever sorts as the column does     moments   microseconds since 1970, or plain numbers
    flags     booleans

Columns come as polars series. A column that cannot play its role is a DataError with the column, the first such row
(counted from 0) and the remedy; what was read differently from how it stands goes to `notes`.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from efattn.data.names import NULL, Names, texts
from efattn.errors import DataError

if TYPE_CHECKING:
    import polars as pl

Notes = list[str]

_ABSENT = ["", "na", "n/a", "nan", "null", "none"]  # as text in a column of numbers
_ISO = [
    r"%Y-%m-%d",
    r"%Y/%m/%d",
    r"%Y-%m-%d %H:%M",
    r"%Y-%m-%d %H:%M:%S%.f",
    r"%Y-%m-%dT%H:%M:%S%.f",
    r"%Y-%m-%dT%H:%M:%S%.fZ",
]
_EXACT = 2.0**53  # beyond it a float has no odd numbers


def numbers(
    column: "pl.Series", role: str, notes: Notes, missing: Sequence[float | str] = (), *, complete: bool = False
) -> np.ndarray:
    """float64; infinities are refused, and so are nulls where the column must be `complete`."""
    import polars as pl

    s = _plain(column)
    absent = [code for code in missing if isinstance(code, str)]
    if s.dtype == pl.String:
        s = _numbers_from_text(s, role, notes, absent)
    if s.dtype == pl.Null:
        s = s.cast(pl.Float64)
    if not (s.dtype.is_numeric() or s.dtype == pl.Boolean):
        hint = (
            "Turn them into numbers first, for instance days since a start" if s.dtype.is_temporal() else "Convert it"
        )
        raise DataError(f"The role {role} needs numbers; column {s.name!r} holds {_what(s)}. {hint}.")
    y: np.ndarray = s.cast(pl.Float64).to_numpy(writable=True)
    codes = [code for code in missing if not isinstance(code, str)]
    if codes:
        y = np.where(np.isin(y, codes), np.nan, y)
    if np.isinf(y).any():
        row = int(np.flatnonzero(np.isinf(y))[0])
        raise DataError(
            f"The role {role} needs finite numbers; column {s.name!r} has {y[row].item()!r} at row {row}. "
            "Make it null if it is missing, or mend it."
        )
    if complete:
        _refuse_nulls(s, role, np.isnan(y))
    return y


def flags(column: "pl.Series", role: str, notes: Notes) -> np.ndarray:
    """Booleans: true and false, 1 and 0, or those words as text."""
    y = numbers(column, role, notes, complete=True)
    other = np.flatnonzero((y != 0) & (y != 1))
    if other.size:
        row = int(other[0])
        raise DataError(
            f"The role {role} needs true or false; column {column.name!r} has {y[row].item()!r} at row {row}. "
            f"Compare it first, for instance {column.name} > 0."
        )
    return y == 1


def ranks(column: "pl.Series", role: str, notes: Notes) -> np.ndarray:
    """int64 or float64 that sorts as the column does, exactly; no nulls."""
    import polars as pl

    s = _read_text(_plain(column), role, notes)
    _refuse_nulls(s, role)
    if s.dtype.is_temporal():
        return s.to_physical().cast(pl.Int64).to_numpy()
    if not (s.dtype.is_numeric() or s.dtype in (pl.Boolean, pl.Null)):
        raise DataError(f"The role {role} needs numbers or dates; column {s.name!r} holds {_what(s)}. Convert it.")
    whole = s.cast(pl.Int64, strict=False) if not s.dtype.is_float() else None
    return s.cast(pl.Float64).to_numpy() if whole is None or whole.null_count() else whole.to_numpy()


def moments(column: "pl.Series", role: str, notes: Notes) -> tuple[np.ndarray, str]:
    """When a row was: ("instant", microseconds) for dates and datetimes, ("number", int64 or float64) for numbers."""
    import polars as pl

    s = _read_text(_plain(column), role, notes)
    _refuse_nulls(s, role)
    if s.dtype == pl.Date or s.dtype == pl.Datetime:
        if getattr(s.dtype, "time_zone", None) is not None:
            local = s.dt.replace_time_zone(None)  # one time of day: steps are days, also where the clocks change
            s = local if local.dt.time().n_unique() <= 1 else s.dt.convert_time_zone("UTC").dt.replace_time_zone(None)
        return s.cast(pl.Datetime("us")).to_physical().to_numpy(), "instant"
    if not s.dtype.is_numeric() and s.dtype != pl.Null:
        raise DataError(
            f"The role {role} needs numbers, dates or datetimes; column {s.name!r} holds {_what(s)}. Convert it."
        )
    time = ranks(s, role, notes)
    if not np.isfinite(time).all():
        row = int(np.flatnonzero(~np.isfinite(time))[0])
        raise DataError(
            f"The role {role} needs finite numbers; column {s.name!r} has {time[row].item()!r} at row {row}. Mend it."
        )
    return time, "number"


def keys(column: "pl.Series", role: str) -> tuple["pl.Series", str]:
    """Exact keys (nulls stay) as a series of whole numbers or strings, and their kind."""
    import polars as pl

    s = _plain(column)
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
        return _microseconds(s, role), "datetime" if dtype.time_zone is None else f"datetime[{dtype.time_zone}]"
    if dtype.is_float():
        return _whole(s, role), "integer"
    if dtype.is_integer():
        return _integers(s, role)
    raise DataError(
        f"The role {role} needs whole numbers, text, booleans or dates; column {s.name!r} holds {_what(s)}. "
        "Turn it into text."
    )


def distinct(columns: Sequence["pl.Series"], role: str, length: int) -> tuple[np.ndarray, Names]:
    """The number of each row's name among the distinct names, by first appearance; -1 where any key is null."""
    import polars as pl

    if not columns:
        return np.zeros(length, np.int32), Names((), ())
    pairs = [keys(column, role) for column in columns]
    frame = pl.DataFrame([s.alias(f"k{c}") for c, (s, _) in enumerate(pairs)])
    unique = frame.unique(keep="first", maintain_order=True).drop_nulls()
    numbered = unique.with_row_index("number").cast({"number": pl.Int32})
    found = frame.join(numbered, on=frame.columns, how="left", maintain_order="left")["number"]
    kinds = tuple(kind for _, kind in pairs)
    names = [texts(s.to_list()) if s.dtype == pl.String else s.to_numpy() for s in unique.get_columns()]
    return found.fill_null(-1).to_numpy(), Names(kinds, tuple(names))


def _plain(s: "pl.Series") -> "pl.Series":
    """Categories as what they stand for, decimals as floats, NaN as null."""
    import polars as pl

    if s.dtype in (pl.Categorical, pl.Enum):
        return s.cast(pl.String)
    if s.dtype.is_decimal():
        s = s.cast(pl.Float64)
    return s.fill_nan(None) if s.dtype.is_float() else s


def _what(s: "pl.Series") -> str:
    """'text, such as 'high' at row 3', for the first entry that is not null."""
    import polars as pl

    known = {
        pl.String: "text",
        pl.Boolean: "booleans",
        pl.Date: "dates",
        pl.Duration: "durations",
        pl.Time: "times of day",
    }
    word = "datetimes" if s.dtype == pl.Datetime else known.get(s.dtype.base_type(), str(s.dtype).lower())
    rows = s.is_not_null().arg_true()
    return f"{word}, such as {_show(s[int(rows[0])])} at row {int(rows[0])}" if len(rows) else word


def _show(entry: Any) -> str:
    text = (
        repr(entry)
        if isinstance(entry, (str, float, int))
        else str(list(entry) if hasattr(entry, "__len__") else entry)
    )
    return text if len(text) <= 60 else text[:57] + "..."


def _refuse_nulls(s: "pl.Series", role: str, null: np.ndarray | None = None) -> None:
    null = s.is_null().to_numpy() if null is None else null
    if null.any():
        row, count = int(np.flatnonzero(null)[0]), int(null.sum())
        raise DataError(
            f"The role {role} allows no nulls; column {s.name!r} is null at row {row} ({count} of {len(s)} rows). "
            "Fill these rows in or drop them."
        )


def _numbers_from_text(s: "pl.Series", role: str, notes: Notes, absent: Sequence[str]) -> "pl.Series":
    """Text that is numbers throughout, with the usual words for missing; decimal commas and true/false too."""
    import polars as pl

    text = s.str.strip_chars()
    text = text.set(text.str.to_lowercase().is_in(_ABSENT) | text.is_in(list(absent)), None)
    for reading, read in (("numbers", text), ("decimal commas", text.str.replace(",", ".", literal=True))):
        found = read.cast(pl.Float64, strict=False)
        if reading == "decimal commas" and not text.str.contains(r"^[+-]?\d+(,\d{1,2}|,\d{4,})$").any():
            continue  # 1,234 alone may be thousands
        if found.null_count() == text.null_count():
            notes.append(
                f"Column {s.name!r} holds {'numbers as text' if reading == 'numbers' else reading}; read as numbers."
            )
            return found.fill_nan(None).alias(s.name)
    lower = text.str.to_lowercase()
    if lower.is_in(["true", "false"]).fill_null(True).all():
        notes.append(f"Column {s.name!r} holds true and false as text; read as 1 and 0.")
        return (lower == "true").cast(pl.Float64).alias(s.name)
    odd = text.is_not_null() & text.cast(pl.Float64, strict=False).is_null()
    row = int(odd.arg_true()[0])
    raise DataError(
        f"The role {role} needs numbers; column {s.name!r} has the text {_show(s[row])} at row {row} "
        f"(and {int(odd.sum()) - 1} more). Convert the column, or pass missing={_show(s[row])} if that marks a missing "
        "value."
    )


def _read_text(s: "pl.Series", role: str, notes: Notes) -> "pl.Series":
    """Text that is year-month-day dates or numbers throughout; any other text would sort as '10' < '9'."""
    import polars as pl

    if s.dtype != pl.String:
        return s
    text = s.str.strip_chars()
    for form in _ISO:
        dated = text.str.to_datetime(form, time_unit="us", strict=False)
        if dated.null_count() == text.null_count() < len(text):
            notes.append(f"Column {s.name!r} holds dates as text; read as dates.")
            return dated.alias(s.name)
    whole = text.cast(pl.Int64, strict=False)
    found = whole if whole.null_count() == text.null_count() else text.cast(pl.Float64, strict=False)
    if found.null_count() == text.null_count():
        notes.append(f"Column {s.name!r} holds numbers as text; read as numbers.")
        return found.alias(s.name)
    row = int((text.is_not_null() & found.is_null()).arg_true()[0])
    raise DataError(
        f"The role {role} needs numbers or dates; column {s.name!r} has the text {_show(s[row])} at row {row}. "
        "Text is read as dates only in the form 2024-12-31 (with or without 23:59:59), the same in every row: "
        "convert the column first."
    )


def _microseconds(s: "pl.Series", role: str) -> "pl.Series":
    import polars as pl

    coarse = s.dt.cast_time_unit("us")
    if s.dtype.time_unit == "ns" and (s.to_physical() % 1000 != 0).any():  # type: ignore[attr-defined]
        row = int((s.to_physical() % 1000 != 0).arg_true()[0])
        raise DataError(
            f"The role {role} tells datetimes apart by microseconds; column {s.name!r} has nanoseconds at row {row}. "
            "Turn it into whole numbers or text first."
        )
    return coarse.to_physical().cast(pl.Int64)


def _whole(s: "pl.Series", role: str) -> "pl.Series":
    """Floats that are whole numbers, as pandas makes of ids with nulls among them."""
    import polars as pl

    bad = ((s != s.floor()) | (s.abs() > _EXACT)).fill_null(False)
    if bad.any():
        row = int(bad.arg_true()[0])
        why = "is past 2^53, where floats lose digits" if abs(s[row]) > _EXACT else "is not a whole number"
        raise DataError(
            f"The role {role} needs exact names; column {s.name!r} has the float {s[row]!r} at row {row}, which {why}. "
            "Read the column as integers or text, or round it first."
        )
    return s.cast(pl.Int64)


def _integers(s: "pl.Series", role: str) -> tuple["pl.Series", str]:
    import polars as pl

    for dtype, kind in ((pl.Int64, "integer"), (pl.UInt64, "unsigned")):
        found = s.cast(dtype, strict=False)
        if found.null_count() == s.null_count():
            return found, kind
    row = int((found.is_null() & s.is_not_null()).arg_true()[0])
    raise DataError(
        f"The role {role} takes integers of 64 bits; column {s.name!r} has {s[row]} at row {row}. "
        "Read the column as text."
    )
