"""Results out: to a file that is there whole or not at all, to standard output as CSV or JSON, to people as a table."""

import contextlib
import gzip
import json
import math
import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from efattn.cli.messages import emit, say, visible
from efattn.errors import DataError, counted

if TYPE_CHECKING:
    import polars as pl

SHOWN = 60  # rows of a table on a terminal
FORMATS = (".csv", ".tsv", ".parquet")
# what a column may not hold to be written; nested: lists, arrays and structs
UNWRITABLE = {
    "CSV": ("nested", "Binary", "Duration", "Object"),
    "JSON": ("Binary", "Object"),
    "Parquet": ("Object", "Int128"),
}


@final
@dataclass(frozen=True)
class Answer:
    """Where the rows of an answer go: to a file, or to standard output as CSV or JSON."""

    file: Path | None
    force: bool
    json: bool

    def check(self, *read: str | Path | None) -> None:
        """A DataError, before any work is done, where it could not be written, or only over what is read."""
        check_output(self.file, self.force, FORMATS)
        check_apart(self.file, "The answer", *read)

    def check_columns(self, frame: "pl.DataFrame") -> None:
        """The same, for columns that it is to have."""
        check_columns(frame.schema, self.file, self.json)

    def give(self, frames: "Iterable[pl.DataFrame]", table: bool = False) -> None:
        """table: for people, if there is a terminal."""
        rows = deliver(frames, self.file, self.json, table)
        if self.file is not None:
            say(f"Wrote {counted(rows, 'row')} to {self.file}.")


def check_output(path: Path | None, force: bool, suffixes: tuple[str, ...] = ()) -> None:
    """A DataError, before any work is done, where nothing could be written."""
    if path is None:
        return
    from efattn import storage

    if suffixes and (_kind(path) not in suffixes or path.name.lower().endswith(".parquet.gz")):
        raise DataError(f"{str(path)!r} should end in {', '.join(suffixes)}; text also with .gz behind.")
    if path.is_dir():
        raise DataError(f"{str(path)!r} is a directory. Name a file.")
    if path.exists() and not path.is_file():
        raise DataError(f"{str(path)!r} is not a plain file. Leave -o out to write to standard output.")
    if path.exists() and not force:
        raise DataError(f"{str(path)!r} exists. Choose another name, or replace it with --force.")
    if not path.parent.is_dir():
        raise DataError(f"There is no folder {str(path.parent)!r}. Make it first.")
    storage.try_path(path)


def check_apart(path: Path | None, name: str, *others: str | Path | None) -> None:
    """A DataError where a file to be written is one that is read, or another that is written."""
    for other in others:
        if path is not None and other is not None and str(other) != "-" and _same(path, Path(other)):
            raise DataError(
                f"{name} would be written over {str(other)!r}, which this command reads or writes already. Choose "
                "another file."
            )


def _same(one: Path, other: Path) -> bool:
    return os.path.realpath(one) == os.path.realpath(other) or (
        one.exists() and other.exists() and os.path.samefile(one, other)
    )


def check_columns(schema: Any, output: Path | None, as_json: bool) -> None:
    """A DataError for a column that could be read and cannot be written, before anything is computed."""
    kind = "Parquet" if output is not None and _kind(output) == ".parquet" else "CSV"
    kind = "JSON" if output is None and as_json else kind
    for name, dtype in schema.items():
        known = ["nested"] * dtype.is_nested() + [str(dtype.base_type())]
        if any(one in UNWRITABLE[kind] for one in known):
            raise DataError(
                f"Column {name!r} holds {dtype}, which cannot be written as {kind}. Leave it out of the table"
                + ("." if kind == "Parquet" else ", or write to a .parquet file with -o."),
                column=name,
            )


