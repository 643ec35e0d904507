"""Tables on disk: CSV, TSV and other separated text (also gzipped), and Parquet, told apart by what is in them.

The layout of a text is found from its first lines (`dialect`); each part of it can be said instead. Ids with leading
zeros stay text, and commas are decimal marks, wherever in the file the first stands. Always a polars frame. Nothing is
unpacked that memory would not hold.
"""

import codecs
import gzip
import io
import os
import re
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from efattn.data.dialect import SAMPLE, Dialect, not_utf8, outside_quotes, single_blanks, sniff
from efattn.errors import DataError, option

if TYPE_CHECKING:
    import polars as pl

MARKS = {b"\xef\xbb\xbf": "utf-8-sig", b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}
_ZIPS = (b"PK\x03\x04", b"PK\x05\x06", b"PK\x07\x08")
_KINDS = "efattn reads CSV, TSV (also .gz) and Parquet files"
_COMMAS = r"^\s*[+-]?\d+(,\d+)?\s*$"
_CELL = 8  # bytes of a cell in memory, at least
_BLOCK = 1 << 24


def read_file(
    source: str | Path | Any,
    *,
    columns: Sequence[str] | None = None,
    only: Sequence[str] | None = None,
    separator: str | None = None,
    decimal: str | None = None,
    header: bool | None = None,
    encoding: str | None = None,
) -> "pl.DataFrame":
    """A path, or something with `read`. columns: the names, where the file has none; only: the columns to load."""
    name, data = _content(source)
    if data[:4] == b"PAR1":
        return _read_parquet(name, source if len(data) == 4 else io.BytesIO(data), only)
    data = text(name, data, encoding)
    dialect = sniff(name, data[:SAMPLE], len(data) > SAMPLE, columns, separator, decimal, header)
    return read_text(name, data, dialect, only)


def header(
    source: str | Path,
    *,
    columns: Sequence[str] | None = None,
    separator: str | None = None,
    decimal: str | None = None,
    header: bool | None = None,
    encoding: str | None = None,
) -> tuple[str, ...]:
    """The names of a file's columns, from its beginning only."""
    import polars as pl

    name, start = _content(source, SAMPLE + 1)
    if start[:4] == b"PAR1":
        try:
            return tuple(pl.read_parquet_schema(source))
        except (pl.exceptions.PolarsError, OSError) as error:
            raise _no_parquet(name, error) from error
    cut = len(start) > SAMPLE
    start = text(name, start[:SAMPLE], encoding, cut)
    return sniff(name, start, cut, columns, separator, decimal, header).names


def read_lines(source: Any, encoding: str | None) -> tuple[str, str]:
    """What to call a file, and its text, with plain line ends."""
    name, data = _content(source)
    data = text(name, data, encoding)
    try:
        return name, data.decode()
    except UnicodeDecodeError as error:
        raise not_utf8(name, data[: error.start].count(b"\n") + 1) from error


def memory() -> int:
    """How many bytes this process can use, about."""
    try:
        installed = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 2**63
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
    except OSError:
        return installed
    return min(installed, int(limit)) if limit.isdigit() else installed


def _too_large(name: str, size: str) -> DataError:
    return DataError(
        f"{name} holds {size}, and this machine has {memory() / 2**30:.1f} GiB of memory. Take a part of its rows or "
        "columns; to score and predict, sort it by its groups, so that it can be read in portions."
    )


def _content(source: Any, most: int | None = None) -> tuple[str, bytes]:
    """The bytes of a source, unzipped, and what to call it; only the first few of a Parquet file on disk. most: stop
    after so many."""
    if not isinstance(source, (str, Path)):
        read, name = source.read(), str(getattr(source, "name", "The file"))
        return name, _unzipped(name, io.BytesIO(read.encode() if isinstance(read, str) else read), most)
    if re.match(r"\w+://", str(source)):
        raise DataError(f"{source} is an address, not a file. Download it first and pass the path.")
    path = Path(source)
    name = repr(str(path))
    try:
        if path.is_dir():
            inside = sorted(
                p.name for p in path.iterdir() if re.search(r"\.(csv|tsv|txt|data|parquet)(\.gz)?$", p.name)
            )
            hint = f"Name one of its files: {', '.join(inside[:5])}." if inside else f"{_KINDS}; there is none in it."
            raise DataError(f"{name} is a directory. {hint}")
        with path.open("rb") as file:
            return name, _unzipped(name, file, most)
    except FileNotFoundError as error:
        raise DataError(f"There is no file {name}. Check the path; it is looked for from {Path.cwd()}.") from error
    except OSError as error:
        raise DataError(f"{name} cannot be read: {error.strerror}. Check its permissions.") from error


