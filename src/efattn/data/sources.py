"""The files that a path, a folder or a pattern names, as one table, portion by portion.

    FILE | FOLDER | FOLDER/*.parquet   ->   frames of about `size` bytes, each with its file and its first row there

Files stand in the order of their names. A column has one type throughout: what several files hold of it, numbers of
different kinds as the wider kind; a DataError names the file and the column where there is none.
"""

import glob
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, final

from efattn.data.files import first_line, memory, parquet_bytes
from efattn.data.text_parts import TextFile
from efattn.errors import DataError

if TYPE_CHECKING:
    import polars as pl

_NAMES = re.compile(r"\.(csv|tsv|txt|data|parquet|pq)(\.gz)?$")
_PATTERN = re.compile(r"[*?\[]")
SIZE = 32 * 2**20  # bytes of a portion
SHARE = 4  # a table that takes more than such a part of the memory is kept on disk


class Part(NamedTuple):
    """frame: some rows of `file`, of which the first is its row `first`; size: bytes of the file that they took."""

    frame: "pl.DataFrame"
    file: Path
    first: int
    size: int


@final
@dataclass
class Source:
    """files: in their order; options: of `Table.read`, for text files. `look` before `parts`."""

    files: tuple[Path, ...]
    size: int = field(default_factory=lambda: SIZE)
    options: Mapping[str, Any] = field(default_factory=dict)
    types: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def parquet(self) -> bool:
        """A DataError where some files are Parquet and some are not."""
        kinds = [_is_parquet(path) for path in self.files]
        if any(kinds) and not all(kinds):
            odd = self.files[kinds.index(not kinds[0])]
            one, other = ("Parquet", "text") if kinds[0] else ("text", "Parquet")
            raise DataError(f"The files of a table are of one kind: the first is {one}, {str(odd)!r} is {other}.")
        return bool(kinds) and kinds[0]

    @cached_property
    def _texts(self) -> list[TextFile]:
        return [TextFile(path, self.size, self.options) for path in self.files]

    @property
    def bytes(self) -> int:
        """About what the table takes in memory; of text its size, four times where it is zipped."""
        if self.parquet:
            return sum(parquet_bytes(_metadata(path)) for path in self.files)
        return sum(path.stat().st_size * (4 if path.suffix == ".gz" else 1) for path in self.files)

    @property
    def larger(self) -> bool:
        """Than one portion."""
        if self.parquet:
            return self.bytes > self.size
        return len(self.files) > 1 or self._texts[0].larger

    def look(self, only: Sequence[str] = ()) -> Iterator["pl.DataFrame"]:
        """The types of all columns; on the way the columns `only`, in portions."""
        found = list[dict[str, Any]]()
        if self.parquet:
            found = [_parquet_types(path) for path in self.files]
        else:
            for text in self._texts:
                yield from text.look(only)
                names = () if text._dialect is None else text._dialect.names
                found.append(dict(zip(names, text.types, strict=True)))
        self.types = _common(self.files, found)
        if self.parquet:
            for part in self.parts(only) if only else ():
                yield part.frame
        else:
            for text, mine in zip(self._texts, found, strict=True):
                text.types = [self.types[name] for name in mine]

    def parts(self, only: Sequence[str] | None = None) -> Iterator[Part]:
        """only: the columns to load, all by default."""
        names = list(self.types) if only is None else [name for name in self.types if name in only]
        for k, path in enumerate(self.files):
            first = 0
            for frame, size in _parquet_frames(path, names, self.size) if self.parquet else self._texts[k].frames():
                yield Part(_as_typed(frame.select(names), self.types, path), path, first, size)
                first += len(frame)


def files_of(source: str | Path) -> tuple[Path, ...]:
    """Those that a path names; a DataError where there is none."""
    path = Path(source)
    if path.is_dir():
        inside = sorted(p for p in path.rglob("*") if _NAMES.search(p.name) and _visible(p.relative_to(path)))
        if not inside:
            raise DataError(f"{str(path)!r} is a directory, and there is no CSV, TSV or Parquet file in it.")
        return tuple(inside)
    if is_pattern(source):
        found = sorted(Path(p) for p in glob.glob(str(source), recursive=True) if Path(p).is_file())
        if not found:
            raise DataError(f"There is no file {str(source)!r}. Check the pattern; it is looked for from {Path.cwd()}.")
        return tuple(found)
    return (path,)


def is_pattern(source: Any) -> bool:
    """Whether it names files by * or ?, and none literally."""
    return isinstance(source, (str, Path)) and bool(_PATTERN.search(str(source))) and not Path(source).exists()


