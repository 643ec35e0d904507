"""Tables in and out: files, standard input and output, whole or in pieces of whole groups."""

import contextlib
import gzip
import io
import json
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from efattn.errors import DataError

if TYPE_CHECKING:
    import polars as pl

    from efattn.data import Table
    from efattn.data.portions import Portions

SHOWN = 60  # rows of a table on a terminal


def read(source: str, options: dict[str, Any]) -> "Table":
    """A whole table."""
    from efattn.data import Table

    if source == "-":
        return Table.read(_Input(sys.stdin.buffer.read()), **options)
    if Path(source).suffix == ".efattn":
        raise DataError(f"{source!r} is a model where a table is expected: MODEL comes first, then TABLE.")
    return Table.read(source, **options)


class _Input(io.BytesIO):
    name = "Standard input"


def load(path: Path) -> Any:
    """A fitted model."""
    from efattn.estimators import load

    return load(path)


def pieces(model: Any, source: str, options: dict[str, Any], size: float, doing: str) -> "Iterator[Table]":
    """The table as one piece, or a file larger than `size` MiB in pieces of whole groups. Groups cannot be cut apart
    where the model has none or sees lags, nor where their rows are scattered: then it is read whole."""
    from efattn.data.portions import Portions

    roles, lags = model.schema_.roles, model.schema_.lags
    cut = None if source == "-" else Portions(Path(source), roles.of("group"), max(int(size * 2**20), 1), options)
    if cut is None or not roles.of("group") or lags or not cut.worthwhile:
        with _working(doing):
            yield read(source, options)
        return
    with _working("Looking through the table"):
        cut.look()
    if cut.scattered is not None:
        _check_memory(cut)
        with _working(doing):
            yield read(source, options)
        return
    from rich.progress import Progress

    with Progress(console=_console(), disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task(doing, total=cut.path.stat().st_size)
        for piece, taken in cut:
            yield piece
            bar.advance(task, taken)


def _check_memory(cut: "Portions") -> None:
    """A DataError for a table that will not fit, and cannot be cut."""
    try:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return
    if cut.path.stat().st_size > memory // 4:
        raise DataError(
            f"{str(cut.path)!r} is too large to be read at once, and cannot be read in pieces: the rows of "
            f"{cut.scattered} are not together. Sort it by {', '.join(cut.group)}."
        )


@contextlib.contextmanager
def _working(doing: str) -> Iterator[None]:
    """A sign of life on a terminal."""
    if sys.stderr.isatty():
        with _console().status(doing):
            yield
    else:
        yield


def _console() -> Any:
    from rich.console import Console

    return Console(stderr=True)


def check_output(path: Path | None, force: bool, suffixes: tuple[str, ...] = ()) -> None:
    """A DataError, before any work is done, where nothing could be written."""
    if path is None:
        return
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
    if not os.access(path.parent, os.W_OK):
        raise DataError(f"Nothing may be written to {str(path.parent)!r}. Choose another folder.")


FORMATS = (".csv", ".tsv", ".parquet")


def deliver(frames: "Iterable[pl.DataFrame]", output: Path | None, as_json: bool, table: bool = False) -> int:
    """Write frames, one below the other, and give the number of rows. table: for people, if there is a terminal."""
    if output is not None:
        rows = _to_file(frames, output)
        if as_json:
            print_json({"output": str(output), "rows": rows})
        return rows
    if table and not as_json and sys.stdout.isatty():
        return sum(show(frame) for frame in frames)
    return _json_rows(frames) if as_json else _csv_rows(frames, sys.stdout.buffer, ",")


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
    rows = 0
    for number, frame in enumerate(frames):
        file.write(frame.write_csv(separator=separator, include_header=number == 0).encode())
        rows += len(frame)
    return rows


def _json_rows(frames: "Iterable[pl.DataFrame]") -> int:
    """One array, an object per row."""
    rows, before = 0, "["
    for frame in frames:
        typer.echo(before + frame.write_json().strip()[1:-1], nl=False)
        rows += len(frame)
        before = ", " if rows else ""
    typer.echo("]")
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


def print_json(found: Any) -> None:
    typer.echo(json.dumps(found, ensure_ascii=False, default=str, allow_nan=False))


def show(frame: "pl.DataFrame", rows: int = SHOWN) -> int:
    """A table for people on standard output."""
    from rich import box
    from rich.console import Console
    from rich.table import Table as Grid

    grid = Grid(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for name, dtype in frame.schema.items():
        grid.add_column(name, justify="right" if dtype.is_numeric() else "left", overflow="fold")
    for row in frame.head(rows).iter_rows():
        grid.add_row(*(_cell(x) for x in row))
    Console(highlight=False).print(grid, markup=False)
    if len(frame) > rows:
        typer.echo(f"... and {len(frame) - rows} more rows; -o FILE writes them all.", err=True)
    return len(frame)


def _cell(x: Any) -> Any:
    from rich.text import Text

    return Text("" if x is None else f"{x:.4g}" if isinstance(x, float) else str(x))
