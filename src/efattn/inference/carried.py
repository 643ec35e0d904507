"""Which rows of its history carried each recommendation: those without which its odds would be lower.

    change_j(x) = log odds of x with the whole history - log odds of x without row j

Exact, as `explain` has it, and of all listed items of a group in one pass.
"""

from numbers import Integral
from typing import Any

import numpy as np
import torch

from efattn.data import Groups
from efattn.errors import DataError, named
from efattn.inference import frames, mixture
from efattn.inference.explain import Answers, copies
from efattn.inference.next_row import NextRow


def check_why(why: Any) -> None:
    if not isinstance(why, Integral) or isinstance(why, bool) or why < 0:
        raise DataError(f"{named('why')} is how many rows to name, 0, 1, ...; found {why!r}.", option="why")


def carriers(
    row: NextRow, groups: Groups, number: np.ndarray, item: np.ndarray, why: int, table: Any
) -> dict[str, Any]:
    """Columns why_1, why_1_change, ..., of (group, k) recommendations: the items of the rows that carried each most,
    null where no further row did. groups: in the table's units."""
    inside, when, own = row.fitted.schema.standardise(groups), row.when(table, groups), row.own(groups)
    found = np.full((*item.shape, why), len(row.fitted.vocabulary), np.int64)
    change = np.zeros((*item.shape, why))
    for at, (group, items) in enumerate(zip(number, item, strict=True)):
        given = None if when is None else float(when[group])
        mine = None if own is None else own[group]
        context, gained = _gained(row, inside, int(group), items, given, mine)
        best = np.argsort(-gained, 1, kind="stable")[:, :why]
        width = best.shape[1]
        assert inside.every.item is not None
        found[at, :, :width] = inside.every.item[context][best]
        change[at, :, :width] = np.take_along_axis(gained, best, 1)
    return _columns(row, found.reshape(-1, why), change.reshape(-1, why))


@torch.no_grad()
def _gained(
    row: NextRow, inside: Groups, group: int, items: np.ndarray, when: float | None, own: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """Where the rows of the context stand, and what each added to the log odds of the items (item, context)."""
    cut = copies(inside, group, None)
    asked = Answers(row.fitted, row.parts, cut, 0, True)
    odds = np.zeros((len(cut.groups), len(items)))
    wanted = torch.as_tensor(np.maximum(items, 0))
    name = row.fitted.vocabulary.columns[0]
    for batch, slots, number in asked.batches(when=asked.when() if when is None else when, own=own):
        whole = torch.ones_like(slots, dtype=torch.bool)
        p = torch.cat(list(mixture.items_at(row.parts, batch, slots, whole, name)))[:, wanted].double()
        p = p.clamp(1e-300, 1 - 1e-16)
        odds[number] = (p.log() - (-p).log1p()).numpy()
    return cut.context, (odds[0] - odds[1:]).T


def nobody(row: NextRow, lists: int, why: int) -> dict[str, Any]:
    """The same of an empty history."""
    return _columns(row, np.full((lists, why), len(row.fitted.vocabulary)), np.zeros((lists, why)))


def _columns(row: NextRow, item: np.ndarray, change: np.ndarray) -> dict[str, Any]:
    vocabulary, columns = row.fitted.vocabulary, dict[str, Any]()
    for k in range(item.shape[1]):
        there = (item[:, k] < len(vocabulary)) & (change[:, k] > 0)
        names = frames.item_columns(vocabulary, np.where(there, item[:, k], 0))
        several = len(names) > 1
        for name, x in names.items():
            columns[f"why_{k + 1}_{name}" if several else f"why_{k + 1}"] = frames.nulls(x, there)
        columns[f"why_{k + 1}_change"] = frames.nulls(change[:, k], there)
    return columns
