"""Exact names: of items, of groups, of series.

A name is one key or a tuple of keys. Keys of one column share a kind, and keep it through a model file:

    integer, unsigned (past 2^63 - 1), number (with a fraction), text, boolean, date, datetime, datetime[zone]

They are kept as columns of whole numbers (days since 1970, microseconds since 1970 UTC) and of strings; on file strings
are one run of UTF-8 bytes with offsets, so that a million names are two tensors.
"""

import datetime
import zoneinfo
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, final

import numpy as np

from efattn.errors import DataError

_EPOCH = datetime.datetime(1970, 1, 1)
_FIRST_DAY = _EPOCH.toordinal()
_DTYPES = {"text": np.dtype(object), "unsigned": np.dtype(np.uint64), "number": np.dtype(np.float64)}
NULL = "null"  # the kind of a column that is null everywhere


@final
@dataclass(frozen=True, eq=False)
class Names:
    """columns[c][i] is key c of name i."""

    kinds: tuple[str, ...]
    columns: tuple[np.ndarray, ...]

    def __len__(self) -> int:
        return len(self.columns[0]) if self.columns else 1  # no column: one name, the empty tuple

    def __getitem__(self, i: int) -> Any:
        """The name as Python values: one key, or a tuple of keys."""
        keys = tuple(_public(kind, column[i]) for kind, column in zip(self.kinds, self.columns, strict=True))
        return keys[0] if len(keys) == 1 else keys

    def tolist(self) -> list[Any]:
        return [self[i] for i in range(len(self))]

    def take(self, index: np.ndarray) -> "Names":
        return Names(self.kinds, tuple(column[index] for column in self.columns)) if self.columns else self

    def keys(self) -> list[Hashable]:
        """One hashable per name; equal names have equal keys, whatever kind of number they came as."""
        pairs = zip(self.kinds, self.columns, strict=True)
        lists: list[list[Hashable]] = [
            [_as_whole(key) for key in x.tolist()] if kind == "number" else x.tolist() for kind, x in pairs
        ]
        return lists[0] if len(lists) == 1 else list(zip(*lists, strict=True)) if lists else [()]

    def order(self) -> np.ndarray:
        """By the first key, then the second, ..."""
        index = np.arange(len(self))
        for column in reversed(self.columns):
            index = index[np.argsort(column[index], kind="stable")]
        return index

    def sorted(self) -> "Names":
        return self.take(self.order())

    def words(self, i: int, columns: Sequence[str]) -> str:
        """user 'u3'; for several columns: city 'Bath', year 2001."""
        keys = [_public(kind, column[i]) for kind, column in zip(self.kinds, self.columns, strict=True)]
        return ", ".join(f"{escaped(name)} {_word(key)}" for name, key in zip(columns, keys, strict=True))

    def followed_by(self, other: "Names", columns: Sequence[str]) -> "Names":
        """These names and then those, of compatible kinds."""
        kinds = joint_kinds(self.kinds, other.kinds, columns)
        joined = []
        for kind, name, mine, theirs in zip(kinds, columns, self.columns, other.columns, strict=True):
            dtype = _DTYPES.get(kind, np.dtype(np.int64))
            if kind == "unsigned" and any(x.dtype == np.int64 and len(x) and x.min() < 0 for x in (mine, theirs)):
                raise DataError(
                    f"Column {name!r} has both negative ids and ids past 2^63 - 1. Turn it into text first.",
                    column=name,
                )
            joined.append(np.concatenate((mine.astype(dtype), theirs.astype(dtype))))
        return Names(kinds, tuple(joined))

    def arrays(self) -> dict[str, np.ndarray]:
        """What `from_saved` needs besides `kinds`."""
        saved: dict[str, np.ndarray] = {}
        for c, (kind, column) in enumerate(zip(self.kinds, self.columns, strict=True)):
            if kind == "text":
                encoded = [name.encode() for name in column.tolist()]
                lengths = np.fromiter((len(name) for name in encoded), np.int64, len(encoded))
                saved[f"{c}.bytes"] = np.frombuffer(b"".join(encoded), np.uint8).copy()
                saved[f"{c}.offsets"] = np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths)))
            else:
                saved[f"{c}.numbers"] = column.view(np.int64).copy()
        return saved

    @classmethod
    def from_saved(cls, kinds: Sequence[str], arrays: Mapping[str, Any]) -> "Names":
        columns = []
        for c, kind in enumerate(kinds):
            if kind == "text":
                run, ends = np.asarray(arrays[f"{c}.bytes"]).tobytes(), np.asarray(arrays[f"{c}.offsets"], np.int64)
                if not len(ends) or ends[0] or ends[-1] != len(run) or (np.diff(ends) < 0).any():
                    raise DataError("saved names do not follow each other")
                offsets = ends.tolist()
                columns.append(texts([run[a:b].decode() for a, b in pairwise(offsets)]))
            else:
                columns.append(np.asarray(arrays[f"{c}.numbers"]).view(_DTYPES.get(kind, np.dtype(np.int64))))
        return cls(tuple(kinds), tuple(columns))


