"""Groups as flat arrays and offsets.

    rows offsets[f] .. offsets[f + 1] - 1 of the arrays are group f, sorted by its order; ties stay in table order

Groups are numbered as they first appear in the table or, to fit on, by their names. `row` leads back to the table. A
part of the groups (`subset`, `split`) is a view: the arrays are shared, so that a group's lags may lie outside the
part. A group longer than `max_length` becomes consecutive pieces of nearly equal length, each row in one of them.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, final

import numpy as np
import torch

from efattn.data import batches as batching
from efattn.data.batch import Batch
from efattn.data.mapping import Named, by_name
from efattn.data.names import Names
from efattn.data.vocabulary import Vocabulary
from efattn.errors import DataError, Note, option

START_ROWS = 1_000_000  # as many as start values are taken from
Shuffle = int | np.random.Generator | None


@final
@dataclass(frozen=True, eq=False)
class Observations:
    """All rows of a table in the order of the groups. row, item, exposure, weight, target, noise: (row,); value,
    attributes: (row, column). A missing value is NaN, the unknown item the size of the vocabulary. when: (row,), the
    order column as times, in microseconds or its own unit."""

    row: np.ndarray
    item: np.ndarray | None = None
    value: np.ndarray | None = None
    attributes: np.ndarray | None = None
    exposure: np.ndarray | None = None
    weight: np.ndarray | None = None
    target: np.ndarray | None = None
    when: np.ndarray | None = None
    noise: np.ndarray | None = None

    def __getstate__(self) -> dict[str, Any]:
        """To another process a large mapped array goes by the name of its file."""
        return {f.name: by_name(getattr(self, f.name)) for f in fields(self)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, x in state.items():
            object.__setattr__(self, name, x.opened() if isinstance(x, Named) else x)

    def by_field(self) -> dict[str, np.ndarray | None]:
        """By the names of a batch's fields, in which `rows` is the row of each cell."""
        return {"rows" if f.name == "row" else f.name: getattr(self, f.name) for f in fields(self)}


