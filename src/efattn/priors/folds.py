"""Cross-fitting: what a simple model says about a group that it was fitted without.

Groups are cut into folds, at random, or with lags into stretches of time; a group whose lags lie in a fold is no part
of the fit without that fold either, so that a group's own values never reach the fit that speaks about it.
"""

from collections.abc import Callable, Sequence
from typing import final

import numpy as np
import torch
from torch import Tensor

from efattn.data import Batch, Groups
from efattn.models import Offset

FOLDS = 5
MOST = 2**26  # numbers that are kept


def folds(groups: Groups, number: int = FOLDS, seed: int = 0) -> np.ndarray:
    """(group,): the fold of each group of this part."""
    count = len(groups)
    if groups.lagged is not None and groups.time is not None:
        order = np.argsort(groups.time[groups.numbers], kind="stable")
    else:
        order = np.random.default_rng(seed).permutation(count)
    found = np.empty(count, np.int64)
    found[order] = np.arange(count) * min(number, count) // max(count, 1)
    return found


def without(groups: Groups, fold: np.ndarray, k: int) -> Groups:
    """The groups outside of a fold that see nothing of it."""
    kept = fold != k
    if groups.lagged is not None:
        away = groups.numbers[fold == k]
        kept &= ~np.isin(groups.lagged[groups.numbers], away).any(1)
    return groups.subset(kept)


@final
class CrossFitted:
    """The offsets of training groups, each from the fit without its fold. fit: from groups to an offset."""

    def __init__(self, groups: Groups, fit: Callable[[Groups], Offset]) -> None:
        self.groups, self.size = groups, int(groups.rows.max(initial=-1)) + 1
        fold = folds(groups)
        parts = [without(groups, fold, k) for k in range(int(fold.max(initial=-1)) + 1)]
        self.offsets: Sequence[Offset] = [fit(part) for part in parts]
        self.fold = np.zeros(int(groups.numbers.max(initial=-1)) + 1, np.int64)
        self.fold[groups.numbers] = fold
        self.kept: Tensor | None = None

    def __call__(self, pieces: np.ndarray, batch: Batch) -> Tensor:
        """(batch, length, size): of each row, in the order of the pieces."""
        family = self.offsets[0].family
        if self.size * family.size > MOST:
            return self._fresh(pieces, batch)
        if self.kept is None:
            self.kept = torch.zeros(self.size, family.size)
            for mine in self.groups.plan(16_384):
                here = self.groups.batch(mine, self.offsets[0].prior.context)
                assert here.rows is not None
                there = here.rows >= 0
                self.kept[here.rows[there]] = self._fresh(mine, here)[there]
        assert batch.rows is not None
        return self.kept[batch.rows.clamp_min(0)]

    def _fresh(self, pieces: np.ndarray, batch: Batch) -> Tensor:
        of = torch.as_tensor(self.fold[self.groups.pieces.group[pieces]])
        slots = torch.arange(batch.length).expand(len(of), -1)
        found = torch.zeros(len(of), batch.length, self.offsets[0].family.size)
        for k in of.unique().tolist():
            mine = of == k
            found[mine] = self.offsets[k](batch.select(mine), slots[mine]).float()
        return found
