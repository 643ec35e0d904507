"""Predictions beside what happened, and how a fit went."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from efattn.errors import DataError
from efattn.plots import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_POINTS = 2000  # more are shown as densities


@style.styled
def predicted_against_actual(
    actual: Any, predicted: Any, *, name: str = "value", title: str = "Predicted against actual", subtitle: str = ""
) -> "Figure":
    """One point per row, or how dense they lie; on the line where the prediction is right."""
    from matplotlib.colors import LogNorm

    y, mean = (np.asarray(x, float) for x in (actual, predicted))
    if y.shape != mean.shape or y.ndim != 1:
        raise DataError(f"actual and predicted are two lists of one length; found shapes {y.shape} and {mean.shape}.")
    kept = np.isfinite(y) & np.isfinite(mean)
    y, mean = y[kept], mean[kept]
    if not len(y):
        raise DataError("There is no row with both an actual and a predicted value.")
    error = float(np.sqrt(np.mean((y - mean) ** 2)))
    line = subtitle or f"{len(y):,} rows; half of the errors are below {np.median(np.abs(y - mean)):.2g}."
    figure = style.page(5.6, 5.4, title, line)
    axes = figure.add_subplot()
    low, high = min(y.min(), mean.min()), max(y.max(), mean.max())
    room = 0.03 * (high - low or 1)
    ends = (low - room, high + room)
    if len(y) <= MOST_POINTS:
        axes.scatter(mean, y, s=12, color=style.BLUE, alpha=0.5, linewidths=0)
    else:
        shown = axes.hexbin(mean, y, gridsize=45, cmap=style.WEIGHTS, mincnt=1, extent=(*ends, *ends))
        shown.set_norm(
            LogNorm(0.3, max(float(np.max(np.asarray(shown.get_array()))), 2.0))
        )  # one row is pale, yet seen
        bar = figure.colorbar(shown, ax=axes, label="rows (log scale)", shrink=0.7, aspect=24)
        bar.outline.set_visible(False)
        bar.ax.set_ylim(1, None)
        bar.ax.yaxis.set_major_formatter("{x:g}")
    axes.plot(ends, ends, color=style.ORANGE, linewidth=1.2)
    axes.set(xlim=ends, ylim=ends, aspect="equal", xlabel=f"predicted {name}", ylabel=f"actual {name}")
    axes.text(0.03, 0.97, f"root mean squared error {error:.2f}", transform=axes.transAxes, va="top", color=style.GREY)
    return figure


@style.styled
def predicted_by_case(
    cases: Mapping[str, float],
    predicted: Mapping[str, Mapping[str, Any]],
    *,
    name: str = "value",
    truth: str = "truth",
    title: str,
    subtitle: str = "",
) -> "Figure":
    """cases: what is true of each; predicted: for each model its predictions by case. A dot for their mean, a line
    for the middle nine tenths of them, a tick for the truth."""
    figure = style.page(7.4, 1.6 + 0.55 * len(cases), title, subtitle)
    axes = figure.add_subplot()
    colours = (style.BLUE, style.ORANGE, style.GREEN)
    rows = np.arange(len(cases))
    axes.scatter(list(cases.values()), rows, marker="|", s=620, color=style.INK, linewidths=2, zorder=1)
    axes.scatter([], [], marker="|", s=110, color=style.INK, linewidths=2, label=truth)
    for k, (model, by_case) in enumerate(predicted.items()):
        at = rows + 0.26 * (k - (len(predicted) - 1) / 2)
        values = [np.asarray(by_case[case], float) for case in cases]
        ends = np.array([np.quantile(x, (0.05, 0.95)) if len(x) else (np.nan, np.nan) for x in values])
        middle = [x.mean() if len(x) else np.nan for x in values]
        axes.hlines(at, *ends.T, color=colours[k % 3], linewidth=2.2, alpha=0.45)
        axes.scatter(middle, at, s=52, color=colours[k % 3], edgecolors="white", linewidths=0.8, label=model, zorder=3)
    axes.set_yticks(rows, list(cases))
    axes.set(xlabel=f"predicted {name}", ylim=(len(cases) - 0.45, -0.55))
    axes.grid(axis="x", color=style.PALE, linewidth=0.6)
    axes.set_axisbelow(True)
    style.bare(axes)
    marks, names = axes.get_legend_handles_labels()
    figure.legend(marks, names, loc="outside lower center", ncols=len(marks))
    return figure


@style.styled
def history(model: Any, *, title: str = "How the fit went", subtitle: str | None = None) -> "Figure":
    """Log-likelihood per target by epoch, one panel per term: training, held-out groups, and the epoch kept. Of an
    ensemble, its first member's."""
    from matplotlib.ticker import MaxNLocator

    records = [record for record in model.history_ if not record.get("member", 0)]
    terms = list(dict.fromkeys(record["term"] for record in records))
    if not terms:
        raise DataError("This model has no history: it was not trained.")
    line = "Log-likelihood per target; higher is better." if subtitle is None else subtitle
    figure = style.page(max(4.6 * len(terms), 6.2), 4.2, title, line)
    for k, term in enumerate(terms):
        axes = figure.add_subplot(1, len(terms), k + 1)
        mine = [record for record in records if record["term"] == term]
        epoch = np.arange(1, len(mine) + 1)
        axes.plot(epoch, [r["train"] for r in mine], color=style.BLUE, linewidth=1.8, label="training")
        held = np.array([np.nan if r["validation"] is None else r["validation"] for r in mine], float)
        if not np.isnan(held).all():
            axes.plot(epoch, held, color=style.ORANGE, linewidth=1.8, label="held out")
            best = int(np.nanargmax(held))
            axes.scatter(epoch[best], held[best], s=46, color=style.ORANGE, edgecolors="white", zorder=3, label="kept")
        axes.set(xlabel="epoch", ylabel="log-likelihood per target" if k == 0 else "")
        axes.set_title(str(term))
        axes.grid(axis="y", color=style.PALE, linewidth=0.6)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.legend(loc="lower right")
    return figure
