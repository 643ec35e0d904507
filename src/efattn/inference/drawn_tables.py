"""A table whose nulls are drawn, and copies of a table that are drawn apart."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from efattn.data import Table
from efattn.errors import DataError, Note
from efattn.inference.blank_tables import check_count, filled, group_numbers, no_item, repeated, unused
from efattn.inference.completing import How, blank_cells, completed
from efattn.inference.fitted import Fitted
from efattn.inference.tables import Tell

if TYPE_CHECKING:
    import polars as pl


def complete(fitted: Fitted, frame: "pl.DataFrame", how: How, tell: Tell) -> "pl.DataFrame":
    """The same table without nulls, as far as the model can draw them."""
    blank_items = no_item(fitted, frame)
    groups = fitted.schema.encode(Table.read(frame), need=())
    fitted.check(groups, items="item" in fitted.terms)
    blank = blank_cells(fitted, groups, blank_items)
    if not blank.item.any() and not blank.value.any():
        tell(Note("nothing to draw", "Nothing is missing in these rows: there is nothing to draw.", important=True))
        return frame
    for note in groups.notes:
        if note.kind in ("unknown items", "unknown levels"):
            tell(note)
    kind = None if fitted.schema.lags else _kinds(fitted, frame)  # of groups that look at others, each is its own
    drawn = completed(fitted, groups, blank, how, kind)
    if drawn.note is not None:
        tell(drawn.note)
    return filled(fitted, frame, blank, drawn)


def _kinds(fitted: Fitted, frame: "pl.DataFrame") -> np.ndarray:
    """(group,), by first appearance: the same where all that is given is the same but for the groups' names."""
    roles = fitted.schema.roles
    number = group_numbers(fitted, frame)
    given = frame.drop([name for name in (*roles.of("group"), *roles.of("time")) if name in frame.columns])
    row = np.unique(given.hash_rows(seed=0).to_numpy(), return_inverse=True)[1] if given.width else np.zeros(len(frame))
    held: dict[int, list[int]] = {}
    for group, what in zip(number.tolist(), row.tolist(), strict=True):
        held.setdefault(group, []).append(what)
    names: dict[tuple[int, ...], int] = {}
    return np.array([names.setdefault(tuple(what), len(names)) for _, what in sorted(held.items())])


def copies(fitted: Fitted, frame: "pl.DataFrame", number: int) -> tuple[Fitted, "pl.DataFrame"]:
    """A table so many times, each copy groups and series of their own by a column `draw`, and a model that knows it."""
    name, roles = unused("draw", frame.columns), fitted.schema.roles
    told = replace(roles, group=(name, *roles.of("group")))
    if fitted.schema.lags:
        told = replace(told, series=(name, *roles.of("series")))
    return replace(fitted, schema=replace(fitted.schema, roles=told)), repeated(frame, number, name)


def check_sweeps(burn_in: Any) -> int | None:
    return None if burn_in is None else check_count("burn_in", burn_in, 0)


def check_seed(seed: Any) -> int:
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or not 0 <= seed < 2**63:
        raise DataError(f"seed is a whole number from 0; found {seed!r}.", option="seed")
    return int(seed)
