"""What every simple fitted model of values shares.

    fit(groups)  ->  mean and variance of each row given its context  ->  f  ->  family  ->  log p

It is a model like any other (`Conditionals`), fitted in closed form or by search instead of by gradients, so that it is
scored on the same rows and with the same families. All of it is in double precision.
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import final

import numpy as np
import torch
from torch import Tensor

from efattn.data import Batch, Groups
from efattn.errors import DataError
from efattn.families import Bernoulli, Family, Gaussian, Poisson
from efattn.families.stable import unbounded
from efattn.models.scoring import Conditionals, at
from efattn.network import Context

TOKENS = 16_384
LEAST = 1e-3  # the smallest rate and probability
FLOOR = 0.01  # the smallest share of an item's own rate: a guard, not tuned
BOUND = 30.0  # of the families


class FittedOnce(Conditionals):
    """A model that `fit` makes ready, and that gradients leave alone."""

    @abstractmethod
    def fit(self, groups: Groups, held: Groups | None = None) -> None:
        """held: groups to choose the amount of regularisation by; without them a part of `groups` is set aside for
        it, and the fit then uses all of them."""

    @final
    def start(self, batch: Batch) -> None:
        """`fit` takes all it needs."""

    @final
    @torch.no_grad()
    def score(self, groups: Groups) -> float:
        """Mean log-likelihood of the groups' targets."""
        total = weight = 0.0
        for batch in groups.batches(max(256, min(TOKENS, 2**26 // self.family.size)), context=self.context):
            found = self.log_prob(batch)
            counts = found.weight * found.scored
            total += float((found.values.double() * counts).sum())
            weight += float(counts.sum())
        return total / weight if weight else float("nan")

    @final
    def _set(self, **arrays: Tensor | np.ndarray | float) -> None:
        for name, x in arrays.items():
            buffer = self.get_buffer(name)
            buffer.copy_(torch.as_tensor(x, dtype=buffer.dtype).reshape(buffer.shape))


class ValuePrior(FittedOnce):
    """Mean and variance of one value column. items: how many there are, 0 without an item column; lags: how many
    earlier groups are seen. Every one has a buffer `mean` (items + 1,) of the items' own means, the last overall."""

    def __init__(self, family: Family, items: int, context: Context = "others", lags: int = 0) -> None:
        super().__init__(family, context)
        part = getattr(self.family, "parts", (family,))[0]
        if self.family.columns != 1:
            raise DataError("A baseline has one value column; fit one for each, or EFA, which takes several.")
        if not isinstance(part, Gaussian | Poisson | Bernoulli):
            raise DataError(
                f"A baseline gives a mean and a variance, for 'gaussian', 'poisson' or 'bernoulli', not {part!r}."
            )
        self.part: Gaussian | Poisson | Bernoulli = part
        self.items, self.lags, self.has_items = max(items, 1), lags, items > 0
        self.cells_in_all = self.items * (lags + 1)

    @abstractmethod
    def moments(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Mean and variance (batch, length) of each current row given its context, never itself."""

    @final
    def raw_outputs(self, batch: Batch, slots: Tensor) -> Tensor:
        level = self.get_buffer("mean")[self.cells(batch).item[:, : batch.length]]
        return at(outputs_of(self.part, *self.moments(batch), level), slots)

    @final
    @torch.no_grad()
    def predictive(self, groups: Groups) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance of each row of the groups, in the order of `groups.rows`."""
        found = np.full((2, int(groups.rows.max(initial=-1)) + 1), np.nan)
        for batch in groups.batches(TOKENS, context=self.context, dtype=torch.float64):
            assert batch.rows is not None
            there = batch.rows >= 0
            for out, x in zip(found, self.moments(batch), strict=True):
                out[batch.rows[there].numpy()] = x[there].numpy()
        return found[0][groups.rows], found[1][groups.rows]

    @final
    def cells(self, batch: Batch) -> "Cells":
        return Cells.of(batch, self.items, self.lags, self.has_items)


@final
@dataclass(frozen=True)
class Cells:
    """The cells of a batch: index (batch, context), lag * items + item, or `unknown`; item, the same without the lag;
    y, seen: value and whether it is observed, of a known item."""

    index: Tensor
    item: Tensor
    y: Tensor
    seen: Tensor
    length: int

    @classmethod
    def of(cls, batch: Batch, items: int, lags: int, has_items: bool) -> "Cells":
        if has_items and batch.item is None:
            raise DataError("This model was fitted with an item column, and the data have none: pass item=...")
        item = batch.item if has_items and batch.item is not None else torch.zeros_like(batch.exists, dtype=torch.long)
        lag = torch.zeros_like(item) if batch.lag is None else batch.lag
        known = batch.exists & (item < items) & (lag <= lags)
        index = torch.where(known, lag * items + item, items * (lags + 1))
        y, seen = torch.zeros(item.shape, dtype=torch.float64), torch.zeros_like(known)
        if batch.value is not None and batch.observed is not None:
            y, seen = batch.value[..., 0].double(), known & batch.observed[..., 0]
        return cls(index, torch.where(known, item, items), y, seen, batch.length)

    def visible(self, context: Context) -> Tensor:
        """(batch, target, context): the observed cells that each current row may look at."""
        column = torch.arange(self.index.shape[1])
        row = column[: self.length, None]
        may = (column < row) if context == "past" else (column != row)
        return (may | (column >= self.length)) & self.seen[:, None]


def outputs_of(part: Gaussian | Poisson | Bernoulli, mean: Tensor, variance: Tensor, level: Tensor) -> Tensor:
    """f (..., size) of the family with this mean, and this variance where it has one of its own. level: the item's
    mean; a context lowers its rate to a tenth and no further, where a sum would make it vanish."""
    if isinstance(part, Gaussian):
        b = unbounded(-variance.clamp_min(1e-300).log(), BOUND)
        return torch.stack([mean, b][: part.size], -1)
    if isinstance(part, Poisson):
        low = part.shift + (1 if part.link == "softplus" else 0)
        return torch.maximum(mean - low, FLOOR * (level - low)).clamp_min(LEAST).log()[..., None]
    return torch.logit(mean.clamp(LEAST, 1 - LEAST))[..., None]


def tuning_parts(groups: Groups, held: Groups | None) -> tuple[Groups, Groups]:
    """What to fit on and what to choose by; all of it twice where it cannot be split."""
    if held is not None and len(held):
        return groups, held
    return groups.split(0.2, 0) if len(groups) > 4 else (groups, groups)
