"""The columns of a table that have a role, each read once.

    numbered names of groups, items and series; ranks and times; values, attributes, weights as float64

Everything is in the order of the table. A column of words is read by its levels: an ordered category that is a value as
0 .. K-1, an attribute as one column of 0 and 1 per level. An attribute that is not known is none of its levels, or its
column's median with one more column of 0 and 1 that says so.
"""

from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, final

import numpy as np

from efattn.data.columns import SMALLEST, Notes, flags, is_absent, is_text, moments, numbers, plain, ranks, refuse_nulls
from efattn.data.keys import distinct
from efattn.data.names import Names
from efattn.data.roles import Roles, nearest
from efattn.data.table import Table
from efattn.errors import DataError, Note, option

if TYPE_CHECKING:
    import polars as pl

Levels = Mapping[str, tuple[str, ...]]


class Fill(NamedTuple):
    """What an attribute is read as where it is null; told: whether that is an attribute of its own, as it is where some
    were null when fitted."""

    number: float
    told: bool


Fills = Mapping[str, Fill]
MOST_LEVELS = 30  # of one attribute: the rest are seldom, and count as none of them
_A = {"group": "a group", "item": "an item", "series": "a series"}
_OPTIONAL = ("value", "weight", "target")  # roles a table to predict on may lack


