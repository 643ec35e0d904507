"""Scattered groups brought together on disk, and answers put back into the order of the table.

    whole_groups   a table in portions, whether or not the rows of each group stand together
    gathered       the same of any table, by ranges of the groups' names
    in_order       frames whose rows have numbers  ->  frames in the order of these

Both write into a folder of the caller's, and hold one portion at a time.
"""

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from efattn.data.columns import refuse_nulls
from efattn.data.keys import keys
from efattn.data.partition import Writers, bounds_of, placed, read_rows, thinned, which_file
from efattn.data.portions import Portions
from efattn.data.sources import Source
from efattn.data.table import Table

if TYPE_CHECKING:
    import polars as pl

PIECE = 128 * 2**20  # bytes
ROW = "\u2063row"  # no column of a table has such a name


def gathered(source: Source, group: Sequence[str], folder: Path, size: int) -> Iterator[tuple[Table, np.ndarray]]:
    """Tables, and the number of each of their rows; size: bytes of one."""
    import polars as pl

    bounds = bounds_of(thinned(source, group, size), max(-(-source.bytes // size), 1))
    files, total = [folder / f"rows-{k:05}.arrow" for k in range(len(bounds) + 1)], 0
    with Writers(files) as writers:
        for part in source.parts():
            with placed(part, len(source.files) > 1):
                pairs = [keys(part.frame[name], "group", first=part.first) for name in group]
                for name, (s, _) in zip(group, pairs, strict=True):
                    refuse_nulls(part.frame[name], "group", s.is_null().to_numpy(), first=part.first)
            names = pl.DataFrame([s.alias(f"k{c}") for c, (s, _) in enumerate(pairs)])
            number = pl.int_range(total, total + len(part.frame), dtype=pl.Int64, eager=True)
            writers.write(part.frame.with_columns(number.alias(ROW)), which_file(names, bounds))
            total += len(part.frame)
    for path in files:
        frame = read_rows(path)
        path.unlink(missing_ok=True)
        if frame is not None:
            yield Table.read(frame.drop(ROW).cast(dict(source.types))), frame[ROW].to_numpy()  # type: ignore[arg-type]


def whole_groups(path: str | Path, group: Sequence[str], size: int = PIECE) -> Iterator[Table]:
    """A table of any size in portions of whole groups, together or scattered."""
    cut = Portions(Path(path), tuple(group), size)
    cut.look()
    if cut.scattered is None:
        yield from (table for table, _ in cut)
        return
    with tempfile.TemporaryDirectory() as folder:
        yield from (table for table, _ in gathered(cut.source, group, Path(folder), size))


def in_order(answers: Iterator[tuple["pl.DataFrame", np.ndarray]], folder: Path, rows: int) -> Iterator["pl.DataFrame"]:
    """Each answer comes with the numbers of its rows; so many rows are given at a time."""
    import polars as pl

    most = -1
    for k, (frame, number) in enumerate(answers):
        numbered = frame.with_columns(pl.Series(ROW, number))
        for (at,), part in numbered.group_by(pl.col(ROW) // rows):
            assert isinstance(at, int)
            part.write_ipc(folder / f"answer-{at:08}-{k:05}.arrow")
            most = max(most, at)
    for at in range(most + 1):
        parts = [pl.read_ipc(path) for path in sorted(folder.glob(f"answer-{at:08}-*.arrow"))]
        for path in folder.glob(f"answer-{at:08}-*.arrow"):
            path.unlink()
        if parts:
            yield pl.concat(parts, how="vertical_relaxed").sort(ROW).drop(ROW)
