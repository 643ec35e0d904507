"""Where a row stands in its group and when it was, as attributes of a linear model (linear_features.py has them of a
batch)."""

import numpy as np
import torch
from torch import Tensor

from efattn.data import Groups
from efattn.simple.base import Setting


def clocks(setting: Setting) -> int:
    """A place in the group, the time since its first row, and the time; of earlier groups none is known."""
    return 0 if setting.lags or not setting.ordered else 3 if setting.times else 1


def clock_columns(groups: Groups, number: int) -> list[Tensor]:
    """Of all rows."""
    first = np.repeat(np.cumsum(groups.lengths) - groups.lengths, groups.lengths)
    several = [np.arange(len(first)) - first]
    if number > 1 and groups.when is not None:
        several += [groups.when - groups.when[first], groups.when]
    return [torch.as_tensor(column, dtype=torch.float64) for column in several[:number]]
