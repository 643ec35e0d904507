"""How long groups are: a histogram of those of the fit, and draws from it.

P(length = n) = groups of length n / all groups          of a group that has m rows already, given n >= m
"""

import numpy as np

from efattn.errors import DataError, option


def length_counts(lengths: np.ndarray, before: np.ndarray | None = None) -> np.ndarray:
    """(any, 2): lengths, rising, and how many groups have each; before: those of an earlier fit, which count too."""
    counted = np.unique(lengths[lengths > 0], return_counts=True)
    both = np.stack(counted, 1).astype(np.int64)
    if before is not None:
        every, where = np.unique(np.concatenate((before[:, 0], both[:, 0])), return_inverse=True)
        counts = np.bincount(where, np.concatenate((before[:, 1], both[:, 1])))
        both = np.stack((every, counts.astype(np.int64)), 1)
    return both


def drawn_lengths(counts: np.ndarray | None, at_least: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """(group,): one for each, not below what it has already; of a group longer than all of the fit, its own."""
    if counts is None:
        raise DataError(
            "This model is of an older version, which did not keep how long groups are: say so by "
            f"{option('length', 10)}.",
            option="length",
        )
    length, count = counts.T
    first = np.searchsorted(length, at_least)
    below = np.concatenate(([0], np.cumsum(count)))
    left = below[-1] - below[first]
    at = below[first] + np.floor(random.random(len(at_least)) * left).astype(np.int64)
    found = length[np.minimum(np.searchsorted(below[1:], at, "right"), len(length) - 1)]
    return np.where(left > 0, found, at_least)
