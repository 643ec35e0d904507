"""Ordered levels: the cumulative logit, a relative of the exponential families.

    P(y <= k) = sigmoid(c_k - f),   c_1 < c_2 < ... < c_(K-1)
    log P(y = k) = log sigmoid(u) + log sigmoid(-l) + log(1 - exp(l - u)),   u = c_k - f,   l = c_(k-1) - f

The head gives the location f; the first cut-point and the log increments of the others are the same for all rows.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar, final

import numpy as np
import torch
from torch.nn.functional import logsigmoid, pad

from efattn.families.base import Claim, Family
from efattn.families.dispersion import check_whole
from efattn.families.evidence import are_whole, counts_suffice, whole_ends
from efattn.families.marginal import observed
from efattn.families.stable import bounded, pick, precise, precisely, unbounded
from efattn.families.supports import WHOLE, WholeNumbers

BOUND = 20.0
FEW = 6  # steps of a scale that begins anywhere; from 0, 1 or -k on they may be ten
MOST = 10_000  # levels: each is a cut-point, and a probability of every row


@final
@dataclass(frozen=True)
class Ordinal(Family):
    """low, low + 1, ..., low + K - 1: grades whose distances mean nothing."""

    levels: int
    low: int = 0
    name: ClassVar[str] = "ordinal"
    discrete = True
    exposures = ()

    def __post_init__(self) -> None:
        other = "Choose 'poisson' or 'negative_binomial' (counts) or 'gaussian'."
        check_whole("Ordinal", "levels", self.levels, 2, MOST, f"each has a cut-point of its own. {other}")
        check_whole("Ordinal", "low", self.low, -WHOLE, WHOLE - MOST, f"larger numbers cannot be told apart. {other}")

    @classmethod
    def examples(cls) -> "tuple[Ordinal, ...]":
        return cls(levels=5, low=1), cls(levels=2)

    @classmethod
    def sized(cls, values: np.ndarray, columns: int) -> dict[str, Any]:
        low, high = whole_ends(values)
        return {"levels": max(high - low + 1, 2), "low": low}

    @classmethod
    def applicable(cls, values: np.ndarray) -> Claim | None:
        if not are_whole(values) or not 0 < values.max() - values.min() <= 10 or counts_suffice(values):
            return None
        begins = 0 <= values.min() <= 1 or values.min() == -values.max()
        if not begins and values.max() - values.min() > FEW:
            return None
        return Claim(2, f"whole numbers from {values.min():.17g} to {values.max():.17g}")

    @property
    def numbers(self) -> int:
        return self.levels

    @property
    def level_names(self) -> tuple[int, ...]:
        return tuple(range(self.low, self.low + self.levels))

    @property
    def cut_points(self) -> int:
        return self.levels - 1

    @property
    def origin(self) -> float:
        return float(self.low)

    def at_origin(self) -> "Ordinal":
        return replace(self, low=0)

    @property
    def shared(self) -> tuple[bool, ...]:
        return (False,) + (True,) * (self.levels - 1)

    @property
    def dispersions(self) -> tuple[bool, ...]:
        """All but the first cut-point, which is a location."""
        return (False, False) + (True,) * (self.levels - 2)

    @property
    def support(self) -> WholeNumbers:
        return WholeNumbers(self.low, self.low + self.levels - 1)

    @precisely
    def log_prob(self, f: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return pick(self._log_probs(f), y - self.low)

    def mean(self, f: torch.Tensor) -> torch.Tensor:
        return self.low + (self._log_probs(f).exp() * self._steps(f)).sum(-1)

    def variance(self, f: torch.Tensor) -> torch.Tensor:
        p, steps = self._log_probs(f).exp(), self._steps(f)
        mean = (p * steps).sum(-1, keepdim=True)
        return (p * (steps - mean) ** 2).sum(-1)

    def probabilities(self, f: torch.Tensor) -> torch.Tensor:
        return self._log_probs(f).exp()

    def sample(self, f: torch.Tensor, generator: torch.Generator | None = None) -> torch.Tensor:
        p = torch.rand(f.shape[:-1], dtype=f.dtype, device=f.device, generator=generator)
        return self.quantile(f.detach(), p)

    def cdf(self, f: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        below = pad(self._cumulative(f.detach()), (1, 0), value=0.0)  # (..., K + 1), P(y < low) first
        return pick(below, (y.floor() - self.low + 1).clamp(0, self.levels)).to(f.dtype)

    def quantile(self, f: torch.Tensor, p: float | torch.Tensor) -> torch.Tensor:
        p = precise(torch.as_tensor(p, device=f.device))
        steps = (self._cumulative(f.detach()).to(f.dtype) < p.unsqueeze(-1)).sum(-1)
        return (self.low + steps).to(f.dtype)

    def start(self, y: torch.Tensor, weight: torch.Tensor | None = None) -> torch.Tensor:
        rows, weights = observed(y, weight)
        counts = torch.zeros(self.levels, dtype=weights.dtype, device=y.device)
        counts = counts.index_add_(0, (rows - self.low).long(), weights).clamp_min(0.5)  # never seen: half a row
        cuts = (counts.cumsum(0)[:-1].log() - counts.flip(0).cumsum(0).flip(0)[1:].log()).double()
        return torch.cat([cuts.new_zeros(1), cuts[:1], unbounded(cuts.diff().log(), BOUND)])

    def from_margins(self, margins: torch.Tensor) -> torch.Tensor:
        gaps = unbounded(margins.diff(dim=-1).clamp_min(torch.finfo(margins.dtype).tiny).log(), BOUND)
        return torch.cat([torch.zeros_like(margins[..., :1]), margins[..., :1], gaps], -1)

    def _steps(self, f: torch.Tensor) -> torch.Tensor:
        return torch.arange(self.levels, dtype=f.dtype, device=f.device)

    def _margins(self, f: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """c_k - f (..., K - 1) and the increments between the cut-points (..., K - 2)."""
        gaps = bounded(f[..., 2:], BOUND).exp()
        return (f[..., 1:2] - f[..., :1]) + pad(gaps.cumsum(-1), (1, 0)), gaps

    def _log_probs(self, f: torch.Tensor) -> torch.Tensor:
        """The log-probabilities of all levels, (..., K)."""
        margins, gaps = self._margins(f)
        inner = (-(-gaps).expm1()).log()
        return pad(logsigmoid(margins), (0, 1)) + pad(logsigmoid(-margins), (1, 0)) + pad(inner, (1, 1))

    def _cumulative(self, f: torch.Tensor) -> torch.Tensor:
        """P(y <= k) for all levels, (..., K)."""
        return pad(self._margins(precise(f))[0].sigmoid(), (0, 1), value=1.0)
