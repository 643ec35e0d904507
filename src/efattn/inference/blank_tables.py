"""Tables with blank cells, made of nothing or of given rows, and tables again once the cells are drawn.

new_groups     rows of new groups: names 1, 2, ..., order 0, 1, 2, ...; items and values null
lengthened     given rows, and as many blank ones behind each group as it is to have
filled         blank cells replaced by what was drawn; all else stays as it is
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from efattn.data import Table
from efattn.data.reading import Reading
from efattn.errors import DataError, named, option
from efattn.inference import frames
from efattn.inference.completing import Blank, Completed
from efattn.inference.fitted import Fitted
from efattn.network import Gaps

if TYPE_CHECKING:
    import polars as pl

DAY = 86_400_000_000  # in microseconds


def as_polars(table: Table) -> "pl.DataFrame":
    import polars as pl

    return pl.DataFrame(table.columns(table.names))


def new_groups(fitted: Fitted, lengths: np.ndarray, items: np.ndarray | None) -> "pl.DataFrame":
    """items: the number of each row's item, where these are not to be drawn."""
    import polars as pl

    roles, schema = fitted.schema.roles, fitted.schema
    within = np.concatenate([np.arange(n) for n in lengths]) if len(lengths) else np.zeros(0, np.int64)
    columns: dict[str, Any] = {}
    for name in roles.of("group"):
        columns[name] = np.repeat(np.arange(1, len(lengths) + 1), lengths)
    if items is None:
        columns |= {name: pl.Series(name, [None] * len(within), pl.Null) for name in roles.of("item")}
    elif schema.vocabulary is not None:
        columns |= frames.item_columns(schema.vocabulary, items)
    for name in roles.of("order"):
        times = within if schema.when_kind is None else within * (usual_gap(fitted) or _one(schema.when_kind))
        columns[name] = (
            pl.from_epoch(pl.Series(times.astype(np.int64)), "us") if schema.when_kind == "instant" else times
        )
    columns |= {name: np.ones(len(within)) for name in roles.of("exposure")}
    columns |= {name: np.zeros(len(within)) for name in roles.of("noise")}
    columns |= {name: pl.Series(name, [None] * len(within), pl.Null) for name in roles.of("value")}
    return pl.DataFrame(columns)


def usual_gap(fitted: Fitted) -> float | None:
    """The time between two rows, in the units of a batch, where a network knows it."""
    for name in fitted.names:
        gaps = getattr(fitted.members[0][name], "gaps", None)
        if isinstance(gaps, Gaps):
            return float(gaps.get_buffer("usual"))
    return None


def _one(kind: str | None) -> int:
    return DAY if kind == "instant" else 1


def lengthened(fitted: Fitted, frame: "pl.DataFrame", lengths: np.ndarray) -> "pl.DataFrame":
    """Rows group by group, in the order of the table, with new ones behind. lengths: (group,) by first appearance."""
    import polars as pl

    roles, number = fitted.schema.roles, group_numbers(fitted, frame)
    missing = np.maximum(lengths - np.bincount(number, minlength=len(lengths)), 0)
    of = np.repeat(np.arange(len(lengths)), missing)
    steps = np.concatenate([np.arange(1, n + 1) for n in missing]) if len(of) else np.zeros(0, np.int64)
    first = np.full(len(lengths), -1)
    first[number[::-1]] = np.arange(len(frame))[::-1]
    kept = frame[first[of].tolist()].select(roles.of("group"))
    columns: dict[str, Any] = {name: kept[name] for name in kept.columns}
    for name in roles.of("order"):
        columns[name] = _later(fitted, frame[name], number, of, steps)
        frame = frame.with_columns(frame[name].cast(columns[name].dtype))
    columns |= {name: pl.Series(name, np.ones(len(of))) for name in roles.of("exposure")}
    columns |= {name: pl.Series(name, np.zeros(len(of))) for name in roles.of("noise")}
    more = (
        pl.DataFrame(columns)
        if columns
        else pl.DataFrame({frame.columns[0]: pl.Series([None] * len(of), dtype=frame.dtypes[0])})
    )
    whole = pl.concat([frame, more], how="diagonal_relaxed")
    both = np.concatenate((number, of))
    return whole[np.argsort(both, kind="stable").tolist()]


def group_numbers(fitted: Fitted, frame: "pl.DataFrame") -> np.ndarray:
    """(row,): which group it belongs to, by first appearance."""
    return Reading(Table.read(frame), fitted.schema.roles, ()).group[0].astype(np.int64)