@final
@dataclass(frozen=True, eq=False)
class Groups:
    """`every`: the rows of all groups; `chosen`: the numbers of the groups in this part, None for all; lagged: (group,
    lag), the numbers of each group's lags, -1 for none; time, series: (group,). `notes`: what the user should know.
    first_row: the table's number of row 0, where these are the groups of one portion of it. centres: (item + 1,
    column), what standardising by item has taken from each item's values, in units of the spread."""

    every: Observations
    offsets: np.ndarray
    labels: Names
    columns: tuple[str, ...] = ()
    vocabulary: Vocabulary | None = None
    time: np.ndarray | None = None
    series: np.ndarray | None = None
    lagged: np.ndarray | None = None
    max_length: int | None = None
    ties: int = 0
    notes: list[Note] = field(default_factory=list)
    chosen: np.ndarray | None = None
    first_row: int = 0
    centres: np.ndarray | None = None
    home: Path | None = None  # where the arrays are on disk, if they are

    def __len__(self) -> int:
        return len(self.offsets) - 1 if self.chosen is None else len(self.chosen)

    @cached_property
    def numbers(self) -> np.ndarray:
        """The number of each group of this part among all groups."""
        return np.arange(len(self)) if self.chosen is None else self.chosen

    @property
    def lengths(self) -> np.ndarray:
        return np.diff(self.offsets)[self.numbers]

    @cached_property
    def index(self) -> np.ndarray | slice:
        """Where the rows of this part stand in the arrays of `every`."""
        if self.chosen is None:
            return slice(None)
        return batching.ranges(self.offsets[self.chosen], self.offsets[self.chosen + 1])

    @property
    def count(self) -> int:
        """Of the rows of this part."""
        return len(self.every.row) if self.chosen is None else int(self.lengths.sum())

    @property
    def rows(self) -> np.ndarray:
        """The table's row of each row of this part; so are item, value, ... below."""
        return self.every.row[self.index]

    @property
    def item(self) -> np.ndarray | None:
        return self._part(self.every.item)

    @property
    def value(self) -> np.ndarray | None:
        return self._part(self.every.value)

    @property
    def attributes(self) -> np.ndarray | None:
        return self._part(self.every.attributes)

    @property
    def exposure(self) -> np.ndarray | None:
        return self._part(self.every.exposure)

    @property
    def weight(self) -> np.ndarray | None:
        return self._part(self.every.weight)

    @property
    def target(self) -> np.ndarray | None:
        return self._part(self.every.target)

    @property
    def noise(self) -> np.ndarray | None:
        return self._part(self.every.noise)

    @property
    def when(self) -> np.ndarray | None:
        return self._part(self.every.when)

    @property
    def times_between(self) -> np.ndarray:
        """The times between rows of a group that follow each other, where the order is a time."""
        when, group = self.when, self.group
        return np.zeros(0) if when is None else np.diff(when)[np.diff(group) == 0]

    @property
    def group(self) -> np.ndarray:
        """The number, within this part, of each row's group."""
        return np.repeat(np.arange(len(self)), self.lengths)

    def label(self, i: int) -> str:
        """Row i of this part in words: row 17 (user 'u3')."""
        at = i if isinstance(self.index, slice) else int(self.index[i])
        row = self.first_row + int(self.every.row[at])
        words = self.group_label(int(np.searchsorted(self.offsets, at, "right")) - 1)
        return f"row {row} ({words})" if words else f"row {row}"

    def group_label(self, number: int) -> str:
        """user 'u3', for a number among all groups."""
        return self.labels.words(number, self.columns) if self.columns else ""

    def subset(self, index: np.ndarray) -> "Groups":
        """Some of the groups of this part, by their numbers within it or by truth values."""
        return replace(self, chosen=self.numbers[np.asarray(index)])

    def split(self, fraction: float, seed: int = 0) -> tuple["Groups", "Groups"]:
        """(the rest, about `fraction` of the groups): at random, or with lags the last times. No group in both."""
        if not 0 < fraction < 1:
            raise DataError(f"A split takes a fraction between 0 and 1; found {fraction!r}.")
        if self.lagged is not None and self.time is not None:
            return self.split_by_time(fraction)
        if len(self) < 2:
            raise DataError(
                f"{len(self)} group cannot be split in two. Check the role group, or pass "
                f"{option('validation', None)}.",
                option="validation",
            )
        size = min(max(round(fraction * len(self)), 1), len(self) - 1)
        held = np.zeros(len(self), bool)
        held[np.random.default_rng(seed).permutation(len(self))[:size]] = True
        return self.subset(~held), self.subset(held)

    def split_by_time(self, fraction: float) -> tuple["Groups", "Groups"]:
        """(the rest, the groups of the last times, about that share of them)"""
        assert self.time is not None
        time = self.time[self.numbers]
        times = np.unique(time)
        if len(times) < 2:
            raise DataError(
                f"The last times are held out, and there is only one time. Pass {option('validation', None)}.",
                option="validation",
            )
        size = min(max(round(fraction * len(times)), 1), len(times) - 1)
        held = time >= times[-size]
        return self.subset(~held), self.subset(held)

    def check_distinct(self) -> None:
        """A DataError for an item that a group has twice; unknown items may repeat."""
        item = self.item
        if item is None or self.vocabulary is None:
            return
        key = self.group * np.int64(len(self.vocabulary) + 1) + item
        by = np.argsort(key, kind="stable")
        twice = by[1:][(np.diff(key[by]) == 0) & (item[by[1:]] != self.vocabulary.unknown)]
        if twice.size:
            i = int(twice.min())
            raise DataError(
                f"With distinct support a group has each item once; {self.vocabulary.words(int(item[i]))} is there "
                f"again at {self.label(i)}. Drop the repeats, or do without {option('support', 'distinct')}.",
                column=self.vocabulary.columns[0],
                row=self.first_row + int(self.rows[i]),
                option="support",
            )

    @cached_property
    def pieces(self) -> batching.Pieces:
        """What is padded into batches: whole groups, or pieces of at most `max_length`."""
        return batching.cut(self.numbers, self.offsets, self.max_length)

    def plan(self, tokens: int, shuffle: Shuffle = None, epoch: int = 0) -> list[np.ndarray]:
        """The pieces of each batch; the same for the same seed and epoch."""
        return batching.plan(self, tokens, shuffle, epoch)

    def batch(
        self,
        pieces: np.ndarray,
        context: Literal["past", "others", "any"] = "others",
        dtype: torch.dtype = torch.float32,
    ) -> Batch:
        """Some pieces as one padded batch."""
        return batching.build(self, np.asarray(pieces, np.int64), context, dtype)

    def batches(
        self,
        tokens: int,
        shuffle: Shuffle = None,
        epoch: int = 0,
        context: Literal["past", "others", "any"] = "others",
        dtype: torch.dtype = torch.float32,
    ) -> Iterator[Batch]:
        """Batches of pieces of like length: at most `tokens` padded cells, lagged ones counted, or a single piece."""
        for pieces in self.plan(tokens, shuffle, epoch):
            yield self.batch(pieces, context, dtype)

    def flat(self, rows: int = START_ROWS) -> Batch:
        """All rows as one group, thinned to so many: for what does not depend on context."""
        return batching.flat(self, rows)

    def fingerprint(self) -> str:
        """Of all that is known about these groups: every field of the observations, which groups there are, their lags
        and pieces, and the names of the items."""
        digest = hashlib.sha256()
        arrays = {f.name: getattr(self.every, f.name) for f in fields(self.every)}
        if self.every.noise is None:
            del arrays["noise"]  # which older checkpoints know nothing of
        arrays |= {"numbers": self.numbers, "offsets": self.offsets, "lagged": self.lagged}
        arrays["max_length"] = None if self.max_length is None else np.array(self.max_length)
        if self.vocabulary is not None:
            digest.update(repr(self.vocabulary.to_json()).encode())
            arrays |= {f"item.{name}": x for name, x in self.vocabulary.arrays().items()}
        for name, array in arrays.items():
            digest.update(f"{name} {None if array is None else (array.dtype, array.shape)};".encode())
            if array is not None:
                digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()

    def _part(self, column: np.ndarray | None) -> np.ndarray | None:
        return None if column is None else column[self.index]
