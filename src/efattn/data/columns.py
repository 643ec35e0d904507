"""One column of a table, as the numbers a role needs.

    numbers   float64, NaN where null or NaN        ranks     whatever sorts as the column does
    flags     booleans                              moments   microseconds since 1970, or plain numbers

Columns come as polars series. A column that cannot play its role is a DataError with the column, the first such row
and the remedy; what was read differently from how it stands goes to `notes`. Rows are counted from `first`, the
table's number of the column's first row, which is not 0 where a table comes in portions.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from efattn.data.names import escaped
from efattn.errors import DataError, Note, option

if TYPE_CHECKING:
    import polars as pl

Notes = list[Note]

# Single precision ends at 3e38, and squares at 2e19. Values are standardised first, and checked again after that.
LARGEST = {"attributes": 1e19}
OTHERWISE = 1e30
LATEST = 2.0**61  # a time: differences of two are still whole numbers
SMALLEST = float(np.finfo(np.float32).tiny)  # below it single precision has no more positive numbers to rely on

_ABSENT = ["", "na", "n/a", "nan", "null", "none"]  # as text in a column of numbers
_ISO = [
    r"%Y-%m-%d",
    r"%Y/%m/%d",
    r"%Y-%m-%d %H:%M",
    r"%Y-%m-%d %H:%M:%S%.f",
    r"%Y-%m-%dT%H:%M:%S%.f",
    r"%Y-%m-%dT%H:%M:%S%.fZ",
]


def numbers(
    column: "pl.Series",
    role: str,
    notes: Notes,
    missing: Sequence[float | str] = (),
    *,
    complete: bool = False,
    first: int = 0,
) -> np.ndarray:
    """float64; infinities and numbers that single precision cannot hold are refused, and so are nulls where the column
    must be `complete`."""
    import polars as pl

    s = plain(column)
    days = _days(s) if role == "attributes" else None
    if days is not None:
        notes.append(Note("dates", f"Column {s.name!r} holds dates; read as days since 1970.", column=s.name))
        s = days
    if s.dtype == pl.String:
        s = _numbers_from_text(s, role, notes, [code for code in missing if isinstance(code, str)], first)
    if s.dtype == pl.Null:
        s = s.cast(pl.Float64)
    if not (s.dtype.is_numeric() or s.dtype == pl.Boolean):
        hint = (
            "Turn them into numbers first, for instance days since a start" if s.dtype.is_temporal() else "Convert it"
        )
        raise DataError(
            f"The role {role} needs numbers; column {s.name!r} holds {in_words(s, first)}. {hint}.", column=s.name
        )
    y: np.ndarray = s.cast(pl.Float64).to_numpy(writable=True)
    y += 0.0  # -0 is 0
    codes = [code for code in missing if not isinstance(code, str)]
    if codes:
        y = np.where(np.isin(y, codes), np.nan, y)
    _refuse_huge(y, s.name, role, first)
    if complete:
        refuse_nulls(s, role, np.isnan(y), first=first)
    return y


def flags(column: "pl.Series", role: str, notes: Notes, *, first: int = 0) -> np.ndarray:
    """Booleans: true and false, 1 and 0, or those words as text."""
    y = numbers(column, role, notes, complete=True, first=first)
    other = np.flatnonzero((y != 0) & (y != 1))
    if other.size:
        row, name = int(other[0]), escaped(column.name)
        raise DataError(
            f"The role {role} needs true or false; column {column.name!r} has {y[row].item()!r} at row {first + row}. "
            f"Compare it first, for instance {name} > 0.",
            column=column.name,
            row=first + row,
        )
    return y == 1


def ranks(column: "pl.Series", role: str, notes: Notes, *, first: int = 0) -> np.ndarray:
    """int64 or float64 that sorts as the column does, exactly; no nulls."""
    import polars as pl

    s = _read_text(plain(column), role, notes, first)
    refuse_nulls(s, role, first=first)
    if s.dtype.is_temporal():
        return s.to_physical().cast(pl.Int64).to_numpy()
    if not (s.dtype.is_numeric() or s.dtype in (pl.Boolean, pl.Null)):
        raise DataError(
            f"The role {role} needs numbers or dates; column {s.name!r} holds {in_words(s, first)}. Convert it.",
            column=s.name,
        )
    whole = s.cast(pl.Int64, strict=False) if not s.dtype.is_float() else None
    return s.cast(pl.Float64).to_numpy() if whole is None or whole.null_count() else whole.to_numpy()


def moments(column: "pl.Series", role: str, notes: Notes, *, first: int = 0) -> tuple[np.ndarray, str]:
    """When a row was: ("instant", microseconds) for dates and datetimes, ("number", int64 or float64) for numbers."""
    import polars as pl

    s = _read_text(plain(column), role, notes, first)
    refuse_nulls(s, role, first=first)
    if s.dtype == pl.Date or s.dtype == pl.Datetime:
        if getattr(s.dtype, "time_zone", None) is not None:
            local = s.dt.replace_time_zone(None)  # one time of day: steps are days, also where the clocks change
            s = local if local.dt.time().n_unique() <= 1 else s.dt.convert_time_zone("UTC").dt.replace_time_zone(None)
        return s.cast(pl.Datetime("us")).to_physical().to_numpy(), "instant"
    if not s.dtype.is_numeric() and s.dtype != pl.Null:
        raise DataError(
            f"The role {role} needs numbers, dates or datetimes; column {s.name!r} holds {in_words(s, first)}. "
            "Convert it.",
            column=s.name,
        )
    time = ranks(s, role, notes, first=first)
    odd = ~(np.abs(time.astype(np.float64)) <= LATEST)
    if odd.any():
        row = int(np.flatnonzero(odd)[0])
        needed = f"numbers up to {LATEST:g} in size" if np.isfinite(time[row]) else "finite numbers"
        where = f"column {s.name!r} has {time[row].item()!r} at row {first + row}"
        raise DataError(
            f"The role {role} needs {needed}; {where}. Mend it.",
            column=s.name,
            row=first + row,
        )
    return time, "number"


def is_text(column: "pl.Series") -> bool:
    """Whether a column is words that no reading as numbers or as true and false fits."""
    import polars as pl

    s = plain(column)
    if s.dtype != pl.String:
        return False
    text = _without_absent(s, ())
    return _as_numbers(text) is None and not _is_truth(text) and _dated(text) is None


def is_dated(column: "pl.Series") -> bool:
    """Whether a column is text that is dates of one form throughout, and not numbers."""
    import polars as pl

    if column.dtype != pl.String:
        return False
    text = _without_absent(column, ())
    return _as_numbers(text) is None and _dated(text) is not None


def plain(s: "pl.Series") -> "pl.Series":
    """Categories as what they stand for, decimals as floats, NaN as null."""
    import polars as pl

    if s.dtype in (pl.Categorical, pl.Enum):
        return s.cast(pl.String)
    if s.dtype.is_decimal():
        s = s.cast(pl.Float64)
    return s.fill_nan(None) if s.dtype.is_float() else s


def in_words(s: "pl.Series", first: int = 0) -> str:
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
    return f"{word}, such as {_show(s[int(rows[0])])} at row {first + int(rows[0])}" if len(rows) else word


def refuse_nulls(s: "pl.Series", role: str, null: np.ndarray | None = None, *, first: int = 0) -> None:
    null = s.is_null().to_numpy() if null is None else null
    if null.any():
        row, count = first + int(np.flatnonzero(null)[0]), int(null.sum())
        raise DataError(
            f"The role {role} allows no nulls; column {s.name!r} is null at row {row} ({count} of {len(s)} rows). "
            "Fill these rows in or drop them.",
            column=s.name,
            row=row,
        )


def _refuse_huge(y: np.ndarray, name: str, role: str, first: int) -> None:
    largest = LARGEST.get(role, OTHERWISE)
    huge = np.abs(y) > largest
    if not huge.any():
        return
    row = int(np.flatnonzero(huge)[0])
    entry, where = y[row].item(), f"column {name!r} has {y[row].item()!r} at row {first + row}"
    remedy = "Make it null if it is missing, or mend it."
    if np.isfinite(entry):
        code = option("missing", entry)
        remedy = f"If it stands for a missing value, pass {code}; else " if role == "value" else "Mend it, or "
        remedy += "divide the column by a larger unit."
    bound = "finite numbers" if np.isinf(entry) else f"numbers up to {largest:g} in size"
    raise DataError(f"The role {role} needs {bound}; {where}. {remedy}", column=name, row=first + row)


def _show(entry: Any) -> str:
    text = (
        repr(entry)
        if isinstance(entry, (str, float, int))
        else str(list(entry) if hasattr(entry, "__len__") else entry)
    )
    return text if len(text) <= 60 else text[:57] + "..."


def is_absent(text: "pl.Series", absent: Sequence[str]) -> "pl.Series":
    """Where text is one of the usual words for missing, or of those said to be."""
    text = text.str.strip_chars()
    return text.str.to_lowercase().is_in(_ABSENT) | text.is_in(list(absent))


def _without_absent(s: "pl.Series", absent: Sequence[str]) -> "pl.Series":
    """Stripped, with null for the usual words for missing and for those said to be."""
    return s.str.strip_chars().set(is_absent(s, absent), None)


def _as_numbers(text: "pl.Series") -> tuple["pl.Series", str] | None:
    """Numbers, and how they were written, where every entry is one."""
    import polars as pl

    for how, read in (("numbers as text", text), ("decimal commas", text.str.replace(",", ".", literal=True))):
        if how == "decimal commas" and not text.str.contains(r"^[+-]?\d+(,\d{1,2}|,\d{4,})$").any():
            continue  # 1,234 alone may be thousands
        number = read.cast(pl.Float64, strict=False)
        if number.null_count() == text.null_count():
            return number.fill_nan(None), how
    return None


def _is_truth(text: "pl.Series") -> bool:
    return bool(text.str.to_lowercase().is_in(["true", "false"]).fill_null(True).all())


def _numbers_from_text(s: "pl.Series", role: str, notes: Notes, absent: Sequence[str], first: int) -> "pl.Series":
    """Text that is numbers throughout, with the usual words for missing; decimal commas and true/false too."""
    import polars as pl

    text = _without_absent(s, absent)
    read = _as_numbers(text)
    if read is not None:
        notes.append(Note("numbers as text", f"Column {s.name!r} holds {read[1]}; read as numbers.", column=s.name))
        return read[0].alias(s.name)
    if _is_truth(text):
        said = f"Column {s.name!r} holds true and false as text; read as 1 and 0."
        notes.append(Note("truth as text", said, column=s.name))
        return (text.str.to_lowercase() == "true").cast(pl.Float64).alias(s.name)
    odd = text.is_not_null() & text.cast(pl.Float64, strict=False).is_null()
    row, count = int(odd.arg_true()[0]), int(odd.sum())
    if 2 * count > len(text) - text.null_count():
        words = text.filter(odd).unique(maintain_order=True)
        listed = ", ".join(_show(word) for word in words[:6].to_list()) + (", ..." if len(words) > 6 else "")
        remedy = f"Its words: {listed}. Map them to numbers" + (
            f", or let it be the item, {option('item', s.name)}." if role == "value" else "."
        )
    else:
        mark = option("missing", s[row])
        remedy = f"Convert the column, or pass {mark} if that marks a missing value."
    more = f" (and {count - 1:,} more)" if count > 1 else ""
    raise DataError(
        f"The role {role} needs numbers; column {s.name!r} has the text {_show(s[row])} at row {first + row}{more}. "
        f"{remedy}",
        column=s.name,
        row=first + row,
    )


def _days(s: "pl.Series") -> "pl.Series | None":
    """Dates and times, also as text, as days since 1970; durations in days."""
    import polars as pl

    dated = _dated(_without_absent(s, ())) if s.dtype == pl.String else s
    if dated is None or dated.dtype not in (pl.Date, pl.Datetime, pl.Duration):
        return None
    kind = pl.Duration("us") if dated.dtype == pl.Duration else pl.Datetime("us")
    zoned = getattr(dated.dtype, "time_zone", None) is not None
    dated = dated.dt.convert_time_zone("UTC").dt.replace_time_zone(None) if zoned else dated
    return (dated.cast(kind).to_physical().cast(pl.Float64) / 86_400e6).alias(s.name)


def _dated(text: "pl.Series") -> "pl.Series | None":
    """Text that is dates of one form throughout."""
    for form in _ISO:
        dated = text.str.to_datetime(form, time_unit="us", strict=False)
        if dated.null_count() == text.null_count() < len(text):
            return dated
    return None


def _read_text(s: "pl.Series", role: str, notes: Notes, first: int) -> "pl.Series":
    """Text that is year-month-day dates or numbers throughout; any other text would sort as '10' < '9'."""
    import polars as pl

    if s.dtype != pl.String:
        return s
    text = s.str.strip_chars()
    text = text.set(text.str.to_lowercase() == "nan", None)
    dated = _dated(text)
    if dated is not None:
        notes.append(Note("dates as text", f"Column {s.name!r} holds dates as text; read as dates.", column=s.name))
        return dated.alias(s.name)
    whole = text.cast(pl.Int64, strict=False)
    number = whole if whole.null_count() == text.null_count() else text.cast(pl.Float64, strict=False)
    if number.null_count() == text.null_count():
        said = f"Column {s.name!r} holds numbers as text; read as numbers."
        notes.append(Note("numbers as text", said, column=s.name))
        return number.alias(s.name)
    readings = [number, *(text.str.to_datetime(form, time_unit="us", strict=False) for form in _ISO)]
    nearest = min(readings, key=lambda read: read.null_count())  # of dates, the first that is written otherwise
    row = int((text.is_not_null() & nearest.is_null()).arg_true()[0])
    raise DataError(
        f"The role {role} needs numbers or dates; column {s.name!r} has the text {_show(s[row])} at row {first + row}. "
        "Text is read as dates only in the form 2024-12-31 (with or without 23:59:59), the same in every row: "
        "convert the column first.",
        column=s.name,
        row=first + row,
    )
