"""A penalised generalised linear model of each row given its context, for every family of one column.

    f_i = a[x_i] + b . s_i + W[x_i] . z_i + C[x_i] . tau_i,      dispersion and cut-points  d + d[x_i]

z_i: the residual of every item that the row may see, 0 where it sees none; s_i: shrunk means of these residuals, the
ratio of what was seen to what was expected, the nearest rows where rows are ordered, the attributes tau_i and the
logarithm of the exposure, which is an offset as well. A residual is taken from the item's own marginal fit, at its own
exposure. All of it is fitted at once by maximum likelihood with ridge penalties; that of W and C is chosen by folds of
the groups.
"""

import math
import time
from dataclasses import dataclass
from typing import NamedTuple, final

import numpy as np
import torch
from torch import Tensor

from efattn.data import Batch, Groups
from efattn.errors import DataError
from efattn.families import Product
from efattn.models import Conditionals
from efattn.models.scoring import at
from efattn.simple.base import TOKENS, Cells, DirectlyFitted, Recipe, Setting, Tick

PENALTIES = (1000.0, 300.0, 100.0, 30.0, 10.0, 3.0, 1.0, 0.3)  # of W and C, the strongest first
OWN, SHARED, DISPERSION = 0.3, 0.1, 3.0  # penalties of a, b, d[x]: fractions of a row, and a few rows
CLIP = 8.0  # standard deviations of a residual
MOST_CELLS, MOST_NUMBERS = 300, 2**25  # items and lags, and rows times those, for a map from item to item
MUCH = 2**22  # numbers, from which on several threads pay
FOLDS, ROUNDS, WORSE = 4, 50, 0.002  # WORSE: nats a row, after which no weaker penalty is tried


@final
@dataclass(frozen=True)
class LinearModel(Recipe):
    """A penalised generalised linear model: an intercept per item, attributes, exposure, and a linear map of what the
    row sees of the others. penalty: of that map, None to choose it by folds of the groups. seconds: how long to look
    for it, at most."""

    penalty: float | None = None
    seconds: float = 20.0
    models = "value"
    exposure = True

    def build(self, setting: Setting) -> Conditionals:
        self.check_number("penalty", 1e-6)
        self.check_number("seconds", 0)
        return PenalisedLinear(setting, self.penalty, self.seconds)


class Rows(NamedTuple):
    """What is known of scored rows: item (row,), shared (row, s), cells (row, cell), attributes (row, a), log exposure
    (row,), y (row,), weight (row,), group (row,)."""

    item: Tensor
    shared: Tensor
    cells: Tensor
    attributes: Tensor
    exposure: Tensor
    y: Tensor
    weight: Tensor
    group: Tensor

    def at(self, index: Tensor) -> "Rows":
        return Rows(*(x[index] for x in self))


