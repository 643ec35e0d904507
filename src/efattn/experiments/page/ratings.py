"""Ratings: the mean prediction for actual ratings of 1, 2 and 3, which a good model spreads apart."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from efattn.experiments.page.blocks import Block, Heading, Text, picture, table
from efattn.experiments.page.numbers import number
from efattn.experiments.page.results import Results, efa, papers, settings
from efattn.experiments.presets.ratings import MEANS
from efattn.experiments.settings import Setting
from efattn.plots import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ACTUAL = (1, 2, 3)
LOOKS = {  # colour, line, marker
    "latent factors, paper": (style.GREY, ":", "s"),
    "latent factors": (style.GREY, "-", "s"),
    "EFA, paper": (style.ORANGE, ":", "D"),
    "EFA, paper's preset": (style.ORANGE, "-", "D"),
    "EFA, defaults": (style.GREEN, "-", "^"),
    "EFA, best preset": (style.BLUE, "-", "o"),
}
Means = dict[str, np.ndarray]


def blocks(results: Results) -> Iterator[Block]:
    yield Heading("Mean predictions by actual rating", 3)
    yield Text("A model that knows nothing of a user predicts the same for all. Means over seeds; perfect is 1, 2, 3.")
    by_setting = {setting.name: means(results, setting) for setting in settings("ratings")}
    rows = [
        [name, model, *(number(x, 2) for x in three)]
        for name, by_model in by_setting.items()
        for model, three in by_model.items()
    ]
    yield table(("setting", "model", "actual 1", "actual 2", "actual 3"), rows, words=2)
    caption = "Mean predicted rating by actual rating: the steeper, the better; the dotted lines are the paper's."
    yield picture("ratings-means", _draw(by_setting), caption)


def means(results: Results, setting: Setting) -> Means:
    """The paper's, then ours as far as they have run."""
    version, context = setting.name.split(", ")
    fm, attention = MEANS[version, context]
    by_model: Means = {"latent factors, paper": np.array(fm), "EFA, paper": np.array(attention)}
    peer = results.best_peer(setting)
    mine = {
        "latent factors": papers(setting, "latent factors"),
        "EFA, paper's preset": papers(setting, "EFA"),
        "EFA, defaults": efa(setting, "defaults"),
        "EFA, best preset": efa(setting, "best"),
        "" if peer is None else f"best peer: {peer.model}": peer,
    }
    for name, entry in mine.items():
        runs = results.with_key(setting, entry, "mean_by_rating")
        if runs:
            by_model[name] = np.mean([run["mean_by_rating"] for run in runs], 0)
    return by_model


@style.styled
def _draw(by_setting: dict[str, Means]) -> "Figure":
    title = "Mean predicted rating by actual rating"
    figure = style.page(8.6, 3.9, title, "A perfect prediction would rise from 1 to 3; a constant one would be flat.")
    first, seen = None, {}
    for k, (name, by_model) in enumerate(by_setting.items()):
        axes = first = figure.add_subplot(1, len(by_setting), k + 1, sharey=first)
        for model, three in by_model.items():
            if model in LOOKS:
                colour, line, marker = LOOKS[model]
                look = {"color": colour, "linestyle": line, "marker": marker, "markersize": 5, "linewidth": 1.5}
                seen[model] = axes.plot(ACTUAL, three, **look)[0]  # type: ignore[arg-type]
        axes.set_title(name)
        axes.set_xticks(ACTUAL)
        axes.set(xlim=(0.75, 3.25), xlabel="actual", ylabel="mean prediction" if k == 0 else "")
        axes.tick_params(labelleft=k == 0)
        axes.grid(axis="y", color=style.PALE, linewidth=0.6)
    named = [model for model in LOOKS if model in seen]
    figure.legend([seen[m] for m in named], named, loc="outside lower center", ncols=3, handlelength=2.6)
    return figure
