"""How far probabilities can be trusted."""

from typing import Any

import numpy as np

from efattn.errors import DataError
from efattn.plots import style


@style.picture
def list_mass(
    evaluation: Any, k: int | None = None, *, title: str = "Can the probabilities be trusted?", subtitle: str = ""
) -> Any:
    """Of lists of k items, by their mass: how often they held the item that came, with two standard errors. On the line
    where the model is right about itself. k: by default 10, or the one next to it."""
    lengths = sorted({one.k for one in evaluation.bins})
    if not lengths:
        raise DataError("This evaluation has no item probabilities to draw.")
    if k is None:
        k = min(lengths, key=lambda length: abs(length - 10))
    bins = [one for one in evaluation.bins if one.k == k]
    if not bins:
        raise DataError(f"There are no lists of {k} items here, but of {', '.join(map(str, lengths))}.", option="k")
    mass, hits = (np.array([getattr(one, name) for one in bins]) for name in ("mass", "hits"))
    error = np.array([0.0 if one.error is None else one.error for one in bins])
    rows = sum(one.rows for one in bins)
    line = subtitle or f"Lists of the {k} most probable items, {rows:,} rows in {len(bins)} parts by mass."
    figure = style.page(5.6, 5.4, title, line)
    axes = figure.add_subplot()
    end = 1.05 * float(max(mass.max(), (hits + 2 * error).max(), 1e-3))
    axes.plot((0, end), (0, end), color=style.ORANGE, linewidth=1.2)
    axes.vlines(mass, np.maximum(hits - 2 * error, 0), hits + 2 * error, color=style.BLUE, linewidth=1.6, alpha=0.6)
    axes.scatter(mass, hits, s=36, color=style.BLUE, edgecolors="white", linewidths=0.8, zorder=3)
    axes.set(xlim=(0, end), ylim=(0, end), aspect="equal", xlabel="mass of the list", ylabel="share of lists that hit")
    return figure
