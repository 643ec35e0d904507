"""What every model of a target shares: which positions are scored, on which support, and their log-probabilities.

    f (batch, target, size) from `outputs`  ->  family  ->  log p(target_i | context of i)

Unknown items and missing values are never scored. Averages are per target.
"""

from abc import ABC, abstractmethod
from typing import ClassVar, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from efattn.data.batch import Batch
from efattn.errors import DataError, option
from efattn.families import Categorical, Family, PerItem, Product
from efattn.models.holes import Holes
from efattn.models.support import ruled_out, taken
from efattn.network import Candidates, Context, ItemVectors, Logits, sampled
from efattn.network.constants import constant

ItemSupport = Literal["all", "distinct"]
SMALL = 2**20  # so few numbers, of targets by items, are formed whole: as long as that is faster
ROOM = 2**26  # the same on a GPU, which would have to wait where only what is scored is formed


class Scores(NamedTuple):
    """Log-probabilities (batch, target), which of them count, and how much each counts."""

    values: Tensor
    scored: Tensor
    weight: Tensor
    whole: Tensor | None = None  # the weight of all targets, where these were drawn from them

    def weights(self) -> Tensor:
        """Of all targets together."""
        return (self.weight * self.scored).sum() if self.whole is None else self.whole

    def mean(self) -> Tensor:
        weight = self.weight * self.scored
        return (self.values * weight).sum() / weight.sum().clamp_min(torch.finfo(weight.dtype).tiny)


