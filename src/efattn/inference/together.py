"""Several people's tables, asked the same at once: one pass through the networks instead of one each.

    tables of strangers  ->  groups of each  ->  one run of groups  ->  answers  ->  to each its own

No group of one sees a group of another, so that an answer is the one that its table gets alone, but for the rounding of
sums whose padding differs. Each has its own errors and notes: what is wrong with one table is told to whom it belongs.
"""

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Any, NamedTuple

import numpy as np

from efattn.data import Groups, Names, Table
from efattn.data.groups import Observations
from efattn.errors import EfattnError
from efattn.inference import frames
from efattn.inference.fitted import Fitted
from efattn.inference.next_row import NextRow
from efattn.inference.predict import checked_quantiles, expected, most_probable, predict
from efattn.inference.recommend import Lists, next_items, ranked, recommend
from efattn.inference.tables import Asked, Tell, encoded

Reply = Any | EfattnError


class Asking(NamedTuple):
    """One table, and who hears what there is to tell of it."""

    table: Table
    tell: Tell


def predict_together(
    fitted: Fitted, several: Sequence[Asking], interval: float | None = 0.9, *, quantiles: Sequence[float] = ()
) -> list[Reply]:
    """For each table what `predict` says of it, or the error that it would raise."""
    items = fitted.terms == ("item",)

    def alone(one: Asking) -> Any:
        (answer,) = predict(fitted, [one.table], interval, quantiles=quantiles, tell=one.tell)
        return answer

    def at_once(asked: Sequence[Asked], groups: Groups) -> list[Any]:
        rows = [len(one.table) for one in asked]
        if items:
            columns = most_probable(fitted, fitted.parts_of("item", "predict"), groups, sum(rows))
        else:
            parts, levels = fitted.parts_of("value", "predict"), checked_quantiles(quantiles)
            columns = dict[str, Any](expected(fitted, parts, groups, sum(rows), interval, levels))
        ends = np.cumsum([0, *rows])
        return [
            frames.beside(one.table, {name: x[a:b] for name, x in columns.items()})
            for one, a, b in zip(asked, ends, ends[1:], strict=False)
        ]

    return _together(fitted, several, alone, at_once, items=items)


def recommend_together(fitted: Fitted, several: Sequence[Asking], k: int = 10) -> list[Reply]:
    """For each table what `recommend` says of it, or the error that it would raise."""

    def alone(one: Asking) -> Any:
        (answer,) = recommend(fitted, [one.table], k, tell=one.tell)
        return answer

    def at_once(asked: Sequence[Asked], groups: Groups) -> list[Any]:
        row = NextRow(fitted, fitted.parts_of("item", "recommend"))
        number, item, probability = next_items(row, groups, Lists(k), asked[0].table)
        answers, first = list[Any](), 0
        for table, own in asked:
            mine = slice(first, first + len(own))
            names = frames.name_columns(own.labels.take(number[mine] - first), own.columns, item.shape[1])
            answers.append(ranked(fitted, 0.0, table, names, item[mine], probability[mine]))
            own.notes.extend(row.notes(own))
            first += len(own)
        return answers

    return _together(fitted, several, alone, at_once, items=True)


def _together(
    fitted: Fitted,
    several: Sequence[Asking],
    alone: Callable[[Asking], Any],
    at_once: Callable[[Sequence[Asked], Groups], list[Any]],
    *,
    items: bool,
) -> list[Reply]:
    """at_once, of tables that can be joined; where it fails, and of all others, each alone."""
    found = list[Reply | None]([None] * len(several))
    asked = dict[int, Asked]()
    for number, one in enumerate(several):
        if len(several) > 1 and len(one.table):
            try:
                (asked[number],) = encoded(fitted, [one.table], lambda note: None, items=items)
            except EfattnError as error:
                found[number] = error
    kinds = dict[Any, list[int]]()
    for number, read in asked.items():
        kinds.setdefault(_kind(read.groups), []).append(number)
    for numbers in kinds.values():
        mine = [asked[number] for number in numbers]
        if len(mine) > 1:
            try:
                answers = at_once(mine, joined([one.groups for one in mine]))
            except EfattnError:  # one of them is to blame, who is told when alone
                continue
            for number, answer in zip(numbers, answers, strict=True):
                found[number] = answer
                for note in asked[number].groups.notes:
                    several[number].tell(note)
    return [_or_error(alone, one) if answer is None else answer for one, answer in zip(several, found, strict=True)]


def _or_error(alone: Callable[[Asking], Any], one: Asking) -> Reply:
    try:
        return alone(one)
    except EfattnError as error:
        return error


def _kind(groups: Groups) -> tuple[bool, ...]:
    """Which of the fields there are: a column that may be absent is there in all that are joined, or in none."""
    return tuple(getattr(groups.every, f.name) is None for f in fields(Observations))


def joined(several: Sequence[Groups]) -> Groups:
    """Groups of several tables as those of one, whose rows are counted on from table to table."""
    first = several[0]
    rows = np.cumsum([0, *(len(one.every.row) for one in several)])
    before = np.cumsum([0, *(len(one) for one in several)])
    columns = dict[str, Any]()
    for f in fields(Observations):
        parts = [getattr(one.every, f.name) for one in several]
        columns[f.name] = None if parts[0] is None else np.concatenate(parts)
    columns["row"] = np.concatenate([one.every.row + a for one, a in zip(several, rows, strict=False)])
    offsets = np.concatenate([[0], *(one.offsets[1:] + a for one, a in zip(several, rows, strict=False))])
    lagged = None
    if first.lagged is not None:
        there = [(one.lagged, a) for one, a in zip(several, before, strict=False)]
        lagged = np.concatenate([np.where(x >= 0, x + a, x) for x, a in there if x is not None]).astype(np.int32)
    labels = Names(("integer",), (np.arange(before[-1]),))
    return replace(
        first, every=Observations(**columns), offsets=offsets, labels=labels, columns=("group",), lagged=lagged,
        time=None, series=None, notes=[],
    )  # fmt: skip