def _later(fitted: Fitted, order: "pl.Series", number: np.ndarray, of: np.ndarray, steps: np.ndarray) -> "pl.Series":
    """The order of new rows: steps after the last of its group, each as long as the middle one of the table."""
    import polars as pl

    if not (order.dtype.is_numeric() or order.dtype in (pl.Date, pl.Datetime)) or order.is_null().any():
        raise DataError(
            f"Rows can be added where the order, {order.name!r}, is numbers or times and known of each row; found "
            f"{order.dtype}. Give these rows yourself, with nulls for what is to be drawn.",
            column=order.name,
            option="length",
        )
    plain = order.to_physical().to_numpy()
    by = np.lexsort((plain, number))
    gaps = np.diff(plain[by])[(np.diff(number[by]) == 0)]
    gaps, usual = gaps[gaps > 0], usual_gap(fitted)
    step = float(np.median(gaps)) if len(gaps) else 1.0
    if not len(gaps) and isinstance(order.dtype, pl.Datetime):
        per = {"ns": 1000, "us": 1, "ms": 1 / 1000}[order.dtype.time_unit]
        step = (DAY if usual is None else usual) * per
    elif not len(gaps) and usual is not None and order.dtype.is_numeric():
        step = usual
    whole = order.dtype.is_temporal() or (order.dtype.is_integer() and float(step).is_integer())
    last = np.full(
        int(number.max(initial=-1)) + 1,
        -np.inf if not whole else np.iinfo(np.int64).min,
        plain.dtype if not whole else np.int64,
    )
    np.maximum.at(last, number, plain.astype(last.dtype))
    later = last[of] + steps * (max(round(step), 1) if whole else step)
    return pl.Series(order.name, later).cast(order.dtype) if whole else pl.Series(order.name, later, pl.Float64)


def no_item(fitted: Fitted, frame: "pl.DataFrame") -> np.ndarray:
    """(row,): whose item is null."""
    names = fitted.schema.roles.of("item")
    if not names:
        return np.zeros(len(frame), bool)
    return np.logical_and.reduce([frame[name].is_null().to_numpy() for name in names])


def filled(fitted: Fitted, frame: "pl.DataFrame", blank: Blank, drawn: Completed) -> "pl.DataFrame":
    import polars as pl

    changed = list[pl.Series]()
    if blank.item.any() and drawn.item is not None:
        names = frames.item_columns(fitted.vocabulary, np.where(blank.item, drawn.item, 0))
        changed += [_replaced(frame[name], blank.item, new) for name, new in names.items()]
    assert fitted.family is not None or drawn.value is None
    for c, name in enumerate(fitted.schema.roles.of("value") if drawn.value is not None else ()):
        here = blank.value[:, c]
        if here.any() or name not in frame.columns:
            assert drawn.value is not None
            new = _as_column(fitted, name, c, np.where(here, drawn.value[:, c], np.nan))
            old = frame[name] if name in frame.columns else pl.Series(name, [None] * len(frame), pl.Null)
            changed.append(_replaced(old, here, new))
    return frame.with_columns(changed)


def _as_column(fitted: Fitted, name: str, number: int, y: np.ndarray) -> "pl.Series":
    """Drawn values as the table has them: words of ordered categories, whole numbers of laws of these."""
    import polars as pl

    assert fitted.family is not None
    levels = fitted.schema.levels.get(name)
    column = pl.Series(name, y, nan_to_null=True)
    if levels is not None:
        return column.cast(pl.Int64).replace_strict(list(range(len(levels))), list(levels), return_dtype=pl.String)
    part = next(part for part, _, where in fitted.family.slices() if number < where.stop)
    return column.cast(pl.Int64) if part.discrete and np.nanmax(np.abs(y), initial=0) < 2**53 else column


def _replaced(old: "pl.Series", here: np.ndarray, new: "pl.Series") -> "pl.Series":
    """The column with new entries, in its own type where that holds them."""
    import polars as pl

    if old.dtype == pl.Null:
        return new.alias(old.name)
    try:
        kept = new.cast(old.dtype)
        same = kept.null_count() == new.null_count() and (not new.dtype.is_float() or not old.dtype.is_integer())
    except pl.exceptions.PolarsError:
        same = False
    if same:
        return kept.zip_with(pl.Series(here), old).alias(old.name)
    both = pl.concat([old.head(0).to_frame(), new.head(0).alias(old.name).to_frame()], how="vertical_relaxed").dtypes[0]
    return new.cast(both).zip_with(pl.Series(here), old.cast(both)).alias(old.name)


def check_count(name: str, n: Any, least: int = 1) -> int:
    """A whole number of at least so many."""
    if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < least:
        raise DataError(f"{named(name)} is a whole number >= {least}; found {n!r}.", option=name)
    return int(n)


def repeated(frame: "pl.DataFrame", times: int, name: str) -> "pl.DataFrame":
    """The rows so many times, with the number of the copy, from 1, before all columns."""
    import polars as pl

    copies = np.repeat(np.arange(1, times + 1), len(frame))
    return pl.concat([frame] * times).select(pl.Series(name, copies), pl.all())


def unused(name: str, taken: Sequence[str]) -> str:
    return next(iter(frames.renamed({name: None}, taken)))


NEED = f"pass the rows in {option('given')}, with nulls for what is to be drawn"
