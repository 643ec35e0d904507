"""Fingerprints of groups, by their names: to tell, without keeping a name, whether a model has seen a group."""

import hashlib

import numpy as np

from efattn.data.groups import Groups
from efattn.data.names import Names

BLOCK = 2**16  # names at a time


def fingerprints(groups: Groups) -> np.ndarray:
    """(group,), int64: equal for equal names, whatever the rows of the group are."""
    if not groups.columns:
        return _digests(groups.labels)
    blocks = [groups.numbers[k : k + BLOCK] for k in range(0, len(groups), BLOCK)]
    found = [_digests(groups.labels.take(block)) for block in blocks]
    return np.concatenate(found) if found else np.zeros(0, np.int64)


def _digests(names: Names) -> np.ndarray:
    keys = names.keys()  # exact, and the same whatever kind of integer they came as
    digests = (hashlib.blake2b(repr(key).encode("utf-8", "replace"), digest_size=8).digest() for key in keys)
    return np.frombuffer(b"".join(digests), "<i8").astype(np.int64)


def seen_by(*several: Groups | None) -> np.ndarray:
    """All of these, sorted, each once."""
    every = [fingerprints(groups) for groups in several if groups is not None]
    return np.unique(np.concatenate(every)) if every else np.zeros(0, np.int64)
