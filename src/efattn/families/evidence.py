"""What a column of values looks like, for the families that ask whether it is theirs and how large they must be."""

import numpy as np

from efattn.families.supports import WHOLE

OVERDISPERSED = 1.5  # variance over mean: beyond it, counts vary more than Poisson ones


def whole_ends(values: np.ndarray) -> tuple[int, int]:
    """The whole numbers between which all finite values lie; 0 and 1 where there are none."""
    seen = values[np.isfinite(values)]
    return (int(np.floor(seen.min())), int(np.ceil(seen.max()))) if seen.size else (0, 1)


def are_whole(values: np.ndarray) -> bool:
    """Whether there are values and all are whole numbers that can be told from their neighbours."""
    return bool(values.size) and bool(np.all((np.floor(values) == values) & (np.abs(values) < WHOLE)))


def dispersion_of_counts(values: np.ndarray) -> float | None:
    """Variance over mean of whole numbers >= 0 that are not all the same; None of others."""
    if not are_whole(values) or values.min() < 0 or values.min() == values.max():
        return None
    return float(values.var() / values.mean())
