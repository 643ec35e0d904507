"""Tables and models in: files and standard input, whole or in pieces of whole groups.

What is wrong with a path or a header is found before torch is imported.
"""

import contextlib
import functools
import io
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from itertools import chain
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
    from efattn.data.sources import too_large

    source, on_disk = asked["table"], asked["on_disk"]
    if layout.get("baskets") or source == "-" or asked["wide"]:
        if on_disk:
            raise DataError("--on-disk is for long tables in files: no baskets, --wide, or pipe.", option="on_disk")
        return read(source, layout)
    if not (too_large(_path(source)) if on_disk is None else on_disk):
        return read(source, layout)
    from efattn.data.stored import Stored  # with torch, which a mistake need not wait for

    return Stored(_path(source), layout)


def check_table(source: str, layout: dict[str, Any]) -> None:
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

    if path.suffix in (".csv", ".tsv", ".parquet") and path.is_file():
        raise DataError(f"{str(path)!r} is a table, not an efattn file: MODEL comes first, then TABLE.")
    storage.about(path, "model")


def load(path: Path) -> Any:
    """A fitted model, as every verb asks it."""
    check_model(path)

    from efattn.estimators import load

    return load(path).fitted_


class Pieces:
    """A table as one piece, or a larger one as pieces of whole groups, of about `size` MiB. Groups cannot be cut apart
    where the model has none or sees lags; where their rows are scattered they are brought together on disk first.
    check: called with each piece's frame before anything is computed of it."""

    def __init__(
        self,
        model: Any,
        source: str,
        options: dict[str, Any],
        size: float,
        doing: str,
        check: Callable[[Any], object] = lambda frame: None,
    ) -> None:
        self.model, self.source, self.options, self.doing, self.check = model, source, options, doing, check
        self.size = max(int(size * 2**20), 1)
        self.rows: Any = None  # of the last piece, their numbers, where they do not follow each other
        self.folder: Path | None = None

    def __iter__(self) -> "Iterator[Table]":
        with tempfile.TemporaryDirectory() as folder:
            self.folder = Path(folder)
            for piece in self._each():
                self.check(piece.native)
                yield piece

    def _each(self) -> "Iterator[Table]":
        from efattn.data.portions import Portions
        from efattn.data.sources import several

        roles, lags, source = self.model.schema.roles, self.model.schema.lags, self.source
        cut = None
        files = source != "-" and not self.options.get("baskets") and self.model.wide is None  # a pipe is read once
        if files and (several(source) or Path(source).is_file()):
            cut = Portions(Path(source), roles.of("group"), self.size, self.options)
        if cut is None or not roles.of("group") or lags or not cut.worthwhile:
            with working(self.doing):
                yield read(source, self.options)
            return
        with working("Looking through the table"):
            cut.look()
        yield from self._scattered(cut) if cut.scattered is not None else self._together(cut)

    def _together(self, cut: "Portions") -> "Iterator[Table]":
        from rich.progress import Progress

        with Progress(console=_console(), disable=not sys.stderr.isatty()) as bar:
            task = bar.add_task(self.doing, total=cut.bytes)
            for piece, taken in cut:
                yield piece
                bar.advance(task, taken)

    def _scattered(self, cut: "Portions") -> "Iterator[Table]":
        from efattn.data.gathering import gathered

        assert self.folder is not None
        for piece, rows in gathered(cut.source, cut.group, self.folder, cut.size):
            self.rows = rows
            with working(self.doing):
                yield piece

    def in_order(self, answers: Iterator[Any]) -> Iterator[Any]:
        """Answers to each piece as frames, in the order of the table."""
        first = next(answers, None)
        if first is None:
            return
        if self.rows is None:
            yield first
            yield from answers
            return
        from efattn.data.gathering import in_order

        assert self.folder is not None
        numbered = ((answer, self.rows) for answer in chain([first], answers))
        place = self.folder.with_name(f"{self.folder.name}-answers")
        place.mkdir()
        try:
            yield from in_order(numbered, place, max(self.size // 64, 1))
        finally:
            shutil.rmtree(place, ignore_errors=True)


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


def load_for(model: Path, table: str, layout: dict[str, Any]) -> Any:
    """The fitted model, once model and table are found to be there."""
    check_model(model)
    check_table(table, layout)
    return load(model)
