"""A Gaussian fitted to incomplete rows by expectation-maximisation, its covariance drawn to a target T.

    maximise   sum_rows log N(x_seen | mu_seen, Sigma_seen)  -  k/2 (log |Sigma| + tr(T Sigma^-1))

    E   x^ = E[x | x_seen],  C = Cov[x | x_seen]
    M   mu = mean of x^,     Sigma = (sum (x^ - mu)(x^ - mu)' + C  +  k T) / (n + k)

With complete rows, Sigma = (1 - w) sample + w T for k = n w / (1 - w), at once. Rows that miss the same columns share
their matrices.
"""

import math
import time
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from efattn.families.stable import LOG_2_PI

CELLS = 2**22  # of the matrices held at once


class Normal(NamedTuple):
    """mean (column,), covariance (column, column), and the objective after each round."""

    mean: Tensor
    covariance: Tensor
    trace: list[float]


class Rows:
    """Incomplete rows x (row, column), NaN where missing, sorted by what they miss."""

    def __init__(self, x: np.ndarray) -> None:
        seen, pattern = np.unique(~np.isnan(x), axis=0, return_inverse=True)
        pattern = pattern.reshape(-1)
        by = np.argsort(pattern, kind="stable")
        self.x, self.pattern = torch.as_tensor(x[by]).double().nan_to_num(0.0), torch.as_tensor(pattern[by]).long()
        self.seen = torch.as_tensor(seen)

    def __len__(self) -> int:
        return len(self.x)


def fit(
    rows: Rows,
    start: Normal,
    target: Tensor,
    strength: float,
    *,
    fixed_mean: bool = False,
    rounds: int = 200,
    tolerance: float = 1e-5,
    end: float = math.inf,
) -> Normal:
    """strength: k; start: where to begin; stops when the objective per row moves by less than the tolerance, or when
    the clock (time.thread_time) is past `end`."""
    mean, sigma, trace = start.mean, start.covariance, list[float]()
    for _ in range(rounds):
        value, total, outer = _expect(rows, mean, sigma)
        factor = torch.linalg.cholesky(sigma)
        trace.append(value - strength / 2 * float(_log_det(factor) + torch.cholesky_solve(target, factor).trace()))
        if len(trace) > 1 and (trace[-1] - trace[-2] < tolerance * len(rows) or time.thread_time() > end):
            break
        n = len(rows)
        shift = torch.zeros_like(mean) if fixed_mean else total / n
        mean = mean + shift
        sigma = (outer - n * torch.outer(shift, shift) + strength * target) / (n + strength)
        sigma = _safe((sigma + sigma.T) / 2)
    return Normal(mean, sigma, trace)


def _expect(rows: Rows, mean: Tensor, sigma: Tensor) -> tuple[float, Tensor, Tensor]:
    """Log-likelihood, and the sums over rows of x^ - mean and of its outer product plus C."""
    size = len(mean)
    step, value, total, outer = max(1, CELLS // size**2), 0.0, torch.zeros_like(mean), torch.zeros_like(sigma)
    number = torch.bincount(rows.pattern, minlength=len(rows.seen))
    starts = torch.cat([torch.zeros(1, dtype=torch.long), number.cumsum(0)])
    for first in range(0, len(rows.seen), step):
        seen = rows.seen[first : first + step]
        factor, inverse = factored(sigma, seen)
        counts = number[first : first + step]
        covered = torch.einsum("p,pij->ij", counts.double(), inverse)
        outer += counts.sum() * sigma - sigma @ covered @ sigma
        value -= 0.5 * float((counts * (_log_det(factor) + LOG_2_PI * seen.sum(1))).sum())
        begin, end = int(starts[first]), int(starts[first + len(seen)])
        for at in range(begin, end, step):
            here = slice(at, min(at + step, end))
            of = rows.pattern[here] - first
            rest = torch.where(seen[of], rows.x[here] - mean, 0.0)
            solved = (inverse[of] @ rest[..., None])[..., 0] if len(seen) > 1 else rest @ inverse[0]
            guess = solved @ sigma
            value -= 0.5 * float((rest * solved).sum())
            total += guess.sum(0)
            outer += guess.T @ guess
    return value, total, outer


def factored(sigma: Tensor, seen: Tensor) -> tuple[Tensor, Tensor]:
    """For each set of seen columns (set, column): the Cholesky factor, and the inverse with zeros elsewhere."""
    both = seen[:, :, None] & seen[:, None]
    factor = torch.linalg.cholesky(torch.where(both, sigma, 0.0) + torch.diag_embed((~seen).double()))
    return factor, torch.where(both, torch.cholesky_inverse(factor), 0.0)


def _log_det(factor: Tensor) -> Tensor:
    return 2 * factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)


def _safe(sigma: Tensor) -> Tensor:
    """Positive definite, if only just."""
    return sigma + 1e-9 * sigma.diagonal().mean() * torch.eye(len(sigma), dtype=sigma.dtype)
