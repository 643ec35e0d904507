"""Where items stand: in the plane of their vectors' first two components, beside those that go with them, and which
part of the mixture speaks about them.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from efattn.errors import DataError
from efattn.plots import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_POINTS = 20_000  # items on a map
COLOURS = (style.BLUE, style.ORANGE, style.GREEN, "#CC79A7", "#E69F00", "#56B4E9", style.PALE)
DARK = 4  # of these, on which white is read


@style.picture
def item_map(
    model: Any,
    which: Literal["item", "centre"] = "item",
    *,
    names: int = 60,
    marked: Sequence[Any] = (),
    member: int = 0,
    title: str = "Where items stand",
    subtitle: str | None = None,
) -> Any:
    """Item vectors in the plane of their first two principal components, with as many names as there is room for: of
    the marked items, then of those that stand apart, at most `names`. which: "item", what an item contributes as
    context, or "centre", what it is predicted with."""
    from efattn.inference.embeddings import plane

    fitted = style.fitted(model)
    found = plane(fitted, which, member=member)
    words = [style.label(fitted.vocabulary.name(k)) for k in range(len(found.at))]
    chosen = np.zeros(len(words), bool)
    chosen[[fitted.vocabulary.number(one) for one in marked]] = True
    line = f"First two principal components of {len(words):,} item vectors: {found.share:.0%} of their spread."
    figure = style.page(7.4, 6.4, title, line if subtitle is None else subtitle)
    scatter(figure.add_subplot(), found.at[:MOST_POINTS], words[:MOST_POINTS], chosen[:MOST_POINTS], names)
    return figure


def scatter(axes: "Axes", at: np.ndarray, names: Sequence[str], marked: np.ndarray, most: int = 60) -> None:
    """Points (item, 2) with their names; marked ones in another colour."""
    size = 20 if len(at) <= 500 else 8
    axes.scatter(at[~marked, 0], at[~marked, 1], s=size, color=style.BLUE, alpha=0.7, linewidths=0)
    axes.scatter(at[marked, 0], at[marked, 1], s=2 * size, color=style.ORANGE, linewidths=0)
    axes.margins(x=0.12, y=0.08)
    axes.axhline(0, color=style.PALE, linewidth=0.7, zorder=0)
    axes.axvline(0, color=style.PALE, linewidth=0.7, zorder=0)
    axes.tick_params(labelsize=8)
    axes.set(xlabel="first component", ylabel="second component")
    style.bare(axes)
    write_names(axes, at, names, marked, most)


def write_names(axes: "Axes", at: np.ndarray, names: Sequence[str], marked: np.ndarray, most: int = 60) -> None:
    """Marked ones first, then from the outside in; a name that would cover another, or leave the picture, is left out.
    It stands right of its point, or left, above or below where there is no room."""
    figure = style.figure_of(axes)
    with style.without_glyphs():
        figure.draw_without_rendering()
    spread, window = axes.transData.transform(at), axes.get_window_extent()
    far = np.linalg.norm((spread - spread.mean(0)) / [window.width, window.height], axis=1) + 100 * marked
    unit, taken, written = figure.dpi / 72, list[tuple[float, float, float, float]](), 0
    dots = np.column_stack([spread - 2.5 * unit, spread + 2.5 * unit])
    for i in np.argsort(-far, kind="stable")[: 4 * most]:
        wide, high = (0.60 * 8 * len(names[i]) + 2) * unit, 10 * unit
        for side in ((1, 0), (-1, 0), (0, 1), (0, -1)):
            middle = spread[i] + np.array(side) * [wide / 2 + 4 * unit, high / 2 + 4 * unit]
            box = (middle[0] - wide / 2, middle[1] - high / 2, middle[0] + wide / 2, middle[1] + high / 2)
            inside = window.x0 <= box[0] and box[2] <= window.x1 and window.y0 <= box[1] and box[3] <= window.y1
            covered = ((dots[:, :2] < box[2:]) & (dots[:, 2:] > box[:2])).all(1).sum()
            if not inside or (covered and not marked[i]) or any(_meet(box, other) for other in taken):
                continue
            taken.append(box)
            place: dict[str, Any] = {"xytext": tuple(4 * x for x in side), "textcoords": "offset points"}
            place |= {"ha": ("right", "center", "left")[side[0] + 1], "va": ("top", "center", "bottom")[side[1] + 1]}
            axes.annotate(names[i], at[i], fontsize=8, color=style.ORANGE if marked[i] else style.INK, **place)
            written += 1
            break
        if written >= most:
            break


def _meet(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return one[0] < other[2] and one[2] > other[0] and one[1] < other[3] and one[3] > other[1]


@style.picture
def similar_items(model: Any, item: Any, k: int = 10, *, title: str | None = None, subtitle: str | None = None) -> Any:
    """The k items that go best with one, a bar each, by what the model predicts (`model.similar`)."""
    from efattn.inference import similar

    fitted = style.fitted(model)
    best = similar(fitted, item, k, kind="polars")
    score = best.columns[-1]
    if not len(best):
        raise DataError(f"There is nothing beside {item!r} to draw.")
    words = "How much the presence of each raises the other, in nats."
    if "item" not in fitted.terms:
        words = "How far their values rise together: 1 for hand in hand, 0 for not at all."
    figure = style.page(6.4, 1.35 + 0.32 * len(best), title or f"What goes with {style.label(item)}", subtitle or words)
    axes = figure.add_subplot()
    names = [style.label(row[0] if len(row) == 1 else row) for row in best.drop(score).iter_rows()]
    values = best[score].to_numpy()
    axes.barh(range(len(best)), values, height=0.62, color=np.where(values < 0, style.GREY, style.BLUE))
    axes.set_yticks(range(len(best)), names)
    axes.invert_yaxis()
    axes.axvline(0, color=style.INK, linewidth=0.8)
    axes.set_xlabel("score")
    axes.grid(axis="x", color=style.PALE, linewidth=0.6)
    axes.set_axisbelow(True)
    style.bare(axes)
    return figure


@style.picture
def shares(model: Any, *, title: str = "Who speaks", subtitle: str | None = None) -> Any:
    """What each part has of the mixture that predicts, a bar a term: the networks together, and each companion."""
    fitted = style.fitted(model)
    line = "Shares of the mixture, chosen by groups that no part was fitted to." if subtitle is None else subtitle
    names = list(fitted.names)
    parts = {name: mixture_shares(fitted, name) for name in names}
    kinds = list(dict.fromkeys(kind for mine in parts.values() for kind in mine))
    figure = style.page(7.4, 1.75 + 0.62 * len(names), title, line)
    axes = figure.add_subplot()
    left = np.zeros(len(names))
    for k, kind in enumerate(kinds):
        wide = np.array([parts[name].get(kind, 0.0) for name in names])
        colour = COLOURS[k % len(COLOURS)]
        label = f"{kind} {wide[0]:.0%}" if len(names) == 1 and wide[0] >= 0.005 else kind
        axes.barh(range(len(names)), wide, left=left, height=0.6, color=colour, edgecolor="white", label=label)
        for row, (at, share) in enumerate(zip(left, wide, strict=True)):
            if share >= 0.06 and len(names) > 1:
                ink = style.ON_DARK if k % len(COLOURS) < DARK else style.ON_LIGHT
                axes.text(at + share / 2, row, f"{share:.0%}", ha="center", va="center", color=ink, weight="bold")
        left += wide
    axes.set(xlim=(0, 1), ylim=(len(names) - 0.5, -0.5), xlabel="share of the mixture")
    axes.set_yticks(range(len(names)), [style.label(name) for name in names])
    axes.xaxis.set_major_formatter(lambda x, _: f"{x:.0%}")
    style.bare(axes)
    figure.legend(loc="outside lower center", ncols=min(len(kinds), 4))
    return figure


def mixture_shares(fitted: Any, name: str) -> dict[str, float]:
    """By part: the networks' together, or that of their pool with companions, then each companion's."""
    companions = fitted.companions.get(name, ())
    who = "networks" if len(fitted.members) > 1 else "network" if fitted.estimator == "EFA" else fitted.estimator
    who = "pool" if name in fitted.powers and companions else who
    found = {who: max(1 - sum(one.share for one in companions), 0.0)}
    for one in companions:
        kind = one.recipe.label
        found[kind] = found.get(kind, 0.0) + one.share
    return found
