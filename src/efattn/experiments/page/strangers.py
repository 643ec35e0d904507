"""Tables of other trades: EFA's defaults beside the best of every simple model that suits each, fold by fold."""

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from efattn.comparing import Comparison
from efattn.errors import counted
from efattn.experiments.page.blocks import TIED, Block, Bullets, Cell, Heading, Text, label, listing, picture, table
from efattn.experiments.page.numbers import NONE, number, seconds
from efattn.experiments.page.results import Results
from efattn.experiments.records import Record
from efattn.experiments.strangers.tables import STRANGERS
from efattn.plots import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HEAD = (
    "table", "kind", "context", "best peer", "rows", "groups", "EFA", "best peer's", "EFA less best peer",
    "standard errors", "EFA is", "network's share", "seconds",
)  # fmt: skip
ABOUT = (
    "Public tables of R's packages, scikit-learn and UCI. Which column plays which part was written down and committed "
    "before any model was fitted to any of them; everything else is the defaults'. `efattn compare` deals the groups "
    "into five folds; EFA, latent factors and every simple model that suits the table are fitted to four of them and "
    "scored on the fifth, on the same rows and with the same family. Numbers are log-likelihoods per row in the "
    "table's units, the higher the better; differences are EFA's less the peer's, with standard errors over groups. "
    "The best peer is the one that is best on these test rows, chosen afterwards: that is generous to peers. Level is "
    "within two standard errors."
)
CAPTION = (
    "Each table's difference between EFA and the best peer in standard errors; right of the line EFA is ahead. Grey is "
    "level, within two of them. The scale is linear up to three and logarithmic beyond."
)
WORDS = {"ahead": "behind", "behind": "ahead", "level": "level"}  # of a peer, and of EFA beside it


class Row(NamedTuple):
    """EFA beside the best peer on one table."""

    name: str
    peer: str
    efa: float
    theirs: float
    difference: float
    error: float
    standing: str
    network: float | None

    @property
    def errors(self) -> float:
        if not self.difference:
            return 0.0
        return self.difference / self.error if self.error else float(np.copysign(np.inf, self.difference))


def blocks(results: Results) -> Iterator[Block]:
    yield Heading("Strangers")
    yield Text(ABOUT)
    rows = {row.name: row for row in rows_of(results)}
    if rows:
        yield table(HEAD, [_cells(*results.strangers[name], row) for name, row in rows.items()], words=4)
        yield Bullets(tuple(_words(list(rows.values()))))
        yield picture("strangers", _draw(list(rows.values())), CAPTION)
    missing = [one.name for one in STRANGERS if one.name not in rows]
    if missing:
        yield Text(f"Not run yet: {listing(missing)}.")


def rows_of(results: Results) -> list[Row]:
    """Of the tables that have a peer to compare with."""
    return [row for name, (_, one) in results.strangers.items() if (row := _row(name, one)) is not None]


def _row(name: str, comparison: Comparison) -> Row | None:
    term = comparison.terms[0]
    peer = comparison.best_peer(term)
    mine = next(line for line in comparison.lines if line.term == term and line.model == comparison.reference)
    if peer is None or peer.difference is None or peer.error is None:
        return None
    share = comparison.shares(term).get("network")
    means = (mine.log_likelihood, peer.log_likelihood)
    return Row(name, peer.model, *means, -peer.difference, peer.error, WORDS[peer.standing], share)


def _cells(record: Record, comparison: Comparison, row: Row) -> list[str | Cell]:
    about = comparison.about
    gap = f"{number(row.difference, 3, sign=True)}{TIED}±{TIED}{number(row.error)}"
    share = NONE if row.network is None else f"{row.network:.0%}"
    return [
        f"{row.name} ({record['source']})", record["kind"], about["context"], row.peer, f"{about['rows']:,}",
        f"{about['groups']:,}", Cell(number(row.efa), bold=row.efa >= row.theirs),
        Cell(number(row.theirs), bold=row.theirs > row.efa), gap, number(row.errors, 1, sign=True), row.standing, share,
        seconds(record["seconds"]),
    ]  # fmt: skip


def _words(rows: list[Row]) -> Iterator[str]:
    counts = Counter(row.standing for row in rows)
    yield (
        f"Of {counted(len(rows), 'table')} EFA is ahead of the best peer on {counts['ahead']}, level on "
        f"{counts['level']} and behind on {counts['behind']}."
    )
    behind = sorted((row for row in rows if row.standing == "behind"), key=lambda row: row.errors)
    if behind:
        yield "Behind: " + ", ".join(f"{row.name} ({number(row.errors, 1)} standard errors)" for row in behind) + "."
    total = sum(row.difference for row in rows)
    spread = float(np.sqrt(sum(row.error**2 for row in rows)))
    yield f"The sum of all differences is {number(total, 2, sign=True)} ± {number(spread, 2)} nats a row."
    yield f"The best peer is {listing([f'{name} {count}' for name, count in _times(rows)])} times."
    shares = [row.network for row in rows if row.network is not None]
    if shares:
        low, middle, high = np.quantile(shares, (0.25, 0.5, 0.75))
        yield (
            f"The network's own share of EFA's mixture, the rest being its companions', is {middle:.0%} in the middle; "
            f"half of the tables lie between {low:.0%} and {high:.0%}."
        )


def _times(rows: list[Row]) -> list[tuple[str, int]]:
    return Counter(row.peer for row in rows).most_common()


@style.styled
def _draw(rows: list[Row]) -> "Figure":
    rows = sorted(rows, key=lambda row: -row.errors)
    counts = Counter(row.standing for row in rows)
    title = f"{counts['ahead']} ahead, {counts['level']} level, {counts['behind']} behind"
    figure = style.page(7.4, 1.4 + 0.2 * len(rows), title, "EFA's defaults less the best peer, in standard errors.")
    axes = figure.add_subplot()
    colours = {"ahead": style.BLUE, "level": style.GREY, "behind": style.ORANGE}
    axes.axvspan(-2, 2, color=style.PALE, alpha=0.35, linewidth=0)
    axes.axvline(0, color=style.INK, linewidth=1.0)
    for place, row in enumerate(rows):
        far = float(np.clip(row.errors, -100, 100))
        axes.hlines(place, min(0, far), max(0, far), color=colours[row.standing], linewidth=1.6, alpha=0.5)
        axes.scatter(far, place, s=30, color=colours[row.standing], edgecolors="white", linewidths=0.6, zorder=3)
    axes.set_xscale("symlog", linthresh=3, linscale=1.5)
    ends = [float(np.clip(row.errors, -100, 100)) for row in rows]
    ticks = [t for t in (-100, -30, -10, -2, 0, 2, 10, 30, 100) if min(*ends, -3) <= t <= max(*ends, 3)]
    axes.set_xticks(ticks, [f"{t}".replace("-", "\N{MINUS SIGN}") for t in ticks])
    axes.set_xticks([], minor=True)
    axes.set_xlim(min(*ends, -3) * 1.3, max(*ends, 3) * 1.3)
    axes.set_yticks(range(len(rows)), [label(f"{row.name}, against {row.peer}") for row in rows], fontsize=7)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    style.bare(axes)
    return figure
