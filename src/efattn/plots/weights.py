"""Attention weights as heat maps: one row per target or head, one column per what is looked at, dark for much."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from efattn.errors import DataError
from efattn.plots import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from efattn.inference import AttentionWeights

MOST_NUMBERS, WIDEST, APART = 12, 7.0, 0.15  # cells a side with the number written in; inches; between labels


@style.picture
def attention_heatmap(
    attention: "AttentionWeights",
    *,
    by: Literal["mean", "layer", "head"] = "mean",
    title: str = "What each prediction looks at",
    subtitle: str | None = None,
) -> Any:
    """Targets down, context across. by: one map averaged over layers and heads, one per layer, or one per head."""
    weights, (layers, heads) = attention.weights, attention.weights.shape[:2]
    if by == "mean":
        panels, line = {"": attention.mean()}, f"Weights averaged over {_count(layers, 'layer')} and "
        line += f"{_count(heads, 'head')}; each row sums to one."
    elif by == "layer":
        panels, line = {f"Layer {k + 1}": x.mean(0) for k, x in enumerate(weights)}, "Weights averaged over heads."
    elif by == "head":
        every = ((k, h) for k in range(layers) for h in range(heads))
        panels, line = {f"Layer {k + 1}, head {h + 1}": weights[k, h] for k, h in every}, "Each row sums to one."
    else:
        raise DataError(f"by is 'mean', 'layer' or 'head'; found {by!r}.")
    across = [
        f"{style.label(x)}, {lag} earlier" if lag else x
        for x, lag in zip(attention.contexts, attention.lags, strict=True)
    ]
    names = {"down": "predicted", "across": "looked at"}
    columns = heads if by == "head" else None
    line = line if subtitle is None else subtitle
    return heatmaps(panels, attention.targets, across, title=title, subtitle=line, columns=columns, **names)


@style.picture
def heatmaps(
    panels: Mapping[str, Any],
    rows: Sequence[Any] | Mapping[str, Sequence[Any]],
    across_labels: Sequence[Any],
    *,
    title: str,
    subtitle: str = "",
    down: str = "",
    across: str = "",
    columns: int | None = None,
) -> Any:
    """Weights from 0 up, one map (row, column) per panel, on one scale. columns: panels side by side, all by
    default."""
    wide = columns or len(panels)
    high = -(-len(panels) // wide)
    shape = np.shape(next(iter(panels.values())))
    side = 0.62 if max(shape) <= MOST_NUMBERS else max(0.02, min(0.4, WIDEST / wide / max(shape)))
    width, height = max(wide * (side * shape[1] + 1.2) + 1.1, 6.5), max(high * (side * shape[0] + 0.85) + 0.9, 2.8)
    figure = style.page(width, height, title, subtitle)
    grid = figure.subplots(high, wide, squeeze=False)
    image, small = None, max(shape) <= MOST_NUMBERS
    top = max(0.1, *(float(np.max(x)) for x in panels.values()))
    for k, axes in enumerate(grid.flat):
        if k >= len(panels):
            axes.set_visible(False)
            continue
        name, weights = list(panels.items())[k]
        image = axes.imshow(np.asarray(weights), cmap=style.WEIGHTS, vmin=0, vmax=top, aspect="equal")
        axes.set_title(name)
        style.bare(axes)
        _labels(axes, rows[name] if isinstance(rows, Mapping) else rows, across_labels, max(round(APART / side), 1))
        axes.set_xlabel(across if k >= len(panels) - wide else "")
        axes.set_ylabel(down if k % wide == 0 else "")
        if small:
            _numbers(axes, np.asarray(weights), top)
    assert image is not None
    bar = figure.colorbar(image, ax=list(grid.flat), label="attention weight", shrink=0.85, aspect=24, pad=0.02)
    bar.outline.set_visible(False)
    return figure


def _labels(axes: "Axes", rows: Sequence[Any], columns: Sequence[Any], step: int) -> None:
    for axis, labels in ((axes.yaxis, rows), (axes.xaxis, columns)):
        axis.set_ticks(range(0, len(labels), step), [style.label(x) for x in labels[::step]])
    longest = max(len(style.label(x)) for x in columns)
    size = 10 if len(columns) <= MOST_NUMBERS else 7
    axes.tick_params(axis="y", labelsize=size)
    axes.tick_params(axis="x", labelsize=size, rotation=90 if longest > 3 or size < 10 else 0)


def _numbers(axes: "Axes", weights: np.ndarray, top: float) -> None:
    for (row, column), weight in np.ndenumerate(weights):
        colour = style.ON_DARK if weight > 0.55 * top else style.ON_LIGHT if weight >= 0.005 else style.ON_PALE
        axes.text(column, row, f"{weight:.2f}", ha="center", va="center", color=colour, fontsize=9)


@style.picture
def attention_by_distance(
    panels: Mapping[str, tuple[Any, Any]],
    *,
    title: str,
    subtitle: str = "",
    across: str,
    shade: Mapping[str, tuple[float, float]] | None = None,
    shaded: str = "",
) -> Any:
    """For each panel how far away something stood (row,), and each head's weight on it (row, layer, head): the mean
    by distance, one line per head. shade: where a rule holds, from and to; shaded: what that means."""
    figure = style.page(4.7 * len(panels), 4.6, title, subtitle)
    first = None
    for k, (name, (distance, weights)) in enumerate(panels.items()):
        axes = first = figure.add_subplot(1, len(panels), k + 1, sharey=first)
        far, w = np.asarray(distance), np.asarray(weights)
        at = np.unique(far)
        means = np.stack([w[far == d].mean(0) for d in at]) if len(at) else np.zeros((0, *w.shape[1:]))
        if shade and name in shade:
            axes.axvspan(*shade[name], color=style.PALE, alpha=0.45, linewidth=0, label=shaded)
        for layer, head in np.ndindex(*w.shape[1:]):
            look: dict[str, Any] = {
                "color": (style.BLUE, style.ORANGE, style.GREEN)[layer % 3],
                "linestyle": ("-", "--", ":")[head % 3],
            }
            label = f"layer {layer + 1}, head {head + 1}"
            for side in (at < 0, at > 0):  # nothing stands at 0
                shift = 0.06 * (
                    layer * w.shape[2] + head - (w.shape[1] * w.shape[2] - 1) / 2
                )  # so that none hides another
                axes.plot(at[side] + shift, means[side, layer, head], marker="o", ms=5, lw=1.8, label=label, **look)
                label = "_"
        axes.set_title(name)
        axes.set(xlabel=across, ylim=(-0.03, 1.03), ylabel="attention weight" if k == 0 else "")
        axes.set_xticks(at, [f"{d:+d}".replace("-", "\N{MINUS SIGN}") for d in at])
        axes.grid(axis="y", color=style.PALE, linewidth=0.6)
    assert first is not None
    marks, names = first.get_legend_handles_labels()
    figure.legend(marks, names, loc="outside lower center", ncols=len(marks), handlelength=2.4)
    return figure


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' if number > 1 else ''}"
