"""Draws from a simple fitted model to train on: the same cells, with new values or new items.

    values   all cells of a group and of its lags together; whole where the family's are, within the range of the data
    items    a whole epoch at once, since one group at a time is slow; lagged items stay

A draw is made by seed, epoch and batch, so that the same step always sees the same.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, Protocol, final, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from efattn.data import Batch, Groups
from efattn.errors import DataError
from efattn.families import Gaussian, Product
from efattn.models import Conditionals
from efattn.priors.items import AdditiveItems, draw_items

POOL = 2**24  # numbers that a batch of the pool may take: groups times cells times items
SWEEPS = 2  # of Gibbs sampling, from a start drawn in order


@runtime_checkable
class Drawing(Protocol):
    def draw(self, batch: Batch, generator: torch.Generator | None = None) -> Batch: ...


@final
class Draws:
    """prior: fitted to values or items; data: the groups whose cells are filled; family: of the term that is trained.
    scale, shift (items + 1,): the prior's values are scale times the term's, plus a shift for each item."""

    def __init__(
        self, prior: Conditionals, data: Groups, family: Any, scale: Tensor | None = None, shift: Tensor | None = None
    ) -> None:
        if not prior.of_items and not isinstance(prior, Drawing):
            raise DataError(
                f"{type(prior).__name__} gives means and variances of single rows, and cannot draw a group. Use "
                "prior_use='offset', or prior='gaussian'."
            )
        self.prior, self.data, self.scale, self.shift = prior, data, scale, shift
        self.pool: tuple[tuple[int, int], np.ndarray] | None = None
        part = family.parts[0] if isinstance(family, Product) else family
        self.whole, self.range = bool(part.discrete), None
        value = data.value
        if not prior.of_items and value is not None and not isinstance(part, Gaussian):
            self.range = (float(np.nanmin(value)), float(np.nanmax(value)))

    def batch(self, real: Batch, seed: int, epoch: int, number: int) -> Batch:
        """The batch with other values or items."""
        if self.prior.of_items:
            return self._with_items(real, seed, epoch)
        assert isinstance(self.prior, Drawing)
        drawn = self.prior.draw(real, _generator((seed, epoch, number)))
        value, observed = drawn.value, drawn.observed
        assert value is not None
        assert observed is not None
        if self.scale is not None and self.shift is not None:
            at = torch.zeros_like(real.exists, dtype=torch.long) if real.item is None else real.item
            shift = self.shift[at.clamp_max(len(self.shift) - 1)]
            value = ((value - shift[..., None]) / self.scale).to(value.dtype)
        if self.range is not None:
            value = (value.round() if self.whole else value).clamp(*self.range)
        return drawn.replace(value=torch.where(observed, value, 0.0))

    def _with_items(self, real: Batch, seed: int, epoch: int) -> Batch:
        if self.pool is None or self.pool[0] != (seed, epoch):
            self.pool = (seed, epoch), self._drawn_items(seed, epoch)
        assert real.item is not None
        assert real.rows is not None
        item = real.item.clone()
        item[:, : real.length] = torch.as_tensor(self.pool[1][real.rows.clamp_min(0).numpy()])
        return real.replace(item=torch.where(real.exists, item, real.item))

    def _drawn_items(self, seed: int, epoch: int) -> np.ndarray:
        """(the table's rows,)"""
        rows, size = self.data.rows, self.prior.family.size
        found = np.full(int(rows.max(initial=-1)) + 1, size, np.int64)
        tokens = max(POOL // size, 256)
        for number, pieces in enumerate(self.data.plan(tokens)):
            batch = self.data.batch(pieces, self.prior.context)
            draw = self.prior.draw if isinstance(self.prior, AdditiveItems) else partial(draw_items, self.prior)
            drawn = draw(batch, _generator((seed, epoch, number)), SWEEPS)
            assert drawn.item is not None
            assert batch.rows is not None
            there = batch.rows >= 0
            found[batch.rows[there].numpy()] = drawn.item[:, : batch.length][there].numpy()
        return found


def _generator(key: Sequence[int]) -> torch.Generator:
    state = np.random.SeedSequence(list(key)).generate_state(1, np.uint64)[0]
    return torch.Generator().manual_seed(int(state >> 1))
