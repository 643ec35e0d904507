"""Mixtures of one family, a law a row, in the units in which the models compute.

    F(y) = sum_k s_k F_k(y)          log p(y) = log sum_k s_k p_k(y)

A row's components are what each network and each companion says of it. Whatever y is, there is an answer: outside the
support the density is 0, and of NaN all is NaN.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from efattn.families import Family, Product
from efattn.families.supports import ScalarSupport
from efattn.inference import mixture

CELLS = 2**21  # outputs that are looked at at a time


@final
@dataclass(frozen=True, eq=False)
class Laws:
    """family: of one column; outputs: of each component (row, size), in double precision; shares: (row, component), in
    all 1."""

    family: Family
    outputs: tuple[Tensor, ...]
    shares: Tensor

    def __len__(self) -> int:
        return len(self.outputs[0])

    def take(self, index: Tensor) -> "Laws":
        return Laws(self.family, tuple(f[index] for f in self.outputs), self.shares[index])

    @property
    def components(self) -> "list[Laws]":
        """Each on its own."""
        return [Laws(self.family, (f,), torch.ones_like(f[:, :1])) for f in self.outputs]

    @property
    def underlying(self) -> "Laws":
        """Of values before limits were put on them."""
        return Laws(self.family.underlying, self.outputs, self.shares)

    @property
    def support(self) -> ScalarSupport:
        assert isinstance(self.family.support, ScalarSupport)
        return self.family.support

    @property
    def mean(self) -> Tensor:
        return mixture.mean(self._product, self.outputs, self._columns).squeeze(-1)

    @property
    def variance(self) -> Tensor:
        return mixture.variance(self._product, self.outputs, self._columns).squeeze(-1)

    def cdf(self, y: Tensor) -> Tensor:
        """P(Y <= y). y, here and below: (row,) or (row, any)."""
        return self._at(y, Laws._cdf)

    def below(self, y: Tensor) -> Tensor:
        """P(Y < y)"""
        if self.family.discrete:
            return self.cdf(y.ceil() - 1)
        return (self.cdf(y) - self._at(y, Laws._mass)).clamp_min(0) if self.family.atoms else self.cdf(y)

    @property
    def stepped(self) -> bool:
        """Whether some values have a probability of their own."""
        return self.family.discrete or bool(self.family.atoms)

    def log_prob(self, y: Tensor) -> Tensor:
        """Of a value outside the support minus infinity."""
        return self._at(y, Laws._log_prob)

    def quantiles(self, levels: Tensor) -> Tensor:
        """(row, level): the smallest y with P(Y <= y) >= the level."""
        some = self.take(torch.arange(len(self)).repeat_interleave(len(levels)))
        p = levels.repeat(len(self)).unsqueeze(-1)
        return mixture.quantile(some._product, some.outputs, some._columns, p).reshape(len(self), len(levels))

    def sample(self, draws: int, generator: torch.Generator) -> Tensor:
        """(row, draw): a component by its share, then a value of it."""
        every, found = torch.stack(self.outputs), self.outputs[0].new_zeros(len(self), draws)
        ends = self.shares.cumsum(1)
        at_once = max(1, CELLS // max(every[0].numel(), 1))
        for first in range(0, draws, at_once):
            row = torch.arange(len(self)).repeat_interleave(min(at_once, draws - first))
            uniform = torch.rand(len(row), 1, generator=generator, dtype=torch.float64)
            which = (uniform * ends[row, -1:] >= ends[row, :-1]).sum(1)
            drawn = self.family.sample(every[which, row], generator)
            found[:, first : first + at_once] = drawn.reshape(len(self), -1)
        return found

    @property
    def _product(self) -> Product:
        return Product((self.family,))

    @property
    def _columns(self) -> list[Tensor]:
        """Of each component, (row, 1)."""
        return list(self.shares.split(1, 1))

    def _at(self, y: Tensor, ask: Callable[["Laws", Tensor], Tensor]) -> Tensor:
        """ask of every cell of y, NaN where y is; so many cells at a time."""
        if y.dim() == 1:
            return torch.where(y.isnan(), torch.nan, ask(self, torch.where(y.isnan(), self.support.inside, y)))
        wide = y.shape[1]
        rows = max(1, CELLS // (max(wide, 1) * self.family.size))
        found = torch.full_like(y, torch.nan)
        for first in range(0, len(y), rows):
            here = y[first : first + rows]
            some = self.take(torch.arange(first, first + len(here)).repeat_interleave(wide))
            found[first : first + rows] = some._at(here.reshape(-1), ask).reshape(here.shape)
        return found

    def _cdf(self, y: Tensor) -> Tensor:
        return mixture.cdf(self.family, self.outputs, self.shares.unbind(1), y)

    def _mass(self, y: Tensor) -> Tensor:
        return mixture.average((self.family.mass(f, y) for f in self.outputs), self.shares.unbind(1))

    def _log_prob(self, y: Tensor) -> Tensor:
        if self.family.discrete:
            inside = torch.as_tensor(self.support.contains(y))
        else:
            low, high = self.support.bounds
            inside = (y > low) & (y < high) | self.family.is_atom(y)
        safe = torch.where(inside, y, self.support.inside)
        logs = torch.stack([self.family.log_prob(f, safe) for f in self.outputs], 1) + self.shares.log()
        return torch.where(inside, logs.logsumexp(1), -torch.inf)
