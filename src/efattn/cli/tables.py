"""Tables and models in: files and standard input, whole or in pieces of whole groups.

What is wrong with a path or a header is found before torch is imported.
"""

import contextlib
import functools
import io
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from efattn.errors import DataError

if TYPE_CHECKING:
    from efattn.data import Table
    from efattn.data.portions import Portions
    from efattn.data.stored import Stored


def read(source: str, layout: dict[str, Any]) -> "Table":
    """A whole table."""
    from efattn.data import Table

    if layout.get("baskets"):
        return Table.read(_baskets(source, layout))
    return Table.read(_Input(_standard_input()) if source == "-" else _path(source), **layout)


def to_fit(asked: dict[str, Any], layout: dict[str, Any]) -> "Table | Stored":
    """A whole table, or one that stays on disk."""
    from efattn.data.stored import source_of

    source, on_disk = asked["table"], asked["on_disk"]
    if layout.get("baskets") or source == "-" or asked["wide"]:
        if on_disk:
            raise DataError("--on-disk is for long tables in files: no baskets, --wide, or pipe.", option="on_disk")
        return read(source, layout)
    return source_of(_path(source), "auto" if on_disk is None else on_disk, layout)


def look(source: str, layout: dict[str, Any]) -> None:
    """A DataError for a table that is not there, or whose first lines cannot be read. A pipe is left alone: it can be
    read only once."""
    from efattn.data import files
    from efattn.data.sources import Source, files_of, several

    if source == "-":
        _standard_input()
        return
    path = Path(_path(source))
    if several(source):
        files.header(Source(files_of(source)).files[0], **layout)
    elif not path.exists():
        files.read_file(source)  # which says what is there instead
    elif path.is_file() and not layout.get("baskets"):
        files.header(path, **layout)


def _baskets(source: str, layout: dict[str, Any]) -> Any:
    """One basket a line, as a table of baskets and items."""
    import efattn

    rest = {name: x for name, x in layout.items() if name != "baskets"}
    return efattn.read_baskets(_Input(_standard_input()) if source == "-" else _path(source), **rest)


def _path(source: str) -> str:
    if Path(source).suffix == ".efattn":
        raise DataError(f"{source!r} is a model where a table is expected: MODEL comes first, then TABLE.")
    return source


@functools.cache
def _standard_input() -> bytes:
    if sys.stdin is None:
        raise DataError("Standard input is closed: there is no table to read. Name a file, or pipe one in.")
    return sys.stdin.buffer.read()


class _Input(io.BytesIO):
    name = "Standard input"


def check_model(path: Path) -> None:
    """A ModelFileError for what is no model of ours."""
    from efattn import storage

    storage.about(path, "model")


def load(path: Path) -> Any:
    """A fitted model, as every verb asks it."""
    check_model(path)

    from efattn.estimators import load

    return load(path).fitted_


def pieces(
    model: Any,
    source: str,
    options: dict[str, Any],
    size: float,
    doing: str,
    check: Callable[[Any], object] = lambda frame: None,
) -> "Iterator[Table]":
    """check: called with each piece's frame before anything is computed of it."""
    for piece in _pieces(model, source, options, size, doing):
        check(piece.native)
        yield piece


def _pieces(model: Any, source: str, options: dict[str, Any], size: float, doing: str) -> "Iterator[Table]":
    """The table as one piece, or a file larger than `size` MiB in pieces of whole groups. Groups cannot be cut apart
    where the model has none or sees lags, nor where their rows are scattered: then it is read whole."""
    from efattn.data.portions import Portions
    from efattn.data.sources import several

    roles, lags = model.schema.roles, model.schema.lags
    cut = None
    files = source != "-" and not options.get("baskets") and model.wide is None  # a pipe is read once
    if files and (several(source) or Path(source).is_file()):
        cut = Portions(Path(source), roles.of("group"), max(int(size * 2**20), 1), options)
    if cut is None or not roles.of("group") or lags or not cut.worthwhile:
        with working(doing):
            yield read(source, options)
        return
    with working("Looking through the table"):
        cut.look()
    if cut.scattered is not None:
        _check_memory(cut)
        with working(doing):
            yield read(source, options)
        return
    from rich.progress import Progress

    with Progress(console=_console(), disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task(doing, total=cut.bytes)
        for piece, taken in cut:
            yield piece
            bar.advance(task, taken)


def _check_memory(cut: "Portions") -> None:
    """A DataError for a table that will not fit, and cannot be cut."""
    try:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return
    if cut.bytes > memory // 4:
        raise DataError(
            f"{str(cut.path)!r} is too large to be read at once, and cannot be read in pieces: the rows of "
            f"{cut.scattered} are not together. Sort it by {', '.join(cut.group)}."
        )


@contextlib.contextmanager
def working(doing: str) -> Iterator[None]:
    """A sign of life on a terminal."""
    if sys.stderr.isatty():
        with _console().status(doing):
            yield
    else:
        yield


def _console() -> Any:
    from rich.console import Console

    return Console(stderr=True)


def both(model: Path, table: str, layout: dict[str, Any]) -> Any:
    """The fitted model, once model and table are found to be there."""
    check_model(model)
    look(table, layout)
    return load(model)
