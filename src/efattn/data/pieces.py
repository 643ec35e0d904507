"""A table on disk, piece by piece, each piece of whole groups: for tables that do not fit into memory.

    look        once through the file: the types of all columns, and whether the rows of each group stand together
    pieces      a second time: about `size` bytes at a time, what belongs to an unfinished group kept for the next

Types come from the whole file, so that the pieces put together are the table that `Table.read` gives. A table whose
groups are scattered cannot be cut; `look` says so.
"""

import gzip
import io
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from efattn.data.files import Dialect, read_text, sniff
from efattn.data.files import text as plain_text
from efattn.data.table import Table
from efattn.errors import DataError

if TYPE_CHECKING:
    import polars as pl

GZIP = 5  # how many times as large a gzipped text is unpacked, about


@final
@dataclass
class Pieces:
    """A file cut between groups. group: the columns that name a group; options: of `Table.read`, for text files."""

    path: Path
    group: tuple[str, ...]
    size: int
    options: Mapping[str, Any] = field(default_factory=dict)
    scattered: str | None = None  # the first group whose rows are not together
    _dialect: Dialect | None = None
    _types: list[Any] = field(default_factory=list)

    @property
    def worthwhile(self) -> bool:
        """Whether the file is larger than one piece."""
        try:
            with self.path.open("rb") as file:
                zipped = file.read(2) == b"\x1f\x8b"
            return self.path.is_file() and self.path.stat().st_size * (GZIP if zipped else 1) > self.size
        except OSError:
            return False  # whoever reads it will say why

    def look(self) -> None:
        """Go through the file once."""
        seen, last = set[int](), None
        if self._is_parquet():
            for frame, _ in self._parquet(list(self.group)):
                last = self._note_scattered(frame, seen, last)
            return
        found: list[set[Any]] = []
        name, line = repr(str(self.path)), 1
        for part, _ in self._texts():
            dialect = self._layout(part)
            try:
                frame = read_text(name, part, dialect, look=(None,))
            except DataError as error:
                where = f" Lines are counted from line {line} of the file." if line > 1 else ""
                raise DataError(f"{error}{where}") from error
            line += part.count(b"\n") - (1 if line > 1 and dialect.header else 0)
            found = found or [set() for _ in frame.columns]
            for types, column in zip(found, frame, strict=True):
                types |= {column.dtype} if column.null_count() < len(column) else set()
            # as text: the same name may look like a number in one part and not in another
            last = self._note_scattered(read_text(name, part, dialect, self.group, look=(0,)), seen, last)
        self._types = [_common(types) for types in found]

    def __iter__(self) -> Iterator[tuple[Table, int]]:
        """Tables, and how many bytes of the file each took."""
        import polars as pl

        rest: pl.DataFrame | None = None
        taken, seen, last = 0, set[int](), None
        for frame, size in self._parquet(None) if self._is_parquet() else self._frames():
            last = self._note_scattered(frame, seen, last)
            if self.scattered is not None:
                raise DataError(f"The rows of {self.scattered} are not together. Sort the table by its groups.")
            whole = frame if rest is None else pl.concat([rest, frame])
            taken += size
            start = self._last_group(whole)
            if start:
                yield Table.read(whole[:start]), taken
                taken = 0
            rest = whole[start:]
        if rest is not None and len(rest):
            yield Table.read(rest), taken

    def _is_parquet(self) -> bool:
        with self.path.open("rb") as file:
            return file.read(4) == b"PAR1"

    def _parquet(self, only: list[str] | None) -> Iterator[tuple["pl.DataFrame", int]]:
        import polars as pl
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            with pq.ParquetFile(self.path) as file:
                about = file.metadata
                width = max(sum(about.row_group(g).total_byte_size for g in range(about.num_row_groups)), 1)
                width = max(width // max(about.num_rows, 1), 1)
                for batch in file.iter_batches(max(self.size // width, 1), columns=only):
                    frame = pl.from_arrow(pa.Table.from_batches([batch]))
                    assert isinstance(frame, pl.DataFrame)
                    if only is not None:
                        Table.read(frame).require(only, "group")
                    yield frame, len(frame) * self.path.stat().st_size // max(about.num_rows, 1)
        except (pa.ArrowException, OSError) as error:
            first = str(error).strip().split("\n")[0].rstrip(".")
            raise DataError(f"{str(self.path)!r} is no complete Parquet file: {first}. Write it again.") from error

    def _frames(self) -> Iterator[tuple["pl.DataFrame", int]]:
        for part, size in self._texts():
            yield read_text(repr(str(self.path)), part, self._layout(part), types=self._types), size

    def _layout(self, part: bytes) -> Dialect:
        """The dialect of the file; leading zeros anywhere make a column text everywhere."""
        if self._dialect is None:
            sample = part[: 1 << 18].decode(errors="ignore")
            self._dialect = sniff(repr(str(self.path)), sample, len(part) > 1 << 18, **self.options)
            Table.read({name: [0] for name in self._dialect.names}).require(self.group, "group")
        return self._dialect

    def _texts(self) -> Iterator[tuple[bytes, int]]:
        """Parts of whole lines, each with the header, as UTF-8, and how many bytes of the file each took."""
        header, rest, at = b"", b"", 0
        with self.path.open("rb") as raw:
            source: Any = gzip.GzipFile(fileobj=raw) if raw.peek(2)[:2] == b"\x1f\x8b" else raw
            encoding = self.options.get("encoding")
            name = repr(str(self.path))
            try:
                for block in _blocks(source, self.size, encoding):
                    lines, rest = _cut(rest + block)
                    if not lines:
                        continue
                    part = plain_text(name, header + lines, None)
                    if not header and self._layout(part).header:
                        header = _first_line(lines)
                    yield part, raw.tell() - at
                    at = raw.tell()
            except (EOFError, zlib.error, gzip.BadGzipFile) as error:
                raise DataError(f"{name} is no complete gzip file: {error}. Write or fetch it again.") from error
            except (UnicodeError, LookupError) as error:
                raise DataError(f"{name} is not text in {encoding}: {error}. Pass another encoding=...") from error
            if rest.strip():
                yield plain_text(name, header + rest, None), raw.tell() - at

    def _note_scattered(self, frame: "pl.DataFrame", seen: set[int], last: Any) -> Any:
        """Remember the groups that begin in this frame, and the first that began before; gives the last group."""
        import polars as pl

        if self.scattered is not None or not len(frame):
            return last
        names = frame.select(self.group)
        change = names.select(pl.any_horizontal(pl.all().ne_missing(pl.all().shift(1)))).to_series()
        starts = names.filter(_with_first(change))
        for row in starts.iter_rows():
            if row == last:
                continue
            key = hash(row)
            if key in seen:
                self.scattered = ", ".join(f"{n} {x!r}" for n, x in zip(self.group, row, strict=True))
                break
            seen.add(key)
            last = row
        return names.row(-1)

    def _last_group(self, frame: "pl.DataFrame") -> int:
        """Where the rows of the last group begin."""
        import polars as pl

        names = frame.select(self.group)
        change = names.select(pl.any_horizontal(pl.all().ne_missing(pl.all().shift(1)))).to_series()
        return int(_with_first(change).arg_true()[-1])


def _with_first(change: "pl.Series") -> "pl.Series":
    """The first row begins a group whatever it is."""
    import polars as pl

    return pl.concat([pl.Series([True]), change[1:].fill_null(False)])


def _common(types: set[Any]) -> Any:
    """The type that holds what each part was read as, as one reading of the whole would have found."""
    import polars as pl

    if len(types) == 1:
        return next(iter(types))
    return pl.Float64 if types and all(t.is_numeric() for t in types) else pl.String


def _blocks(source: Any, size: int, encoding: str | None) -> Iterator[bytes]:
    """UTF-8 with plain line ends."""
    first = source.read(4)
    marks = {b"\xef\xbb\xbf": "utf-8-sig", b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}
    encoding = encoding or next((e for mark, e in marks.items() if first.startswith(mark)), None)
    source.seek(0)
    if encoding is None:
        while block := source.read(size):
            if block.endswith(b"\r"):
                block += source.read(1)
            yield block.replace(b"\r\n", b"\n").replace(b"\r", b"\n") if b"\r" in block else block
        return
    reader = io.TextIOWrapper(source, encoding=encoding, newline=None)
    while words := reader.read(size):
        yield words.removeprefix("\ufeff").encode()


def _cut(data: bytes) -> tuple[bytes, bytes]:
    """Up to the last line end outside quotes, and the rest."""
    end, quotes = len(data), data.count(b'"')
    while True:
        before = data.rfind(b"\n", 0, end)
        if before < 0:
            return b"", data
        quotes -= data.count(b'"', before, end)
        if quotes % 2 == 0:
            return data[: before + 1], data[before + 1 :]
        end = before


def _first_line(lines: bytes) -> bytes:
    """The header, which may have line ends within quotes."""
    lines = lines.lstrip(b"\n")
    end = lines.index(b"\n") + 1
    while lines.count(b'"', 0, end) % 2 and b"\n" in lines[end:]:
        end = lines.index(b"\n", end) + 1
    return lines[:end]
