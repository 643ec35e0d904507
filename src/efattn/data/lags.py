"""Which group is which lag of which.

    lag d of the group at time t of a series  =  the group of the same series at  t - d * step

The step is the most common difference between neighbouring times of a series, the smaller of two equally common. A lag
that is absent is -1: no position.
"""

from collections.abc import Callable

import numpy as np

from efattn.errors import DataError, option

LEAST = 1e-200  # between two times that are two
_UNITS = [(86_400_000_000, "day"), (3_600_000_000, "hour"), (60_000_000, "minute"), (1_000_000, "second")]


def infer_step(time: np.ndarray, series: np.ndarray) -> float | int:
    """time, series: (group,)."""
    by = np.lexsort((time, series))
    between, same = np.diff(time[by]), np.diff(series[by]) == 0
    between = between[same & (between > (0 if between.dtype.kind == "i" else LEAST))]
    if not len(between):
        raise DataError(
            "Lags need at least two times in a series; every series has one. "
            f"Check the roles time and series, or pass {option('lags', 0)}.",
            option="lags",
        )
    if between.dtype.kind == "f":
        between = np.round(between, 9 - int(np.ceil(np.log10(np.median(between)))))  # 0.1 + 0.2 - 0.2 is a step of 0.1
        between = between[between > 0]  # a step of nothing would make each group its own lag
    sizes, counts = np.unique(between, return_counts=True)
    return sizes[np.argmax(counts)].item()


def lagged_groups(
    time: np.ndarray, series: np.ndarray, lags: int, step: float, label: Callable[[int], str]
) -> np.ndarray:
    """(group, lag): the number of the group that is lag 1 .. lags of each group, -1 where there is none. int32."""
    times, rank = np.unique(time, return_inverse=True)
    key = series.astype(np.int64) * len(times) + rank
    by = np.argsort(key, kind="stable")
    ordered = key[by]
    twice = np.flatnonzero(np.diff(ordered) == 0)
    if twice.size:
        one, two = by[twice[0]], by[twice[0] + 1]
        raise DataError(
            f"With lags a series has one group per time; {label(int(one))} and {label(int(two))} share theirs. "
            f"Name the column that tells them apart in {option('series')}.",
            option="series",
        )
    lagged = np.full((len(time), lags), -1, np.int32)
    for d in range(1, lags + 1):
        if len(times) < 2 or d * step > 1.001 * float(times[-1] - times[0]):
            break  # before the first time of all, perhaps before what numbers can say
        wanted = _position(times, time - d * step, step)
        ask = series.astype(np.int64) * len(times) + wanted
        at = np.minimum(np.searchsorted(ordered, ask), len(ordered) - 1)
        hit = (wanted >= 0) & (ordered[at] == ask)
        lagged[hit, d - 1] = by[at[hit]]
    return lagged


def step_words(step: float, kind: str) -> str:
    """1 day; 15 minutes; 0.5."""
    if kind != "instant":
        return f"{step:g}"
    for size, unit in _UNITS:
        if step % size == 0:
            count = int(step // size)
            return f"{count} {unit}{'s' if count > 1 else ''}"
    return f"{step / 1e6:g} seconds"


def _position(times: np.ndarray, wanted: np.ndarray, step: float) -> np.ndarray:
    """Where each wanted time stands among the sorted distinct times, -1 where it is none of them."""
    slack = 0 if times.dtype.kind == "i" and wanted.dtype.kind == "i" else 1e-6 * step
    at = np.minimum(np.searchsorted(times, wanted - slack), len(times) - 1)
    return np.where(np.abs(times[at] - wanted) <= slack, at, -1)
