"""Real and generated groups side by side: how long they are, which items and values they hold, what goes together."""

from typing import TYPE_CHECKING, Any

import numpy as np

from efattn.errors import DataError, counted
from efattn.plots import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from efattn.data import Groups

BINS = 30
COLUMNS = 8  # of a wide table, the first ones, that get a panel
MOST, FEWEST = 40, 10  # items of which pairs are looked at; groups that a pair needs
REAL, DRAWN = "real", "generated"


@style.picture
def generated(model: Any, real: Any, drawn: Any, *, title: str | None = None, subtitle: str | None = None) -> Any:
    """Panels, as far as there is anything to see: the lengths of groups; of a model of items their shares, and how
    often one follows another (past) or is with it in a group; the values of each value column; the correlation of
    items' values over groups. Without items, the means of groups, which spread as far as rows of a group are alike.
    real: a table as that of the fit; drawn: what `sample` gave. Of a wide table, its first columns and their
    correlations; levels by their numbers."""
    fitted = style.fitted(model)
    schema = fitted.schema
    both = [_groups(fitted, table) for table in (real, drawn)]
    for groups, name in zip(both, ("real", "drawn"), strict=True):
        if not len(groups.rows):
            raise DataError(f"The table of {name} groups has no rows: there is nothing to compare.")
    names = schema.roles.of("value") if all(groups.value is not None for groups in both) else ()
    items = schema.vocabulary is not None
    panels: list[Any] = [] if len({*both[0].lengths.tolist(), *both[1].lengths.tolist()}) == 1 else [_lengths]
    if items and "item" in fitted.terms:
        panels += [_items, _follow if fitted.context == "past" else _together]
    if fitted.wide is not None:
        panels = [_column(fitted.vocabulary.number(name), name) for name in fitted.wide.names[:COLUMNS]]
    else:
        panels += [_values(c, name) for c, name in enumerate(names)]
    panels += [_correlated] if items and _correlated(None, *both) else []
    panels += [_means(name) for name in names[: not items]]
    columns = 2 if len(panels) in (2, 4) else min(len(panels), 3)
    rows = -(-len(panels) // columns)
    line = " and ".join(f"{counted(len(g), f'{what} group')}" for g, what in zip(both, (REAL, DRAWN), strict=True))
    said = f"{line}. On the diagonal, or one over the other, they are alike."
    asked = title or "Do generated groups look like real ones?"
    figure = style.page(3.9 * columns + 0.6, 3.4 * rows + 0.9, asked, said if subtitle is None else subtitle)
    axes = np.atleast_1d(figure.subplots(rows, columns)).ravel()
    for one, draw in zip(axes, panels, strict=False):
        draw(one, *both)
    for left in axes[len(panels) :]:
        left.set_visible(False)
    return figure


def _groups(fitted: Any, table: Any) -> "Groups":
    from efattn.data import Table
    from efattn.inference.tables import encoded

    ((_, groups),) = encoded(fitted, [Table.read(table)], lambda note: None, items=False)
    return groups


def _beside(axes: "Axes", real: np.ndarray, drawn: np.ndarray, *, whole: bool) -> None:
    """Two histograms in shares: pale bars for what is real, a line for what was drawn."""
    ends = [float(f(x)) for f in (np.min, np.max) for x in (real, drawn) if len(x)]
    low, high = min(ends), max(ends)
    if whole and high - low <= 3 * BINS:
        edges = np.arange(low - 0.5, high + 1.0)
    else:
        inside = np.quantile(np.concatenate((real, drawn)), [0.001, 0.999])  # what is far out would flatten the rest
        first, last = inside if inside[0] < inside[1] else (low - 0.5, high + 0.5)
        edges = np.linspace(first, last, BINS + 1)
    for x, name in ((real, REAL), (drawn, DRAWN)):
        share = np.histogram(x, edges)[0] / max(len(x), 1)
        if name == REAL:
            axes.bar(edges[:-1], share, np.diff(edges), align="edge", color=style.PALE, label=name)
        else:
            axes.stairs(share, edges, color=style.BLUE, linewidth=1.6, label=name)
    axes.set_ylim(0, 1.15 * axes.get_ylim()[1])
    axes.legend(loc="upper right")


def _lengths(axes: "Axes", real: "Groups", drawn: "Groups") -> None:
    _beside(axes, real.lengths.astype(float), drawn.lengths.astype(float), whole=True)
    axes.set(xlabel="rows", ylabel="share of groups")
    axes.set_title("How long groups are")


def _values(column: int, name: str) -> Any:
    def draw(axes: "Axes", real: "Groups", drawn: "Groups") -> None:
        y = [_known(groups.value[:, column]) for groups in (real, drawn) if groups.value is not None]
        whole = all(bool((x == np.round(x)).all()) for x in y)
        _beside(axes, *y, whole=whole)
        axes.set(xlabel=style.label(name), ylabel="share of rows")
        axes.set_title(f"Values of {style.label(name)}")

    return draw


def _column(item: int, name: str) -> Any:
    """Of a wide table: the values of one item."""

    def draw(axes: "Axes", real: "Groups", drawn: "Groups") -> None:
        y = [_known(groups.value[_numbers(groups) == item, 0]) for groups in (real, drawn) if groups.value is not None]
        _beside(axes, *y, whole=all(bool((x == np.round(x)).all()) for x in y))
        axes.set(xlabel=style.label(name), ylabel="share of rows")

    return draw


def _means(name: str) -> Any:
    def draw(axes: "Axes", real: "Groups", drawn: "Groups") -> None:
        y = []
        for groups in (real, drawn):
            assert groups.value is not None
            there = ~np.isnan(groups.value[:, 0])
            total = np.bincount(groups.group[there], groups.value[there, 0], len(groups))
            count = np.bincount(groups.group[there], minlength=len(groups))
            y.append(total[count > 0] / count[count > 0])
        _beside(axes, *y, whole=False)
        axes.set(xlabel=f"mean {style.label(name)} of a group", ylabel="share of groups")
        axes.set_title("How alike rows of a group are")

    return draw


def _items(axes: "Axes", real: "Groups", drawn: "Groups") -> None:
    one, two = (np.bincount(_numbers(g), minlength=_size(g))[: _size(g)] / max(len(g.rows), 1) for g in (real, drawn))
    _against(axes, one, two)
    axes.set(xlabel="share of real rows", ylabel="share of generated rows")
    axes.set_title("Items")


def _follow(axes: "Axes", real: "Groups", drawn: "Groups") -> None:
    often = _often(real)
    _against(axes, _next(real, often), _next(drawn, often))
    axes.set(xlabel="share of real rows", ylabel="share of generated rows")
    axes.set_title("One item directly after another")


def _together(axes: "Axes", real: "Groups", drawn: "Groups") -> None:
    often = _often(real)
    _against(axes, _both(real, often), _both(drawn, often))
    axes.set(xlabel="share of real groups", ylabel="share of generated groups")
    axes.set_title("Two items in one group")


def _correlated(axes: "Axes | None", real: "Groups", drawn: "Groups") -> bool:
    """Whether there are any pairs of items that enough groups have; without axes nothing is drawn."""
    one, two = (_correlations(groups, _often(real)) for groups in (real, drawn))
    there = ~(np.isnan(one) | np.isnan(two))
    if axes is not None:
        _against(axes, one[there], two[there], -1.0, 1.0)
        axes.set(xlabel="correlation over real groups", ylabel="over generated groups")
        axes.set_title("Values of two items")
    return bool(there.any())


def _often(groups: "Groups") -> np.ndarray:
    """The items that most rows have."""
    return np.argsort(-np.bincount(_numbers(groups), minlength=_size(groups))[: _size(groups)], kind="stable")[:MOST]


def _next(groups: "Groups", items: np.ndarray) -> np.ndarray:
    """(pair,): how often, among rows that follow another, it is this one after that one."""
    place = np.full(_size(groups) + 1, -1)
    place[items] = np.arange(len(items))
    at, follows = place[_numbers(groups)], np.diff(groups.group) == 0
    mine = follows & (at[:-1] >= 0) & (at[1:] >= 0)
    pairs = at[:-1][mine] * len(items) + at[1:][mine]
    return np.bincount(pairs, minlength=len(items) ** 2) / max(int(follows.sum()), 1)


def _against(axes: "Axes", real: np.ndarray, drawn: np.ndarray, low: float = 0.0, high: float | None = None) -> None:
    """A dot each, with the line on which both are the same."""
    end = max(float(real.max(initial=0)), float(drawn.max(initial=0))) if high is None else high
    room = 0.05 * max(end - low, 1e-9)
    span = low - room, end + room
    axes.plot(span, span, color=style.INK, linewidth=1.0)
    axes.scatter(real, drawn, s=18, color=style.BLUE, alpha=0.6, linewidths=0)
    axes.set(xlim=span, ylim=span)
    axes.grid(color=style.PALE, linewidth=0.6)
    axes.set_axisbelow(True)


def _matrix(groups: "Groups", items: np.ndarray, entries: np.ndarray) -> np.ndarray:
    """(group, item): the entry of the row that a group has of each, NaN for none."""
    place = np.full(_size(groups) + 1, -1)
    place[items] = np.arange(len(items))
    at = place[_numbers(groups)]
    found = np.full((len(groups), len(items)), np.nan)
    found[groups.group[at >= 0], at[at >= 0]] = entries[at >= 0]
    return found


def _correlations(groups: "Groups", items: np.ndarray) -> np.ndarray:
    """(pair,): of the first value column, NaN of pairs that too few groups have."""
    above = np.triu_indices(len(items), 1)
    if groups.value is None:
        return np.full(len(above[0]), np.nan)
    y = _matrix(groups, items, groups.value[:, 0])
    there = (~np.isnan(y)).astype(float)
    y = np.nan_to_num(y)
    n = there.T @ there
    with np.errstate(invalid="ignore", divide="ignore"):
        means, squares = (y.T @ there) / n, ((y**2).T @ there) / n  # of the row's item, where both are there
        spread = np.sqrt(squares - means**2)
        r = ((y.T @ y) / n - means * means.T) / (spread * spread.T)
    return np.where((n >= FEWEST) & np.isfinite(r), r, np.nan)[above]


def _both(groups: "Groups", items: np.ndarray) -> np.ndarray:
    there = (~np.isnan(_matrix(groups, items, np.ones(len(groups.rows))))).astype(float)
    return (there.T @ there / max(len(groups), 1))[np.triu_indices(len(items), 1)]


def _known(y: np.ndarray) -> np.ndarray:
    return y[~np.isnan(y)]


def _numbers(groups: "Groups") -> np.ndarray:
    assert groups.item is not None
    return groups.item


def _size(groups: "Groups") -> int:
    assert groups.vocabulary is not None
    return len(groups.vocabulary)
