"""Numbers that never change, as a tensor on each device that asks.

Making a tensor from Python's numbers at each step would make a GPU wait for the CPU.
"""

from functools import lru_cache

import torch
from torch import Tensor


@lru_cache(maxsize=256)
def constant(numbers: tuple[float, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    with torch.inference_mode(False):  # what is made there could not be used in training later
        return torch.tensor(numbers, dtype=dtype, device=device)
