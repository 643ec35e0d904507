"""How often each item is met.

    Popularity      p(x) = (n_x + a) / (n + a D)
    LatePopularity  p(x) = (m_x + k p'(x)) / (m + k),     m counts a row decay^b times, b rows of its group after it

p' is the popularity of all rows. What comes next in groups that go on is what has lately come: items that are new, or
no longer there, are met more, or less, often than on the whole.

Distinct support, scoring and drawn targets are those of all models.
"""

from dataclasses import dataclass
from itertools import product
from typing import final

import numpy as np
import torch
from torch import Tensor

from efattn.data import Batch, Groups
from efattn.errors import DataError, option
from efattn.models.scoring import Conditionals
from efattn.network import Logits
from efattn.simple.base import DirectlyFitted, Recipe, Setting, Tick, some_groups, tuning_parts

SMOOTHING = 0.5  # a
DECAYS, STRENGTHS = (1.0, 0.9, 0.8, 0.65, 0.5, 0.35), (30.0, 300.0, 3e3, 3e4)
ROWS = 20_000  # targets that choose


@final
@dataclass(frozen=True)
class Popularity(Recipe):
    """How often each item is met: the same for every row, but for what distinct support rules out."""

    models = "item"

    def build(self, setting: Setting) -> Conditionals:
        return Shares(setting)


@final
@dataclass(frozen=True)
class LatePopularity(Recipe):
    """How often each item is met towards the end of groups. decay: how much less a row counts than the one after it;
    strength: how many rows the popularity of all rows counts as; None to choose them on held-out groups."""

    decay: float | None = None
    strength: float | None = None
    models = "item"

    def build(self, setting: Setting) -> Conditionals:
        self.check_number("decay", 1e-6, 1.0)
        self.check_number("strength", 1e-6)
        if setting.context != "past":
            said = f"What is late in a group has an order: pass {option('context', 'past')}."
            raise DataError(said, option="context")
        return LateShares(setting, self)


class SameForAll(DirectlyFitted):
    """The same for every row."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting.family, setting.context, setting.support)
        self.register_buffer("log_share", torch.zeros(self.family.size))

    def raw_outputs(self, batch: Batch, slots: Tensor) -> Tensor:
        return self.get_buffer("log_share").expand(*slots.shape, -1)

    def raw_logits(self, batch: Batch, slots: Tensor, chosen: Tensor) -> Logits:
        share = self.get_buffer("log_share")
        return Logits(share.new_zeros(int(chosen.sum()), 0), share.new_zeros(len(share), 0), share)


@final
class Shares(SameForAll):
    def fit(self, groups: Groups, held: Groups | None = None, tick: Tick | None = None) -> None:
        assert groups.item is not None
        known = groups.item[known_targets(groups, self.family.size)]
        self._set(log_share=np.log(shares(known, self.family.size)))


@final
class LateShares(SameForAll):
    def __init__(self, setting: Setting, options: LatePopularity) -> None:
        super().__init__(setting)
        self.options = options
        self.register_buffer("chosen", torch.zeros(2))

    def chosen_options(self) -> dict[str, float]:
        return dict(zip(("decay", "strength"), self.get_buffer("chosen").tolist(), strict=True))

    def fit(self, groups: Groups, held: Groups | None = None, tick: Tick | None = None) -> None:
        decays = DECAYS if self.options.decay is None else (self.options.decay,)
        strengths = STRENGTHS if self.options.strength is None else (self.options.strength,)
        choices = list(product(decays, strengths))
        if len(choices) > 1:
            train, check = tuning_parts(groups, held, of_items=True)
            check, scores = some_groups(check, ROWS), list[float]()
            for choice in choices:
                self.count(train, *choice)
                scores.append(self.score(check))
            choices = [choices[int(np.argmax(scores))]]
        self.count(groups, *choices[0])

    def count(self, groups: Groups, decay: float, strength: float) -> None:
        size, item, kept = self.family.size, groups.item, known_targets(groups, self.family.size)
        assert item is not None
        after = np.repeat(np.cumsum(groups.lengths), groups.lengths) - 1 - np.arange(len(item))
        late = np.bincount(item[kept], decay ** after[kept].astype(float), size)
        share = (late + strength * shares(item[kept], size)) / (late.sum() + strength)
        self._set(log_share=np.log(share), chosen=np.array([decay, strength]))


def shares(item: np.ndarray, items: int) -> np.ndarray:
    count = np.bincount(item, minlength=items) + SMOOTHING
    return count / count.sum()


def known_targets(groups: Groups, items: int) -> np.ndarray:
    """(row,): whether it is a target of a known item."""
    assert groups.item is not None
    return (groups.item < items) & (True if groups.target is None else groups.target)


def counted(groups: Groups, items: int, back: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Of each target that is known: the state so many rows before it (`items`: unknown, `items` + 1: the start, of the
    row before alone) and its item."""
    item = groups.item
    assert item is not None
    item = np.minimum(item.astype(np.int64), items)
    place = np.arange(len(item)) - np.repeat(np.cumsum(groups.lengths) - groups.lengths, groups.lengths)
    before = np.concatenate([np.full(min(back, len(item)), items + 1), item[:-back]])
    before[place < back] = items + 1
    kept = known_targets(groups, items) & ((place >= back) | (back == 1))
    return before[kept], item[kept]
