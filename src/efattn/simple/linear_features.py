"""What a row knows of itself and of its context, for the linear model.

    base       f_j = start + a[x_j] + b . (attributes, bent attributes, log exposure):  each row without any context
    residual   e_j = (y_j - mean_j) / sd_j  from that base, at the row's own exposure; of log-normal y that of log y
    level      what the mixed model of a group's residuals says about the row, in units of f
    linear     attributes and clocks, standardised, and the logarithm of the exposure;  bent: their hinges and products
    clocks     where rows are ordered, the row's place in its group; with times, since its first row, and when it was
    extras     shrunk means of residuals, the ratio of what was seen to what was expected, the nearest rows where rows
               are ordered, how many are seen, how far the row's attributes are from the others'
    cells      the residual of every item that the row may see; of one that is missing what the others let expect where
               groups of the fit are complete, else 0
    scatter    how uncertain the level is, how much residuals of the context vary, where the base stands; attributes
    told       the logarithm of the variance that the mixed model tells of the row beside that of its noise alone

A row never sees itself. Each value column has residuals of its own, and of the other rows all of them are seen.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import NamedTuple, final

import torch
from torch import Tensor

from efattn.data import Batch
from efattn.errors import DataError
from efattn.families import Family, PerItem
from efattn.models.scoring import at
from efattn.network import Context
from efattn.network.straight import straight
from efattn.simple import mixed
from efattn.simple.base import Cells

CLIP = 8.0  # standard deviations of a residual, and of an attribute
KNOTS = (0.1, 0.3, 0.5, 0.7, 0.9)  # quantiles at which an attribute may bend
MOST_PRODUCTS = 8  # attributes, up to which their products are looked at
SCATTER = 3
MOVING = 2.0  # standard deviations of an attribute, beyond which dispersions do not go on moving with it
COMPLETE = 0.95  # of all cells of a fit's groups, from which on one that is missing is expected from the others
PIECE = 1024  # rows that are completed at a time


@final
@dataclass(frozen=True)
class Column:
    """A family of one value column, with its place among the outputs and among the columns."""

    family: Family
    outputs: slice
    column: int

    @property
    def counted(self) -> bool:
        """Numbers from a lowest on without a highest, whose ratios say more than differences."""
        low, high = self.family.mean_bounds
        return math.isfinite(low) and math.isinf(high)

    @property
    def mixed_kinds(self) -> bool:
        """Whether items have families of their own; the last output then says which."""
        return isinstance(self.family, PerItem)

    @property
    def free(self) -> int:
        """How many outputs there are after the first that are fitted."""
        return self.family.size - 1 - self.mixed_kinds - self.family.known_outputs

    @property
    def scattered(self) -> bool:
        """Whether these are a dispersion or two, and not a row of cut-points."""
        return 0 < self.free <= 2

    @property
    def measured(self) -> bool:
        """Whether the second output is the logarithm of a precision around the first, from which what a mixed model
        tells of a row's variance can be taken."""
        return self.scattered and self.family.around_first


class Known(NamedTuple):
    """What is known of rows, (..., any): level, told (..., column), scatter (..., column, SCATTER), the rest flat."""

    level: Tensor
    linear: Tensor
    bent: Tensor
    extras: Tensor
    cells: Tensor
    scatter: Tensor
    told: Tensor

    @property
    def by_item(self) -> Tensor:
        """What each item has coefficients of its own for: attributes and level."""
        return torch.cat([self.linear[..., :-1], self.level], -1) if self.level.shape[-1] else self.level


class Base(NamedTuple):
    """A column's rows without context: start (item, size), own (item,), shared (linear, bent), spread (item, any)."""

    start: Tensor
    own: Tensor
    shared: Tensor
    spread: Tensor

    @classmethod
    def at(cls, start: Tensor, free: int) -> "Base":
        """Nothing but the start."""
        return cls(start, start.new_zeros(len(start)), start.new_zeros(0), start.new_zeros(len(start), free))


class Residuals(NamedTuple):
    """Of one column, (batch, context): pearson, their noise in units of f squared, what was expected, whether it is
    seen, and the base's first output."""

    pearson: Tensor
    noise: Tensor
    mean: Tensor
    seen: Tensor
    base: Tensor


