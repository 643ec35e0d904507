"""A simple fitted model inside a term: the network gives only what is to be added to it.

    f = network + f_prior(context),      the same context, so that a target never sees itself

With a network that gives 0 the term is the simple model. Of ordered levels the simple model gives a mean m, and the
location is the one at which the marginal cut-points have that mean.
"""

from typing import Any, final

import torch
from torch import Tensor, nn

from efattn.data.batch import Batch
from efattn.errors import DataError
from efattn.families import Bernoulli, Categorical, Family, Gaussian, Ordinal, Poisson, Product
from efattn.families.stable import bounded, unbounded
from efattn.models.scoring import Conditionals, Support, at
from efattn.network import Context

BOUND = 30.0  # of the Gaussian's log precision
REACH, POINTS = 15.0, 1201  # locations of ordered levels, and how many are tabled


@final
class Offset(nn.Module):
    """prior: fitted; family: the term's; items: how many the prior knows, 0 for none. The prior's values are scale
    times the term's, plus a shift for each item. origin: how to build the prior again, as JSON."""

    def __init__(self, prior: Conditionals, family: Family, items: int, origin: dict[str, Any] | None = None) -> None:
        super().__init__()
        self.prior, self.family, self.items, self.origin = prior, family, items, origin or {}
        self.register_buffer("scale", torch.ones(1, dtype=torch.float64))
        self.register_buffer("shift", torch.zeros(items + 1, dtype=torch.float64))
        self.register_buffer("start", torch.zeros(1 if prior.of_items else family.size, dtype=torch.float64))
        check_offset(family)
        part = family.parts[0] if isinstance(family, Product) else family
        self.ordinal = part if isinstance(part, Ordinal) else None

    @classmethod
    def like(cls, other: "Offset", family: Family) -> "Offset":
        """The same for a family of more items."""
        found = cls(other.prior, family, other.items, other.origin)
        found.load_state_dict(other.state_dict())
        return found

    @torch.no_grad()
    def forward(self, batch: Batch, slots: Tensor) -> Tensor:
        """(batch, target, size)"""
        here = batch.to("cpu")
        if self.prior.of_items:
            found = self.prior.raw_outputs(here, slots.cpu())
            extra = self.family.size - found.shape[-1]
            if extra:  # items that were appended later: as an average one
                found = torch.cat([found, found.mean(-1, keepdim=True).expand(*found.shape[:-1], extra)], -1)
            return found.to(slots.device)
        f = self._in_units(self.prior.raw_outputs(self._to_units(here), slots.cpu()), here, slots.cpu())
        if self.ordinal is not None:
            return self._location(f[..., 0]).to(slots.device)
        f = f[..., : self.family.size]
        return nn.functional.pad(f, (0, self.family.size - f.shape[-1])).to(slots.device)

    def _shifts(self, batch: Batch) -> Tensor:
        """(batch, context)"""
        shift = self.get_buffer("shift")
        if batch.item is None or not self.items:
            return shift[-1].expand(batch.exists.shape)
        return shift[batch.item.clamp_max(self.items)]

    def _plain(self) -> bool:
        return bool(self.get_buffer("scale") == 1) and not bool(self.get_buffer("shift").any())

    def _to_units(self, batch: Batch) -> Batch:
        if batch.value is None or self._plain():
            return batch
        value = batch.value.double() * self.get_buffer("scale") + self._shifts(batch)[..., None]
        return batch.replace(value=value)

    def _in_units(self, f: Tensor, batch: Batch, slots: Tensor) -> Tensor:
        if self._plain():
            return f
        scale, shift = self.get_buffer("scale"), at(self._shifts(batch)[:, : batch.length], slots)
        found = [(f[..., 0] - shift) / scale]
        if f.shape[-1] > 1:
            found.append(unbounded(bounded(f[..., 1], BOUND) + 2 * scale.log(), BOUND))
        return torch.stack(found, -1)

    def _location(self, mean: Tensor) -> Tensor:
        assert self.ordinal is not None
        start = self.get_buffer("start")
        grid = torch.linspace(-REACH, REACH, POINTS, dtype=torch.float64)
        table = self.ordinal.mean(torch.cat([grid[:, None], start[1:].expand(POINTS, -1)], -1))
        right = torch.searchsorted(table, mean.double().contiguous()).clamp(1, POINTS - 1)
        low, high = table[right - 1], table[right]
        share = ((mean - low) / (high - low).clamp_min(1e-300)).clamp(0, 1)
        found = grid[right - 1] + share * (grid[right] - grid[right - 1])
        return torch.cat([found[..., None], found.new_zeros(*found.shape, len(start) - 1)], -1)


@final
class Alone(Conditionals):
    """The simple model by itself, as a member of a mixture with the networks."""

    def __init__(self, offset: Offset, context: Context, support: Support, share: float) -> None:
        super().__init__(offset.family, context, support)
        self.offset, self.share = offset, share

    def like(self, family: Family) -> "Alone":
        """The same for a family of more items."""
        assert self.share is not None
        return Alone(Offset.like(self.offset, family), self.context, self.support, self.share).eval()

    def raw_outputs(self, batch: Batch, slots: Tensor) -> Tensor:
        return self.offset(batch, slots) + self.offset.get_buffer("start").to(slots.device)

    def start(self, batch: Batch) -> None:
        """It is fitted."""


def check_offset(family: Family) -> None:
    """A DataError where it is not known what to add to."""
    parts = family.parts if isinstance(family, Product) else (family,)
    known = (Gaussian, Poisson, Bernoulli, Ordinal, Categorical)
    if len(parts) > 1 or not isinstance(parts[0], known):
        raise DataError(
            "prior_use='offset' and 'member' are for items and for one value column of 'gaussian', 'poisson', "
            f"'bernoulli' or 'ordinal' values, not for {', '.join(map(repr, parts))}. Use prior_use='draws'."
        )
