"""What comes after the last group of each series, several steps on, by paths.

    path:  y_(t+1) ~ p(. | y_t, ...),   y_(t+2) ~ p(. | drawn y_(t+1), y_t, ...),   ...

Each step is a group without values, like the last one of its series in items and attributes. Its values are drawn
together, given the earlier groups of the same path, so that what is not known yet widens what follows.
"""

from numbers import Real
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from efattn.data import Groups, Table
from efattn.data.columns import plain
from efattn.errors import DataError, Note, named, option
from efattn.inference import frames
from efattn.inference.blank_tables import DAY, as_polars, check_count, filled, unused
from efattn.inference.completing import Blank, Completed, How, completed
from efattn.inference.drawn_tables import check_seed, check_sweeps, copies
from efattn.inference.fitted import Fitted
from efattn.inference.tables import Tell, announce

if TYPE_CHECKING:
    import polars as pl

SLACK = 1e-6  # of a step, for times that are no whole numbers


def forecast(
    fitted: Fitted,
    table: Table,
    steps: int = 5,
    *,
    draws: int = 200,
    interval: float = 0.9,
    paths: bool = False,
    seed: int = 0,
    burn_in: int | None = None,
    member: int | None = None,
    tell: Tell = announce,
) -> Any:
    """The rows to come, with a column `step` and <value>_mean, _sd, _lower and _upper over so many paths; paths: all of
    them instead, told apart by a column `draw`."""
    steps, draws = check_count("steps", steps), check_count("draws", draws)
    how = How(check_seed(seed), check_sweeps(burn_in), member)
    if isinstance(interval, bool) or not isinstance(interval, Real) or not 0 < float(interval) < 1:
        raise DataError(f"{named('interval')} is a probability between 0 and 1; found {interval!r}.", option="interval")
    if not fitted.schema.lags:
        raise DataError(
            "This model sees no earlier groups, so that nothing follows from the last one: fit with "
            f"{option('lags', 1)} and {option('time')}; rows that follow in a group are drawn by sample.",
            option="lags",
        )
    fitted.parts_of("value", "forecast", member)
    kept = set(fitted.schema.roles.columns) - {*fitted.schema.roles.of("weight"), *fitted.schema.roles.of("target")}
    frame = as_polars(table).select(name for name in table.names if name in kept)  # the rest is of days gone by
    if not len(frame):
        raise DataError("The table has no rows: there is nothing to go on from.")
    coming = rows_to_come(fitted, frame, steps, tell)
    values = _draw(fitted, coming, draws, how, tell)
    told = coming.future.drop([name for name in fitted.schema.roles.of("value") if name in frame.columns])
    name = unused("step", told.columns)
    told = told.select(_series(name, coming.step), *told.columns)
    return table.same_kind(_paths(fitted, told, values) if paths else _summary(fitted, told, values, interval))


class Coming(NamedTuple):
    """tail: the rows that are seen; future: those to come, without values, and the step (row,) each belongs to."""

    tail: "pl.DataFrame"
    future: "pl.DataFrame"
    step: np.ndarray


def rows_to_come(fitted: Fitted, frame: "pl.DataFrame", steps: int, tell: Tell) -> Coming:
    import polars as pl

    schema, roles = fitted.schema, fitted.schema.roles
    groups = schema.encode(Table.read(frame))
    fitted.check(groups, items=False)
    assert groups.time is not None
    assert groups.series is not None
    assert schema.step is not None
    last = np.full(int(groups.series.max()) + 1, groups.time.min())
    np.maximum.at(last, groups.series, groups.time)
    late = last[groups.series]
    seen = groups.time >= late - (schema.lags - 1) * schema.step - SLACK * schema.step
    ends = np.flatnonzero(groups.time == late)
    rows, of = _rows(groups, ends)
    tail = frame[np.sort(_rows(groups, np.flatnonzero(seen))[0]).tolist()]
    parts, part, when = list[pl.DataFrame](), frame[rows.tolist()], str(roles.time)
    named_by = [name for name in roles.of("group") if name not in (when, *roles.of("series"))]
    values = [pl.Series(n, [None] * len(part), frame.schema[n]) for n in roles.of("value") if n in frame.columns]
    for k in range(1, steps + 1):
        time = _at(frame[when], groups.time[of] + k * schema.step, schema.time_kind).alias(when)
        names = [_next_names(frame[name], part[name], k) for name in named_by]
        parts.append(part.with_columns(time, *names, *values))
    kept = [name for name in roles.of("attributes") if name != when]
    if kept:
        said = f"Rows to come have {', '.join(map(repr, kept))} as the last group of their series has."
        tell(Note("next attributes", said, column=kept[0]))
    return Coming(tail, pl.concat(parts), np.repeat(np.arange(1, steps + 1), len(rows)))


