"""What comes next (past) or is missing (others): the item term's distribution of one more observation of each group."""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from efattn.data import Batch, Groups, Table
from efattn.errors import DataError, named
from efattn.inference import frames
from efattn.inference.allowed import allowed, check_at_least
from efattn.inference.diversity import POOL, check_diversity, directions, diverse
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
    diversity: float = 0.0,
    why: int = 0,
    member: int | None = None,
    tell: Tell = announce,
) -> Iterator[Any]:
    """The k most probable further items of each group with their probabilities: one row per group and rank, without
    what is impossible. Without tables, or of one without rows, those of an empty history. at, attributes: of the row
    that is to come (`next_row`); among, exclude, at_least: which items may be given (`allowed`); diversity: how unlike
    each other they are (`diversity`); why: how many rows of the history are named that carried each (`carried`)."""
    from efattn.inference import carried

    parts = fitted.parts_of("item", "recommend", member)
    check_count(k)
    check_at_least(at_least)
    check_diversity(diversity)
    carried.check_why(why)
    may, notes = allowed(fitted, among, exclude)
    for note in notes:
        tell(note)
    row, told = NextRow(fitted, parts, at, attributes), partial(ranked, fitted, at_least)
    lists = Lists(k, may, float(diversity), directions(fitted, member) if diversity else None)
    for table, groups in [(None, None)] if tables is None else encoded(fitted, tables, tell):
        if table is None or groups is None or not len(table):
            item, probability = first_items(row, lists)
            yield told(table, {}, item, probability, carried.nobody(row, item.size, why) if why else {})
            continue
        groups.notes.extend(row.notes(groups))
        number, item, probability = next_items(row, groups, lists, table)
        names = frames.name_columns(groups.labels.take(number), groups.columns, item.shape[1])
        more = carried.carriers(row, groups, number, item, int(why), table) if why else {}
        yield told(table, names, item, probability, more)


class Lists(NamedTuple):
    """How long; may: (item,), which are allowed, None for all; diversity, and where items lie (`diversity`)."""

    k: int
    may: Tensor | None = None
    diversity: float = 0.0
    directions: Tensor | None = None

    def of(self, p: Tensor) -> tuple[Tensor, Tensor]:
        """(row, k): items and probabilities, from p (row, item)."""
        p = p if self.may is None else p.masked_fill(~self.may.to(p.device), 0.0)
        k = min(self.k, p.shape[1])
        if self.directions is None:
            return best(p, k)
        items, values = (x.cpu() for x in best(p, min(POOL * k, p.shape[1])))
        return diverse(items, values, self.directions, k, self.diversity)


def check_count(k: Any) -> None:
    if not isinstance(k, Integral) or isinstance(k, bool) or k < 1:
        raise DataError(f"{named('k')} is how many to give, a whole number >= 1; found {k!r}.", option="k")


@torch.no_grad()
def next_items(row: NextRow, groups: Groups, lists: Lists, table: Table) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """group (n,), item (n, k), probability (n, k), the most probable first, for every group in its order. groups: in
    the table's units. Of a group longer than max_length, the last piece is looked at."""
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
        found.append((of[last], *_listed(row, longer, slots, lists)))
    group, item, probability = (np.concatenate(columns) for columns in zip(*found, strict=True))
    by = np.argsort(group, kind="stable")
    return group[by], item[by], probability[by]


@torch.no_grad()
def first_items(row: NextRow, lists: Lists) -> tuple[np.ndarray, np.ndarray]:
    """item (1, k), probability (1, k): of a history that is empty."""
    parts, when, own = row.parts, row.when(None, None), row.own(None)
    known = {} if own is None else {"attributes": own}
    start = [0.0] if when is None else when
    batch = Batch.of([{"item": [parts[0].model.family.size], "lag": [0], "when": start, **known}], row.fitted.dtype)
    return _listed(row, batch, torch.zeros(1, 1, dtype=torch.long), lists)


def _listed(row: NextRow, batch: Batch, slots: Tensor, lists: Lists) -> tuple[np.ndarray, np.ndarray]:
    """item (batch, k), probability (batch, k): at one column of each group, slots (batch, 1)."""
    whole, column = torch.ones_like(slots).bool(), row.fitted.vocabulary.columns[0]
    found = [lists.of(p) for p in items_at(row.parts, batch, slots, whole, column, there=True)]
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
    more: dict[str, Any] | None = None,
) -> Any:
    """The groups' columns, rank, the item's columns, its probability and what more there is, from (group, k) arrays."""
    import polars as pl

    rank = np.tile(np.arange(1, item.shape[1] + 1), len(item))
    names = frames.item_columns(fitted.vocabulary, item.ravel())
    taken = {*groups, *names}
    columns = {**groups, **frames.renamed({"rank": rank}, taken), **names}
    columns |= frames.renamed({"probability": probability.ravel(), **(more or {})}, taken)
    given = (probability.ravel() > 0) & (probability.ravel() >= at_least)
    made = pl.DataFrame(columns, strict=False)
    made = made if given.all() else made.filter(pl.Series(given))
    return frames.of_kind(made, fitted.frames) if table is None else table.same_kind(made)
