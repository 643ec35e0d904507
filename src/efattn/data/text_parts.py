"""A text file portion by portion: whole lines, typed as the whole file would be.

    look     once through the file: the type of every column, wherever in it something odd stands
    frames   a second time: about `size` bytes at a time

Lines are counted as in the whole file. polars' own lazy reader guesses types from the first lines, and knows nothing of
decimal commas, ids with leading zeros or encodings.
"""

import codecs
import gzip
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from efattn.data.dialect import SAMPLE, Dialect, sniff
from efattn.data.files import MARKS, has_commas, may_have_zeros, read_text
from efattn.data.files import text as plain_text
from efattn.errors import DataError, option

if TYPE_CHECKING:
    import polars as pl

_CLOSED = 4  # a quote that is still open after so many portions is a stray one


@final
@dataclass
class TextFile:
    """options: of `Table.read`; types: of the columns, once they are known."""

    path: Path
    size: int
    options: Mapping[str, Any] = field(default_factory=dict)
    types: list[Any] = field(default_factory=list)
    _dialect: Dialect | None = None

    def look(self, only: Sequence[str] = ()) -> Iterator["pl.DataFrame"]:
        """The columns `only` of each portion, as text: the same name may look like a number in one and not in
        another."""
        columns: list[_Column] = []
        name = repr(str(self.path))
        for part, _, before in self._texts():
            dialect = self._layout(part)
            as_read = read_text(name, part, dialect, look=(None,), before=before, late=False)
            late = may_have_zeros(part, dialect.separator) or any(map(has_commas, as_read))
            frame = read_text(name, part, dialect, look=(None,), before=before) if late else as_read
            columns = columns or [_Column() for _ in frame.columns]
            for column, s, t in zip(columns, frame, as_read, strict=True):
                column.see(s, t)
            if only:
                yield read_text(name, part, dialect, only, look=(0,), late=False)
        commas = any(c.commas and not c.words for c in columns) and not any(c.points for c in columns)
        if commas and self._dialect is not None and not self._dialect.said:
            self._dialect = replace(self._dialect, decimal=",")
        self.types = [c.common(self._dialect is not None and self._dialect.decimal == ",") for c in columns]

    def frames(self) -> Iterator[tuple["pl.DataFrame", int]]:
        """Each portion, and how many bytes of the file it took."""
        for part, size, before in self._texts():
            yield read_text(repr(str(self.path)), part, self._layout(part), types=self.types, before=before), size

    @property
    def larger(self) -> bool:
        """Whether it is larger than one portion, once it is unpacked."""
        with self.path.open("rb") as raw:
            if raw.read(2) != b"\x1f\x8b":
                return self.path.stat().st_size > self.size
            raw.seek(0)
            return _reaches(gzip.GzipFile(fileobj=raw), self.size)

    def _layout(self, part: bytes) -> Dialect:
        """The dialect of the file, from its beginning."""
        if self._dialect is None:
            said = {name: x for name, x in self.options.items() if name != "encoding"}
            self._dialect = sniff(repr(str(self.path)), part[:SAMPLE], len(part) > SAMPLE, **said)
        return self._dialect

    def _texts(self) -> Iterator[tuple[bytes, int, int]]:
        """Parts of whole lines, each with the header, as UTF-8; how many bytes of the file each took; and how many
        lines of the file come before its first, the header being one of its lines."""
        header, rest, at, before = b"", b"", 0, 0
        name, encoding = repr(str(self.path)), self.options.get("encoding")
        with self.path.open("rb") as raw:
            source: Any = gzip.GzipFile(fileobj=raw) if raw.peek(2)[:2] == b"\x1f\x8b" else raw
            try:
                for block in chain(_blocks(source, self.size, encoding), [None]):
                    lines, rest = (rest, b"") if block is None else _cut(rest + block)
                    if len(rest) > _CLOSED * self.size + SAMPLE:
                        shift = before - header.count(b"\n")
                        read_text(name, header + rest, self._layout(header + rest), before=shift)
                        raise DataError(f"{name} has a line longer than a portion. Choose larger portions.")
                    if not lines.strip():
                        continue
                    part = plain_text(name, header + lines, None)
                    extra = header.count(b"\n")
                    if not header and self._layout(part).header:
                        header = _header(lines)
                    yield part, raw.tell() - at, before - extra
                    at, before = raw.tell(), before + lines.count(b"\n")
            except (EOFError, zlib.error, gzip.BadGzipFile) as error:
                raise DataError(f"{name} is no complete gzip file: {error}. Write or fetch it again.") from error
            except (UnicodeError, LookupError) as error:
                said = f"{name} is not text in {encoding}: {error}. Pass another {option('encoding')}."
                raise DataError(said, option="encoding") from error


@final
@dataclass
class _Column:
    """What one column was read as, part by part."""

    types: set[Any] = field(default_factory=set)
    points: bool = False
    commas: bool = False
    words: bool = False

    def see(self, column: "pl.Series", as_read: "pl.Series") -> None:
        """column: read as a whole file would be; as_read: before commas and zeros were looked for."""
        import polars as pl

        if column.null_count() == len(column):
            return
        comma = has_commas(as_read)
        self.commas |= comma
        self.points |= as_read.dtype.is_float()
        self.words |= as_read.dtype == pl.String and not comma
        self.types.add(column.dtype)

    def common(self, commas: bool) -> Any:
        """The type that holds what each part was read as, as one reading of the whole would have found. commas: they
        are decimal marks."""
        import polars as pl

        if self.commas and (self.words or not commas):
            return pl.String
        if len(self.types) == 1:
            return next(iter(self.types))
        return pl.Float64 if self.types and all(t.is_numeric() for t in self.types) else pl.String


def _reaches(source: Any, size: int) -> bool:
    """Whether there is more than `size` to read."""
    while size >= 0:
        block = source.read(min(size + 1, SAMPLE))
        if not block:
            return False
        size -= len(block)
    return True


def _blocks(source: Any, size: int, encoding: str | None) -> Iterator[bytes]:
    """UTF-8 with plain line ends."""
    first = source.read(4)
    encoding = encoding or next((e for mark, e in MARKS.items() if first.startswith(mark)), None)
    source.seek(0)
    decoder = None if encoding is None else codecs.getincrementaldecoder(encoding)()
    start = True
    while block := source.read(size):
        if decoder is not None:
            words = decoder.decode(block)
            block, start = (words.removeprefix("\ufeff") if start else words).encode(), start and not words
        yield block
    if decoder is not None:
        yield decoder.decode(b"", True).encode()


def _cut(data: bytes) -> tuple[bytes, bytes]:
    """Up to the last line end outside quotes, and the rest."""
    held = b""
    if b"\r" in data:
        held, data = (b"\r", data[:-1]) if data.endswith(b"\r") else (b"", data)  # half of a line end, perhaps
        data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    end, quotes = len(data), data.count(b'"')
    while True:
        before = data.rfind(b"\n", 0, end)
        if before < 0:
            return b"", data + held
        quotes -= data.count(b'"', before, end)
        if quotes % 2 == 0:
            return data[: before + 1], data[before + 1 :] + held
        end = before


def _header(lines: bytes) -> bytes:
    """The header, which may have line ends within quotes."""
    lines = lines.lstrip(b"\n")
    end = lines.index(b"\n") + 1
    while lines.count(b'"', 0, end) % 2 and b"\n" in lines[end:]:
        end = lines.index(b"\n", end) + 1
    return lines[:end]
