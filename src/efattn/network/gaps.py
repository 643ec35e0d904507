"""The time between two positions, in classes.

    class = sign * round( log2( 1 + |time of the row - time of the column| / unit ) )

A factor of two makes a class, so that seconds and years both have theirs; the unit is a small gap of the training data.
Attention learns, for each head and class, what to add to a score. The time of a target is known as its place is.
"""

from typing import final

import numpy as np
import torch
from torch import Tensor, nn

FARTHEST = 27  # classes to each side: a factor of 10^8
SMALL = 0.1  # the quantile of the gaps that eight units make


@final
class Gaps(nn.Module):
    """unit: of time. usual: the time from one row to the next."""

    size = 2 * FARTHEST + 1

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("unit", torch.ones((), dtype=torch.float64))
        self.register_buffer("usual", torch.ones((), dtype=torch.float64))

    def fit(self, steps: np.ndarray) -> None:
        """steps: the times between rows of a group that follow each other."""
        steps = steps[steps > 0]
        if len(steps):
            self.get_buffer("unit").fill_(float(np.quantile(steps, SMALL)) / 8)
            self.get_buffer("usual").fill_(float(np.median(steps)))

    def forward(self, when: Tensor) -> Tensor:
        """(batch, context) -> (batch, row, column), from 0 to size - 1"""
        return self.between(when[:, :, None], when[:, None])

    def between(self, row: Tensor, column: Tensor) -> Tensor:
        """The class of the time from each column to its row, from 0 to size - 1."""
        apart = (row - column) / self.get_buffer("unit")
        apart = apart.nan_to_num(0.0)  # whatever the unit is said to be
        far = torch.log2(1 + apart.abs()).round().clamp_max(FARTHEST)
        return (far * apart.sign()).long() + FARTHEST
