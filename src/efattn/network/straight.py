"""Columns of numbers of which some are far out, made straight before anything is fitted to them.

    x -> asinh((x - middle) / width)        a width of 0 leaves a column as it is

Numbers of every size, as populations, count by their logarithm (middle 0, the lower quartile as width); others only
where they are far out. Else the one far out would have the weight of all others together.
"""

import torch
from torch import Tensor

FAR = 5.0  # standard deviations, from which on a value is far out
SIZES = 4.0  # how many times the lower quartile the upper one is, of numbers of every size
WIDE = 2.0  # of the distance between the quartiles, where logarithms begin


def bends(x: Tensor) -> Tensor:
    """(column, 2): middle and width of each column of x (row, column)."""
    return torch.stack([_bend(column) for column in x.double().unbind(1)]) if x.shape[1] else x.new_zeros(0, 2).double()


def straight(x: Tensor, bends: Tensor) -> Tensor:
    """x (..., column)"""
    middle, width = bends.to(x.dtype).unbind(-1)
    return torch.where(width > 0, ((x - middle) / torch.where(width > 0, width, 1.0)).asinh(), x)


def bent_again(x: Tensor, bends: Tensor) -> Tensor:
    """The other way round."""
    middle, width = bends.to(x.dtype).unbind(-1)
    return torch.where(width > 0, middle + width * x.sinh(), x)


def _bend(column: Tensor) -> Tensor:
    none = column.new_zeros(2)
    if not len(column):
        return none
    ordered = column.sort().values
    low, middle, high = (ordered[round(q * (len(column) - 1))] for q in (0.25, 0.5, 0.75))
    far = FAR * column.std(correction=0)
    if high <= low or not bool((column - column.mean()).abs().amax() > far):
        return none
    if bool(ordered[0] >= 0) and 0 < low < high / SIZES:
        return torch.stack([none[0], low])
    return torch.stack([middle, WIDE * (high - low)])
