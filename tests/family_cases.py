"""The families that every law is about, each in its examples, and outputs and values for them, tame and extreme."""

from itertools import product

import pytest
import torch
from rayleigh import Rayleigh

from efattn import families
from efattn.families.supports import Between, PositiveReals, UnitInterval, WholeNumbers, ZeroAndMore

KINDS = (*families.FAMILIES, Rayleigh)  # a new family is tested by being here
ALL = [family for kind in KINDS for family in kind.examples()]
SINGLE = [one for one in ALL if one.columns <= 2 and not isinstance(one, families.Product | families.PerItem)]
MIXED = next(family for family in ALL if isinstance(family, families.Product) and len(family.parts) > 1)
ORDERED = [family for family in ALL if not isinstance(family, families.Categorical)]
ORDERED_SCALAR = [family for family in ORDERED if family.scalar]

over = lambda cases: pytest.mark.parametrize("family", cases, ids=repr)  # noqa: E731


def points(family, n=4, seed=0):
    """n moderate head outputs, (n, size)."""
    f = 0.6 * torch.randn(n, family.size, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    if isinstance(family, families.Beta) and family.size == 2:
        f[:, 1] += 2
    if isinstance(family, families.StudentT) and isinstance(family.degrees, str):
        f[:, -1] += 2
    return f


def extreme_values(family):
    """Values from all over the support, (n,) or (n, columns)."""
    if isinstance(family, families.Product):
        rows = [extreme_values(part).reshape(-1, part.columns)[:2] for part in family.parts]
        return torch.cat(rows, -1)
    if isinstance(family, families.PerItem):
        return torch.tensor([1.0])  # what every kind has
    if isinstance(family, families.MultivariateGaussian):
        return torch.tensor([[0.0, 0.0, 0.0], [1e6, -1e6, 1e6], [-1e-6, 3.0, 1e6]])[:, : family.columns]
    if isinstance(family.support, WholeNumbers):
        low, high = family.support.low, family.support.high
        return torch.tensor([low, low + 1.0, low + 1e6 if high is None else high])
    if isinstance(family.support, PositiveReals):
        return torch.tensor([1e-6, 1.0, 1e6])
    if isinstance(family.support, ZeroAndMore):
        return torch.tensor([0.0, 1e-6, 1e6])
    if isinstance(family.support, Between):
        low, high = family.support.bounds
        return torch.tensor([max(low, -1e6), family.support.inside, min(high, 1e6)]).clamp_min(
            1e-6 if low == 0 else low
        )
    if isinstance(family.support, UnitInterval):
        return torch.tensor([1e-6, 0.5, 1 - 1e-6])
    return torch.tensor([-1e6, 0.0, 1e6])


def extreme_points(family):
    """Every sign pattern of tame, large and enormous outputs where there are few, else a random lot of them."""
    levels = torch.tensor([-1e4, -40.0, 0.0, 11.0, 1e4])
    if family.size <= 4:
        return torch.tensor(list(product(levels.tolist(), repeat=family.size)))
    return levels[torch.randint(5, (1000, family.size), generator=torch.Generator().manual_seed(0))]
