"""What distinct support rules out: the items of a group's other positions (`past`, or in an order: of earlier ones).

Hidden or cut off or not, but never the target's own; lagged positions do not count. `taken` is the definition, an entry
for each target and item; `ruled_out` names the pairs alone.
"""

import torch
from torch import Tensor

from efattn.data.batch import Batch
from efattn.errors import DataError, option
from efattn.network import Added, Context


def taken(batch: Batch, slots: Tensor, size: int, context: Context) -> Tensor:
    """(batch, target, item), of items 0 .. size - 1."""
    item, place = entries(batch, size)
    where = item.new_full((len(item), size + 1), batch.length).scatter(1, item, place)  # the column that has an item
    may = _may(batch, where[:, :size], slots, context)
    return may if context == "past" else may & (where[:, None, :size] < batch.length)


def ruled_out(batch: Batch, slots: Tensor, chosen: Tensor, size: int, context: Context, like: Tensor) -> Added:
    """Minus infinity at the same pairs, of the chosen targets (batch, target) alone, which are the rows."""
    item, place = entries(batch, size)
    may = _may(batch, place, slots, context) & chosen[..., None] & (item < size)[:, None]
    row, item, *_ = by_item(item, may, chosen)
    return Added(row, item, like.new_full((1,), -torch.inf).expand(len(row)))


def _may(batch: Batch, place: Tensor, slots: Tensor, context: Context) -> Tensor:
    """(batch, target, any): whether an item in the column `place` (batch, any) is ruled out in the column of a target.
    What was cut off, in column -1, always is."""
    column, slot = place[:, None], slots[..., None]
    if batch.rank is None:
        return column < slot if context == "past" else column != slot
    rank = batch.rank.gather(1, place.clamp(0, batch.length - 1))
    earlier = torch.where(place < 0, place, rank)[:, None] < batch.rank.gather(1, slots)[..., None]
    return torch.where(batch.rank[:, :1, None] < 0, column != slot, earlier)


def entries(batch: Batch, size: int) -> tuple[Tensor, Tensor]:
    """(batch, any): the items of each group, `size` for none and for unknown ones, and their columns, -1 for what was
    cut off."""
    if batch.item is None:
        raise DataError("Distinct support needs an item column.", option="item")
    item = torch.where(batch.exists[:, : batch.length], batch.item[:, : batch.length], size)
    if item.device.type == "cpu" and _repeats(item, size):  # elsewhere looking would mean waiting
        raise DataError(
            f"{option('support', 'distinct')} is for items that never repeat within a group. Use "
            f"{option('support', 'all')} here.",
            option="support",
        )
    place = torch.arange(batch.length, device=item.device).expand(item.shape)
    if batch.cut is None:
        return item, place
    cut = torch.where(batch.cut < 0, size, batch.cut)
    return torch.cat((item, cut), 1), torch.cat((place, torch.full_like(cut, -1)), 1)


def _repeats(item: Tensor, size: int) -> bool:
    order = item.sort(1).values
    return bool(((order[:, 1:] == order[:, :-1]) & (order[:, 1:] < size)).any())


def by_item(item: Tensor, may: Tensor, chosen: Tensor) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor, Tensor]]:
    """Pairs of a chosen target and an item, in the order of the items: row (any,) among the chosen, item (any,), and
    where they stand in `may` (batch, target, column), which says of item (batch, column) whose pairs there are."""
    width, targets = max(item.shape[1], 1), max(chosen.shape[1], 1)
    order = item.flatten().argsort()  # (entry,): a group and a column each
    pairs = may.mT.reshape(-1, chosen.shape[1])[order].flatten().nonzero()[:, 0]
    entry = pairs // targets
    target, entry = pairs - entry * targets, order[entry]
    group = entry // width
    number = chosen.flatten().cumsum(0) - 1
    return number[group * targets + target], item.flatten()[entry], (group, target, entry - group * width)
