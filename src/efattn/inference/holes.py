"""The missing cells of tables: where they are, and what a model says of each given all that is observed in its group.

    groups with holes  ->  batches  ->  (cell,): outputs of each part, and their shares

A cell that is missing is seen by nobody, so that what is said of one does not depend on how the others are filled. A
group is looked at by itself: nothing else in a table changes what is said of it, but for its lags.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from efattn.data import Batch, Groups
from efattn.families import Bernoulli, Product
from efattn.inference import mixture
from efattn.inference.fitted import Fitted, Part
from efattn.inference.given import informed
from efattn.models.scoring import at


class Slots(NamedTuple):
    """(batch, most): the columns of each group's rows that lack a value, and which of these are there."""

    place: Tensor
    there: Tensor


class Said(NamedTuple):
    """Of rows that lack a value (row,): outputs of each part (row, size), their shares, items, rows of the table."""

    outputs: list[Tensor]
    shares: list[mixture.Share]
    item: np.ndarray | None
    row: np.ndarray


def missing(groups: Groups, rows: int) -> np.ndarray:
    """(row, column), in the order of the table."""
    every = groups.every
    assert every.value is not None
    found = np.zeros((rows, every.value.shape[1]), bool)
    found[every.row] = np.isnan(every.value)
    return found


def with_holes(groups: Groups) -> Groups:
    """The groups that lack any value."""
    every = groups.every
    assert every.value is not None
    count = np.concatenate([[0], np.cumsum(np.isnan(every.value).any(1))])
    return groups.subset(count[groups.offsets[groups.numbers + 1]] > count[groups.offsets[groups.numbers]])


def slots(batch: Batch) -> Slots:
    assert batch.observed is not None
    assert batch.rows is not None
    holes = (batch.rows >= 0) & ~batch.observed[:, : batch.length].all(-1)
    most = int(holes.sum(1).max()) if len(holes) else 0
    place = holes.to(torch.uint8).sort(dim=1, descending=True, stable=True).indices[:, :most]
    return Slots(place, holes.gather(1, place))


def said(parts: Sequence[Part], batch: Batch, where: Slots, known: Tensor | None = None) -> Said:
    """What each part says of the rows that lack a value, given their group and what they have themselves. known:
    (batch, context, columns), what rows have themselves where that is less than what is there."""
    outputs = [part.outputs(batch, where.place).double()[where.there] for part in parts]
    shares: list[mixture.Share] = [
        at(share, where.place)[where.there] if isinstance(share, Tensor) else share
        for share in mixture.shares(parts, batch)
    ]
    assert batch.rows is not None
    assert batch.value is not None
    assert batch.observed is not None
    item = None if batch.item is None else at(batch.item[:, : batch.length], where.place)[where.there]
    family = parts[0].model.family
    if isinstance(family, Product) and family.columns > 1:
        there = at(batch.observed[:, : batch.length] if known is None else known[:, : batch.length], where.place)
        own = at(batch.value[:, : batch.length].double(), where.place).masked_fill(~there, torch.nan)[where.there]
        outputs, shares = informed(family, outputs, shares, own, item)
    return Said(
        outputs, shares, None if item is None else item.numpy(), at(batch.rows, where.place)[where.there].numpy()
    )


@torch.no_grad()
def each(fitted: Fitted, parts: Sequence[Part], groups: Groups) -> Iterator[Said]:
    """groups: in the table's units."""
    for batch in fitted.batches(fitted.schema.standardise(with_holes(groups)), parts[0].model):
        where = slots(batch)
        if where.there.any():
            yield said(parts, batch, where)


def modes(family: Product, one: Said) -> tuple[np.ndarray, np.ndarray]:
    """(row, column): the most probable level, of what has levels, and its probability; NaN of all else. family: in the
    table's units."""
    found, sure = (np.full((len(one.row), family.columns), np.nan) for _ in range(2))
    for part, place, where in family.slices():
        mine = [f[..., place] for f in one.outputs]
        for index, law, outputs in part.laws(mine[0]):
            some = [f[index][:, outputs] for f in mine]
            shares = [share[index] if isinstance(share, Tensor) else share for share in one.shares]
            if law.level_names:
                p = mixture.average((law.probabilities(f) for f in some), shares)
            elif isinstance(law, Bernoulli):
                yes = mixture.average((law.mean(f)[:, None] for f in some), shares)
                p = torch.cat([1 - yes, yes], -1)
            else:
                continue
            levels = torch.as_tensor(law.level_names or (0, 1), dtype=torch.float64)
            sure[index.numpy(), where.start], best = (x.numpy() for x in p.max(-1))
            found[index.numpy(), where.start] = levels.numpy()[best]
    return found, sure
