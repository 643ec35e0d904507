"""What a row whose item is the target may show of itself.

known    every attribute             hidden    none
auto     those that do not give the item away, by what the table shows
"""

import numpy as np

from efattn.data.groups import Groups


def own_attributes(groups: Groups, columns: tuple[str, ...], asked: str) -> tuple[bool, ...]:
    """By column of a batch's attributes. columns: the table's column that each belongs to."""
    return tuple(np.full(len(columns), asked == "known").tolist())
