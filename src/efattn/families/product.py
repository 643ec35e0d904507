"""Several value columns, independent of each other given f.

    log p(y | f) = sum_parts log p(y_part | f_part)

The parts lie side by side in y and in f, in their order.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar, final

import numpy as np
import torch

from efattn.errors import DataError
from efattn.families.base import Family
from efattn.families.gamma import Gamma
from efattn.families.multivariate_gaussian import MultivariateGaussian
from efattn.families.ordinal import Ordinal
from efattn.families.per_item import PerItem
from efattn.families.poisson import Poisson
from efattn.families.supports import Columns, ScalarSupport


@final
@dataclass(frozen=True)
class Product(Family):
    """y is (..., columns), one column per scalar part and d for a MultivariateGaussian of d."""

    parts: tuple[Family, ...]
    columns: int = field(init=False, repr=False, compare=False)
    name: ClassVar[str] = "product"
    scalar: ClassVar[bool] = False
    of_values: ClassVar[bool] = False

    def __post_init__(self) -> None:
        parts = tuple(self.parts) if isinstance(self.parts, tuple | list) else ()
        if not parts:
            raise DataError(f"Product: parts must be a tuple of families, not {self.parts!r}.")
        for part in parts:
            if not isinstance(part, Family) or not part.of_values:
                raise DataError(
                    f"Product: a part must be a family of numbers, not {part!r}. "
                    "Write parts of parts side by side; a category is an item, or Ordinal if it has an order."
                )
        object.__setattr__(self, "parts", parts)
        object.__setattr__(self, "columns", sum(part.columns for part in parts))

    @classmethod
    def examples(cls) -> "tuple[Product, ...]":
        mixed = (Gamma(), MultivariateGaussian(columns=2), Ordinal(levels=3))
        return cls(parts=(Poisson(),)), cls(parts=mixed)

    @property
    def numbers(self) -> int:
        return sum(part.numbers for part in self.parts)

    @property
    def origins(self) -> tuple[float, ...]:
        """Of each column."""
        return tuple(part.origin for part in self.parts for _ in range(part.columns))

    def at_origin(self) -> "Product":
        """The product for y - origins."""
        return Product(tuple(part.at_origin() for part in self.parts))

    @property
    def squared_loss(self) -> bool:
        return len(self.parts) == 1 and self.parts[0].squared_loss

    @property
    def mean_bounds(self) -> tuple[float, float]:
        lows, highs = zip(*(part.mean_bounds for part in self.parts), strict=True)
        return min(lows), max(highs)

    @property
    def shared(self) -> tuple[bool, ...]:
        return tuple(flag for part in self.parts for flag in part.shared)

    @property
    def dispersions(self) -> tuple[bool, ...]:
        return tuple(flag for part in self.parts for flag in part.dispersions)

    @property
    def exposures(self) -> tuple[int, ...]:
        return tuple(outputs.start + i for part, outputs, _ in self.slices() for i in part.exposures)

    @property
    def measured(self) -> bool:
        return len(self.parts) == 1 and self.parts[0].measured

    def with_noise(self, f: torch.Tensor, variance: torch.Tensor) -> torch.Tensor:
        return self.parts[0].with_noise(f, variance) if self.measured else super().with_noise(f, variance)

    @property
    def discrete(self) -> bool:
        """True if every part is; a mixed product is neither a probability nor a density of one kind."""
        return all(part.discrete for part in self.parts)

    @property
    def support(self) -> Columns:
        supports: list[tuple[str, ScalarSupport]] = []
        for part in self.parts:
            if isinstance(part.support, Columns):
                supports.extend(part.support.parts)
            elif isinstance(part.support, ScalarSupport):
                supports.append((type(part).__name__, part.support))
        return Columns(tuple(supports))

    def slices(self) -> Iterator[tuple[Family, slice, slice]]:
        """Each part with its place in f and its place in y."""
        output = column = 0
        for part in self.parts:
            yield part, slice(output, output + part.size), slice(column, column + part.columns)
            output, column = output + part.size, column + part.columns

    @property
    def kinds(self) -> tuple[tuple[int, int, PerItem], ...]:
        """The parts whose kind depends on the item: where their outputs begin, which output says the kind."""
        found = [(o.start, o.stop - 1, part) for part, o, _ in self.slices() if isinstance(part, PerItem)]
        return tuple(found)

    def exposed_start(
        self, y: torch.Tensor, exposure: torch.Tensor, weight: torch.Tensor | None = None
    ) -> torch.Tensor:
        parts = (part.exposed_start(_of(part, y[..., c]), exposure, weight) for part, _, c in self.slices())
        return torch.cat(tuple(parts))

    def by_item(self, item: np.ndarray) -> Iterator[tuple[np.ndarray, int, Family]]:
        for part, _, columns in self.slices():
            for rows, column, one in part.by_item(item):
                yield rows, columns.start + column, one

    def log_probs(self, f: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Of each part, (..., parts): mask, then sum."""
        pieces = [part.log_prob(f[..., o], _of(part, y[..., c])) for part, o, c in self.slices()]
        return torch.stack(torch.broadcast_tensors(*pieces), -1)

    def log_prob(self, f: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return self.log_probs(f, y).sum(-1)

    def mean(self, f: torch.Tensor) -> torch.Tensor:
        return torch.cat([_to(part, part.mean(f[..., o])) for part, o, _ in self.slices()], -1)

    def variance(self, f: torch.Tensor) -> torch.Tensor:
        return torch.cat([_to(part, part.variance(f[..., o])) for part, o, _ in self.slices()], -1)

    def sample(self, f: torch.Tensor, generator: torch.Generator | None = None) -> torch.Tensor:
        return torch.cat([_to(part, part.sample(f[..., o], generator)) for part, o, _ in self.slices()], -1)

    def cdf(self, f: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.cat([_to(part, part.cdf(f[..., o], _of(part, y[..., c]))) for part, o, c in self.slices()], -1)

    def quantile(self, f: torch.Tensor, p: float | torch.Tensor) -> torch.Tensor:
        levels = torch.as_tensor(p, dtype=torch.float64, device=f.device)
        levels = levels.expand(*torch.broadcast_shapes(levels.shape[:-1], f.shape[:-1]), self.columns)
        quantiles = [part.quantile(f[..., o], _of(part, levels[..., c])) for part, o, c in self.slices()]
        return torch.cat([_to(part, q) for part, q in zip(self.parts, quantiles, strict=True)], -1)

    def column(self, f: torch.Tensor, number: int) -> tuple[Family, torch.Tensor]:
        part, outputs, columns = next(x for x in self.slices() if number < x[2].stop)
        return part.column(f[..., outputs], number - columns.start)

    def start(self, y: torch.Tensor, weight: torch.Tensor | None = None) -> torch.Tensor:
        return torch.cat([part.start(_of(part, y[..., c]), weight) for part, _, c in self.slices()])

    def from_moments(self, mean: torch.Tensor, variance: torch.Tensor, start: torch.Tensor) -> torch.Tensor:
        """Of one part, whose mean and variance are (...,) and not (..., 1)."""
        if len(self.parts) > 1:
            raise DataError(f"{self!r} has several parts: ask each for its outputs.")
        return self.parts[0].from_moments(mean, variance, start)

    def identified(self, f: torch.Tensor, mean: torch.Tensor) -> torch.Tensor:
        return torch.cat([part.identified(f[..., o], mean[..., c]) for part, o, c in self.slices()], -1)


def _of(part: Family, columns: torch.Tensor) -> torch.Tensor:
    """The columns (..., part.columns) as the part takes them."""
    return columns.squeeze(-1) if part.scalar else columns


def _to(part: Family, values: torch.Tensor) -> torch.Tensor:
    """What the part gives as columns (..., part.columns)."""
    return values.unsqueeze(-1) if part.scalar else values
