"""The order in which the rows of a group are gone through: rank 0 is first, each row is predicted from earlier ones.

    context only  ->  targets, in an order that is drawn  ->  padding

It has nothing to do with the order of the table, which stays what it is: places and times of rows are known.

In training half of the groups have no order, and each of their rows is given all others. Rows that stand early in an
order are given little, and a network that sees nothing else learns slowly to look, or not at all.
"""

from collections.abc import Iterable, Iterator

import numpy as np
import torch
from torch import Tensor

from efattn.data.batch import Batch

WHOLE = 0.5  # of the groups have no order in training
NONE = -1  # the rank of all rows of a group without an order


def in_training(batch: Batch) -> Batch:
    """Each group in an order of its own, or in none; drawn by torch's generator where the batch is."""
    number, device = len(batch.target), batch.target.device
    whole = (torch.randperm(number, device=device) + torch.rand(1, device=device)) / max(number, 1) < WHOLE
    batch = _ordered(batch, torch.rand(batch.target.shape, device=device, dtype=torch.float64))
    assert batch.rank is not None
    return batch.replace(rank=batch.rank.masked_fill(whole[:, None], NONE))


def fixed(batches: Iterable[Batch], seed: int = 0) -> Iterator[Batch]:
    """Each group in an order of its own, which is the same again for the same batches, wherever they are."""
    generator = torch.Generator().manual_seed(seed)
    for batch in batches:
        yield _ordered(batch, torch.rand(batch.target.shape, generator=generator, dtype=torch.float64))


def stated(batch: Batch, number: int, seed: int = 0) -> Batch:
    """The order of this number: of a group it depends on nothing but the seed and how many rows there are."""
    draw = np.random.default_rng([seed, number]).random(batch.length)
    return _ordered(batch, torch.from_numpy(draw).expand(batch.target.shape))


def _ordered(batch: Batch, draw: Tensor) -> Batch:
    """draw (batch, length): numbers from 0 to 1, by which targets are sorted."""
    draw = draw.to(batch.target.device)
    key = torch.where(batch.exists[:, : batch.length], torch.where(batch.target, draw, draw - 1), draw + 1)
    return batch.replace(rank=key.argsort(dim=1, stable=True).argsort(dim=1))
