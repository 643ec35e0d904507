"""Powers of a log-linear pool of networks and companions (inference/pool.py), by groups that none was fitted to.

    a = argmax  sum_i w_i log p_a(y_i)  -  F/2 |a - s|^2,       p_a(y) ~ prod_k p_k(y)^(a_k),  s the mixture's shares

It is concave in a few numbers, so that Newton's steps find the best. Each fifth of the held-out groups is scored by
powers of the others: where that beats the mixture by more than its standard error, the term is pooled. Of a large
catalogue some targets decide, as many as fit into memory with the probabilities of all items; one step of Newton more,
from their powers, is by many more of them, a batch at a time: how sure lists are is told by all.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from efattn.data import Groups
from efattn.estimators.blueprint import Blueprint
from efattn.estimators.companions import Offer
from efattn.inference import Part
from efattn.inference.pool import log_probs
from efattn.models import Conditionals, Model
from efattn.simple.base import TOKENS, some_groups

LEAST, PARTS = 40, 5  # groups that decide whether to pool; in so many parts
CELLS, MORE = 2**24, 2**28  # targets times items: at a time, and in all
FEW, STEPS = 5.0, 50  # what draws powers to the shares, as so many targets; steps of Newton
ROUNDS = 100  # of expectation and maximisation
BLOCK = 2**20  # numbers that are worked on at a time


class Known(NamedTuple):
    """Of some held-out targets: logs, of each part the log-probabilities (target, item); out, what is ruled out; item,
    weight, group (target,)."""

    logs: list[Tensor]
    out: Tensor
    item: Tensor
    weight: Tensor
    group: Tensor

    def some(self, rows: Tensor) -> "Known":
        return Known([x[rows] for x in self.logs], *(x[rows] for x in self[1:]))

    def of_items(self) -> Tensor:
        """(target, part): what each part says of the item that came."""
        return torch.stack([x.gather(1, self.item[:, None])[:, 0] for x in self.logs], 1).double()


class Pooled(NamedTuple):
    """powers: of the networks and of each companion; values, weight (target,): log scores by powers of other groups;
    parts (target, part): those of each part alone."""

    powers: list[float]
    values: Tensor
    weight: Tensor
    parts: Tensor
    groups: int

    def beside(self, simplest: int | None) -> float:
        """The share that the simplest part has beside the pool: what one target in favour of it would give, at least,
        and what held-out targets ask for."""
        if simplest is None:
            return 0.0
        share, count = 0.5, float(self.weight.sum())
        one = count / max(len(self.weight), 1)
        for _ in range(ROUNDS):
            mine = torch.sigmoid(self.parts[:, simplest] - self.values + math.log(share / (1 - share)))
            share = float((self.weight @ mine + one) / (count + 2 * one))
        return share

    def mean(self, simplest: int | None, share: float) -> float:
        """Per target, of the pool with that share beside it."""
        values = self.values
        if simplest is not None and share:
            values = torch.logaddexp(values + math.log1p(-share), self.parts[:, simplest] + math.log(share))
        return float(values @ self.weight / self.weight.sum())


@torch.no_grad()
def chosen(
    parts: Sequence[Blueprint],
    name: str,
    networks: Sequence[Sequence[Model]],
    offers: Sequence[Mapping[str, Sequence[Offer]]],
    shares: Tensor,
) -> Pooled | None:
    """Of one term, where a pool is better than the mixture with these shares; None where it is not."""
    if not networks[0] or not networks[0][0][name].of_items or not offers[0][name]:
        return None
    cells = CELLS // len(parts)
    each = zip(parts, networks, offers, strict=True)
    tables = [_known(part, [model[name] for model in mine], some[name], cells) for part, mine, some in each]
    known = _together([one for one in tables if one is not None])
    if known is None or len(known.group.unique()) < LEAST:
        return None
    values, whole = torch.zeros(len(known.group), dtype=torch.float64), powers(known, shares)
    for rows in fifths(known.group):
        values[rows] = scored(known.some(rows), powers(known.some(~rows), shares, whole))
    alone = known.of_items()
    linear = (alone + shares.clamp_min(1e-300).log()).logsumexp(1)
    if not surely_better(values, linear, known.weight, known.group):
        return None
    if any(one.held is not None and one.held is not _some(one, cells) for one in parts):
        whole = _by_more(parts, name, networks, offers, shares, whole)
    return Pooled(whole.tolist(), values, known.weight, alone, len(known.group.unique()))


def fifths(group: Tensor) -> list[Tensor]:
    """(target,) each: whether its group is in that fifth of the groups. What is chosen by all but one is nearly what is
    chosen by all; by one half only, a gain of a few numbers drowns in their noise."""
    number = group.unique(return_inverse=True)[1]
    return [number % PARTS == k for k in range(PARTS)]


def surely_better(values: Tensor, plain: Tensor, weight: Tensor, group: Tensor) -> bool:
    """(target,) each: whether these log scores are higher by more than the standard error over groups."""
    gain = torch.zeros(int(group.max()) + 1, dtype=torch.float64)
    gain.index_add_(0, group, (values - plain) * weight)
    return float(gain.sum()) > float(gain.square().sum().sqrt())


def _by_more(
    parts: Sequence[Blueprint],
    name: str,
    networks: Sequence[Sequence[Model]],
    offers: Sequence[Mapping[str, Sequence[Offer]]],
    near: Tensor,
    a: Tensor,
) -> Tensor:
    """(part,): powers after one step of Newton, by targets whose probabilities need not be in memory together."""
    slope, curve = -FEW * (a - near), FEW * torch.eye(len(a), dtype=torch.float64)
    for part, mine, some in zip(parts, networks, offers, strict=True):
        for known in _tables(part, [model[name] for model in mine], some[name], MORE // len(parts)):
            more = _derivatives(known, a)
            slope, curve = slope + more[0], curve + more[1]
    step = torch.linalg.solve(curve, slope)
    return a + step if bool(step.isfinite().all()) else a


def powers(known: Known, near: Tensor, start: Tensor | None = None) -> Tensor:
    """(part,): the best, drawn to `near`; wherever the search starts, as it is concave."""
    a = (near if start is None else start).double().clone()
    best = float(scored(known, a) @ known.weight) - _penalty(a, near)
    for _ in range(STEPS):
        slope, curve = _derivatives(known, a)
        slope, curve = slope - FEW * (a - near), curve + FEW * torch.eye(len(a), dtype=torch.float64)
        step, size, moved = torch.linalg.solve(curve, slope), 1.0, False
        while size > 1e-3 and not moved:
            now = float(scored(known, a + size * step) @ known.weight) - _penalty(a + size * step, near)
            moved = now > best
            size = size if moved else size / 2
        if not moved:
            break
        a, gained, best = a + size * step, now - best, now
        if gained < 1e-6 * float(known.weight.sum()):
            break
    return a


def _penalty(a: Tensor, near: Tensor) -> float:
    return FEW / 2 * float((a - near).square().sum())


def scored(known: Known, a: Tensor) -> Tensor:
    """(target,): log p of the item that came."""
    found = []
    for some in _blocks(known):
        f = _pooled(some, a)
        found.append((f.gather(1, some.item[:, None])[:, 0] - f.logsumexp(1)).double())
    return torch.cat(found)


def _pooled(known: Known, a: Tensor) -> Tensor:
    f = sum((power * x for power, x in zip(a.tolist(), known.logs, strict=True)), start=torch.zeros(()))
    return f.masked_fill(known.out, -torch.inf)


def _derivatives(known: Known, a: Tensor) -> tuple[Tensor, Tensor]:
    """Of the sum of log scores: slope (part,), and the negative of its curvature (part, part), which is the sum of the
    covariances of log-probabilities under the pool."""
    slope, curve = torch.zeros(len(a), dtype=torch.float64), torch.zeros(len(a), len(a), dtype=torch.float64)
    for some in _blocks(known):
        p = _pooled(some, a).softmax(1)
        logs = torch.stack(some.logs, 1)  # (target, part, item)
        mean = (logs * p[:, None]).sum(-1)
        apart = logs - mean[..., None]
        slope += (some.of_items() - mean.double()).mT @ some.weight
        covariance = (apart * p[:, None]) @ apart.mT
        curve += torch.einsum("ikl,i->kl", covariance.double(), some.weight)
    return slope, curve


def _blocks(known: Known) -> list[Known]:
    rows = max(BLOCK // max(known.out.shape[1], 1), 1)
    return [known.some(slice(k, k + rows)) for k in range(0, len(known.item), rows)]  # type: ignore[arg-type]


def _some(part: Blueprint, cells: int) -> Groups:
    assert part.held is not None
    return some_groups(part.held, cells // part.items)


def _known(part: Blueprint, terms: Sequence[Conditionals], offers: Sequence[Offer], cells: int) -> Known | None:
    """Of some groups held out of one part of the table."""
    return _together(list(_tables(part, terms, offers, cells)))


def _tables(part: Blueprint, terms: Sequence[Conditionals], offers: Sequence[Offer], cells: int) -> Iterator[Known]:
    """The same, batch by batch."""
    if part.held is None or not len(part.held):
        return
    held = _some(part, cells)
    group = np.zeros(int(held.rows.max(initial=0)) + 1, np.int64)
    group[held.rows] = np.repeat(held.numbers, held.lengths)
    models = [*terms, *(one.model for one in offers)]
    for batch in held.batches(min(TOKENS, max(min(cells, CELLS) // part.items, 256)), context=terms[0].context):
        there = terms[0].targets(batch)
        slots = torch.argsort(~there, stable=True, dim=1)[:, : int(there.sum(1).max())]
        chosen_ = there.gather(1, slots)  # (group, target)
        if not chosen_.any():
            continue
        logs, out = list[Tensor](), torch.ones((), dtype=torch.bool)
        for model in models:
            found, gone = log_probs(torch.cat(list(Part(model, 1.0).item_outputs(batch, slots, chosen_, cells))))
            logs, out = [*logs, found.float()], out & gone
        mean = torch.stack(logs[: len(terms)]).mean(0)
        assert batch.item is not None
        assert batch.rows is not None
        weight = torch.ones(there.shape) if batch.weight is None else batch.weight
        item, rows, weight = (x[:, : batch.length].gather(1, slots)[chosen_] for x in (batch.item, batch.rows, weight))
        of = torch.as_tensor(group)[rows]
        yield Known([mean, *logs[len(terms) :]], out, item, weight.double(), of)


def _together(tables: Sequence[Known]) -> Known | None:
    if not tables:
        return None
    logs = [torch.cat(columns) for columns in zip(*(one.logs for one in tables), strict=True)]
    out, item = torch.cat([one.out for one in tables]), torch.cat([one.item for one in tables])
    weight, group = torch.cat([one.weight for one in tables]), torch.cat([one.group for one in tables])
    return Known(logs, out, item, weight, group)
