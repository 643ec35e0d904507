"""A penalised generalised linear model of each row given its context, for every family.

    f_i = a[x_i] + b . s_i + W[x_i] . z_i + C[x_i] . tau_i,      dispersion and cut-points  d + d[x_i] + D . h_i

s_i: what a mixed model of the group's residuals says about the row, attributes with hinges and products, the logarithm
of the exposure, which is an offset as well, and summaries of the context; z_i: the residual of every item that the row
may see; tau_i: its attributes, and the level of its group; h_i: how much is known. Residuals are taken after attributes
(linear_features.py). All of it is fitted at once by maximum likelihood with ridge penalties, which folds of the groups
choose (linear_fit.py). Several value columns have a model each, which sees the residuals of all.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from efattn.data import Batch, Groups
from efattn.errors import DataError
from efattn.families import Product
from efattn.models import Conditionals
from efattn.network.straight import bends, straight
from efattn.simple import linear_fit, mixed
from efattn.simple.at_positions import at_positions
from efattn.simple.base import TOKENS, Cells, DirectlyFitted, Recipe, Setting, Tick
from efattn.simple.clocks import clock_columns, clocks
from efattn.simple.linear_features import KNOTS, Base, Column, Known, Sight, error_variance, log_exposure
from efattn.simple.linear_fit import (
    BLOCKS,
    CHOSEN,
    FIRST,
    Coefficients,
    Fold,
    Problem,
    Rows,
    certain,
    outputs,
    search,
    shifted,
)

MOST_CELLS, MOST_NUMBERS = 300, 2**25  # items and lags, and rows times those, for a map from item to item
MUCH = 2**22  # numbers, from which on several threads pay
FOLDS, FEWEST = 4, 8  # FEWEST: groups, of which what is left out says how far off rows are
ENOUGH = 30_000  # rows to choose penalties by, which do not depend on how many there are
TURNS, CHOICES = 2, 5  # of least squares and variances; of penalties in each
BASE = {
    "overall": 0.01,
    "own": 1.0,
    "level": 1.0,
    "linear": 0.1,
    "bent": 30.0,
    "extras": 1.0,
    "others": 1.0,
    "by_item": 1.0,
}
BASE |= {"spread": 30.0, "scatter": 1.0}
MAPS = ("others", "extras", "by_item", "bent", "scatter")  # what one penalty is for


@final
@dataclass(frozen=True)
class LinearModel(Recipe):
    """A penalised generalised linear model: an intercept per item, attributes, exposure, the level of the group as a
    mixed model has it, and a linear map of what the row sees of the others. penalty: of that map, of summaries of the
    context, coefficients by item, bends of attributes and what dispersions depend on; or one for each block of
    coefficients and value column; None to choose them by folds of the groups. seconds: how long to look, at most.
    spread: of each value column how much of what the mixed model tells of a row's variance its dispersion starts from,
    and by how much its second output is shifted; None to choose. plain: without a row's place and time, and with
    dispersions that attributes do not move. by_position: with a row's position as its item, where rows have none and
    groups have their times or ranks in common."""

    penalty: float | tuple[float, ...] | None = None
    seconds: float = 20.0
    spread: tuple[float, ...] | None = None
    plain: bool = False
    by_position: bool = False
    models = "value"
    exposure = True
    noise = True
    times = True

    def build(self, setting: Setting) -> Conditionals:
        given = self.penalty if isinstance(self.penalty, tuple | list) else (self.penalty,)
        for one in given:
            if one is not None and (isinstance(one, bool | str) or not 1e-6 <= one < float("inf")):
                raise DataError(f"LinearModel: penalty is a number >= 1e-06, or None; found {one!r}.", option="penalty")
        self.check_number("seconds", 0)
        penalty = None if self.penalty is None else tuple(given)
        if self.by_position:
            return at_positions(replace(self, by_position=False), setting)
        return PenalisedLinear(setting, penalty, self.seconds, self.spread, self.plain)


@final
class PenalisedLinear(DirectlyFitted):
    def __init__(
        self,
        setting: Setting,
        penalty: tuple[Any, ...] | None,
        seconds: float,
        spread: tuple[float, ...] | None,
        plain: bool,
    ) -> None:
        super().__init__(setting.family, setting.context)
        self.columns = _columns(self.family)
        self.choices = CHOSEN[:-1] if plain else CHOSEN
        if penalty is not None and len(penalty) not in (1, len(self.choices) * len(self.columns)):
            wanted = f"one number, or {len(self.choices)} for each value column"
            raise DataError(f"LinearModel: penalty is {wanted}; found {penalty!r}.", option="penalty")
        if spread is not None and len(spread) != 2 * len(self.columns):
            raise DataError("LinearModel: spread has two numbers for each value column.", option="spread")
        self.penalty, self.seconds, self.items = penalty, seconds, max(setting.items, 1)
        self.spread = spread
        self.has_items = setting.items > 0
        cells = self.items * (setting.lags + 1) * len(self.columns)
        used = cells // len(self.columns) if setting.items and 1 < cells <= MOST_CELLS else 0
        self.empty = Sight(
            self.columns, self.items, setting.lags, setting.items > 0, setting.attributes,
            0 if plain else clocks(setting), not plain, setting.ordered, setting.context, used,
        )  # fmt: skip
        count = len(self.columns)
        sizes = self.empty.sizes() | {"chosen": (count, len(self.choices)), "dispersed": (count, 2)}
        for c, column in enumerate(self.columns):
            known = linear_fit.shapes(column, self.items, self.widths())
            sizes |= {f"{name}_{c}": known[name] for name in BLOCKS}
        for name, size in sizes.items():
            self.register_buffer(name, torch.zeros(size, dtype=torch.float64))

    def widths(self) -> list[int]:
        """How many numbers there are of each that is known."""
        sight, columns = self.empty, len(self.columns)
        cells = sight.cells * columns
        return [columns, sight.linear_size, sight.bent_size, sight.extras_size, cells, sight.scatter_size]

    def chosen_options(self) -> dict[str, Any]:
        names = {"penalty": "chosen", "spread": "dispersed"}
        return {name: tuple(self.get_buffer(mine).reshape(-1).tolist()) for name, mine in names.items()}

    # ---- what it says

    def sight(self) -> Sight:
        return self.empty.knowing(**{name: self.get_buffer(name) for name in self.empty.sizes()})

    @torch.no_grad()
    def raw_outputs(self, batch: Batch, slots: Tensor) -> Tensor:
        item, known = self.described(batch, slots)
        f = [self.column_outputs(c, item, known) for c in range(len(self.columns))]
        return torch.cat(f, -1).to(slots.device)

    def described(self, batch: Batch, slots: Tensor) -> tuple[Tensor, Known]:
        """Item, and what is known, of each target."""
        return self.sight().describe(batch.to("cpu", torch.float64), slots.cpu())

    def column_outputs(self, c: int, item: Tensor, known: Known) -> Tensor:
        mine = Coefficients(*(self.get_buffer(f"{name}_{c}") for name in BLOCKS))
        shared = torch.cat([known.level, known.linear, known.bent, known.extras], -1)
        scatter = known.scatter[..., c, :]
        by_item = known.by_item[..., : mine.by_item.shape[-1]]
        certainty, shift = self.get_buffer("dispersed")[c]
        told = shift - certainty * known.told[..., c]
        return outputs(self.get_buffer(f"start_{c}"), mine, item, shared, known.cells, by_item, scatter, told)

    # ---- how it is fitted

    def fit(self, groups: Groups, held: Groups | None = None, tick: Tick | None = None) -> None:
        """held is not looked at: folds of the groups choose. Where there is little to do, threads only wait."""
        threads = torch.get_num_threads()
        if groups.count * max(self.empty.cells, 8) < MUCH:
            torch.set_num_threads(1)
        try:
            self._fit(groups, tick or (lambda done, of: None))
        finally:
            torch.set_num_threads(threads)

    def _fit(self, groups: Groups, tick: Tick) -> None:
        begun = time.thread_time()
        value = groups.value
        kept = value is not None and groups.target is not None and not (~np.isnan(value[groups.target])).any()
        if value is None or kept or np.isnan(value).all():
            raise DataError("There is no value to fit a linear model to.")
        first = self._units(groups)
        sight = self._with_mixed(self._with_base(first, groups, begun + self.seconds / 4), groups)
        together = sight.together(groups.batches(TOKENS // 4, context=self.context, dtype=torch.float64))
        sight = sight.knowing(**{f"together_{c}": x for c, x in enumerate(together)})
        self._set(**sight.learnt)
        rows = self._rows(sight, groups)
        penalties, spread = self._given(), self._spread()
        if penalties is None:
            penalties, spread = self._search(first, sight, groups, begun + self.seconds, tick)
        for c, column in enumerate(self.columns):
            problem = Problem(column, sight.base_of(c), rows[c], self.items, spread[c][0])
            strong = problem.maximise(FIRST, end=begun + 1.25 * self.seconds)
            best = problem.maximise(penalties[c], strong, begun + 1.5 * self.seconds)
            self._set(**{f"{name}_{c}": x for name, x in zip(BLOCKS, best, strict=True)})
        chosen = np.array([[each[name] for name in self.choices] for each in penalties])
        self._set(chosen=chosen, dispersed=np.array(spread))

    def _given(self) -> list[dict[str, float]] | None:
        if self.penalty is None:
            return None
        if len(self.penalty) == 1:
            return [FIRST | dict.fromkeys(MAPS, float(self.penalty[0])) for _ in self.columns]
        each = np.array(self.penalty, float).reshape(len(self.columns), -1)
        return [FIRST | dict(zip(self.choices, map(float, row), strict=True)) for row in each]

    def _spread(self) -> list[tuple[float, float]]:
        """Certainty and shift of each column, until they are chosen."""
        if self.spread is None:
            return [(float(column.measured), 0.0) for column in self.columns]
        return list(zip(self.spread[::2], self.spread[1::2], strict=True))

    def _units(self, groups: Groups) -> Sight:
        """Units of attributes and times, knots, and where each column starts."""
        flat, sight = groups.flat(), self.empty
        x = replace(sight, clocks=0).known(flat)[0].nan_to_num(0.0)
        several = [*x[:, : sight.given].unbind(1), *clock_columns(groups, sight.clocks), x[:, -1]]
        bend = torch.cat([bends(column[:, None]) for column in several[:-1]] + [x.new_zeros(1, 2)])
        several = [straight(column[:, None], mine[None])[:, 0] for column, mine in zip(several, bend, strict=True)]
        units = [_unit(column) for column in several]
        centre, scale = (torch.stack(numbers) for numbers in zip(*units, strict=True))
        knots = torch.zeros(sight.attributes, len(KNOTS), dtype=torch.float64)
        for k, (column, (middle, spread)) in enumerate(zip(several[:-1], units[:-1], strict=True)):
            knots[k] = torch.as_tensor(np.quantile(((column - middle) / spread).numpy(), KNOTS))
        start = self.marginal(flat).expand(self.items + 1, -1)
        if self.kinds:
            start = self.item_marginals(flat)
            start = start[torch.arange(self.items + 1).clamp_max(len(start) - 1)]
        learnt = {"centre": centre, "scale": scale, "bends": bend, "knots": knots, "varies": self._varying(groups)}
        between = groups.times_between
        between = between[between > 0]
        learnt["step"] = torch.tensor([float(np.median(between)) if len(between) else 1.0], dtype=torch.float64)
        learnt["repeats"] = torch.tensor([float(_repeats(groups))], dtype=torch.float64)
        learnt |= {name: torch.ones(1, dtype=torch.float64) for name in ("scaled", "sloped")}
        learnt |= {f"start_{c}": start[:, column.outputs] for c, column in enumerate(self.columns)}
        firm = torch.tensor([BASE[name] for name in ("overall", "linear", "bent", "own")], dtype=torch.float64)
        learnt |= {f"firm_{c}": firm for c in range(len(self.columns))}
        return self.empty.knowing(**learnt)

    def _varying(self, groups: Groups) -> Tensor:
        """Which attributes differ within groups; clocks do."""
        x, group, clocks = groups.attributes, groups.group, torch.ones(self.empty.clocks, dtype=torch.float64)
        if not self.empty.given or x is None or not len(x):
            return torch.cat([torch.zeros(self.empty.given, dtype=torch.float64), clocks])
        same = np.diff(group) == 0
        return torch.cat(
            [torch.as_tensor((np.abs(np.diff(np.nan_to_num(x), axis=0))[same] > 0).any(0)).double(), clocks]
        )

    def _with_base(self, sight: Sight, groups: Groups, end: float) -> Sight:
        """Each row without its context: what residuals are taken from."""
        rows = self._rows(sight, groups, bare=True)
        for c, column in enumerate(self.columns):
            start = sight.learnt[f"start_{c}"]
            best = Problem(column, Base.at(start, column.free), rows[c], self.items).maximise(BASE, end=end)
            start = torch.cat([start[:, : 1 + column.free] + best.overall, start[:, 1 + column.free :]], 1)
            learnt = {f"start_{c}": start, f"base_own_{c}": best.own}
            learnt |= {f"base_shared_{c}": best.shared, f"base_spread_{c}": best.spread}
            sight = sight.knowing(**learnt)
        return sight

    def _with_mixed(self, sight: Sight, groups: Groups) -> Sight:
        """How residuals of a group go together, and the base by generalised least squares under that, in turn."""
        for turn in range(TURNS + 1):
            parts, learnt = self._within(sight, groups), dict[str, Tensor]()
            for c, mine in enumerate(parts):
                near = sight.learnt.get(f"within_{c}")
                learnt[f"within_{c}"] = mixed.fitted([x[:2] for x in mine], sight.within_size, near)
            sight = sight.knowing(**learnt)
            if turn < TURNS:
                sight = self._least_squares(sight, parts, choose=True)
        return sight

    def _within(self, sight: Sight, groups: Groups) -> list[list[tuple[mixed.Rows, mixed.Seen, Tensor]]]:
        """For each column and batch what the mixed model needs, and the design of the base."""
        batches = list[list[tuple[mixed.Rows, mixed.Seen, Tensor]]]([] for _ in self.columns)
        for batch in groups.batches(TOKENS // 4, context=self.context, dtype=torch.float64):
            cells, n = Cells.of(batch, self.items, sight.lags, sight.has_items), batch.length
            linear, bent = sight.basis(batch)
            parts = [torch.ones_like(linear[..., :1]), linear, bent]
            if 1 < self.items <= MOST_CELLS:
                parts.append(torch.nn.functional.one_hot(cells.item, self.items + 1).double())
            design = torch.cat(parts, -1)[:, :n]
            for c, one in enumerate(sight.residuals(batch, cells, torch.cat([linear, bent], -1))):
                batches[c].append((*sight.within(batch, linear, c, one), design))
        return batches

    def _least_squares(
        self, sight: Sight, parts: list[list[tuple[mixed.Rows, mixed.Seen, Tensor]]], choose: bool
    ) -> Sight:
        """The base, drawn to 0 by penalties that make the group's residuals most likely (Fellner and Schall)."""
        blocks = torch.tensor([0] + [1] * sight.linear_size + [2] * sight.bent_size + [3] * (self.items + 1))
        for c, mine in enumerate(parts):
            learnt = sight.learnt
            now = torch.cat([learnt[f"start_{c}"][-1, :1], learnt[f"base_shared_{c}"], learnt[f"base_own_{c}"]])
            size = mine[0][2].shape[-1] if mine else 0
            plain = size <= 1 + sight.linear_size and not sight.attributes and not self.columns[c].family.exposures
            if not size or plain or self.columns[c].mixed_kinds:
                continue
            sums = [mixed.equations(learnt[f"within_{c}"], *x) for x in mine]
            matrix, vector = (torch.stack(x).sum(0) for x in zip(*sums, strict=True))
            block, firm = blocks[:size], learnt[f"firm_{c}"].clone()
            centre = torch.zeros(size, dtype=torch.float64)
            centre[0] = now[0]
            for _ in range(CHOICES if choose else 1):
                weight = firm[block]
                inverse = torch.linalg.inv(matrix + torch.diag(weight))
                new = now[:size] + inverse @ (vector - weight * (now[:size] - centre))
                if choose:
                    for k in range(1, int(block.max()) + 1):
                        here = block == k
                        freedom = here.sum() - firm[k] * inverse.diagonal()[here].sum()
                        firm[k] = (freedom.clamp_min(1e-3) / (new[here] ** 2).sum().clamp_min(1e-9)).clamp(0.03, 1e4)
            now = torch.cat([new, now[size:]])
            if not bool(now.isfinite().all()):
                continue
            start = learnt[f"start_{c}"].clone()
            start[:, 0] += now[0] - start[-1, 0]
            split = 1 + sight.linear_size + sight.bent_size
            sight = sight.knowing(
                **{
                    f"start_{c}": start,
                    f"base_shared_{c}": now[1:split],
                    f"base_own_{c}": now[split:],
                    f"firm_{c}": firm,
                }
            )
        return sight

    def _rows(self, sight: Sight, groups: Groups, bare: bool = False) -> list[Rows]:
        """The scored rows of each column. bare: of the base, which knows no context."""
        parts = list[list[Rows]]([] for _ in self.columns)
        tokens = max(256, min(TOKENS, 2**24 // max(sight.cells * len(self.columns), 1)))
        for pieces in groups.plan(tokens):
            batch = groups.batch(pieces, self.context, torch.float64)
            n = batch.length
            if bare:
                item, known = _bare(sight, batch)
            else:
                item, known = sight.describe(batch)
            assert batch.value is not None
            assert batch.observed is not None
            weight = torch.ones(item.shape, dtype=torch.float64) if batch.weight is None else batch.weight.double()
            group = torch.as_tensor(groups.pieces.group[pieces])[:, None].expand(item.shape)
            for mine, column in zip(parts, self.columns, strict=True):
                y = batch.value[:, :n, column.column].double()
                scored = batch.target & batch.observed[:, :n, column.column] & (weight > 0)
                scored &= (item < self.items) | (not column.mixed_kinds)
                here = (x[scored] for x in (item, log_exposure(batch), y, weight, group, error_variance(batch)))
                mine.append(Rows(Known(*(x[scored] for x in known)), *here))
        return [_joined(mine) for mine in parts]

    def _search(
        self, first: Sight, sight: Sight, groups: Groups, end: float, tick: Tick
    ) -> tuple[list[dict[str, float]], list[tuple[float, float]]]:
        """Penalties, certainty and shift of each column."""
        told, groups = self._spread(), _some(groups)
        count = len(groups)
        if count < 2 or not len(groups.pieces.group):
            return [FIRST | dict.fromkeys(MAPS, 10.0) for _ in self.columns], told
        each = self._folds(first, sight, groups, [certainty for certainty, _ in told], end)
        if self.spread is None:
            each = [certain(mine, end) for mine in each]
        found = [search(mine, end, tick, shifts=count >= FEWEST) for mine in each]
        spread = [(mine[0].train.certainty, shift) for mine, (_, shift) in zip(each, found, strict=True)]
        return [penalties for penalties, _ in found], spread if self.spread is None else told

    def _folds(
        self, first: Sight, sight: Sight, groups: Groups, certainty: Sequence[float], end: float
    ) -> list[list[Fold]]:
        """Of each column. In each fold the base is fitted without what is left out."""
        count = len(groups)
        folds = min(FOLDS, count)
        fold = np.random.default_rng(0).permutation(count) * folds // count
        each = list[list[Fold]]([] for _ in self.columns)
        for k in range(folds):
            train, test = groups.subset(fold != k), groups.subset(fold == k)
            mine = self._with_base(first, train, end)
            mine = mine.knowing(**{n: x for n, x in sight.learnt.items() if n.startswith(("within", "firm"))})
            for _ in range(TURNS):
                mine = self._least_squares(mine, self._within(mine, train), choose=False)
            fitted, left = self._rows(mine, train), self._rows(mine, test)
            for c, column in enumerate(self.columns):
                both = (Problem(column, mine.base_of(c), rows[c], self.items, certainty[c]) for rows in (fitted, left))
                each[c].append(Fold(*both))
        return each

    def left_out(self, groups: Groups) -> list[tuple[Problem, Tensor]]:
        """Of the first column, fold by fold: rows, and f of a model like this one that was fitted without them."""
        end, (certainty, shift) = time.thread_time() + self.seconds, self.get_buffer("dispersed")[0].tolist()
        penalties = FIRST | dict(zip(self.choices, self.get_buffer("chosen")[0].tolist(), strict=True))
        told = [certainty] * len(self.columns)
        found = []
        for fold in self._folds(self._units(groups), self.sight(), _some(groups), told, end)[0]:
            best = fold.train.maximise(penalties, fold.train.maximise(FIRST, end=end), end)
            found.append((fold.test, shifted(fold.test.outputs(best), torch.tensor(shift))))
        return found


def _some(groups: Groups) -> Groups:
    """As many as it takes to choose by."""
    share = ENOUGH / max(groups.count, 1)
    return groups if share >= 1 else groups.subset(np.random.default_rng(0).random(len(groups)) < share)


def _columns(family: Any) -> tuple[Column, ...]:
    if not isinstance(family, Product) or not all(part.scalar for part in family.parts):
        raise DataError("A linear model is of value columns that have a family of one column each.", option="family")
    return tuple(Column(part, outputs, column.start) for part, outputs, column in family.slices())


def _unit(column: Tensor) -> tuple[Tensor, Tensor]:
    """Where it lies, and how far it spreads."""
    spread = column.std(correction=0)
    return column.mean(), torch.where(spread > 1e-9 * column.abs().amax(), spread, 1.0)


def _bare(sight: Sight, batch: Batch) -> tuple[Tensor, Known]:
    n = batch.length
    item = Cells.of(batch, sight.items, sight.lags, sight.has_items).item[:, :n]
    linear, bent = (x[:, :n] for x in sight.basis(batch))
    none, told = linear.new_zeros(*item.shape, 0), linear.new_zeros(*item.shape, len(sight.columns))
    return item, Known(none, linear, bent, none, none, none[..., None, :].expand(*told.shape, 0), told)


def _joined(parts: list[Rows]) -> Rows:
    known = Known(*(torch.cat(x) for x in zip(*(part.known for part in parts), strict=True)))
    return Rows(known, *(torch.cat(x) for x in zip(*(part[1:] for part in parts), strict=True)))


def _repeats(groups: Groups) -> bool:
    """Whether an item stands twice in a group."""
    item = groups.item
    if item is None:
        return False
    key = groups.group * np.int64(int(item.max(initial=0)) + 1) + item
    return len(np.unique(key)) < len(key)
