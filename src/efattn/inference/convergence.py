"""Whether sweeps were enough: how fast chains move, and whether all of them drift away from where they began.

    split R-hat    R^2 = (n - 1) / n + B / W; each chain's last sweeps in two halves of n; W: the variance within
                   halves, B: that of their means around the mean of all chains that draw the same
    drift          mean over chains of (a statistic in the last quarter of the sweeps - at first), in units of what it
                   varies by from chain to chain at first

Chains begin at draws that are right already as far as a model with holes in its context agrees with itself. If it does,
slow chains do no harm: there is no drift. So both have to be far off to be a warning. Each group is a chain of its own,
so that groups are independent of each other and nothing has to be thinned.
"""

from collections.abc import Sequence

import numpy as np

from efattn.errors import Note, option

FEWEST = 8  # sweeps that say anything
FAR, SURE = 1.1, 0.99  # the R-hat from which on chains are slow, unless chance gives as much so often
DRIFT, ERRORS = 0.5, 3.5  # how far chains may drift, and how many standard errors make it no accident
RAN_AWAY = Note(
    "convergence",
    "Sweeps over the groups ran away: what the model says of each value given all others is no joint law. They were "
    "given up, and values are as drawn one after the other, each given those before it. Companions, or more rows to "
    "fit to, would help.",
    option="burn_in",
    important=True,
)


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


def drift(trace: np.ndarray) -> float:
    """The largest of all statistics; 0 of those that may be accidents, and of a single chain, which tells nothing."""
    if len(trace) < 2:
        return 0.0
    moved, spread = trace[:, -max(trace.shape[1] // 4, 1) :].mean(1) - trace[:, 0], trace[:, 0].std(0, ddof=1)
    sure = np.abs(moved.mean(0)) > ERRORS * moved.std(0, ddof=1) / np.sqrt(len(moved))
    share = np.divide(np.abs(moved.mean(0)), spread, out=np.zeros_like(spread), where=spread > 0)
    return float(np.where(sure, share, 0.0).max())


def convergence(traces: Sequence[tuple[str, np.ndarray, np.ndarray]]) -> Note | None:
    """What to tell of all chains. traces: what was drawn, (chain, 1 + sweep, statistic), and the kind of each chain."""
    told, far, most = [], False, 1
    for what, trace, kind in traces:
        if trace.shape[1] < FEWEST or not np.isfinite(trace).all():
            continue
        r_hat, chance = split_r_hat(trace, kind)
        worst, moved = float(r_hat.max()), drift(trace)
        far |= worst > max(FAR, chance) and moved > DRIFT
        most = max(most, trace.shape[1] - 1)
        told.append(f"{what} {worst:.2f} (drift {moved:.2f})")
    if not told:
        return None
    said = f"Drawn by turns, {most} sweeps a group. Split R-hat, 1 of chains that move fast: {', '.join(told)}."
    if far:
        said += f" They drift and are slow, so that more sweeps would change them: try {option('burn_in', 4 * most)}."
    return Note("convergence", said, option="burn_in", important=far)
