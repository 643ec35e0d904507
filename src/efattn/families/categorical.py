"""One of D levels.

log p(y) = f_y - log sum_d exp(f_d)          eta = f,   t(y) = one-hot(y),   A = logsumexp,   h = 1
"""

from dataclasses import dataclass
from typing import ClassVar, final

import torch

from efattn.errors import EfattnError
from efattn.families.base import ExponentialFamily
from efattn.families.dispersion import check_whole
from efattn.families.marginal import observed
from efattn.families.stable import pick
from efattn.families.supports import WholeNumbers


@final
@dataclass(frozen=True)
class Categorical(ExponentialFamily):
    """Levels 0, 1, ..., D - 1 without an order. mean(f) gives their probabilities, (..., D)."""

    levels: int
    name: ClassVar[str] = "categorical"
    of_values: ClassVar[bool] = False
    discrete = True
    exposures = ()

    def __post_init__(self) -> None:
        check_whole("Categorical", "levels", self.levels, low=2)

    @classmethod
    def examples(cls) -> "tuple[Categorical, ...]":
        return (cls(levels=4),)

    @property
    def numbers(self) -> int:
        return self.levels

    @property
    def shared(self) -> tuple[bool, ...]:
        return (False,) * self.levels

    @property
    def support(self) -> WholeNumbers:
        return WholeNumbers(0, self.levels - 1)

    def natural(self, f: torch.Tensor) -> torch.Tensor:
        return f

    def statistic(self, y: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.one_hot(y.long(), self.levels)

    def log_partition(self, eta: torch.Tensor) -> torch.Tensor:
        return eta.logsumexp(-1)

    def log_base(self, y: torch.Tensor) -> torch.Tensor:
        return torch.zeros(y.shape, device=y.device)

    def log_prob(self, f: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return pick(f.log_softmax(-1), y)

    def mean(self, f: torch.Tensor) -> torch.Tensor:
        return f.softmax(-1)

    def variance(self, f: torch.Tensor) -> torch.Tensor:
        p = f.softmax(-1)
        return p * (1 - p)

    def sample(self, f: torch.Tensor, generator: torch.Generator | None = None) -> torch.Tensor:
        race = torch.empty_like(f).exponential_(generator=generator).clamp_min(torch.finfo(f.dtype).tiny)
        return (f.detach() - race.log()).argmax(-1)  # the first of D exponential clocks with rates exp(f)

    def cdf(self, f: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        raise EfattnError(
            "Categorical levels have no order, so no cdf: mean(f) has their probabilities, or use Ordinal."
        )

    def quantile(self, f: torch.Tensor, p: float | torch.Tensor) -> torch.Tensor:
        raise EfattnError("Categorical levels have no order, so no quantiles: use mean(f), or Ordinal.")

    def start(self, y: torch.Tensor, weight: torch.Tensor | None = None) -> torch.Tensor:
        rows, weights = observed(y, weight)
        counts = torch.zeros(self.levels, dtype=weights.dtype, device=y.device).index_add_(0, rows.long(), weights)
        return counts.clamp_min(0.5).log().log_softmax(0)  # a level never seen counts as half a row
