"""Rows of a wide table, made up or completed: as groups of the long one, and back."""

from typing import TYPE_CHECKING, Any

import numpy as np

from efattn.data import Table
from efattn.data.wide import GROUP, ITEM, VALUE
from efattn.errors import DataError, option
from efattn.inference import frames, wide
from efattn.inference.blank_tables import unused
from efattn.inference.completing import How
from efattn.inference.drawn_tables import complete, copies
from efattn.inference.fitted import Fitted
from efattn.inference.tables import Tell

if TYPE_CHECKING:
    import polars as pl


def sample_wide(fitted: Fitted, number: int, length: int | None, given: Table | None, how: How, tell: Tell) -> Any:
    """So many new rows, or a table's with what is missing drawn, so many times."""
    if length is not None:
        raise DataError(
            f"A row of a wide table has its columns and no other: leave {option('length')} out.", option="length"
        )
    if given is None:
        return frames.of_kind(_new(fitted, number, how, tell), fitted.frames)
    if not len(given):
        raise DataError("The given table has no rows: leave it out for new ones.", option="given")
    import polars as pl

    layout, turn = wide.layout(fitted), wide.turned(fitted, given, tell)
    model, long = wide.plain(fitted), pl.DataFrame(turn.long.columns((GROUP, ITEM, VALUE)))
    if number > 1:
        model, long = copies(model, long, number)
    codes = _codes(complete(model, long, how, tell)).reshape(number, len(given), len(layout))
    gone = np.flatnonzero(np.isnan(turn.codes).any(0)).tolist()
    name, tables = unused("draw", given.names), list[Any]()
    for k, drawn in enumerate(codes, 1):
        columns: dict[str, Any] = {layout.names[c]: wide.filled(turn, layout, c, drawn[:, c]) for c in gone}
        columns |= {name: np.full(len(given), k)} if number > 1 else {}
        tables.append(given.with_columns(columns))
    import narwhals as nw

    return nw.concat([nw.from_native(one) for one in tables]).to_native() if number > 1 else tables[0]


def _new(fitted: Fitted, number: int, how: How, tell: Tell) -> "pl.DataFrame":
    import polars as pl

    layout = wide.layout(fitted)
    rows = np.arange(1, number + 1)
    long = {GROUP: np.repeat(rows, len(layout)), ITEM: list(layout.names) * number}
    blank = pl.DataFrame(long).with_columns(pl.lit(None, pl.Float64).alias(VALUE))
    codes = _codes(complete(wide.plain(fitted), blank, how, tell)).reshape(number, len(layout))
    made: dict[str, Any] = {} if layout.id is None else {layout.id: pl.Series(rows)}
    for c, column in enumerate(layout.columns):
        entries = layout.decoded(c, codes[:, c])
        whole = column.kind == "number" and wide.family_of(fitted, c).discrete
        made[column.name] = entries.cast(pl.Int64) if whole else entries
    return pl.DataFrame(made)


def _codes(long: "pl.DataFrame") -> np.ndarray:
    return long[VALUE].cast(float).to_numpy()
