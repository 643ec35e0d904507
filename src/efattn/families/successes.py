"""Successes of as many trials as a row has: its exposure says how many. Their share may vary more than chance lets it.

    y ~ Binomial(n, p),  p ~ Beta(m k, (1 - m) k):
    log p(y) = log C(n, y) + log B(y + m k, n - y + (1 - m) k) - log B(m k, (1 - m) k)

f = (logit m, log k, log n): mean share m, concentration k, and log n, to which the logarithm of the exposure is added
and of which nothing is learnt. Without an exposure n is 1.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch.nn.functional import logsigmoid

from efattn.families.base import Family, to_numpy
from efattn.families.dispersion import Dispersion, check_dispersion, log_dispersion
from efattn.families.marginal import average, maximise, observed
from efattn.families.moments import LEAST, log, logit
from efattn.families.stable import bounded, log_standard_gamma, pick, precise, precisely
from efattn.families.supports import WholeNumbers

MEAN_BOUND, CONCENTRATION_BOUND = 12.0, 10.0  # log Gamma of tiny and of huge numbers cancels
MOST_LOG = 16.0  # of the number of trials, which single precision tells apart up to there
CLOSE = 1e-5  # of it: what its logarithm is rounded by
EXACT = 2000  # trials, up to which probabilities are summed; of more, a beta law with the same moments says as much
IMPOSSIBLE = -1e4  # of more successes than trials: a number, so that one such row does not hide all others
CELLS = 2**22  # probabilities at a time


@final
@dataclass(frozen=True)
class Successes(Family):
    """0, 1, ..., n successes of n trials, where n is the row's exposure. concentration: how little the share of
    successes varies besides (infinite: a binomial law); the second output, where there is one, is its logarithm."""

    concentration: Dispersion = "learned"
    name: ClassVar[str] = "successes"
    discrete = True
    support = WholeNumbers(0)
    known_outputs = 1

    def __post_init__(self) -> None:
        check_dispersion("Successes", "concentration", self.concentration)

    @classmethod
    def examples(cls) -> "tuple[Successes, ...]":
        return cls(), cls(concentration=6.0), cls(concentration="predicted")

    @property
    def exposures(self) -> tuple[int, ...]:
        return (self.size - 1,)

    @property
    def shared(self) -> tuple[bool, ...]:
        return (False, *([self.concentration == "learned"] if isinstance(self.concentration, str) else []), True)

    @property
    def dispersions(self) -> tuple[bool, ...]:
        return (*self.shared[:-1], False)

    @precisely
    def log_prob(self, f: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        n = self._trials(f)
        n = torch.where((y > n) & (y <= n * (1 + CLOSE)), y, n)
        left = (n - y).clamp_min(0)
        a, b = self._counts(f)
        ways = torch.lgamma(n + 1) - torch.lgamma(y + 1) - torch.lgamma(left + 1)
        return torch.where(y <= n, ways + _log_beta(y + a, left + b) - _log_beta(a, b), IMPOSSIBLE)

    def mean(self, f: torch.Tensor) -> torch.Tensor:
        return self._trials(f) * bounded(f[..., 0], MEAN_BOUND).sigmoid()

    def variance(self, f: torch.Tensor) -> torch.Tensor:
        n, k = self._trials(f), log_dispersion(self.concentration, f, CONCENTRATION_BOUND).exp()
        logit = bounded(f[..., 0], MEAN_BOUND)
        return n * logit.sigmoid() * (-logit).sigmoid() * (k + n) / (k + 1)

    def sample(self, f: torch.Tensor, generator: torch.Generator | None = None) -> torch.Tensor:
        exact = precise(f.detach())
        a, b = self._counts(exact)
        p = (log_standard_gamma(a, generator) - log_standard_gamma(b, generator)).sigmoid()
        return torch.binomial(self._trials(exact).expand_as(p).contiguous(), p, generator=generator).to(f.dtype)

    def cdf(self, f: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        shape = torch.broadcast_shapes(f.shape[:-1], y.shape)
        at = precise(y.detach()).expand(shape).reshape(-1).floor()
        found = torch.empty_like(at)
        for rows, few in self._pieces(f, shape):
            if few is None:
                found[rows] = self._roughly(f, shape, rows, at[rows])
            else:
                below = torch.nn.functional.pad(few, (1, 0))
                found[rows] = pick(below, (at[rows] + 1).clamp(0, below.shape[-1] - 1))
        return found.reshape(shape).to(f.dtype)

    def quantile(self, f: torch.Tensor, p: float | torch.Tensor) -> torch.Tensor:
        levels = precise(torch.as_tensor(p, dtype=torch.float64, device=f.device))
        shape = torch.broadcast_shapes(f.shape[:-1], levels.shape)
        levels = levels.expand(shape).reshape(-1)
        found = torch.empty_like(levels)
        for rows, few in self._pieces(f, shape):
            if few is None:
                found[rows] = self._roughly(f, shape, rows, levels[rows], inverse=True)
            else:
                found[rows] = (few < levels[rows, None]).sum(-1).double()
        return torch.minimum(found, self._trials(self._flat(f, shape))).reshape(shape).to(f.dtype)

    def start(self, y: torch.Tensor, weight: torch.Tensor | None = None) -> torch.Tensor:
        rows, weights = observed(y, weight)
        if not len(rows):
            return rows.new_zeros(self.size)
        most = rows.max().clamp_min(1.0)
        return self._fitted(rows, most.expand_as(rows), weights, most.log())

    def exposed_start(
        self, y: torch.Tensor, exposure: torch.Tensor, weight: torch.Tensor | None = None
    ) -> torch.Tensor:
        """The f that fits best when the logarithm of each row's exposure is added."""
        both = torch.stack([precise(y), precise(exposure).expand_as(y)], -1)
        rows, weights = observed(both, weight, 2)
        if not len(rows):
            return rows.new_zeros(self.size)
        return self._fitted(rows[:, 0], torch.maximum(rows[:, 1], rows[:, 0]), weights, rows.new_zeros(()))

    def from_moments(self, mean: torch.Tensor, variance: torch.Tensor, start: torch.Tensor) -> torch.Tensor:
        """Of as many trials as the start has."""
        start = start.to(mean)
        n = self._trials(start)
        share = (mean / n).clamp(LEAST, 1 - LEAST)
        ratio = variance / (n * share * (1 - share))
        log_k = log(n - ratio) - log(ratio - 1)
        log_k = torch.where(n > 1, log_k.clamp(-CONCENTRATION_BOUND, CONCENTRATION_BOUND), start[1])
        several = [logit(share), log_k][: self.size - 1]
        return torch.stack([*several, start[-1].expand_as(share)], -1)

    def _fitted(self, y: torch.Tensor, trials: torch.Tensor, weights: torch.Tensor, last: torch.Tensor) -> torch.Tensor:
        """The best f of rows with so many trials; last: its last output."""
        share = (average(y, weights) + 0.5 / len(y)) / (average(trials, weights) + 1 / len(y))
        guess = torch.stack([share.clamp(1e-6, 1 - 1e-6).logit(), y.new_full((), 2.0)][: self.size - 1])

        def objective(f: torch.Tensor) -> torch.Tensor:
            whole = torch.cat([f.expand(len(y), -1), trials.log()[:, None]], -1)
            return average(self.log_prob(whole, y), weights)

        return torch.cat([maximise(objective, guess), last.reshape(1)])

    def _trials(self, f: torch.Tensor) -> torch.Tensor:
        return f[..., -1].detach().clamp(0, MOST_LOG).exp().round()

    def _counts(self, f: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """a and b of the law of the share"""
        logit = bounded(f[..., 0], MEAN_BOUND)
        log_k = log_dispersion(self.concentration, f, CONCENTRATION_BOUND)
        return (logsigmoid(logit) + log_k).exp(), (logsigmoid(-logit) + log_k).exp()

    def _flat(self, f: torch.Tensor, shape: torch.Size) -> torch.Tensor:
        return precise(f.detach()).expand(*shape, f.shape[-1]).reshape(-1, f.shape[-1])

    def _pieces(self, f: torch.Tensor, shape: torch.Size) -> Iterator[tuple[torch.Tensor, torch.Tensor | None]]:
        """Rows that have few trials, a piece at a time, with P(Y <= 0), P(Y <= 1), ...; those that have many."""
        every = self._flat(f, shape)
        trials = self._trials(every)
        order = trials.argsort()
        small = order[trials[order] <= EXACT]
        while len(small):
            longest = int(trials[small[min(len(small), max(CELLS // EXACT, 1)) - 1]]) + 1
            rows, small = small[: max(CELLS // longest, 1)], small[max(CELLS // longest, 1) :]
            longest = int(trials[rows[-1]]) + 1
            steps = torch.arange(longest, dtype=every.dtype, device=every.device)
            below = self.log_prob(every[rows, None], steps).exp().cumsum(-1)
            yield rows, torch.where(steps >= trials[rows, None], 1.0, below)
        many = order[trials[order] > EXACT]
        if len(many):
            yield many, None

    def _roughly(
        self, f: torch.Tensor, shape: torch.Size, rows: torch.Tensor, at: torch.Tensor, inverse: bool = False
    ) -> torch.Tensor:
        """Of many trials: by the beta law whose mean and variance the share has."""
        from scipy.special import betainc, betaincinv

        mine = self._flat(f, shape)[rows]
        n, mean = self._trials(mine), bounded(mine[:, 0], MEAN_BOUND).sigmoid()
        k = n**2 * mean * (1 - mean) / self.variance(mine) - 1
        a, b = to_numpy(mean * k), to_numpy((1 - mean) * k)
        if inverse:
            return (n * torch.as_tensor(betaincinv(a, b, to_numpy(at))) - 0.5).ceil().clamp_min(0)
        share = torch.as_tensor(betainc(a, b, to_numpy(((at + 0.5) / n).clamp(0, 1))))
        return torch.where(at < 0, 0.0, torch.where(at >= n, 1.0, share))


def _log_beta(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.lgamma(a) + torch.lgamma(b) - torch.lgamma(a + b)
