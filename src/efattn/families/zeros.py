"""Zeros that a law of counts does not explain: what zero-inflated and hurdle counts share."""

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import torch

from efattn.errors import DataError
from efattn.families.base import Family
from efattn.families.marginal import average, maximise, observed
from efattn.families.negative_binomial import NegativeBinomial
from efattn.families.supports import WholeNumbers

BOUND = 20.0  # of log odds


class ZerosOfTheirOwn(Family):
    """What does not depend on how they come about."""

    base: Family
    zeros: Literal["learned", "predicted"]
    discrete = True
    support = WholeNumbers(0)

    @classmethod
    def sized(cls, values: np.ndarray, columns: int) -> dict[str, Any]:
        return {"base": NegativeBinomial()}

    @property
    def shared(self) -> tuple[bool, ...]:
        return (*self.base.shared, self.zeros == "learned")

    @property
    def exposures(self) -> tuple[int, ...]:
        return self.base.exposures


def check_counts(title: str, base: object) -> None:
    """A law of counts from 0 on, without an end."""
    if not isinstance(base, Family) or base.support != WholeNumbers(0) or base.atoms or not base.scalar:
        raise DataError(
            f"{title}: base must be a family of counts 0, 1, 2, ..., Poisson() or NegativeBinomial(), not {base!r}."
        )


def log_rest(log_p: torch.Tensor) -> torch.Tensor:
    """log(1 - p) of log p < 0."""
    log_p = log_p.clamp_max(-1e-300)
    return torch.where(log_p > -0.7, (-log_p.clamp_min(-1).expm1()).log(), (-log_p.exp()).clamp_min(-0.9).log1p())


def whole_quantile(cdf: Callable[[torch.Tensor], torch.Tensor], near: torch.Tensor, p: torch.Tensor) -> torch.Tensor:
    """The smallest whole number >= 0 with cdf >= p, from one that rounding may have put one off."""
    lower = (near - 1).clamp_min(0)
    near = torch.where(cdf(lower) >= p, lower, near)
    return torch.where(cdf(near) >= p, near, near + 1)


def marginal_counts(family: Family, y: torch.Tensor, weight: torch.Tensor | None, guess: torch.Tensor) -> torch.Tensor:
    """The marginal fit, from a first guess on; each count once."""
    rows, weights = observed(y, weight)
    counts, where = rows.unique(return_inverse=True)
    times = torch.zeros_like(counts).index_add_(0, where, weights)
    return maximise(lambda f: average(family.log_prob(f, counts), times), guess)
