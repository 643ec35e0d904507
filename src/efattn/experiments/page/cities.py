"""Cities: test error against the number of neighbours of latent factors, and a map of each city's error."""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from efattn import plots
from efattn.experiments.page.blocks import Block, Heading, Text, label, picture
from efattn.experiments.page.results import Results, efa, entry, papers, settings
from efattn.experiments.presets.cities import NEIGHBOURS
from efattn.experiments.records import Record
from efattn.experiments.settings import Entry, Setting
from efattn.plots import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

VARIANTS = {"latent factors": (style.ORANGE, "o", "-"), "latent factors, intercept": (style.GREEN, "s", "--")}


def blocks(results: Results) -> Iterator[Block]:
    setting = next(s for s in settings("cities") if s.name == "no lag")
    yield Heading("Error against the number of neighbours", 3)
    curves = {name: neighbours(results, setting, name) for name in VARIANTS}
    levels = dict(_levels(results, setting))
    if any(map(len, curves.values())):
        caption = (
            "Test mean squared error of latent factors by the number of nearest neighbours, mean and range over seeds, "
            "and of the other models as lines."
        )
        yield picture("cities-neighbours", _draw(curves, levels), caption)
    else:
        yield Text("Not run yet: latent factors by number of neighbours.")
    yield Heading("Error by city", 3)
    yield from _map(results, setting)


def neighbours(results: Results, setting: Setting, variant: str) -> dict[int, list[float]]:
    """By k the errors of all seeds."""
    ending = variant.removeprefix("latent factors")
    errors = {}
    for k in NEIGHBOURS:
        name = f"latent factors, k={k}{ending}"
        values = [run["value"] for run in results.runs(setting, _named(setting, "paper", name))]
        if values:
            errors[k] = values
    return errors


def _named(setting: Setting, preset: str, name: str) -> Entry | None:
    return entry(setting, preset, lambda model: model == name)


def _levels(results: Results, setting: Setting) -> Iterator[tuple[str, tuple[float, str]]]:
    """Name: mean error, colour. EFA in blue, peers in grey."""
    for one in setting.entries:
        if one.preset == "paper" and (layers := re.fullmatch(r"EFA, layers=(\d+)", one.model)):
            name = f"EFA, {layers[1]} layer{'s' if layers[1] != '1' else ''} (paper's preset)"
            yield from _level(results, setting, one, name, style.BLUE)
    peer = results.best_peer(setting)
    if peer is not None:
        yield from _level(results, setting, peer, peer.model, style.GREY)
    if peer is None or peer.model != "lasso per city":
        yield from _level(results, setting, _named(setting, "peer", "lasso per city"), "lasso per city", style.GREY)
    for preset in ("defaults", "best"):
        yield from _level(results, setting, efa(setting, preset), f"EFA, {preset}", style.INK)


def _level(
    results: Results, setting: Setting, one: Entry | None, name: str, colour: str
) -> Iterator[tuple[str, tuple[float, str]]]:
    line = results.summary_of(setting, one)
    if line is not None:
        yield name, (line["mean"], colour)


@style.styled
def _draw(curves: dict[str, dict[int, list[float]]], levels: dict[str, tuple[float, str]]) -> "Figure":
    figure = style.page(8.6, 5.0, "Latent factors by their number of neighbours", "US cities, no lag; lower is better.")
    axes = figure.add_subplot()
    for name, (colour, marker, line) in VARIANTS.items():
        if curves[name]:
            k, values = list(curves[name]), list(curves[name].values())
            low, high = [min(v) for v in values], [max(v) for v in values]
            axes.fill_between(k, low, high, color=colour, alpha=0.18, linewidth=0)
            axes.plot(k, [np.mean(v) for v in values], marker=marker, ms=5, lw=1.8, color=colour, ls=line, label=name)
    _scale(axes, [x for by_k in curves.values() for v in by_k.values() for x in v] + [x for x, _ in levels.values()])
    _lines(axes, levels)
    marks, names = axes.get_legend_handles_labels()
    figure.legend(marks, names, loc="outside lower center", ncols=2, handlelength=2.6)
    return figure


def _scale(axes: "Axes", seen: list[float]) -> None:
    low, high = min(seen) * 0.94, max(seen) * 1.08
    axes.set_yscale("log")
    axes.set_ylim(low, high)
    ticks = [t for t in (5, 6, 7, 8, 10, 12, 15, 20, 25, 30, 40, 60, 100) if low <= t <= high]
    axes.set_yticks(ticks, [str(t) for t in ticks])
    axes.set_yticks([], minor=True)
    axes.set(xlabel="nearest neighbours k", ylabel="test mean squared error (log scale)", xlim=(0, 41))


def _lines(axes: "Axes", levels: dict[str, tuple[float, str]]) -> None:
    """One per model, its name at the right, as near as the other names let it stand."""
    low, high = np.log(axes.get_ylim())
    heights = _apart({name: float(np.log(x)) for name, (x, _) in levels.items()}, 0.045 * float(high - low))
    for name, (x, colour) in levels.items():
        axes.axhline(x, color=colour, linewidth=1.1, linestyle=(0, (5, 3)), zorder=1)
        ends: dict[str, Any] = {"transform": axes.get_yaxis_transform(), "clip_on": False, "color": colour}
        at = float(np.exp(heights[name]))
        axes.plot([1, 1.025], [x, at], linewidth=0.7, **ends)
        axes.text(1.03, at, f"{label(name)} {x:.2f}", va="center", fontsize=8, **ends)


def _apart(heights: dict[str, float], least: float) -> dict[str, float]:
    """Pushed up from below until names no longer overlap."""
    apart: dict[str, float] = {}
    last = -np.inf
    for name, at in sorted(heights.items(), key=lambda pair: pair[1]):
        last = apart[name] = max(at, last + least)
    return apart


def _map(results: Results, setting: Setting) -> Iterator[Block]:
    attention = next(
        (e for p in ("best", "defaults") if results.with_key(setting, e := efa(setting, p), "cities")), None
    )
    attention = attention or papers(setting, "EFA")
    chosen = {
        "latent factors, k=5": _named(setting, "paper", "latent factors, k=5"),
        f"EFA ({attention.preset if attention else ''})": attention,
        "Gaussian conditional": _named(setting, "peer", "Gaussian conditional"),
    }
    runs = {name: results.with_key(setting, one, "cities") for name, one in chosen.items()}
    missing = [name for name, mine in runs.items() if not mine]
    if missing:
        yield Text(f"Not run yet: errors by city of {', '.join(missing)}.")
    panels = {
        f"{label(name)}: {np.mean([run['value'] for run in mine]):.2f}": _errors(mine)
        for name, mine in runs.items()
        if mine
    }
    if not panels:
        return
    first = next(mine[0]["cities"] for mine in runs.values() if mine)
    words: dict[str, Any] = {"title": "Where the models err", "unit": "root mean squared error, °F"}
    subtitle = "Root mean squared error of each city over the test days; above each map the mean squared error of all."
    figure = plots.station_map(first["longitude"], first["latitude"], panels, subtitle=subtitle, **words)
    yield picture("cities-map", figure, "Root mean squared error by city on one colour scale, means over seeds.")


def _errors(runs: list[Record]) -> np.ndarray:
    """(city,)"""
    return np.sqrt(np.mean([run["cities"]["error"] for run in runs], 0))
