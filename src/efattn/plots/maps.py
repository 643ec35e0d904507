"""Places on a map: values in colours, and what one place listens to as lines."""

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from efattn.errors import DataError
from efattn.plots import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Places = Mapping[str, tuple[float, float]]


@style.picture
def station_map(
    longitude: Any,
    latitude: Any,
    panels: Mapping[str, Any],
    *,
    title: str,
    subtitle: str = "",
    unit: str = "",
    errors: Collection[str] = (),
    sizes: Collection[str] = (),
    places: Places | None = None,
) -> Any:
    """One map per panel, side by side: a dot per station, coloured by the panel's values. errors: the panels whose
    colours are centred on zero; sizes: those whose colours begin at zero; the others share one scale. places: names to
    print at (longitude, latitude)."""
    x, y = _degrees(longitude, latitude)
    tall = 4.0 * np.ptp(y) / (max(float(np.ptp(x)), 1.0) * np.cos(np.radians(y.mean())))
    figure = style.page(4.1 * len(panels) + 0.4, float(np.clip(2.25 + tall, 3.2, 4.9)), title, subtitle)
    own = {*errors, *sizes}
    shared = np.concatenate([np.asarray(v, float) for name, v in panels.items() if name not in own] or [np.zeros(1)])
    for k, (name, given) in enumerate(panels.items()):
        values = np.asarray(given, float)
        axes = figure.add_subplot(1, len(panels), k + 1)
        _land(axes, x, y, places, left=k == 0)
        most = float(np.nanquantile(np.abs(values), 0.98)) or 1.0
        scale = (-most, most) if name in errors else (np.nanmin(shared), np.nanmax(shared))
        scale = (0.0, most) if name in sizes else scale
        looks: dict[str, Any] = {
            "cmap": style.ERRORS if name in errors else style.WEIGHTS if name in sizes else style.VALUES,
            "vmin": scale[0],
            "vmax": scale[1],
        }
        dots = axes.scatter(x, y, c=values, s=54, edgecolors=style.GREY, linewidths=0.5, zorder=3, **looks)
        axes.set_title(name)
        ends = "both" if name in errors else "max" if name in sizes else "neither"
        bar = figure.colorbar(dots, ax=axes, orientation="horizontal", label=unit, shrink=0.8, aspect=28, extend=ends)
        bar.outline.set_visible(False)
    return figure


@style.picture
def listening_map(
    longitude: Any,
    latitude: Any,
    weights: Any,
    station: int,
    *,
    title: str,
    subtitle: str = "",
    places: Places | None = None,
) -> Any:
    """Lines from one station (its number) to those it looks at, dark and wide for much. weights: one per station;
    what the station gives to itself is left out."""
    from matplotlib.collections import LineCollection

    x, y = _degrees(longitude, latitude)
    given = np.asarray(weights, float).copy()
    if given.shape != x.shape or not 0 <= station < len(x):
        raise DataError(f"weights are one per station, of {len(x)}, and station one of their numbers.")
    given[station] = 0.0
    figure = style.page(6.4, 6.2, title, subtitle)
    axes = figure.add_subplot()
    _land(axes, x, y, places)
    order = np.argsort(given)
    order = order[order != station]  # heavy ones on top
    share = given[order] / (given.max() or 1)
    ends = [[(x[station], y[station]), (x[k], y[k])] for k in order]
    lines = LineCollection(ends, colors=style.BLUE, linewidths=5 * share, alpha=0.35, zorder=2, capstyle="round")
    axes.add_collection(lines)
    looks: dict[str, Any] = {"cmap": style.WEIGHTS, "vmin": 0, "edgecolors": style.GREY, "linewidths": 0.5}
    dots = axes.scatter(x[order], y[order], c=given[order], s=24 + 110 * share, zorder=3, **looks)
    axes.scatter(x[station], y[station], marker="*", s=260, color=style.ORANGE, edgecolors="white", zorder=4)
    bar = figure.colorbar(dots, ax=axes, orientation="horizontal", label="attention weight", shrink=0.7, aspect=30)
    bar.outline.set_visible(False)
    return figure


@style.picture
def residual_map(
    model: Any,
    table: Any,
    of: str | None = None,
    *,
    title: str = "Where the model errs",
    subtitle: str | None = None,
    places: Places | None = None,
) -> Any:
    """Predicted minus observed at each place, over all groups of a table: its mean, and its usual size."""
    from efattn.plots import rows

    found = rows.expected_rows(model, table, of)
    east, north = rows.places(found.fitted, found.groups)
    kept = ~found.missing & np.isfinite(east + north)
    if not kept.any():
        raise DataError("There is no row with a place and a value.")
    at, number = np.unique(np.column_stack([east, north])[kept], axis=0, return_inverse=True)
    number = number.reshape(-1)
    error = (found.mean - found.y)[kept]
    count = np.bincount(number)
    mean, size = np.bincount(number, error) / count, np.sqrt(np.bincount(number, error**2) / count)
    line = f"Predicted minus observed {style.label(found.column)}, {len(at):,} places, {int(kept.sum()):,} rows."
    line += f" Root mean squared error {np.sqrt(np.mean(error**2)):.3g}."
    return station_map(
        at[:, 0],
        at[:, 1],
        {"mean error": mean, "root mean squared error": size},
        errors=["mean error"],
        sizes=["root mean squared error"],
        title=title,
        subtitle=line if subtitle is None else subtitle,
        places=places,
    )