class Conditionals(nn.Module, ABC):
    """Conditionals of items (family Categorical) or of values (any other; several columns are a Product).

    context: "past", "others" or "any". support="distinct": items of a group never repeat, and an item among the others
    of its group has probability zero. item_start: where the outputs of each item start, of a family per item. holes:
    what training hides of a batch. candidates: what draws items that stand for all others, in training only.
    """

    holes: Holes | None = None
    candidates: Candidates | None = None
    starts_by_item: ClassVar[bool] = True  # whether outputs are added to `item_start`, or know the items by themselves

    def __init__(self, family: Family, context: Context, support: ItemSupport = "all") -> None:
        super().__init__()
        self.of_items = isinstance(family, Categorical)
        self.family = family if isinstance(family, Categorical | Product) else Product((family,))
        self.context, self.support = context, support
        inside = () if isinstance(self.family, Categorical) else self.family.support.inside
        self.register_buffer("inside", torch.tensor(inside))
        rows = max((len(part.table) for _, _, part in self.kinds), default=0) if self.starts_by_item else 0
        self.item_start = nn.Parameter(torch.zeros(rows, self.family.size)) if rows else None

    @property
    def kinds(self) -> tuple[tuple[int, int, PerItem], ...]:
        """The parts of a family that depend on the item: where their outputs begin, which output says the kind."""
        return self.family.kinds if isinstance(self.family, Product) else ()

    @abstractmethod
    def raw_outputs(self, batch: Batch, slots: Tensor) -> Tensor:
        """What the network gives, (batch, target, size), for the current positions in the columns `slots`."""

    @abstractmethod
    def start(self, batch: Batch) -> None:
        """Take start values from the data, so that training begins at the marginal fit."""

    def raw_logits(self, batch: Batch, slots: Tensor, chosen: Tensor) -> Logits | None:
        """Of items, the same of the chosen targets (batch, target) alone, before it is formed; None where it is only
        known whole."""
        return None

    def logits(self, batch: Batch, slots: Tensor, chosen: Tensor) -> Logits | None:
        """The same with the support."""
        found = self.raw_logits(batch, slots, chosen)
        if found is None or self.support != "distinct":
            return found
        out = ruled_out(batch, slots, chosen, self.family.size, self.context, found.vectors)
        return found._replace(added=(*found.added, out))

    def draw_candidates(self, candidates: Candidates | None) -> None:
        """From now on, score training items beside some of the others; None for all of them."""
        self.candidates = candidates
        for part in self.modules():
            if isinstance(part, ItemVectors):
                part.sparse = candidates is not None

    @property
    def sharpness(self) -> Tensor | None:
        """How sure of itself it is, where that is chosen by held-out groups."""
        return None

    def outputs(self, batch: Batch, slots: Tensor | None = None) -> Tensor:
        """What the family turns into natural parameters, support, exposure and noise included; by default of all."""
        slots = every(batch) if slots is None else slots
        f = self.raw_outputs(batch, slots)
        if self.kinds:
            f = self.with_kinds(f, at(_need(batch.item, "item")[:, : batch.length], slots))
        if self.support == "distinct" and self.of_items:
            return f.masked_fill(taken(batch, slots, self.family.size, self.context), -torch.inf)
        if self.of_items:
            return f
        if batch.noise is not None:
            f = self.family.with_noise(f, at(batch.noise[:, : batch.length], slots) ** 2)
        return f if batch.exposure is None else self._exposed(f, at(batch.exposure, slots))

    def log_prob(self, batch: Batch, draws: int | None = None) -> Scores:
        """draws: score so many targets of each group, drawn at random and weighted so that the objective keeps its
        mean."""
        scored = self.targets(batch)
        weight = torch.ones_like(scored, dtype=torch.get_default_dtype()) if batch.weight is None else batch.weight
        slots = whole = None
        if draws is not None and draws < batch.length:
            whole = (weight * scored).sum()
            slots, drawn = draw(scored, draws)
            scored, weight = at(scored, slots), at(weight, slots) * drawn
        values = self._item_log_prob if self.of_items else self._value_log_prob
        return Scores(values(batch, slots, scored), scored, weight, whole)

    def targets(self, batch: Batch) -> Tensor:
        """(batch, length): the positions that are scored."""
        if self.of_items:
            return batch.target & (_need(batch.item, "item")[:, : batch.length] < self.family.size)
        return batch.target & self._parts_observed(batch, None).any(-1)

    def with_kinds(self, f: Tensor, item: Tensor) -> Tensor:
        """f (..., size) of these items (...,), each from where its item starts, with its kind where that belongs."""
        if self.item_start is not None:
            f = f + F.embedding(item.clamp_max(len(self.item_start) - 1), self.item_start)
        for _, last, part in self.kinds:
            table = constant(tuple(part.table.tolist()), f.dtype, f.device)
            kind = table[item.clamp_max(len(table) - 1)].unsqueeze(-1)
            f = torch.cat([f[..., :last], kind, f[..., last + 1 :]], -1)
        return f

    def item_marginals(self, batch: Batch) -> Tensor:
        """(items + 1, size), float64: of each item the f that fits its targets best without any context, drawn to that
        of its kind. Of a family that is the same for all items, the one f of all of them."""
        scored, item = self.targets(batch), _need(batch.item, "item")[:, : batch.length]
        y = _need(batch.value, "value").masked_fill(~_need(batch.observed, "value"), torch.nan)[:, : batch.length]
        weight = None if batch.weight is None else batch.weight[scored].double()
        assert isinstance(self.family, Product)
        rows = max(len(part.table) for _, _, part in self.kinds)
        f = self.family.start(y[scored], weight).expand(rows, -1).clone()
        for part, outputs, columns in self.family.slices():
            if isinstance(part, PerItem):
                f[: len(part.table), outputs] = part.starts(y[scored][:, columns.start], item[scored], weight)
        return f

    def marginal(self, batch: Batch) -> Tensor:
        """The one f (size,) that fits the batch's targets best without any context, beyond `item_start`, which is
        set."""
        scored = self.targets(batch)
        weight = None if batch.weight is None else batch.weight[scored]
        if self.of_items:
            return self.family.start(_need(batch.item, "item")[:, : batch.length][scored], weight)
        y = _need(batch.value, "value").masked_fill(~_need(batch.observed, "value"), torch.nan)
        rows = y[:, : batch.length][scored]
        if batch.exposure is None:
            f = self.family.start(rows, weight)
        else:
            f = self.family.exposed_start(rows, batch.exposure[:, : batch.length][scored], weight)
        if self.item_start is not None:
            self.item_start.data.copy_(self.item_marginals(batch))
            f = f - self.family.start(rows, weight)
        if batch.noise is not None:
            error = batch.noise[:, : batch.length][scored].double() ** 2
            f = self.family.with_noise(f, -_mean(error, weight))
        return f

    def _item_log_prob(self, batch: Batch, slots: Tensor | None, scored: Tensor) -> Tensor:
        if slots is None and not self.training and scored.numel() and scored.device.type == "cpu":
            few = max(int(scored.sum(1).max()), 1)  # elsewhere, to ask would be to wait
            if 2 * few <= batch.length:
                return self._few_log_prob(batch, scored, few)
        item = _need(batch.item, "item")[:, : batch.length]
        item = torch.where(scored, item if slots is None else at(item, slots), 0)
        drawn = self.candidates.draw() if self.training and self.candidates is not None else None
        whole = SMALL if scored.device.type == "cpu" else ROOM
        if drawn is not None or scored.numel() * self.family.size > whole:
            logits = self.logits(batch, every(batch) if slots is None else slots, scored)
            if logits is not None:
                mine = item[scored]
                found = logits.log_prob(mine) if drawn is None else sampled.log_prob(logits, mine, drawn)
                return found.new_zeros(scored.shape).masked_scatter(scored, found)
        f = self.outputs(batch, slots)
        if self.support == "distinct":  # rows that are not scored may have ruled out the item that stands in for theirs
            f = torch.where(scored[..., None], f, 0.0)
        return torch.where(scored, self.family.log_prob(f, item), 0.0)

    def _few_log_prob(self, batch: Batch, scored: Tensor, few: int) -> Tensor:
        """The same where each group has so few targets: most of a batch would be computed for nothing."""
        slots = torch.argsort(~scored, stable=True, dim=1)[:, :few]
        found = self._item_log_prob(batch, slots, at(scored, slots))
        return found.new_zeros(scored.shape).scatter(1, slots, found)

    def _value_log_prob(self, batch: Batch, slots: Tensor | None, scored: Tensor) -> Tensor:
        """The sum over the parts whose columns are there."""
        y, seen = (_need(x, "value")[:, : batch.length] for x in (batch.value, batch.observed))
        y = y.masked_fill(~seen, torch.nan)
        y = y if slots is None else at(y, slots)
        parts = self._parts_observed(batch, slots) & scored[..., None]
        there = self._columns_of(parts)
        y = torch.where(there, y, self.get_buffer("inside").to(y.dtype))
        values = self.family.log_probs(self.outputs(batch, slots), y) if isinstance(self.family, Product) else y
        return torch.where(parts, values, 0.0).sum(-1)

    def _columns_of(self, parts: Tensor) -> Tensor:
        """(..., parts) -> (..., columns)"""
        sizes = [part.columns for part in self.family.parts] if isinstance(self.family, Product) else []
        if all(size == 1 for size in sizes):
            return parts
        return torch.cat([parts[..., k : k + 1].expand(*parts.shape[:-1], size) for k, size in enumerate(sizes)], -1)

    def _parts_observed(self, batch: Batch, slots: Tensor | None) -> Tensor:
        """(batch, target, parts): whose columns are there, all or as many as it takes, and whose kind is known."""
        observed = _need(batch.observed, "value")[:, : batch.length]
        there = []
        for part, _, columns in self.family.slices() if isinstance(self.family, Product) else ():
            whole = observed[..., columns].any(-1) if part.partial else observed[..., columns].all(-1)
            if isinstance(part, PerItem):
                whole = whole & (_need(batch.item, "item")[:, : batch.length] < len(part.kinds))
            there.append(whole)
        both = torch.stack(there, -1)
        return both if slots is None else at(both, slots)

    def _exposed(self, f: Tensor, exposure: Tensor) -> Tensor:
        if not self.family.exposures:
            raise DataError(
                f"{self.family!r} takes no exposure: Poisson with the log link, NegativeBinomial and Successes do."
            )
        index = constant(self.family.exposures, torch.long, f.device)
        return f.index_add(-1, index, exposure.log().to(f.dtype)[..., None].expand(*f.shape[:-1], len(index)))


def _mean(x: Tensor, weight: Tensor | None) -> Tensor:
    return x.mean() if weight is None else (x * weight).sum() / weight.sum()


def every(batch: Batch) -> Tensor:
    """(batch, length): the columns of all current positions."""
    return torch.arange(batch.length, device=batch.exists.device).expand(len(batch.exists), -1)


def at(x: Tensor, slots: Tensor) -> Tensor:
    """(batch, length, ...) -> (batch, target, ...)"""
    return x.gather(1, slots.reshape(*slots.shape, *[1] * (x.dim() - 2)).expand(*slots.shape, *x.shape[2:]))


def draw(scored: Tensor, draws: int) -> tuple[Tensor, Tensor]:
    """Columns (batch, draws) drawn without replacement from the scored ones, and how many each stands for."""
    slots = torch.rand(scored.shape, device=scored.device).masked_fill(~scored, -1.0).topk(draws, 1).indices
    number = scored.sum(1, keepdim=True)
    return slots, (number / number.clamp(1, draws)).expand(slots.shape)


def _need(x: Tensor | None, role: str) -> Tensor:
    if x is None:
        raise DataError(f"This model has a term for the {role} column, and the data have none: pass {option(role)}.")
    return x
