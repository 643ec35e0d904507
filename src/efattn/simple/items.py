"""Simple distributions of the next or missing item.

    Popularity      p(x) = (n_x + a) / (n + a D)
    MarkovChain     p(x | x') = (n_x'x + k p(x)) / (n_x' + k),       x' the item before; a state of its own at the start
                    of the last few rows: sum_l w_l p(x | x'_l) / sum_l w_l,   w_l = decay^(l - 1) of the row l before,
                    and n counts pairs l apart w_l times

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
DECAYS = (0.9, 0.7, 0.5, 0.3)
MOST = 15_000  # items of a D x D table
AT_ONCE = 1024  # rows of it, of which logarithms are taken


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
    held-out groups. last: how many rows are looked back at; decay: how much less each counts than the one after it,
    None to choose it too."""

    strength: float | None = None
    last: int = 1
    decay: float | None = None
    models = "item"

    def build(self, setting: Setting) -> Conditionals:
        self.check_number("strength", 1e-6)
        self.check_number("decay", 1e-6, 1.0)
        if isinstance(self.last, bool) or not isinstance(self.last, int) or self.last < 1:
            said = f"MarkovChain: last is a number of rows, 1, 2, ...; found {self.last!r}."
            raise DataError(said, option="last")
        if setting.context != "past":
            raise DataError(f"A Markov chain looks back: pass {option('context', 'past')}.", option="context")
        return Transitions(setting, self)


@final
class Transitions(DirectlyFitted):
    """From the row before, or the last few, smoothed by popularity as much as held-out groups ask for."""

    def __init__(self, setting: Setting, options: MarkovChain) -> None:
        super().__init__(setting.family, "past", setting.support)
        items = self.family.size
        _check_items(items)
        self.options = options
        self.register_buffer("log_step", torch.zeros(items + 2, items))  # after: the items, an unknown one, nothing
        self.register_buffer("chosen", torch.zeros(1 if options.last == 1 else 2))

    def chosen_options(self) -> dict[str, float]:
        return dict(zip(("strength", "decay"), self.get_buffer("chosen").tolist(), strict=False))

    def fit(self, groups: Groups, held: Groups | None = None, tick: Tick | None = None) -> None:
        asked = self.options
        decays = DECAYS if asked.last > 1 and asked.decay is None else (1.0 if asked.decay is None else asked.decay,)
        choices = [(k, d) for d in decays for k in (STRENGTHS if asked.strength is None else (asked.strength,))]
        best = choices[0]
        if len(choices) > 1:
            train, check = tuning_parts(groups, held, of_items=True)
            scores, counted, popular = {}, np.zeros((0, 0)), np.zeros(0)
            for k, (strength, decay) in enumerate(choices):
                if k == 0 or decay != choices[k - 1][1]:
                    counted, popular = self._count(train, decay)
                self._smooth(counted, popular, strength, decay)
                scores[strength, decay] = self.score(check)
            del counted
            best = max(scores, key=lambda choice: scores[choice])
        self._smooth(*self._count(groups, best[1]), *best)

    def _count(self, groups: Groups, decay: float) -> tuple[np.ndarray, np.ndarray]:
        """(state, item): how often the item followed, by how far apart; and how popular items are."""
        size = self.family.size
        table = np.zeros((size + 2) * size)
        for back in range(1, self.options.last + 1):
            before, after = _counted(groups, size, back)
            cell, count = np.unique(before * size + after, return_counts=True)
            table[cell] += decay ** (back - 1) * count
        return table.reshape(size + 2, size), shares(_counted(groups, size)[1], size)

    def _smooth(self, rows: np.ndarray, popular: np.ndarray, strength: float, decay: float) -> None:
        step = self.get_buffer("log_step")
        for first in range(0, len(rows), AT_ONCE):
            some = rows[first : first + AT_ONCE]
            p = (some + strength * popular) / (some.sum(1, keepdims=True) + strength)
            step[first : first + AT_ONCE] = torch.as_tensor(np.log(p)).to(step.dtype)
        self._set(chosen=torch.tensor([strength, decay][: len(self.get_buffer("chosen"))]))

    def raw_outputs(self, batch: Batch, slots: Tensor) -> Tensor:
        n, size = batch.length, self.family.size
        if batch.item is None:
            raise DataError("MarkovChain needs an item column.")
        step, item = self.get_buffer("log_step"), batch.item[:, :n].clamp_max(size)
        column = torch.where(batch.exists[:, :n], torch.arange(n), -1).cummax(1).values
        last = torch.cat([torch.full_like(column[:, :1], -1), column[:, :-1]], 1)  # the row before, -1 for none
        first = step[at(torch.where(last < 0, size + 1, item.gather(1, last.clamp_min(0))), slots)]
        if self.options.last == 1:
            return first
        decay, p, there, total = self.get_buffer("chosen")[1], first.exp(), last, torch.ones(())
        for back in range(1, self.options.last):
            there = torch.where(there < 0, -1, last.gather(1, there.clamp_min(0)))
            weight = at(torch.where(there < 0, 0.0, decay**back), slots)[..., None]
            p = p + weight * step[at(item.gather(1, there.clamp_min(0)), slots)].exp()
            total = total + weight
        return (p / total).log()


def shares(item: np.ndarray, items: int) -> np.ndarray:
    count = np.bincount(item, minlength=items) + SMOOTHING
    return count / count.sum()


def _counted(groups: Groups, items: int, back: int = 1) -> tuple[np.ndarray, np.ndarray]:
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


def _check_items(items: int) -> None:
    if items > MOST:
        raise DataError(
            f"A table of {items} by {items} items is too large; it takes at most {MOST} items.", option="item"
        )
