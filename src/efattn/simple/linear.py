"""Each item's value from a weighted sum of the values it may see.

    y_i = m_i + c_i + sum_cells W[item_i, cell] (y_cell - m_cell)       ridge and lasso per item, persistence
    y_i = m_i + sum_j W_ij (y_j - m_j) / sum_j W_ij,   W_ij = d_ij^-p    inverse distance, over what is there
    y_u = sum_j W_uj y_j / sum_j W_uj                                    the same of an item that was never seen

A cell is an item at a lag. m are the items' shrunk means, so that a missing value counts as its mean; repeats are
averaged. The variance is that of the residuals, by item, on held-out groups.
"""

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, final

import numpy as np
import torch
from torch import Tensor

from efattn.data import Batch, Groups
from efattn.errors import DataError, option
from efattn.models import Conditionals
from efattn.simple.base import TOKENS, MeanAndVariance, Recipe, Setting, Tick, tuning_parts
from efattn.simple.correlations import between, distances, fit_units, geographic, item_attributes
from efattn.simple.effects import item_means, item_variances, observed

POWERS = (1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0)
RIDGES = tuple(float(a) for a in np.logspace(-7, 1, 33))  # times rows and the features' variance
LASSOS = tuple(np.logspace(-3, 0, 25).tolist())
NEW_PLACES = ("item_shift", "units", "rule")  # what inverse distance keeps for items that were never seen
NEAR = 1e-3  # of the usual distance
MOST = 2**28  # numbers in a table of features


class Examples(NamedTuple):
    """Of each scored row: what it sees, (row, cell), its residual and its item."""

    x: np.ndarray
    y: np.ndarray
    item: np.ndarray


