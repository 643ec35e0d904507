"""Parts of a table to fit on, to choose by, and to judge by.

    last      of each group the last row tests, the one before it validates, the earlier ones train
    time      the last rows of the whole table test, those just before validate: a moment parts them, for all groups
    groups    whole groups at random

A row that tests is predicted from all that came before it in its group, rows that validate among them: that history is
in the part too, and the column `target` is false there. So a part is given whole to `evaluate`, or to `fit` as
validation, and no row of another part is ever a target.
"""

from collections.abc import Sequence
from numbers import Real
from typing import Any, NamedTuple

import numpy as np

from efattn.data.columns import ranks
from efattn.data.keys import distinct
from efattn.data.roles import ROW_ORDER
from efattn.data.table import Table
from efattn.errors import DataError, named, option

WAYS = ("last", "time", "groups")
ROWS, SHARE = 1, 0.1  # of each group; of all rows or groups


class Split(NamedTuple):
    """Frames of the kind that was split, each with the columns of the table and `target`; None where none was asked
    for."""

    train: Any
    validation: Any
    test: Any


class _Part(NamedTuple):
    """(row,): which rows are in a part, and which of them are targets."""

    there: np.ndarray
    target: np.ndarray


def split(
    table: Any,
    by: str = "last",
    *,
    group: str | Sequence[str] = (),
    order: str | None = None,
    validation: float | None = None,
    test: float | None = None,
    target: str = "target",
    seed: int = 0,
) -> Split:
    """train, validation and test, each a frame with a column `target` that says which rows count; the others are their
    history.

    by: "last", "time" or "groups". group, order: columns, as in fit; order="row" for table order. validation, test: how
    many rows of each group for "last", 1 unless said, and a share of the rows or groups else, 0.1 unless said;
    validation=0 for none. A group that is too short to leave a row to train on trains whole. Rows of one time stay
    together. target: what to call the new column. seed: of the groups that are drawn.

        train, validation, test = efattn.split(events, group="user", order="at")
        model = EFA(context="past").fit(train, group="user", item="item", order="at")
        print(model.evaluate(test))
    """
    source, names = Table.read(table), [group] if isinstance(group, str) else list(group)
    _check(source, by, names, order, target)
    held, judged = (_size(by, name, x) for name, x in (("validation", validation), ("test", test)))
    if by == "time":
        parts = _by_time(_groups(source, names), _order(source, order), held, judged)
    elif by == "last":
        parts = _by_last(_groups(source, names), _order(source, order), round(held), round(judged))
    else:
        parts = _by_groups(_groups(source, names), held, judged, seed)
    if not parts[0].target.any():
        raise DataError("Nothing is left to train on. Hold out less, or check the role group.", option="test")
    frames = [_frame(source, part, target) for part in parts]
    return Split(frames[0], frames[1] if held else None, frames[2])


def _by_last(number: np.ndarray, order: np.ndarray, validation: int, test: int) -> list[_Part]:
    by = np.lexsort((order, number))
    length = np.bincount(number)
    from_end = np.empty(len(number), np.int64)  # 0 for the last row of a group
    ends = np.cumsum(length)
    from_end[by] = np.repeat(ends, length) - 1 - np.arange(len(number))
    long = (length > validation + test)[number]
    judged, chosen = long & (from_end < test), long & (from_end >= test) & (from_end < test + validation)
    rest = ~judged & ~chosen
    return [_Part(rest, rest), _Part(long & ~judged, chosen), _Part(long, judged)]


def _by_time(number: np.ndarray, order: np.ndarray, validation: float, test: float) -> list[_Part]:
    times, count = np.sort(order), len(order)
    late = times[min(max(count - round(test * count), 0), count - 1)]
    before = count - round((test + validation) * count)
    early = times[min(max(before, 0), count - 1)] if validation else late
    rest, judged = order < early, order >= late
    chosen = ~rest & ~judged
    parts = [_Part(rest, rest)]
    for mine, until in ((chosen, ~judged), (judged, np.ones(count, bool))):
        asked = np.zeros(int(number.max()) + 1, bool)
        asked[number[mine]] = True
        parts.append(_Part(until & asked[number], mine))
    return parts


def _by_groups(number: np.ndarray, validation: float, test: float, seed: int) -> list[_Part]:
    count = int(number.max()) + 1
    judged, chosen = max(round(test * count), 1), max(round(validation * count), 1) if validation else 0
    if judged + chosen >= count:
        said = f"{count} groups cannot give {judged} to test and {chosen} to validate. Hold out fewer."
        raise DataError(said, option="test")
    place = np.empty(count, np.int64)
    place[np.random.default_rng(seed).permutation(count)] = np.arange(count)
    place = place[number]
    ends = ((judged + chosen, count), (judged, judged + chosen), (0, judged))
    return [_Part(mine, mine) for mine in ((place >= low) & (place < high) for low, high in ends)]


def _frame(source: Table, part: _Part, target: str) -> Any:
    rows = np.flatnonzero(part.there)
    return Table.read(source.take(rows)).with_columns({target: part.target[rows]})


def _groups(source: Table, names: Sequence[str]) -> np.ndarray:
    """(row,): numbers by the groups' names, so that nothing depends on how the table came."""
    number, _ = distinct(source.columns(names, "group"), "group", len(source), sort=True)
    if (number < 0).any():
        row = int(np.flatnonzero(number < 0)[0])
        said = f"The role group allows no nulls; column {names[0]!r} is null at row {row}. Fill it in or drop the row."
        raise DataError(said, column=names[0], row=row)
    return number


def _order(source: Table, order: str | None) -> np.ndarray:
    return (
        np.arange(len(source)) if order in (None, ROW_ORDER) else ranks(source.column(str(order), "order"), "order", [])
    )


def _check(source: Table, by: str, group: Sequence[str], order: str | None, target: str) -> None:
    if by not in WAYS:
        raise DataError(f"{named('by')} is one of {', '.join(WAYS)}; found {by!r}.", option="by")
    if not len(source):
        raise DataError("The table has no rows: there is nothing to split.")
    if by != "time" and not group:
        raise DataError(f"A split by {by} needs to know the groups: pass {option('group')}.", option="group")
    if by != "groups" and order is None:
        wanted = f"pass {option('order')}, or {option('order', 'row')} for table order"
        raise DataError(f"A split by {by} needs to know what came first: {wanted}.", option="order")
    if target in source.names:
        said = f"There is a column {target!r} already. Call the new one otherwise: {option('target')}."
        raise DataError(said, column=target, option="target")


def _size(by: str, name: str, size: Any) -> float:
    if size is None:
        return ROWS if by == "last" else SHARE
    least = 0 if name == "validation" else None
    number = isinstance(size, Real) and not isinstance(size, bool)
    whole = number and size >= 1 and float(size).is_integer()
    if number and (size == least or (whole if by == "last" else 0 < size < 1)):
        return float(size)
    wanted = "a number of rows of each group, 1, 2, ..." if by == "last" else "a share between 0 and 1"
    raise DataError(f"{named(name)} is {wanted}; found {size!r}.", option=name)
