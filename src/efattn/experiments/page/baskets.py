"""Baskets: what goes with what, where attention goes, and each item's queries, keys and values."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from efattn import plots
from efattn.experiments.page.blocks import Block, Heading, Text, label, picture, table
from efattn.experiments.page.numbers import NONE
from efattn.experiments.page.results import Results, efa, papers, settings
from efattn.experiments.presets.groceries import REPRESENTATIVE
from efattn.experiments.records import Record
from efattn.inference.embeddings import principal
from efattn.plots import style
from efattn.plots.items import scatter

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KINDS = ("query", "key", "value")
LETTERS = 24  # of a name in a picture
GO_TOGETHER = (
    "The three items that go best with each of four, by item vectors: the score of a and b is the sum of two products, "
    "one item's own vector times the other's vector as context, both ways round. Of the first seed's fit."
)


def blocks(results: Results) -> Iterator[Block]:
    yield Heading("What goes together", 3)
    rows = list(_companions(results))
    yield Text(GO_TOGETHER if rows else "Not run yet: companions of items.")
    if rows:
        yield table(("model", "context", *REPRESENTATIVE), rows, words=2 + len(REPRESENTATIVE))
    run = _looked_into(results)
    yield Heading("Inside the attention", 3)
    if run is None:
        yield Text("Not run yet: attention weights and item vectors of EFA, paper's preset, past.")
        return
    yield Text(
        "EFA, the paper's preset, past, seed 0. Weights are averaged over heads; a row is what one item looks at, "
        "the diagonal its own masked place."
    )
    yield from _weights(run["attention"])
    yield from _vectors(run["vectors"])


def _companions(results: Results) -> Iterator[list[str]]:
    for name, kind, preset in (
        ("latent factors", "latent factors", "paper"),
        ("EFA, paper's preset", "EFA", "paper"),
        ("EFA, defaults", "EFA", "defaults"),
        ("EFA, best preset", "EFA", "best"),
    ):
        for setting in settings("instacart"):
            entry = papers(setting, kind) if preset == "paper" else efa(setting, preset)
            for run in results.with_key(setting, entry, "companions")[:1]:
                yield [name, setting.name, *(", ".join(run["companions"].get(x, [NONE])) for x in REPRESENTATIVE)]


def _looked_into(results: Results) -> Record | None:
    setting = next(s for s in settings("instacart") if s.name == "past")
    runs = results.with_key(setting, papers(setting, "EFA"), "attention")
    return next((run for run in runs if run.get("vectors")), None)


def _weights(attention: Sequence[Record]) -> Iterator[Block]:
    for k, basket in enumerate(attention, 1):
        names = [_short(name) for name in basket["items"]]
        panels = {f"Layer {layer}": np.array(x) for layer, x in enumerate(basket["weights"], 1)}
        words: dict[str, Any] = {"down": "predicted, in the order of the basket", "across": "looked at"}
        about = "Weights averaged over heads; dark is much."
        figure = plots.heatmaps(
            panels, names, names, title=f"Attention in a basket of {len(names)}", subtitle=about, **words
        )
        yield picture(f"instacart-attention-{k}", figure, f"Attention weights of test basket {k}, one map per layer.")


def _vectors(vectors: dict[str, Any]) -> Iterator[Block]:
    """By head: heat maps of items by dimensions, then the same points in the plane of their first two components."""
    names = [_short(name) for name in vectors["items"]]
    every = {kind: np.array(vectors[kind]) for kind in KINDS}  # (head, item, size)
    for head in range(len(every["query"])):
        mine = {kind: x[head] for kind, x in every.items()}
        title = f"Queries, keys and values of every item, layer 1, head {head + 1}"
        sorted_ = "items in the order of their first principal component."
        yield picture(f"instacart-vectors-{head + 1}", _maps(mine, names, title), f"{title}; {sorted_}")
        flat = "in the plane of their first two principal components; names are left out where they would overlap."
        yield picture(f"instacart-plane-{head + 1}", _plane(mine, names, title), f"{title}, {flat}")


@style.styled
def _maps(vectors: dict[str, np.ndarray], names: list[str], title: str) -> "Figure":
    order = np.argsort(principal(np.hstack(list(vectors.values()))).at[:, 0])
    figure = style.page(
        8.6, 2.0 + 0.125 * len(names), title, "Items down, dimensions of the head across; each map on its own scale."
    )
    for k, (kind, x) in enumerate(vectors.items()):
        axes = figure.add_subplot(1, len(vectors), k + 1)
        most = float(np.abs(x).max()) or 1.0
        image = axes.imshow(x[order], cmap=style.ERRORS, vmin=-most, vmax=most, aspect="auto", interpolation="nearest")
        axes.set_title(kind)
        axes.set_xticks([])
        axes.set_yticks(range(len(names)), [names[i] for i in order] if k == 0 else [], fontsize=6.5)
        style.bare(axes)
        bar = figure.colorbar(image, ax=axes, orientation="horizontal", shrink=0.8, aspect=24, pad=0.01)
        bar.outline.set_visible(False)
        bar.ax.tick_params(labelsize=8)
    return figure


@style.styled
def _plane(vectors: dict[str, np.ndarray], names: list[str], title: str) -> "Figure":
    figure = style.page(8.6, 10.2, title, "First two principal components; orange: the four items of the table above.")
    known = {_short(name) for name in REPRESENTATIVE}
    for k, (kind, x) in enumerate(vectors.items()):
        axes = figure.add_subplot(len(vectors), 1, k + 1)
        at, share = principal(x)
        axes.set_title(f"{kind}: {100 * share:.0f} % of the spread")
        scatter(axes, at, names, np.array([name in known for name in names]))
    return figure


def _short(name: object) -> str:
    text = str(name)
    return label(text if len(text) <= LETTERS else text[: LETTERS - 1].rstrip() + "…")
