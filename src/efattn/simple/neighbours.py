"""Items that go with those of the context: two rankers, made probabilities.

    EASE             B = I - P / diag(P),   P = (X'X + penalty I)^-1,   X (group, item) is 1 where a group has an item
    ItemNeighbours   B_jx = n_jx / (sqrt(n_j n_x) + penalty),           n_jx groups that have both, B_jj = 0

    s_i(x) = W_i^(-power) sum_{j in context of i} w_ij B[x_j, x],       w_ij = decay^(rows between) in past, else 1
    r_i(x) = W_i^(-power) sum_{j: x_j = x} w_ij,                        W_i = sum of the w_ij
    f_i(x) = popularity log p(x) + sharpness s_i(x) + again r_i(x)      (again: where items may repeat)

Lists are what they are known for. The three weights are those under which held-out groups are most probable, by
Newton's method; penalty, decay and power are the best of a few. Of many items, each adds to those it adds most to.
Unknown items and lagged rows are no context.
"""

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, final

import numpy as np
import torch
from torch import Tensor

from efattn.data import Batch, Groups
from efattn.data.batches import ranges
from efattn.errors import DataError
from efattn.models.scoring import Conditionals
from efattn.simple.base import DirectlyFitted, Recipe, Setting, Tick, tuning_parts
from efattn.simple.items import shares

FULL, LARGEST = 2048, 256  # up to so many items, each adds to all; of more, to so many
MOST = 15_000  # items of a matrix that is inverted
POPULAR = 1500  # items that a penalty is chosen on
CELLS, SAMPLE, ROWS = 2**22, 2**23, 4000  # numbers that are formed at a time; to choose by: rows times items, rows
PAIRS = 2**24  # of rows of a group, at a time
DECAYS, POWERS = (1.0, 0.9, 0.7, 0.5, 0.3), (0.5, 0.0, 1.0)
STEPS, SURE = 30, 1e-6  # of Newton; nats a row that are no gain
RIDGE = 1e-3  # on the three weights, in rows: a guard


@dataclass(frozen=True)
class _Added(Recipe):
    """What the two recipes share."""

    penalty: float | None = None
    decay: float | None = None
    power: float | None = None
    sharpness: float | None = None
    popularity: float | None = None
    again: float | None = None
    models = "item"

    def _check(self, least: float) -> None:
        self.check_number("penalty", least)
        self.check_number("decay", 1e-6, 1.0)
        self.check_number("power", 0.0, 1.0)
        for name in ("sharpness", "popularity", "again"):
            self.check_number(name, -1e6, 1e6)


@final
@dataclass(frozen=True)
class EASE(_Added):
    """A linear autoencoder of which items a group has. penalty: on what each adds to each; decay: of rows further back,
    in past; power: of the context's weight, by which scores are divided; sharpness, popularity, again: weights of
    scores, of log popularity and of items that are there already. None to choose each on held-out groups."""

    def build(self, setting: Setting) -> Conditionals:
        self._check(1e-6)
        if setting.items > MOST:
            said = f"EASE inverts a table of {setting.items} by {setting.items} items; it takes at most {MOST}."
            raise DataError(said, option="item")
        return Autoencoder(setting, self)


@final
@dataclass(frozen=True)
class ItemNeighbours(_Added):
    """Items that occur in the same groups, by the cosine of who has them. penalty: groups by which few are shrunk; the
    other options are those of EASE."""

    def build(self, setting: Setting) -> Conditionals:
        self._check(0.0)
        return Cosines(setting, self)


class Counts(NamedTuple):
    """Groups that have both of two different items, by pairs in the order of the first; each: of one, (item,)."""

    one: np.ndarray
    two: np.ndarray
    both: np.ndarray
    each: np.ndarray


class Contexts(NamedTuple):
    """Some rows to choose by: items of their contexts (row, any), the number of items for none, how far away each is,
    and the item that came (row,)."""

    item: Tensor
    far: Tensor
    target: Tensor