def _rows(groups: Groups, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The table's rows of some groups, and the group of each."""
    some = groups.subset(numbers)
    return some.rows, numbers[some.group]


def _at(column: "pl.Series", time: np.ndarray, kind: str | None) -> "pl.Series":
    """Times as the column has them; of dates microseconds come in."""
    import polars as pl

    dtype = column.dtype
    if kind != "instant":
        whole = np.equal(np.mod(time, 1), 0).all()
        made = pl.Series(time.astype(np.int64) if whole else time)
        return made.cast(dtype if whole or dtype.is_float() or dtype == pl.String else pl.Float64)
    moments = pl.Series(time.astype(np.int64)).cast(pl.Datetime("us"))
    if isinstance(dtype, pl.Datetime) and dtype.time_zone is not None:
        local = column.dt.replace_time_zone(None)
        if local.dt.time().n_unique() <= 1:
            return moments.dt.replace_time_zone(dtype.time_zone, non_existent="null").cast(dtype)
        return moments.dt.replace_time_zone("UTC").dt.convert_time_zone(dtype.time_zone).cast(dtype)
    if dtype.is_temporal():
        return moments.cast(dtype)
    return moments.dt.strftime("%Y-%m-%d" if (time % DAY == 0).all() else "%Y-%m-%d %H:%M:%S")


def _next_names(every: "pl.Series", mine: "pl.Series", step: int) -> "pl.Series":
    """Names of groups to come, which the table does not have."""
    import polars as pl

    if every.dtype.is_integer():
        last = every.max()
        assert isinstance(last, int)
        first = mine.rank("dense").cast(pl.Int64)
        return (first + last + (step - 1) * mine.n_unique()).cast(every.dtype).alias(every.name)
    return (plain(mine).cast(pl.String) + f" + {step}").alias(every.name)


def _draw(fitted: Fitted, coming: Coming, draws: int, how: How, tell: Tell) -> np.ndarray:
    """(draw, row to come, column), in the table's units."""
    import polars as pl

    both = pl.concat([coming.tail, coming.future], how="vertical_relaxed")
    told, many = copies(fitted, both, draws)
    groups = told.schema.encode(Table.read(many))
    future = np.tile(np.arange(len(both)) >= len(coming.tail), draws)
    blank = Blank(np.zeros(len(many), bool), np.repeat(future[:, None], len(fitted.schema.roles.of("value")), 1))
    drawn = completed(told, groups, blank, how)
    if drawn.note is not None:
        tell(drawn.note)
    assert drawn.value is not None
    return drawn.value[future].reshape(draws, len(coming.future), -1)


def _summary(fitted: Fitted, told: "pl.DataFrame", values: np.ndarray, interval: float) -> "pl.DataFrame":
    assert fitted.family is not None
    columns: dict[str, Any] = {}
    for c, name in enumerate(fitted.schema.roles.of("value")):
        y = values[..., c]
        columns[f"{name}_mean"], columns[f"{name}_sd"] = y.mean(0), y.std(0, ddof=min(1, len(y) - 1))
        part = next(part for part, _, where in fitted.family.slices() if c < where.stop)
        method: Any = "inverted_cdf" if part.discrete else "linear"
        ends = np.quantile(y, [(1 - interval) / 2, (1 + interval) / 2], axis=0, method=method)
        columns[f"{name}_lower"], columns[f"{name}_upper"] = ends
    return told.with_columns(_series(n, x) for n, x in frames.renamed(columns, told.columns).items())


def _paths(fitted: Fitted, told: "pl.DataFrame", values: np.ndarray) -> "pl.DataFrame":
    """One path below the other."""
    draws, rows, columns = values.shape
    _, many = copies(fitted, told, draws)
    blank = Blank(np.zeros(len(many), bool), np.ones((len(many), columns), bool))
    return filled(fitted, many, blank, Completed(None, values.reshape(draws * rows, columns), None))


def _series(name: str, x: np.ndarray) -> "pl.Series":
    import polars as pl

    return pl.Series(name, x)
