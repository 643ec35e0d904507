"""Newton's steps for a penalised likelihood of outputs that are linear in the coefficients.

    minimise   sum_j w_j / 2 (theta_j - aim_j)^2 - sum_i log p(y_i | f_i),      f_i,k = start_k + X_k,i . theta_k

A few steps where L-BFGS takes dozens, with derivatives of the family's own log-probability.
"""

import time
from typing import Protocol

import torch
from torch import Tensor

STEPS, HALVES, TOLERANCE, NEAR = 25, 12, 1e-6, 1e-4  # TOLERANCE: nats in all, times the number of rows


class Linear(Protocol):
    """What is minimised: a design (row, coefficient) for each output, with the place of its coefficients."""

    def design(self) -> list[tuple[Tensor, Tensor]]: ...

    def row_log_likelihood(self, f: Tensor) -> Tensor:
        """(row,) of outputs (row, size), those of the start without any coefficient included elsewhere."""
        ...

    def offset(self) -> Tensor:
        """f (row, size) where all coefficients are 0."""
        ...

    def aims(self) -> Tensor:
        """What coefficients are drawn to."""
        ...


def newton(problem: Linear, weight: Tensor, first: Tensor, end: float) -> Tensor:
    """The best coefficients from a first guess on, until `end` at the latest."""
    design, offset, aim = problem.design(), problem.offset(), problem.aims()
    theta = first.clone()

    def outputs(point: Tensor) -> Tensor:
        return offset + torch.stack([x @ point[where] for x, where in design], -1)

    def penalty(point: Tensor) -> float:
        return float((weight / 2 * (point - aim) ** 2).sum())

    def loss(point: Tensor) -> float:
        value = penalty(point) - float(problem.row_log_likelihood(outputs(point)).sum())
        return value if value == value else float("inf")

    value = loss(theta)
    for _ in range(STEPS):
        gradient, curvature = derivatives(problem, outputs(theta))
        slope, hessian = weight * (theta - aim), torch.diag(weight)
        for k, (x, where) in enumerate(design):
            slope[where] -= x.T @ gradient[:, k]
            for m in range(k + 1):
                y, there = design[m]
                block = x.T @ (curvature[:, k, m, None] * y)
                hessian[where[:, None], there] -= block
                if m < k:
                    hessian[there[:, None], where] -= block.T
        step = _solved(hessian, slope)
        if step is None:
            break
        moved, scale = None, 1.0
        for _ in range(HALVES):
            new = loss(theta - scale * step)
            if new < value:
                moved = value - new
                theta, value = theta - scale * step, new
                break
            scale /= 2
        if moved is None or moved < TOLERANCE * len(offset) or time.monotonic() > end:
            break
    return theta


def derivatives(problem: Linear, f: Tensor) -> tuple[Tensor, Tensor]:
    """Of the log-likelihood of each row in its outputs: first (row, size), second (row, size, size). The second are
    differences of the first, which any family has; steps need them to a few digits."""

    def first(point: Tensor) -> Tensor:
        with torch.enable_grad():
            point = point.detach().requires_grad_()
            (slope,) = torch.autograd.grad(problem.row_log_likelihood(point).sum(), point)
        return slope.nan_to_num(0.0)

    second = []
    for k in range(f.shape[1]):
        step = torch.zeros_like(f)
        step[:, k] = NEAR * (1 + f[:, k].abs())
        second.append((first(f + step) - first(f - step)) / (2 * step[:, k, None]))
    return first(f), torch.stack(second, 1)


def _solved(hessian: Tensor, slope: Tensor) -> Tensor | None:
    """A step downwards: where the curve is no bowl, it is made one."""
    damping = 0.0
    level = hessian.diagonal().abs().clamp_min(1e-8)
    for _ in range(10):
        factor, wrong = torch.linalg.cholesky_ex(hessian + torch.diag(damping * level))
        if not int(wrong):
            step = torch.cholesky_solve(slope[:, None], factor)[:, 0]
            return step if bool(step.isfinite().all()) else None
        damping = max(damping * 4, 0.01)
    return None
