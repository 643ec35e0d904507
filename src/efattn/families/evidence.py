"""What a column of values looks like, for the families that ask whether it is theirs and how large they must be."""

from collections.abc import Sequence

import numpy as np

from efattn.families.supports import WHOLE

FAR = 10.0  # a mean beyond which counts that never come near 0 vary as Poisson ones do, or are none
ERRORS = 3.0  # standard errors of a ratio of variance to mean
ROUND, ROUNDED = 10, 0.5  # the share of multiples of ten among many numbers, from which on they are rounded
ENOUGH = 30  # values, below which levels are not judged by their law
OVERDISPERSED = 1.5  # variance over mean: beyond it, counts vary more than Poisson ones


def whole_ends(values: np.ndarray) -> tuple[int, int]:
    """The whole numbers between which all finite values lie; 0 and 1 where there are none."""
    seen = values[np.isfinite(values)]
    return (int(np.floor(seen.min())), int(np.ceil(seen.max()))) if seen.size else (0, 1)


def are_whole(values: np.ndarray) -> bool:
    """Whether there are values and all are whole numbers that can be told from their neighbours."""
    return bool(values.size) and bool(np.all((np.floor(values) == values) & (np.abs(values) < WHOLE)))


def dispersion_of_counts(values: np.ndarray) -> float | None:
    """Variance over mean of whole numbers >= 0 that are counts of something; None of others. Whole numbers are no
    counts because they are whole: temperatures, years and ages are better described by a normal curve, prices and
    incomes lie far from 0 or are rounded to tens."""
    if not are_whole(values) or values.min() < 0 or values.min() == values.max():
        return None
    ratio = float(values.var() / values.mean())
    if values.min() > 0 and values.mean() > FAR and abs(ratio - 1) > ERRORS * np.sqrt(2 / values.size):
        return None
    if values.max() > ROUND**2 and np.mean(values[values > 0] % ROUND == 0) > ROUNDED:
        return None
    return None if normal_is_better([values]) else ratio


def normal_is_better(several: Sequence[np.ndarray]) -> bool:
    """Whether rounded normal laws describe whole numbers, each item's own, clearly better than laws of counts do."""
    varied = [one for one in several if one.min() < one.max()]
    gain = sum(_normal(one) - _counts(one) for one in varied)
    return bool(varied) and gain > np.log(sum(one.size for one in varied))


def counts_are_better(values: np.ndarray) -> bool:
    """Whether a law of counts describes whole numbers clearly better than a rounded normal one does."""
    return values.min() < values.max() and _counts(values) - _normal(values) > np.log(values.size)


def counts_suffice(values: np.ndarray, least: int = 3, spare: int = 2) -> bool:
    """Whether a few whole numbers from 0 on, such as goals, are described by a law of counts about as well as by a
    probability for each level, which has more parameters (Schwarz's criterion). least: how far they have to reach;
    spare: parameters of a law of counts, 0 where it is likely anyhow; it is then enough that too few speak against."""
    if values.min() != 0 or values.max() < least or (values.size < ENOUGH and spare):
        return False
    share = np.bincount(values.astype(np.int64)) / values.size
    free = values.size * float(np.sum(share[share > 0] * np.log(share[share > 0])))
    return 2 * (free - _counts(values)) <= max(len(share) - 1 - spare, 1) * np.log(values.size)


def _counts(values: np.ndarray) -> float:
    """The log-likelihood of a negative binomial with the values' mean and variance, Poisson where they vary less."""
    from scipy import stats

    mean, variance = float(values.mean()), float(values.var())
    if variance <= mean * (1 + 1e-9):
        return float(stats.poisson(mean).logpmf(values).sum())
    p = mean / variance
    return float(stats.nbinom(mean * p / (1 - p), p).logpmf(values).sum())


def _normal(values: np.ndarray) -> float:
    """The log-likelihood of a normal law of the same moments, rounded to whole numbers."""
    from scipy import special

    mean, sd = float(values.mean()), float(values.std())
    upper, lower = (values + 0.5 - mean) / sd, (values - 0.5 - mean) / sd
    above = lower > 0  # the tail in which the difference of two probabilities keeps its digits
    high, low = np.where(above, -lower, upper), np.where(above, -upper, lower)
    a, b = special.log_ndtr(high), special.log_ndtr(low)
    return float((a + np.log1p(-np.exp(np.minimum(b - a, -1e-300)))).sum())
