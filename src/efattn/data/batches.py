"""From groups to padded batches, without a loop over groups or rows.

cut     groups -> pieces of at most the longest length
plan    pieces -> batches of like length under a budget of padded cells
build   some pieces -> a `Batch`, their lags in the columns after the current ones
flat    all rows -> a `Batch` of one group
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, final

import numpy as np
import torch

from efattn.data.batch import Batch
from efattn.errors import DataError, option

if TYPE_CHECKING:
    from efattn.data.groups import Groups

LONGER = 0.1  # shuffled pieces may share a batch with pieces a tenth longer


@final
@dataclass(frozen=True, eq=False)
class Pieces:
    """Piece p is rows start[p] .. stop[p] - 1, a part of group group[p] (a number among all groups)."""

    start: np.ndarray
    stop: np.ndarray
    group: np.ndarray

    def __len__(self) -> int:
        return len(self.start)


def ranges(start: np.ndarray, stop: np.ndarray) -> np.ndarray:
    """start[0] .. stop[0] - 1, start[1] .. stop[1] - 1, ... in one array."""
    length = stop - start
    ends = np.cumsum(length)
    return np.repeat(start - (ends - length), length) + np.arange(ends[-1] if len(ends) else 0)


def cut(groups: np.ndarray, offsets: np.ndarray, max_length: int | None) -> Pieces:
    """Consecutive pieces of nearly equal length; a group of n rows gives ceil(n / max_length)."""
    start, stop = offsets[groups], offsets[groups + 1]
    if max_length is None:
        return Pieces(start, stop, groups)
    length = stop - start
    parts = -(-length // max_length)
    which = np.repeat(np.arange(len(groups)), parts)
    j = ranges(np.zeros_like(parts), parts)
    at = start[which] + length[which] * j // parts[which]
    end = start[which] + length[which] * (j + 1) // parts[which]
    return Pieces(at, end, groups[which])


def plan(groups: "Groups", tokens: int, shuffle: int | np.random.Generator | None, epoch: int) -> list[np.ndarray]:
    """Longest first without `shuffle`; with it, pieces of like length and batches in random order."""
    if tokens < 1:
        raise DataError(
            f"A batch needs room for at least one token; found {option('tokens', tokens)}.", option="tokens"
        )
    pieces = groups.pieces
    if not len(pieces):
        return []
    length, lagged = pieces.stop - pieces.start, _lagged_lengths(groups).sum(1)
    if shuffle is None:
        by = np.lexsort((-lagged, -length))
    else:
        rng = shuffle if isinstance(shuffle, np.random.Generator) else np.random.default_rng([shuffle, epoch])
        by = np.argsort(-(length + lagged) * (1 + LONGER * rng.random(len(length))) - rng.random(len(length)))
    length, lagged = length[by], lagged[by]
    batches, at = [], 0
    while at < len(by):
        window = slice(at, at + max(tokens // int(length[at] + lagged[at]), 1))
        width = np.maximum.accumulate(length[window]) + np.maximum.accumulate(lagged[window])
        size = max(int(np.searchsorted(width * np.arange(1, len(width) + 1), tokens, "right")), 1)
        batches.append(by[at : at + size])
        at += size
    return [batches[b] for b in rng.permutation(len(batches))] if shuffle is not None else batches


def build(groups: "Groups", chosen: np.ndarray, context: str, dtype: torch.dtype) -> Batch:
    """As `Batch.of` would pad them."""
    at = placed(groups, chosen, context)
    made = {"lag": None if at.lag is None else torch.as_tensor(at.lag)}
    made["cut"] = None if at.cut is None else torch.as_tensor(at.cut)
    return Batch.gather(groups.every.by_field(), at.rows, at.length, dtype, **made)


class Placed(NamedTuple):
    """rows (batch, context): the row in each cell, -1 for none; length: how many columns are current; lag (batch,
    context) and cut (batch, any): as a batch has them, None for none."""

    rows: np.ndarray
    length: int
    lag: np.ndarray | None
    cut: np.ndarray | None


def placed(groups: "Groups", chosen: np.ndarray, context: str) -> Placed:
    """Where rows of some pieces stand in a batch of them."""
    start, stop = groups.pieces.start[chosen], groups.pieces.stop[chosen]
    index, lag, length = _columns(groups, chosen, start, stop)
    cut = _cut_items(groups, chosen, start, stop, context)
    return Placed(index, length, None if groups.lagged is None else lag, cut)


def flat(groups: "Groups", rows: int) -> Batch:
    """All rows of this part as one group, or evenly every so manyth if there are more than `rows`: for what does not
    depend on context. Attributes are in double precision, because means and spreads are taken of them."""
    index = thinned(groups, rows)
    exact = Batch.gather(groups.every.by_field(), index[None], len(index), torch.float64)
    return exact.to(dtype=torch.float32).replace(attributes=exact.attributes)


def thinned(groups: "Groups", rows: int) -> np.ndarray:
    """Where every so manyth row of this part stands in the arrays, `rows` at most."""
    at = np.arange(0, groups.count, max(1, -(-groups.count // rows)))
    if groups.chosen is None:
        return at
    ends = np.cumsum(groups.lengths)
    of = np.searchsorted(ends, at, "right")
    return groups.offsets[groups.chosen[of] + 1] - ends[of] + at


def _columns(
    groups: "Groups", chosen: np.ndarray, start: np.ndarray, stop: np.ndarray
) -> tuple[np.ndarray, np.ndarray, int]:
    """(batch, context): the row in each cell, -1 for padding, and its lag; and how many columns are current."""
    length = int((stop - start).max(initial=0))
    count = _lagged_lengths(groups, chosen)  # (batch, lag)
    extra = int(count.sum(1).max(initial=0))
    index = np.full((len(chosen), length + extra), -1, np.int64)
    lag = np.zeros_like(index)
    steps = np.arange(length)
    index[:, :length] = np.where(steps < (stop - start)[:, None], start[:, None] + steps, -1)
    if extra and groups.lagged is not None:
        of = groups.lagged[groups.pieces.group[chosen]]  # (batch, lag)
        end = groups.offsets[np.maximum(of, 0) + 1]
        column = length + np.cumsum(count, 1) - count
        across = np.repeat(np.arange(count.size), count.reshape(-1))
        down = ranges(column.reshape(-1), (column + count).reshape(-1))
        index[across // count.shape[1], down] = ranges((end - count).reshape(-1), end.reshape(-1))
        lag[across // count.shape[1], down] = across % count.shape[1] + 1
    return index, lag, length


def _lagged_lengths(groups: "Groups", chosen: np.ndarray | None = None) -> np.ndarray:
    """(piece, lag): how many rows of each lag are seen, the last ones of a lag longer than `max_length`."""
    of = groups.pieces.group if chosen is None else groups.pieces.group[chosen]
    if groups.lagged is None:
        return np.zeros((len(of), 1), np.int64)
    lagged = groups.lagged[of]
    length = np.where(lagged >= 0, np.diff(groups.offsets)[lagged], 0)
    return length if groups.max_length is None else np.minimum(length, groups.max_length)


def _cut_items(
    groups: "Groups", chosen: np.ndarray, start: np.ndarray, stop: np.ndarray, context: str
) -> np.ndarray | None:
    """(batch, any): the items of the group's other (past: earlier) pieces, -1 for none and for unknown ones."""
    item: Any = groups.every.item
    if groups.max_length is None or item is None or groups.vocabulary is None:
        return None
    of = groups.pieces.group[chosen]
    first, last = groups.offsets[of], groups.offsets[of + 1]
    before, after = start - first, (last - stop if context != "past" else np.zeros_like(last))
    width = int((before + after).max(initial=0))
    steps = np.arange(width)
    index = first[:, None] + steps + np.where(steps >= before[:, None], (stop - start)[:, None], 0)
    inside = steps < (before + after)[:, None]
    items = item[np.where(inside, index, 0)].astype(np.int64)
    items[~inside | (items == groups.vocabulary.unknown)] = -1
    return items
