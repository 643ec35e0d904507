"""What is known of a row beside its item and value, as parts of its embedding.

    OwnAttributes   content += u(shown) + v(hidden),  masked += u(shown)
    Rates           y -> log (y + 1/2) / (e r + 1/2),  and log e, standardised
    Noises          y -> m + (y - m) v / (v + s^2),      and log (1 + s^2 / v)

The first keeps what a target may not show for the context alone. The second sets a count beside what its exposure e
lets expect at the overall rate r, and says how much it can tell. The third draws a value with a measurement error of
standard deviation s to the mean as far as the error, and not what is measured (of variance v), explains where it lies.
"""

from collections.abc import Sequence
from typing import final

import torch
from torch import Tensor, nn

from efattn.network.constants import constant
from efattn.network.embeddings import AttributeVectors

FAR = 50.0  # of a logarithm: a guard against overflow, never met
LEFT = 0.05  # of a variance, where noise would explain all of it
HALF = 0.5  # of a count: no count at all has a logarithm, and a small exposure tells little


@final
class OwnAttributes(nn.Module):
    """shown: by column of the attributes, whether a target shows it of itself."""

    def __init__(self, shown: Sequence[bool], inner: int, width: int) -> None:
        super().__init__()
        self.width = width
        self.of_own = [k for k, own in enumerate(shown) if own]
        self.of_context = [k for k, own in enumerate(shown) if not own]
        self.own = AttributeVectors((len(self.of_own), inner, width)) if self.of_own else None
        self.context = AttributeVectors((len(self.of_context), inner, width)) if self.of_context else None

    def fit(self, attributes: Tensor) -> None:
        for part, columns in ((self.own, self.of_own), (self.context, self.of_context)):
            if part is not None:
                part.fit(attributes[..., columns])

    def forward(self, attributes: Tensor) -> tuple[Tensor, Tensor]:
        """(..., attributes) -> what content and what a masked form adds, (..., width)"""
        nothing = attributes.new_zeros(*attributes.shape[:-1], self.width)
        own = nothing if self.own is None else self.own(_columns(attributes, self.of_own))
        whole = own if self.context is None else own + self.context(_columns(attributes, self.of_context))
        return whole, own

    def usual(self) -> Tensor:
        """(attributes,): their means."""
        means = torch.zeros(len(self.of_own) + len(self.of_context), dtype=torch.float64)
        for part, columns in ((self.own, self.of_own), (self.context, self.of_context)):
            if part is not None:
                means[columns] = part.usual()
        return means


@final
class Rates(nn.Module):
    """counted: by value column, whether it is a count to which the exposure belongs."""

    width = 1

    def __init__(self, counted: Sequence[bool]) -> None:
        super().__init__()
        self.counted = [k for k, is_count in enumerate(counted) if is_count]
        self.register_buffer("rate", torch.ones(len(self.counted), dtype=torch.float64))
        self.register_buffer("centre", torch.zeros((), dtype=torch.float64))
        self.register_buffer("scale", torch.ones((), dtype=torch.float64))

    def fit(self, value: Tensor, observed: Tensor, exposure: Tensor) -> None:
        """value, observed (row, column), exposure (row,)"""
        e, log = exposure.double(), exposure.double().log()
        seen = observed[:, self.counted].double()
        total, at_risk = (value.double()[:, self.counted] * seen).sum(0), (e[:, None] * seen).sum(0)
        self.get_buffer("rate").copy_((total + HALF) / at_risk.clamp_min(torch.finfo(torch.float64).tiny))
        spread = log.std(correction=0) if len(log) else torch.zeros(())
        self.get_buffer("centre").copy_(log.mean() if len(log) else torch.zeros(()))
        self.get_buffer("scale").copy_(spread if float(spread) > 1e-6 else torch.ones(()))

    def usual(self, value: Tensor) -> Tensor:
        """Where no exposure is known."""
        return torch.ones_like(value[..., 0])

    def forward(self, value: Tensor, exposure: Tensor) -> tuple[Tensor, Tensor]:
        """value (..., column), exposure (...) -> the values as rates, and what is known of each row (..., 1)"""
        log = exposure.double().log()
        expected = exposure.double()[..., None] * self.get_buffer("rate")
        ratio = ((_columns(value, self.counted).double().clamp_min(0) + HALF) / (expected + HALF)).log()
        index = constant(tuple(self.counted), torch.long, value.device)
        seen = value.index_copy(-1, index, ratio.clamp(-FAR, FAR).to(value.dtype))
        return seen, ((log - self.get_buffer("centre")) / self.get_buffer("scale")).to(value.dtype)[..., None]


@final
class Noises(nn.Module):
    """Of one value column whose measurement errors have known standard deviations."""

    width = 1

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros((), dtype=torch.float64))
        self.register_buffer("variance", torch.ones((), dtype=torch.float64))  # of what is measured

    def fit(self, value: Tensor, observed: Tensor, noise: Tensor) -> None:
        """value, observed (row, 1), noise (row,)"""
        y, error = value.double()[observed], noise.double()[observed[:, 0]] ** 2
        if not len(y):
            return
        total = y.var(correction=0).clamp_min(torch.finfo(torch.float64).tiny)
        weight = 1 / (total + error)
        self.get_buffer("mean").copy_((y * weight).sum() / weight.sum())
        self.get_buffer("variance").copy_(torch.maximum(total - error.mean(), LEFT * total))

    def usual(self, value: Tensor) -> Tensor:
        """Where no noise is known."""
        return torch.zeros_like(value[..., 0])

    def forward(self, value: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """value (..., 1), noise (...) -> what the values tell, and how much that is (..., 1)"""
        mean, ratio = self.get_buffer("mean"), 1 + noise.double()[..., None] ** 2 / self.get_buffer("variance")
        return (mean + (value.double() - mean) / ratio).to(value.dtype), ratio.log().to(value.dtype)


def _columns(x: Tensor, chosen: Sequence[int]) -> Tensor:
    return x.index_select(-1, constant(tuple(chosen), torch.long, x.device))
