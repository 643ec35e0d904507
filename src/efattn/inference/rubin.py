"""Estimates from several completed tables put together (Rubin's rules).

estimate = mean of the estimates,    within W = mean of their variances,    between B = variance of the estimates
total T = W + (1 + 1/m) B,    degrees = (m - 1) / lambda^2,    lambda = (1 + 1/m) B / T
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from efattn.errors import DataError, named


class Pooled(NamedTuple):
    """estimate, with its standard error sd and an interval by Student's t; degrees: of that t; missing: the share of
    the variance that is due to what is missing."""

    estimate: Any
    sd: Any
    lower: Any
    upper: Any
    degrees: Any
    missing: Any


def pool(estimates: Sequence[Any], variances: Sequence[Any], *, level: float = 0.95) -> Pooled:
    """One estimate from those of m completed tables. estimates: one number, or one array, of each; variances: theirs,
    squares of standard errors. level: of the interval."""
    from scipy.special import stdtrit

    q, u = np.asarray(estimates, np.float64), np.asarray(variances, np.float64)
    m = len(q) if q.ndim else 0
    if m < 2 or q.shape != u.shape or not np.isfinite(q).all() or not (np.isfinite(u) & (u >= 0)).all():
        raise DataError(
            f"{named('estimates')} and {named('variances')} are finite numbers, as many of each, from at least two "
            f"completed tables; found shapes {q.shape} and {u.shape}.",
            option="estimates",
        )
    if isinstance(level, bool) or not 0 < level < 1:
        raise DataError(f"{named('level')} is a probability between 0 and 1; found {level!r}.", option="level")
    within, between = u.mean(0), q.var(0, ddof=1)
    total = within + (1 + 1 / m) * between
    missing = np.divide((1 + 1 / m) * between, total, out=np.zeros_like(total), where=total > 0)
    degrees = np.divide(m - 1, missing**2, out=np.full_like(total, np.inf), where=missing > 0)
    estimate, sd = q.mean(0), np.sqrt(total)
    wide = stdtrit(np.minimum(degrees, 1e12), (1 + level) / 2) * sd
    return Pooled(*(_plain(x) for x in (estimate, sd, estimate - wide, estimate + wide, degrees, missing)))


def _plain(x: np.ndarray) -> Any:
    return float(x) if np.ndim(x) == 0 else x
