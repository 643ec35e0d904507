"""Whether chains have forgotten where they began: split R-hat of what was drawn, over sweeps.

    R^2 = (n - 1) / n + B / W          each chain's last sweeps in two halves of n; W: the variance within halves,
                                       B: that of their means around the mean of all chains that draw the same

Each group is a chain of its own, so that groups are independent of each other and nothing has to be thinned.
"""

from collections.abc import Sequence

import numpy as np

from efattn.errors import Note, option

FEWEST = 8  # sweeps that say anything
FAR, SURE = 1.1, 0.99  # the R-hat from which on it is said aloud, unless chance gives as much so often


def split_r_hat(trace: np.ndarray, kind: np.ndarray) -> tuple[np.ndarray, float]:
    """(statistic,), and what chance alone may give. trace: (chain, sweep, statistic); kind: (chain,), the same for
    chains that draw from the same law."""
    from scipy.stats import chi2

    n = trace.shape[1] // 4
    halves = trace[:, trace.shape[1] - 2 * n :].reshape(len(trace), 2, n, -1)
    within = halves.var(2, ddof=1).mean((0, 1))
    means = halves.mean(2).reshape(2 * len(trace), -1)
    _, which = np.unique(np.repeat(kind, 2), return_inverse=True)
    count = np.bincount(which)
    middle = np.stack([np.bincount(which, column) for column in means.T], 1) / count[:, None]
    degrees = len(means) - len(count)
    between = ((means - middle[which]) ** 2).sum(0) / max(degrees, 1)
    ratio = np.divide(between, within, out=np.zeros_like(between), where=within > 0)
    chance = np.sqrt((n - 1) / n + chi2.ppf(SURE, degrees) / degrees / n)
    return np.sqrt((n - 1) / n + ratio), float(chance)


def convergence(traces: Sequence[tuple[str, np.ndarray, np.ndarray]], burn_in: int) -> Note | None:
    """What to tell of all chains. traces: what was drawn, (chain, sweep, statistic), and the kind of each chain."""
    told, far = [], False
    for what, trace, kind in traces:
        if trace.shape[1] < FEWEST or not np.isfinite(trace).all():
            continue
        r_hat, chance = split_r_hat(trace, kind)
        worst = float(r_hat.max())
        far |= worst > max(FAR, chance)
        told.append(f"{worst:.2f} of {what}")
    if not told:
        return None
    said = f"Drawn by turns, {burn_in} sweeps a group; split R-hat, 1 where more sweeps change nothing: "
    said += f"{', '.join(told)}."
    if far:
        said += f" That is too far from 1: try {option('burn_in', 2 * burn_in)}."
    return Note("convergence", said, option="burn_in", important=far)
