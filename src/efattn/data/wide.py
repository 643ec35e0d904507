"""A wide table: a row is a group, a column is an item, and columns are of different kinds.

    number   as it is                     truth    false, true                  -> 0, 1
    words    levels without an order      levels   ordered categories           -> 0, 1, ..., K - 1

    wide (row; columns)  <->  long (row, column, value), row by row, columns in their order

What is learnt is kept with a model: which columns there are, in which order, and their levels by name. Levels without
an order are numbered so that those which go with the same values of other columns are neighbours: the first axis of a
correspondence analysis. A row's name is its entry in the id column, else a digest of what it holds, so that rows that
were seen are known again wherever they stand.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, final

import numpy as np

from efattn.data.columns import Notes, is_dated, is_text, numbers, plain
from efattn.data.roles import Codes, codes_of
from efattn.data.table import Table
from efattn.errors import DataError, Note, named, option

if TYPE_CHECKING:
    import polars as pl

GROUP, ITEM, VALUE = "row", "column", "value"  # the columns of the long table
MOST_LEVELS = 50  # of a column of words: more are names
KINDS = ("number", "truth", "words", "levels")
TRUTH = ("false", "true")


@final
@dataclass(frozen=True)
class WideColumn:
    """levels: the words that are numbered 0, 1, ...; none of a column of numbers."""

    name: str
    kind: str
    levels: tuple[str, ...] = ()


@final
@dataclass(frozen=True)
class Wide:
    """id: the column that names rows; missing: codes that stand for a missing cell; columns: those that are modelled,
    in the order of the table."""

    columns: tuple[WideColumn, ...]
    id: str | None = None
    missing: Codes = ()

    @classmethod
    def fit(
        cls, table: Table, id: str | None = None, exclude: Sequence[str] = (), missing: Any = None
    ) -> tuple["Wide", Notes]:
        """What is learnt of a table, and what there is to say of it."""
        left_out = [exclude] if isinstance(exclude, str) else list(exclude)
        table.require([] if id is None else [id], "id")
        table.require(left_out, "exclude")
        if not len(table):
            raise DataError("The table has no rows: there is nothing to fit.")
        wide, notes, found = cls((), id, codes_of(missing)), Notes(), list[WideColumn]()
        for name in table.names:
            if name != id and name not in left_out:
                one = wide._kind(table.column(name))
                if isinstance(one, WideColumn):
                    found.append(one)
                else:
                    notes.append(_left_out(name, one))
        if not found:
            raise DataError(
                f"There is no column to model: name fewer in {named('exclude')}, or check what the table holds."
            )
        return replace(wide, columns=tuple(found))._numbered(table), notes

    def _kind(self, column: "pl.Series") -> WideColumn | str:
        """Of a column that is not modelled, why not."""
        import polars as pl

        name, s = column.name, self._blank(column)
        if s.null_count() == len(s):
            return "has no entry at all"
        if isinstance(column.dtype, pl.Enum):
            return WideColumn(name, "levels", tuple(column.dtype.categories.to_list()))
        if s.dtype == pl.Boolean:
            return WideColumn(name, "truth", TRUTH)
        if s.dtype.is_temporal() or is_dated(s):
            return "holds dates"
        if not is_text(s):
            truth = s.dtype == pl.String and _is_truth(s)
            return WideColumn(name, "truth", TRUTH) if truth else WideColumn(name, "number")
        levels = tuple(s.unique().drop_nulls().sort().to_list())
        if len(levels) > MOST_LEVELS:
            return f"holds {len(levels)} different words, which are names rather than answers"
        if len(levels) == 1:
            return f"is {levels[0]!r} throughout"
        return WideColumn(name, "words", levels)

    def _blank(self, column: "pl.Series") -> "pl.Series":
        """Plain, with null for text that is empty or stands for a missing cell."""
        import polars as pl

        s = plain(column)
        if s.dtype != pl.String:
            return s
        words = [code for code in self.missing if isinstance(code, str)]
        return s.set(s.str.strip_chars().is_in(["", *words]), None)

    def _numbered(self, table: Table) -> "Wide":
        """With levels in the order in which they go together with the other columns."""
        several = [c for c, one in enumerate(self.columns) if one.kind == "words" and len(one.levels) > 2]
        if not several:
            return self
        codes, columns = self.codes(table), list(self.columns)
        parts = [_features(codes[:, c], len(one.levels)) for c, one in enumerate(self.columns)]
        for c in several:
            others = [part for k, part in enumerate(parts) if k != c]
            levels = columns[c].levels
            order = _first_axis(codes[:, c], len(levels), np.concatenate(others, 1) if others else None)
            columns[c] = replace(columns[c], levels=tuple(levels[k] for k in order))
        return replace(self, columns=tuple(columns))

    # ---- there

    def __len__(self) -> int:
        return len(self.columns)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    def codes(self, table: Table, notes: Notes | None = None) -> np.ndarray:
        """(row, column): NaN where a cell is missing; a column that is not there is missing throughout."""
        said = Notes() if notes is None else notes
        absent = [name for name in self.names if name not in table.names]
        if len(absent) == len(self):
            table.require(absent[:1], "column")
        if absent:
            text = f"Columns that are not there count as missing: {', '.join(map(repr, absent[:6]))}."
            said.append(Note("missing column", text, column=absent[0], important=True))
        out = np.full((len(table), len(self)), np.nan)
        for c, column in enumerate(self.columns):
            if column.name in table.names:
                out[:, c] = self._codes(table.column(column.name), column, said, table.first_row)
        return out

    def _codes(self, entries: "pl.Series", column: WideColumn, notes: Notes, first: int) -> np.ndarray:
        import polars as pl

        if column.kind in ("number", "truth"):
            return numbers(entries, "value", notes, self.missing, first=first)
        s = self._blank(entries)
        if s.dtype not in (pl.String, pl.Null):
            said = f"Column {s.name!r} holds {s.dtype}; it was fitted on words such as {column.levels[0]!r}."
            raise DataError(f"{said} Convert it to text.", column=s.name)
        places = np.arange(len(column.levels))
        code = s.cast(pl.String).replace_strict(list(column.levels), places, default=None).cast(pl.Float64)
        unknown = (code.is_null() & s.is_not_null()).arg_true()
        if len(unknown):
            row, listed = int(unknown[0]), ", ".join(repr(level) for level in column.levels[:12])
            said = f"Column {s.name!r} was fitted on the levels {listed}; found {s[row]!r} at row {first + row}."
            raise DataError(f"{said} Make it null, or mend it.", column=s.name, row=first + row)
        return code.fill_null(float("nan")).to_numpy()

    def long(self, table: Table, codes: np.ndarray | None = None, notes: Notes | None = None) -> Table:
        """Row by row, columns in their order. codes: where they are known already."""
        import polars as pl

        values = self.codes(table, notes) if codes is None else codes
        names, places = self._row_names(table, values), np.arange(len(values))
        columns = {
            GROUP: names.gather(np.repeat(places, len(self))),
            ITEM: pl.Series(self.names).gather(np.tile(np.arange(len(self)), len(values))),
            VALUE: pl.Series(values.reshape(-1)).fill_nan(None),
        }
        return Table.read(pl.DataFrame(columns))

    def _row_names(self, table: Table, codes: np.ndarray) -> "pl.Series":
        import polars as pl

        if self.id is None:
            return pl.Series(_digests(codes), dtype=pl.String)
        names = table.column(self.id, "id")
        twice = names.is_duplicated().arg_true() if names.null_count() == 0 else names.is_null().arg_true()
        if len(twice):
            row = int(twice[-1])
            what = f"is null at row {row}" if names[row] is None else f"has {names[row]!r} twice, at row {row} again"
            raise DataError(
                f"The id column names each row once; {self.id!r} {what}. Name another, or leave {option('id')} out.",
                column=self.id,
                row=row,
                option="id",
            )
        return names

    # ---- and back

    def decoded(self, number: int, codes: np.ndarray) -> "pl.Series":
        """Entries of a column by their codes; null for NaN."""
        import polars as pl

        column = self.columns[number]
        if column.kind == "number":
            return pl.Series(column.name, codes).fill_nan(None)
        there = ~np.isnan(codes)
        places = pl.Series(np.where(there, codes, 0).round().astype(np.int64)).set(pl.Series(~there), None)
        if column.kind == "truth":
            return (places == 1).alias(column.name)
        return pl.Series(column.levels, dtype=pl.String).gather(places).alias(column.name)

    def to_json(self) -> dict[str, Any]:
        columns = [{"name": x.name, "kind": x.kind, "levels": list(x.levels)} for x in self.columns]
        return {"columns": columns, "id": self.id, "missing": list(self.missing)}

    @classmethod
    def from_json(cls, saved: Mapping[str, Any]) -> "Wide":
        """A DataError for what no fit has written."""
        columns = tuple(WideColumn(x["name"], x["kind"], tuple(x["levels"])) for x in saved["columns"])
        words = [word for column in columns for word in (column.name, *column.levels)]
        wrong = not columns or not all(isinstance(word, str) for word in words)
        wrong |= len({column.name for column in columns}) != len(columns)
        wrong |= not isinstance(saved["id"], str | None)
        for column in columns:
            wrong |= column.kind not in KINDS or (column.kind == "number") == bool(column.levels)
            wrong |= len(set(column.levels)) != len(column.levels)
        if wrong:
            raise DataError("its wide columns are none")
        return cls(columns, saved["id"], codes_of(saved["missing"]))


def _left_out(name: str, why: str) -> Note:
    said = f"Column {name!r} {why}: it is not modelled, and stays as it is."
    return Note("left out", said, column=name, option="exclude", important=True)


def _is_truth(s: "pl.Series") -> bool:
    return bool(s.str.strip_chars().str.to_lowercase().is_in(TRUTH).fill_null(True).all())


def _features(codes: np.ndarray, levels: int) -> np.ndarray:
    """(row, any) of unit spread, 0 where missing: a column as it is, or one for each of its levels."""
    x = codes[:, None] if levels <= 2 else (codes[:, None] == np.arange(levels)).astype(float)
    x = np.where(np.isnan(codes)[:, None], np.nan, x)
    there = ~np.isnan(x)
    count = np.maximum(there.sum(0), 1)
    centre = np.where(there, x, 0).sum(0) / count
    rest = np.where(there, x - centre, 0.0)
    spread = np.sqrt((rest**2).sum(0) / count)
    return rest / np.where(spread > 0, spread, 1.0)


def _first_axis(code: np.ndarray, levels: int, others: np.ndarray | None) -> np.ndarray:
    """The levels in the order of their places on the axis along which the means of the others differ most."""
    if others is None:
        return np.arange(levels)
    member = code[:, None] == np.arange(levels)
    weight = np.maximum(member.sum(0), 1) / len(code)
    means = (member.T @ others) / np.maximum(member.sum(0), 1)[:, None]
    means = means - (weight[:, None] * means).sum(0) / weight.sum()
    place = np.linalg.svd(np.sqrt(weight)[:, None] * means, full_matrices=False)[0][:, 0] / np.sqrt(weight)
    place = np.round(place / max(np.abs(place).max(), 1e-12), 9)
    return np.argsort(place if place[0] <= place[-1] else -place, kind="stable")


def _digests(codes: np.ndarray) -> list[str]:
    """Of what each row holds; the second of the same has a number behind."""
    seen, names = dict[str, int](), list[str]()
    for row in np.ascontiguousarray(np.where(np.isnan(codes), np.nan, codes)):
        name = hashlib.blake2b(row.tobytes(), digest_size=8).hexdigest()
        seen[name] = seen.get(name, 0) + 1
        names.append(name if seen[name] == 1 else f"{name} {seen[name]}")
    return names
