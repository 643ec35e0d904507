"""Columns as a plain text table."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np


def text(columns: Mapping[str, Sequence[Any]]) -> str:
    """One line per row, numbers to the right with four digits, words to the left."""
    cells = [[name, *map(_word, column)] for name, column in columns.items()]
    right = [len(column) > 0 and not isinstance(column[0], str) for column in columns.values()]
    widths = [max(map(len, column)) for column in cells]
    lines = []
    for row in zip(*cells, strict=True):
        padded = [
            x.rjust(width) if numeric else x.ljust(width) for x, width, numeric in zip(row, widths, right, strict=True)
        ]
        lines.append("  ".join(padded).rstrip())
    return "\n".join(lines)


def _word(x: Any) -> str:
    if isinstance(x, bool | np.bool_):
        return "yes" if x else "no"
    if x is None:
        return "-"
    return f"{x:.4g}" if isinstance(x, float | np.floating) else str(x)
