"""The marginal fit, where training starts.

    start = argmax_f  sum_i w_i log p(y_i | f)

In closed form where there is one; otherwise by damped Newton steps from the moments. For an exponential family the
objective needs the data only through the mean of t(y).
"""

from collections.abc import Callable

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


def maximise(objective: Callable[[torch.Tensor], torch.Tensor], f: torch.Tensor, steps: int = 60) -> torch.Tensor:
    """Damped Newton ascent; the outputs after the first, log dispersions, stay within the limit."""
    identity = torch.eye(len(f), dtype=f.dtype, device=f.device)
    f, damping = f.detach(), 1e-9
    for _ in range(steps):
        value, gradient, hessian = _derivatives(objective, f)
        if gradient.abs().max() < 1e-12 or damping > 1e9:
            break
        convexity = torch.linalg.eigvalsh(hessian).max().clamp_min(0)
        step = torch.linalg.solve((damping + 2 * convexity) * identity - hessian, gradient)
        trial = f + step.clamp(-2, 2)
        trial = torch.cat([trial[:1], trial[1:].clamp(-LIMIT, LIMIT)])
        if objective(trial) >= value:
            f, damping = trial, damping / 10
        else:
            damping = max(damping, 1e-6) * 10
    return f


def _derivatives(
    objective: Callable[[torch.Tensor], torch.Tensor], f: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    with torch.enable_grad():
        point = f.clone().requires_grad_()
        value = objective(point)
        (gradient,) = torch.autograd.grad(value, point, create_graph=True)
        rows = [torch.autograd.grad(g, point, retain_graph=True)[0] for g in gradient]
    return value.detach(), gradient.detach(), torch.stack(rows)
