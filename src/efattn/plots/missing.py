"""What is missing of a table, and what a model puts there."""

from typing import TYPE_CHECKING, Any

import numpy as np

from efattn.errors import DataError
from efattn.plots import style

if TYPE_CHECKING:
    from efattn.plots.rows import Rows

MOST_GROUPS, MOST_ITEMS, MOST_LABELS = 400, 200, 30


@style.picture
def missing(
    model: Any, table: Any, of: str | None = None, *, title: str | None = None, subtitle: str | None = None
) -> Any:
    """Left, groups by items: what is observed, what is missing and filled in, and what is not in the table at all.
    Right, observed values and those filled in, each in units of its item's spread. of: which value column, the first
    unless said."""
    from efattn.plots.rows import expected_rows

    rows = expected_rows(model, table, of)
    gone = rows.missing
    if gone.all():
        raise DataError(f"There is no value of {rows.column!r} in this table: nothing to compare with.")
    line = f"{int(gone.sum()):,} of {len(gone):,} values of {style.label(rows.column)} are missing ({gone.mean():.1%})."
    figure = style.page(
        8.8, 4.6, title or "What is missing, and what is put there", line if subtitle is None else subtitle
    )
    left, right = figure.subplots(1, 2)
    _cells(left, rows)
    _values(right, rows)
    return figure


def _cells(axes: Any, rows: "Rows") -> None:
    """(group, item): 0 where there is no such row, 1 observed, 2 missing."""
    from matplotlib.colors import ListedColormap
    from matplotlib.patches import Patch

    from efattn.plots.rows import item_names

    group, item = rows.groups.group, rows.groups.every.item
    if item is None:  # rows have numbers within their groups
        item = np.arange(len(group)) - np.repeat(rows.groups.offsets[:-1], np.diff(rows.groups.offsets))
    shown, across = np.unique(item, return_inverse=True)
    cells = np.zeros((len(rows.groups), len(shown)))
    cells[group, across] = np.where(rows.missing, 2, 1)
    by_gaps = np.argsort(-(cells == 2).sum(0), kind="stable")[:MOST_ITEMS]  # items with most gaps, in their order
    kept = np.sort(by_gaps)
    down = np.linspace(0, len(cells) - 1, min(len(cells), MOST_GROUPS)).astype(int)
    colours = {"not in the table": "white", "observed": style.PALE, "missing": style.ORANGE}
    looks: dict[str, Any] = {"vmin": 0, "vmax": 2, "aspect": "auto", "interpolation": "nearest"}
    axes.imshow(cells[np.ix_(down, kept)], cmap=ListedColormap(list(colours.values())), **looks)
    if rows.groups.every.item is not None and len(kept) <= MOST_LABELS:
        axes.set_xticks(range(len(kept)), item_names(rows.fitted, shown[kept], 14), rotation=90, fontsize=8)
    by = ", ".join(rows.fitted.schema.roles.of("group")) or "group"
    axes.set(xlabel="item" if rows.groups.every.item is not None else "row of its group", ylabel=style.label(by))
    axes.set_title("Where values are missing")
    known = [name for k, name in enumerate(colours) if (cells == k).any()]
    marks = [Patch(facecolor=colours[name], edgecolor=style.GREY, linewidth=0.5, label=name) for name in known]
    style.figure_of(axes).legend(handles=marks, loc="outside lower left", ncols=len(marks), fontsize=8)


def _values(axes: Any, rows: "Rows") -> None:
    item = rows.groups.every.item
    number = np.zeros(len(rows.y), int) if item is None else item
    there = ~rows.missing
    count = np.maximum(np.bincount(number[there], minlength=number.max() + 1), 1)
    centre = np.bincount(number[there], rows.y[there], number.max() + 1) / count
    spread = np.sqrt(np.bincount(number[there], (rows.y[there] - centre[number[there]]) ** 2, number.max() + 1) / count)
    spread = np.where(spread > 0, spread, 1.0)
    seen, put = ((x - centre[number]) / spread[number] for x in (rows.y, rows.mean))
    seen, put = seen[there], put[~there]
    ends = np.quantile(np.concatenate([seen, put]), [0.002, 0.998])
    bins = np.linspace(min(ends[0], -2), max(ends[1], 2), 31)
    axes.hist(seen, bins, density=True, color=style.PALE, label="observed")
    if len(put):
        axes.hist(put, bins, density=True, histtype="step", color=style.ORANGE, linewidth=1.8, label="filled in, means")
    axes.set(xlabel="standard deviations from the item's mean", ylabel="density")
    axes.set_title("What is put there")
    axes.legend(loc="upper right", fontsize=8)
