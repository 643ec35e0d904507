"""Rows of held-out groups that training has too: the history of what is held out, and no targets.

A group goes on where it begins with all rows of the training group of its name, and more follow. Tables may use the
same names for other groups, and short ones begin alike by chance: nearly all that have their names in common must.
"""

import numpy as np

from efattn.data.batches import ranges
from efattn.data.fingerprints import fingerprints
from efattn.data.groups import Groups

NEARLY_ALL = 0.9
COMPARED = ("item", "value", "attributes", "when")


def history(train: Groups, held: Groups) -> np.ndarray:
    """(row of held's table in the order of its groups,): which rows train has too. Groups of both are in order."""
    mine, known = fingerprints(held), fingerprints(train)
    order = np.argsort(known, kind="stable")
    place = np.minimum(np.searchsorted(known[order], mine), len(known) - 1)
    there = known[order][place] == mine
    before, of = train.lengths[order[place]], train.numbers[order[place]]
    longer = np.flatnonzero(there & (held.lengths > before))
    starts = held.offsets[held.numbers[longer]]
    first = ranges(starts, starts + before[longer])
    theirs = ranges(train.offsets[of[longer]], train.offsets[of[longer] + 1])
    unlike = np.zeros(len(first), bool)
    for name in COMPARED:
        now, then = getattr(held.every, name), getattr(train.every, name)
        if now is not None and then is not None:
            differs = (now[first] != then[theirs]) & ~((now[first] != now[first]) & (then[theirs] != then[theirs]))
            unlike |= differs if differs.ndim == 1 else differs.any(1)
    group = np.repeat(np.arange(len(longer)), before[longer])
    goes_on = np.bincount(group, unlike, len(longer)) == 0
    seen = np.zeros(len(held.every.row), bool)
    if goes_on.sum() >= NEARLY_ALL * there.sum():
        seen[first[goes_on[group]]] = True
    return seen
