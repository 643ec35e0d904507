"""Results as frames, beside the user's own columns or on their own."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from efattn.data import Names, Table, Vocabulary


def frame(columns: dict[str, Any], kind: str = "polars") -> Any:
    """A new frame of this kind, as `Table.kind` has it."""
    import polars as pl

    return of_kind(pl.DataFrame(columns, strict=False), kind)


def of_kind(made: Any, kind: str) -> Any:
    """A polars frame as one of another library; as it is where that library is not there."""
    import narwhals as nw

    if kind == "polars":
        return made
    try:
        return nw.from_arrow(made.to_arrow(), backend=kind).to_native()  # type: ignore[arg-type]
    except (ImportError, ModuleNotFoundError, ValueError):
        return made


def item_columns(vocabulary: Vocabulary, numbers: np.ndarray) -> dict[str, Any]:
    """One column per key of the items."""
    return name_columns(vocabulary.known.take(np.asarray(numbers)), vocabulary.columns)


def name_columns(names: Names, columns: tuple[str, ...], times: int = 1) -> dict[str, Any]:
    """One column per key, each name so many times."""
    import polars as pl

    values = (names if times == 1 else names.take(np.repeat(np.arange(len(names)), times))).tolist()
    keys = [values] if len(columns) == 1 else [[value[c] for value in values] for c in range(len(columns))]
    kinds = [None if len(names) else _dtype(kind) for kind in names.kinds]  # without any, nothing shows their type
    return {name: pl.Series(name, x, kind, strict=False) for name, x, kind in zip(columns, keys, kinds, strict=True)}


def _dtype(kind: str) -> Any:
    """Of a key, by its kind in `Names`."""
    import polars as pl

    if kind.startswith("datetime"):
        return pl.Datetime("us", kind[9:-1] or None)
    known = {"integer": pl.Int64, "unsigned": pl.UInt64, "number": pl.Float64, "boolean": pl.Boolean, "date": pl.Date}
    return known.get(kind, pl.String)


def beside(table: Table, columns: dict[str, Any]) -> Any:
    """The table with these columns behind its own, of which none is replaced."""
    return table.with_columns(renamed(columns, table.names))


def renamed(columns: dict[str, Any], taken: Iterable[str]) -> dict[str, Any]:
    """The columns, with underscores behind a name that is taken."""
    names, kept = set(taken), dict[str, Any]()
    for name, x in columns.items():
        while name in names:
            name += "_"
        names.add(name)
        kept[name] = x
    return kept


def nulls(x: Any, there: np.ndarray) -> Any:
    """A column that is null elsewhere."""
    import polars as pl

    return pl.Series(x).set(pl.Series(~there), None)


def numbered(several: Sequence[Any]) -> Any:
    """Completed polars tables below each other, each with its number in a first column `draw`."""
    import polars as pl

    (name,) = renamed({"draw": None}, several[0].columns)
    parts = [one.select(pl.lit(k).alias(name), pl.all()) for k, one in enumerate(several, start=1)]
    return pl.concat(parts, how="vertical_relaxed")
