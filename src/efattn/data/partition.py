"""A table of any size into files of whole groups, each small enough to be sorted in memory.

    names of groups, thinned  ->  bounds     a look at the group columns alone
    portions of the table     ->  numbers    each column read once, as its role needs it, errors with file and row
    rows between two bounds   ->  a file     rows in the order of the table, file after file in the order of the names

By ranges of names and not by their hashes, so that the files put together are sorted by name: groups are then numbered
as those of the same table in memory are. polars' streaming sort would need no bounds, but holds the whole table: 0.6
GiB for 4 million rows of four columns, 1.5 GiB for 20 million.
"""

import contextlib
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import numpy as np

from efattn.data.columns import is_dated, is_text, moments, plain, refuse_nulls
from efattn.data.keys import distinct, keys
from efattn.data.names import NULL, Names, joint_kinds
from efattn.data.reading import Reading
from efattn.data.roles import SEVERAL, SINGLE, Roles
from efattn.data.sources import Part, Source
from efattn.data.table import Table
from efattn.errors import DataError, Note

if TYPE_CHECKING:
    import polars as pl

BUCKET = 128 * 2**20  # bytes of a table that are sorted at a time
THINNED = 200_000  # rows, of whose groups bounds are the quantiles


@final
class Numbering:
    """Names, numbered as they come."""

    def __init__(self) -> None:
        self.known: dict[Any, int] = {}
        self.counts = np.zeros(0, np.int64)
        self.names: Names | None = None

    def numbers(self, number: np.ndarray, names: Names, columns: Sequence[str]) -> np.ndarray:
        """Of rows that are numbered among these names, -1 for none."""
        if len(names):
            new = [i for i, key in enumerate(names.keys()) if key not in self.known]
            keys_ = names.keys()
            for i in new:
                self.known[keys_[i]] = len(self.known)
            fresh = names.take(np.array(new, np.int64))
            self.names = fresh if self.names is None else self.names.followed_by(fresh, columns)
            mine = np.fromiter((self.known[key] for key in keys_), np.int32, len(names))
        else:
            mine = np.zeros(0, np.int32)
        here: np.ndarray = np.append(mine, np.int32(-1))[number]
        self.counts = np.pad(self.counts, (0, len(self.known) - len(self.counts)))
        self.counts += np.bincount(here[here >= 0], minlength=len(self.known))
        return here


@final
@dataclass
class Partition:
    """What there is after a walk through the table. words: by attribute of text, its words; rows: of each file."""

    folder: Path
    roles: Roles
    rows: dict[Path, int] = field(default_factory=dict)
    files: list[Path] = field(default_factory=list)
    items: Numbering = field(default_factory=Numbering)
    words: dict[str, Numbering] = field(default_factory=dict)
    text_kinds: dict[str, set[str]] = field(default_factory=dict)
    kinds: dict[str, tuple[str, ...]] = field(default_factory=dict)  # of the keys of groups and series, by role
    levels: dict[str, tuple[str, ...]] = field(default_factory=dict)  # of values that are ordered categories
    when_kind: str | None = None
    time_kind: str | None = None
    needs_times: bool = False  # whether a group has one time, as lags need it
    notes: dict[str, Note] = field(default_factory=dict)

    @property
    def total(self) -> int:
        return sum(self.rows.values())

    def count(self, part: Part) -> None:
        self.rows[part.file] = self.rows.get(part.file, 0) + len(part.frame)

    def same(self, role: str, kinds: tuple[str, ...]) -> None:
        """Names of one role are of one kind throughout."""
        joint_kinds(self.kinds.setdefault(role, kinds), kinds, self.roles.of(role))
        for column, *both in zip(self.roles.of(role), kinds, self.kinds[role], strict=True):
            odd = {"unsigned": "ids past 2^63 - 1", "number": "numbers with fractions"}
            for kind in odd.keys() & set(both) if both[0] != both[1] else ():
                raise DataError(
                    f"Column {column!r} has {odd[kind]} in some rows. Turn it into text first.", column=column
                )

    def see_levels(self, table: Table) -> None:
        """Of values that are ordered categories."""
        import polars as pl

        for name in self.roles.of("value"):
            column = table.column(name, "value")
            if isinstance(column.dtype, pl.Enum) and name not in self.levels and is_text(column.dtype.categories):
                self.levels[name] = tuple(column.dtype.categories.to_list())

    @property
    def of_words(self) -> list[str]:
        """Attributes whose text is neither numbers nor dates throughout."""
        return [name for name, kinds in self.text_kinds.items() if kinds == {"words"} or len(kinds) > 1]


