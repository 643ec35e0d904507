"""A multinomial logit of the item, from what is there, how much of it, what is next to it, and how many rows there are.

    f = b + W z,    z = (whether each item is in the context; its share there, where items repeat; which item the row
                    before is, in `others` the row after too, where rows have an order; in which class the number of
                    context rows is: 0, 1, 2, 3, 4-7, ...; attributes of the row that tell nothing of its item)

    maximise  sum log p_i - penalty / 2 |W|^2 - 1/2 |b - log popularity|^2

Of few items this is what one would write down first, and it has one best answer, which L-BFGS finds. Folds of the
groups choose the penalty.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, final

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from efattn.data import Batch, Groups
from efattn.errors import DataError
from efattn.models.scoring import Conditionals, at, every
from efattn.models.support import taken
from efattn.simple.base import DirectlyFitted, Recipe, Setting, Tick
from efattn.simple.items import counted, shares

MOST = 200  # items, for a table of what each says of each
PENALTIES = (100.0, 30.0, 10.0, 3.0, 1.0, 0.3)  # the strongest first
FOLDS, STEPS, GAIN = 4, 200, 1e-4  # of L-BFGS; nats a row that a weaker penalty has to bring
ROWS = 20_000  # targets to choose the penalty by
COUNTS = 8  # classes of how many rows there are
CLIP, TOKENS = 8.0, 4096


@final
@dataclass(frozen=True)
class ItemLogit(Recipe):
    """A multinomial logit of which items are there, which is next to the row, and how many there are. penalty: of its
    coefficients, None to choose it by folds of the groups. seconds: how long to look, at most."""

    penalty: float | None = None
    seconds: float = 20.0
    models = "item"

    def build(self, setting: Setting) -> Conditionals:
        self.check_number("penalty", 1e-6)
        self.check_number("seconds", 0)
        if setting.items > MOST:
            said = f"ItemLogit has a table of {setting.items} by {setting.items} items; it takes at most {MOST}."
            raise DataError(f"{said} AdditiveLogit takes more.", option="item")
        return Logit(setting, self)


class Rows(NamedTuple):
    """Targets: z (row, any), item, weight, group (row,); out: the items that are ruled out (row, item), if any are."""

    z: Tensor
    item: Tensor
    weight: Tensor
    group: Tensor
    out: Tensor | None

    def some(self, kept: Tensor) -> "Rows":
        return Rows(*(None if x is None else x[kept] for x in self))  # type: ignore[arg-type]


@final
class Logit(DirectlyFitted):
    def __init__(self, setting: Setting, options: ItemLogit) -> None:
        super().__init__(setting.family, setting.context, setting.support)
        self.options, self.ordered = options, setting.ordered
        self.shown = tuple(k for k, own in enumerate(setting.own_attributes) if own)
        self.repeats = setting.support == "all"
        items = self.family.size
        sides = 0 if not setting.ordered else 1 if setting.context == "past" else 2
        width = items * (1 + self.repeats + sides) + COUNTS + len(self.shown)
        self.register_buffer("bias", torch.zeros(items, dtype=torch.float64))
        self.register_buffer("slope", torch.zeros(width, items, dtype=torch.float64))
        self.register_buffer("centre", torch.zeros(len(self.shown), dtype=torch.float64))
        self.register_buffer("spread", torch.ones(len(self.shown), dtype=torch.float64))
        self.register_buffer("chosen", torch.zeros(1, dtype=torch.float64))

    def chosen_options(self) -> dict[str, Any]:
        return {"penalty": float(self.get_buffer("chosen")[0])}

    # ---- what it says

    def raw_outputs(self, batch: Batch, slots: Tensor) -> Tensor:
        z = at(self.described(batch), slots)
        return self.get_buffer("bias") + z @ self.get_buffer("slope")

    def described(self, batch: Batch) -> Tensor:
        """z of every current row, (batch, length, any)."""
        if batch.item is None:
            raise DataError("ItemLogit needs an item column.")
        n, size = batch.length, self.family.size
        item = torch.where(batch.exists[:, :n], batch.item[:, :n], size).clamp_max(size)
        which = one_hot(item, size + 1)[..., :size].double()  # (batch, context, item)
        column = torch.arange(n)
        may = column < column[:, None] if self.context == "past" else column != column[:, None]
        count = may.double() @ which
        there = (may.double() @ batch.exists[:, :n, None].double())[..., 0]
        parts = [count.clamp_max(1.0)]
        parts += [count / (there[..., None] + 1)] if self.repeats else []
        if self.ordered:
            none = torch.zeros_like(which[:, :1])
            parts.append(torch.cat([none, which[:, :-1]], 1))
            parts += [] if self.context == "past" else [torch.cat([which[:, 1:], none], 1)]
        several = torch.where(there < 4, there, there.clamp_min(1).log2().floor() + 2).long()  # 4-7 is the fifth class
        parts.append(one_hot(several.clamp_max(COUNTS - 1), COUNTS).double())
        if self.shown:
            if batch.attributes is None:
                raise DataError("This model was fitted with attributes, and the data have none.", option="attributes")
            x = batch.attributes[:, :n, list(self.shown)].double()
            x = (x - self.get_buffer("centre")) / self.get_buffer("spread")
            parts.append(x.clamp(-CLIP, CLIP).nan_to_num(0.0))
        return torch.cat(parts, -1)

    # ---- how it is fitted

    def fit(self, groups: Groups, held: Groups | None = None, tick: Tick | None = None) -> None:
        """held is not looked at: folds of the groups choose."""
        tell, end = tick or (lambda done, of: None), time.thread_time() + self.options.seconds
        if self.shown and groups.attributes is not None:
            known = torch.as_tensor(groups.attributes[:, list(self.shown)]).double()
            spread = known.std(0, correction=0)
            self._set(centre=known.mean(0), spread=torch.where(spread > 0, spread, 1.0))
        popular = torch.as_tensor(np.log(shares(counted(groups, self.family.size)[1], self.family.size)))
        rows = self._rows(groups)
        path: Sequence[float] = PENALTIES if self.options.penalty is None else (float(self.options.penalty),)
        if len(path) > 1:
            path = self._chosen(rows, popular, path, end, tell)
        at_last = self._along(rows, popular, path, end)[-1]
        self._set(bias=at_last[0], slope=at_last[1:], chosen=path[-1])

    def _rows(self, groups: Groups) -> Rows:
        parts = list[Rows]()
        for pieces in groups.plan(max(64, TOKENS // max(self.family.size // 16, 1))):
            batch = groups.batch(pieces, self.context, torch.float64)
            scored = self.targets(batch)
            assert batch.item is not None
            weight = torch.ones(scored.shape, dtype=torch.float64) if batch.weight is None else batch.weight.double()
            group = torch.as_tensor(groups.pieces.group[pieces])[:, None].expand(scored.shape)
            out = None
            if self.support == "distinct":
                out = taken(batch, every(batch), self.family.size, self.context)[scored]
            item = batch.item[:, : batch.length][scored]
            parts.append(Rows(self.described(batch)[scored], item, weight[scored], group[scored], out))
        z, item, weight, group = (torch.cat([one[k] for one in parts]) for k in range(4))  # type: ignore[misc]
        outs = [one.out for one in parts if one.out is not None]
        return Rows(z, item, weight, group, torch.cat(outs) if outs else None)

    def _chosen(self, rows: Rows, popular: Tensor, path: Sequence[float], end: float, tick: Tick) -> Sequence[float]:
        """The path down to the penalty under which folds of the groups are likeliest: as weak as it has to be."""
        names = rows.group.unique()
        if len(names) < 2:
            return path[:3]
        draw = np.random.default_rng(0)
        fold = torch.as_tensor(draw.permutation(len(names)) * min(FOLDS, len(names)) // len(names))
        mine = fold[torch.searchsorted(names, rows.group)]
        few = torch.as_tensor(draw.random(len(mine)) < ROWS / len(mine))
        scores = torch.zeros(len(path), dtype=torch.float64)
        for k in range(min(FOLDS, len(names))):
            tick(k, FOLDS)
            found = self._along(rows.some((mine != k) & few), popular, path, end)
            left = rows.some((mine == k) & few)
            each = torch.stack([self._log_prob(one, left).sum() for one in found])
            scores[: len(each)] += each
            scores[len(each) :] = -torch.inf  # for which there was no time
        best, gain = 0, GAIN * float(rows.weight[few].sum())
        for k in range(1, len(path)):
            best = k if scores[k] > scores[best] + gain else best
        return path[: best + 1]

    def _along(self, rows: Rows, popular: Tensor, path: Sequence[float], end: float) -> list[Tensor]:
        """The best coefficients (1 + any, item), the bias first, of each penalty in turn, from the ones before on."""
        from scipy.optimize import minimize

        aim = torch.zeros(1 + rows.z.shape[1], len(popular), dtype=torch.float64)
        aim[0] = popular
        now, found, count = aim.clone(), list[Tensor](), max(float(rows.weight.sum()), 1.0)
        for penalty in path:
            weight = torch.full((len(aim), 1), penalty, dtype=torch.float64)
            weight[0] = 1.0

            def loss(point: np.ndarray, weight: Tensor = weight) -> tuple[float, np.ndarray]:
                with torch.enable_grad():
                    c = torch.as_tensor(point).view_as(aim).requires_grad_()
                    value = (weight / 2 * (c - aim) ** 2).sum() - self._log_prob(c, rows).sum()
                    (gradient,) = torch.autograd.grad(value / count, c)
                return float(value.detach()) / count, gradient.flatten().numpy()

            best = minimize(loss, now.flatten().numpy(), method="L-BFGS-B", jac=True, options={"maxiter": STEPS})
            now = torch.as_tensor(best.x).view_as(aim)
            found.append(now)
            if time.thread_time() > end:
                break
        return found

    @staticmethod
    def _log_prob(c: Tensor, rows: Rows) -> Tensor:
        """Of each row, times its weight."""
        f = c[0] + rows.z @ c[1:]
        f = f if rows.out is None else f.masked_fill(rows.out, -torch.inf)
        return (f.gather(1, rows.item[:, None])[:, 0] - f.logsumexp(1)) * rows.weight
