"""How often each item is met.

    Popularity      p(x) = (n_x + a) / (n + a D)

Distinct support, scoring and drawn targets are those of all models.
"""

from dataclasses import dataclass
from typing import final

import numpy as np
import torch
from torch import Tensor

from efattn.data import Batch, Groups
from efattn.models.scoring import Conditionals
from efattn.network import Logits
from efattn.simple.base import DirectlyFitted, Recipe, Setting, Tick

SMOOTHING = 0.5  # a


@final
@dataclass(frozen=True)
class Popularity(Recipe):
    """How often each item is met: the same for every row, but for what distinct support rules out."""

    models = "item"

    def build(self, setting: Setting) -> Conditionals:
        return Shares(setting)


@final
class Shares(DirectlyFitted):
    def __init__(self, setting: Setting) -> None:
        super().__init__(setting.family, setting.context, setting.support)
        self.register_buffer("log_share", torch.zeros(self.family.size))

    def fit(self, groups: Groups, held: Groups | None = None, tick: Tick | None = None) -> None:
        self._set(log_share=np.log(shares(counted(groups, self.family.size)[1], self.family.size)))

    def raw_outputs(self, batch: Batch, slots: Tensor) -> Tensor:
        return self.get_buffer("log_share").expand(*slots.shape, -1)

    def raw_logits(self, batch: Batch, slots: Tensor, chosen: Tensor) -> Logits:
        share = self.get_buffer("log_share")
        return Logits(share.new_zeros(int(chosen.sum()), 0), share.new_zeros(len(share), 0), share)


def shares(item: np.ndarray, items: int) -> np.ndarray:
    count = np.bincount(item, minlength=items) + SMOOTHING
    return count / count.sum()


def counted(groups: Groups, items: int, back: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Of each target that is known: the state so many rows before it (`items`: unknown, `items` + 1: the start, of the
    row before alone) and its item."""
    item, target = groups.item, groups.target
    assert item is not None
    item = np.minimum(item.astype(np.int64), items)
    place = np.arange(len(item)) - np.repeat(np.cumsum(groups.lengths) - groups.lengths, groups.lengths)
    before = np.concatenate([np.full(min(back, len(item)), items + 1), item[:-back]])
    before[place < back] = items + 1
    kept = (item < items) & (True if target is None else target) & ((place >= back) | (back == 1))
    return before[kept], item[kept]
