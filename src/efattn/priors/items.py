"""Simple distributions of the next or missing item.

    Popularity      p(x) = (n_x + a) / (n + a D)
    MarkovChain     p(x | x') = (n_x'x + k p(x)) / (n_x' + k),       x' the item before; a state of its own at the start
    AdditiveItems   softmax(b + s(n) sum_{j in context} M[x_j]),     M (D, D) of full rank, s = 1, 1/n or 1/sqrt(n)

Distinct support, scoring and drawn targets are those of all models. AdditiveItems is trained like them.
"""

from typing import Literal, final

import numpy as np
import torch
from torch import Tensor, nn

from efattn.data import Batch, Groups
from efattn.errors import DataError
from efattn.families import Categorical
from efattn.models.scoring import Conditionals, Support, at
from efattn.network import Context
from efattn.priors.base import FittedOnce, tuning_parts

SMOOTHING = 0.5  # a
STRENGTHS = (1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 1e4)
MOST = 10_000  # items of a D x D table
Scale = Literal["sum", "mean", "root"]


@final
class Popularity(FittedOnce):
    """The same for every row, but for what distinct support rules out."""

    def __init__(self, items: int, context: Context = "others", support: Support = "all") -> None:
        super().__init__(Categorical(items), context, support)
        self.register_buffer("log_share", torch.zeros(items))

    def fit(self, groups: Groups, held: Groups | None = None) -> None:
        self._set(log_share=np.log(shares(_counted(groups, self.family.size)[1], self.family.size)))

    def raw_outputs(self, batch: Batch, slots: Tensor) -> Tensor:
        return self.get_buffer("log_share").expand(*slots.shape, -1)


@final
class MarkovChain(FittedOnce):
    """Transitions from the row before, smoothed by popularity as much as held-out groups ask for."""

    def __init__(self, items: int, support: Support = "all", strength: float | None = None) -> None:
        super().__init__(Categorical(items), "past", support)
        _check_items(items)
        self.strength = strength
        self.register_buffer("log_step", torch.zeros(items + 2, items))  # after: the items, an unknown one, nothing
        self.register_buffer("chosen", torch.zeros(1))

    def fit(self, groups: Groups, held: Groups | None = None) -> None:
        strength = self.strength
        if strength is None:
            train, check = tuning_parts(groups, held)
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


@final
class AdditiveItems(Conditionals):
    """scale: "sum", "mean" or "root" (1 / sqrt(n)) of the context."""

    def __init__(
        self, items: int, context: Context = "others", support: Support = "all", scale: Scale = "root"
    ) -> None:
        super().__init__(Categorical(items), context, support)
        _check_items(items)
        self.scale = scale
        self.bias = nn.Parameter(torch.zeros(items))
        self.matrix = nn.Parameter(torch.zeros(items, items))

    @torch.no_grad()
    def start(self, batch: Batch) -> None:
        self.bias.copy_(self.marginal(batch).to(self.bias.dtype))

    def raw_outputs(self, batch: Batch, slots: Tensor) -> Tensor:
        if batch.item is None:
            raise DataError("AdditiveLogit needs an item column.")
        n, size = batch.length, self.family.size
        item = batch.item[:, :n]
        column = torch.arange(n, device=item.device)
        may = column < slots[..., None] if self.context == "past" else column != slots[..., None]
        seen = (may & (batch.exists[:, :n] & (item < size))[:, None]).to(self.matrix.dtype)  # (batch, target, context)
        count = seen.sum(-1, keepdim=True).clamp_min(1)
        return self.bias + self._share(count) * (seen @ self.matrix[item.clamp_max(size - 1)])

    def _share(self, count: Tensor) -> Tensor:
        return {"sum": torch.ones_like(count), "mean": 1 / count, "root": count.rsqrt()}[self.scale]

    @torch.no_grad()
    def draw(self, batch: Batch, generator: torch.Generator | None = None, sweeps: int = 5) -> Batch:
        """What `draw_items` gives, from one sum per group that is kept up to date."""
        assert batch.item is not None
        n, size = batch.length, self.family.size
        item = batch.item.clone()
        item[:, :n] = size
        known = torch.cat([self.matrix, torch.zeros_like(self.matrix[:1])])  # the unknown item adds nothing
        total, count, groups = known.new_zeros(len(item), size), known.new_zeros(len(item), 1), torch.arange(len(item))
        taken = torch.zeros(len(item), size + 1, dtype=torch.int16)
        if batch.cut is not None:
            taken.scatter_(1, torch.where(batch.cut < 0, size, batch.cut), 1)
        for _ in range(1 if self.context == "past" else 1 + sweeps):
            for i in range(n):
                old = item[:, i].clone()
                total, count = total - known[old], count - (old < size)[:, None].to(count.dtype)
                taken[groups, old] -= 1
                f = self.bias + self._share(count.clamp_min(1)) * total
                if self.support == "distinct":
                    f = f.masked_fill(taken[:, :size] > 0, -torch.inf)
                free = batch.exists[:, i] & (f > -torch.inf).any(1)
                new = torch.full_like(old, size)
                new[free] = torch.multinomial(f[free].softmax(-1), 1, generator=generator)[:, 0] if free.any() else size
                item[:, i] = new
                total, count = total + known[new], count + (new < size)[:, None].to(count.dtype)
                taken[groups, new] += 1
        return batch.replace(item=item)


@torch.no_grad()
def draw_items(term: Conditionals, batch: Batch, generator: torch.Generator | None = None, sweeps: int = 5) -> Batch:
    """The same cells with new items: one after the other in `past`; in `others` too, and then so many Gibbs sweeps. A
    cell for which distinct support leaves nothing holds the unknown item."""
    if batch.item is None:
        raise DataError("There are no items to draw: pass item=...")
    n, size, item = batch.length, term.family.size, batch.item.clone()
    item[:, :n] = size
    for _ in range(1 if term.context == "past" else 1 + sweeps):
        for i in range(n):
            item[:, i] = size
            f = term.outputs(batch.replace(item=item.clone()), torch.full((len(item), 1), i))
            p = term.family.mean(f)[:, 0].nan_to_num(0.0)
            free = batch.exists[:, i] & (p.sum(-1) > 0)
            item[free, i] = torch.multinomial(p[free], 1, generator=generator)[:, 0] if free.any() else item[free, i]
    return batch.replace(item=item)


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
        raise DataError(f"A table of {items} by {items} items is too large; it takes at most {MOST} items.")
