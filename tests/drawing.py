"""Random ragged data, in float64, for the tests."""

import numpy as np
import torch

from efattn.data import Batch

LENGTHS = (6, 1, 4, 2, 9)


def ragged_batch(seed, *, items=12, lengths=LENGTHS, repeat=False, missing=0.25, lags=0, columns=1, counts=False):
    """Groups of the given lengths with items, values (some missing), places and, if asked for, lagged observations."""
    draw = np.random.default_rng(seed)
    groups = []
    for length in lengths:
        extra = int(draw.integers(0, 5)) if lags else 0
        size = length + extra
        value = draw.poisson(2.0, (size, columns)) + 1.0 if counts else draw.normal(size=(size, columns))
        value[draw.random((size, columns)) < missing] = np.nan
        group = {
            "item": draw.integers(0, items + 1, size) if repeat else _distinct(draw, items, length, extra),
            "value": value,
            "attributes": np.column_stack([draw.uniform(25, 49, size), draw.uniform(-125, -67, size)]),
        }
        if lags:
            group["lag"] = np.r_[np.zeros(length, int), draw.integers(1, lags + 1, extra)]
        groups.append(group)
    return Batch.of(groups, torch.float64)


def _distinct(draw, items, length, extra):
    return np.r_[draw.permutation(items)[:length], draw.integers(0, items, extra)]
