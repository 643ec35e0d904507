"""A table of any kind, read by column.

pandas, polars (eager and lazy) and pyarrow frames, and whatever else narwhals knows; a mapping of columns; a file or a
reader (see `files`), a folder of files or a pattern such as parts/*.parquet (see `sources`).
Columns come out as numpy arrays through `columns`; `with_columns` gives back the kind of frame
that came in, rows in order and other columns untouched. A file, a reader or a mapping gives polars.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from efattn.data.files import read_file
from efattn.data.roles import nearest
from efattn.data.sources import read_several, several
from efattn.errors import DataError, option

if TYPE_CHECKING:
    import narwhals as nw
    import polars as pl

_SOURCES = "a pandas, polars or pyarrow frame, a mapping of columns, a CSV, TSV or Parquet file, or a folder of them"

_MADE = {
    "list": "polars.DataFrame(rows)",
    "ndarray": "polars.DataFrame(array, schema=[...]) with the columns' names",
    "Series": "series.to_frame(), or the frame that it is from",
    "RecordBatch": "pyarrow.Table.from_batches([batch])",
}


@final
class Table:
    """A frame with its columns at hand as polars series. `lazy`: it came as a polars LazyFrame and goes back as one.
    first_row: the number of its first row, where it is a portion of a larger table."""

    def __init__(self, frame: "nw.DataFrame[Any]", lazy: bool = False, first_row: int = 0) -> None:
        self._frame = frame
        self._lazy = lazy
        self.first_row = first_row
        self.names: list[str] = list(frame.columns)

    @classmethod
    def read(
        cls,
        source: Any,
        *,
        columns: Sequence[str] | None = None,
        only: Sequence[str] | None = None,
        separator: str | None = None,
        decimal: str | None = None,
        header: bool | None = None,
        encoding: str | None = None,
        first_row: int = 0,
    ) -> "Table":
        """only: the columns to load of a file or a lazy frame; first_row: the number of the first row, of a portion;
        the other options are for files (`files.read_file`)."""
        if isinstance(source, Table):
            return source
        options = {
            "columns": columns,
            "separator": separator,
            "decimal": decimal,
            "header": header,
            "encoding": encoding,
        }
        if several(source):
            said = {name: x for name, x in options.items() if x is not None}
            return cls(_narwhals(read_several(source, only, **said)), first_row=first_row)
        if isinstance(source, (str, Path)) or (hasattr(source, "read") and not hasattr(source, "schema")):
            return cls(_narwhals(read_file(source, only=only, **options)), first_row=first_row)  # type: ignore[arg-type]
        given = [name for name, asked in options.items() if asked is not None]
        if given:
            kind = type(source).__name__
            raise DataError(f"{given[0]}= is for files; found {kind}. Leave it out.", option=given[0])
        table = cls._of_frame(source, only)
        table.first_row = first_row
        return table

    @classmethod
    def _of_frame(cls, source: Any, only: Sequence[str] | None) -> "Table":
        import narwhals as nw
        import polars as pl

        if isinstance(source, Mapping) or type(source).__name__ == "RecordBatchReader":
            try:
                source = pl.DataFrame(source)
            except (pl.exceptions.PolarsError, TypeError, ValueError) as error:
                raise DataError(
                    f"These columns do not make a table: {error}. Give each the same length and one type."
                ) from error
        frame = _narwhals(source)
        if not isinstance(frame, nw.LazyFrame):
            return cls(frame)
        if only is not None:
            known = frame.collect_schema().names()
            frame = frame.select([name for name in known if name in only])
        try:
            return cls(frame.collect("polars"), isinstance(source, pl.LazyFrame))
        except (pl.exceptions.PolarsError, OSError) as error:
            raise DataError(f"The lazy frame cannot be collected: {error}. Try its collect() alone.") from error

    def __len__(self) -> int:
        return len(self._frame)

    @property
    def native(self) -> Any:
        """The frame of the kind that came in."""
        return self._out(self._frame)

    @property
    def kind(self) -> str:
        """Which library's frame came in, as narwhals names it: "pandas", "polars", ..."""
        return str(self._frame.implementation)

    def require(self, names: Iterable[str], role: str) -> None:
        """A DataError for the first column that is not there."""
        for name in names:
            if name not in self.names:
                shown = ", ".join(repr(n) for n in self.names[:8]) + (", ..." if len(self.names) > 8 else "")
                index = getattr(getattr(self._frame.to_native(), "index", None), "names", ())
                hint = " It is the index: pass frame.reset_index()." if name in index else nearest(name, self.names)
                raise DataError(f"There is no column {name!r} (role {role}).{hint} Columns: {shown}.", column=name)

    def column(self, name: str, role: str = "column") -> "pl.Series":
        """One column, exactly as it is, as a polars series."""
        import narwhals as nw
        import polars as pl

        self.require([name], role)
        try:
            column = self._frame.get_column(name).to_polars().alias(name)
        except Exception as error:  # whatever the frame's own library raises for objects it cannot convert
            raise _mixed(name, role, self._frame.get_column(name).to_native(), self.first_row) from error
        kind = self._frame.schema[name]
        if column.dtype == pl.Categorical and isinstance(kind, nw.Enum):  # pandas' ordered categories
            return column.cast(pl.Enum(list(kind.categories)))
        return column

    def columns(self, names: Iterable[str], role: str = "column") -> list["pl.Series"]:
        return [self.column(name, role) for name in names]

    def with_columns(self, new: Mapping[str, Any]) -> Any:
        """The frame with columns added or replaced, each an array or a list in the order of the table's rows."""
        import narwhals as nw
        import polars as pl

        added = []
        for name, values in new.items():
            if len(values) != len(self):
                raise DataError(f"Column {name!r} has {len(values)} entries for {len(self)} rows.")
            series = values if isinstance(values, pl.Series) else pl.Series(name, values, nan_to_null=False)
            if self._frame.implementation.is_polars():
                added.append(nw.from_native(series.alias(name), series_only=True))
            else:
                dtype = nw.from_native(series, series_only=True).dtype
                entries = series.to_list() if series.dtype == pl.String or series.null_count() else series.to_numpy()
                added.append(nw.new_series(name, entries, dtype, backend=self._frame.implementation))
        return self._out(self._frame.with_columns(*added))

    def same_kind(self, frame: "pl.DataFrame") -> Any:
        """A new frame, of the kind that this one came as."""
        import narwhals as nw

        kind = self._frame.implementation
        if kind.is_polars():
            return frame.lazy() if self._lazy else frame
        return nw.from_arrow(frame.to_arrow(), backend=kind).to_native()

    def take(self, rows: Any) -> Any:
        """The frame with only these rows, in this order."""
        return self._out(self._frame[rows])

    def _out(self, frame: "nw.DataFrame[Any]") -> Any:
        return frame.lazy().to_native() if self._lazy else frame.to_native()


