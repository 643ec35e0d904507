"""Tables on disk: CSV, TSV and other separated text (also gzipped), and Parquet, told apart by what is in them.

The separator (comma, semicolon, tab, pipe), decimal commas, a byte-order mark, quotes and a missing header are found
from the first lines; each can be said instead. Ids with leading zeros stay text. Always a polars frame.
"""

import csv
import gzip
import io
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from efattn.errors import DataError

if TYPE_CHECKING:
    import polars as pl

_SEPARATORS = "\t;|,"  # where several fit equally, the first: commas may be decimal commas or part of a text
_SAMPLE = 1 << 18
_LINES = 200
_MARKS = {b"\xef\xbb\xbf": "utf-8-sig", b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}
_KINDS = "efattn reads CSV, TSV (also .gz) and Parquet files"


@final
@dataclass(frozen=True)
class Dialect:
    """How a text file is laid out."""

    separator: str
    decimal: str
    header: bool
    names: tuple[str, ...]
    zeros: tuple[str, ...] = ()  # columns with numbers such as 007, kept as text, by the names polars finds


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
    import polars as pl

    name, data = _content(source)
    if data[:4] == b"PAR1":
        try:
            names = pl.read_parquet_schema(io.BytesIO(data) if not isinstance(source, (str, Path)) else source)
            keep = None if only is None else [n for n in names if n in only]
            return pl.read_parquet(source if isinstance(source, (str, Path)) else io.BytesIO(data), columns=keep)
        except (pl.exceptions.PolarsError, OSError) as error:
            raise DataError(
                f"{name} is no complete Parquet file: {_first_line(error)}. Write or fetch it again."
            ) from error
    data = text(name, data, encoding)
    dialect = sniff(
        name, data[:_SAMPLE].decode(errors="ignore"), len(data) > _SAMPLE, columns, separator, decimal, header
    )
    return read_text(name, data, dialect, only)


def sniff(
    name: str,
    sample: str,
    cut: bool,
    columns: Sequence[str] | None = None,
    separator: str | None = None,
    decimal: str | None = None,
    header: bool | None = None,
) -> Dialect:
    """The layout of a text from its first lines; `cut`: the last line of the sample may be incomplete."""
    separator = separator or _separator(sample, cut)
    records = _records(sample, separator, cut)
    if not records:
        raise DataError(f"{name} is empty: there is nothing to read.")
    first, body = records[0], records[1:]
    if header is None:
        header = _has_header(name, first, body, columns)
    names = tuple(columns or (first if header else ()))
    if len(names) != len(first):
        raise DataError(
            f"{name} has {len(first)} columns; columns= names {len(names)}: {list(names)}. Name each column once."
        )
    twice = [n for i, n in enumerate(names) if n and n in names[:i]]
    if twice:
        raise DataError(
            f"{name} has two columns of the name {twice[0]!r}. Rename one, or name all: "
            "efattn.read_file(..., columns=[...])."
        )
    rows = body if header else records
    if decimal is None:
        cells = [cell.strip() for row in rows for cell in row]
        comma = any(re.fullmatch(r"[+-]?\d+,\d+", cell) for cell in cells)
        point = any(re.fullmatch(r"[+-]?\d+\.\d+", cell) for cell in cells)
        decimal = "," if separator != "," and comma and not point else "."
    found = first if header else [f"column_{c + 1}" for c in range(len(first))]
    zeros = [n for c, n in enumerate(found) if any(len(r) > c and re.fullmatch(r"0\d+", r[c].strip()) for r in rows)]
    return Dialect(separator, decimal, header, names, tuple(zeros))


def _content(source: Any) -> tuple[str, bytes]:
    """The bytes of a source, unzipped, and what to call it; only the first few of a Parquet file on disk."""
    if not isinstance(source, (str, Path)):
        found, name = source.read(), str(getattr(source, "name", "The file"))
        return name, _unzipped(name, found.encode() if isinstance(found, str) else found)
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
            start = file.read(4)
            data = start if start == b"PAR1" else start + file.read()
    except FileNotFoundError as error:
        raise DataError(f"There is no file {name}. Check the path; it is looked for from {Path.cwd()}.") from error
    except OSError as error:
        raise DataError(f"{name} cannot be read: {error.strerror}. Check its permissions.") from error
    return name, _unzipped(name, data)


def _unzipped(name: str, data: bytes) -> bytes:
    if not data:
        raise DataError(f"{name} is empty: there is nothing to read.")
    if data[:2] != b"\x1f\x8b":
        return data
    try:
        return gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{name} is no complete gzip file: {_first_line(error)}. Write or fetch it again.") from error