@final
class PenalisedLinear(DirectlyFitted):
    def __init__(self, setting: Setting, penalty: float | None, seconds: float) -> None:
        super().__init__(setting.family, setting.context)
        if not isinstance(self.family, Product) or len(self.family.parts) != 1 or self.family.columns != 1:
            raise DataError("A simple model has one value column; fit one for each, or EFA, which takes several.")
        self.part = self.family.parts[0]
        self.items, self.lags, self.has_items = max(setting.items, 1), setting.lags, setting.items > 0
        self.ordered, self.penalty, self.seconds = setting.ordered, penalty, seconds
        self.counted = math.isfinite(self.part.mean_bounds[0]) and math.isinf(self.part.mean_bounds[1])
        cells = self.items * (self.lags + 1)
        self.cells_used = cells if self.has_items and 1 < cells <= MOST_CELLS else 0
        shared = 2 + 2 * self.counted + 2 * self.ordered + setting.attributes + 1
        sizes = {"own": (self.items + 1,), "shared": (shared,), "others": (self.items + 1, self.cells_used)}
        sizes |= {"by_item": (self.items + 1, setting.attributes), "spread": (self.items + 1, self.part.size - 1)}
        rows = (self.items + 1,) if self.kinds else ()
        sizes |= {"marginal_fit": (*rows, self.part.size), "item_fit": (self.items + 1, self.part.size), "chosen": (1,)}
        sizes |= {"centre": (setting.attributes + 1,), "scale": (setting.attributes + 1,)}
        for name, size in sizes.items():
            self.register_buffer(name, torch.zeros(size, dtype=torch.float64))

    def chosen_options(self) -> dict[str, float]:
        return {"penalty": float(self.get_buffer("chosen"))}

    # ---- what a row knows

    def described(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """shared (batch, length, s), cells (batch, length, cell), attributes (batch, length, a), standardised."""
        cells, n = Cells.of(batch, self.items, self.lags, self.has_items), batch.length
        seen = cells.visible(self.context).double()  # (batch, target, context)
        mean, sd = self._expected(batch, cells)
        rest = torch.where(cells.seen, ((cells.y - mean) / sd).clamp(-CLIP, CLIP), 0.0)
        if batch.exposure is not None:
            seen[..., n:] = 0.0  # of earlier groups the exposure is not known
        count, total = seen.sum(-1), (seen @ rest[..., None])[..., 0]
        parts = [total / (count + 1), total / (count + 5)]
        if self.counted:
            parts += self._ratios(seen, cells, mean)
        if self.ordered:
            parts += self._neighbours(cells, rest, n)
        extra = self._attributes(batch)
        shared = torch.cat([torch.stack(parts, -1), extra], -1)
        return shared, self._by_cell(cells, seen, rest), extra[..., :-1]

    def _expected(self, batch: Batch, cells: Cells) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation (batch, context) of each cell by its item's own marginal fit."""
        f = self.get_buffer("item_fit")[cells.item]
        if batch.exposure is not None:
            log = torch.zeros(cells.item.shape, dtype=torch.float64)
            log[:, : batch.length] = log_exposure(batch)
            f[..., list(self.part.exposures)] += log[..., None]
        return self.part.mean(f).double(), self.part.variance(f).double().clamp_min(1e-12).sqrt()

    def _ratios(self, seen: Tensor, cells: Cells, mean: Tensor) -> list[Tensor]:
        """log (seen + k) / (expected + k): the effect of a group on a rate, drawn to none as a gamma prior would."""
        low = self.part.mean_bounds[0]
        y, m = torch.where(cells.seen, cells.y - low, 0.0), torch.where(cells.seen, mean - low, 0.0)
        unit = 1.0 if self.part.discrete else float(self.part.mean(self.get_buffer("marginal_fit")).mean()) - low
        had, due = (seen @ y[..., None])[..., 0], (seen @ m[..., None])[..., 0]
        return [((had + k * unit) / (due + k * unit)).clamp(1e-6, 1e6).log() for k in (1.0, 5.0)]

    def _neighbours(self, cells: Cells, rest: Tensor, n: int) -> list[Tensor]:
        """The residual of the row before, and in `others` of the row after."""
        here = torch.where(cells.seen[:, :n], rest[:, :n], 0.0)
        zero = torch.zeros_like(here[:, :1])
        before = torch.cat([zero, here[:, :-1]], 1)
        after = torch.cat([here[:, 1:], zero], 1) if self.context == "others" else torch.zeros_like(before)
        return [before, after]

    def _attributes(self, batch: Batch) -> Tensor:
        """(batch, length, attributes + 1), standardised: the last is the logarithm of the exposure."""
        x = self._known(batch)
        return ((x - self.get_buffer("centre")) / self.get_buffer("scale").clamp_min(1e-12)).clamp(-CLIP, CLIP)

    def _known(self, batch: Batch) -> Tensor:
        """The same as they stand in the table."""
        size, log = len(self.get_buffer("centre")) - 1, log_exposure(batch)[..., None]
        if size and batch.attributes is None:
            raise DataError("This model was fitted with attributes, and the data have none.", option="attributes")
        if not size or batch.attributes is None:
            return log
        return torch.cat([batch.attributes[:, : batch.length].double(), log], -1)

    def _by_cell(self, cells: Cells, seen: Tensor, rest: Tensor) -> Tensor:
        size = self.cells_used
        if not size:
            return rest.new_zeros(*seen.shape[:2], 0)
        where = torch.nn.functional.one_hot(cells.index.clamp_max(size), size + 1)[..., :size].double()
        return seen @ (where * rest[..., None]) / (seen @ where).clamp_min(1)

    # ---- what it says

    @torch.no_grad()
    def raw_outputs(self, batch: Batch, slots: Tensor) -> Tensor:
        here = batch.to("cpu", torch.float64)
        shared, cells, attributes = self.described(here)
        item = Cells.of(here, self.items, self.lags, self.has_items).item[:, : batch.length]
        coefficients = tuple(self.get_buffer(name) for name in ("own", "shared", "others", "by_item", "spread"))
        f = self._predicted(coefficients, item, shared, cells, attributes)
        return at(f, slots.cpu()).to(slots.device)

    def _predicted(
        self, coefficients: tuple[Tensor, ...], item: Tensor, shared: Tensor, cells: Tensor, attributes: Tensor
    ) -> Tensor:
        """f (..., size)"""
        own, b, others, by_item, spread = coefficients
        start = self.get_buffer("marginal_fit")
        start = start[item] if self.kinds else start  # where a family depends on the item, so does its start
        location = start[..., 0] + own[item] + shared @ b
        if cells.shape[-1]:
            location = location + (others[item] * cells).sum(-1)
        if attributes.shape[-1]:
            location = location + (by_item[item] * attributes).sum(-1)
        f = torch.cat([location[..., None], start[..., 1:] + spread[item]], -1)
        return self.with_kinds(f, item) if self.kinds else f

    # ---- how it is fitted

    def fit(self, groups: Groups, held: Groups | None = None, tick: Tick | None = None) -> None:
        """held is not looked at: folds of the groups choose. Where there is little to do, threads only wait."""
        threads = torch.get_num_threads()
        if len(groups.rows) * max(self.cells_used, 8) < MUCH:
            torch.set_num_threads(1)
        try:
            self._fit(groups, tick)
        finally:
            torch.set_num_threads(threads)

    def _fit(self, groups: Groups, tick: Tick | None) -> None:
        end = time.monotonic() + self.seconds
        if len(groups.rows) * max(self.cells_used, 1) > MOST_NUMBERS:
            self.cells_used = 0
            self.register_buffer("others", torch.zeros(self.items + 1, 0, dtype=torch.float64))
        self._fit_marginals(groups)
        rows = self._rows(groups)
        if not len(rows.y):
            raise DataError("There is no value to fit a linear model to.")
        penalty = self.penalty
        if penalty is None:
            penalty = self._search(rows, end, tick or (lambda done, of: None))
        start = self._maximise(rows, PENALTIES[0], None) if penalty < PENALTIES[0] else None
        best = self._maximise(rows, penalty, start)
        self._set(**dict(zip(("own", "shared", "others", "by_item", "spread"), best, strict=True)), chosen=penalty)

    def _fit_marginals(self, groups: Groups) -> None:
        """Each item's own fit, drawn to that of all, from which residuals are taken; and the attributes' units."""
        flat = groups.flat()
        x = self._known(flat)[0]
        spread = x.std(0, correction=0)
        self._set(centre=x.mean(0), scale=torch.where(spread > 0, spread, 1.0))
        start = self.marginal(flat)
        if self.kinds:
            known = self.item_marginals(flat)
            start = known[torch.arange(self.items + 1).clamp_max(len(known) - 1)]
        self._set(marginal_fit=start, item_fit=start.expand(self.items + 1, -1))
        own, _, _, _, spreads = self._maximise(self._rows(groups, bare=True), 1.0, None)
        fit = torch.cat([(start[..., 0] + own)[:, None], start[..., 1:] + spreads], -1)
        self._set(item_fit=self.with_kinds(fit, torch.arange(self.items + 1)) if self.kinds else fit)

    def _rows(self, groups: Groups, bare: bool = False) -> Rows:
        parts: list[list[Tensor]] = []
        tokens = max(256, min(TOKENS, 2**24 // max(self.cells_used, 1)))
        for pieces in groups.plan(tokens):
            batch = groups.batch(pieces, self.context, torch.float64)
            scored = self.targets(batch)
            cells = Cells.of(batch, self.items, self.lags, self.has_items)
            n = batch.length
            if bare:
                described = tuple(torch.zeros(*scored.shape, 0, dtype=torch.float64) for _ in range(3))
            else:
                described = self.described(batch)
            assert batch.value is not None
            log = torch.zeros(scored.shape, dtype=torch.float64) if batch.exposure is None else log_exposure(batch)
            weight = torch.ones(scored.shape, dtype=torch.float64) if batch.weight is None else batch.weight.double()
            group = torch.as_tensor(groups.pieces.group[pieces])[:, None].expand(scored.shape)
            here = [cells.item[:, :n], *described, log, batch.value[:, :n, 0].double(), weight, group]
            parts.append([x[scored] for x in here])
        return Rows(*(torch.cat(columns) for columns in zip(*parts, strict=True)))

    def _search(self, rows: Rows, end: float, tick: Tick) -> float:
        """The penalty under which groups that were left out are most likely."""
        number = rows.group.unique(return_inverse=True)[1]
        count = int(number.max()) + 1
        if count < 2:
            return 10.0
        folds = min(FOLDS, count)
        shuffled = torch.as_tensor(np.random.default_rng(0).permutation(count))
        fold = (shuffled * folds // count)[number]
        total, near = dict[int, float](), list(range(len(PENALTIES)))
        for k in range(folds):
            train, test = rows.at(fold != k), rows.at(fold == k)
            parameters: tuple[Tensor, ...] | None = None
            mine = dict[int, float]()
            for number_ in near:
                tick(k * len(PENALTIES) + number_, folds * len(PENALTIES))
                parameters = self._maximise(train, PENALTIES[number_], parameters)
                mine[number_] = float(self._log_likelihood(parameters, test).sum())
                if time.monotonic() > end or mine[number_] < max(mine.values()) - WORSE * len(test.y):
                    break  # weaker penalties take longer, and only get worse from here on
            total = mine if not total else {n: total[n] + mine[n] for n in total.keys() & mine.keys()} or total
            best = max(total, key=lambda n: total[n])
            near = [n for n in (best - 1, best, best + 1) if n in total]
            if time.monotonic() > end:
                break
        return PENALTIES[max(total, key=lambda n: total[n])]

    def _log_likelihood(self, coefficients: tuple[Tensor, ...], rows: Rows) -> Tensor:
        f = self._predicted(coefficients, rows.item, rows.shared, rows.cells, rows.attributes)
        if self.part.exposures:
            index = torch.tensor(self.part.exposures)
            f = f.index_add(-1, index, rows.exposure[:, None].expand(-1, len(index)))
        return self.part.log_prob(f, rows.y) * rows.weight

    def _maximise(self, rows: Rows, penalty: float, start: tuple[Tensor, ...] | None) -> tuple[Tensor, ...]:
        """By L-BFGS on all rows; penalised coefficients of what is never seen stay 0."""
        shared, cells, attributes = rows.shared.shape[1], rows.cells.shape[1], rows.attributes.shape[1]
        items, spreads = self.items + 1, self.part.size - 1
        sizes: list[tuple[int, ...]] = [(items,), (shared,), (items, cells), (items, attributes), (items, spreads)]
        free = [
            (torch.zeros(size, dtype=torch.float64) if start is None else start[k].clone()).requires_grad_()
            for k, size in enumerate(sizes)
        ]
        weights = (OWN, SHARED, penalty, penalty, DISPERSION)
        count = max(float(rows.weight.sum()), 1.0)

        def loss() -> Tensor:
            fit = -self._log_likelihood(tuple(free), rows).sum()
            shrunk = sum((w / 2 * (x**2).sum() for w, x in zip(weights, free, strict=True)), start=fit.new_zeros(()))
            return (fit + shrunk) / count

        optimiser = torch.optim.LBFGS(
            free, max_iter=ROUNDS, tolerance_grad=1e-6, tolerance_change=1e-9, line_search_fn="strong_wolfe"
        )

        def closure() -> Tensor:
            optimiser.zero_grad()
            value = loss()
            value.backward()
            return value

        with torch.enable_grad():
            optimiser.step(closure)
        best = tuple(x.detach() for x in free)
        return best if all(x.isfinite().all() for x in best) else tuple(torch.zeros_like(x) for x in best)


def log_exposure(batch: Batch) -> Tensor:
    """(batch, length): 0 where there is none."""
    if batch.exposure is None:
        return torch.zeros(batch.exists[:, : batch.length].shape, dtype=torch.float64)
    return batch.exposure[:, : batch.length].double().log()