def several(source: Any) -> bool:
    """Whether it is a folder or a pattern."""
    return isinstance(source, (str, Path)) and (is_pattern(source) or Path(source).is_dir())


def too_large(source: Any) -> bool:
    """Whether a path names more than memory should hold."""
    if not isinstance(source, (str, Path)) or not (several(source) or Path(source).is_file()):
        return False
    limit = os.environ.get("EFATTN_IN_MEMORY")  # bytes
    try:
        return Source(files_of(source)).bytes > (int(limit) if limit else memory() // SHARE)
    except (OSError, ValueError):
        return False  # whoever reads it will say why


def read_several(source: str | Path, only: Sequence[str] | None = None, **options: Any) -> "pl.DataFrame":
    """All files as one frame."""
    import polars as pl

    found = Source(files_of(source), options=options)
    if found.bytes > memory() // 2:
        there, here = (f"{size / 2**30:.1f} GiB" for size in (found.bytes, memory()))
        raise DataError(
            f"{str(source)!r} holds about {there}, and this machine has {here} of memory. "
            "fit, score and predict take its path as it is, and read it in portions."
        )
    for _ in found.look():
        pass
    return pl.concat([part.frame for part in found.parts(only)])


def _visible(path: Path) -> bool:
    return not any(name.startswith((".", "_")) for name in path.parts)


def _is_parquet(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(4) == b"PAR1"
    except FileNotFoundError as error:
        said = f"There is no file {str(path)!r}. Check the path; it is looked for from {Path.cwd()}."
        raise DataError(said) from error
    except OSError as error:
        raise DataError(f"{str(path)!r} cannot be read: {error.strerror}. Check its permissions.") from error


def _incomplete(path: Path, error: Exception) -> DataError:
    return DataError(f"{str(path)!r} is no complete Parquet file: {first_line(error)}. Write it again.")


def _metadata(path: Path) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.read_metadata(path)
    except (pa.ArrowException, OSError) as error:
        raise _incomplete(path, error) from error


def _parquet_types(path: Path) -> dict[str, Any]:
    import polars as pl

    try:
        return dict(pl.read_parquet_schema(path))
    except (pl.exceptions.PolarsError, OSError) as error:
        raise _incomplete(path, error) from error


def _parquet_frames(path: Path, only: Sequence[str], size: int) -> Iterator[tuple["pl.DataFrame", int]]:
    import polars as pl
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            about = file.metadata
            width, rows = max(parquet_bytes(about) // max(about.num_rows, 1), 1), max(about.num_rows, 1)
            for batch in file.iter_batches(max(size // width, 1), columns=list(only)):
                frame = pl.from_arrow(pa.Table.from_batches([batch]))
                assert isinstance(frame, pl.DataFrame)
                yield frame, len(frame) * path.stat().st_size // rows
    except (pa.ArrowException, OSError) as error:
        raise _incomplete(path, error) from error


def _common(files: Sequence[Path], found: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """By column, the type that holds what each file has of it."""
    types = dict(found[0])
    for path, mine in zip(files[1:], found[1:], strict=True):
        absent = [name for name in types if name not in mine] or [name for name in mine if name not in types]
        if absent:
            where = str(path) if absent[0] not in mine else str(files[0])
            raise DataError(f"{where!r} has no column {absent[0]!r}, which other files have.", column=absent[0])
        types = {name: _wider(types[name], mine[name], name, path) for name in types}
    return types


def _wider(one: Any, other: Any, name: str, path: Path) -> Any:
    import polars as pl

    if one == other or other == pl.Null:
        return one
    if one == pl.Null:
        return other
    if one.is_numeric() and other.is_numeric() and not (one.is_decimal() or other.is_decimal()):
        return pl.Int64 if one.is_integer() and other.is_integer() and pl.UInt64 not in (one, other) else pl.Float64
    words = (pl.String, pl.Categorical, pl.Enum)
    if one.base_type() in words or other.base_type() in words:  # as a text file would be read
        return pl.String
    raise DataError(
        f"Column {name!r} holds {str(one).lower()} in earlier files and {str(other).lower()} in {str(path)!r}. Write "
        "it as one type.",
        column=name,
    )


def _as_typed(frame: "pl.DataFrame", types: Mapping[str, Any], path: Path) -> "pl.DataFrame":
    import polars as pl

    wrong: Any = {name: types[name] for name in frame.columns if frame.schema[name] != types[name]}
    try:
        return frame.cast(wrong) if wrong else frame
    except pl.exceptions.PolarsError as error:
        name = next(iter(wrong))
        said = f"Column {name!r} of {str(path)!r} cannot be read as {str(wrong[name]).lower()}: {first_line(error)}."
        raise DataError(said, column=name) from error
