"""An additive logit of items: each row of the context adds its vectors, weighed by how far away it is.

    f_i      = b + sum_h V_h g_h(z_ih) + again_i + A a_i,           g(z) = z in half of the heads h, else max(z + c, 0)
    z_ih     = W_ih^(-p_h) sum_{j in context of i} w_ijh U_h[x_j],  W_ih = sum of the w_ijh, 0 < p_h < 1
    again_i  = W_i^(-p) r[x] sum_{j: x_j = x} w_ij                  at x, by the first head, where items may repeat
    log w_ij = a weight for the gap in rank, 1, 2, 3-4, 5-8, ..., before or after, or for the lag
             + a weight for the gap in time, a factor of two a class

    maximise  sum log p_i - penalty / 2 (|U|^2 + |V|^2 + |r|^2 + |A|^2) - 1/2 |what else moved from where it started|^2

where the largest w is 1. The penalty of U and V is one of the sum of the singular values of U V', so that the rank
only bounds the work. Heads differ in what they find near; the bent ones know a little of what comes together. It starts
at the popularity of the items; held-out groups choose the penalty and how many steps are taken. a_i: attributes of the
row itself, where they tell nothing of its item. Unknown items are no context.
"""

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, final

import numpy as np
import torch
from torch import Tensor, nn

from efattn.data import Batch, Groups
from efattn.errors import DataError
from efattn.models.scoring import Conditionals, at
from efattn.models.support import by_item
from efattn.network import Added, Gaps, Logits
from efattn.simple.base import DirectlyFitted, Recipe, Setting, Tick, tuning_parts

RANKS = 16  # classes of gaps in rank to each side: up to 2^15 rows
RANK, HEADS = 32, 4
RATE, FAST = 0.02, 5.0  # of Adam; how many times faster the few weights of gaps move
KEPT, SOON = 0.98, 9  # of the running mean of the weights, a step; steps after which it has forgotten half of its first
SHORTEST, LONGEST, MOST = 20, 200, 1500  # steps between two looks at held-out groups: an epoch; in all
TOKENS, LEAST, BATCHES, NUMBERS = 2048, 64, 20, 2**25  # of a step: rows; of an epoch: steps; what a step may form
FACTOR, LITTLE, PATIENCE = 3.0, 5e-4, 2  # between penalties; nats a row that are no gain; rounds without one
SMALL, ENOUGH = 0.1, 50_000  # the vectors at the start; held-out rows to choose by
TINY = 1e-6  # a sum of weights, at least
CLIP = 8.0  # standard deviations of an attribute


@final
@dataclass(frozen=True)
class AdditiveLogit(Recipe):
    """Each item of the context adds to the logits, weighed by its distance in rank and in time. rank: of the matrix of
    what each adds, None for 32 or as many as there are items. penalty: None to choose it on held-out groups. course:
    the penalties of training and the steps of each, None to choose that too. seconds: how long to look for them."""

    rank: int | None = None
    penalty: float | None = None
    course: tuple[tuple[float, int], ...] | None = None
    seconds: float = 60.0
    models = "item"
    times = True

    def build(self, setting: Setting) -> Conditionals:
        self.check_number("rank", 1, 4096)
        self.check_number("penalty", 1e-6)
        self.check_number("seconds", 0)
        if self.course is not None and not all(
            len(part) == 2 and part[0] >= 0 and part[1] >= 0 for part in self.course
        ):
            raise DataError(
                f"AdditiveLogit: course has pairs of a penalty and steps, both >= 0; found {self.course!r}.",
                option="course",
            )
        return AdditiveItems(setting, self)


class State(NamedTuple):
    """Weights, what held-out groups say of them, and the penalties and steps that led there."""

    weights: list[Tensor]
    score: float
    course: tuple[tuple[float, int], ...] = ()


