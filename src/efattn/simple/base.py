"""What simple models share. Each is written once, and is both a peer of EFA and a companion of its networks.

    recipe (options only)  --build(setting)-->  model  --fit(groups, held)-->  f of each row  ->  family  ->  log p

A recipe is a value: it can be printed, compared and kept in a file. What it builds is a model like any other
(`Conditionals`), scored on the same rows under the same families; most are fitted in closed form or by search. All of
it is in double precision. A limit of seconds counts those that the thread worked (time.thread_time), so that a busy
machine finds the same.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Literal, final

import numpy as np
import torch
from torch import Tensor

from efattn.data import Batch, Groups
from efattn.data.positions import Positions
from efattn.data.standardiser import item_units
from efattn.errors import DataError, named, option
from efattn.families import Family, Product
from efattn.models.scoring import Conditionals, ItemSupport, at
from efattn.network import Context
from efattn.simple.levels import Levels, Predicted, learnt

TOKENS = 16_384
FLOOR = 0.01  # the smallest share of an item's own mean above the lowest possible: a guard, not tuned
Tick = Callable[[int, int], object]  # done, of so many


@final
@dataclass(frozen=True)
class Setting:
    """What a model is built for. family: of the term; items: how many, 0 without an item column; lags: how many earlier
    groups are seen; attributes: how many columns of them; times: whether rows have times; own_time: whether a target's
    own time is seen, as what it is away from the times of the others; own_attributes: by column of attributes, whether
    a row whose item is the target shows it of itself, empty where an item term is not to look at attributes at all.
    Rows of the context show all, and rows whose value is the target too. positions: which groups have in common, where
    there are no items."""

    family: Family
    items: int
    context: Context = "others"
    support: ItemSupport = "all"
    lags: int = 0
    attributes: int = 0
    ordered: bool = False
    times: bool = False
    own_time: bool = True
    own_attributes: tuple[bool, ...] = ()
    positions: Positions | None = None


class Recipe(ABC):
    """The options of a simple model, as a frozen dataclass. models: which term it is for; exposure, noise, times:
    whether it can use them; by_size: whether what it chooses depends on how many groups it is fitted to."""

    models: ClassVar[Literal["item", "value"]]
    exposure: ClassVar[bool] = False
    noise: ClassVar[bool] = False
    times: ClassVar[bool] = False
    by_size: ClassVar[bool] = False

    @abstractmethod
    def build(self, setting: Setting) -> Conditionals:
        """Not fitted yet; a DataError where it cannot be."""

    @property
    @final
    def label(self) -> str:
        """What it is called beside others."""
        told = {"logs": " of logs", "by_position": " by position"}
        return type(self).__name__ + "".join(words for name, words in told.items() if getattr(self, name, False))

    def taking_over(self, others: Sequence[Conditionals]) -> "Recipe":
        """The same with what it need not look for, as models that were fitted to the same groups have found it."""
        return self

    @final
    def to_json(self) -> dict[str, Any]:
        options = {one.name: getattr(self, one.name) for one in fields(self)}  # type: ignore[arg-type]
        return {"kind": type(self).__name__, "settings": options}

    @final
    def check_number(self, name: str, low: float, high: float = float("inf")) -> None:
        """A number in this range, or None to have it chosen."""
        value = getattr(self, name)
        if value is not None and (isinstance(value, bool | str) or not low <= value <= high):
            limits = f">= {low:g}" if high == float("inf") else f"from {low:g} to {high:g}"
            raise DataError(
                f"{type(self).__name__}: {name} is a number {limits}, or None; found {value!r}.", option=name
            )


class DirectlyFitted(Conditionals):
    """A model that `fit` makes ready, and that gradients leave alone."""

    starts_by_item = False

    @abstractmethod
    def fit(self, groups: Groups, held: Groups | None = None, tick: Tick | None = None) -> None:
        """held: groups to choose the amount of regularisation by; without them a part of `groups` is set aside for
        it, and the fit then uses all of them. tick: told how far it is."""

    def chosen_options(self) -> dict[str, Any]:
        """Options of the recipe as the fit has chosen them."""
        return {}

    @final
    def start(self, batch: Batch) -> None:
        """`fit` takes all it needs."""

    def as_scored(self, groups: Groups) -> Groups:
        """The groups as the family has them, where a fit sees them in other units."""
        return groups

    @final
    @torch.no_grad()
    def score(self, groups: Groups) -> float:
        """Mean log-likelihood of the groups' targets."""
        total = weight = 0.0
        groups = self.as_scored(groups)
        for batch in groups.batches(max(256, min(TOKENS, 2**26 // self.family.size)), context=self.context):
            scores = self.log_prob(batch)
            counts = scores.weight * scores.scored
            total += float((scores.values.double() * counts).sum())
            weight += float(counts.sum())
        return total / weight if weight else float("nan")

    @final
    def _set(self, **arrays: Tensor | np.ndarray | float) -> None:
        for name, x in arrays.items():
            buffer = self.get_buffer(name)
            buffer.copy_(torch.as_tensor(x, dtype=buffer.dtype).reshape(buffer.shape))


class MeanAndVariance(DirectlyFitted):
    """Of one value column, which the family turns into its own outputs. Every one has a buffer `mean` (items + 1,) of
    the items' own means, the last overall, and `marginal_fit`, the family's fit without any context."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting.family, setting.context)
        if not isinstance(self.family, Product) or len(self.family.parts) != 1 or self.family.columns != 1:
            raise DataError(
                "A simple model has one value column; fit one for each, or EFA, which takes several.", option="value"
            )
        self.part, self.fitting = self.family.parts[0], False
        if not self.part.scalar:
            wanted = f"choose a family of one column, such as {option('family', 'gaussian')}"
            raise DataError(
                f"A simple model has one value column, and {self.part!r} is for several: {wanted}.", option="family"
            )
        self.items, self.lags, self.has_items = max(setting.items, 1), setting.lags, setting.items > 0
        self.cells_in_all = self.items * (self.lags + 1)
        self.register_buffer("mean", torch.zeros(self.items + 1, dtype=torch.float64))
        rows = (max(setting.items, 1) + 1,) if self.kinds else ()
        self.register_buffer("marginal_fit", torch.zeros(*rows, self.part.size, dtype=torch.float64))
        for name, x in Levels.empty(self.part.cut_points, self.items)._asdict().items() if self.part.cut_points else ():
            self.register_buffer(f"levels_{name}", x)
        if self.kinds:  # items of different kinds are comparable in units of their own
            self.register_buffer("units", torch.ones(2, *rows, dtype=torch.float64))

    @abstractmethod
    def fit_moments(self, groups: Groups, held: Groups | None, tick: Tick) -> None:
        """As `fit`."""

    @abstractmethod
    def moments(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Mean and variance (batch, length) of each current row given its context, never itself."""

    @final
    def fit(self, groups: Groups, held: Groups | None = None, tick: Tick | None = None) -> None:
        value, target = groups.value, groups.target
        assert value is not None
        kept = value[:, 0] if target is None else value[target, 0]
        if np.isnan(kept).all():
            raise DataError(
                "A simple model needs values to be fitted to, and no training row that is a target has one. Check "
                f"{named('target')} and what is missing.",
                option="target",
            )
        self._set(marginal_fit=self.part.start(torch.tensor(kept)) if not self.kinds else self._by_item(groups))
        if self.part.cut_points:
            self._take_levels(Levels.empty(self.part.cut_points, self.items))
        if self.kinds and groups.item is not None:
            seen = ~np.isnan(value[:, 0])
            self._set(units=np.stack(item_units(value[seen, 0], groups.item[seen], self.items)))
            groups, held = self._in_units(groups), None if held is None else self._in_units(held)
            self.fitting = True
        try:
            self.fit_moments(groups, held, tick or (lambda done, of: None))
        finally:
            self.fitting = False

    @final
    def raw_outputs(self, batch: Batch, slots: Tensor) -> Tensor:
        start = self.get_buffer("marginal_fit")
        if not self.kinds:
            mean, variance = self.moments(batch)
            if self.part.cut_points and self.levels.usable:
                item = self.cells(batch).item[:, : batch.length]
                return at(self.levels.outputs(self.part, mean, variance, item), slots)
            return at(self.part.from_moments(self.floored(mean, batch), variance, start), slots)
        item = self.cells(batch).item
        centre, scale = self.get_buffer("units")[:, item]
        assert batch.value is not None
        own = (batch.value.double() - centre[..., None]) / scale[..., None]
        mean, variance = self.moments(replace(batch, value=own))
        here = slice(0, batch.length)
        mean, variance = mean * scale[:, here] + centre[:, here], variance * scale[:, here] ** 2
        return at(self.part.from_moments(mean, variance, start[item[:, here]]), slots)

    @property
    @final
    def levels(self) -> Levels:
        return Levels(*(self.get_buffer(f"levels_{name}") for name in Levels._fields))

    @final
    def learn_levels(self, rows: Predicted) -> None:
        """How ordered levels follow from moments. rows: of groups for which others like this one were fitted."""
        self._take_levels(learnt(self.part, rows, self.items, self.get_buffer("marginal_fit")))

    def _take_levels(self, levels: Levels) -> None:
        self._set(**{f"levels_{name}": x for name, x in levels._asdict().items()})

    @final
    def predicted(self, groups: Groups) -> Predicted:
        """Of the targets that have a value."""
        mean, variance = self.predictive(groups)
        assert groups.value is not None
        kept = ~np.isnan(groups.value[:, 0]) & (True if groups.target is None else groups.target)
        item = np.zeros(len(mean), np.int64) if groups.item is None or not self.has_items else groups.item
        columns = (groups.value[:, 0], mean, variance, np.minimum(item, self.items).astype(np.int64), groups.group)
        return Predicted(*(torch.as_tensor(np.ascontiguousarray(x[kept])) for x in columns))

    @final
    def judged(self, groups: Groups) -> float:
        """What options are chosen by: `score`; where levels follow from moments later on, that of a normal law."""
        if self.part.cut_points < 2:
            return self.score(groups)
        rows = self.predicted(groups)
        return float(-0.5 * (rows.variance.log() + (rows.y - rows.mean) ** 2 / rows.variance).mean())

    @final
    def as_scored(self, groups: Groups) -> Groups:
        if not self.fitting:
            return groups
        every = groups.every
        assert every.value is not None
        assert every.item is not None
        centre, scale = self.get_buffer("units").numpy()[:, np.minimum(every.item, self.items)]
        value = every.value * scale[:, None] + centre[:, None]
        for rows, column, part in self.family.by_item(every.item):
            if part.discrete:
                value[rows, column] = np.rint(value[rows, column])
        return replace(groups, every=replace(every, value=value))

    def _in_units(self, groups: Groups) -> Groups:
        """With values in units of each item's own spread."""
        every = groups.every
        assert every.value is not None
        assert every.item is not None
        centre, scale = self.get_buffer("units").numpy()[:, np.minimum(every.item, self.items)]
        return replace(groups, every=replace(every, value=(every.value - centre[:, None]) / scale[:, None]))

    def _by_item(self, groups: Groups) -> Tensor:
        """(items + 1, size): where a family depends on the item, each one's own fit."""
        known = self.item_marginals(groups.flat())
        return known[torch.arange(self.items + 1).clamp_max(len(known) - 1)]

    @final
    def floored(self, mean: Tensor, batch: Batch) -> Tensor:
        """A context lowers a rate to a small share of its item's and no further, where a sum would make it vanish."""
        low = self.part.mean_bounds[0]
        if low == -float("inf"):
            return mean
        level = self.get_buffer("mean")[self.cells(batch).item[:, : batch.length]]
        return torch.maximum(mean, low + FLOOR * (level - low))

    @final
    @torch.no_grad()
    def predictive(self, groups: Groups) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance of each row of the groups, in the order of `groups.rows`."""
        both = np.full((2, int(groups.rows.max(initial=-1)) + 1), np.nan)
        for batch in groups.batches(TOKENS, context=self.context, dtype=torch.float64):
            assert batch.rows is not None
            there = batch.rows >= 0
            for out, x in zip(both, self.moments(batch), strict=True):
                out[batch.rows[there].numpy()] = x[there].numpy()
        return both[0][groups.rows], both[1][groups.rows]

    @final
    def cells(self, batch: Batch) -> "Cells":
        return Cells.of(batch, self.items, self.lags, self.has_items)


@final
@dataclass(frozen=True)
class Cells:
    """The cells of a batch: index (batch, context), lag * items + item, or `unknown`; item, the same without the lag;
    y, seen: value and whether it is observed, of a known item; present: whether it is, of any item; lag."""

    index: Tensor
    item: Tensor
    y: Tensor
    seen: Tensor
    length: int
    present: Tensor
    lag: Tensor
    cells: int

    @classmethod
    def of(cls, batch: Batch, items: int, lags: int, has_items: bool) -> "Cells":
        if has_items and batch.item is None:
            raise DataError(
                f"This model was fitted with an item column, and the data have none: pass {option('item')}.",
                option="item",
            )
        item = batch.item if has_items and batch.item is not None else torch.zeros_like(batch.exists, dtype=torch.long)
        lag = torch.zeros_like(item) if batch.lag is None else batch.lag
        known = batch.exists & (item < items) & (lag <= lags)
        index = torch.where(known, lag * items + item, items * (lags + 1))
        y, present = torch.zeros(item.shape, dtype=torch.float64), torch.zeros_like(known)
        if batch.value is not None and batch.observed is not None:
            y, present = batch.value[..., 0].double(), batch.exists & (lag <= lags) & batch.observed[..., 0]
        of, cells = torch.where(known, item, items), items * (lags + 1)
        return cls(index, of, y, known & present, batch.length, present, lag, cells)

    def visible(self, context: Context) -> Tensor:
        """(batch, target, context): the observed cells that each current row may look at."""
        return self.allowed(context) & self.seen[:, None]

    def allowed(self, context: Context) -> Tensor:
        """(target, context): the positions that each current row may look at, whatever is there."""
        column = torch.arange(self.index.shape[1])
        row = column[: self.length, None]
        may = (column < row) if context == "past" else (column != row)
        return may | (column >= self.length)

    def seen_in(self, batch: Batch, column: int) -> Tensor:
        """`seen` of another value column (batch, context)."""
        if batch.observed is None:
            return torch.zeros_like(self.seen)
        return (self.index < self.cells) & batch.observed[..., column]


def tuning_parts(groups: Groups, held: Groups | None, *, of_items: bool = False) -> tuple[Groups, Groups]:
    """What to fit on and what to choose by; all of it twice where it cannot be split, or where a part would have no
    value to be fitted to."""
    parts = (groups, held) if held is not None and len(held) else (groups, groups)
    if parts[1] is groups and len(groups) > 4:
        parts = groups.split(0.2, 0)
    return parts if of_items or all(_any_value(part) for part in parts) else (groups, groups)


def _any_value(groups: Groups) -> bool:
    assert groups.value is not None
    seen = ~np.isnan(groups.value[:, 0])
    return bool((seen if groups.target is None else seen & groups.target).any())


def some_groups(groups: Groups, targets: int) -> Groups:
    """Groups with about so many targets, drawn at random."""
    order = np.random.default_rng(0).permutation(len(groups))
    scored = np.ones(groups.count) if groups.target is None else groups.target.astype(float)
    before = np.concatenate([[0.0], np.cumsum(scored)])
    ends = np.cumsum(groups.lengths)
    each = (before[ends] - before[ends - groups.lengths])[order]
    kept = max(int(np.searchsorted(np.cumsum(each), targets, "right")), 1)
    return groups if kept >= len(groups) else groups.subset(np.sort(order[:kept]))