def deliver(frames: "Iterable[pl.DataFrame]", output: Path | None, as_json: bool, table: bool = False) -> int:
    """Write frames, one below the other, and give the number of rows. table: for people, if there is a terminal."""
    if output is not None:
        rows = _to_file(frames, output)
        if as_json:
            print_json({"output": str(output), "rows": rows})
        return rows
    if table and not as_json and sys.stdout.isatty():
        return sum(show(frame) for frame in frames)
    return _json_rows(frames) if as_json else _csv_rows(frames, None, ",")


def _to_file(frames: "Iterable[pl.DataFrame]", output: Path) -> int:
    from efattn import storage

    try:
        with storage.beside(output) as part:
            if _kind(output) == ".parquet":
                return _parquet_rows(frames, part)
            with open(part, "wb") as raw, contextlib.ExitStack() as stack:
                file = stack.enter_context(gzip.GzipFile(fileobj=raw)) if output.suffix == ".gz" else raw
                return _csv_rows(frames, file, "\t" if _kind(output) == ".tsv" else ",")
    except OSError as error:
        raise DataError(
            f"{str(output)!r} cannot be written: {error.strerror or error}. Choose another path, or make room."
        ) from error


def _kind(path: Path) -> str:
    return Path(path.stem if path.suffix == ".gz" else path.name).suffix.lower()


def _csv_rows(frames: "Iterable[pl.DataFrame]", file: Any, separator: str) -> int:
    """To a binary file, or without one to standard output."""
    rows = 0
    for number, frame in enumerate(frames):
        text = frame.write_csv(separator=separator, include_header=number == 0)
        if file is not None:
            file.write(text.encode())
        elif sys.stdout.isatty():
            emit(text, end="")
        else:
            sys.stdout.buffer.write(text.encode())
        rows += len(frame)
    return rows


def _json_rows(frames: "Iterable[pl.DataFrame]") -> int:
    """One array, an object per row."""
    rows, before = 0, "["
    for frame in frames:
        emit(before + frame.write_json().strip()[1:-1], end="")
        rows += len(frame)
        before = ", " if rows else ""
    emit("]")
    return rows


def _parquet_rows(frames: "Iterable[pl.DataFrame]", part: Path) -> int:
    import pyarrow.parquet as pq

    rows, writer = 0, None
    try:
        for frame in frames:
            table = frame.to_arrow()
            writer = writer or pq.ParquetWriter(part, table.schema)
            writer.write_table(table.cast(writer.schema))
            rows += len(frame)
    finally:
        if writer is not None:
            writer.close()
    return rows


def print_json(answer: Any) -> None:
    emit(json.dumps(_strict(answer), ensure_ascii=False, default=str, allow_nan=False))


def _strict(answer: Any) -> Any:
    """JSON has no infinity: it is the text "inf" or "-inf"; what is not a number is null."""
    if isinstance(answer, dict):
        return {key: _strict(x) for key, x in answer.items()}
    if isinstance(answer, list | tuple):
        return [_strict(x) for x in answer]
    if isinstance(answer, float) and not math.isfinite(answer):
        return None if math.isnan(answer) else str(float(answer))
    return answer


def show(frame: "pl.DataFrame", rows: int = SHOWN) -> int:
    """A table for people on standard output."""
    from rich import box
    from rich.console import Console
    from rich.table import Table as Grid

    grid = Grid(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for name, dtype in frame.schema.items():
        grid.add_column(_text(visible(name)), justify="right" if dtype.is_numeric() else "left", overflow="fold")
    for row in frame.head(rows).iter_rows():
        grid.add_row(*(_cell(x) for x in row))
    Console(highlight=False).print(grid, markup=False)
    if len(frame) > rows:
        say(f"... and {len(frame) - rows} more rows; -o FILE writes them all.")
    return len(frame)


def _cell(x: Any) -> Any:
    return _text("" if x is None else f"{x:.4g}" if isinstance(x, float) else visible(str(x)))


def _text(words: str) -> Any:
    from rich.text import Text

    return Text(words)