class WeightedSum(MeanAndVariance):
    """normalised: the weights of what is there are made to sum to one."""

    normalised = False

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self.register_buffer("offset", torch.zeros(self.items + 1, dtype=torch.float64))
        self.register_buffer("variance", torch.ones(self.items + 1, dtype=torch.float64))
        self.register_buffer("weights", torch.zeros(self.items + 1, self.cells_in_all, dtype=torch.float64))

    @abstractmethod
    def fit_weights(self, groups: Groups, train: Groups, check: Groups, tick: Tick) -> None:
        """Set `offset` and `weights` from `groups`, choosing by a fit to `train` what is best on `check`."""

    @final
    def fit_moments(self, groups: Groups, held: Groups | None, tick: Tick) -> None:
        if not self.has_items:
            raise DataError(f"{type(self).__name__} has a weight for each item: pass {option('item')}.", option="item")
        train, check = tuning_parts(groups, held)
        self._set(mean=item_means(observed(groups, self.items, True), self.items))
        self.fit_weights(groups, train, check, tick)
        self._set(variance=torch.ones(self.items + 1))
        y, item, mean = self._residuals(check)
        self._set(variance=item_variances(y - mean, item, self.items))

    @final
    def moments(self, batch: Batch) -> tuple[Tensor, Tensor]:
        x, there = self.features(batch)
        item = self.cells(batch).item[:, : batch.length]
        weights = self.get_buffer("weights")[item]
        shift = (weights * x).sum(-1)
        if self.normalised:
            total = (weights * there).sum(-1)
            shift = torch.where(total > 0, shift / total.clamp_min(1e-300), 0.0)
        mean = self.get_buffer("mean")[item] + self.get_buffer("offset")[item] + shift
        return self.with_new(batch, mean, self.get_buffer("variance")[item])

    def with_new(self, batch: Batch, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        """The same, with what is known of items that were never seen."""
        return mean, variance

    @final
    def features(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """(batch, target, cell): the mean residual of what each row may see in each cell, and whether there is any."""
        cells, size = self.cells(batch), self.cells_in_all
        rest = torch.where(cells.seen, cells.y - self.get_buffer("mean")[cells.item], 0.0)
        seen = cells.visible(self.context).double()  # (batch, target, context)
        where = torch.nn.functional.one_hot(cells.index, size + 1)[..., :size].double()  # (batch, context, cell)
        count = seen @ where
        return seen @ (where * rest[..., None]) / count.clamp_min(1), (count > 0).double()

    @final
    def examples(self, groups: Groups) -> Examples:
        if groups.count * self.cells_in_all > MOST:
            raise DataError(
                f"{groups.count} rows times {self.cells_in_all} items and lags are too many for a regression per "
                "item: keep the most frequent items, or take GaussianConditional.",
                option="item",
            )
        pieces: list[list[np.ndarray]] = []
        for batch in groups.batches(TOKENS, context=self.context, dtype=torch.float64):
            cells, x = self.cells(batch), self.features(batch)[0]
            mean = self.get_buffer("mean")[cells.item]
            scored = self.targets(batch)
            here = [x, (cells.y - mean)[:, : batch.length], cells.item[:, : batch.length]]
            pieces.append([part[scored].numpy() for part in here])
        return Examples(*(np.concatenate(parts) for parts in zip(*pieces, strict=True)))

    @final
    def _residuals(self, groups: Groups) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """y, item and predicted mean of the scored rows."""
        data, value, target = observed(groups, self.items, True), groups.value, groups.target
        assert value is not None
        kept = ~np.isnan(value[:, 0]) & (True if target is None else target)
        return data.y, data.item, self.predictive(groups)[0][kept]


@final
@dataclass(frozen=True)
class RidgePerItem(Recipe):
    """Each item's value regressed on the others' of its group (past: on the earlier ones) and on lagged ones, with a
    ridge penalty chosen per item on held-out groups; a missing value counts as its item's mean."""

    models = "value"

    def build(self, setting: Setting) -> Conditionals:
        return RegressionPerItem(setting, "ridge")


@final
@dataclass(frozen=True)
class LassoPerItem(Recipe):
    """As RidgePerItem, with a lasso penalty."""

    models = "value"

    def build(self, setting: Setting) -> Conditionals:
        return RegressionPerItem(setting, "lasso")


@final
class RegressionPerItem(WeightedSum):
    """The penalty's strengths are relative to the one that leaves nothing (lasso) or to the data's (ridge)."""

    def __init__(self, setting: Setting, penalty: Literal["ridge", "lasso"]) -> None:
        super().__init__(setting)
        self.penalty = penalty
        self.strengths = RIDGES if penalty == "ridge" else LASSOS

    def fit_weights(self, groups: Groups, train: Groups, check: Groups, tick: Tick) -> None:
        learn, tell = self.examples(train), self.examples(check)
        every = learn if train is groups else self.examples(groups)
        weights, offset = np.zeros(self.get_buffer("weights").shape), np.zeros(self.items + 1)
        for item in range(self.items):
            tick(item, self.items)
            mine, theirs, all_ = (np.flatnonzero(part.item == item) for part in (learn, tell, every))
            if len(mine) < 3 or not np.any(learn.x[mine]):
                continue
            path = self._path(learn.x[mine], learn.y[mine])
            errors = [_error(fit, tell.x[theirs], tell.y[theirs]) for fit in path]
            best = int(np.argmin(errors)) if len(theirs) else 0
            chosen = path[best] if every is learn else self._path(every.x[all_], every.y[all_])[best]
            weights[item], offset[item] = chosen
        self._set(weights=weights, offset=offset)

    def _path(self, x: np.ndarray, y: np.ndarray) -> list[tuple[np.ndarray, float]]:
        """Coefficients and intercept for each strength, the strongest first."""
        strengths = np.sort(np.asarray(self.strengths))[::-1]
        centre, level = x.mean(0), y.mean()
        a, b = x - centre, y - level
        weights = [_ridge(a, b, s) for s in strengths] if self.penalty == "ridge" else list(_lasso(a, b, strengths))
        return [(w, float(level - centre @ w)) for w in weights]


def _error(fit: tuple[np.ndarray, float], x: np.ndarray, y: np.ndarray) -> float:
    return float(((y - fit[1] - x @ fit[0]) ** 2).mean()) if len(y) else 0.0


def _ridge(a: np.ndarray, b: np.ndarray, strength: float) -> np.ndarray:
    from sklearn.linear_model import Ridge

    scale = strength * len(a) * max(float(a.var()), 1e-12)
    return Ridge(alpha=scale, fit_intercept=False).fit(a, b).coef_


def _lasso(a: np.ndarray, b: np.ndarray, strengths: np.ndarray) -> np.ndarray:
    """(strength, cell)"""
    import warnings

    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import lasso_path

    most = float(np.abs(a.T @ b).max()) / len(a)
    if most <= 0:
        return np.zeros((len(strengths), a.shape[1]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        path: Any = lasso_path(a, b, alphas=strengths * most, tol=1e-3, max_iter=2000)
    return path[1].T


@final
@dataclass(frozen=True)
class InverseDistance(Recipe):
    """An item's mean plus the others' departures from theirs, weighted by distance to the power -p. power: p, None to
    choose it on held-out groups."""

    power: float | None = None
    models = "value"

    def build(self, setting: Setting) -> Conditionals:
        self.check_number("power", 0)
        return DistanceWeights(replace(setting, lags=0), self.power)


@final
class DistanceWeights(WeightedSum):
    normalised = True

    def __init__(self, setting: Setting, power: float | None) -> None:
        super().__init__(setting)
        self.power = power
        self.register_buffer("item_shift", torch.zeros(self.items + 1, dtype=torch.float64))
        self.register_buffer("units", torch.zeros(2, setting.attributes, dtype=torch.float64))
        # power, usual distance, whether on earth, variance at a new place
        self.register_buffer("rule", torch.zeros(4, dtype=torch.float64))

    def fit_weights(self, groups: Groups, train: Groups, check: Groups, tick: Tick) -> None:
        attributes = item_attributes(groups, self.items)
        if attributes is None:
            places = option("attributes", ["latitude", "longitude"])
            raise DataError(f"Inverse distances need the items' places: pass {places}.", option="attributes")
        distance = distances(attributes)
        apart = distance[distance > 0]
        usual = apart.median() if len(apart) else torch.ones(())
        distance = (distance / usual).clamp_min(NEAR)
        errors = {}
        for power in POWERS if self.power is None else (self.power,):
            self._set(weights=self._weights(distance, power))
            y, _, mean = self._residuals(check)
            errors[power] = float(((y - mean) ** 2).mean())
        power = min(errors, key=lambda power: errors[power])
        self._set(weights=self._weights(distance, power))
        x = torch.as_tensor(attributes)
        shift = np.zeros(self.items + 1) if groups.centres is None else groups.centres[:, 0]
        self._set(item_shift=shift, units=fit_units(x), rule=torch.tensor([power, usual, geographic(x), 0.0]))
        if power > 0:
            self._set(rule=torch.tensor([power, usual, geographic(x), self._new_variance(check)]))

    def _weights(self, distance: Tensor, power: float) -> Tensor:
        return torch.cat([distance**-power, torch.zeros(1, self.items, dtype=torch.float64)])

    def with_new(self, batch: Batch, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        cells = self.cells(batch)
        new = (cells.item[:, : batch.length] == self.items) & batch.exists[:, : batch.length]
        if not float(self.get_buffer("rule")[0]) or batch.attributes is None or not bool(new.any()):
            return mean, variance
        level, alone = self._weighed(batch)
        new = new & ~alone
        return torch.where(new, level, mean), torch.where(new, self.get_buffer("rule")[3], variance)

    def _weighed(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """(batch, length): the mean of all values that a row may see, by distance; and whether it sees none."""
        cells, n, (power, usual, earth, _) = self.cells(batch), batch.length, self.get_buffer("rule").tolist()
        assert batch.attributes is not None
        x = batch.attributes.double()
        near = (between(x[:, :n], x, self.get_buffer("units"), bool(earth)) / usual).clamp_min(NEAR) ** -power
        column = torch.arange(x.shape[1])
        may = (column < column[:n, None]) if self.context == "past" else (column != column[:n, None])
        weight = torch.where(may & (column < n) & cells.present[:, None], near, 0.0)
        total = weight.sum(-1)
        y = cells.y + self.get_buffer("item_shift")[cells.item]
        return (weight @ y[..., None])[..., 0] / total.clamp_min(1e-300), total == 0

    def _new_variance(self, groups: Groups) -> float:
        """The mean square of what known items are away from it."""
        total, count = 0.0, 0
        for batch in groups.batches(TOKENS, context=self.context, dtype=torch.float64):
            cells = self.cells(batch)
            level, alone = self._weighed(batch)
            y = (cells.y + self.get_buffer("item_shift")[cells.item])[:, : batch.length]
            kept = self.targets(batch) & ~alone
            total, count = total + float(((y - level)[kept] ** 2).sum()), count + int(kept.sum())
        return total / count if count else float(self.get_buffer("variance")[-1])


@final
@dataclass(frozen=True)
class Persistence(Recipe):
    """What the same item had a time step earlier; its mean where that is not known. Needs lags."""

    models = "value"

    def build(self, setting: Setting) -> Conditionals:
        if setting.lags < 1:
            raise DataError(f"Persistence looks one time step back: pass {option('lags', 1)}.", option="lags")
        return LastValues(setting)


@final
class LastValues(WeightedSum):
    def fit_weights(self, groups: Groups, train: Groups, check: Groups, tick: Tick) -> None:
        weights = torch.zeros(self.items + 1, self.cells_in_all)
        weights[: self.items, self.items : 2 * self.items] = torch.eye(self.items)
        self._set(weights=weights)
