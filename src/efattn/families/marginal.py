"""The marginal fit, where training starts.

    start = argmax_f  sum_i w_i log p(y_i | f)

In closed form where there is one; otherwise by scipy's L-BFGS-B from the moments. For an exponential family the
objective needs the data only through the mean of t(y).
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from efattn.families.base import ExponentialFamily
from efattn.families.stable import precise

ROWS = 1_000_000  # a marginal fit needs no more
LIMIT = 9.9  # of a log dispersion: a constant column would ask for infinity


def observed(y: torch.Tensor, weight: torch.Tensor | None, columns: int | None = None) -> tuple[torch.Tensor, ...]:
    """The values without the missing, (n,) or (n, columns), and their weights, (n,), which sum to n."""
    rows = precise(y.detach()).reshape(-1) if columns is None else precise(y.detach()).reshape(-1, columns)
    weights = torch.ones_like(rows if columns is None else rows[:, 0])
    if weight is not None:
        weights = precise(weight.detach()).expand(y.shape if columns is None else y.shape[:-1]).reshape(-1)
    kept = (rows == rows if columns is None else (rows == rows).all(-1)) & (weights > 0)
    rows, weights = rows[kept], weights[kept]
    stride = -(-len(rows) // ROWS) or 1
    rows, weights = rows[::stride], weights[::stride]
    return rows, weights * (len(weights) / weights.sum())


def average(x: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """The weighted mean over rows: x is (n,) or (n, k)."""
    return (weights @ x) / weights.sum()


def moments(rows: torch.Tensor, weights: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Weighted mean and variance of (n,) rows."""
    mean = average(rows, weights)
    return mean, average((rows - mean) ** 2, weights)


def by_statistics(
    family: ExponentialFamily, rows: torch.Tensor, weights: torch.Tensor, f: torch.Tensor
) -> torch.Tensor:
    """The marginal fit of an exponential family, from a first guess f."""
    statistic = average(family.statistic(rows), weights)

    def objective(f: torch.Tensor) -> torch.Tensor:
        eta = family.natural(f)
        return (eta * statistic).sum(-1) - family.log_partition(eta)

    return maximise(objective, f)


def maximise(objective: Callable[[torch.Tensor], torch.Tensor], f: torch.Tensor) -> torch.Tensor:
    """The best f from a first guess on; the outputs after the first, log dispersions, stay within the limit."""
    from scipy.optimize import minimize

    def loss(x: np.ndarray) -> tuple[float, np.ndarray]:
        with torch.enable_grad():
            point = torch.as_tensor(x, dtype=f.dtype, device=f.device).requires_grad_()
            value = -objective(point)
            (gradient,) = torch.autograd.grad(value, point)
        return value.item(), gradient.cpu().double().numpy()

    guess = torch.cat([f[:1], f[1:].clamp(-LIMIT, LIMIT)]).detach()
    inside: list[tuple[float | None, float | None]] = [(None, None), *[(-LIMIT, LIMIT)] * (len(f) - 1)]
    exactly: dict[str, Any] = {"options": {"ftol": 0.0, "gtol": 1e-12}}
    optimum = minimize(loss, guess.cpu().numpy(), method="L-BFGS-B", jac=True, bounds=inside, **exactly)
    return torch.as_tensor(optimum.x, dtype=f.dtype, device=f.device)
