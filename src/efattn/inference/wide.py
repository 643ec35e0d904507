"""A model of a wide table is asked with wide tables, and answers with wide tables.

    wide  ->  long, as the model has it  ->  the verb  ->  (row, column)  ->  columns beside the table's own

Each cell is answered given the rest of its row, never from itself.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from efattn.data import Table, Wide
from efattn.data.wide import MOST_LEVELS, VALUE
from efattn.errors import Note
from efattn.families import Family, PerItem
from efattn.inference.fitted import Fitted

if TYPE_CHECKING:
    import polars as pl


class Turned(NamedTuple):
    """A wide table, its cells as numbers (row, column), and the same as a long table."""

    table: Table
    codes: np.ndarray
    long: Table


def layout(fitted: Fitted) -> Wide:
    assert fitted.wide is not None
    return fitted.wide


def plain(fitted: Fitted) -> Fitted:
    """The same model, as one of a long table."""
    return replace(fitted, wide=None)


def turned(fitted: Fitted, table: Table, tell: Callable[[Note], object], given: Sequence[str] | None = None) -> Turned:
    """Values are checked under the names of their columns. given: the columns that are known; all by default."""
    wide, notes = layout(fitted), list[Note]()
    codes = wide.codes(table, notes)
    for note in notes:
        if note.kind == "missing column":
            tell(note)
    for number, column in enumerate(wide.columns):
        family = family_of(fitted, number)
        there = ~np.isnan(codes[:, number])
        family.check(codes[there, number], column.name, _rows(np.flatnonzero(there), table.first_row))
    if given is not None:
        codes[:, [name not in given for name in wide.names]] = np.nan
    return Turned(table, codes, wide.long(table, codes))


def _rows(places: np.ndarray, first: int) -> Callable[[int], str]:
    return lambda index: f"row {first + int(places[index])}"


def family_of(fitted: Fitted, number: int) -> Family:
    """Of a column, by its place."""
    assert fitted.family is not None
    (family,) = fitted.family.parts
    if not isinstance(family, PerItem):
        return family
    return family.parts[family.kinds[item_of(fitted, number)]]


def item_of(fitted: Fitted, number: int) -> int:
    """The number that a column has as an item."""
    return fitted.vocabulary.number(layout(fitted).columns[number].name)


def each(
    fitted: Fitted,
    tables: Iterable[Table],
    tell: Callable[[Note], object],
    given: Sequence[str] | None = None,
) -> tuple[Iterator[Table], Callable[[], Turned]]:
    """The tables as long ones, and the one that was taken last. given: the columns that are known; all by default."""
    taken = list[Turned]()

    def longs() -> Iterator[Table]:
        for table in tables:
            taken[:] = [turned(fitted, table, tell, given)]
            yield taken[0].long

    return longs(), lambda: taken[0]


def told(fitted: Fitted, answers: dict[str, np.ndarray]) -> dict[str, Any]:
    """What predict says of each cell (by value_mean and the like, row by row) as columns beside the table's."""
    wide, columns = layout(fitted), dict[str, Any]()
    shaped = {name.removeprefix(f"{VALUE}_"): x.reshape(-1, len(wide)) for name, x in answers.items()}
    for c, column in enumerate(wide.columns):
        mine = {kind: x[:, c] for kind, x in shaped.items()}
        nothing = np.full(len(mine["mean"]), np.nan)  # of no rows there are no levels either
        family = family_of(fitted, c)
        levels = {f"p_{level}": mine.get(f"p_{level}", nothing) for level in family.level_names}
        mode = {"mode": mine.get("mode", nothing)} if levels else {}
        if column.levels:
            columns |= _of_words(wide, c, mine["mean"], mode.get("mode"), list(levels.values()))
            continue
        own = {kind: x for kind, x in mine.items() if kind != "mode" and not kind.startswith("p_")}
        shown = levels if len(levels) <= MOST_LEVELS else {}
        columns |= {f"{column.name}_{kind}": x for kind, x in {**own, **mode, **shown}.items()}
    return columns


def _of_words(
    wide: Wide, number: int, mean: np.ndarray, mode: np.ndarray | None, p: Sequence[np.ndarray]
) -> dict[str, Any]:
    """Of words and of truth: the most probable, and the probability of each. Of two without a mode of their own, the
    mean is the probability of the second."""
    column = wide.columns[number]
    p = p or [1 - mean, mean]
    mode = np.where(np.isnan(mean), np.nan, mean >= 0.5) if mode is None else mode
    shown = {f"{column.name}_p_{level}": x for level, x in zip(column.levels, p, strict=True)}
    return {f"{column.name}_mode": wide.decoded(number, mode)} | shown


def filled(turn: Turned, wide: Wide, number: int, codes: np.ndarray) -> "pl.Series":
    """A column of the table with entries (by their codes) where there are none; as it is where there are. Of whole
    numbers it stays one of whole numbers where all of the new ones are."""
    import polars as pl

    column, own = wide.columns[number], turn.codes[:, number]
    new = wide.decoded(number, np.where(np.isnan(own), codes, own))
    if column.name not in turn.table.names:
        return new
    before = turn.table.column(column.name)
    if column.kind == "number":
        whole = before.dtype.is_integer() and bool((np.nan_to_num(codes) == np.rint(np.nan_to_num(codes))).all())
        return new.cast(pl.Int64) if whole else new
    polars = turn.table.kind == "polars" and before.dtype in (pl.Enum, pl.Categorical)
    return new.cast(before.dtype) if polars else new