def from_wide(
    frame: Any,
    group: str | Sequence[str],
    item: str = "item",
    value: str = "value",
    *,
    items: Sequence[str] | None = None,
    drop_missing: bool = False,
) -> Any:
    """One row per group and one column per item -> one row per group and item, group by group; the same kind of frame.

    group: the columns that stay as they are; items: the columns to turn (default: all others); item, value: what to
    call the two new columns. A null is a missing value of its item; with drop_missing it is no row at all.
    """
    import narwhals as nw

    table = Table.read(frame)
    kept = [group] if isinstance(group, str) else list(group)
    turned = [n for n in table.names if n not in kept] if items is None else list(items)
    table.require(kept, "group")
    table.require(turned, "items")
    clash = [n for n in (item, value) if n in kept] or ([item] if item == value else [])
    if clash or not turned:
        raise DataError(
            f"{clash[0]!r} is the name of two columns. Pass another {option('item')} or {option('value')}." if clash
            else f"There is no column left to turn: all of {kept} are the group. Name fewer in {option('group')}."
        )  # fmt: skip
    row, place = (_unused(name, [*table.names, item, value]) for name in ("row", "place"))
    wide = table._frame.with_row_index(row)
    _check_alike({name: table._frame.schema[name] for name in turned})
    long = wide.unpivot(turned, index=[row, *kept], variable_name=item, value_name=value)
    long = long.with_row_index(place).sort(row, place).select(*kept, item, value)  # unpivot goes column by column
    if drop_missing:
        long = long.filter(~nw.col(value).is_null())
        long = long.filter(~nw.col(value).is_nan()) if long.schema[value].is_float() else long
    return table._out(nw.maybe_reset_index(long))


def _check_alike(dtypes: Mapping[str, Any]) -> None:
    import narwhals as nw

    first, *others = dtypes
    for name in others:
        one, two = dtypes[first], dtypes[name]
        if one != two and not all(dtype.is_numeric() or dtype == nw.Boolean for dtype in (one, two)):
            raise DataError(
                f"Item columns share a type; {first!r} holds {str(one).lower()} and {name!r} {str(two).lower()}. "
                f"Name columns of one type in {option('items', '[...]')}, or name what describes the group in "
                f"{option('group', '[...]')}.",
                column=name,
            )


def _unused(name: str, taken: Sequence[str]) -> str:
    while name in taken:
        name += "_"
    return name


def _narwhals(source: Any) -> Any:
    import narwhals as nw
    from narwhals.exceptions import DuplicateError

    try:
        frame = nw.from_native(source)
        frame.collect_schema().names()
    except DuplicateError as error:
        name = str(error).split("'")[1] if "'" in str(error) else "?"
        raise DataError(f"The table has two columns of the name {name!r}. Rename one of them.") from error
    except (TypeError, AttributeError) as error:
        kind = type(source).__name__
        remedy = f" Make it one: {_MADE[kind]}." if kind in _MADE else ""
        raise DataError(f"A table is {_SOURCES}; found {kind}.{remedy}") from error
    return frame


def _mixed(name: str, role: str, column: Any, first: int) -> DataError:
    """About a column of Python objects that no single type holds."""
    common: type | None = None
    for row, entry in enumerate(column):
        if entry is None or entry != entry:
            continue
        if common is not None and type(entry) is not common:
            return DataError(
                f"Column {name!r} (role {role}) mixes types: {common.__name__} and, at row {first + row}, "
                f"{type(entry).__name__} ({str(entry)[:40]!r}). Make it one type, for instance text: "
                f"frame[{name!r}].astype(str).",
                column=name,
                row=first + row,
            )
        common = type(entry)
    if common is int:
        row, entry = max(enumerate(column), key=lambda one: abs(one[1]) if isinstance(one[1], int) else -1)
        return DataError(
            f"Column {name!r} (role {role}) has {str(entry)[:40]} at row {first + row}, a whole number that 64 bits do "
            f"not hold. Make the column text if it is a name, else numbers: frame[{name!r}].astype(float).",
            column=name,
            row=first + row,
        )
    kind = common.__name__ if common else "nothing"
    return DataError(
        f"Column {name!r} (role {role}) holds objects ({kind}) that cannot be read exactly. Make them text or numbers.",
        column=name,
    )
