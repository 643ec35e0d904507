"""Where the item that came stands among all items of the catalogue.

    rank of i = 1 + how many items are more probable + how many as probable ones come before it in the vocabulary

Ties are thus settled the same way every time, and counted. An item of probability zero has no rank. There are
never more than a few million probabilities at a time, however many rows and items there are.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from efattn.data import Batch, Groups
from efattn.data.batches import ranges
from efattn.inference import mixture
from efattn.inference.fitted import Fitted, Part, batch_tokens, models_of
from efattn.models import Conditionals

SMALLEST = 2.0**-149  # a probability in single precision


class Ranking(NamedTuple):
    """Of rows (row,): where each stands in the arrays of the groups, the rank of its item (0 for none), how many other
    items are as probable, log p of it (NaN where it is unknown); the most probable items (row, most), -1 where no
    further one is possible, and their probabilities."""

    at: np.ndarray
    rank: np.ndarray
    tied: np.ndarray
    log_prob: np.ndarray
    items: np.ndarray
    probability: np.ndarray


@torch.no_grad()
def ranked(
    fitted: Fitted, parts: Sequence[Part], groups: Groups, asked: np.ndarray, most: int, *, seen: bool = True
) -> Ranking:
    """asked: (row,), truth values in the order of the groups; most: the length of the lists; seen: whether items of a
    row's context are ranked too. groups: in the table's units."""
    assert groups.every.item is not None
    item, size = groups.every.item.astype(np.int64), parts[0].model.family.size
    found = [_empty(min(most, size))]
    for at, p in _probabilities(fitted, parts, fitted.schema.standardise(groups), asked):
        mine = torch.as_tensor(item[at]).to(p.device)
        own = p.gather(1, mine.clamp_max(size - 1)[:, None])[:, 0]
        log_prob = torch.where(mine < size, own.clamp_min(SMALLEST).log(), torch.nan)
        if not seen:
            row, there = _contexts(groups, at, parts[0].model.context)
            known = item[there] < size
            p[torch.as_tensor(row[known]).to(p.device), torch.as_tensor(item[there[known]]).to(p.device)] = 0.0
        rank, tied = places(p, mine)
        items, probability = best(p, min(most, size))
        items = torch.where(probability > 0, items, -1)
        found.append(Ranking(at, *(x.cpu().numpy() for x in (rank, tied, log_prob, items, probability))))
    joined = Ranking(*(np.concatenate(columns) for columns in zip(*found, strict=True)))
    by = np.argsort(joined.at, kind="stable")
    return Ranking(*(column[by] for column in joined))


def places(p: Tensor, item: Tensor) -> tuple[Tensor, Tensor]:
    """(row,): the rank of each row's item among p (row, item), 0 for none; and how many others are as probable."""
    size = p.shape[-1]
    known = item < size
    number = torch.where(known, item, 0)[:, None]
    own = p.gather(1, number)
    same = p == own
    ranked = known & (own[:, 0] > 0)
    before = (same & (torch.arange(size, device=p.device) < number)).sum(1)
    rank = torch.where(ranked, 1 + (p > own).sum(1) + before, 0)
    return rank, torch.where(ranked, same.sum(1) - 1, 0)


