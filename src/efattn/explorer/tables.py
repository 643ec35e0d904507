"""From the rows of a request to a table, as a file with these rows would have been read.

Whole numbers beside others are read as numbers, an entry that is not there as null. Names of items that are dates come
as text, as JSON has no dates.
"""

import datetime
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from efattn.data import Table
from efattn.errors import DataError
from efattn.explorer.limits import Refused
from efattn.inference import Fitted


def rows_in(given: Any) -> int:
    """How many rows a body's table has."""
    if isinstance(given, Mapping):
        return max((len(x) for x in given.values()), default=0)
    return len(given) if given is not None else 0


def check_count(rows: int, most: int) -> int:
    """So many rows, or a refusal."""
    if rows > most:
        said = f"A table has at most {most:,} rows here, what is drawn counted; found {rows:,}. Ask in parts."
        raise Refused(413, "too many rows", said)
    return rows


def columns_of(fitted: Fitted) -> tuple[str, ...]:
    """Of a table that a model can be asked about."""
    wide = fitted.wide
    return fitted.schema.roles.columns if wide is None else (*wide.names, *([] if wide.id is None else [wide.id]))


def table_of(given: Any, fitted: Fitted) -> Table:
    """A list of rows, or a mapping of columns."""
    import polars as pl

    if isinstance(given, Mapping):
        columns = {str(name): list(entries) for name, entries in given.items()}
        lengths = {len(entries) for entries in columns.values()}
        if len(lengths) > 1:
            raise DataError(f"Columns of one table have one length; found {', '.join(map(str, sorted(lengths)))}.")
    else:
        names = dict.fromkeys(name for row in given for name in row)
        columns = {name: [row.get(name) for row in given] for name in names}
    if not columns:  # no rows, of which every column is there
        columns = {name: [] for name in columns_of(fitted)}
    dated = dict(_dated(fitted))
    return Table.read(pl.DataFrame([_column(name, entries, dated.get(name)) for name, entries in columns.items()]))


def longest_group(table: Table, names: Sequence[str]) -> int:
    """How many rows it has."""
    if not names or not len(table):
        return len(table)
    return int(table.native.select(names).group_by(names).len()["len"].max())


def item_of(given: Any, fitted: Fitted) -> Any:
    """The name of one item: a list of keys where it has several columns."""
    kinds = fitted.vocabulary.known.kinds
    keys = given if isinstance(given, list) else [given]
    if len(keys) != len(kinds):
        names = ", ".join(map(repr, fitted.vocabulary.columns))
        raise DataError(f"An item of this model has {len(kinds)} keys, {names}; found {len(keys)}.", option="item")
    read = [_reader(kind) for kind in kinds]
    name = tuple(
        key if how is None or not isinstance(key, str) else how(key) for key, how in zip(keys, read, strict=True)
    )
    return name[0] if len(name) == 1 else name


def _column(name: str, entries: Sequence[Any], read: Callable[[str], Any] | None) -> Any:
    import polars as pl

    known = {type(x) for x in entries if x is not None}
    if len(known) > 1 and known != {int, float}:
        first = type(next(x for x in entries if x is not None))
        row = next(i for i, x in enumerate(entries) if x is not None and type(x) is not first)
        words = {str: "text", bool: "truth values", int: "numbers", float: "numbers"}
        raise DataError(
            f"Column {name!r} mixes {words[first]} and, at row {row}, {words[type(entries[row])]}. Make it one type.",
            column=name,
            row=row,
        )
    if read is not None and known == {str}:
        entries = [None if x is None else read(x) for x in entries]
        if any(isinstance(x, str) for x in entries):  # not all of them are dates
            entries = [None if x is None else str(x) for x in entries]
    try:
        return pl.Series(name, [None if x is None else float(x) for x in entries] if float in known else entries)
    except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError) as error:
        raise DataError(f"Column {name!r} cannot be read: {error}. Make it one type.", column=name) from error


def _dated(fitted: Fitted) -> list[tuple[str, Callable[[str], Any]]]:
    """Columns of items that were dates when the model was fitted."""
    if fitted.schema.vocabulary is None:
        return []
    pairs = zip(fitted.vocabulary.columns, map(_reader, fitted.vocabulary.known.kinds), strict=True)
    return [(name, read) for name, read in pairs if read is not None]


def _reader(kind: str) -> Callable[[str], Any] | None:
    """A date in words, as a date; what is none stays as it is."""
    if kind != "date" and not kind.startswith("datetime"):
        return None
    parse = datetime.date.fromisoformat if kind == "date" else datetime.datetime.fromisoformat

    def read(word: str) -> Any:
        try:
            return parse(word)
        except ValueError:
            return word

    return read
