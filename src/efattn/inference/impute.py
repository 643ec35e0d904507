"""Missing values filled in: with what is expected of each, or by draws that are right together.

    means    E[y | all that is observed in its group], as predict gives it for a row with holes; of words the mode.
             Beside them <value>_sd, _lower and _upper, of words _probability of the mode; null where a value was there
    draws    m completed tables (multiple.py), whose estimates `pool` puts together

Value columns that a row has inform those that it lacks where they are of one multivariate family (given.py); columns of
a wide table are items of one group, and always do.
"""

from collections.abc import Iterable, Iterator, Sequence
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch

from efattn.data import Groups, Table
from efattn.errors import DataError, named
from efattn.families import Product
from efattn.inference import frames, holes, mixture, wide
from efattn.inference.fitted import Fitted, Part
from efattn.inference.multiple import drawn
from efattn.inference.predict import adjusted, in_units
from efattn.inference.tables import Tell, announce, encoded

BESIDE = ("sd", "lower", "upper")
MODES = ("mode", "probability")


def impute(
    fitted: Fitted,
    tables: Iterable[Table],
    *,
    draws: int = 0,
    seed: int = 0,
    interval: float | None = 0.9,
    tell: Tell = announce,
) -> Iterator[Any]:
    """Each table with its nulls filled in; with draws=m a list of m completed tables for each."""
    _check(draws, seed, interval)
    parts, longs, last = fitted.parts_of("value", "impute"), tables, None
    if fitted.wide is not None:
        longs, last = wide.each(fitted, tables, tell)
    for table, groups in encoded(wide.plain(fitted), longs, tell, items=False, sort=True):
        shown = table if last is None else last().table
        if draws:
            several = drawn(fitted, parts, groups, len(table), draws, seed)
            yield [shown.with_columns(_completed(fitted, last and last(), table, groups, one)) for one in several]
            continue
        found = expected(fitted, parts, groups, len(table), interval)
        words = _words(fitted, table)
        best = np.where(words, found["mode"].reshape(-1, len(words)), found["mean"].reshape(-1, len(words)))
        columns = _completed(fitted, last and last(), table, groups, best)
        beside = frames.renamed(_beside(fitted, found, words), [*shown.names, *columns])
        yield Table.read(shown.with_columns(columns)).with_columns(beside)


def _check(draws: int, seed: int, interval: float | None) -> None:
    for name, number in (("draws", draws), ("seed", seed)):
        if isinstance(number, bool) or not isinstance(number, Integral) or number < 0:
            raise DataError(f"{named(name)} is a whole number >= 0; found {number!r}.", option=name)
    if interval is not None and (isinstance(interval, bool) or not isinstance(interval, Real) or not 0 < interval < 1):
        wanted = f"{named('interval')} is a probability between 0 and 1, or None"
        raise DataError(f"{wanted}; found {interval!r}.", option="interval")


@torch.no_grad()
def expected(
    fitted: Fitted, parts: Sequence[Part], groups: Groups, rows: int, interval: float | None
) -> dict[str, np.ndarray]:
    """mean, sd, lower, upper, mode and its probability of missing cells, (row, column); NaN elsewhere. groups: in the
    table's units."""
    family, names = parts[0].model.family, fitted.schema.roles.of("value")
    assert isinstance(family, Product)
    assert fitted.family is not None
    ends = {} if interval is None else {"lower": (1 - interval) / 2, "upper": (1 + interval) / 2}
    out = {kind: np.full((rows, family.columns), np.nan) for kind in ("mean", "sd", *ends, *MODES)}
    for one in holes.each(fitted, parts, groups):
        mean = mixture.mean(family, one.outputs, one.shares)
        answers = {"mean": mean, "sd": mixture.variance(family, one.outputs, one.shares).sqrt()}
        for kind, p in ends.items():
            answers[kind] = mixture.quantile(
                family, one.outputs, one.shares, adjusted(fitted, names, p, mean, one.item)
            )
        for kind, values in answers.items():
            out[kind][one.row] = in_units(fitted, values.numpy(), one.item, spread=kind == "sd")
        for kind, told in zip(MODES, holes.modes(fitted.family, one), strict=True):
            out[kind][one.row] = told
    there = ~holes.missing(groups, rows)
    for x in out.values():
        x[there] = np.nan
    return out


def _words(fitted: Fitted, table: Table) -> np.ndarray:
    """(column,): whether the mode is told rather than the mean, which words and truth have none of."""
    if fitted.wide is not None:
        return np.array([bool(column.levels) for column in fitted.wide.columns])
    names = fitted.schema.roles.of("value")
    return np.array([name in fitted.schema.levels or _is_truth(table, name) for name in names])


def _is_truth(table: Table, name: str) -> bool:
    import polars as pl

    return name in table.names and table.column(name).dtype == pl.Boolean


def _completed(
    fitted: Fitted, turn: wide.Turned | None, table: Table, groups: Groups, values: np.ndarray
) -> dict[str, Any]:
    """The columns in which something was missing, by name, filled in with these values (row, column)."""
    import polars as pl

    if turn is not None and fitted.wide is not None:
        codes = values.reshape(-1, len(fitted.wide))
        gone = np.flatnonzero(np.isnan(turn.codes).any(0)).tolist()
        return {fitted.wide.names[c]: wide.filled(turn, fitted.wide, c, codes[:, c]) for c in gone}
    own, columns = np.full(values.shape, np.nan), dict[str, Any]()
    assert groups.every.value is not None
    own[groups.every.row] = groups.every.value
    for c, name in enumerate(fitted.schema.roles.of("value")):
        gone = np.isnan(own[:, c])
        if not gone.any():
            continue
        column = np.where(gone, values[:, c], own[:, c])
        if name in fitted.schema.levels:
            levels = pl.Series(fitted.schema.levels[name], dtype=pl.String)
            columns[name] = levels.gather(column.round().astype(np.int64))
        elif _is_truth(table, name):
            columns[name] = column >= 0.5
        else:
            whole = name in table.names and table.column(name).dtype.is_integer() and (column == column.round()).all()
            columns[name] = column.astype(np.int64) if whole else column
    return columns


def _beside(fitted: Fitted, found: dict[str, np.ndarray], words: np.ndarray) -> dict[str, Any]:
    """<value>_sd, _lower and _upper; of words _probability of the mode."""
    import polars as pl

    names = fitted.schema.roles.of("value") if fitted.wide is None else fitted.wide.names
    columns = {}
    for c, (name, word) in enumerate(zip(names, words, strict=True)):
        for kind in ("probability",) if word else (kind for kind in BESIDE if kind in found):
            x = found[kind].reshape(-1, len(names))[:, c]
            columns[f"{name}_{kind}"] = pl.Series(x).fill_nan(None)
    return columns
