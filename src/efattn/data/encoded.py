"""Groups on disk: written field by field, and opened again as arrays that are mapped into memory.

    FIELD.bin   one entry a row, in the order of the groups        about.json   schema, notes, sizes
    NAME.npy    one entry a group, and what the schema has in arrays

A mapped array is an array: batches, views and models are the same as from memory. What is read stays in memory as long
as the system likes, and is dropped before anything else is.
"""

import contextlib
import json
from collections.abc import Sequence
from dataclasses import fields as fields_of
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import numpy as np

from efattn.data.groups import Groups, Observations
from efattn.data.keys import distinct
from efattn.data.mapping import mapped
from efattn.data.names import Names, texts
from efattn.data.partition import Partition
from efattn.data.reading import Fills, Levels, of_groups
from efattn.data.schema import Schema
from efattn.errors import DataError, Note

if TYPE_CHECKING:
    import polars as pl


@final
class Kept:
    """Rows of whole groups, as `Reading` would give them."""

    def __init__(self, frame: "pl.DataFrame", done: Partition, schema: Schema, folded: Sequence[str]) -> None:
        self.frame, self.done, self.roles, self.schema = frame, done, done.roles, schema
        self.folded, self.sort, self.first, self.notes = folded, True, 0, list[Note]()
        self.rows: np.ndarray = frame["r"].to_numpy()

    def __len__(self) -> int:
        return len(self.frame)

    def _column(self, name: str) -> np.ndarray | None:
        return self.frame[name].to_numpy() if name in self.frame.columns else None

    def _names(self, role: str, letter: str, sort: bool) -> tuple[np.ndarray, Names]:
        columns = [self.frame[f"{letter}{c}"] for c in range(len(self.roles.of(role)))]
        number, names = distinct(columns, role, len(self), sort=sort)
        return number, Names(self.done.kinds[role], names.columns)

    @cached_property
    def group(self) -> tuple[np.ndarray, Names]:
        return self._names("group", "k", True)

    @property
    def order(self) -> np.ndarray | None:
        return self._column("o")

    @property
    def item(self) -> tuple[np.ndarray, Names]:
        assert self.done.items.names is not None
        assert self.schema.vocabulary is not None
        place = np.empty(len(self.done.items.names) + 1, np.int32)
        place[self.done.items.names.order()] = np.arange(len(place) - 1)
        place[-1] = -1
        return place[self.frame["i"].to_numpy()], self.schema.vocabulary.known

    @property
    def when(self) -> tuple[np.ndarray, str]:
        time = self._column("m")
        assert time is not None
        return time, str(self.schema.when_kind)

    def matrix(self, role: str, levels: Levels, fills: Fills) -> np.ndarray | None:
        parts = []
        for c, name in enumerate(self.roles.of(role)):
            short = f"{'v' if role == 'value' else 'a'}{c}"
            parts.append(self.frame[short].to_numpy()[:, None])
            if role == "attributes" and name in levels:
                code = self._levels(name, levels)[self.frame[f"w{short}"].to_numpy()]
                parts[-1] = (code[:, None] == np.arange(len(levels[name]))).astype(float)
        return (parts[0] if len(parts) == 1 else np.concatenate(parts, 1)) if parts else None

    def _levels(self, name: str, levels: Levels) -> np.ndarray:
        """(word,): the level of each, -1 for none."""
        known, words = {level: k for k, level in enumerate(levels[name])}, self.done.words[name].names
        assert words is not None
        return np.array([known.get(word, -1) for word in words.tolist()], np.int64)

    def words(self) -> dict[str, np.ndarray]:
        at = {name: c for c, name in enumerate(self.roles.of("attributes"))}
        return {name: self.frame[f"wa{at[name]}"].to_numpy() for name in self.folded}

    def exposure(self) -> np.ndarray | None:
        return self._column("e")

    def weight(self) -> np.ndarray | None:
        return self._column("g")

    def target(self) -> np.ndarray | None:
        return self._column("t")

    def noise(self) -> np.ndarray | None:
        return self._column("n")

    def times(self) -> tuple[np.ndarray | None, list[np.ndarray]]:
        """(group,) each: when a group was, and the keys of its series."""
        time = self._column("d")
        if time is None:
            return None, []
        series, names = self._names("series", "s", False) if self.roles.of("series") else (None, None)
        when = of_groups(*self.group, time, "time", self.roles, self.rows)
        if series is None or names is None:
            return when, []
        each = of_groups(*self.group, series, "series", self.roles, self.rows)
        return when, [column[each] for column in names.columns]

    def named(self, note: Note) -> Note:
        """A note about a row, by its number in the table."""
        if note.row is None:
            return note
        row = int(self.rows[note.row])
        text = note.text.replace(f"row {note.row}:", f"row {row}:")
        return Note(note.kind, text, note.column, row, note.option, note.important)