@final
@dataclass(frozen=True)
class Sight:
    """How rows are described: sizes, and what was learnt for it, by name."""

    columns: tuple[Column, ...]
    items: int
    lags: int
    has_items: bool
    given: int  # attributes of the table
    clocks: int
    spreading: bool  # whether dispersions depend on attributes
    ordered: bool
    context: Context
    cells: int  # items and lags that have a residual of their own, of each column
    learnt: dict[str, Tensor] = field(default_factory=dict)

    def knowing(self, **more: Tensor) -> "Sight":
        return replace(self, learnt=self.learnt | more)

    # ---- sizes

    @property
    def attributes(self) -> int:
        return self.given + self.clocks

    @property
    def linear_size(self) -> int:
        return self.attributes + 1

    @property
    def bent_size(self) -> int:
        a = self.attributes
        return a * len(KNOTS) + (a * (a - 1) // 2 if self.given <= MOST_PRODUCTS else 0)

    @property
    def extras_size(self) -> int:
        each = sum(2 + 2 * one.counted + 2 * self.ordered for one in self.columns)
        return each + 1 + self.given

    @property
    def scatter_size(self) -> int:
        return SCATTER + self.spreading * self.attributes

    @property
    def within_size(self) -> int:
        return mixed.size(self.attributes, self.clocks)

    def sizes(self) -> dict[str, tuple[int, ...]]:
        """Of what is learnt."""
        a = self.attributes
        sizes: dict[str, tuple[int, ...]] = {"centre": (a + 1,), "scale": (a + 1,), "knots": (a, len(KNOTS))}
        sizes |= {"varies": (a,), "step": (1,), "repeats": (1,), "scaled": (1,), "sloped": (1,), "bends": (a + 1, 2)}
        for c, one in enumerate(self.columns):
            sizes |= {f"start_{c}": (self.items + 1, one.family.size), f"base_own_{c}": (self.items + 1,)}
            sizes |= {f"base_shared_{c}": (self.linear_size + self.bent_size,), f"within_{c}": (self.within_size,)}
            sizes |= {f"base_spread_{c}": (self.items + 1, one.free), f"firm_{c}": (4,)}
            sizes |= {f"together_{c}": (self.cells, self.cells)}
        return sizes

    # ---- attributes

    def known(self, batch: Batch) -> Tensor:
        """(batch, context, attributes + 1) as they stand in the table; the last is log exposure, 0 where unknown."""
        shape = batch.exists.shape
        log = torch.zeros(*shape, 1, dtype=torch.float64)
        log[:, : batch.length, 0] = log_exposure(batch)
        if self.given and batch.attributes is None:
            raise DataError("This model was fitted with attributes, and the data have none.", option="attributes")
        given = [batch.attributes.double()] if self.given and batch.attributes is not None else []
        return torch.cat([*given, self._clocks(batch), log], -1)

    def _clocks(self, batch: Batch) -> Tensor:
        """(batch, context, clocks)"""
        place = torch.arange(batch.exists.shape[1], dtype=torch.float64).expand(batch.exists.shape)
        several = [place]
        if self.clocks > 1:
            if batch.when is None:
                raise DataError("This model was fitted with times, and the data have none.", option="order")
            several += [batch.when - batch.when[:, :1], batch.when]
        return torch.stack(several, -1)[..., : self.clocks]

    def basis(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """linear (batch, context, attributes + 1), bent (batch, context, bent)."""
        x = straight(self.known(batch), self.learnt["bends"])
        raw = (x - self.learnt["centre"]) / self.learnt["scale"]
        x = raw.nan_to_num(0.0, CLIP, -CLIP).clamp(-CLIP, CLIP)
        a = self.attributes
        if not a:
            return x, x.new_zeros(*x.shape[:2], 0)
        hinges = (x[..., :a, None] - self.learnt["knots"]).clamp_min(0.0).flatten(-2)
        if self.given > MOST_PRODUCTS:
            return x, hinges
        first, second = torch.triu_indices(a, a, 1)
        return x, torch.cat([hinges, (x[..., first] * x[..., second]).clamp(-CLIP, CLIP)], -1)

    # ---- residuals

    def base_of(self, number: int) -> Base:
        names = ("start", "base_own", "base_shared", "base_spread")
        return Base(*(self.learnt[f"{name}_{number}"] for name in names))

    def base(self, number: int, item: Tensor, basis: Tensor, log: Tensor) -> Tensor:
        """f (..., size) of rows without any context."""
        one, (start, own, shared, spread) = self.columns[number], self.base_of(number)
        from_here = start[item]
        first, rest = from_here[..., 0] + own[item] + basis @ shared, from_here[..., 1 : 1 + one.free] + spread[item]
        f = torch.cat([first[..., None], rest, from_here[..., 1 + one.free :]], -1)
        if one.family.exposures:
            f = f.clone()
            f[..., list(one.family.exposures)] += log[..., None]
        return f

    def residuals(self, batch: Batch, cells: Cells, basis: Tensor) -> list[Residuals]:
        log = torch.zeros(batch.exists.shape, dtype=torch.float64)
        log[:, : batch.length] = log_exposure(batch)
        found = []
        for number, one in enumerate(self.columns):
            f = self.base(number, cells.item, basis, log)
            if batch.noise is not None:
                f = one.family.with_noise(f, batch.noise.double() ** 2)
            mean, variance, slope = moments(one.family, f)
            seen = cells.seen_in(batch, one.column)
            if batch.exposure is not None:
                seen = seen.clone()
                seen[:, batch.length :] = False  # of earlier groups the exposure is not known
            y = torch.zeros_like(mean) if batch.value is None else batch.value[..., one.column].double()
            rest = y - mean
            bent = one.family.on_its_scale(f, y) if bool(self.learnt["scaled"]) else None  # 0 in older files
            if bent is not None:
                (rest, variance), slope = bent, torch.ones_like(slope)
            pearson = torch.where(seen, (rest / variance.clamp_min(1e-12).sqrt()).clamp(-CLIP, CLIP), 0.0)
            noise = (variance / slope**2).nan_to_num(1.0).clamp(1e-8, 1e8)
            found.append(Residuals(pearson, noise, mean, seen, f[..., 0] - self.learnt[f"start_{number}"][-1, 0]))
        return found

    def within(self, batch: Batch, linear: Tensor, number: int, one: Residuals) -> tuple[mixed.Rows, mixed.Seen]:
        """What the mixed model needs of a batch's current rows; residuals in units of f, or of standard deviations
        where items have families of their own."""
        n = batch.length
        when = torch.arange(n, dtype=torch.float64).expand(len(batch.exists), -1)
        if batch.when is not None:
            when = batch.when[:, :n] / self.learnt["step"].clamp_min(1e-12)
        repeats = self.has_items and bool(self.learnt["repeats"])
        item = batch.item[:, :n] if repeats and batch.item is not None else None
        x = linear[:, :n, :-1] * self.learnt["varies"]
        rows = mixed.Rows(batch.exists[:, :n], item, when if self.ordered else None, x, self.clocks)
        noise = torch.ones_like(one.noise[:, :n]) if self.columns[number].mixed_kinds else one.noise[:, :n]
        return rows, mixed.Seen(one.pearson[:, :n] * noise.sqrt(), noise, one.seen[:, :n])

    # ---- what a row knows

    def describe(self, batch: Batch, slots: Tensor | None = None) -> tuple[Tensor, Known]:
        """The item of each current row (batch, length), `items` if unknown; and what it knows (batch, length, ...).
        slots: (batch, target), of these alone."""
        cells, n = Cells.of(batch, self.items, self.lags, self.has_items), batch.length
        linear, bent = self.basis(batch)
        all_rest = self.residuals(batch, cells, torch.cat([linear, bent], -1))
        may = cells.allowed(self.context)
        levels, extras, by_cell, scatter, told = [], list[Tensor](), [], [], []
        for number, (one, rest) in enumerate(zip(self.columns, all_rest, strict=True)):
            rows, mine = self.within(batch, linear, number, rest)
            level, variance = mixed.predict(self.learnt[f"within_{number}"], rows, mine, self.context)
            level = level * (rest.noise[:, :n] / mine.noise).sqrt()
            levels.append(level.clamp(-CLIP * 2, CLIP * 2))
            seen = (may & rest.seen[:, None]).double()  # (batch, target, context)
            count, total = seen.sum(-1), (seen @ rest.pearson[..., None])[..., 0]
            extras += [total / (count + 1), total / (count + 5)]
            extras += self._ratios(number, seen, batch, rest) if one.counted else []
            extras += self._neighbours(rest, n) if self.ordered else []
            if number == 0:
                extras.append((count + 1).log() - 1)
                extras += self._deviations(seen[..., :n], linear[:, :n, : self.given])
            by_cell.append(self._by_cell(cells, seen, rest.pearson, self.learnt.get(f"together_{number}"), slots))
            uncertain, alone = variance / mine.noise, self.learnt[f"within_{number}"][mixed.NOISE].exp()
            moving = linear[:, :n, : self.attributes * self.spreading].clamp(-MOVING, MOVING)
            scatter.append(torch.cat([_scatter(uncertain, seen, rest, count, total), moving], -1))
            told.append((1 + uncertain / alone).clamp(1.0, 1e8).log())
        context = (torch.stack(extras, -1), torch.cat(by_cell, -1), torch.stack(scatter, -2), torch.stack(told, -1))
        known = Known(torch.stack(levels, -1), linear[:, :n], bent[:, :n], *context)
        if slots is None:
            return cells.item[:, :n], known
        picked = (x if x is known.cells else at(x, slots) for x in known)
        return at(cells.item[:, :n], slots), Known(*picked)

    def _ratios(self, number: int, seen: Tensor, batch: Batch, rest: Residuals) -> list[Tensor]:
        """log (seen + k) / (expected + k): the effect of a group on a rate, drawn to none as a gamma prior would."""
        one = self.columns[number]
        low = one.family.mean_bounds[0]
        assert batch.value is not None
        y = torch.where(rest.seen, batch.value[..., one.column].double() - low, 0.0)
        mean = torch.where(rest.seen, rest.mean - low, 0.0)
        unit = 1.0 if one.family.discrete else float(one.family.mean(self.learnt[f"start_{number}"]).mean()) - low
        had, due = (seen @ y[..., None])[..., 0], (seen @ mean[..., None])[..., 0]
        return [((had + k * unit) / (due + k * unit)).clamp(1e-6, 1e6).log() for k in (1.0, 5.0)]

    def _neighbours(self, rest: Residuals, n: int) -> list[Tensor]:
        """The residual of the row before, and of the one after; in `past` by how much it is more than that of the one
        before it, where both are known."""
        here, seen = rest.pearson[:, :n], rest.seen[:, :n]
        zero = torch.zeros_like(here[:, :1])
        before = torch.cat([zero, here[:, :-1]], 1)
        if self.context == "others":
            return [before, torch.cat([here[:, 1:], zero], 1)]
        if not bool(self.learnt["sloped"]):  # older files
            return [before, torch.cat([zero, before[:, :-1]], 1)]
        rise = torch.where(seen[:, 1:] & seen[:, :-1], here[:, 1:] - here[:, :-1], 0.0)
        return [before, torch.cat([zero, zero, rise[:, :-1]], 1)[:, :n]]

    def _deviations(self, seen: Tensor, x: Tensor) -> list[Tensor]:
        """How far attributes are from those of the rows that are seen."""
        count = seen.sum(-1, keepdim=True)
        away = torch.where(count > 0, x - seen @ x / count.clamp_min(1), 0.0) * self.learnt["varies"][: self.given]
        return list(away.unbind(-1))

    def _by_cell(
        self, cells: Cells, seen: Tensor, pearson: Tensor, together: Tensor | None, slots: Tensor | None
    ) -> Tensor:
        """together: how cells vary together, where fits are to complete groups; what is missing is then expected from
        what is not, as else an average would stand there."""
        where = self._where(cells)
        own = where[:, : cells.length]
        seen, own = (seen, own) if slots is None else (at(seen, slots), at(own, slots))
        if not self.cells:
            return pearson.new_zeros(*seen.shape[:2], 0)
        number = seen @ where
        x = seen @ (where * pearson[..., None]) / number.clamp_min(1)
        if together is None or not bool(together.any()):
            return x
        return completed(x, number > 0, own == 0, together)

    def _where(self, cells: Cells) -> Tensor:
        """(batch, context, cell): 1 at the cell that a position is of."""
        return torch.nn.functional.one_hot(cells.index.clamp_max(self.cells), self.cells + 1)[
            ..., : self.cells
        ].double()

    def together(self, batches: Iterable[Batch]) -> list[Tensor]:
        """For each column (cell, cell): second moments of residuals, drawn to those of cells on their own as groups are
        few; 0 where groups are not complete, or later rows are not seen."""
        rows: list[list[Tensor]] = [[] for _ in self.columns]
        there = list[Tensor]()
        for batch in batches if self.cells and self.context == "others" else ():
            cells = Cells.of(batch, self.items, self.lags, self.has_items)
            where = self._where(cells)
            for mine, rest in zip(rows, self.residuals(batch, cells, torch.cat(self.basis(batch), -1)), strict=True):
                number = (where * rest.seen[..., None].double()).sum(1)
                mine.append((where * rest.pearson[..., None]).sum(1) / number.clamp_min(1))
                there.append(number == 1)
        if not there or float(torch.cat(there).double().mean()) < COMPLETE:
            return [torch.zeros(self.cells, self.cells, dtype=torch.float64) for _ in rows]
        return [_second_moments(torch.cat(mine)) for mine in rows]


def _second_moments(x: Tensor) -> Tensor:
    moments = x.mT @ x / max(len(x), 1)
    share = len(x) / (len(x) + x.shape[1])
    return share * moments + (1 - share) * torch.diag(moments.diagonal()) + 1e-6 * torch.eye(x.shape[1]).double()


def completed(x: Tensor, seen: Tensor, wanted: Tensor, together: Tensor) -> Tensor:
    """x (..., cell) with the expectation of what is wanted and not seen, given what is seen."""
    gaps = ~seen & wanted
    some = gaps.any(-1)
    if not bool(some.any()):
        return x
    filled, here = x.clone(), some.nonzero(as_tuple=True)
    known, parts = x[here], list[Tensor]()
    for values, there in zip(known.split(PIECE), seen[here].split(PIECE), strict=True):
        masks, which = there.unique(dim=0, return_inverse=True)  # many rows see the same cells: factored once
        mask, mine = masks.double(), there.double()
        inside = mask[..., None] * together * mask[..., None, :] + torch.diag_embed(1 - mask)
        lu, pivots = torch.linalg.lu_factor(inside)
        solved = torch.linalg.lu_solve(lu[which], pivots[which], (values * mine)[..., None])[..., 0]
        parts.append((solved * mine) @ together)
    filled[here] = torch.where(gaps[here], torch.cat(parts), known)
    return filled


def _scatter(uncertain: Tensor, seen: Tensor, rest: Residuals, count: Tensor, total: Tensor) -> Tensor:
    """(batch, target, SCATTER)"""
    squares = (seen @ (rest.pearson**2)[..., None])[..., 0] - total**2 / count.clamp_min(1)
    varied = ((squares.clamp_min(0.0) + 1) / ((count - 1).clamp_min(0.0) + 1)).log()
    base = rest.base[:, : count.shape[1]].clamp(-CLIP, CLIP)
    return torch.stack([(1 + uncertain).clamp(1.0, 1e3).log(), varied, base], -1)


def moments(family: Family, f: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Mean, variance, and how the mean moves with the first output."""
    with torch.enable_grad():
        first = f[..., 0].detach().requires_grad_()
        mean = family.mean(torch.cat([first[..., None], f[..., 1:].detach()], -1))
        (slope,) = torch.autograd.grad(mean.sum(), first) if first.numel() else (torch.ones_like(first),)
    slope = torch.where(slope < 0, slope.clamp_max(-1e-8), slope.clamp_min(1e-8))
    return mean.detach().double(), family.variance(f).detach().double(), slope.double()


def error_variance(batch: Batch) -> Tensor:
    """(batch, length): of measurements, 0 where nothing is known of it."""
    if batch.noise is None:
        return torch.zeros(batch.exists[:, : batch.length].shape, dtype=torch.float64)
    return batch.noise[:, : batch.length].double() ** 2


def log_exposure(batch: Batch) -> Tensor:
    """(batch, length): 0 where there is none."""
    if batch.exposure is None:
        return torch.zeros(batch.exists[:, : batch.length].shape, dtype=torch.float64)
    return batch.exposure[:, : batch.length].double().log()
