"""Predictions beside what happened, and how a fit went."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from efattn.errors import DataError
from efattn.plots import style

MOST_POINTS, MOST_LINES, COURSE = 2000, 600, 24  # more are densities; intervals drawn; parts of their course
MOST_LEVELS = 12  # distinct values that are shown as boxes


@style.picture
def predictions(
    model: Any,
    table: Any,
    of: str | None = None,
    *,
    item: Any = None,
    interval: float = 0.9,
    title: str = "Predicted against observed",
    subtitle: str = "",
) -> Any:
    """Each row of a table as it is predicted from its context, against what was observed, with an interval that should
    hold it so often. of: which value column, the first unless said; item: of this one alone, of a wide table a
    column."""
    from efattn.plots.rows import expected_rows

    rows = expected_rows(model, table, of, interval)
    mine, name = np.ones(len(rows.y), bool), style.label(rows.column)
    if item is not None:
        mine = np.asarray(rows.groups.every.item == rows.fitted.vocabulary.number(item))
        name = style.label(item)
    ends: dict[str, Any] = {"lower": rows.lower[mine], "upper": rows.upper[mine], "interval": interval}
    words: dict[str, Any] = {"name": name, "title": title, "subtitle": subtitle}
    return predicted_against_actual(rows.y[mine], rows.mean[mine], **ends, **words)


@style.picture
def predicted_against_actual(
    actual: Any,
    predicted: Any,
    *,
    lower: Any = None,
    upper: Any = None,
    interval: float = 0.9,
    name: str = "value",
    title: str = "Predicted against actual",
    subtitle: str = "",
) -> Any:
    """One point per row, or how dense they lie; on the line where the prediction is right. Of few levels, a box for
    each. lower, upper: the ends of
    each row's interval, drawn as a line, or of many rows as their course; what lies outside is orange."""
    y, mean, low, high = _finite(actual, predicted, lower, upper)
    error = float(np.sqrt(np.mean((y - mean) ** 2)))
    inside = (low <= y) & (y <= high)
    line = f"{len(y):,} rows; root mean squared error {error:.3g}, half of the errors below "
    line += f"{np.median(np.abs(y - mean)):.2g}."
    line += "" if lower is None else f"\n{inside.mean():.0%} lie inside their {interval:.0%} interval."
    figure = style.page(5.6, 5.6, title, subtitle or line)
    axes = figure.add_subplot()
    ends = _range(np.concatenate([y, mean]))
    if len(np.unique(y)) <= MOST_LEVELS < len(y):
        ends = _levels(axes, y, mean, ends)
    elif len(y) <= MOST_POINTS:
        _points(axes, y, mean, low, high, inside if lower is not None else np.ones(len(y), bool))
    else:
        _density(figure, axes, y, mean, ends)
        if lower is not None:
            _course(axes, mean, low, high, interval)
    axes.plot(ends, ends, color=style.ORANGE if lower is None else style.INK, linewidth=1.2)
    axes.set(xlim=ends, ylim=ends, aspect="equal")
    axes.set(xlabel=f"predicted {name}", ylabel=f"observed {name}")
    return figure


def _finite(actual: Any, predicted: Any, lower: Any, upper: Any) -> tuple[np.ndarray, ...]:
    """Where both are known; without ends, both are the prediction."""
    y, mean = (np.asarray(x, float) for x in (actual, predicted))
    if y.shape != mean.shape or y.ndim != 1:
        raise DataError(f"actual and predicted are two lists of one length; found shapes {y.shape} and {mean.shape}.")
    low, high = (mean if x is None else np.asarray(x, float) for x in (lower, upper))
    kept = np.isfinite(y) & np.isfinite(mean)
    if not kept.any():
        raise DataError("There is no row with both an actual and a predicted value.")
    return tuple(x[kept] for x in (y, mean, low, high))


def _range(x: np.ndarray) -> tuple[float, float]:
    low, high = float(x.min()), float(x.max())
    room = 0.03 * (high - low or 1)
    return low - room, high + room


def _levels(axes: Any, y: np.ndarray, mean: np.ndarray, around: tuple[float, float]) -> tuple[float, float]:
    """Of few levels, the middle half and the middle nine tenths of what was predicted where each was observed; and the
    ends of the axes."""
    levels = np.unique(y)
    high = 0.34 * float(np.diff(levels).min()) if len(levels) > 1 else 0.3
    ends = np.array([np.quantile(mean[y == level], (0.05, 0.25, 0.5, 0.75, 0.95)) for level in levels])
    axes.hlines(levels, ends[:, 0], ends[:, 4], color=style.BLUE, linewidth=1.4, alpha=0.7)
    axes.barh(levels, ends[:, 3] - ends[:, 1], 2 * high, left=ends[:, 1], color=style.BLUE, alpha=0.35, linewidth=0)
    axes.vlines(ends[:, 2], levels - high, levels + high, color=style.BLUE, linewidth=2.4)
    axes.set_yticks(levels, [f"{level:g}" for level in levels])
    return min(around[0], levels[0] - 1.2 * high), max(around[1], levels[-1] + 1.2 * high)