def _unzipped(name: str, file: Any, most: int | None) -> bytes:
    """All of a file, or `most` bytes; never more than half the memory."""
    limit = memory() // 2
    if not file.seekable():
        file = io.BytesIO(_bounded(name, file, limit, limit))
    start = file.read(4)
    file.seek(0)
    if start == b"PAR1" and not isinstance(file, io.BytesIO):
        return bytes(start)
    zipped = start[:2] == b"\x1f\x8b"
    try:
        data = _bounded(name, gzip.GzipFile(fileobj=file) if zipped else file, limit, most)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{name} is no complete gzip file: {first_line(error)}. Write or fetch it again.") from error
    if not data:
        raise DataError(f"{name} is empty: there is nothing to read.")
    return data


def _bounded(name: str, source: Any, limit: int, most: int | None) -> bytes:
    """What a source holds, or its first bytes; a DataError past the limit."""
    if isinstance(source, io.BufferedReader) and source.seekable() and most is None:
        if source.seek(0, io.SEEK_END) > limit:
            raise _too_large(name, f"more than {limit / 2**30:.1f} GiB of text")
        source.seek(0)
        return source.read()
    blocks, size = [], 0
    while block := source.read(_BLOCK if most is None else min(_BLOCK, most - size)):
        blocks.append(block)
        size += len(block)
        if size > limit:
            raise _too_large(name, f"more than {limit / 2**30:.1f} GiB of text")
        if size == most:
            break
    return b"".join(blocks)


def _no_parquet(name: str, error: Exception) -> DataError:
    return DataError(f"{name} is no complete Parquet file: {first_line(error)}. Write or fetch it again.")


def _read_parquet(name: str, source: Any, only: Sequence[str] | None) -> "pl.DataFrame":
    import polars as pl
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(source) as file:
            size = parquet_bytes(file.metadata, only)
        if size > memory() // 2:
            raise _too_large(name, f"about {size / 2**30:.1f} GiB when unpacked")
        if isinstance(source, io.BytesIO):
            source = io.BytesIO(source.getvalue())
        names = pl.read_parquet_schema(source)
        keep = None if only is None else [n for n in names if n in only]
        return pl.read_parquet(source, columns=keep)
    except (pl.exceptions.PolarsError, pa.ArrowException, OSError) as error:
        raise _no_parquet(name, error) from error


def parquet_bytes(metadata: Any, only: Sequence[str] | None = None) -> int:
    """About how much a Parquet file takes in memory: a column of one value repeated is next to nothing on disk."""
    total = 0
    for g in range(metadata.num_row_groups):
        group = metadata.row_group(g)
        for c in range(group.num_columns):
            column = group.column(c)
            if only is None or column.path_in_schema.split(".")[0] in only:
                total += max(column.total_uncompressed_size, _CELL * group.num_rows)
    return total


def text(name: str, data: bytes, encoding: str | None, cut: bool = False) -> bytes:
    """UTF-8 without a byte-order mark, with plain line ends; cut: it may end within a character."""
    encoding = encoding or next((e for mark, e in MARKS.items() if data.startswith(mark)), None)
    if encoding:
        try:
            decoder = codecs.getincrementaldecoder(encoding)()
            data = decoder.decode(data, not cut).removeprefix("\ufeff").encode()
        except (UnicodeError, LookupError) as error:
            said = f"{name} is not text in {encoding}: {error}. Pass another {option('encoding')}."
            raise DataError(said, option="encoding") from error
    if data[:4] in _ZIPS:
        raise DataError(f"{name} is a zip or spreadsheet file. {_KINDS}: unpack it, or save the sheet as CSV.")
    if b"\0" in data[:SAMPLE]:
        raise DataError(f"{name} is a binary file. {_KINDS}.")
    if re.match(rb'\s*[\[{]\s*["{\[]', data[:SAMPLE]):
        raise DataError(f"{name} is JSON. {_KINDS}: read it with polars.read_json, for instance, and pass the frame.")
    if not data.strip():
        raise DataError(f"{name} is empty: there is nothing to read.")
    return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n") if b"\r" in data else data


def read_text(
    name: str,
    data: bytes,
    dialect: Dialect,
    only: Sequence[str] | None = None,
    types: Sequence[Any] | None = None,
    look: tuple[int | None, ...] = (10_000, None),
    before: int = 0,
    late: bool = True,
) -> "pl.DataFrame":
    """types: of the columns, in their order, where they are known; look: at how many lines to guess them from, which
    most often are the first, else all; before: how many lines of the file come before these; late: look for zeros and
    commas in all lines."""
    import polars as pl

    tidy = _tidy(data, dialect)
    keep = None if only is None else [i for i, n in enumerate(dialect.names) if n in only]
    names = [n for i, n in enumerate(dialect.names) if keep is None or i in keep]

    def parsed(columns: list[int] | None, types: Any, lines: int | None) -> pl.DataFrame:
        return pl.read_csv(
            io.BytesIO(tidy),
            separator=dialect.separator,
            decimal_comma=dialect.decimal == "," and dialect.separator != ",",
            has_header=dialect.header,
            columns=columns,
            infer_schema_length=lines,
            schema_overrides=types,
        )

    known: Any = dict.fromkeys(dialect.zeros, pl.String) if types is None else list(types)
    error: Exception | None = None
    for lines in look:
        try:
            frame = parsed(keep, known, lines)
            if types is None and late:
                at = range(len(dialect.names)) if keep is None else keep
                whole = [i for i, dtype in zip(at, frame.dtypes, strict=True) if dtype.is_integer()]
                as_text = parsed(whole, None, 0) if whole and may_have_zeros(tidy, dialect.separator) else None
                frame = _with_commas(frame if as_text is None else _with_zeros(frame, as_text), dialect)
        except pl.exceptions.PolarsError as failure:
            error = failure
            continue
        frame.columns = names
        return frame
    raise DataError(f"{name} {_what_is_wrong(name, data, dialect, error, before)}") from error


