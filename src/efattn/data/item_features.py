"""What is known of items beyond their names: a second table, keyed by the item's columns.

    words, truth values    levels: an item has each of its n levels of a column 1 / sqrt(n) times
    numbers, dates         in units of their spread over the items of the fit; a missing one is the mean, and has a
                           level of its own
    lists                  of numbers with a fraction: a vector, each entry a number; of words or whole numbers: levels

A level counts if an item of the fit has it, and another item too. Several rows of one item are several of its levels;
of a number with a fraction they are a mistake.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, final

import numpy as np

from efattn.data.columns import plain
from efattn.data.keys import distinct
from efattn.data.names import Names, texts
from efattn.data.table import Table
from efattn.data.vocabulary import Vocabulary
from efattn.errors import DataError, Note, counted, named

if TYPE_CHECKING:
    import polars as pl

FAR = 5.0  # spreads from the mean, beyond which a number counts no further
GONE = "missing"  # the level of an item whose number is
ROLE = "item_features"


class Column(NamedTuple):
    """levels: their names; numbers: how many; gap: whether there are items without a number, which is then a level."""

    name: str
    levels: tuple[str, ...] = ()
    numbers: int = 0
    gap: bool = False


@final
@dataclass(frozen=True, eq=False)
class ItemFeatures:
    """Of items 0, 1, ...: those at `offsets`[i] .. `offsets`[i + 1] are i's levels, each `amount` times; `numbers`
    (item, number) are standardised. centre, scale (number,): their units. trained: so many items were there in the fit,
    the others are known by their features alone."""

    columns: tuple[Column, ...]
    centre: np.ndarray
    scale: np.ndarray
    offsets: np.ndarray
    level: np.ndarray
    amount: np.ndarray
    numbers: np.ndarray
    trained: int

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def levels(self) -> int:
        """In all."""
        return sum(len(column.levels) for column in self.columns)

    @property
    def described(self) -> int:
        """Items that have any."""
        return int(((np.diff(self.offsets) > 0) | (self.numbers != 0).any(1)).sum())

    @property
    def fingerprint(self) -> str:
        """Of all that is known."""
        made = hashlib.sha256(repr(self.columns).encode())
        for x in self.arrays().values():
            made.update(np.ascontiguousarray(x).tobytes())
        return made.hexdigest()

    @classmethod
    def read(cls, table: Any, vocabulary: Vocabulary) -> tuple["ItemFeatures", Vocabulary, list[Note]]:
        """Of the items of the vocabulary and then those of the table that are not in it; the vocabulary of both; and
        what to tell."""
        source, place, whole = _keyed(table, vocabulary)
        names = [name for name in source.names if name not in vocabulary.columns]
        if not names:
            said = f"{named(ROLE)} has no column besides {', '.join(map(repr, vocabulary.columns))}: nothing to learn."
            raise DataError(said, option=ROLE)
        trained, notes, read = len(vocabulary), list[Note](), list[_Read]()
        if not (place < trained).any():
            said = f"None of the items in {named(ROLE)} is in the table that is fitted. Check their names and types."
            raise DataError(said, column=vocabulary.columns[0], option=ROLE)
        for name in names:
            read.append(_Read.of(source.column(name, ROLE), place, whole, notes))
        columns = tuple(one.column(trained, notes) for one in read)
        x = _joined(read, len(whole))
        known = np.ma.masked_invalid(x[:trained])
        centre, spread = np.asarray(known.mean(0).filled(0.0)), np.asarray(known.std(0).filled(0.0))
        scale = np.where(spread > 1e-9 * (1 + np.abs(centre)), spread, 1.0)
        empty = np.zeros((0,))
        spec = cls(columns, centre, scale, np.zeros(1, np.int64), empty.astype(np.int64), empty, empty, trained)
        made = spec._filled(read, x, len(whole))
        notes += _about(made, vocabulary, len(whole) - trained)
        return made, whole, notes

    def of(self, table: Any, vocabulary: Vocabulary) -> tuple["ItemFeatures", Vocabulary]:
        """The same with items that are new in this table, in the same units; and their vocabulary."""
        source, place, whole = _keyed(table, vocabulary)
        source.require([column.name for column in self.columns], ROLE)
        read = [_Read.of(source.column(column.name, ROLE), place, whole, []) for column in self.columns]
        for one, column in zip(read, self.columns, strict=True):
            if (0 if one.numbers is None else one.numbers.shape[1]) != column.numbers:
                said = f"Column {column.name!r} of {named(ROLE)} holds other things than in the fit."
                raise DataError(said, column=column.name, option=ROLE)
        new = self._filled(read, _joined(read, len(whole)), len(whole))
        return self.extended(len(self)).followed_by(new.some(np.arange(len(self), len(whole)))), whole

    def _filled(self, read: Sequence["_Read"], x: np.ndarray, items: int) -> "ItemFeatures":
        """Of so many items, in these units."""
        item, level, amount, first = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)], [np.zeros(0)], 0
        at = 0
        for one, column in zip(read, self.columns, strict=True):
            if one.levels is not None:
                mine = one.levels_of(column.levels)
                number = np.bincount(mine[0], minlength=items)
                item.append(mine[0])
                level.append(mine[1] + first)
                amount.append(number[mine[0]] ** -0.5)
            elif column.gap:
                gone = np.flatnonzero(np.isnan(x[:, at : at + column.numbers]).any(1) & one.there(items))
                item.append(gone)
                level.append(np.full(len(gone), first))
                amount.append(np.ones(len(gone)))
            first, at = first + len(column.levels), at + column.numbers
        order = np.argsort(np.concatenate(item), kind="stable")
        units = np.clip(np.nan_to_num((x - self.centre) / self.scale, nan=0.0), -FAR, FAR)
        return replace(
            self,
            offsets=np.concatenate([[0], np.cumsum(np.bincount(np.concatenate(item), minlength=items))]),
            level=np.concatenate(level)[order],
            amount=np.concatenate(amount)[order].astype(np.float32),
            numbers=units.astype(np.float32),
        )

    def some(self, items: np.ndarray) -> "ItemFeatures":
        """Of these alone, numbered anew; items: numbers in order."""
        length = np.diff(self.offsets)[items]
        offsets = np.concatenate([[0], np.cumsum(length)])
        rows = np.arange(offsets[-1]) + np.repeat(self.offsets[items] - offsets[:-1], length)
        trained = int((items < self.trained).sum())
        more: dict[str, Any] = {"level": self.level[rows], "amount": self.amount[rows], "numbers": self.numbers[items]}
        return replace(self, offsets=offsets, **more, trained=trained)

    def first(self) -> "ItemFeatures":
        """Of the items of the fit."""
        return self.some(np.arange(self.trained))

    def extended(self, items: int) -> "ItemFeatures":
        """Of so many, of which nothing is known but of these."""
        more = items - len(self)
        offsets = np.concatenate([self.offsets, np.full(more, self.offsets[-1])])
        return replace(self, offsets=offsets, numbers=np.pad(self.numbers, ((0, more), (0, 0))))

    def followed_by(self, other: "ItemFeatures") -> "ItemFeatures":
        """These items and then those, in the same units."""
        return replace(
            self,
            offsets=np.concatenate([self.offsets, self.offsets[-1] + other.offsets[1:]]),
            level=np.concatenate([self.level, other.level]),
            amount=np.concatenate([self.amount, other.amount]),
            numbers=np.concatenate([self.numbers, other.numbers]),
        )

    def having(self, column: str, levels: Sequence[Any]) -> np.ndarray:
        """(item,), truth values: those with one of these levels of a column."""
        first = 0
        for one in self.columns:
            if one.name != column:
                first += len(one.levels)
                continue
            if one.numbers:
                said = f"Column {column!r} of {named(ROLE)} holds numbers, and no levels to choose from."
                raise DataError(said, column=column, option="among")
            number = {level: first + k for k, level in enumerate(one.levels)}
            unknown = [level for level in map(_word, levels) if level not in number]
            if unknown:
                some = ", ".join(map(repr, one.levels[:5]))
                said = f"Column {column!r} of {named(ROLE)} has no level {unknown[0]!r}; there are {some}, ..."
                raise DataError(said, column=column, option="among")
            wanted = np.isin(self.level, [number[_word(level)] for level in levels])
            return np.bincount(np.repeat(np.arange(len(self)), np.diff(self.offsets))[wanted], minlength=len(self)) > 0
        there = ", ".join(repr(one.name) for one in self.columns)
        raise DataError(f"{named(ROLE)} has no column {column!r}; there are {there}.", column=column, option="among")

    def to_json(self) -> dict[str, Any]:
        told = [{"name": c.name, "levels": len(c.levels), "numbers": c.numbers, "gap": c.gap} for c in self.columns]
        return {"columns": told, "trained": self.trained}

    def arrays(self) -> dict[str, np.ndarray]:
        names = texts([level for column in self.columns for level in column.levels])
        parts = ("centre", "scale", "offsets", "level", "amount", "numbers")
        saved = {name: np.ascontiguousarray(getattr(self, name)) for name in parts}
        return saved | {f"names.{name}": x for name, x in Names(("text",), (names,)).arrays().items()}

    @classmethod
    def from_saved(cls, saved: Mapping[str, Any], arrays: Mapping[str, Any]) -> "ItemFeatures":
        mine = {name.removeprefix("names."): x for name, x in arrays.items() if name.startswith("names.")}
        names = iter(Names.from_saved(("text",), mine).tolist())
        columns = tuple(
            Column(str(one["name"]), tuple(next(names) for _ in range(one["levels"])), int(one["numbers"]), one["gap"])
            for one in saved["columns"]
        )
        parts = ("centre", "scale", "offsets", "level", "amount", "numbers")
        found = {name: np.asarray(arrays[name]) for name in parts}
        made = cls(columns, **found, trained=int(saved["trained"]))
        level, offsets = made.level, made.offsets
        whole = offsets.ndim == 1 and len(offsets) and offsets[0] == 0 and (np.diff(offsets) >= 0).all()
        fits = whole and offsets[-1] == len(level) == len(made.amount) and made.numbers.ndim == 2
        if not fits or made.numbers.shape != (len(made), sum(c.numbers for c in columns)):
            raise DataError("its item features do not fit together")
        if len(level) and not 0 <= level.min() <= level.max() < made.levels:
            raise DataError("its item features have levels that there are not")
        return made


@final
@dataclass(frozen=True, eq=False)
class _Read:
    """One column. item (any,), levels (any,): pairs, each once; or numbers (item, any), NaN where they are missing, of
    which the table has the items `item`."""

    name: str
    item: np.ndarray
    levels: "pl.Series | None" = None
    numbers: np.ndarray | None = None

    @classmethod
    def of(cls, column: "pl.Series", place: np.ndarray, whole: Vocabulary, notes: list[Note]) -> "_Read":
        """place: (row,), whose features each row has."""
        import polars as pl

        x, name = plain(column), column.name
        inner = x.dtype.inner if isinstance(x.dtype, pl.List | pl.Array) else None
        if inner is not None:
            if inner.is_float():
                return cls._vectors(x, place, whole)
            pairs = pl.DataFrame({"item": place, "level": x.cast(pl.List(inner))}).explode("level")
            return cls._bag(name, pairs)
        pairs = pl.DataFrame({"item": place, "level": x})
        if not (x.dtype.is_numeric() or x.dtype.is_temporal()):
            return cls._bag(name, pairs)
        each = pairs.drop_nulls().unique(maintain_order=True)
        twice = each.filter(pl.col("item").is_duplicated())
        if len(twice) and x.dtype.is_integer():
            said = f"Column {name!r} of {named(ROLE)} has several entries of one item: each is taken for a level."
            notes.append(Note("several entries", said, column=name, option=ROLE))
            return cls._bag(name, pairs)
        if len(twice):
            item = int(twice["item"][0])
            one, two = twice.filter(pl.col("item") == item)["level"][:2]
            said = f"Column {name!r} of {named(ROLE)} has {one} and {two} for {whole.words(item)}: a number is one."
            raise DataError(said, column=name, row=int(np.flatnonzero(place == item)[1]), option=ROLE)
        number = (x.to_physical() if x.dtype.is_temporal() else x).cast(pl.Float64).fill_null(np.nan).to_numpy()
        return cls(name, place, numbers=_by_item(_finite(number[:, None], name, place, whole), place, len(whole)))

    @classmethod
    def _bag(cls, name: str, pairs: "pl.DataFrame") -> "_Read":
        import polars as pl

        kept = pairs.with_columns(pl.col("level").cast(pl.String)).drop_nulls().unique(maintain_order=True)
        return cls(name, kept["item"].to_numpy(), levels=kept["level"])

    @classmethod
    def _vectors(cls, x: "pl.Series", place: np.ndarray, whole: Vocabulary) -> "_Read":
        import polars as pl

        x = x.cast(pl.List(pl.Float64))
        kept = x.is_not_null().to_numpy()
        length, items = x.list.len().to_numpy(), place[kept]
        if len(np.unique(items)) < len(items):
            item = int(items[np.flatnonzero(np.bincount(items)[items] > 1)[0]])
            said = f"Column {x.name!r} of {named(ROLE)} has several lists for {whole.words(item)}: a vector is one."
            raise DataError(said, column=x.name, row=int(np.flatnonzero(place == item)[1]), option=ROLE)
        odd = kept & (length != (length[kept][0] if kept.any() else 0))
        if odd.any():
            row = int(np.flatnonzero(odd)[0])
            said = f"Column {x.name!r} of {named(ROLE)} has a list of {int(length[row])} numbers for "
            said += f"{whole.words(int(place[row]))}, and of {int(length[kept][0])} before: vectors have one length."
            raise DataError(said, column=x.name, row=row, option=ROLE)
        size = int(length[kept][0]) if kept.any() else 0
        flat = x.filter(pl.Series(kept)).explode().fill_null(np.nan).to_numpy().reshape(-1, size)
        numbers = np.full((len(place), size), np.nan)
        numbers[kept] = flat
        return cls(x.name, place, numbers=_by_item(_finite(numbers, x.name, place, whole), place, len(whole)))

    def column(self, trained: int, notes: list[Note]) -> Column:
        """What is learnt of it from the items of the fit."""
        if self.numbers is not None:
            gap = bool(np.isnan(self.numbers[self.item[self.item < trained]]).any())
            return Column(self.name, (GONE,) if gap else (), self.numbers.shape[1], gap)
        assert self.levels is not None
        seen = self.levels.filter(self.item < trained).unique()
        shared = self.levels.filter(self.levels.is_duplicated()).unique()
        kept = tuple(sorted(set(seen.to_list()) & set(shared.to_list())))
        if not kept:
            said = f"Column {self.name!r} of {named(ROLE)} has no effect: no two items have the same entry."
            notes.append(Note("no effect", said, column=self.name, option=ROLE))
        return Column(self.name, kept)

    def levels_of(self, known: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """(any,): items and numbers of their levels, of those that are known."""
        assert self.levels is not None
        number = {level: k for k, level in enumerate(known)}
        each = np.array([number.get(level, -1) for level in self.levels.to_list()], np.int64)
        return self.item[each >= 0].astype(np.int64), each[each >= 0]

    def there(self, items: int) -> np.ndarray:
        """(item,): which of them the table has."""
        return np.bincount(self.item, minlength=items) > 0


def _keyed(table: Any, vocabulary: Vocabulary) -> tuple[Table, np.ndarray, Vocabulary]:
    """The table, the item of each row, and the vocabulary with those that were not in it."""
    source = Table.read(table)
    source.require(vocabulary.columns, "item")
    if not len(source):
        raise DataError(f"{named(ROLE)} has no rows.", option=ROLE)
    number, names = distinct(source.columns(vocabulary.columns, "item"), "item", len(source))
    if (number < 0).any():
        row, name = int(np.flatnonzero(number < 0)[0]), vocabulary.columns[0]
        said = f"{named(ROLE)} is keyed by item, and column {name!r} is null at row {row}. Drop the row."
        raise DataError(said, column=name, row=row, option=ROLE)
    whole = vocabulary.append(names)
    return source, whole.numbers(names)[number].astype(np.int64), whole


def _by_item(numbers: np.ndarray, place: np.ndarray, items: int) -> np.ndarray:
    """(item, any), from (row, any): of several rows, what is there."""
    found = np.full((items, numbers.shape[1]), np.nan)
    for row in (np.isnan(numbers).any(1), ~np.isnan(numbers).any(1)):
        found[place[row]] = numbers[row]
    return found


def _joined(read: "Sequence[_Read]", items: int) -> np.ndarray:
    """(item, number)"""
    return np.concatenate([np.zeros((items, 0)), *(one.numbers for one in read if one.numbers is not None)], 1)


def _finite(x: np.ndarray, name: str, place: np.ndarray, whole: Vocabulary) -> np.ndarray:
    endless = np.isinf(x).any(1)
    if endless.any():
        row = int(np.flatnonzero(endless)[0])
        said = f"Column {name!r} of {named(ROLE)} is infinite for {whole.words(int(place[row]))}. Mend it, or leave it "
        raise DataError(f"{said}empty.", column=name, row=row, option=ROLE)
    return x


def _word(level: Any) -> str:
    return str(level).lower() if isinstance(level, bool) else str(level)


def _about(made: ItemFeatures, vocabulary: Vocabulary, more: int) -> list[Note]:
    mine = made.first()
    has = (np.diff(mine.offsets) > 0) | (mine.numbers != 0).any(1)
    notes = []
    lacking = np.flatnonzero(~has)
    if len(lacking):
        said = f"No features of {counted(len(lacking), 'item')} of {len(mine)} (the first: "
        said += f"{vocabulary.words(int(lacking[0]))}): each has its own vector alone."
        notes.append(Note("no features", said, column=vocabulary.columns[0], option=ROLE))
    if more:
        said = f"{counted(more, 'item')} of {named(ROLE)} not in the table: known by features alone, as new ones."
        notes.append(Note("new items", said, column=vocabulary.columns[0], option=ROLE))
    return notes