def _points(axes: Any, y: np.ndarray, mean: np.ndarray, low: np.ndarray, high: np.ndarray, inside: np.ndarray) -> None:
    drawn = np.flatnonzero(high > low)
    drawn = drawn[:: -(-len(drawn) // MOST_LINES)] if len(drawn) else drawn
    axes.vlines(mean[drawn], low[drawn], high[drawn], color=style.BLUE, linewidth=1.0, alpha=0.18, zorder=1)
    for mine, colour in ((inside, style.BLUE), (~inside, style.ORANGE)):
        axes.scatter(mean[mine], y[mine], s=12, color=colour, alpha=0.6, linewidths=0, zorder=2)


def _density(figure: Any, axes: Any, y: np.ndarray, mean: np.ndarray, ends: tuple[float, float]) -> None:
    from matplotlib.colors import LogNorm

    shown = axes.hexbin(mean, y, gridsize=45, cmap=style.WEIGHTS, mincnt=1, extent=(*ends, *ends))
    most = float(np.max(np.asarray(shown.get_array())))
    shown.set_norm(LogNorm(0.3, max(most, 2.0)))  # one row is pale, yet seen
    bar = figure.colorbar(shown, ax=axes, label="rows (log scale)", shrink=0.7, aspect=24)
    bar.outline.set_visible(False)
    bar.ax.set_ylim(1, None)
    bar.ax.yaxis.set_major_formatter("{x:g}")


def _course(axes: Any, mean: np.ndarray, low: np.ndarray, high: np.ndarray, interval: float) -> None:
    """The usual ends of intervals, by what is predicted."""
    parts = np.array_split(np.argsort(mean, kind="stable"), COURSE)
    at = [mean[part].mean() for part in parts]
    for x, label in ((low, f"usual {interval:.0%} interval"), (high, "_")):
        axes.plot(at, [x[part].mean() for part in parts], color=style.ORANGE, linewidth=1.6, label=label)
    axes.legend(loc="lower right")


@style.picture
def predicted_by_case(
    cases: Mapping[str, float],
    predicted: Mapping[str, Mapping[str, Any]],
    *,
    name: str = "value",
    truth: str = "truth",
    title: str,
    subtitle: str = "",
) -> Any:
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


@style.picture
def history(model: Any, *, title: str = "How the fit went", subtitle: str | None = None) -> Any:
    """Log-likelihood per target by epoch, one panel per term: training, held-out groups, and the epoch kept. Of an
    ensemble, and of folds, its first member's, and pale what others had of held-out groups."""
    from matplotlib.ticker import MaxNLocator

    records = style.fitted(model).history
    terms = list(dict.fromkeys(record["term"] for record in records))
    if not terms:
        raise DataError("This model has no history: it was not trained.")
    line = "Log-likelihood per target; higher is better." if subtitle is None else subtitle
    figure = style.page(max(4.6 * len(terms), 6.2), 4.2, title, line)
    for k, term in enumerate(terms):
        axes = figure.add_subplot(1, len(terms), k + 1)
        mine = [record for record in records if record["term"] == term]
        members = list(dict.fromkeys(record.get("member", 0) for record in mine))
        for other in members[1:]:
            held = _held([r for r in mine if r.get("member", 0) == other])
            label = "other folds" if "fold" in mine[0] else "other members"
            label = label if other == members[1] else "_"
            axes.plot(range(1, len(held) + 1), held, color=style.ORANGE, linewidth=1.0, alpha=0.35, label=label)
        _course_of_fit(axes, [r for r in mine if r.get("member", 0) == members[0]])
        axes.set(xlabel="epoch", ylabel="log-likelihood per target" if k == 0 else "")
        axes.set_title(style.label(term))
        axes.grid(axis="y", color=style.PALE, linewidth=0.6)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.legend(loc="lower right")
    return figure


def _held(records: Any) -> np.ndarray:
    return np.array([np.nan if r["validation"] is None else r["validation"] for r in records], float)


def _course_of_fit(axes: Any, mine: Any) -> None:
    epoch, held, train = np.arange(1, len(mine) + 1), _held(mine), np.array([r["train"] for r in mine])
    mark = "o" if len(mine) == 1 else None
    axes.plot(epoch, train, color=style.BLUE, linewidth=1.8, marker=mark, label="training")
    shown = train
    if not np.isnan(held).all():
        axes.plot(epoch, held, color=style.ORANGE, linewidth=1.8, marker=mark, label="held out")
        best = int(np.nanargmax(held))
        axes.scatter(epoch[best], held[best], s=46, color=style.ORANGE, edgecolors="white", zorder=3, label="kept")
        shown = np.concatenate([train, held[~np.isnan(held)]])
    low, high = np.nanquantile(shown, 0.05), float(np.nanmax(shown))
    if high - low < 0.5 * (high - float(np.nanmin(shown))):  # a start far off would flatten all that follows
        axes.set_ylim(low - 0.1 * (high - low), high + 0.08 * (high - low))
