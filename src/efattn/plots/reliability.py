"""Where values lie in their predictive distributions, and how often intervals hold them."""

from typing import TYPE_CHECKING, Any

import numpy as np

from efattn.errors import DataError, counted
from efattn.plots import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from efattn.inference import Reliability

BINS, FEW = 20, 400  # bars, half as many of few rows


@style.picture
def reliability(report: "Reliability", *, title: str | None = None, subtitle: str | None = None) -> Any:
    """Left, a histogram of P(Y <= y), flat if the laws are right, with the band in which 95 of 100 bars of as many
    independent rows would end. Right, how many values lie in the middle interval of every level; dots with two standard
    errors over groups, and pale ones for each item."""
    if not len(report.pit):
        raise DataError(f"There is no value of {report.column!r} to compare with.")
    line = f"{counted(report.rows, 'row')} in {counted(report.groups, 'group')}; CRPS {report.crps.mean:.3g}."
    asked = title or f"Can the distributions of {report.column} be trusted?"
    figure = style.page(8.6, 4.4, asked, line if subtitle is None else subtitle)
    left, right = figure.subplots(1, 2)
    _histogram(left, report.pit)
    _coverage(right, report)
    return figure


def _histogram(axes: "Axes", pit: np.ndarray) -> None:
    bins = BINS if len(pit) >= FEW else BINS // 2
    counts, edges = np.histogram(pit, bins, (0, 1))
    reach, height = 1.96 * np.sqrt((bins - 1) / max(len(pit), 1)), counts * bins / max(len(pit), 1)
    axes.axhspan(1 - reach, 1 + reach, color=style.PALE, alpha=0.55, linewidth=0, label="95 % of flat ones")
    axes.axhline(1, color=style.INK, linewidth=1.0)
    axes.bar(edges[:-1], height, 1 / bins, align="edge", color=style.BLUE, alpha=0.75, edgecolor="white", linewidth=0.6)
    axes.set(xlim=(0, 1), xlabel="probability of the value or less", ylabel="rows, relative to flat")
    axes.set_ylim(0, max(1.25 * (1 + reach), 1.15 * float(height.max())))
    axes.set_title("Where values lie in their laws")
    axes.legend(loc="upper right")


def _coverage(axes: "Axes", report: "Reliability") -> None:
    level = np.linspace(0, 1, 201)
    middle = np.sort(np.abs(2 * report.pit - 1))
    axes.plot((0, 1), (0, 1), color=style.INK, linewidth=1.0)
    axes.plot(level, np.searchsorted(middle, level, "right") / len(middle), color=style.BLUE, linewidth=1.8)
    by_item: Any = report.by_item
    for k, one in enumerate(report.coverage):
        if by_item is not None and len(by_item) > 1:
            each = np.asarray(by_item[f"inside_{100 * one.level:.12g}"])
            at, label = np.full(len(each), one.promised), "one item" if k == 0 else "_"
            axes.scatter(at, each, s=12, color=style.GREY, alpha=0.35, linewidths=0, label=label)
        ends = np.clip(one.covered + np.array([-2, 2]) * (one.error or 0.0), 0, 1)
        axes.vlines(one.promised, *ends, color=style.ORANGE, linewidth=2.2, alpha=0.6)
        label = "intervals, two standard errors" if k == 0 else "_"
        axes.scatter(one.promised, one.covered, s=46, color=style.ORANGE, edgecolors="white", zorder=3, label=label)
    axes.set(xlim=(0, 1.02), ylim=(0, 1.02), xlabel="promised", ylabel="held")
    axes.set_title("Share of values in the middle interval")
    axes.grid(color=style.PALE, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.legend(loc="upper left")
