"""From tables to groups, for every question that a fitted model is asked.

    tables (one, or pieces of whole groups)  ->  groups of each, checked  ->  what a verb makes of them

Notes about the rows go to `tell`: of one table all of them, of several each kind once, and only what holds of any part.
"""

import logging
import sys
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from efattn.data import Groups, Table
from efattn.data.gathering import whole_groups
from efattn.data.sources import too_large
from efattn.errors import EfattnWarning, Note
from efattn.inference import wide
from efattn.inference.fitted import Fitted

log = logging.getLogger("efattn")
Tell = Callable[[Note], object]
OF_ANY_PART = ("missing column", "no item", "unknown items", "unknown levels", "ties")  # kinds of notes


class Asked(NamedTuple):
    """A table, and its groups in the table's units."""

    table: Table
    groups: Groups


def announce(note: Note) -> None:
    """How notes are told in Python: what should not be missed as a warning, the rest to the log."""
    if note.important:
        warnings.warn(str(note), EfattnWarning, stacklevel=_depth())
    else:
        log.info(str(note))


def _depth() -> int:
    """How many callers stand between a warning and the user's own line."""
    home, frame, depth = str(Path(__file__).parents[1]), sys._getframe(1), 1
    while frame.f_back is not None and frame.f_code.co_filename.startswith(home):
        frame, depth = frame.f_back, depth + 1
    return depth


def tables_of(fitted: Fitted, table: Any) -> Iterator[Table]:
    """A table, or the path of one that memory should not hold in portions of whole groups, where the model allows it:
    it has groups and sees no lags."""
    group = fitted.schema.roles.of("group")
    if group and not fitted.schema.lags and fitted.wide is None and too_large(table):
        yield from whole_groups(table, group)
    else:
        yield Table.read(table)


def encoded(
    fitted: Fitted,
    tables: Iterable[Table],
    tell: Tell = announce,
    *,
    need: Collection[str] = (),
    items: bool = True,
    sort: bool = False,
) -> Iterator[Asked]:
    """need: which of the columns that may be absent must be there; items: whether they are asked about; sort: groups by
    their names, and rows of unordered ones by what they hold, so that nothing depends on how a table came. Wide tables
    are turned into long ones, if that is how the model was fitted."""
    heard: list[list[Note]] = []
    for table in tables if fitted.wide is None else wide.each(fitted, tables, tell)[0]:
        groups = fitted.schema.encode(table, need=need, sort=sort)
        fitted.check(groups, items=items)
        heard.append(groups.notes)
        yield Asked(table, groups)
    for note in _worth_telling(heard):
        tell(note)


def _worth_telling(heard: list[list[Note]]) -> list[Note]:
    if len(heard) == 1:
        return heard[0]
    firsts = [next((note for notes in heard for note in notes if note.kind == kind), None) for kind in OF_ANY_PART]
    return [
        Note(
            n.kind, f"In one of {len(heard)} parts, perhaps in others: {n.text}", n.column, n.row, n.option, n.important
        )
        for n in firsts
        if n is not None
    ]