def escaped(name: str) -> str:
    """A name as it can be printed: what a terminal would obey is written out."""
    return name if name.isprintable() else repr(name)[1:-1]


def texts(names: Sequence[str | None]) -> np.ndarray:
    """An array of str objects, also where numpy would guess otherwise."""
    column = np.empty(len(names), dtype=object)
    column[:] = names
    return column


def key_of(label: Any, kinds: Sequence[str]) -> Hashable:
    """A name as a user writes it, as `Names.keys` has it; None where no name of these kinds can be meant."""
    parts = (label,) if len(kinds) == 1 else label
    if not isinstance(parts, (tuple, list)) or len(parts) != len(kinds):
        return None
    keys = tuple(_physical(kind, part) for kind, part in zip(kinds, parts, strict=True))
    return None if None in keys else keys[0] if len(keys) == 1 else keys


def joint_kinds(old: Sequence[str], new: Sequence[str], columns: Sequence[str]) -> tuple[str, ...]:
    """The kinds that hold both; a DataError where text meets integers and the like."""
    return tuple(_joint(a, b, name) for a, b, name in zip(old, new, columns, strict=True))


def _joint(old: str, new: str, column: str) -> str:
    if new in (old, NULL):
        return old
    if old == NULL:
        return new
    if {old, new} in ({"integer", "unsigned"}, {"integer", "number"}):
        return old if new == "integer" else new
    if old.startswith("datetime[") and new.startswith("datetime["):
        return old
    raise DataError(
        f"Column {column!r} holds {words_of(new)}; it was fitted on {words_of(old)}. Convert it to {words_of(old)}.",
        column=column,
    )


def words_of(kind: str) -> str:
    plain = {
        "integer": "whole numbers",
        "unsigned": "whole numbers",
        "number": "numbers",
        "boolean": "booleans",
        "date": "dates",
        NULL: "nulls",
    }
    zone = "with" if kind.startswith("datetime[") else "without"
    return f"datetimes {zone} a time zone" if kind.startswith("datetime") else plain.get(kind, kind)


def _public(kind: str, key: Any) -> Any:
    if kind == "text":
        return key
    if kind == "number":
        return float(key)
    number = int(key)
    if kind == "boolean":
        return bool(number)
    if kind == "date":
        return datetime.date.fromordinal(number + _FIRST_DAY)
    if kind.startswith("datetime"):
        moment = _EPOCH + datetime.timedelta(microseconds=number)
        return moment if kind == "datetime" else moment.replace(tzinfo=datetime.UTC).astimezone(_zone(kind[9:-1]))
    return number


def _physical(kind: str, key: Any) -> Hashable:
    key = key.item() if isinstance(key, np.generic) else key
    if kind == "text":
        return key if isinstance(key, str) else None
    if isinstance(key, datetime.datetime):
        if kind == "datetime" and key.tzinfo is None:
            return (key - _EPOCH) // datetime.timedelta(microseconds=1)
        if kind.startswith("datetime[") and key.tzinfo is not None:
            return (key - _EPOCH.replace(tzinfo=datetime.UTC)) // datetime.timedelta(microseconds=1)
        return None
    if isinstance(key, datetime.date):
        return key.toordinal() - _FIRST_DAY if kind == "date" else None
    if isinstance(key, bool):
        return int(key) if kind == "boolean" else None
    if kind == "number" and isinstance(key, int | float):
        return _as_whole(float(key))
    if kind in ("integer", "unsigned") and (isinstance(key, int) or (isinstance(key, float) and key.is_integer())):
        return int(key)
    return None


def _as_whole(key: float) -> int | float:
    """2.0 and 2 are one name."""
    return int(key) if key.is_integer() else key


def _zone(name: str) -> datetime.tzinfo:
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError):
        return datetime.UTC


def _word(key: Any) -> str:
    return str(key) if isinstance(key, datetime.date) else repr(key)
