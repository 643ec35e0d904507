"""Item names and their numbers.

    names 0 .. D-1  <->  numbers 0 .. D-1,      anything else, and null, is D: the unknown item

Names are numbered in the order of the names (of the first key, then the second, ...), so that shuffling a table changes
nothing; names met later are appended, and old numbers stay.
"""

import difflib
from collections.abc import Hashable, Mapping, Sequence
from functools import cached_property
from typing import Any, final

import numpy as np

from efattn.data.names import Names, joint_kinds, key_of
from efattn.errors import DataError


@final
class Vocabulary:
    """The items of a fitted model: `names` with one key per column of `columns`."""

    def __init__(self, names: Names, columns: Sequence[str]) -> None:
        self.known = names
        self.columns = tuple(columns)

    @classmethod
    def of(cls, names: Names, columns: Sequence[str]) -> "Vocabulary":
        """Number distinct names, sorted."""
        return cls(names.sorted(), columns)

    def __len__(self) -> int:
        return len(self.known)

    def __contains__(self, name: Any) -> bool:
        return self.find(name) != self.unknown

    @property
    def unknown(self) -> int:
        """D, the number of the unknown item."""
        return len(self)

    @property
    def names(self) -> list[Any]:
        """Every name in the order of the numbers: Python values, or tuples of them."""
        return self.known.tolist()

    def name(self, number: int) -> Any:
        """None for the unknown item."""
        return self.known[number] if 0 <= number < len(self) else None

    def words(self, number: int) -> str:
        return self.known.words(number, self.columns)

    def number(self, name: Any) -> int:
        """The number of one name; a DataError that suggests a near one where it is not known."""
        number = self._index.get(key_of(name, self.known.kinds))
        if number is not None:
            return number
        asked = {str(n).lower(): n for n in reversed(self.names)}
        near = [asked[k] for k in difflib.get_close_matches(str(name).lower(), list(asked), n=1, cutoff=0.5)]
        hint = f" Did you mean {near[0]!r}?" if near else f" Known are {len(self)} names such as {self.names[:3]}."
        where = " and ".join(repr(c) for c in self.columns)
        raise DataError(f"There is no item {name!r} in {where}.{hint}", column=self.columns[0])

    def find(self, name: Any) -> int:
        """The number of one name, D where it is not known."""
        return self._index.get(key_of(name, self.known.kinds), self.unknown)

    def numbers(self, names: Names) -> np.ndarray:
        """The number of each of some distinct names, D for those not known. int32."""
        if not len(names):
            return np.zeros(0, np.int32)
        joint_kinds(self.known.kinds, names.kinds, self.columns)
        get, unknown = self._index.get, self.unknown
        return np.fromiter((get(key, unknown) for key in names.keys()), np.int32, len(names))  # noqa: SIM118

    def some(self, numbers: np.ndarray) -> "Vocabulary":
        """Of these alone, numbered anew."""
        return Vocabulary(self.known.take(numbers), self.columns)

    def append(self, names: Names) -> "Vocabulary":
        """The same with the names that are new, sorted among themselves, at the end."""
        new = names.take(np.flatnonzero(self.numbers(names) == self.unknown))
        return Vocabulary(self.known.followed_by(new.sorted(), self.columns), self.columns) if len(new) else self

    def to_json(self) -> dict[str, Any]:
        return {"columns": list(self.columns), "kinds": list(self.known.kinds)}

    def arrays(self) -> dict[str, np.ndarray]:
        return self.known.arrays()

    @classmethod
    def from_saved(cls, saved: Mapping[str, Any], arrays: Mapping[str, Any]) -> "Vocabulary":
        return cls(Names.from_saved(saved["kinds"], arrays), saved["columns"])

    @cached_property
    def _index(self) -> dict[Hashable, int]:
        return {key: i for i, key in enumerate(self.known.keys())}
