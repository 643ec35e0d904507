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
from efattn.simple.conditioning import choose_tails, conditioned, misfit, told
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


class Law(NamedTuple):
    """earth: by great circles."""

    earth: bool
    smoothness: float


class Found(NamedTuple):
    """misfit: minus the log-likelihood."""

    misfit: float
    numbers: Numbers
    law: Law


class Pairs(NamedTuple):
    """Of pairs of rows (batch, row, row): squares of distances, one on earth, else of each attribute; lags between."""

    squares: list[Tensor]
    gap: Tensor | None


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
        found = self._learn(train, tick, end)
        if check is not None:
            choose_tails(self, check)
        if train is not groups:
            self._learn(groups, tick, end + self.seconds / 2, found)

    # ---- what it says

    def moments(self, batch: Batch) -> tuple[Tensor, Tensor]:
        points, n = self._points(batch), batch.length
        turn = torch.cat([torch.arange(n, batch.exists.shape[1]), torch.arange(n)])  # earlier groups first
        centre, scale = self.get_buffer("scale")
        points = points.at(turn)
        mean, k = self._law(points, self._pairs(points), self._numbers(), float(self.get_buffer("smoothness")))
        seen = points.seen
        rest = torch.where(seen, (points.y - centre) / scale - mean, 0.0)
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

    def _pairs(self, points: Points) -> Pairs:
        units, gap = self.get_buffer("units"), None
        if bool(self.get_buffer("earth")):
            squares = [between(points.x, points.x, units, True) ** 2]
        else:
            z = (points.x - units[0]) / units[1]
            squares = [(x[:, :, None] - x[:, None]) ** 2 for x in z.unbind(-1)]
        if self.lags:
            gap = (points.lag[:, :, None] - points.lag[:, None]).abs()
        return Pairs(squares, gap)

    def _law(self, points: Points, pairs: Pairs, given: Numbers, smoothness: float) -> tuple[Tensor, Tensor]:
        """Mean (batch, row) and covariance (batch, row, row), standardised."""
        units, gap = self.get_buffer("units"), pairs.gap
        z = (points.x - units[0]) / units[1]
        given = Numbers(*(part.clamp(-FAR, FAR) for part in given))
        each = zip(pairs.squares, (-2 * given.lengths).exp(), strict=False)
        square = sum((far * shrunk for far, shrunk in each), start=torch.full((), 1e-24).double())
        signal, noise, common = given.parts.exp()
        group = common + (z * given.slopes.exp()) @ z.mT
        if gap is not None:
            t, u = given.times.exp()
            group, square = group * (-gap / u).exp(), square + (gap / t) ** 2
        distance = square.sqrt()  # never of 0, where it has no gradient
        alone = noise + SAFE * signal  # so that rows at one place are no singular matrix
        k = group + signal * matern(distance, smoothness) + alone * torch.eye(z.shape[1], dtype=torch.float64)
        return given.drift[0] + z @ given.drift[1:], k

    # ---- how it is fitted

    def _learn(self, groups: Groups, tick: Tick, end: float, known: Found | None = None) -> Found:
        """known: what other groups had, whose law is kept. Each law is looked for near the best so far."""
        value, attributes = groups.value, groups.attributes
        assert value is not None
        assert attributes is not None
        x, y = torch.as_tensor(attributes).double(), value[:, 0]
        units = fit_units(x)
        self._set(units=units, scale=np.array([np.nanmean(y), np.nanstd(y) or 1.0]))
        self._set(mean=np.full(self.items + 1, np.nanmean(y)))
        batches = [self._thin(self._points(batch)) for batch in _some(groups, self.lags)]
        found = list[Found]()
        plans = [Law(earth, 0.5) for earth in ((True, False) if geographic(x) else (False,))]
        if known is not None:
            plans = [known.law]
        while plans and (not found or time.thread_time() < end):
            tick(len(found), 4)
            law = plans.pop(0)
            self._set(earth=float(law.earth))
            usual = self._start(x, units, law.earth)
            near = usual if known is None else known.numbers
            if law.smoothness != 0.5 and known is None:
                near = _best(found).numbers
            found.append(self._maximise(batches, usual, near, law, end))
            if not plans and known is None and law.smoothness == 0.5:
                plans = [Law(_best(found).law.earth, 1.5), Law(_best(found).law.earth, 2.5)]
        best = _best(found)
        self._set(**best.numbers._asdict(), smoothness=best.law.smoothness, earth=float(best.law.earth))
        return best

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

    def _maximise(self, batches: list[Points], usual: Numbers, near: Numbers, law: Law, end: float) -> Found:
        """usual: what a prior draws to; near: where to begin."""
        free = [part.clone().requires_grad_() for part in near]
        optimiser = torch.optim.LBFGS(free, max_iter=STEPS, tolerance_change=1e-7, line_search_fn="strong_wolfe")
        count = max(sum(float(points.seen.expand(points.y.shape).sum()) for points in batches), 1.0)
        known, least = [(points, self._pairs(points)) for points in batches], math.inf

        def misfit_at(numbers: Numbers) -> Tensor:
            return torch.stack([self._misfit(*one, numbers, law.smoothness) for one in known]).sum()

        def closure() -> Tensor:
            nonlocal least
            optimiser.zero_grad()
            bound = Numbers(*free)
            away = [((x - x0) / PRIOR) ** 2 for x, x0 in zip(bound[:4], usual[:4], strict=True)]
            value = (misfit_at(bound) + torch.cat(away).sum() / 2 + 0.005 * (bound.drift**2).sum()) / count
            value.backward()
            least = min(least, float(value.detach()))
            return value

        try:
            with torch.enable_grad():
                for _ in range(ROUNDS):
                    last = least
                    optimiser.step(closure)
                    if time.thread_time() > end or not last - least > 1e-5:
                        break
            best = Numbers(*(part.detach() for part in free))
            if all(bool(part.isfinite().all()) for part in best):
                return Found(float(misfit_at(best)), best, law)
        except torch.linalg.LinAlgError:  # a step too far
            pass
        return Found(math.inf, near, law)

    def _misfit(self, points: Points, pairs: Pairs, given: Numbers, smoothness: float) -> Tensor:
        """Minus the log-likelihood, less its constant."""
        mean, k = self._law(points, pairs, given, smoothness)
        seen = points.seen
        both = seen[:, :, None] & seen[:, None]
        rest = torch.where(seen, points.y - mean, 0.0)  # (group, row), of one matrix or each of its own
        return misfit(torch.where(both, k, 0.0) + torch.diag_embed((~seen).double()), rest)


def _best(found: list[Found]) -> Found:
    return min(found, key=lambda one: one.misfit)


def _some(groups: Groups, lags: int) -> list[Batch]:
    """Groups at random, as many as can be looked at often."""
    order = np.random.default_rng(0).permutation(len(groups))
    size = np.minimum(groups.lengths * (lags + 1), ROWS).astype(float)[order]
    number = max(int(np.searchsorted(np.cumsum(size**3), WORK)), 1)
    return list(groups.subset(np.sort(order[:number])).batches(TOKENS // 4, dtype=torch.float64))