def best(p: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """(row, k): the most probable items and their probabilities; of equal ones, the first of the vocabulary first."""
    values, items = p.topk(k, -1)
    least = values[:, -1:]
    more = (p == least).sum(1) > (values == least).sum(1)  # there, topk has taken some of those that are level
    if more.any():
        items[more] = _first(p[more], least[more], k)
    items = items.sort(1).values
    values, by = torch.sort(p.gather(1, items), stable=True, dim=1, descending=True)
    return items.gather(1, by), values


def _first(p: Tensor, least: Tensor, k: int) -> Tensor:
    """(row, k): those above the least, and of those level with it as many of the first as there is room for."""
    above, level = p > least, p == least
    room = k - above.sum(1, keepdim=True)
    return (above | (level & (level.cumsum(1) <= room))).nonzero()[:, 1].reshape(len(p), k)


def repeated(groups: Groups, context: str) -> np.ndarray:
    """(row,), in the order of the groups: whether the row's item is in its context too (past: earlier in its group)."""
    every = groups.every
    assert every.item is not None
    count = np.int64(every.item.max(initial=0)) + 1
    key = np.repeat(np.arange(len(groups.offsets) - 1), np.diff(groups.offsets)) * count + every.item
    by = np.argsort(key, kind="stable")
    same = np.diff(key[by]) == 0
    again = np.zeros(len(key), bool)
    again[by[1:][same]] = True
    if context != "past":
        again[by[:-1][same]] = True
    return again


def _empty(most: int) -> Ranking:
    none, whole = np.zeros(0), np.zeros(0, np.int64)
    return Ranking(whole, whole, whole, none, np.zeros((0, most), np.int64), np.zeros((0, most)))


def _probabilities(
    fitted: Fitted, parts: Sequence[Part], inside: Groups, asked: np.ndarray
) -> Iterator[tuple[np.ndarray, Tensor]]:
    """Of all rows that are asked about, some at a time: their places in the arrays, and p (row, item)."""
    column = fitted.vocabulary.columns[0]
    for start, stop, batch in _batches(fitted, parts, inside, asked):
        slots, there = _slots(start, stop, asked)
        wide = max(_together(parts) // len(start), 1)
        for left in range(0, slots.shape[1], wide):
            here, which = slots[:, left : left + wide], there[:, left : left + wide]
            at, first = (start[:, None] + here)[which], 0
            slots_, chosen = torch.as_tensor(here), torch.as_tensor(which)
            for p in mixture.items_at(parts, batch, slots_, chosen, column, there=True):
                yield at[first : first + len(p)], p
                first += len(p)


def _batches(
    fitted: Fitted, parts: Sequence[Part], inside: Groups, asked: np.ndarray
) -> Iterator[tuple[np.ndarray, np.ndarray, Batch]]:
    """Pieces that have about as many rows that are asked about, their starts and stops."""
    pieces, term = inside.pieces, parts[0].model
    before = np.concatenate([[0], np.cumsum(asked)])
    number = before[pieces.stop] - before[pieces.start]
    for planned in inside.plan(batch_tokens(term)):
        mine = planned[number[planned] > 0]
        mine = mine[np.argsort(-number[mine], kind="stable")]
        while len(mine):
            size = max(_together(parts) // int(number[mine[0]]), 1)
            chosen, mine = mine[:size], mine[size:]
            yield pieces.start[chosen], pieces.stop[chosen], inside.batch(chosen, term.context, fitted.dtype)


def _together(parts: Sequence[Part]) -> int:
    """Rows whose outputs may be formed at once: of a model that gives them only whole, not too many."""
    whole = any(type(model).raw_logits is Conditionals.raw_logits for model in models_of(parts))
    return mixture.CELLS // parts[0].model.family.size if whole else 2**62


def _slots(start: np.ndarray, stop: np.ndarray, asked: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(piece, target): the columns of each piece that are asked about, and which of these are. A piece that has fewer
    gets others of its columns besides: no column may be there twice."""
    steps = np.arange(int((stop - start).max()))
    inside = steps < (stop - start)[:, None]
    mine = inside & asked[np.where(inside, start[:, None] + steps, 0)]
    number = mine.sum(1)
    slots = np.argsort(~mine, 1, kind="stable")[:, : number.max()]
    return slots, np.arange(slots.shape[1]) < number[:, None]


def _contexts(groups: Groups, at: np.ndarray, context: str) -> tuple[np.ndarray, np.ndarray]:
    """Which rows of the arrays the rows `at` look at: pairs of (number among them, place in the arrays)."""
    of = np.searchsorted(groups.offsets, at, "right") - 1
    start, stop = groups.offsets[of], groups.offsets[of + 1]
    ends = [(start, at)] if context == "past" else [(start, at), (at + 1, stop)]
    number = np.concatenate([np.repeat(np.arange(len(at)), high - low) for low, high in ends])
    return number, np.concatenate([ranges(low, high) for low, high in ends])
