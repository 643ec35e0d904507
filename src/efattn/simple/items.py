"""Simple distributions of the next or missing item.

    Popularity      p(x) = (n_x + a) / (n + a D)
    MarkovChain     p(x | x') = (n_x'x + k p(x)) / (n_x' + k),       x' the item before; a state of its own at the start

Distinct support, scoring and drawn targets are those of all models.
"""

from dataclasses import dataclass
from typing import final

import numpy as np
import torch
from torch import Tensor

from efattn.data import Batch, Groups
from efattn.errors import DataError, option
from efattn.models.scoring import Conditionals, at
from efattn.network import Logits
from efattn.simple.base import DirectlyFitted, Recipe, Setting, Tick, tuning_parts

SMOOTHING = 0.5  # a
STRENGTHS = (1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 1e4)
MOST = 10_000  # items of a D x D table


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
        self._set(log_share=np.log(shares(_counted(groups, self.family.size)[1], self.family.size)))

    def raw_outputs(self, batch: Batch, slots: Tensor) -> Tensor:
        return self.get_buffer("log_share").expand(*slots.shape, -1)

    def raw_logits(self, batch: Batch, slots: Tensor, chosen: Tensor) -> Logits:
        share = self.get_buffer("log_share")
        return Logits(share.new_zeros(int(chosen.sum()), 0), share.new_zeros(len(share), 0), share)


@final
@dataclass(frozen=True)
class MarkovChain(Recipe):
    """Which item follows which. strength: how many rows the smoothing by popularity counts as, None to choose it on
    held-out groups."""

    strength: float | None = None
    models = "item"

    def build(self, setting: Setting) -> Conditionals:
        self.check_number("strength", 1e-6)
        if setting.context != "past":
            raise DataError(f"A Markov chain looks back: pass {option('context', 'past')}.", option="context")
        return Transitions(setting, self.strength)


@final
class Transitions(DirectlyFitted):
    """From the row before, smoothed by popularity as much as held-out groups ask for."""

    def __init__(self, setting: Setting, strength: float | None) -> None:
        super().__init__(setting.family, "past", setting.support)
        items = self.family.size
        _check_items(items)
        self.strength = strength
        self.register_buffer("log_step", torch.zeros(items + 2, items))  # after: the items, an unknown one, nothing
        self.register_buffer("chosen", torch.zeros(1))

    def chosen_options(self) -> dict[str, float]:
        return {"strength": float(self.get_buffer("chosen"))}

    def fit(self, groups: Groups, held: Groups | None = None, tick: Tick | None = None) -> None:
        strength = self.strength
        if strength is None:
            train, check = tuning_parts(groups, held, of_items=True)
            scores = {}
            for k in STRENGTHS:
                self._count(train, k)
                scores[k] = self.score(check)
            strength = max(scores, key=lambda k: scores[k])
        self._count(groups, strength)

    def _count(self, groups: Groups, strength: float) -> None:
        size = self.family.size
        before, after = _counted(groups, size)
        popular = shares(after, size)
        table = np.bincount(before * size + after, minlength=(size + 2) * size).reshape(size + 2, size)
        total = table.sum(1, keepdims=True)
        self._set(log_step=np.log((table + strength * popular) / (total + strength)), chosen=strength)

    def raw_outputs(self, batch: Batch, slots: Tensor) -> Tensor:
        n, size = batch.length, self.family.size
        if batch.item is None:
            raise DataError("MarkovChain needs an item column.")
        column = torch.where(batch.exists[:, :n], torch.arange(n), -1).cummax(1).values
        last = torch.cat([torch.full_like(column[:, :1], -1), column[:, :-1]], 1)  # the row before, -1 for none
        before = batch.item[:, :n].gather(1, last.clamp_min(0)).clamp_max(size)
        return self.get_buffer("log_step")[at(torch.where(last < 0, size + 1, before), slots)]


def shares(item: np.ndarray, items: int) -> np.ndarray:
    count = np.bincount(item, minlength=items) + SMOOTHING
    return count / count.sum()


def _counted(groups: Groups, items: int) -> tuple[np.ndarray, np.ndarray]:
    """Of each target that is known: the state before it (`items`: unknown, `items` + 1: the start) and its item."""
    item, target = groups.item, groups.target
    assert item is not None
    item = np.minimum(item.astype(np.int64), items)
    before = np.concatenate([[items + 1], item[:-1]]) if len(item) else item
    starts = np.concatenate([[0], np.cumsum(groups.lengths)[:-1]]).astype(np.int64)
    before[starts[groups.lengths > 0]] = items + 1
    kept = (item < items) & (True if target is None else target)
    return before[kept], item[kept]


def _check_items(items: int) -> None:
    if items > MOST:
        raise DataError(
            f"A table of {items} by {items} items is too large; it takes at most {MOST} items.", option="item"
        )
