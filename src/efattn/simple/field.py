"""Kriging of rows that have attributes and no item: a Gaussian process over the rows of each group.

    y = b . (1, z) + f_g(x) + e,    e ~ N(0, n)

    Cov(f(x), f(x')) = (c + sum_k b_k z_k z_k') exp(-|a - a'| / u) + s M(r),    r^2 = d^2 + (|a - a'| / t)^2

z are the attributes in units of their spread; d the great-circle distance of latitude and longitude over a length, or
each attribute over a length of its own, as the likelihood has it; a, a' lags. c and b_k are a constant and slopes that
each group has for itself: with wide variances this is universal kriging, which is ordinary kriging without slopes. All
numbers maximise the likelihood of the groups, under priors that hardly matter; smoothness is 1/2, 3/2 or 5/2.
"""

import math
import time
from typing import NamedTuple, final

import numpy as np
import torch
from torch import Tensor

from efattn.data import Batch, Groups
from efattn.errors import DataError, option
from efattn.simple.base import TOKENS, MeanAndVariance, Setting, Tick, tuning_parts
from efattn.simple.conditioning import choose_tails, conditioned, told
from efattn.simple.correlations import between, fit_units, geographic, matern

WORK, ROWS = 3e7, 250  # cubes of rows in one look at the likelihood, and rows of a group in it
START = {"signal": -0.7, "noise": -1.6, "common": -1.0, "slopes": -2.5, "lengths": -0.5, "times": 0.7}
PRIOR = 2.0  # standard deviation of a logarithm
FAR, SAFE = 17.0, 1e-6
STEPS, ROUNDS = 10, 6


class Numbers(NamedTuple):
    """Logarithms of s, n, c (3,), b_k (attribute,), lengths (attribute,), t and u (2,); drift b (1 + attribute,). On
    earth only the first length counts."""

    parts: Tensor
    slopes: Tensor
    lengths: Tensor
    times: Tensor
    drift: Tensor


class Points(NamedTuple):
    """Rows of a batch: x (batch, row, attribute), lag (batch, row), y, seen."""

    x: Tensor
    lag: Tensor
    y: Tensor
    seen: Tensor

    def at(self, columns: Tensor) -> "Points":
        return Points(*(part[:, columns] for part in self))


