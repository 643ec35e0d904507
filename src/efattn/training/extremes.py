"""Which rows of a table no training can cope with, and why.

A value that its family has not got in single precision (a Beta's 0.99999999 is 1 there), a weight or an exposure that
is infinite or 0 there, an attribute whose square is: any of these makes a loss NaN at whatever rate.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch

from efattn.data import Batch, Groups, Roles
from efattn.errors import TrainingError
from efattn.families.supports import Columns
from efattn.models import Conditionals

LARGE, SMALL = 1e18, 1e-30  # beyond these, squares and ratios leave single precision
SHOWN = 3


class Extreme(NamedTuple):
    """place: of the row within its part of the groups."""

    place: int
    column: str
    why: str


def extremes(term: Conditionals, data: Groups, roles: Roles | None) -> list[Extreme]:
    """What there is of it, in the order of the groups."""
    support = None if term.of_items else term.family.support
    return sorted([*_numbers(data, roles), *(_values(support, data, roles) if isinstance(support, Columns) else ())])


def words(causes: list[Extreme], data: Groups) -> str:
    """column 'size' at row 20 (user 'u3'), which Gamma cannot hold in single precision"""
    by = [f"column {x.column!r} at {data.label(x.place)}, {x.why}" for x in causes[:SHOWN]]
    return "; ".join(by) + (f"; and {len(causes) - SHOWN} more" if len(causes) > SHOWN else "")


def blamed(term: Conditionals, data: Groups, roles: Roles | None, what: str) -> TrainingError | None:
    """What to say of rows that are the cause of it, if there are any."""
    causes = extremes(term, data, roles)
    if not causes:
        return None
    at, row = causes[0], int(data.rows[causes[0].place])
    return TrainingError(
        f"{what} because of {words(causes, data)}. Mend or drop such rows, or choose another unit or family.",
        column=at.column,
        row=row,
    )


@torch.no_grad()
def broken_rows(term: Conditionals, batch: Batch, device: torch.device) -> list[int]:
    """Some of those whose log-probability is no finite number; of all, where none is."""
    scores = term.eval().log_prob(batch.to(device))
    rows = torch.full_like(scores.scored, -1, dtype=torch.long) if batch.rows is None else batch.rows
    broken = rows[(rows >= 0) & ~scores.values.isfinite().cpu()]
    return (broken if len(broken) else rows[rows >= 0]).tolist()[:SHOWN]


def _numbers(data: Groups, roles: Roles | None) -> Iterator[Extreme]:
    for role in ("weight", "exposure", "attributes"):
        numbers = getattr(data, role)
        if numbers is None:
            continue
        for j, column in enumerate(np.asarray(numbers, float).reshape(len(numbers), -1).T):
            size = np.abs(column)
            wrong = (size > LARGE) | ((size < SMALL) if role == "exposure" else False)
            for place in np.flatnonzero(wrong):
                yield Extreme(int(place), _name(roles, role, j), f"which is {column[place]:g}")


def _values(support: Columns, data: Groups, roles: Roles | None) -> Iterator[Extreme]:
    """Outside of the support once they are rounded, or too large to be squared."""
    if data.value is None:
        return
    with np.errstate(over="ignore", under="ignore"):
        y = np.asarray(data.value).reshape(len(data.value), -1).astype(np.float32)
    wrong = ~np.isnan(y) & (~support.contains(y) | (np.abs(y) > LARGE))
    for place, j in np.argwhere(wrong).tolist():
        yield Extreme(place, _name(roles, "value", j), f"which {support.parts[j][0]} cannot hold in single precision")


def _name(roles: Roles | None, role: str, number: int) -> str:
    names = () if roles is None else roles.of(role)
    return names[number] if number < len(names) else role