def partition(source: Source, roles: Roles, folder: Path, when: bool | str) -> Partition:
    """when: as in `Schema.fit_encode`. Writes into the folder, which is there."""
    names = thinned(source, roles.of("group"), BUCKET)
    table = Table.read({name: [0] for name in source.types})
    for role in (*SEVERAL, *SINGLE):
        table.require(roles.of(role), role)
    bounds = bounds_of(names, max(-(-source.bytes // BUCKET), 1))
    done = Partition(folder, roles)
    done.files = [folder / f"rows-{k:05}.arrow" for k in range(len(bounds) + 1)]
    with Writers(done.files) as writers:
        for part in source.parts(roles.columns):
            if len(part.frame):
                with placed(part, len(source.files) > 1):
                    frame = _numbered(done, part, source.types, when)
                writers.write(frame, which_file(frame.select(f"k{c}" for c in range(len(roles.of("group")))), bounds))
                done.count(part)
    if not done.total:
        raise DataError("The table has no rows: there is nothing to fit.")
    return done


def thinned(source: Source, names: Sequence[str], bucket: int) -> list["pl.DataFrame"]:
    """The names of the groups of every so manyth row, as keys, where more than one file is to be written. The types
    are known after it."""
    import polars as pl

    for _ in source.look():
        pass
    kept, step = list[pl.DataFrame](), 1
    if source.bytes <= bucket or any(name not in source.types for name in names):
        return []
    for part in source.parts(names) if names else ():
        with placed(part, len(source.files) > 1):
            some = part.frame.select(names).gather_every(step)
            columns = [keys(some[name], "group", first=part.first)[0].alias(f"k{c}") for c, name in enumerate(names)]
        kept.append(pl.DataFrame(columns).drop_nulls())
        while sum(map(len, kept)) > 2 * THINNED:
            kept, step = [frame.gather_every(2) for frame in kept], 2 * step
    return kept


def bounds_of(thinned: list["pl.DataFrame"], number: int) -> list[tuple[Any, ...]]:
    """The first name of each file but the first."""
    import polars as pl

    if not thinned or number < 2:
        return []
    frame = pl.concat(thinned, how="vertical_relaxed")
    frame = frame.sort(frame.columns)
    rows = [frame.row(len(frame) * k // number) for k in range(1, number)] if len(frame) else []
    return sorted(set(rows) - {frame.row(0)} if rows else ())


def which_file(names: "pl.DataFrame", bounds: list[tuple[Any, ...]]) -> np.ndarray:
    """(row,): the number of the file that each row belongs to, by the keys of its group."""
    import polars as pl

    if not bounds:
        return np.zeros(1, np.int32)
    if names.width == 1 and names.dtypes[0] != pl.String:
        found: np.ndarray = np.searchsorted(np.array([b[0] for b in bounds]), names["k0"].to_numpy(), "right")
        return found.astype(np.int32)
    each = names.unique()
    numbered = each.with_columns(pl.Series("file", [bisect_right(bounds, row) for row in each.iter_rows()], pl.Int32))
    return names.join(numbered, on=names.columns, how="left", maintain_order="left")["file"].to_numpy()


def _numbered(done: Partition, part: Part, types: Mapping[str, Any], when: bool | str) -> "pl.DataFrame":
    """The rows of a portion as numbers, by short names: k group, o order, r row, i item, v value, a attribute, w word
    of an attribute, e exposure, g weight, t target, n noise, m when, d time, s series."""
    import polars as pl

    roles, first = done.roles, part.first
    table = Table.read(part.frame, first_row=first)
    reading = Reading(table, roles, sort=True)
    columns: dict[str, Any] = {"r": np.arange(done.total, done.total + len(table))}
    for role, letter in (("group", "k"), ("series", "s")):
        pairs = [keys(column, role, first=first) for column in table.columns(roles.of(role), role)]
        for c, (s, _) in enumerate(pairs):
            refuse_nulls(table.column(roles.of(role)[c], role), role, s.is_null().to_numpy(), first=first)
            columns[f"{letter}{c}"] = s
        done.same(role, tuple(kind for _, kind in pairs))
    if reading.order is not None:
        text = types[roles.of("order")[0]] == pl.String
        columns["o"] = reading.order.astype(np.float64) if text else reading.order
    if roles.of("item"):
        columns["i"] = done.items.numbers(*reading.item, roles.of("item"))
    done.see_levels(table)
    for role, letter in (("value", "v"), ("attributes", "a")):
        for c, name in enumerate(roles.of(role)):
            columns |= _read(done, reading, role, name, f"{letter}{c}")
    columns |= {"e": reading.exposure(), "g": reading.weight(), "t": reading.target(), "n": reading.noise()}
    if when:
        columns["m"] = _when(done, reading, sure=when != "auto")
    if roles.time is not None:
        columns["d"], done.time_kind = moments(table.column(roles.time, "time"), "time", reading.notes, first=first)
    for note in reading.notes if done.total == 0 else (n for n in reading.notes if n.kind != "constant"):
        done.notes.setdefault(f"{note.kind} {note.column}", note)
    return pl.DataFrame({name: x for name, x in columns.items() if x is not None})


def _read(done: Partition, reading: Reading, role: str, name: str, short: str) -> dict[str, Any]:
    """A value or an attribute; of text also its words, until all of it is known."""
    column = reading.source.column(name, role)
    if role == "value" or plain(column).dtype != _string():
        return {short: reading.columns_of(name, role, done.levels, {})[:, 0]}
    number, names = distinct([column], role, len(reading), first=reading.first)
    words = done.words.setdefault(name, Numbering()).numbers(number, names, [name])
    kind = "words" if is_text(column) else "dates" if is_dated(column) else "numbers"
    done.text_kinds.setdefault(name, set()).add(kind)
    if kind == "words":
        refuse_nulls(plain(column), role, first=reading.first)
    y = np.full(len(words), np.nan) if kind == "words" else reading.columns_of(name, role, {}, {})[:, 0]
    return {short: y, f"w{short}": words}


def _when(done: Partition, reading: Reading, sure: bool) -> np.ndarray:
    """The times of rows; of no use any more once one portion has none, unless they are asked for."""
    none = np.full(len(reading), np.nan)
    if done.when_kind == NULL:
        return none
    try:
        time, kind = reading.when
    except DataError:
        if sure:
            raise
        done.when_kind = NULL
        return none
    done.when_kind = kind if done.when_kind in (None, kind) else NULL
    return time.astype(np.float64)


@contextlib.contextmanager
def placed(part: Part, several: bool) -> Iterator[None]:
    """An error about a row says in which file."""
    try:
        yield
    except DataError as error:
        if not several:
            raise
        said = f"{str(part.file)!r}: {error.text}"
        raise DataError(said, column=error.column, row=error.row, option=error.option) from None


@final
class Writers:
    """Files of rows, each opened when its first row comes."""

    def __init__(self, files: Sequence[Path]) -> None:
        self.files, self.stack = files, contextlib.ExitStack()
        self.open: dict[int, Any] = {}

    def __enter__(self) -> "Writers":
        return self

    def __exit__(self, *error: object) -> None:
        self.stack.close()

    def write(self, frame: "pl.DataFrame", which: np.ndarray) -> None:
        """which: (row,), the number of the file of each; rows keep their order."""
        import polars as pl
        import pyarrow as pa

        for k in np.unique(which).tolist():
            rows = (frame if len(self.files) == 1 else frame.filter(pl.Series(which == k))).to_arrow()
            if k not in self.open:
                file = self.stack.enter_context(self.files[k].open("wb"))
                self.open[k] = self.stack.enter_context(pa.ipc.new_stream(file, rows.schema))
            self.open[k].write_table(rows)


def read_rows(path: Path) -> "pl.DataFrame | None":
    """What was written there; None where nothing was."""
    import polars as pl
    import pyarrow as pa

    if not path.exists():
        return None
    with path.open("rb") as file, pa.ipc.open_stream(file) as stream:
        frame = pl.from_arrow(stream.read_all())
    assert isinstance(frame, pl.DataFrame)
    return frame


def _string() -> Any:
    import polars as pl

    return pl.String
