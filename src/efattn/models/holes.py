"""Holes in training batches, so that missing cells, smaller groups, new items and new places are ordinary inputs.

    half of the groups are whole;  of each other group
    hidden   a share, drawn between 0 and `rate`, of what is seen:  a value is seen as MASK, an item not at all
    strange  a share, drawn between 0 and `unknown`, of the items:  seen as the unknown item wherever they stand

What is scored stays what it is: a target whose own value is hidden from the others is predicted as ever. Values of
a strange item are in the units of the unknown one, as those of a new item will be. Complete rows are half of what is
trained on, so that they lose little; drawing shares evenly prefers no share of holes to another.
"""

from dataclasses import dataclass, field
from typing import final

import numpy as np
import torch
from torch import Tensor

from efattn.data.batch import Batch

WHOLE = 0.5  # of the groups have no holes
PRIME = 2**31 - 1


@final
@dataclass(frozen=True, eq=False)
class Holes:
    """rate, unknown: the largest shares. shift: (item, column), from the units of each item's values to those of the
    unknown item, by addition; None where they are the same."""

    rate: float
    unknown: float = 0.0
    shift: np.ndarray | None = field(default=None)
    _moved: dict[torch.device, Tensor] = field(default_factory=dict, init=False, repr=False)  # `shift`, by device

    def __call__(self, batch: Batch) -> Batch:
        """The batch with holes, drawn by torch's generator where the batch is."""
        share = self._shares(len(batch.exists), batch.exists.device)
        strange = torch.rand(share.shape, device=share.device) * (share > 0) * self.unknown
        batch = batch.replace(hidden=self._hidden(batch, share * self.rate))
        return batch if batch.item is None or not self.unknown else self._estranged(batch, batch.item, strange)

    @staticmethod
    def _shares(groups: int, device: torch.device) -> Tensor:
        """(groups, 1), from 0 to 1: spread evenly over the groups of a batch, so that steps are less noisy."""
        even = (torch.randperm(groups, device=device) + torch.rand(groups, device=device)) / max(groups, 1)
        return ((even - WHOLE) / (1 - WHOLE)).clamp_min(0)[:, None]

    def _hidden(self, batch: Batch, share: Tensor) -> Tensor:
        """(batch, context, column): of several columns, whole rows in half of the groups, single cells in the rest."""
        columns = 1 if batch.observed is None else batch.observed.shape[-1]
        draw = torch.rand(*batch.exists.shape, columns, device=share.device)
        if columns > 1:
            draw = torch.where(torch.rand(len(draw), 1, 1, device=share.device) < 0.5, draw[..., :1], draw)
        return draw < share[..., None]

    def _estranged(self, batch: Batch, item: Tensor, share: Tensor) -> Batch:
        """An item is strange at all its places in a group: a draw for each pair of group and item, by a random line
        modulo a prime, which is independent between any two items."""
        slope = torch.randint(1, PRIME, share.shape, device=share.device)
        draw = (item * slope + torch.randint(PRIME, share.shape, device=share.device)) % PRIME
        strange = draw < share * PRIME
        if self.shift is None or batch.value is None:
            return batch.replace(strange=strange)
        if item.device not in self._moved:
            self._moved[item.device] = torch.as_tensor(self.shift).to(item.device)
        shift = self._moved[item.device].to(batch.value.dtype)[item.clamp_max(len(self.shift) - 1)]
        return batch.replace(strange=strange, value=batch.value + shift * strange[..., None])