def _tidy(data: bytes, dialect: Dialect) -> bytes:
    """Without blank lines, and with one blank where it separates. In a file of one column a blank line is a missing
    entry, unless it is at the end."""
    data = data.lstrip(b"\n")
    if dialect.separator == " ":
        return single_blanks(data)
    if len(dialect.names) == 1:
        return data.rstrip(b"\n") + b"\n"
    if b"\n\n" not in data and b"\n " not in data:
        return data
    return outside_quotes(data, lambda part: re.sub(rb"\n(?: *\n)+", b"\n", part))


def may_have_zeros(data: bytes, separator: str, step: int = 1 << 18) -> bool:
    """Whether a field may begin with 0 and another digit; in steps that stay in the processor's cache."""
    cells = np.frombuffer(data, np.uint8)
    for start in range(0, len(cells), step):
        here = cells[start : start + step + 2]
        zero = (here[1:-1] == ord("0")) & ((here[2:] - ord("0")) < 10)
        before = here[:-2]
        if (zero & ((before == ord(separator)) | (before == ord("\n")) | (before == ord('"')))).any():
            return True
    return cells[:2].tobytes().isdigit() and cells[0] == ord("0")


def _with_zeros(frame: "pl.DataFrame", as_text: "pl.DataFrame") -> "pl.DataFrame":
    """Columns of whole numbers with leading zeros, as text."""
    import polars as pl

    return frame.with_columns(s for s in as_text if s.dtype == pl.String and s.str.contains(r"^\s*0\d+\s*$").any())


def has_commas(column: "pl.Series") -> bool:
    """Whether a column that was read as text is numbers with decimal commas."""
    import polars as pl

    return column.dtype == pl.String and bool(
        column.str.contains(_COMMAS).all() and column.str.contains(",", literal=True).any()
    )


def _with_commas(frame: "pl.DataFrame", dialect: Dialect) -> "pl.DataFrame":
    """Decimal commas after lines that had none, unless the file has points too."""
    import polars as pl

    if dialect.said or dialect.decimal == "," or any(dtype.is_float() for dtype in frame.dtypes):
        return frame
    return frame.with_columns(
        s.str.strip_chars().str.replace(",", ".", literal=True).cast(pl.Float64) for s in frame if has_commas(s)
    )


def _what_is_wrong(name: str, data: bytes, dialect: Dialect, error: Exception | None, before: int) -> str:
    try:
        words = data.decode()
    except UnicodeDecodeError as failure:
        raise not_utf8(name, before + data[: failure.start].count(b"\n") + 1) from failure
    width = len(dialect.names)
    for line, fields in _records(words.split("\n"), dialect.separator):
        if fields is None:
            said = f"has a stray quote in line {before + line}"
            return f"{said}. Write it twice and put the field in quotes, or take it away."
        if fields > width:
            return (
                f"has {fields} fields in line {before + line} and {width} columns. Quote the fields that "
                f"contain {dialect.separator!r}, or pass {option('separator')} if it is another."
            )
    said = f"{option('separator')}, {option('decimal')} or {option('header')}"
    return f"cannot be read: {first_line(error)}. Pass {said} if they were guessed wrongly."


def _records(lines: Sequence[str], separator: str) -> Iterator[tuple[int, int | None]]:
    """Of each record its last line, from 1, and how many fields it has; None for a quote that nothing closes."""
    whole = re.compile(rf'(?:"(?:[^"]|"")*"|[^"{re.escape(separator)}]*)')
    numbered = iter(enumerate(lines, 1))
    for number, line in numbered:
        if '"' not in line:
            yield number, line.count(separator) + 1
            continue
        last, record = number, line
        if line.count('"') % 2:
            for last, more in numbered:  # noqa: B007
                record += "\n" + more
                if more.count('"') % 2:
                    break
        at = fields = 0
        while at <= len(record):
            end = whole.match(record, at).end()  # type: ignore[union-attr]
            if end < len(record) and record[end] != separator:
                if line.count('"') % 2 or record[at] == '"':
                    yield number, None
                end = len(record)
            at, fields = end + 1, fields + 1
        yield last, fields


def stray_quote(text: str, separator: str) -> int | None:
    """The line of a quote that nothing closes."""
    return next((line for line, fields in _records(text.split("\n"), separator) if fields is None), None)


def first_line(error: Exception | None) -> str:
    return str(error).strip().split("\n")[0].rstrip(".")