@final
class Reading:
    """need: which of value, weight and target must be there; sort: groups are numbered by their names."""

    def __init__(self, source: Table, roles: Roles, need: Collection[str] = _OPTIONAL, *, sort: bool = False) -> None:
        self.source, self.roles, self.sort, self.first = source, roles, sort, source.first_row
        self.notes: Notes = []
        self.joined: set[str] = set()  # columns of words that had too many
        self.absent = {n for r in _OPTIONAL if r not in need for n in roles.of(r) if n not in source.names}
        for name in roles.of("value"):
            near = nearest(name, source.names) if name in self.absent else ""
            if near:
                said = f"There is no column {name!r}: its values count as missing.{near}"
                self.notes.append(Note("missing column", said, column=name, important=True))

    def __len__(self) -> int:
        return len(self.source)

    def _named(self, role: str, sort: bool) -> tuple[np.ndarray, Names]:
        columns = self.source.columns(self.roles.of(role), role)
        number, names = distinct(columns, role, len(self), sort=sort, first=self.first)
        for column, kind, mine in zip(columns, names.kinds, names.columns, strict=True):
            if kind == "number":
                many = 2 * len(np.unique(mine)) > len(self)
                said = f"Column {column.name!r} has fractions: each number in it names {_A[role]}."
                said += " Few rows share one: is it a measurement?" if many else ""
                self.notes.append(Note("names", said, column=column.name, important=many))
        return number, names

    @cached_property
    def group(self) -> tuple[np.ndarray, Names]:
        """The number of each row's group, and the groups' names."""
        number, names = self._named("group", self.sort)
        self._refuse(number < 0, "group")
        return number, names

    @cached_property
    def item(self) -> tuple[np.ndarray, Names]:
        """The number of each row's item among the names, which are sorted; -1 for none."""
        return self._named("item", True)

    @cached_property
    def order(self) -> np.ndarray | None:
        """What rows of a group are sorted by."""
        names = self.roles.of("order")
        return ranks(self.source.column(names[0], "order"), "order", self.notes, first=self.first) if names else None

    @cached_property
    def when(self) -> tuple[np.ndarray, str]:
        """The time of each row, where the order is one, and its kind."""
        names = self.roles.of("order")
        if not names:
            said = f"The time between rows is asked for: pass {option('order')}, a column of times or numbers."
            raise DataError(said, option="order")
        return moments(self.source.column(names[0], "order"), "order", [], first=self.first)

    @cached_property
    def group_times(self) -> tuple[np.ndarray, np.ndarray, str]:
        """(group,): the time and the series of each group; and the kind of the time."""
        name = self.roles.of("time")[0]
        time, kind = moments(self.source.column(name, "time"), "time", self.notes, first=self.first)
        series, _ = self._named("series", False)
        self._refuse(series < 0, "series")
        return self._of_groups(time, "time"), self._of_groups(series, "series"), kind

    def _of_groups(self, column: np.ndarray, role: str) -> np.ndarray:
        return of_groups(*self.group, column, role, self.roles, self.first)

    def levels(self) -> dict[str, tuple[str, ...]]:
        """Of the columns that are words: ordered categories or two words that are values, text that is an attribute."""
        import polars as pl

        levels: dict[str, tuple[str, ...]] = {}
        for role in ("value", "attributes"):
            for name in self.roles.of(role):
                column = self.source.column(name, role)
                if not is_text(column):
                    continue
                ordered = isinstance(column.dtype, pl.Enum)
                known = column.dtype.categories if isinstance(column.dtype, pl.Enum) else self._words(column, role)
                if role == "attributes":
                    levels[name] = self._frequent(plain(column), tuple(known.to_list()))
                elif ordered or (len(known) == 2 and known.cast(pl.Float64, strict=False).null_count() == 2):
                    levels[name] = tuple(known.to_list())
                    said = ", ".join(f"{k} for {level!r}" for k, level in enumerate(known))
                    said = f"Column {name!r} holds {'ordered categories' if ordered else 'two words'}, read as {said}."
                    self.notes.append(Note("categories", said, column=name))
        return levels

    def _words(self, column: "pl.Series", role: str) -> "pl.Series":
        """The words there are, by the alphabet; of values without those that stand for a missing one."""
        known = plain(column).unique().drop_nulls().sort()
        return known.filter(~self._absent(known)) if role == "value" else known

    def _absent(self, column: "pl.Series") -> "pl.Series":
        """Where a value of words is a word for a missing one."""
        assert isinstance(self.roles.missing, tuple)
        return is_absent(column, [code for code in self.roles.missing if isinstance(code, str)])

    def _frequent(self, column: "pl.Series", levels: tuple[str, ...]) -> tuple[str, ...]:
        """The most frequent of the levels of an attribute."""
        counts = dict(column.value_counts().iter_rows()) if len(levels) > MOST_LEVELS else {}
        kept, note = frequent(column.name, levels, counts)
        self.joined |= {column.name} if len(kept) < len(levels) else set()
        self.notes.append(note)
        return kept

    def folded(self) -> dict[str, np.ndarray]:
        """(row,): the number of each word in columns that had too many for all of them to be levels."""
        columns = {name: plain(self.source.column(name, "attributes")) for name in self.joined}
        return {name: column.rank("dense").to_numpy() for name, column in columns.items()}

    def fills(self, levels: Levels) -> dict[str, Fill]:
        """The medians of attributes that are numbers; one that is null throughout is refused."""
        fills = {}
        for name in (n for n in self.roles.of("attributes") if n not in levels):
            column = self.source.column(name, "attributes")
            y = numbers(column, "attributes", [], first=self.first)
            null = np.isnan(y)
            if null.all():
                refuse_nulls(plain(column), "attributes", null, first=self.first)
            fills[name] = Fill(float(np.median(y[~null])), bool(null.any()))
            if fills[name].told:
                self._filled(name, null, fills[name], "and an attribute that is 1 there")
        return fills

    def _filled(self, name: str, null: np.ndarray, fill: Fill, more: str, important: bool = False) -> None:
        said = f"Attribute {name!r} is null in {int(null.sum())} of {len(null)} rows: they have its median, "
        note = Note("null attributes", f"{said}{fill.number:g}, {more}.", column=name, important=important)
        self.notes.append(note)

    def matrix(self, role: str, levels: Levels, fills: Fills) -> np.ndarray | None:
        """(row, column): values or attributes; an absent column is NaN."""
        names = self.roles.of(role)
        none = np.full((len(self), 1), np.nan)
        parts = [none if name in self.absent else self.columns_of(name, role, levels, fills) for name in names]
        return (parts[0] if len(parts) == 1 else np.concatenate(parts, 1)) if parts else None

    def columns_of(self, name: str, role: str, levels: Levels, fills: Fills) -> np.ndarray:
        """(row, 1), of an attribute of words (row, level), of one that was null when fitted (row, 2)."""
        column = self.source.column(name, role)
        if name in levels:
            code = self._codes(column, role, levels[name])
            return code[:, None] if role == "value" else (code[:, None] == np.arange(len(levels[name]))).astype(float)
        missing = self.roles.missing if role == "value" else ()
        assert isinstance(missing, tuple)
        fill = fills.get(name) if role == "attributes" else None
        complete = role == "attributes" and fill is None
        y = numbers(column, role, self.notes, missing, complete=complete, first=self.first)
        null = np.isnan(y)
        if fill is not None and null.any() and not fill.told:
            self._filled(name, null, fill, "as none was null when the model was fitted", important=True)
        if fill is not None:
            y = np.where(null, fill.number, y)
            return np.stack([y, null], 1) if fill.told else y[:, None]
        if role == "value" and np.isfinite(y).sum() > 1 and np.nanmin(y) == np.nanmax(y):
            said = f"Column {name!r} is constant ({np.nanmin(y):g})."
            self.notes.append(Note("constant", said, column=name))
        return y[:, None]

    def _codes(self, column: "pl.Series", role: str, levels: Sequence[str]) -> np.ndarray:
        """Which level each row has, NaN for none and for one that is not known."""
        import polars as pl

        s = plain(column)
        if s.dtype not in (pl.String, pl.Null):
            said = f"Column {s.name!r} (role {role}) holds {s.dtype}; it was fitted on words such as {levels[0]!r}."
            raise DataError(f"{said} Convert it to text.", column=s.name)
        code = s.cast(pl.String).replace_strict(list(levels), np.arange(len(levels)), default=None).cast(pl.Float64)
        strange = code.is_null() & s.is_not_null()
        unknown = (strange & ~self._absent(s.cast(pl.String)) if role == "value" else strange).arg_true()
        if len(unknown):
            row = int(unknown[0])
            where = f"{s[row]!r} at row {self.first + row}"
            if role == "value":
                listed = ", ".join(repr(level) for level in levels[:12])
                said = f"Column {s.name!r} was fitted on the levels {listed}; found {where}. Make it null, or mend it."
                raise DataError(said, column=s.name, row=self.first + row)
            said = f"Unknown words in column {s.name!r} in {len(unknown)} of {len(s)} rows (the first: {where})"
            said += ": they count as none of the levels."
            every = len(levels) != MOST_LEVELS  # else they may be among those that were too seldom
            note = Note("unknown levels", said, column=s.name, row=self.first + row, important=every)
            self.notes.extend([] if s.name in self.joined else [note])
        return code.to_numpy()

    def weight(self) -> np.ndarray | None:
        return self._factor("weight", ">= 0", "Use 0 for rows that should not count.")

    def exposure(self) -> np.ndarray | None:
        return self._factor("exposure", "> 0", "Drop rows with no exposure.")

    def noise(self) -> np.ndarray | None:
        return self._factor("noise", ">= 0", "Use 0 for values that are exact.")

    def target(self) -> np.ndarray | None:
        names = [n for n in self.roles.of("target") if n not in self.absent]
        if not names:
            return None
        return flags(self.source.column(names[0], "target"), "target", self.notes, first=self.first)

    def _factor(self, role: str, bound: str, remedy: str) -> np.ndarray | None:
        """Positive numbers, or 0 where the bound allows it."""
        names = [n for n in self.roles.of(role) if n not in self.absent]
        if not names:
            return None
        y = numbers(self.source.column(names[0], role), role, self.notes, complete=True, first=self.first)
        tiny = (y > 0) & (y < SMALLEST) & (role == "exposure")  # a weight may vanish, a rate may not
        for bad, needed, mend in (
            (y < 0 if bound == ">= 0" else y <= 0, bound, remedy),
            (tiny, f"{bound}, of which the smallest is {SMALLEST:.2g}", "Multiply the column by a constant."),
        ):
            if bad.any():
                row = int(np.flatnonzero(bad)[0])
                raise DataError(
                    f"The role {role} needs numbers {needed}; column {names[0]!r} has {y[row].item()!r} at row "
                    f"{self.first + row}. {mend}",
                    column=names[0],
                    row=self.first + row,
                )
        return y

    def _refuse(self, null: np.ndarray, role: str) -> None:
        if null.any():
            names = self.roles.of(role)
            row = self.first + int(np.flatnonzero(null)[0])
            raise DataError(
                f"The role {role} allows no nulls; column {' or '.join(map(repr, names))} is null at row {row} "
                f"({int(null.sum())} of {len(null)} rows). Fill these rows in or drop them.",
                column=names[0],
                row=row,
            )