@final
class AdditiveItems(DirectlyFitted):
    def __init__(self, setting: Setting, options: AdditiveLogit) -> None:
        super().__init__(setting.family, setting.context, setting.support)
        self.options, self.ordered, self.own_time = options, setting.ordered, setting.own_time
        self.lags, self.shown = setting.lags, tuple(k for k, own in enumerate(setting.own_attributes) if own)
        self.repeats = setting.support == "all" or setting.lags > 0
        self.gaps = Gaps() if setting.times else None
        items = self.family.size
        rank = -(-min(items, RANK) // HEADS) * HEADS if options.rank is None else int(options.rank)
        self.heads = math.gcd(rank, HEADS)
        self.near = 2 * RANKS + 1 if self.ordered else 1
        self.bias = nn.Parameter(torch.zeros(items))
        self.inward = nn.Parameter(torch.zeros(items, rank))  # U
        self.outward = nn.Parameter(torch.zeros(items, rank))  # V
        self.straight = self.heads - self.heads // 2  # so many heads are not bent
        self.hinge = nn.Parameter(torch.zeros(self.heads // 2, rank // self.heads))  # c
        self.power = nn.Parameter(torch.zeros(self.heads))
        self.by_rank = nn.Parameter(torch.zeros(self.heads, self.near + self.lags))
        self.by_time = nn.Parameter(torch.zeros(self.heads, Gaps.size if setting.times else 1))
        self.again = nn.Parameter(torch.zeros(items if self.repeats else 0))
        self.of_attributes = nn.Parameter(torch.zeros(items, len(self.shown)))
        self.register_buffer("centre", torch.zeros(len(self.shown)))
        self.register_buffer("spread", torch.ones(len(self.shown)))
        self.course: tuple[tuple[float, int], ...] = ()

    def chosen_options(self) -> dict[str, Any]:
        return {"course": self.course}

    # ---- what it says

    def raw_outputs(self, batch: Batch, slots: Tensor) -> Tensor:
        return self.raw_logits(batch, slots, torch.ones_like(slots, dtype=torch.bool)).formed().view(*slots.shape, -1)

    def raw_logits(self, batch: Batch, slots: Tensor, chosen: Tensor) -> Logits:
        if batch.item is None:
            raise DataError("AdditiveLogit needs an item column.")
        parts = [self._sums(batch, some) for some in slots.split(self._at_once(batch), 1)]
        rows, near = (torch.cat(several, 1) for several in zip(*parts, strict=True))
        rows, vectors = rows[chosen], self.outward[:]
        if self.shown:
            rows = torch.cat([rows, self._attributes(batch, slots)[chosen]], 1)
            vectors = torch.cat([vectors, self.of_attributes], 1)
        return Logits(rows, vectors, self.bias, (self._come_again(batch.item, near, chosen),) if self.repeats else ())

    def _at_once(self, batch: Batch) -> int:
        """How many targets of each group, so that pairs of targets and rows of the context fit into memory."""
        return max(NUMBERS // max(self.heads * batch.exists.numel(), 1), 1)

    def _sums(self, batch: Batch, slots: Tensor) -> tuple[Tensor, Tensor]:
        """What the heads find (batch, target, rank), and the weights of the first (batch, target, context)."""
        kind = self.classes(batch, slots)  # (batch, target, context)
        assert batch.item is not None
        item = batch.item[:, : kind.shape[-1]].clamp_max(self.family.size - 1)
        weight = self.weights()[:, kind]  # (head, batch, target, context)
        near = weight * weight.sum(-1, keepdim=True).clamp_min(TINY) ** -self.power.sigmoid()[:, None, None, None]
        u = self.inward[item].unflatten(-1, (self.heads, -1)).permute(2, 0, 1, 3)  # (head, batch, context, any)
        straight, bent = (near @ u).tensor_split([self.straight])
        sums = torch.cat([straight, (bent + self.hinge[:, None, None]).relu()])
        return sums.permute(1, 2, 0, 3).flatten(2), near[0]

    def _come_again(self, item: Tensor, near: Tensor, chosen: Tensor) -> Added:
        item = item[:, : near.shape[-1]].clamp_max(self.family.size - 1)
        row, again, where = by_item(item, (near > 0) & chosen[..., None], chosen)
        return Added(row, again, near[where] * self.again[again])

    def weights(self) -> Tensor:
        """(head, class), and 0 for what is not seen."""
        log = (self.by_rank[..., None] + self.by_time[:, None]).flatten(1)
        return torch.cat([log.exp(), log.new_zeros(self.heads, 1)], 1)

    def size(self) -> Tensor:
        """Half the sum of the squares of all vectors, were the largest weight of each head 1: else large weights would
        be a way around the penalty."""
        largest = (self.by_rank.amax(1) + self.by_time.amax(1)).exp() ** (1 - self.power.sigmoid())  # (head,)
        each = [x.unflatten(-1, (self.heads, -1)).square().sum((0, 2)) for x in (self.inward, self.outward)]
        vectors = (largest * (each[0] + each[1])).sum() + largest[0] * self.again.square().sum()
        return (vectors + self.of_attributes.square().sum()) / 2

    def classes(self, batch: Batch, slots: Tensor) -> Tensor:
        """(batch, target, context): the class of each pair, by rank and by time; the number of classes for what is not
        seen."""
        n, width = batch.length, batch.exists.shape[1] if self.lags else batch.length
        assert batch.item is not None
        column, slot = torch.arange(width, device=slots.device), slots[..., None]
        may = (column < slot if self.context == "past" else column != slot) | (column >= n)
        seen = may & (batch.exists & (batch.item < self.family.size))[:, None, :width]
        kind = torch.zeros_like(seen, dtype=torch.long)
        if self.ordered:
            place = torch.arange(n, device=slots.device).expand(len(slots), n)
            place = place if batch.position is None else batch.position[:, :n]
            apart = at(place, slots)[..., None] - place[:, None]
            far = (apart.abs().clamp_min(1).double().log2().ceil().long() + 1).clamp_max(RANKS)
            kind[..., :n] = far * apart.sign() + RANKS
        if self.lags and batch.lag is not None:
            kind[..., n:] = (self.near - 1 + batch.lag[:, None, n:width]).clamp_max(self.by_rank.shape[1] - 1)
        if self.gaps is not None:
            kind = kind * Gaps.size + self._by_time(batch, slots, may & batch.exists[:, None, :width])
        return torch.where(seen, kind, self.by_rank.shape[1] * self.by_time.shape[1])

    def _by_time(self, batch: Batch, slots: Tensor, there: Tensor) -> Tensor:
        """(batch, target, context). Where a target's own time is not seen, from the last row before it."""
        if batch.when is None:
            raise DataError("This model looks at the time between rows: the order column has to be there.")
        assert self.gaps is not None
        when = batch.when[:, None, : there.shape[-1]]
        mine = at(batch.when[:, : batch.length], slots)[..., None]
        if not self.own_time:
            column = torch.arange(there.shape[-1], device=slots.device)
            before = there & ((column < slots[..., None]) | (column >= batch.length))
            last = when.masked_fill(~before, -torch.inf).amax(-1, keepdim=True)
            first = when.masked_fill(~there, torch.inf).amin(-1, keepdim=True)
            mine = torch.where(last.isfinite(), last, first).nan_to_num(0.0, 0.0, 0.0)
        return self.gaps.between(mine, when)

    def _attributes(self, batch: Batch, slots: Tensor) -> Tensor:
        """(batch, target, shown), standardised."""
        if batch.attributes is None:
            raise DataError("This model was fitted with attributes, and the data have none.", option="attributes")
        x = at(batch.attributes[:, : batch.length], slots)[..., list(self.shown)].to(self.bias.dtype)
        return ((x - self.get_buffer("centre")) / self.get_buffer("spread")).clamp(-CLIP, CLIP).nan_to_num(0.0)

    # ---- how it is fitted

    def fit(self, groups: Groups, held: Groups | None = None, tick: Tick | None = None) -> None:
        tell, self.course = tick or (lambda done, of: None), self.options.course or ()
        with torch.random.fork_rng(devices=[]), torch.enable_grad():
            train = groups
            if self.options.course is None:
                train, check = tuning_parts(groups, held, of_items=True)
                self.course = self._search(train, None if check is groups else _some(check), tell)
            if train is not groups or self.options.course is not None:
                self._retrace(groups, tell)

    def _retrace(self, groups: Groups, tick: Tick) -> None:
        """Train as an earlier fit was, from the start."""
        course, done, of = Course(self, groups), 0, sum(steps for _, steps in self.course)
        for penalty, steps in self.course:
            course.turn(penalty, course.mean)
            for left in range(int(steps), 0, -SHORTEST):
                tick(done, of)
                course.advance(min(SHORTEST, left))
                done += min(SHORTEST, left)
        course.take(course.mean)

    def _search(self, train: Groups, check: Groups | None, tick: Tick) -> tuple[tuple[float, int], ...]:
        """What held-out groups like best; the weights are left there. From a usual penalty on, stronger ones go on
        from the best weights so far as long as that helps, then weaker ones. Nothing to choose by: popularity."""
        end, given = time.thread_time() + self.options.seconds, self.options.penalty
        course = Course(self, train)
        best = State(course.mean, -float("inf"))
        if check is not None:
            penalty = course.usual if given is None else float(given)
            best = best._replace(score=course.score(check))
            while not (best := self._phase(course, check, penalty, best, end, tick)).course and given is None:
                penalty *= FACTOR  # noise was learnt first
                if penalty > FACTOR**4 * course.usual or time.thread_time() > end:
                    break
            for factor in (FACTOR, 1 / FACTOR) if given is None and best.course else ():
                while time.thread_time() < end:
                    found = self._phase(course, check, best.course[-1][0] * factor, best, end, tick)
                    if found is best:
                        break
                    best = found
        course.take(best.weights)
        return best.course

    def _phase(self, course: "Course", check: Groups, penalty: float, best: State, end: float, tick: Tick) -> State:
        """Train from the best weights so far until held-out groups are no better off; what was given, if they never
        are."""
        steps, waited, before = 0, 0, best.course
        course.turn(penalty, best.weights)
        while waited < PATIENCE and time.thread_time() < end and steps + sum(n for _, n in before) < MOST:
            left = (end - time.thread_time()) / max(self.options.seconds, 1e-9)
            tick(int(1000 * min(max(1 - left, 0.0), 1.0)), 1000)
            course.advance(course.round)
            steps, waited = steps + course.round, waited + 1
            score = course.score(check)
            if score > best.score + LITTLE:
                best, waited = State([x.clone() for x in course.mean], score, (*before, (penalty, steps))), 0
        return best


@final
class Course:
    """Steps of training, over and over through the groups from the popularity of the items on, and the running mean of
    the weights."""

    def __init__(self, model: AdditiveItems, groups: Groups) -> None:
        self.model, self.groups, self.steps, self.penalty = model, groups, 0, 0.0
        flat = groups.flat()
        self.popular = model.marginal(flat).to(model.bias.dtype)
        self.targets = max(float(model.targets(flat).sum()) * groups.count / max(flat.length, 1), 1.0)
        model.requires_grad_(True)
        self.parameters = list(model.parameters())
        self._start(flat)
        self.mean = [x.detach().clone() for x in self.parameters]
        weighing = [model.by_rank, model.by_time]
        rest = [x for x in self.parameters if all(x is not y for y in weighing)]
        kinds: list[dict[str, Any]] = [{"params": rest}, {"params": weighing, "lr": FAST * RATE}]
        self.optimiser = torch.optim.Adam(kinds, RATE)
        self.tokens = max(min(TOKENS, NUMBERS // model.family.size, groups.count // BATCHES), LEAST)
        self.batches = self._batches()
        self.round = min(max(len(groups.plan(self.tokens)), SHORTEST), LONGEST)

    @property
    def usual(self) -> float:
        """A fifth of the largest singular value that a gradient of noise alone would have, were every context of length
        1: a place to begin from, as weights make contexts smaller."""
        return max((self.targets * float(self.popular.exp().max())) ** 0.5 / 5, 1.0)

    @torch.no_grad()
    def _start(self, flat: Batch) -> None:
        model = self.model
        torch.manual_seed(0)
        for x in self.parameters:
            x.zero_()
        model.bias.copy_(self.popular)
        if model.gaps is not None:
            model.gaps.fit(self.groups.times_between)
        for x in (model.inward, model.outward):
            x.normal_(0, SMALL)
        if model.shown and flat.attributes is not None:
            known = flat.attributes[0][:, list(model.shown)].double()
            spread = known.std(0, correction=0)
            model._set(centre=known.mean(0), spread=torch.where(spread > 0, spread, 1.0))

    def _batches(self) -> Iterator[Batch]:
        epoch = 0
        while True:
            yield from self.groups.batches(self.tokens, shuffle=0, epoch=epoch, context=self.model.context)
            epoch += 1

    def advance(self, steps: int) -> None:
        self.model.train()
        for _ in range(steps):
            batch = next(self.batches)
            room = NUMBERS // max(
                len(batch.exists) * max(self.model.heads * batch.exists.shape[1], self.model.family.size), 1
            )
            scores = self.model.log_prob(batch, max(room, 1))
            weight = (scores.weight * scores.scored).sum()
            if float(weight) > 0:
                self.optimiser.zero_grad(set_to_none=True)
                (self._penalised() / self.targets - (scores.values * scores.weight).sum() / weight).backward()
                self.optimiser.step()
            self.steps += 1
            share = max(1 - KEPT, SOON / (SOON + self.steps))
            torch._foreach_lerp_(self.mean, [x.detach() for x in self.parameters], share)
        self.model.eval()

    def _penalised(self) -> Tensor:
        model = self.model
        weak = (model.bias - self.popular, model.hinge, model.by_rank, model.by_time, model.power)
        total = self.penalty * model.size()
        return total + sum((x.square().sum() / 2 for x in weak), start=self.popular.new_zeros(()))

    def turn(self, penalty: float, weights: list[Tensor]) -> None:
        """Go on from other weights at another penalty."""
        self.penalty = penalty
        self.take(weights)
        self.mean = [x.clone() for x in weights]

    @torch.no_grad()
    def take(self, weights: list[Tensor]) -> None:
        for x, new in zip(self.parameters, weights, strict=True):
            x.copy_(new)

    @torch.no_grad()
    def score(self, groups: Groups) -> float:
        """Mean log-likelihood of the groups' targets at the running mean, in batches that a step might have."""
        own = [x.detach().clone() for x in self.parameters]
        self.take(self.mean)
        total = weight = 0.0
        tokens = max(min(TOKENS, NUMBERS // self.model.family.size), LEAST)
        for batch in groups.batches(tokens, context=self.model.context):
            scores = self.model.log_prob(batch)
            counts = scores.weight * scores.scored
            total, weight = total + float((scores.values * counts).sum()), weight + float(counts.sum())
        self.take(own)
        return total / weight if weight else float("nan")


def _some(groups: Groups) -> Groups:
    """About as many rows as a choice needs, of groups drawn from all of them."""
    share = ENOUGH / max(groups.count, 1)
    if share >= 1:
        return groups
    drawn = np.random.default_rng(0).permutation(len(groups))
    return groups.subset(np.sort(drawn[: max(int(share * len(groups)), 1)]))