@final
class Fields:
    """What is written of groups."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.stack = folder, contextlib.ExitStack()
        self.open: dict[str, Any] = {}
        self.about: dict[str, tuple[str, list[int]]] = {}
        self.lengths: list[np.ndarray] = []
        self.when: list[np.ndarray] = []
        self.series: list[list[np.ndarray]] = []
        self.labels: list[Names] = []
        self.lagged: np.ndarray | None = None
        self.ties = 0

    def __enter__(self) -> "Fields":
        return self

    def __exit__(self, *error: object) -> None:
        self.stack.close()

    def append(self, kept: Kept, groups: Groups) -> None:
        """The groups of one file, whose rows are those of the table."""
        rows = kept.rows[groups.every.row]
        entries = {f.name: getattr(groups.every, f.name) for f in fields_of(groups.every)} | {"row": rows}
        for name, x in entries.items():
            if x is not None:
                x = x.astype(np.int32 if kept.done.total < 2**31 else np.int64) if name == "row" else x
                if name not in self.open:
                    self.open[name] = self.stack.enter_context((self.folder / f"{name}.bin").open("wb"))
                    self.about[name] = (x.dtype.str, list(x.shape[1:]))
                self.open[name].write(np.ascontiguousarray(x).data)
        self.lengths.append(np.diff(groups.offsets))
        self.labels.append(groups.labels)
        self.ties += groups.ties
        try:
            when, series = kept.times()
        except DataError:
            if kept.done.needs_times:
                raise
            return
        if when is not None:
            self.when.append(when)
            self.series.append(series)

    def drop(self, name: str) -> None:
        self.open.pop(name).close()
        self.about.pop(name)
        (self.folder / f"{name}.bin").unlink()

    @property
    def offsets(self) -> np.ndarray:
        return np.concatenate((np.zeros(1, np.int64), np.cumsum(np.concatenate(self.lengths))))

    def names(self, done: Partition) -> Names:
        """Of all groups."""
        kinds, first = done.kinds["group"], self.labels[0]
        return Names(
            kinds, tuple(np.concatenate([x.columns[c] for x in self.labels]) for c in range(len(first.columns)))
        )

    def bare(self, done: Partition) -> Groups:
        """The groups without their rows."""
        return Groups(Observations(np.zeros(0)), self.offsets, self.names(done), done.roles.of("group"))

    def times(self) -> tuple[np.ndarray, np.ndarray]:
        """(group,) each: time, and the number of the series."""
        import polars as pl

        time = np.concatenate(self.when)
        columns = [np.concatenate([part[c] for part in self.series]) for c in range(len(self.series[0]))]
        series, _ = distinct([pl.Series(str(c), list(x)) for c, x in enumerate(columns)], "series", len(time))
        return time, series

    def finish(self, schema: Schema, done: Partition, notes: Sequence[Note]) -> None:
        """Everything that is not a field of rows."""
        for file in self.open.values():
            file.close()
        arrays = {f"schema.{name}": x for name, x in schema.arrays().items()}
        arrays |= {f"label.{name}": x for name, x in self.names(done).arrays().items()}
        arrays |= {"offsets": self.offsets} | ({} if self.lagged is None else {"lagged": self.lagged})
        if self.when and len(self.when) == len(self.lengths):
            arrays |= dict(zip(("time", "series"), self.times(), strict=True))
        for name, x in arrays.items():
            np.save(self.folder / f"{name}.npy", x, allow_pickle=False)
        about = {"fields": self.about, "arrays": list(arrays), "schema": schema.to_json(), "ties": self.ties}
        about |= {"labels": list(done.kinds["group"]), "notes": [note.to_json() for note in notes]}
        (self.folder / "about.json").write_text(json.dumps(about))


def opened(folder: Path, max_length: int | None) -> tuple[Schema, Groups]:
    """What was written there."""
    about = json.loads((folder / "about.json").read_text())
    arrays = {name: _mapped(folder / f"{name}.npy") for name in about["arrays"]}
    mine = {name.removeprefix("schema."): x for name, x in arrays.items() if name.startswith("schema.")}
    schema = replace(Schema.from_saved(about["schema"], mine), max_length=max_length)
    labels = {name.removeprefix("label."): x for name, x in arrays.items() if name.startswith("label.")}
    every = {
        name: mapped(folder / f"{name}.bin", np.dtype(dtype), columns)
        for name, (dtype, columns) in about["fields"].items()
    }
    lags = schema.lags > 0
    groups = Groups(
        Observations(**every),
        arrays["offsets"],
        _names(about["labels"], labels),
        schema.roles.of("group"),
        schema.vocabulary,
        time=arrays.get("time"),
        series=arrays.get("series") if lags else None,
        lagged=arrays.get("lagged"),
        max_length=max_length,
        ties=about["ties"],
        notes=[Note.from_json(note) for note in about["notes"]],
        home=folder,
    )
    return schema, groups


def _names(kinds: Sequence[str], arrays: dict[str, np.ndarray]) -> Names:
    """Without a Python object for every text."""
    if "text" not in kinds:
        return Names.from_saved(kinds, arrays)
    columns: list[Any] = []
    for c, kind in enumerate(kinds):
        one = {name.split(".", 1)[1]: x for name, x in arrays.items() if name.startswith(f"{c}.")}
        plain = Names.from_saved([kind], {f"0.{name}": x for name, x in one.items()}).columns if kind != "text" else ()
        columns.append(plain[0] if plain else Texts(one["bytes"], one["offsets"]))
    return Names(tuple(kinds), tuple(columns))


@final
class Texts:
    """A column of texts, each made when it is asked for."""

    def __init__(self, run: np.ndarray, offsets: np.ndarray) -> None:
        self.run, self.offsets = run, offsets

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, (int, np.integer)):
            i = int(index)
            return self.run[self.offsets[i] : self.offsets[i + 1]].tobytes().decode()
        return texts([self[int(i)] for i in np.arange(len(self))[index]])

    def tolist(self) -> list[str]:
        return [self[i] for i in range(len(self))]


def _mapped(path: Path) -> np.ndarray:
    if path.stat().st_size < 2**16:
        return np.asarray(np.load(path, allow_pickle=False))
    return np.load(path, mmap_mode="c", allow_pickle=False).view(np.ndarray)