def text(name: str, data: bytes, encoding: str | None) -> bytes:
    """UTF-8 without a byte-order mark."""
    encoding = encoding or next((e for mark, e in _MARKS.items() if data.startswith(mark)), None)
    if encoding:
        try:
            data = data.decode(encoding).removeprefix("\ufeff").encode()
        except (UnicodeError, LookupError) as error:
            raise DataError(f"{name} is not text in {encoding}: {error}. Pass another encoding=...") from error
    if data[:2] == b"PK":
        raise DataError(f"{name} is a zip or spreadsheet file. {_KINDS}: unpack it, or save the sheet as CSV.")
    if b"\0" in data[:_SAMPLE]:
        raise DataError(f"{name} is a binary file. {_KINDS}.")
    if not data.strip():
        raise DataError(f"{name} is empty: there is nothing to read.")
    return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n") if b"\r" in data[:_SAMPLE] else data


def read_text(
    name: str,
    data: bytes,
    dialect: Dialect,
    only: Sequence[str] | None = None,
    types: Sequence[Any] | None = None,
    look: tuple[int | None, ...] = (10_000, None),
) -> "pl.DataFrame":
    """types: of the columns, in their order, where they are known; look: at how many lines to guess them from, which
    most often are the first, else all."""
    import polars as pl

    known: Any = dict.fromkeys(dialect.zeros, pl.String) if types is None else list(types)
    keep = None if only is None else [i for i, n in enumerate(dialect.names) if n in only]
    error: Exception | None = None
    for lines in look:
        try:
            frame = pl.read_csv(
                io.BytesIO(data),
                separator=dialect.separator,
                decimal_comma=dialect.decimal == "," and dialect.separator != ",",
                has_header=dialect.header,
                columns=keep,
                infer_schema_length=lines,
                schema_overrides=known,
            )
        except pl.exceptions.PolarsError as found:
            error = found
            continue
        frame.columns = [n for i, n in enumerate(dialect.names) if keep is None or i in keep]
        blank = b"\n\n" in data and len(dialect.names) > 1  # polars makes a row of nulls of a blank line
        return frame.filter(~pl.all_horizontal(pl.all().is_null())) if blank else frame
    raise DataError(f"{name} {_what_is_wrong(data, dialect, error)}") from error


def _what_is_wrong(data: bytes, dialect: Dialect, error: Exception | None) -> str:
    try:
        text = data.decode()
    except UnicodeDecodeError as found:
        line = data[: found.start].count(b"\n") + 1
        return f"is not text in UTF-8 (line {line}). Say how it is written, for instance encoding='latin-1'."
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=dialect.separator)
    width = len(dialect.names)
    for record in reader:
        if len(record) > width:
            return (
                f"has {len(record)} fields in line {reader.line_num} and {width} columns. Quote the fields that "
                f"contain {dialect.separator!r}, or pass separator=... if it is another."
            )
    return f"cannot be read: {_first_line(error)}. Pass separator=, decimal= or header= if they were guessed wrongly."


def _separator(sample: str, cut: bool) -> str:
    """The one that splits the most lines as it splits the first, into at least two fields."""
    best, share = ",", 0.0
    for candidate in _SEPARATORS:
        records = _records(sample, candidate, cut)
        width = len(records[0]) if records else 0
        alike = sum(len(r) == width for r in records) / len(records) if width > 1 else 0.0
        if alike > share:
            best, share = candidate, alike
    return best


def _records(sample: str, separator: str, cut: bool) -> list[list[str]]:
    reader = csv.reader(io.StringIO(sample, newline=""), delimiter=separator)
    records: list[list[str]] = []
    try:
        for record in reader:
            if record:
                records.append(record)
            if len(records) > _LINES:
                return records
    except csv.Error:
        return records
    return records[:-1] if cut and len(records) > 1 else records


def _has_header(name: str, first: list[str], body: list[list[str]], columns: Sequence[str] | None) -> bool:
    if columns is not None:
        return list(first) == list(columns) or (
            not any(_is_number(x) for x in first) and any(_is_number(x) for row in body for x in row)
        )
    if all(_is_number(x) for x in first):
        shown = ", ".join(first[:6])
        raise DataError(
            f"{name} seems to have no header: its first line is {shown}. Name the columns, "
            "efattn.read_file(..., columns=[...]), or say that these are names, efattn.read_file(..., header=True)."
        )
    return True


def _is_number(cell: str) -> bool:
    try:
        float(cell.strip().replace(",", "."))
    except ValueError:
        return False
    return True


def _first_line(error: Exception | None) -> str:
    return str(error).strip().split("\n")[0].rstrip(".")
