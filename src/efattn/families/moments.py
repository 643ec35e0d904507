"""From a mean and a variance to the outputs of a family.

    from_moments(mean, variance) = f      with   E[y | f] = mean   and, where f says so,   Var[y | f] = variance

In closed form where there is one. Simple models say moments; families say the rest.
"""

from collections.abc import Callable

import numpy as np
import torch

LEAST = 1e-3  # the smallest rate and probability; of numbers > 0 the smallest share of their overall mean
REACH = 15.0  # how far from its start an output is looked for: odds of a million to one and more
POINTS = 1201  # a table of means, which says between which two of them to look


def at_mean(mean_of: Callable[[torch.Tensor], torch.Tensor], mean: torch.Tensor, start: torch.Tensor) -> torch.Tensor:
    """f (..., size) whose first output is such that mean_of(f) = mean, and whose others are those of the start. mean_of
    grows with the first output, or falls; a mean that it does not reach is taken for the nearest that it does."""
    from scipy.optimize.elementwise import find_root

    first, others = float(start[0]), start[1:].detach().cpu().double()

    def outputs(location: np.ndarray) -> torch.Tensor:
        x = torch.as_tensor(location, dtype=torch.float64)
        return torch.cat([x.unsqueeze(-1), others.expand(*x.shape, -1)], -1)

    def excess(location: np.ndarray, target: np.ndarray) -> np.ndarray:
        return mean_of(outputs(location)).numpy() - target

    grid = np.linspace(first - REACH, first + REACH, POINTS)
    reached = mean_of(outputs(grid)).numpy()
    if reached[0] > reached[-1]:
        grid, reached = grid[::-1], reached[::-1]
    target = np.clip(mean.detach().cpu().double().numpy(), reached[0], reached[-1])
    right = np.searchsorted(reached, target).clip(1, POINTS - 1)
    left, right = np.sort([grid[right - 1], grid[right]], axis=0)
    root = find_root(excess, (left, right), args=(target,), tolerances={"xatol": 1e-9})
    return outputs(root.x).to(mean.device, mean.dtype)


def logit(mean: torch.Tensor) -> torch.Tensor:
    """Of a probability or a proportion."""
    return mean.clamp(LEAST, 1 - LEAST).logit()


def log(number: torch.Tensor) -> torch.Tensor:
    """Of a number >= 0, so small that it might be 0, too."""
    return number.clamp_min(torch.finfo(number.dtype).tiny).log()
