"""How a text file is laid out, found from its first lines.

separator   comma, semicolon, tab or pipe: what splits the most lines as it splits the first; blanks if said
decimal     a comma where numbers have one and none has a point
header      unless the first line is numbers only
"""

import codecs
import csv
import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import final

from efattn.errors import DataError, option

SAMPLE = 1 << 18
_LINES = 200
_SEPARATORS = "\t;|,"  # where several fit equally, the first: commas may be decimal commas or part of a text


@final
@dataclass(frozen=True)
class Dialect:
    """zeros: columns with numbers such as 007, kept as text, by the names polars finds; said: the decimal mark was not
    guessed."""

    separator: str
    decimal: str
    header: bool
    names: tuple[str, ...]
    zeros: tuple[str, ...] = ()
    said: bool = True


def sniff(
    name: str,
    sample: bytes,
    cut: bool,
    columns: Sequence[str] | None = None,
    separator: str | None = None,
    decimal: str | None = None,
    header: bool | None = None,
) -> Dialect:
    """The layout of a text in UTF-8 from its first lines; `cut`: the last line of the sample may be incomplete."""
    _check(separator, decimal)
    text = _decoded(name, single_blanks(sample) if separator == " " else sample, cut)
    separator = separator or _separator(text, cut)
    records = _records(text, separator, cut)
    if not records:
        raise DataError(f"{name} is empty: there is nothing to read.")
    first, body = records[0], records[1:]
    if header is None:
        header = _has_header(name, first, body, columns)
    names = tuple(columns or (_filled(first) if header else ()))
    if len(names) != len(first):
        raise DataError(
            f"{name} has {len(first)} columns; {option('columns', '[...]')} names {len(names)}: {list(names)}. "
            "Name each column once.",
            option="columns",
        )
    twice = [n for i, n in enumerate(names) if n in names[:i]]
    if twice:
        raise DataError(
            f"{name} has two columns of the name {twice[0]!r}. Rename one, or name all where the file is read: "
            f"{option('columns', '[...]')}.",
            column=twice[0],
            option="columns",
        )
    rows = body if header else records
    guess = "," if separator != "," and _has_commas(rows) else "."
    known = first if header else [f"column_{c + 1}" for c in range(len(first))]
    zeros = [n for c, n in enumerate(known) if any(len(r) > c and re.fullmatch(r"0\d+", r[c].strip()) for r in rows)]
    return Dialect(separator, decimal or guess, header, names, tuple(zeros), decimal is not None or separator == ",")


def _check(separator: str | None, decimal: str | None) -> None:
    if separator is not None and (len(separator.encode()) != 1 or separator in '"\n\r'):
        raise DataError(f"A separator is one character such as ';'; found {separator!r}.", option="separator")
    if decimal not in (None, ".", ","):
        raise DataError(f"A decimal mark is '.' or ','; found {decimal!r}.", option="decimal")


def not_utf8(name: str, line: int) -> DataError:
    return DataError(
        f"{name} is not text in UTF-8 (line {line}). Say how it is written, for instance "
        f"{option('encoding', 'latin-1')}.",
        option="encoding",
    )


def _decoded(name: str, sample: bytes, cut: bool) -> str:
    """A sample that is cut may end within a character."""
    try:
        return codecs.getincrementaldecoder("utf-8")().decode(sample, final=not cut)
    except UnicodeDecodeError as error:
        raise not_utf8(name, sample[: error.start].count(b"\n") + 1) from error


def single_blanks(data: bytes) -> bytes:
    """Aligned columns with one blank between them, and no blank lines."""
    return outside_quotes(data, lambda part: re.sub(rb" *\n[ \n]*", b"\n", re.sub(rb" +", b" ", part))).strip(b" \n")


def outside_quotes(data: bytes, change: Callable[[bytes], bytes]) -> bytes:
    """A change of what stands outside of quotes; a doubled quote closes and opens at once."""
    if b'"' not in data:
        return change(data)
    parts = data.split(b'"')
    parts[::2] = [change(part) for part in parts[::2]]
    return b'"'.join(parts)


def _filled(names: Sequence[str]) -> list[str]:
    """Of several columns without a name, as trailing separators make them, each gets its number."""
    several = sum(not n for n in names) > 1
    return [n or (f"column_{c + 1}" if several else n) for c, n in enumerate(names)]


def _has_commas(rows: Sequence[Sequence[str]]) -> bool:
    cells = [cell.strip() for row in rows for cell in row]
    comma = any(re.fullmatch(r"[+-]?\d+,\d+", cell) for cell in cells)
    return comma and not any(re.fullmatch(r"[+-]?\d+\.\d+", cell) for cell in cells)


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
            f"{name} seems to have no header: its first line is {shown}. Name the columns where it is read, "
            f"{option('columns', '[...]')}, or say that these are names, {option('header', True)}.",
            option="columns",
        )
    return True


def _is_number(cell: str) -> bool:
    try:
        float(cell.strip().replace(",", "."))
    except ValueError:
        return False
    return True