def of_groups(
    number: np.ndarray, labels: Names, column: np.ndarray, role: str, roles: Roles, first: int | np.ndarray = 0
) -> np.ndarray:
    """(group,): a column that is the same throughout each group; else an error about the first row that differs.
    first: the number of the first row, or of each."""
    entries = np.empty(len(labels) if len(number) else 0, column.dtype)
    entries[number[::-1]] = column[::-1]  # the first row of a group is written last
    differs = np.flatnonzero(column != entries[number])
    if differs.size:
        i, name = int(differs[0]), roles.of(role)[0]
        row = first + i if isinstance(first, int) else int(first[i])
        whose = labels.words(int(number[i]), roles.of("group")) or "the only group"
        raise DataError(
            f"With lags a group has one {role}; column {name!r} differs within {whose} at row {row}. "
            f"Let each {role} be its own group.",
            column=name,
            row=row,
        )
    return entries


def frequent(name: str, levels: tuple[str, ...], counts: Mapping[str, int]) -> tuple[tuple[str, ...], Note]:
    """The most frequent of the levels of an attribute, in their order; of two that are as frequent, the first."""
    said = f"Column {name!r} holds words: {len(levels)} levels, each an attribute that is 1 or 0."
    if len(levels) > MOST_LEVELS:
        often = sorted(levels, key=lambda level: -counts.get(level, 0))[:MOST_LEVELS]
        levels = tuple(level for level in levels if level in often)
        said = f"Column {name!r} holds {len(counts)} different words: the {MOST_LEVELS} most frequent are "
        said += "attributes that are 1 or 0, the rest count as none of them."
    return levels, Note("categories", said, column=name)
