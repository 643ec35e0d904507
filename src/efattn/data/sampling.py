"""Groups that are on disk, some of them at a time in memory.

    few         whole groups drawn at random, as many as have so many rows: for what need not see everything
    each_part   all groups one after the other, so many rows at a time: for what must

Groups in memory, and few rows anywhere, are given back as they are.
"""

from collections.abc import Iterator
from dataclasses import fields, replace

import numpy as np

from efattn.data.batches import ranges
from efattn.data.groups import Groups

FEW = 1_000_000  # rows


def many(groups: Groups, rows: int | None = None) -> bool:
    """Whether they are on disk, and more than so many rows."""
    return groups.home is not None and groups.count > (rows or FEW)


def few(groups: Groups, rows: int | None = None, seed: int = 0) -> Groups:
    """In memory, with the groups that are their lags."""
    if not many(groups, rows):
        return groups
    order = np.random.default_rng(seed).permutation(len(groups))
    kept = order[: max(int(np.searchsorted(np.cumsum(groups.lengths[order]), rows or FEW, "right")), 1)]
    return loaded(groups.subset(np.sort(kept)))


def each_part(groups: Groups, rows: int | None = None) -> Iterator[Groups]:
    """Each in memory."""
    if not many(groups, rows):
        yield groups
        return
    ends, start = np.cumsum(groups.lengths), 0
    while start < len(groups):
        before = int(ends[start - 1]) if start else 0
        stop = max(int(np.searchsorted(ends, before + (rows or FEW), "right")), start + 1)
        yield loaded(groups.subset(np.arange(start, stop)))
        start = stop


def loaded(groups: Groups) -> Groups:
    """The same groups, with arrays that hold nothing but them and their lags."""
    kept, lagged = groups.numbers, groups.lagged
    if lagged is not None:
        theirs = lagged[kept]
        kept = np.unique(np.concatenate((kept, theirs[theirs >= 0])))
        place = np.full(len(groups.offsets), -1, lagged.dtype)
        place[kept] = np.arange(len(kept))
        lagged = np.where(lagged[kept] >= 0, place[lagged[kept]], -1).astype(lagged.dtype)
    start, stop = groups.offsets[kept], groups.offsets[kept + 1]
    at = ranges(start, stop)
    arrays = {f.name: getattr(groups.every, f.name) for f in fields(groups.every)}
    return replace(
        groups,
        every=replace(groups.every, **{name: x[at] for name, x in arrays.items() if x is not None}),
        offsets=np.concatenate((np.zeros(1, np.int64), np.cumsum(stop - start))),
        labels=groups.labels.take(kept),
        time=None if groups.time is None else groups.time[kept],
        series=None if groups.series is None else groups.series[kept],
        lagged=lagged,
        chosen=None if len(kept) == len(groups) else np.searchsorted(kept, groups.numbers),
        home=None,
    )
