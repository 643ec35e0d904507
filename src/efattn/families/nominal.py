"""Levels without an order, as the values of a column: y is the number of a level.

    log p(y) = y f_0 + f_y - log sum_k exp(k f_0 + f_k),     k = 0 .. K - 1,   nothing added for k = 0 beside
    eta = f,   t(y) = (y, [y = 1], ..., [y = K - 1]),   A = the logarithm of the sum,   h = 1

With all of f from a network this is the multinomial logit. f_0 alone leans towards later levels, which is all that a
model with one location can say: levels that go together with the same things should have neighbouring numbers.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np
import torch
from torch.nn.functional import one_hot, pad

from efattn.families.base import ExponentialFamily
from efattn.families.dispersion import check_whole
from efattn.families.evidence import whole_ends
from efattn.families.marginal import observed
from efattn.families.stable import pick, precise, precisely
from efattn.families.supports import WholeNumbers

MOST = 10_000


@final
@dataclass(frozen=True)
class Nominal(ExponentialFamily):
    """0, 1, ..., K - 1: numbers of levels, whose mean says nothing and whose mode and probabilities do."""

    levels: int
    name: ClassVar[str] = "nominal"
    discrete = True
    exposures = ()

    def __post_init__(self) -> None:
        check_whole("Nominal", "levels", self.levels, 2, MOST, "each has a probability of its own.")

    @classmethod
    def examples(cls) -> "tuple[Nominal, ...]":
        return cls(levels=4), cls(levels=2)

    @classmethod
    def sized(cls, values: np.ndarray, columns: int) -> dict[str, Any]:
        return {"levels": max(whole_ends(values)[1] + 1, 2)}

    @property
    def numbers(self) -> int:
        return self.levels

    @property
    def level_names(self) -> tuple[int, ...]:
        return tuple(range(self.levels))

    @property
    def shared(self) -> tuple[bool, ...]:
        return (False,) + (True,) * (self.levels - 1)

    @property
    def support(self) -> WholeNumbers:
        return WholeNumbers(0, self.levels - 1)

    def natural(self, f: torch.Tensor) -> torch.Tensor:
        return f

    def statistic(self, y: torch.Tensor) -> torch.Tensor:
        return torch.cat([y.unsqueeze(-1), one_hot(y.long(), self.levels)[..., 1:].to(y.dtype)], -1)

    def log_partition(self, eta: torch.Tensor) -> torch.Tensor:
        return self._logits(eta).logsumexp(-1)

    def log_base(self, y: torch.Tensor) -> torch.Tensor:
        return torch.zeros_like(y)

    @precisely
    def log_prob(self, f: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return pick(self._logits(f).log_softmax(-1), y)

    def probabilities(self, f: torch.Tensor) -> torch.Tensor:
        return self._logits(f).softmax(-1)

    def mean(self, f: torch.Tensor) -> torch.Tensor:
        return (self.probabilities(f) * self._steps(f)).sum(-1)

    def variance(self, f: torch.Tensor) -> torch.Tensor:
        p, steps = self.probabilities(f), self._steps(f)
        mean = (p * steps).sum(-1, keepdim=True)
        return (p * (steps - mean) ** 2).sum(-1)

    def sample(self, f: torch.Tensor, generator: torch.Generator | None = None) -> torch.Tensor:
        p = torch.rand(f.shape[:-1], dtype=f.dtype, device=f.device, generator=generator)
        return self.quantile(f.detach(), p)

    def cdf(self, f: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        below = pad(self._cumulative(f), (1, 0), value=0.0)  # (..., K + 1), P(y < 0) first
        return pick(below, (y.floor() + 1).clamp(0, self.levels)).to(f.dtype)

    def quantile(self, f: torch.Tensor, p: float | torch.Tensor) -> torch.Tensor:
        p = precise(torch.as_tensor(p, device=f.device))
        return (self._cumulative(f).to(f.dtype)[..., :-1] < p.unsqueeze(-1)).sum(-1).to(f.dtype)

    def start(self, y: torch.Tensor, weight: torch.Tensor | None = None) -> torch.Tensor:
        rows, weights = observed(y, weight)
        counts = torch.zeros(self.levels, dtype=weights.dtype, device=y.device)
        counts = counts.index_add_(0, rows.long(), weights).clamp_min(0.5).double()  # never seen: half a row
        logs = counts.log()
        return torch.cat([logs.new_zeros(1), logs[1:] - logs[0]])

    def _logits(self, f: torch.Tensor) -> torch.Tensor:
        """Of all levels (..., K)."""
        return f[..., :1] * self._steps(f) + pad(f[..., 1:], (1, 0))

    def _steps(self, f: torch.Tensor) -> torch.Tensor:
        return torch.arange(self.levels, dtype=f.dtype, device=f.device)

    def _cumulative(self, f: torch.Tensor) -> torch.Tensor:
        """P(y <= k) for all levels, (..., K)."""
        below = self.probabilities(precise(f.detach()))[..., :-1].cumsum(-1)
        return pad(below, (0, 1), value=1.0)