class AddedScores(DirectlyFitted):
    """What each item adds: to items `added_to` (item, any), amounts `amount`."""

    penalties: tuple[float, ...]

    def __init__(self, setting: Setting, options: _Added) -> None:
        super().__init__(setting.family, setting.context, setting.support)
        self.options, items = options, self.family.size
        self.near = [0.0, 1.0, 0.0]  # the last weights that were found, from which the next search starts
        wide = items if items <= FULL else LARGEST
        self.register_buffer("added_to", torch.zeros(items, wide, dtype=torch.int32))
        self.register_buffer("amount", torch.zeros(items, wide))
        self.register_buffer("log_share", torch.zeros(items))
        self.register_buffer("chosen", torch.zeros(6))  # penalty, decay, power; sharpness, popularity, again

    @abstractmethod
    def similarities(self, counts: Counts, penalty: float) -> Iterator[tuple[int, np.ndarray]]:
        """B by rows: the first item of some, and their rows (some, item)."""

    def chosen_options(self) -> dict[str, Any]:
        names = ("penalty", "decay", "power", "sharpness", "popularity", "again")
        return dict(zip(names, self.get_buffer("chosen").tolist(), strict=True))

    def fit(self, groups: Groups, held: Groups | None = None, tick: Tick | None = None) -> None:
        asked, tick = self.options, tick or (lambda done, of: None)
        train, check = tuning_parts(groups, held, of_items=True)
        rows = contexts(check, self.family.size, self.context, min(max(SAMPLE // self.family.size, 1), ROWS))
        counts = counted(train, self.family.size)
        penalty = self._penalty(train, check, tick) if asked.penalty is None else float(asked.penalty)
        self._learn(train, counts, penalty)
        tick(2, 3)
        decays = DECAYS if self.context == "past" else (1.0,)
        decay, power = asked.decay, asked.power
        if decay is None:
            start = POWERS[0] if power is None else power
            decay = max(decays, key=lambda x: self._score(rows, x, start))
        if power is None:
            power = max(POWERS, key=lambda x: self._score(rows, decay, x))
        weights = self._weights(rows, decay, power)[0]
        if train is not groups:
            self._learn(groups, counted(groups, self.family.size), penalty)
        self._set(chosen=torch.tensor([penalty, decay, power, *weights]))
        tick(3, 3)

    def _penalty(self, train: Groups, check: Groups, tick: Tick) -> float:
        """By the most popular items alone, where they are many."""
        items = self.family.size
        counts = counted(train, items)
        kept = np.sort(np.argsort(-counts.each, kind="stable")[:POPULAR])
        number = np.full(items + 1, len(kept))
        number[kept] = np.arange(len(kept))
        few = Counts(number[counts.one], number[counts.two], counts.both, counts.each[kept])
        there = (few.one < len(kept)) & (few.two < len(kept))
        few = Counts(few.one[there], few.two[there], few.both[there], few.each)
        rows = contexts(check, items, self.context, min(max(SAMPLE // len(kept), 1), ROWS))
        rows = Contexts(*(torch.as_tensor(number)[x] if k != 1 else x for k, x in enumerate(rows)))
        known = rows.target < len(kept)
        rows, scores = Contexts(*(x[known] for x in rows)), {}
        log_share = torch.as_tensor(np.log(shares(np.repeat(np.arange(len(kept)), few.each), len(kept))))
        for penalty in self.penalties:
            table = torch.as_tensor(np.concatenate([x for _, x in self.similarities(few, penalty)]))
            to = torch.arange(len(kept)).expand(len(kept), -1)
            scores[penalty] = self._weights(rows, *self._middle(), to, table, log_share)[1]
            tick(1, 3)
        return max(scores, key=lambda x: scores[x])

    def _middle(self) -> tuple[float, float]:
        decay = 0.7 if self.context == "past" else 1.0
        asked = self.options
        return decay if asked.decay is None else asked.decay, POWERS[0] if asked.power is None else asked.power

    def _learn(self, groups: Groups, counts: Counts, penalty: float) -> None:
        """B of these groups, and how popular items are."""
        item = groups.item
        assert item is not None
        known = (
            item[item < self.family.size] if groups.target is None else item[(item < self.family.size) & groups.target]
        )
        self._set(log_share=np.log(shares(known.astype(np.int64), self.family.size)))
        to, amount = self.get_buffer("added_to"), self.get_buffer("amount")
        for first, rows in self.similarities(counts, penalty):
            x = torch.as_tensor(rows)
            best = x.abs().topk(to.shape[1], 1).indices.sort(1).values
            to[first : first + len(x)] = best.int()
            amount[first : first + len(x)] = x.gather(1, best).to(amount.dtype)

    def _score(self, rows: Contexts, decay: float, power: float) -> float:
        return self._weights(rows, decay, power)[1]

    def _weights(
        self,
        rows: Contexts,
        decay: float,
        power: float,
        to: Tensor | None = None,
        amount: Tensor | None = None,
        log_share: Tensor | None = None,
    ) -> tuple[list[float], float]:
        """sharpness, popularity and again, those asked for as they are; and the mean log-probability of the rows."""
        to = self.get_buffer("added_to") if to is None else to
        amount = self.get_buffer("amount") if amount is None else amount
        share = self.get_buffer("log_share") if log_share is None else log_share
        size, asked = len(to), self.options
        given = [asked.sharpness, asked.popularity, asked.again if self.support == "all" else 0.0]
        if not len(rows.target):
            return [float(x) if x is not None else start for x, start in zip(given, (0.0, 1.0, 0.0), strict=True)], 0.0
        weight = (rows.item < size) * decay ** (rows.far - 1).clamp_min(0).double()
        s, r = (x.double() for x in added(to, amount, rows.item, weight, power))
        there = torch.zeros(len(s), size + 1, dtype=torch.bool).scatter_(1, rows.item.clamp_max(size), True)[:, :size]
        out = there if self.support == "distinct" else torch.zeros((), dtype=torch.bool)
        features = [s, share.double().expand(len(s), -1), r]
        self.near, score = newton(features, rows.target, out, given, self.near)
        return self.near, score

    def raw_outputs(self, batch: Batch, slots: Tensor) -> Tensor:
        if batch.item is None:
            raise DataError(f"{type(self.options).__name__} needs an item column.")
        n, size = batch.length, self.family.size
        _, decay, power, sharpness, popularity, again = self.get_buffer("chosen").double().tolist()
        item, column = batch.item[:, :n], torch.arange(n)
        gap = slots[..., None] - column  # (batch, target, context)
        may = (gap > 0 if self.context == "past" else gap != 0) & (batch.exists[:, :n] & (item < size))[:, None]
        weight = may * (decay ** (gap - 1).clamp_min(0).double() if self.context == "past" else 1.0)
        items = item[:, None].expand(weight.shape).reshape(-1, n)
        s, r = added(self.get_buffer("added_to"), self.get_buffer("amount"), items, weight.reshape(-1, n), power)
        f = popularity * self.get_buffer("log_share") + sharpness * s
        return (f + again * r if self.support == "all" else f).reshape(*slots.shape, size)


@final
class Autoencoder(AddedScores):
    penalties = (1.0, 5.0, 20.0, 100.0, 500.0, 2000.0)

    def similarities(self, counts: Counts, penalty: float) -> Iterator[tuple[int, np.ndarray]]:
        size = len(counts.each)
        gram = torch.zeros(size, size, dtype=torch.float64)
        gram[torch.as_tensor(counts.one), torch.as_tensor(counts.two)] = torch.as_tensor(counts.both).double()
        gram.diagonal().copy_(torch.as_tensor(counts.each).double() + penalty)
        inverse = torch.cholesky_inverse(torch.linalg.cholesky(gram))
        inverse /= -inverse.diagonal().clone()
        inverse.fill_diagonal_(0.0)
        for first in range(0, size, 1024):
            yield first, inverse[first : first + 1024].numpy()


@final
class Cosines(AddedScores):
    penalties = (0.0, 3.0, 10.0, 30.0, 100.0)

    def similarities(self, counts: Counts, penalty: float) -> Iterator[tuple[int, np.ndarray]]:
        size, each = len(counts.each), counts.each.astype(float)
        x = counts.both / np.maximum(np.sqrt(each[counts.one] * each[counts.two]) + penalty, 1e-12)
        step = max(CELLS // size, 1)
        for first in range(0, size, step):
            low, high = np.searchsorted(counts.one, (first, first + step))
            rows = np.zeros((min(step, size - first), size))
            rows[counts.one[low:high] - first, counts.two[low:high]] = x[low:high]
            yield first, rows


def added(to: Tensor, amount: Tensor, item: Tensor, weight: Tensor, power: float) -> tuple[Tensor, Tensor]:
    """s, r (row, item), of contexts item, weight (row, any), which is 0 where there is no item."""
    size = len(to)
    weight = (weight / weight.sum(-1, keepdim=True).clamp_min(1e-12) ** power).to(amount.dtype)
    r = weight.new_zeros(len(item), size + 1).scatter_add_(1, item.clamp_max(size), weight)[:, :size]
    if to.shape[1] == size:  # which are all of them, in order
        return r @ amount, r
    s = torch.zeros_like(r)
    for row, one in zip(*(x.split(max(CELLS // to.shape[1], 1)) for x in r.nonzero().unbind(1)), strict=True):
        there = row[:, None] * size + to[one].long().clamp(0, size - 1)
        s.view(-1).index_add_(0, there.flatten(), (r[row, one][:, None] * amount[one]).flatten())
    return s, r


def newton(
    features: list[Tensor], target: Tensor, out: Tensor, given: list[float | None], start: list[float]
) -> tuple[list[float], float]:
    """Weights of features (row, item) under which the targets are most probable among the items that are not ruled
    `out`, and their mean log-probability. given: those that are settled; start: of the others. It is
    concave in them."""
    theta = torch.tensor([start[k] if x is None else float(x) for k, x in enumerate(given)]).double()
    free = [k for k, x in enumerate(given) if x is None]
    own = torch.stack([x.gather(1, target[:, None])[:, 0] for x in features], 1)  # (row, feature)

    def at_(weights: Tensor) -> tuple[float, Tensor]:
        f = sum((w * x for w, x in zip(weights, features, strict=True)), torch.zeros(())).masked_fill(out, -torch.inf)
        log_p = f.log_softmax(1)
        return float(log_p.gather(1, target[:, None]).mean()), log_p.exp()

    score, p = at_(theta)
    for _ in range(STEPS if free else 0):
        mean = torch.stack([(p * features[k]).sum(1) for k in free], 1)
        slope = (own[:, free] - mean).mean(0)
        square = torch.stack([torch.stack([(p * features[j] * features[k]).sum(1) for j in free], 1) for k in free], 2)
        curve = (square - mean[:, :, None] * mean[:, None]).mean(0) + RIDGE / len(target) * torch.eye(len(free))
        step, before = torch.linalg.solve(curve, slope), score
        for _ in range(STEPS):
            tried = theta.clone()
            tried[free] += step
            score, q = at_(tried)
            if score >= before:
                theta, p = tried, q
                break
            step = step / 2
        else:
            score = before
        if score - before < SURE:
            break
    return theta.tolist(), score


def counted(groups: Groups, items: int) -> Counts:
    """Every item once a group, in parts of whole groups."""
    item, number = groups.item, groups.group
    assert item is not None
    known = item < items
    key = np.unique(number[known].astype(np.int64) * items + item[known])
    number, item = key // items, key % items
    length = np.bincount(number, minlength=len(groups))
    start = np.cumsum(length) - length
    found, both = np.zeros(0, np.int64), np.zeros(0, np.int64)
    ends = np.searchsorted(np.cumsum(length.astype(np.int64) ** 2), np.arange(PAIRS, (length**2).sum() + PAIRS, PAIRS))
    for low, high in zip([0, *(ends[:-1] + 1)], ends + 1, strict=True):
        mine = np.arange(low, min(high, len(length)))
        one = np.repeat(ranges(start[mine], start[mine] + length[mine]), np.repeat(length[mine], length[mine]))
        two = ranges(np.repeat(start[mine], length[mine]), np.repeat(start[mine] + length[mine], length[mine]))
        pairs, times = np.unique(item[one] * items + item[two], return_counts=True)
        found, where = np.unique(np.concatenate([found, pairs]), return_inverse=True)
        both = np.bincount(where, np.concatenate([both, times]), len(found)).astype(np.int64)
    one, two = found // items, found % items
    apart = one != two
    return Counts(one[apart], two[apart], both[apart], np.bincount(item, minlength=items))


def contexts(groups: Groups, items: int, context: str, most: int) -> Contexts:
    """Rows whose item is known, evenly every so manyth."""
    item, number, target = groups.item, groups.group, groups.target
    assert item is not None
    rows = np.flatnonzero((item < items) & (True if target is None else target))
    rows = rows[:: max(-(-len(rows) // most), 1)]
    ends = np.cumsum(groups.lengths)
    first, last = (ends - groups.lengths)[number[rows]], ends[number[rows]]
    longest = int((rows - first if context == "past" else last - first).max(initial=0))
    at_ = (rows - 1 if context == "past" else last - 1)[:, None] - np.arange(longest)
    there = (at_ >= first[:, None]) & (at_ != rows[:, None])
    mine = np.where(there, np.minimum(item[np.where(there, at_, 0)], items), items) if len(item) else np.zeros((0, 0))
    far = np.where(there, rows[:, None] - at_, 0) if context == "past" else np.ones_like(at_)
    return Contexts(*(torch.as_tensor(x.astype(np.int64)) for x in (mine, far, item[rows])))
