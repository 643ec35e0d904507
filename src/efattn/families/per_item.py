"""One value column in which items are of different kinds: temperatures, counts and answers in one melted table.

    log p(y | f) = log p_k(y | f_1 ... f_(size of k)),          k = the kind of the row's item = the last output

The parts share the outputs: the first is the location of each, the others are its dispersion and cut-points, as many as
it has. The last output says which part a row has. It is put there from the row's item (`Conditionals.outputs`), so that
a family remains a function of f and y. What differs from kind to kind (where outputs start) is kept by item.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, final

import numpy as np
import torch

from efattn.errors import DataError
from efattn.families.base import Family
from efattn.families.bernoulli import Bernoulli
from efattn.families.dispersion import check_whole
from efattn.families.gaussian import Gaussian
from efattn.families.negative_binomial import NegativeBinomial
from efattn.families.ordinal import Ordinal
from efattn.families.supports import OneOf

SHRINK = 5.0  # rows of its kind that an item's own fit is weighed against


@final
@dataclass(frozen=True)
class PerItem(Family):
    """parts: families of one column; kinds: for each item, in the order of their numbers, which part it has. An item
    that is not known is predicted as most items are, and never scored."""

    parts: tuple[Family, ...]
    kinds: tuple[int, ...]
    table: np.ndarray = field(init=False, repr=False, compare=False)
    name: ClassVar[str] = "per_item"

    def __post_init__(self) -> None:
        parts = tuple(self.parts) if isinstance(self.parts, tuple | list) else ()
        kinds = tuple(self.kinds) if isinstance(self.kinds, tuple | list) else ()
        if not parts or not kinds:
            raise DataError("PerItem: parts is a tuple of families, kinds their numbers, one for each item.")
        for part in parts:
            if not isinstance(part, Family) or not part.of_values or not part.scalar or isinstance(part, PerItem):
                raise DataError(f"PerItem: a part must be a family of one value column, not {part!r}.")
            if not part.units_by_item:
                raise DataError(f"PerItem: limits are in units that items do not share: {part!r} is for all of them.")
        for kind in kinds:
            check_whole("PerItem", "kinds", kind, 0, len(parts) - 1, "there is no such part.")
        counts = np.bincount(kinds, minlength=len(parts))
        object.__setattr__(self, "parts", parts)
        object.__setattr__(self, "kinds", tuple(int(kind) for kind in kinds))
        object.__setattr__(self, "table", np.append(self.kinds, int(counts.argmax())))

    @classmethod
    def examples(cls) -> "tuple[PerItem, ...]":
        mixed = (Gaussian(), NegativeBinomial(), Bernoulli(), Ordinal(levels=3, low=1))
        return cls(mixed, (0, 1, 1, 2, 3)), cls((Gaussian(variance="predicted"), Bernoulli()), (0, 1))

    @classmethod
    def sized(cls, values: np.ndarray, columns: int) -> dict[str, Any]:
        """Without knowing the items: one kind."""
        return {"parts": (Gaussian(),), "kinds": (0,)}

    # ---- what it is

    @property
    def brief(self) -> str:
        return f"PerItem({', '.join(map(repr, self.parts))})"

    @property
    def shared(self) -> tuple[bool, ...]:
        """An output varies if it does for any kind."""
        most = max(part.size for part in self.parts)
        fixed = (all(part.shared[i] for part in self.parts if i < part.size) for i in range(most))
        return (*fixed, True)

    @property
    def dispersions(self) -> tuple[bool, ...]:
        """Shared outputs that are one of any kind; never the kind itself."""
        of_any = (any(part.dispersions[i] for part in self.parts if i < part.size) for i in range(self.size - 1))
        return (*(shared and moves for shared, moves in zip(self.shared, of_any, strict=False)), False)

    @property
    def numbers(self) -> int:
        return max(part.numbers for part in self.parts) + 1

    @property
    def exposures(self) -> tuple[int, ...]:
        """The location, where every part takes one."""
        return (0,) if all(part.exposures == (0,) for part in self.parts) else ()

    @property
    def support(self) -> OneOf:
        return OneOf(tuple(part.support for part in self.parts))  # type: ignore[misc]

    @property
    def discrete(self) -> bool:
        return all(part.discrete for part in self.parts)

    @property
    def mean_bounds(self) -> tuple[float, float]:
        lows, highs = zip(*(part.mean_bounds for part in self.parts), strict=True)
        return min(lows), max(highs)

    @property
    def standardised(self) -> bool:
        """Whether any part's values may be: those of its items."""
        return any(part.standardised for part in self.parts)

    def kind_of(self, item: np.ndarray) -> np.ndarray:
        """The part's number, for items by their numbers."""
        return self.table[np.minimum(item, len(self.kinds))]

    def by_item(self, item: np.ndarray) -> Iterator[tuple[np.ndarray, int, Family]]:
        """Of an item that is not known, nothing is."""
        kinds = np.where(item < len(self.kinds), self.kind_of(item), -1)
        for k, part in enumerate(self.parts):
            yield np.flatnonzero(kinds == k), 0, part

    def kind(self, f: torch.Tensor) -> torch.Tensor:
        """Of each row, (...,)."""
        return f[..., -1].detach().round().clamp(0, len(self.parts) - 1).long()

    # ---- what it computes

    def log_prob(self, f: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Where y is NaN, which is nowhere inside, that of some value inside."""

        def one(part: Family, f: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            inside = part.support.inside  # type: ignore[attr-defined]
            return part.log_prob(f, torch.where(y == y, y, inside))

        if f.device.type == "cpu":
            return self._each(one, f, y)
        kind, found = self.kind(f), torch.zeros_like(f[..., 0])  # finding each kind's rows would wait for a GPU
        for k, part in enumerate(self.parts):
            mine = kind == k
            values = one(part, f[..., : part.size], torch.where(mine, y, torch.nan))
            found = torch.where(mine, values.to(found.dtype), found)
        return found

    def mean(self, f: torch.Tensor) -> torch.Tensor:
        return self._each(lambda part, f: part.mean(f), f)

    def variance(self, f: torch.Tensor) -> torch.Tensor:
        return self._each(lambda part, f: part.variance(f), f)

    def sample(self, f: torch.Tensor, generator: torch.Generator | None = None) -> torch.Tensor:
        return self._each(lambda part, f: part.sample(f, generator), f)

    def cdf(self, f: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return self._each(lambda part, f, y: part.cdf(f, y), f, y)

    def quantile(self, f: torch.Tensor, p: float | torch.Tensor) -> torch.Tensor:
        levels = torch.as_tensor(p, dtype=torch.float64, device=f.device)
        return self._each(lambda part, f, p: part.quantile(f, p), f, levels)

    def laws(self, f: torch.Tensor) -> Iterator[tuple[torch.Tensor, Family, slice]]:
        kind = self.kind(f).reshape(-1)
        for k, part in enumerate(self.parts):
            yield (kind == k).nonzero().squeeze(-1), part, slice(0, part.size)

    def start(self, y: torch.Tensor, weight: torch.Tensor | None = None) -> torch.Tensor:
        """As if all were of the first kind: `starts` knows the items."""
        part = self.parts[0]
        inside = torch.as_tensor(part.support.contains(y), device=y.device)
        return self._wide(0, part.start(torch.where(inside, y.double(), torch.nan), weight))

    def starts(self, y: torch.Tensor, item: torch.Tensor, weight: torch.Tensor | None = None) -> torch.Tensor:
        """(items + 1, size), float64: each item's own fit drawn to that of its kind, the last of the unknown item's."""
        item = item.clamp_max(len(self.kinds)).cpu()
        kinds = torch.as_tensor(self.table)[item]
        weights = torch.ones_like(y, dtype=torch.float64) if weight is None else weight.double()
        pooled, own = list[torch.Tensor](), list[torch.Tensor]()
        for k, part in enumerate(self.parts):
            mine = kinds == k
            pooled.append(self._wide(k, part.start(y[mine], weights[mine])))
        for number, kind in enumerate(self.kinds):
            mine = item == number
            count = float(mine.sum())
            fit = self._wide(kind, self.parts[kind].start(y[mine], weights[mine])) if count else pooled[kind]
            own.append((count * fit + SHRINK * pooled[kind]) / (count + SHRINK))
        return torch.stack([*own, pooled[int(self.table[-1])]])

    def from_moments(self, mean: torch.Tensor, variance: torch.Tensor, start: torch.Tensor) -> torch.Tensor:
        """start: (size,), or (..., size) of each row, whose last says its kind."""
        starts = start.to(mean).expand(*mean.shape, self.size).reshape(-1, self.size)
        rows, which = starts.unique(dim=0, return_inverse=True)
        means, variances = mean.reshape(-1), variance.expand(mean.shape).reshape(-1)
        f = torch.zeros_like(starts)
        for number, row in enumerate(rows):
            k, mine = int(self.kind(row)), which == number
            part = self.parts[k]
            f[mine] = self._wide(k, part.from_moments(means[mine], variances[mine], row[: part.size]))
        return f.reshape(*mean.shape, self.size)

    def identified(self, f: torch.Tensor, mean: torch.Tensor) -> torch.Tensor:
        return mean

    def _wide(self, kind: int, f: torch.Tensor) -> torch.Tensor:
        """A part's outputs (..., its size) as those of all."""
        blank = f.new_zeros(*f.shape[:-1], self.size - 1 - f.shape[-1])
        return torch.cat([f, blank, f.new_full((*f.shape[:-1], 1), kind)], -1)

    def _each(self, one: Callable[..., torch.Tensor], f: torch.Tensor, *more: torch.Tensor) -> torch.Tensor:
        """one(part, its outputs, more) over the rows of each kind, put together."""
        shape = torch.broadcast_shapes(f.shape[:-1], *(x.shape for x in more))
        rows = f.expand(*shape, self.size).reshape(-1, self.size)
        others = [x.expand(shape).reshape(-1) for x in more]
        out = rows.new_zeros(len(rows))
        for index, part, outputs in self.laws(rows):
            if len(index):
                values = one(part, rows[index, outputs], *(x[index] for x in others))
                out = out.index_copy(0, index, values.to(out.dtype))
        return out.reshape(shape)
