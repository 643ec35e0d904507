"""A table on disk, portion by portion, each of whole groups: for tables that do not fit into memory.

    look        once through the files: the types of all columns, and whether the rows of each group stand together
    iterating   a second time: about `size` bytes at a time, what belongs to an unfinished group kept for the next

Types come from the whole table, so that the portions put together are the table that `Table.read` gives. A table whose
groups are scattered cannot be cut; `look` says so. Rows and lines are counted as in the whole table.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from efattn.data.sources import Source, files_of
from efattn.data.table import Table
from efattn.errors import DataError

if TYPE_CHECKING:
    import polars as pl


@final
@dataclass
class Portions:
    """Files cut between groups. path: a file, a folder or a pattern; group: the columns that name a group; options: of
    `Table.read`, for text files."""

    path: Path
    group: tuple[str, ...]
    size: int
    options: Mapping[str, Any] = field(default_factory=dict)
    scattered: str | None = None  # the first group whose rows are not together

    @cached_property
    def source(self) -> Source:
        return Source(files_of(self.path), self.size, self.options)

    @property
    def worthwhile(self) -> bool:
        """Whether the table is larger than one portion, once it is unpacked."""
        try:
            return all(path.is_file() for path in self.source.files) and self.source.larger
        except (OSError, EOFError, ValueError):
            return False  # whoever reads it will say why

    @property
    def bytes(self) -> int:
        """Of all files."""
        return sum(path.stat().st_size for path in self.source.files)

    def look(self) -> None:
        """Go through the files once."""
        seen, last = set[Any](), None
        for frame in self.source.look(self.group):
            Table.read(frame).require(self.group, "group")
            last = self._note_scattered(frame, seen, last)
        Table.read({name: [0] for name in self.source.types}).require(self.group, "group")

    def __iter__(self) -> Iterator[tuple[Table, int]]:
        """Tables, and how many bytes of the files each took."""
        import polars as pl

        if not self.source.types:
            for _ in self.source.look():
                pass
        rest: pl.DataFrame | None = None
        taken, seen, last, row = 0, set[Any](), None, 0
        for part in self.source.parts():
            last = self._note_scattered(part.frame, seen, last)
            if self.scattered is not None:
                raise DataError(f"The rows of {self.scattered} are not together. Sort the table by its groups.")
            whole = part.frame if rest is None else pl.concat([rest, part.frame])
            taken += part.size
            start = self._last_group(whole)
            if start:
                yield Table.read(whole[:start], first_row=row), taken
                taken, row = 0, row + start
            rest = whole[start:]
        if rest is not None and len(rest):
            yield Table.read(rest, first_row=row), taken

    def _note_scattered(self, frame: "pl.DataFrame", seen: set[Any], last: Any) -> Any:
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
            key = row[0] if len(row) == 1 else row
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