@final
class FieldOverRows(MeanAndVariance):
    def __init__(self, setting: Setting, tails: float | None = None, seconds: float = 20.0) -> None:
        super().__init__(setting)
        self.asked, self.seconds, a = tails, seconds, setting.attributes
        sizes = {"parts": 3, "slopes": a, "lengths": a, "times": 2, "drift": a + 1}
        for name, size in sizes.items():
            self.register_buffer(name, torch.zeros(size, dtype=torch.float64))
        self.register_buffer("units", torch.ones(2, a, dtype=torch.float64))
        self.register_buffer("earth", torch.zeros(1, dtype=torch.float64))  # 1: latitude and longitude
        self.register_buffer("smoothness", torch.full((1,), 0.5, dtype=torch.float64))
        self.register_buffer("tails", torch.zeros(1, dtype=torch.float64))
        self.register_buffer("scale", torch.tensor([0.0, 1.0], dtype=torch.float64))

    def chosen_options(self) -> dict[str, float]:
        return {"tails": told(self.get_buffer("tails"))} if self.asked is None else {}

    def fit_moments(self, groups: Groups, held: Groups | None, tick: Tick) -> None:
        end = time.thread_time() + self.seconds
        self._set(tails=0.0 if self.asked is None else self.asked)
        train, check = tuning_parts(groups, held) if self.asked is None else (groups, None)
        self._learn(train, tick, end)
        if check is not None:
            choose_tails(self, check)
        if train is not groups:
            law = bool(self.get_buffer("earth")), float(self.get_buffer("smoothness"))
            self._learn(groups, tick, end + self.seconds / 2, law)

    # ---- what it says

    def moments(self, batch: Batch) -> tuple[Tensor, Tensor]:
        points, n = self._points(batch), batch.length
        turn = torch.cat([torch.arange(n, batch.exists.shape[1]), torch.arange(n)])  # earlier groups first
        centre, scale = self.get_buffer("scale")
        mean, k = self._law(points.at(turn), self._numbers(), float(self.get_buffer("smoothness")))
        seen = points.seen[:, turn]
        rest = torch.where(seen, (points.y[:, turn] - centre) / scale - mean, 0.0)
        found = conditioned(k, rest, seen, n, self.context)
        return centre + scale * (mean[:, -n:] + found.shift), scale**2 * found.scaled(self.get_buffer("tails"))

    def _numbers(self) -> Numbers:
        return Numbers(*(self.get_buffer(name) for name in Numbers._fields))

    def _points(self, batch: Batch) -> Points:
        if batch.attributes is None:
            raise DataError(
                f"This model was fitted with attributes, and the data have none: pass {option('attributes')}.",
                option="attributes",
            )
        cells = self.cells(batch)
        x = torch.where(batch.exists[..., None], batch.attributes.double(), self.get_buffer("units")[0])
        return Points(x, cells.lag.double(), cells.y, cells.present)

    def _law(self, points: Points, given: Numbers, smoothness: float) -> tuple[Tensor, Tensor]:
        """Mean (batch, row) and covariance (batch, row, row), standardised."""
        units, earth = self.get_buffer("units"), bool(self.get_buffer("earth"))
        z = (points.x - units[0]) / units[1]
        given = Numbers(*(part.clamp(-FAR, FAR) for part in given))
        lengths = given.lengths.exp()
        distance = between(points.x, points.x, units, earth) / lengths[0] if earth else _apart(z / lengths)
        signal, noise, common = given.parts.exp()
        group = common + (z * given.slopes.exp()) @ z.mT
        if self.lags:
            gap = (points.lag[:, :, None] - points.lag[:, None]).abs()
            t, u = given.times.exp()
            group, distance = group * (-gap / u).exp(), (distance**2 + (gap / t) ** 2 + 1e-24).sqrt()
        alone = noise + SAFE * signal  # so that rows at one place are no singular matrix
        k = group + signal * matern(distance, smoothness) + alone * torch.eye(z.shape[1], dtype=torch.float64)
        return given.drift[0] + z @ given.drift[1:], k

    # ---- how it is fitted

    def _learn(self, groups: Groups, tick: Tick, end: float, known: tuple[bool, float] | None = None) -> None:
        value, attributes = groups.value, groups.attributes
        assert value is not None
        assert attributes is not None
        x, y = torch.as_tensor(attributes).double(), value[:, 0]
        units = fit_units(x)
        self._set(units=units, scale=np.array([np.nanmean(y), np.nanstd(y) or 1.0]))
        self._set(mean=np.full(self.items + 1, np.nanmean(y)))
        batches = [self._thin(self._points(batch)) for batch in _some(groups, self.lags)]
        found = list[tuple[float, Numbers, bool, float]]()
        plans = [(earth, 0.5) for earth in ((True, False) if geographic(x) else (False,))] if known is None else [known]
        while plans and (not found or time.thread_time() < end):
            tick(len(found), 4)
            earth, smoothness = plans.pop(0)
            self._set(earth=float(earth))
            found.append((*self._maximise(batches, self._start(x, units, earth), smoothness, end), earth, smoothness))
            if not plans and known is None and smoothness == 0.5:
                earth = min(found, key=lambda one: one[0])[2]
                plans = [(earth, 1.5), (earth, 2.5)]
        _, best, earth, smoothness = min(found, key=lambda one: one[0])
        self._set(**best._asdict(), smoothness=smoothness, earth=float(earth))

    def _start(self, x: Tensor, units: Tensor, earth: bool) -> Numbers:
        few = x[torch.linspace(0, len(x) - 1, min(len(x), 200)).long()]
        apart = between(few, few, units, earth)
        apart = apart[apart > 0]
        usual = math.log(float(apart.median())) if len(apart) else 0.0
        a = x.shape[1]
        logs = [START["signal"], START["noise"], START["common"]]
        made = (logs, [START["slopes"]] * a, [START["lengths"] + usual] * a, [START["times"]] * 2, [0.0] * (a + 1))
        return Numbers(*(torch.tensor(part, dtype=torch.float64) for part in made))

    def _thin(self, points: Points) -> Points:
        """Standardised, a part of the rows where there are many, and x, lag and seen once where groups are alike."""
        centre, scale = self.get_buffer("scale")
        points = points._replace(y=torch.where(points.seen, (points.y - centre) / scale, 0.0))
        rows = points.x.shape[1]
        if rows > ROWS:
            points = points.at(torch.as_tensor(np.sort(np.random.default_rng(0).permutation(rows)[:ROWS])))
        parts = (points.x, points.lag, points.seen)
        if all(bool((part == part[:1]).all()) for part in parts):  # the same places in every group: one matrix
            return Points(points.x[:1], points.lag[:1], points.y, points.seen[:1])
        return points

    def _maximise(self, batches: list[Points], start: Numbers, smoothness: float, end: float) -> tuple[float, Numbers]:
        free = [part.clone().requires_grad_() for part in start]
        optimiser = torch.optim.LBFGS(free, max_iter=STEPS, tolerance_change=1e-7, line_search_fn="strong_wolfe")
        count = max(sum(float(points.seen.expand(points.y.shape).sum()) for points in batches), 1.0)

        def closure() -> Tensor:
            optimiser.zero_grad()
            bound = Numbers(*free)
            total = sum((self._misfit(points, bound, smoothness) for points in batches), start=torch.zeros(()).double())
            away = [((x - x0) / PRIOR) ** 2 for x, x0 in zip(bound[:4], start[:4], strict=True)]
            value = (total + torch.cat(away).sum() / 2 + 0.005 * (bound.drift**2).sum()) / count
            value.backward()
            return value

        last = math.inf
        with torch.enable_grad():
            for _ in range(ROUNDS):
                try:
                    value = float(optimiser.step(closure).detach())
                except torch.linalg.LinAlgError:  # a step too far
                    return math.inf, start
                if time.thread_time() > end or not last - value > 1e-5:
                    break
                last = value
        best = Numbers(*(part.detach() for part in free))
        if not all(bool(part.isfinite().all()) for part in best):
            return math.inf, start
        with torch.no_grad():
            return float(sum(self._misfit(points, best, smoothness) for points in batches)), best

    def _misfit(self, points: Points, given: Numbers, smoothness: float) -> Tensor:
        """Minus the log-likelihood, less its constant."""
        mean, k = self._law(points, given, smoothness)
        seen = points.seen
        both = seen[:, :, None] & seen[:, None]
        factor = torch.linalg.cholesky(torch.where(both, k, 0.0) + torch.diag_embed((~seen).double()))
        rest = torch.where(seen, points.y - mean, 0.0)  # (group, row), of one matrix or each of its own
        z = torch.linalg.solve_triangular(factor, rest.T[None] if len(factor) == 1 else rest[..., None], upper=False)
        return (z**2).sum() / 2 + factor.diagonal(dim1=1, dim2=2).log().sum() * (len(rest) / len(factor))


def _apart(z: Tensor) -> Tensor:
    """Euclidean distances, with a gradient where they are 0."""
    square = ((z[:, :, None] - z[:, None]) ** 2).sum(-1)
    return (square + 1e-24).sqrt()


def _some(groups: Groups, lags: int) -> list[Batch]:
    """Groups at random, as many as can be looked at often."""
    order = np.random.default_rng(0).permutation(len(groups))
    size = np.minimum(groups.lengths * (lags + 1), ROWS).astype(float)[order]
    number = max(int(np.searchsorted(np.cumsum(size**3), WORK)), 1)
    return list(groups.subset(np.sort(order[:number])).batches(TOKENS // 4, dtype=torch.float64))
