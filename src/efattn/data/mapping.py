"""Arrays that are files, mapped into memory: opened, and computed from each other block by block.

Nothing here holds more than a block of an array. Small ones may be written to, and their files stay as they are; large
ones may not, so that no system sets memory aside for them.
"""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

BLOCK = 2**18  # rows at a time
SMALL = 2**28  # bytes
KEPT = 2  # standardised values beside a field, the newest


def mapped(path: Path, dtype: np.dtype, columns: Sequence[int] = ()) -> np.ndarray:
    """(row, *columns)"""
    rows = path.stat().st_size // (dtype.itemsize * int(np.prod(columns, dtype=np.int64)))
    if not rows:
        return np.zeros((0, *columns), dtype)
    mode: Any = "c" if path.stat().st_size <= SMALL else "r"
    return np.memmap(path, dtype, mode, shape=(rows, *columns)).view(np.ndarray)


def mapped_from(x: np.ndarray) -> Path | None:
    """The file of a mapped array."""
    name = getattr(x.base, "filename", None)
    return None if name is None else Path(name)


class Named(NamedTuple):
    """A mapped array by its file."""

    path: Path
    dtype: str
    columns: tuple[int, ...]

    def opened(self) -> np.ndarray:
        return mapped(self.path, np.dtype(self.dtype), self.columns)


def by_name(x: np.ndarray | None) -> Any:
    """A large mapped array that is all of its file, by name; anything else as it is."""
    path = None if x is None else mapped_from(x)
    if x is None or path is None or x.nbytes <= SMALL or x.nbytes != path.stat().st_size:
        return x
    return Named(path, x.dtype.str, x.shape[1:])


def whole_or_kept(x: np.ndarray, key: str, compute: Callable[[slice], np.ndarray]) -> np.ndarray:
    """compute(rows) of all rows: in memory, as the array is, or beside it."""
    return compute(slice(None)) if mapped_from(x) is None else kept_beside(x, key, compute)


def kept_beside(x: np.ndarray, key: str, compute: Callable[[slice], np.ndarray]) -> np.ndarray:
    """compute(rows), of all rows of a mapped array: in a file beside its own, which is found again by its key."""
    home = mapped_from(x)
    assert home is not None
    path = home.with_name(f"{home.stem}-{key[:16]}.bin")
    if not path.exists():
        beside = path.with_name(f".{path.name}-{os.getpid()}")
        try:
            with beside.open("wb") as file:
                for start in range(0, len(x), BLOCK):
                    block = compute(slice(start, start + BLOCK))
                    file.write(np.ascontiguousarray(block, x.dtype).data)
            beside.replace(path)
        finally:
            beside.unlink(missing_ok=True)
    path.touch()
    old = sorted(home.parent.glob(f"{home.stem}-*.bin"), key=lambda p: p.stat().st_mtime)
    for one in old[:-KEPT]:
        one.unlink(missing_ok=True)  # whoever has it mapped keeps it
    return mapped(path, x.dtype, x.shape[1:])
