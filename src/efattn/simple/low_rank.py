"""One Gaussian over thousands of items, of which a group has a few: a covariance of low rank and a noise per item.

    x ~ N(m, L L' + diag s^2),    fitted by variational Bayes (factors.py)

    posterior of a group's factors   A = I + sum_seen l l' / s^2,   z = A^-1 sum_seen l r / s^2
    without one row i                h = l' A^-1 l / s^2,   mean m + (l' z - h r) / (1 - h),   variance s^2 / (1 - h)

An item that was never seen has the factors of items in general: the effect of its group, and a larger variance.
"""

import time
from typing import final

import numpy as np
import torch
from torch import Tensor

from efattn.data import Batch, Groups
from efattn.simple import factors
from efattn.simple.base import TOKENS, MeanAndVariance, Setting, Tick, tuning_parts
from efattn.simple.conditioning import choose_tails, factored, told

RANK = 16  # factors to begin with; what explains nothing is dropped


@final
class LowRankGaussian(MeanAndVariance):
    """rank: factors at most; tails: degrees of freedom of a group's scale, None to choose them."""

    def __init__(self, setting: Setting, rank: int = RANK, tails: float | None = None, seconds: float = 60.0) -> None:
        super().__init__(setting)
        size = self.cells_in_all
        self.rank, self.asked, self.seconds = min(rank, max(size - 1, 1)), tails, seconds
        self.register_buffer("location", torch.zeros(size + 1, dtype=torch.float64))
        self.register_buffer("loadings", torch.zeros(size + 1, self.rank, dtype=torch.float64))
        self.register_buffer("noise", torch.ones(size + 1, dtype=torch.float64))
        self.register_buffer("tails", torch.zeros(1, dtype=torch.float64))

    def chosen_options(self) -> dict[str, float]:
        return {"tails": told(self.get_buffer("tails"))} if self.asked is None else {}

    def fit_moments(self, groups: Groups, held: Groups | None, tick: Tick) -> None:
        end = time.thread_time() + self.seconds
        self._set(tails=0.0 if self.asked is None else self.asked)
        if self.asked is None:
            train, check = tuning_parts(groups, held)
            tick(0, 2)
            self._learn(train, end)
            choose_tails(self, check)
            if train is groups:
                return
        tick(1, 2)
        self._learn(groups, end + self.seconds)

    def _learn(self, groups: Groups, end: float) -> None:
        found = factors.fit(self._entries(groups), self.rank, end)
        loadings = np.zeros(self.get_buffer("loadings").shape)
        loadings[:, : found.loadings.shape[1]] = found.loadings
        own, noise = np.append(found.mean[: self.items], found.mean[-1]), found.noise
        if groups.centres is not None:
            noise[-1] += np.var(groups.centres[:-1, 0])
        self._set(mean=own, location=found.mean, loadings=loadings, noise=noise)

    def _entries(self, groups: Groups) -> factors.Entries:
        """What was seen of known items, in groups that have a target."""
        parts, size, before = list[tuple[np.ndarray, ...]](), self.cells_in_all, 0
        for batch in groups.batches(TOKENS, dtype=torch.float64):
            cells = self.cells(batch)
            seen = cells.seen & (cells.index < size) & batch.target.any(1, keepdim=True)
            row = torch.arange(len(seen))[:, None].expand(seen.shape) + before
            parts.append(tuple(x[seen].numpy() for x in (row, cells.index, cells.y)))
            before += len(seen)
        of, column, y = (np.concatenate(x) for x in zip(*parts, strict=True))
        there, number = np.unique(of, return_inverse=True)
        block = np.repeat(np.arange(self.lags + 1), self.items)
        return factors.Entries(number, column, y, len(there), size, block)

    def moments(self, batch: Batch) -> tuple[Tensor, Tensor]:
        cells, n = self.cells(batch), batch.length
        turn = torch.cat([torch.arange(n, cells.index.shape[1]), torch.arange(n)])  # earlier groups first
        current = torch.arange(cells.index.shape[1]) < n  # of earlier groups an unknown item tells nothing
        index, seen = cells.index[:, turn], (cells.seen | (cells.present & current))[:, turn]
        used = self.get_buffer("loadings")
        used = used[:, : max(int((used.abs().sum(0) > 0).sum()), 1)]
        mean = self.get_buffer("location")[index]
        rest = torch.where(seen, cells.y[:, turn] - mean, 0.0)
        found = factored(used[index], self.get_buffer("noise")[index], rest, seen, n, self.context)
        return mean[:, -n:] + found.shift, found.scaled(self.get_buffer("tails"))
