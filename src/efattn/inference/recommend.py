"""What comes next (past) or is missing (others): the item term's distribution of one more observation of each group."""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from numbers import Integral
from typing import Any

import numpy as np
import torch
from torch import Tensor

from efattn.data import Batch, Groups, Table
from efattn.errors import DataError, named
from efattn.inference import frames
from efattn.inference.allowed import allowed, check_at_least
from efattn.inference.fitted import Fitted, Part, batch_tokens
from efattn.inference.mixture import items_at
from efattn.inference.next_row import NextRow
from efattn.inference.ranking import best
from efattn.inference.tables import Tell, announce, encoded
from efattn.network import Gaps


def recommend(
    fitted: Fitted,
    tables: Iterable[Table] | None = None,
    k: int = 10,
    *,
    at: Any = None,
    attributes: Any = None,
    among: Any = None,
    exclude: Any = None,
    at_least: float = 0.0,
    member: int | None = None,
    tell: Tell = announce,
) -> Iterator[Any]:
    """The k most probable further items of each group with their probabilities: one row per group and rank, without
    what is impossible. Without tables, or of one without rows, those of an empty history. at, attributes: of the row
    that is to come (`next_row`); among, exclude, at_least: which items may be given (`allowed`)."""
    parts = fitted.parts_of("item", "recommend", member)
    check_count(k)
    check_at_least(at_least)
    may, notes = allowed(fitted, among, exclude)
    for note in notes:
        tell(note)
    row, told = NextRow(fitted, parts, at, attributes), partial(ranked, fitted, at_least)
    if tables is None:
        yield told(None, {}, *first_items(row, k, may))
        return
    for table, groups in encoded(fitted, tables, tell):
        if not len(table):
            yield told(table, {}, *first_items(row, k, may))
            continue
        groups.notes.extend(row.notes(groups))
        number, item, probability = next_items(row, groups, k, table, may)
        names = frames.name_columns(groups.labels.take(number), groups.columns, item.shape[1])
        yield told(table, names, item, probability)


def check_count(k: Any) -> None:
    if not isinstance(k, Integral) or isinstance(k, bool) or k < 1:
        raise DataError(f"{named('k')} is how many to give, a whole number >= 1; found {k!r}.", option="k")


@torch.no_grad()
def next_items(
    row: NextRow, groups: Groups, k: int, table: Table, may: Tensor | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """group (n,), item (n, k), probability (n, k), the most probable first, for every group in its order. groups: in
    the table's units; may: (item,), which are allowed. Of a group longer than max_length, the last piece is looked
    at."""
    found: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    fitted, term = row.fitted, row.parts[0].model
    when, own, inside = row.when(table, groups), row.own(groups), fitted.schema.standardise(groups)
    for chosen in inside.plan(batch_tokens(term)):
        of = inside.pieces.group[chosen]
        last = inside.pieces.stop[chosen] == inside.offsets[of + 1]
        if not last.any():
            continue
        batch = inside.batch(chosen[last], term.context, fitted.dtype)
        given: dict[str, Any] = {"when": soon(row.parts, batch)}
        if when is not None:
            given["when"] = torch.as_tensor(when[of[last]])[:, None]
        if own is not None:
            given["attributes"] = torch.as_tensor(own[of[last]])[:, None]
        longer = batch.with_one_more(item=term.family.size, **given)
        slots = torch.full((len(longer.exists), 1), batch.length)
        found.append((of[last], *_most_probable(row, longer, slots, k, may)))
    group, item, probability = (np.concatenate(columns) for columns in zip(*found, strict=True))
    by = np.argsort(group, kind="stable")
    return group[by], item[by], probability[by]


@torch.no_grad()
def first_items(row: NextRow, k: int, may: Tensor | None = None) -> tuple[np.ndarray, np.ndarray]:
    """item (1, k), probability (1, k): of a history that is empty."""
    parts, when, own = row.parts, row.when(None, None), row.own(None)
    known = {} if own is None else {"attributes": own}
    start = [0.0] if when is None else when
    batch = Batch.of([{"item": [parts[0].model.family.size], "lag": [0], "when": start, **known}], row.fitted.dtype)
    return _most_probable(row, batch, torch.zeros(1, 1, dtype=torch.long), k, may)


def _most_probable(
    row: NextRow, batch: Batch, slots: Tensor, k: int, may: Tensor | None
) -> tuple[np.ndarray, np.ndarray]:
    """item (batch, k), probability (batch, k): at one column of each group, slots (batch, 1)."""
    k, found = min(k, row.parts[0].model.family.size), list[Any]()
    column, whole = row.fitted.vocabulary.columns[0], torch.ones_like(slots).bool()
    for p in items_at(row.parts, batch, slots, whole, column, there=True):
        found.append(best(p if may is None else p.masked_fill(~may.to(p.device), 0.0), k))
    items, values = (torch.cat(columns).cpu().numpy() for columns in zip(*found, strict=True))
    return items, values


def soon(parts: Sequence[Part], batch: Batch) -> Tensor | float:
    """(batch, 1): the usual time after the last row of each group, if anybody asks."""
    if batch.when is None:
        return 0.0
    here = torch.where(batch.exists, batch.when, -torch.inf)[:, : batch.length]
    asking = (getattr(part.model, "gaps", None) for part in parts)
    gaps = [one for one in asking if isinstance(one, Gaps)]
    return here.amax(1, keepdim=True) + (gaps[0].get_buffer("usual").cpu() if gaps else 0.0)


def ranked(
    fitted: Fitted,
    at_least: float,
    table: Table | None,
    groups: dict[str, Any],
    item: np.ndarray,
    probability: np.ndarray,
) -> Any:
    """The groups' columns, rank, the item's columns and its probability, from (group, k) arrays."""
    import polars as pl

    rank = np.tile(np.arange(1, item.shape[1] + 1), len(item))
    names = frames.item_columns(fitted.vocabulary, item.ravel())
    taken = {*groups, *names}
    columns = {**groups, **frames.renamed({"rank": rank}, taken), **names}
    columns |= frames.renamed({"probability": probability.ravel()}, taken)
    given = (probability.ravel() > 0) & (probability.ravel() >= at_least)
    made = pl.DataFrame(columns, strict=False).filter(pl.Series(given))
    return frames.of_kind(made, fitted.frames) if table is None else table.same_kind(made)
