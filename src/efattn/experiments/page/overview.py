"""One picture for a talk: every setting of the paper, each model's loss relative to the best peer's."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from efattn.experiments.page.blocks import Block, label, picture
from efattn.experiments.page.results import Results, efa, named, papers
from efattn.experiments.presets import OF_THE_PAPER
from efattn.experiments.settings import Entry, Setting
from efattn.plots import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LINEAR = 1.0  # per cent either side of the peer that are drawn to one scale
MARKS = {  # name: colour, marker
    "latent factors": (style.GREY, "s"),
    "EFA, paper's preset": (style.ORANGE, "D"),
    "EFA, defaults": (style.GREEN, "^"),
    "EFA, best preset": (style.BLUE, "o"),
}
CAPTION = (
    "Test loss relative to the best peer's on the same rows, by seed (small marks) and on average (large). Left of the "
    "line is better. The scale is linear within one per cent and logarithmic beyond."
)
Spread = dict[str, list[np.ndarray]]


def blocks(results: Results) -> Iterator[Block]:
    rows = [(s, {name: relative(results, s, _entry(s, name)) for name in MARKS}) for s in OF_THE_PAPER]
    chosen = [(s, row) for s, row in rows if any(map(len, row.values()))]
    if chosen:
        losses: Spread = {name: [row[name] for _, row in chosen] for name in MARKS}
        peers = [(named(s), getattr(results.best_peer(s), "model", "")) for s, _ in chosen]
        yield picture("overview", _draw(peers, losses), CAPTION)


def _entry(setting: Setting, name: str) -> Entry | None:
    presets = {"EFA, defaults": "defaults", "EFA, best preset": "best"}
    kind = "latent factors" if name == "latent factors" else "EFA"
    return efa(setting, presets[name]) if name in presets else papers(setting, kind)


def relative(results: Results, setting: Setting, entry: Entry | None) -> np.ndarray:
    """Per cent above the best peer, by seed: of the same seed's split where splits move."""
    peers = {run["seed"]: run["value"] for run in results.runs(setting, results.best_peer(setting))}
    if not peers:
        return np.zeros(0)
    mean = float(np.mean(list(peers.values())))
    runs = [(r["seed"], r["value"]) for r in results.runs(setting, entry)]
    if setting.moving:
        return np.array([100 * (value / peers[seed] - 1) for seed, value in runs if seed in peers])
    return np.array([100 * (value / mean - 1) for _, value in runs])


@style.styled
def _draw(peers: list[tuple[str, str]], losses: Spread) -> "Figure":
    subtitle = "Loss relative to the best simple peer on the same test rows; left of the line is better."
    figure = style.page(8.6, 1.7 + 0.44 * len(peers), "Exponential family attention beside honest peers", subtitle)
    axes = figure.add_subplot()
    axes.axvline(0, color=style.INK, linewidth=1.1, zorder=1)
    for k, (name, (colour, marker)) in enumerate(MARKS.items()):
        drawn = False
        for row, values in enumerate(losses[name]):
            at = row + 0.19 * (k - 1.5)
            if not len(values):
                continue
            drawn = True
            axes.plot([values.min(), values.max()], [at, at], color=colour, linewidth=1.6, alpha=0.45, zorder=2)
            axes.scatter(values, np.full(len(values), at), s=9, color=colour, marker=marker, alpha=0.55, linewidths=0)
            axes.scatter(
                values.mean(), at, s=46, color=colour, marker=marker, edgecolors="white", linewidths=0.7, zorder=3
            )
        if drawn:
            axes.scatter([], [], s=46, color=colour, marker=marker, label=name)
    _axes(axes, peers, [x for rows in losses.values() for x in rows if len(x)])
    marks, names = axes.get_legend_handles_labels()
    figure.legend(marks, names, loc="outside lower center", ncols=len(marks), handletextpad=0.2)
    return figure


def _axes(axes: "Axes", peers: list[tuple[str, str]], values: list[np.ndarray]) -> None:
    every = np.concatenate(values)
    axes.set_xscale("symlog", linthresh=LINEAR, linscale=0.8)
    ends = min(float(every.min()) * 1.4, -2.0), max(float(every.max()) * 1.4, 2.0)
    ticks = [t for t in (-100, -30, -10, -3, -1, 0, 1, 3, 10, 30, 100, 300, 1000) if ends[0] <= t <= ends[1]]
    axes.set_xlim(*ends)
    axes.set_xticks(ticks, ["peer" if t == 0 else f"{t:+d}%".replace("-", "\N{MINUS SIGN}") for t in ticks])
    axes.set_xticks([], minor=True)
    names = [f"{title}\nagainst {peer}" for title, peer in peers]
    axes.set_yticks(range(len(peers)), [label(name) for name in names], fontsize=8)
    axes.set_ylim(len(peers) - 0.4, -0.6)
    for row in range(0, len(peers), 2):
        axes.axhspan(row - 0.5, row + 0.5, color=style.PALE, alpha=0.28, linewidth=0, zorder=0)
    axes.grid(axis="x", color=style.PALE, linewidth=0.6)
    axes.set_axisbelow(True)
    style.bare(axes)
    axes.tick_params(axis="x", labelsize=9)