@style.picture
def attention_map(
    model: Any,
    table: Any,
    item: Any = None,
    *,
    strongest: int = 2,
    term: str | None = None,
    member: int = 0,
    title: str | None = None,
    subtitle: str | None = None,
    places: Places | None = None,
) -> Any:
    """The strongest attention in one group on a map, averaged over layers and heads: a line from each place to the few
    that it looks at most, or from one item to all. item: which; None for all."""
    from efattn import inference
    from efattn.data import Table
    from efattn.inference.tables import encoded
    from efattn.plots import rows

    fitted, source = style.fitted(model), Table.read(table)
    weights = inference.attention(fitted, source, term, member=member)
    (_, groups) = next(encoded(fitted, [source], lambda note: None))
    x, y = rows.places(fitted, groups)
    given = weights.mean()[:, : len(x)].copy()
    np.fill_diagonal(given, 0.0)
    if item is not None:
        number, known = fitted.vocabulary.number(item), groups.every.item
        here = np.flatnonzero(known == number) if known is not None else np.zeros(0, int)
        if not len(here):
            raise DataError(f"There is no {item!r} in this group.")
        words = title or f"What {style.label(item)} looks at"
        line = "Attention weights averaged over layers and heads." if subtitle is None else subtitle
        return listening_map(x, y, given[here[0]], int(here[0]), title=words, subtitle=line, places=places)
    line = f"A line from each of {len(x)} places to the {strongest} that it looks at most, wide for much."
    figure = style.page(6.6, 6.2, title or "Who looks at whom", line if subtitle is None else subtitle)
    _links(figure, x, y, given, strongest, places)
    return figure


def _links(figure: Any, x: np.ndarray, y: np.ndarray, given: np.ndarray, strongest: int, places: Places | None) -> None:
    from matplotlib.collections import LineCollection

    axes = figure.add_subplot()
    _land(axes, x, y, places)
    best = np.argsort(-given, 1)[:, :strongest]
    one, other = np.repeat(np.arange(len(x)), best.shape[1]), best.ravel()
    weight = given[one, other]
    order = np.argsort(weight)  # heavy ones on top
    one, other, weight = one[order], other[order], weight[order]
    ends = [[(x[a], y[a]), (x[b], y[b])] for a, b in zip(one, other, strict=True)]
    share = weight / (weight.max(initial=0.0) or 1.0)
    axes.add_collection(
        LineCollection(ends, colors=style.BLUE, linewidths=0.4 + 3.6 * share, alpha=0.5, zorder=2, capstyle="round")
    )
    heard = given.sum(0)
    looks: dict[str, Any] = {"cmap": style.WEIGHTS, "vmin": 0, "edgecolors": style.GREY, "linewidths": 0.5}
    dots = axes.scatter(x, y, c=heard, s=22 + 90 * heard / (heard.max(initial=0.0) or 1.0), zorder=3, **looks)
    words = "how much a place is looked at, over all"
    bar = figure.colorbar(dots, ax=axes, orientation="horizontal", label=words, shrink=0.7, aspect=30)
    bar.outline.set_visible(False)


def _degrees(longitude: Any, latitude: Any) -> tuple[np.ndarray, np.ndarray]:
    x, y = np.asarray(longitude, float), np.asarray(latitude, float)
    if x.shape != y.shape or x.ndim != 1 or not len(x):
        raise DataError(f"longitude and latitude are two lists of one length; found shapes {x.shape} and {y.shape}.")
    return x, y


def _land(axes: "Axes", x: np.ndarray, y: np.ndarray, places: Places | None, left: bool = True) -> None:
    """Degrees at a true shape, with names to find one's way."""
    from matplotlib.ticker import MaxNLocator

    room = 0.06 * max(np.ptp(x), np.ptp(y), 1.0)
    limits = (x.min() - room, x.max() + room), (y.min() - room, y.max() + room)
    axes.set(xlim=limits[0], ylim=limits[1], aspect=1 / np.cos(np.radians(y.mean())))
    axes.grid(color=style.PALE, linewidth=0.5, zorder=0)
    axes.xaxis.set_major_formatter(lambda v, _: f"{abs(v):.0f}°{'W' if v < 0 else 'E' if v > 0 else ''}")
    axes.yaxis.set_major_formatter(lambda v, _: f"{abs(v):.0f}°{'S' if v < 0 else 'N' if v > 0 else ''}")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(nbins=5, steps=[1, 2, 5, 10]))
    style.bare(axes)
    axes.tick_params(labelsize=8, labelleft=left)
    for name, (east, north) in (places or {}).items():
        if limits[0][0] <= east <= limits[0][1] and limits[1][0] <= north <= limits[1][1]:
            axes.scatter(east, north, marker="+", s=26, color=style.GREY, linewidths=0.9, zorder=1)
            at: dict[str, Any] = {"xytext": (4, 4), "textcoords": "offset points"}
            axes.annotate(name, (east, north), fontsize=8, color=style.GREY, zorder=1, **at)
