"""Which item follows which.

    MarkovChain     p(x | x') = (n_x'x + k p(x)) / (n_x' + k),       x' the item before; a state of its own at the start
                    of the last few rows: sum_l w_l p(x | x'_l) / sum_l w_l,   w_l = decay^(l - 1) of the row l before,
                    and n counts pairs l apart w_l times

Of a large catalogue nearly all n are 0. `Transitions` has a table of all pairs; `Followers` keeps of each state those
items that followed it most, from which the logits follow without any table:

    f(x) = log p(x) + log(1 + d(x) / (c p(x))),    d(x) = sum_l w_l n_x'_l x / (n_x'_l + k)
                                                   c = sum_l w_l k / (n_x'_l + k)
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import final

import numpy as np
import torch
from torch import Tensor

from efattn.data import Batch, Groups
from efattn.errors import DataError, option
from efattn.models.scoring import Conditionals, at
from efattn.network import Logits
from efattn.network.catalogue import Added
from efattn.simple.base import DirectlyFitted, Recipe, Setting, Tick, some_groups, tuning_parts
from efattn.simple.items import counted, shares

STRENGTHS = (1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 1e4)
DECAYS = (0.9, 0.7, 0.5, 0.3)
MOST = 15_000  # items of a D x D table
AT_ONCE = 1024  # rows of it, of which logarithms are taken
ROWS = 4000  # targets that choose, of a chain of followers


@final
@dataclass(frozen=True)
class MarkovChain(Recipe):
    """Which item follows which. strength: how many rows the smoothing by popularity counts as, None to choose it on
    held-out groups. last: how many rows are looked back at; decay: how much less each counts than the one after it,
    None to choose it too. followers: of how many items that followed an item counts are kept; None for all of them, in
    a table of all pairs."""

    strength: float | None = None
    last: int = 1
    decay: float | None = None
    followers: int | None = None
    models = "item"

    def build(self, setting: Setting) -> Conditionals:
        self.check_number("strength", 1e-6)
        self.check_number("decay", 1e-6, 1.0)
        if isinstance(self.last, bool) or not isinstance(self.last, int) or self.last < 1:
            said = f"MarkovChain: last is a number of rows, 1, 2, ...; found {self.last!r}."
            raise DataError(said, option="last")
        if setting.context != "past":
            raise DataError(f"A Markov chain looks back: pass {option('context', 'past')}.", option="context")
        if self.followers is None:
            return Transitions(setting, self)
        if isinstance(self.followers, bool) or not isinstance(self.followers, int) or self.followers < 1:
            said = f"MarkovChain: followers is a number of items, 1, 2, ..., or None; found {self.followers!r}."
            raise DataError(said, option="followers")
        return Followers(setting, self)


class Chain(DirectlyFitted):
    """From the row before, or the last few, smoothed by popularity as much as held-out groups ask for."""

    def __init__(self, setting: Setting, options: MarkovChain) -> None:
        super().__init__(setting.family, "past", setting.support)
        self.options = options
        self.register_buffer("chosen", torch.zeros(1 if options.last == 1 else 2))

    @abstractmethod
    def count(self, groups: Groups, decay: float) -> None:
        """Take how often items followed, by how far apart, and how popular they are."""

    @abstractmethod
    def smooth(self, strength: float, decay: float) -> None:
        """Take these options, with what was counted."""

    @abstractmethod
    def choosing(self, held: Groups) -> Groups:
        """The groups of those held out that choose."""

    def done(self) -> None:
        """What was only needed to choose may go."""

    def chosen_options(self) -> dict[str, float]:
        return dict(zip(("strength", "decay"), self.get_buffer("chosen").tolist(), strict=False))

    def fit(self, groups: Groups, held: Groups | None = None, tick: Tick | None = None) -> None:
        asked = self.options
        decays = DECAYS if asked.last > 1 and asked.decay is None else (1.0 if asked.decay is None else asked.decay,)
        choices = [(k, d) for d in decays for k in (STRENGTHS if asked.strength is None else (asked.strength,))]
        best = choices[0]
        if len(choices) > 1:
            train, check = tuning_parts(groups, held, of_items=True)
            check, scores = self.choosing(check), dict[tuple[float, float], float]()
            for k, (strength, decay) in enumerate(choices):
                if k == 0 or decay != choices[k - 1][1]:
                    self.count(train, decay)
                self.smooth(strength, decay)
                scores[strength, decay] = self.score(check)
            best = max(scores, key=lambda choice: scores[choice])
        self.count(groups, best[1])
        self.smooth(*best)
        self.done()

    def states(self, batch: Batch, slots: Tensor) -> tuple[Tensor, Tensor]:
        """(batch, target, back): the items of the last few rows before, and their weights, 0 where there are none; at
        the start the first is a state of its own."""
        n, size = batch.length, self.family.size
        if batch.item is None:
            raise DataError("MarkovChain needs an item column.")
        item = batch.item[:, :n].clamp_max(size)
        column = torch.where(batch.exists[:, :n], torch.arange(n), -1).cummax(1).values
        last = torch.cat([torch.full_like(column[:, :1], -1), column[:, :-1]], 1)  # the row before, -1 for none
        rows = [at(last, slots)]  # (batch, target) each: where the rows before are, -1 for none
        for _ in range(1, self.options.last):
            rows.append(torch.where(rows[-1] < 0, -1, last.gather(1, rows[-1].clamp_min(0))))
        there = torch.stack(rows, -1)
        found = item.gather(1, there.clamp_min(0).flatten(1)).view(there.shape)
        back = torch.arange(self.options.last)
        weight = torch.where((there < 0) & (back > 0), 0.0, self.get_buffer("chosen")[-1] ** back)
        return torch.where(there < 0, size + 1, found), weight


@final
class Transitions(Chain):
    """By a table of all pairs."""

    def __init__(self, setting: Setting, options: MarkovChain) -> None:
        super().__init__(setting, options)
        items = self.family.size
        if items > MOST:
            said = f"A table of {items} by {items} items is too large; it takes at most {MOST} items, or followers."
            raise DataError(said, option="item")
        self.register_buffer("log_step", torch.zeros(items + 2, items))  # after: the items, an unknown one, nothing
        self.counted, self.popular = np.zeros((0, 0)), np.zeros(0)

    def choosing(self, held: Groups) -> Groups:
        return held

    def count(self, groups: Groups, decay: float) -> None:
        size = self.family.size
        table = np.zeros((size + 2) * size)
        for back in range(1, self.options.last + 1):
            before, after = counted(groups, size, back)
            cell, count = np.unique(before * size + after, return_counts=True)
            table[cell] += decay ** (back - 1) * count
        self.counted, self.popular = table.reshape(size + 2, size), shares(counted(groups, size)[1], size)

    def done(self) -> None:
        self.counted, self.popular = np.zeros((0, 0)), np.zeros(0)

    def smooth(self, strength: float, decay: float) -> None:
        step = self.get_buffer("log_step")
        for first in range(0, len(self.counted), AT_ONCE):
            some = self.counted[first : first + AT_ONCE]
            p = (some + strength * self.popular) / (some.sum(1, keepdims=True) + strength)
            step[first : first + AT_ONCE] = torch.as_tensor(np.log(p)).to(step.dtype)
        self._set(chosen=torch.tensor([strength, decay][: len(self.get_buffer("chosen"))]))

    def raw_outputs(self, batch: Batch, slots: Tensor) -> Tensor:
        step, (state, weight) = self.get_buffer("log_step"), self.states(batch, slots)
        if self.options.last == 1:
            return step[state[..., 0]]
        p = sum((weight[..., k, None] * step[one].exp() for k, one in enumerate(state.unbind(-1))), torch.zeros(()))
        return (p / weight.sum(-1, keepdim=True)).log()


@final
class Followers(Chain):
    """By the items that followed each state most: `follower` (state, any), `count` 0 where there are no more."""

    def __init__(self, setting: Setting, options: MarkovChain) -> None:
        super().__init__(setting, options)
        items, wide = self.family.size, min(options.followers or 1, self.family.size)
        self.register_buffer("follower", torch.zeros(items + 2, wide, dtype=torch.int32))
        self.register_buffer("count_", torch.zeros(items + 2, wide))
        self.register_buffer("log_share", torch.zeros(items))
        self.register_buffer("strength", torch.ones(()))

    def choosing(self, held: Groups) -> Groups:
        return some_groups(held, ROWS)

    def count(self, groups: Groups, decay: float) -> None:
        size, wide = self.family.size, self.get_buffer("follower").shape[1]
        pairs = [counted(groups, size, back) for back in range(1, self.options.last + 1)]
        key = np.concatenate([before * size + after for before, after in pairs])
        weight = np.concatenate([np.full(len(after), decay**k) for k, (_, after) in enumerate(pairs)])
        cell, where = np.unique(key, return_inverse=True)
        count, state = np.bincount(where, weight, len(cell)), cell // size
        order = np.lexsort((-count, state))  # by state, what followed most first
        state = state[order]
        place = np.arange(len(state)) - np.searchsorted(state, state)
        kept = place < wide
        follower, table = np.zeros((size + 2, wide), np.int32), np.zeros((size + 2, wide))
        follower[state[kept], place[kept]] = (cell % size)[order][kept]
        table[state[kept], place[kept]] = count[order][kept]
        self._set(follower=follower, count_=table, log_share=np.log(shares(pairs[0][1], size)))

    def smooth(self, strength: float, decay: float) -> None:
        self._set(strength=strength, chosen=torch.tensor([strength, decay][: len(self.get_buffer("chosen"))]))

    def raw_outputs(self, batch: Batch, slots: Tensor) -> Tensor:
        return self.raw_logits(batch, slots, torch.ones_like(slots, dtype=torch.bool)).formed().view(*slots.shape, -1)

    def raw_logits(self, batch: Batch, slots: Tensor, chosen: Tensor) -> Logits:
        share, strength = self.get_buffer("log_share"), self.get_buffer("strength")
        state, weight = (x[chosen] for x in self.states(batch, slots))  # (row, back)
        count = self.get_buffer("count_")[state]  # (row, back, follower)
        weight = weight.to(count.dtype) / (count.sum(-1) + strength)
        row, back, place = count.nonzero().unbind(1)
        item = self.get_buffer("follower")[state[row, back], place].long()
        cell, where = torch.unique(item * len(state) + row, return_inverse=True)  # in the order of the items
        d = share.new_zeros(len(cell)).index_add_(0, where, weight[row, back] * count[row, back, place])
        row, item = cell % max(len(state), 1), cell // max(len(state), 1)
        c = strength * weight.sum(-1)
        amount = torch.log1p(d / (c[row] * share[item].exp()))
        nothing = share.new_zeros(len(state), 0), share.new_zeros(len(share), 0)
        return Logits(*nothing, share, (Added(row, item, amount),))
