"""How large a network is, and how strongly it is held back, where that is left open: from the sizes of the table.

    width      32; of values from 500,000 rows on 64; of more than 300 items 64 from 20,000 rows on, 128 from 500,000
               on, and 128 where vectors are tied
    heads      2, and 4 from a width of 128 on
    dropout    of values 0.1; of items 0.3 below 100,000 rows, 0.1 from there on; where vectors are tied 0.6 below 30
               rows an item, 0.4 below 100, 0.2 below 1,000, then 0.1
    tied       of more than 300 items from 20,000 rows on, in the past, or with fewer than 30 rows each: an item is
               predicted by the vector that it has as context, and held-out groups say how sure to be
    layers     2, and 1 where tied items have fewer than 30 rows each
    norm       before each layer, with a feed-forward block of twice the width, where tied items have more
    batches    of 4,096 cells and a running mean of the weights, where tied items have more
    previous   in the past of values and of tied items: a target is shown the row before. Vectors of items that are not
               tied are long, and learn by heart what followed what

An item is known by its vector, so that a large catalogue wants wide ones, and rows to learn them from; a few dozen
items do with narrow ones however many rows there are. What overfits first is an item term of few rows, and next a wide
vector that has a few hundred rows to be learnt from. dev/LOG.md has the runs on held-out groups behind it.
effort="best" also tries others on held-out groups, where vectors are not tied.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from efattn.errors import Note, option
from efattn.estimators import members
from efattn.estimators.blueprint import SELDOM, Blueprint
from efattn.training import Fitting, Training, resolve_device

if TYPE_CHECKING:
    from efattn.estimators.efa import EFA
    from efattn.estimators.progress import Stages


class Sizes(NamedTuple):
    """As the options of EFA."""

    width: int
    heads: int
    layers: int
    feed_forward: int
    norm: Literal["pre", "post"] | None
    dropout: float
    tied: bool = False
    previous: bool = False


MANY_ITEMS = 300
TIED_DROPOUT = ((SELDOM, 0.6), (100, 0.4), (1000, 0.2))  # below so many rows an item
SOME_ROWS, MANY_ROWS, MOST_ROWS = 20_000, 100_000, 500_000
SHORTER = 4  # times fewer steps, where sizes are only compared
LARGEST_DROPOUT = 0.5
WIDE = 128  # from which on deeper networks are tried: long histories of many items may want them


def chosen(estimator: "EFA", kind: str, rows: int, items: int) -> Sizes:
    """Of the item or the value term; what is said explicitly stays as it is."""
    many, seldom = kind == "item" and items > MANY_ITEMS, rows < SELDOM * items
    tied = kind == "item" and (
        many and rows >= SOME_ROWS and (seldom or estimator.context == "past")
        if estimator.tied == "auto"
        else estimator.tied
    )
    width = 64 if (many and rows >= SOME_ROWS) or (kind == "value" and rows >= MOST_ROWS) else 32
    width = 128 if tied or (many and rows >= MOST_ROWS) else width
    width = width if estimator.width == "auto" else estimator.width
    if estimator.heads == "auto":
        heads = next(number for number in (4 if width >= 128 else 2, 2, 1) if width % number == 0)
    else:
        heads = estimator.heads
        width = -(-width // heads) * heads if estimator.width == "auto" else width
    dropout = 0.3 if kind == "item" and rows < MANY_ROWS else 0.1
    if tied:
        dropout = next((share for most, share in TIED_DROPOUT if rows < most * items), 0.1)
    deep = tied and not seldom
    previous = estimator.context == "past" and bool(
        tied or kind == "value" if estimator.previous == "auto" else estimator.previous
    )
    return Sizes(
        width,
        heads,
        (1 if tied and seldom else 2) if estimator.layers == "auto" else estimator.layers,
        (2 * width if deep else 0) if estimator.feed_forward == "auto" else estimator.feed_forward,
        ("pre" if deep else None) if estimator.norm == "auto" else estimator.norm,
        dropout if estimator.dropout == "auto" else estimator.dropout,
        bool(tied),
        previous,
    )


def by_rule(estimator: "EFA", blueprint: Blueprint) -> dict[str, Sizes]:
    """By kind of term."""
    assert blueprint.groups is not None
    rows = blueprint.groups.count
    return {kind: chosen(estimator, kind, rows, blueprint.items) for kind in blueprint.terms}


def plain(sizes: Mapping[str, Sizes]) -> dict[str, dict[str, Any]]:
    """As a blueprint and a file have them."""
    return {kind: one._asdict() for kind, one in sizes.items()}


def others(estimator: "EFA", sizes: Sizes) -> Iterator[Sizes]:
    """What else may serve, as far as the user leaves it open. Of a large catalogue a try takes nearly as long as a
    member of the ensemble, which surely helps."""
    if sizes.tied:
        return
    if estimator.dropout == "auto":
        yield sizes._replace(dropout=min(3 * sizes.dropout, LARGEST_DROPOUT))
        yield sizes._replace(dropout=sizes.dropout / 3)
    if estimator.width == "auto":
        yield sizes._replace(width=2 * sizes.width)
    if estimator.feed_forward == "auto":
        norm = "pre" if estimator.norm == "auto" else sizes.norm
        yield sizes._replace(feed_forward=2 * sizes.width, norm=norm)
        if estimator.layers == "auto" and sizes.width >= WIDE:
            yield sizes._replace(layers=2 * sizes.layers, feed_forward=2 * sizes.width, norm=norm)
    if estimator.layers == "auto":
        yield sizes._replace(layers=1)


def searched(
    estimator: "EFA", blueprint: Blueprint, options: Training, stages: "Stages"
) -> tuple[dict[str, Sizes], list[Note]]:
    """The best on held-out groups, of the rule's and others, each trained for a while."""
    usual = by_rule(estimator, blueprint)
    part = blueprint.parts[0]
    if part.held is None or not len(part.held):
        return usual, []
    short = replace(options, steps=max(options.planned_steps // SHORTER, 1), seconds=None)
    tried = {kind: [sizes, *others(estimator, sizes)] for kind, sizes in usual.items()}
    if all(len(several) == 1 for several in tried.values()):
        return usual, []
    best: dict[str, tuple[float, Sizes]] = {}
    for number in range(max(map(len, tried.values()))):
        now = {kind: several[min(number, len(several) - 1)] for kind, several in tried.items()}
        sized = part.with_network(plain(now))
        model = estimator._build(sized)
        fitting = Fitting(model, members.groups_of(part), part.held, short, estimator.seed)
        fitting.large = sized.in_large_batches
        fitting.tick = stages.tick
        fitting.run()
        if fitting.interrupted:
            raise KeyboardInterrupt
        for kind, sizes in now.items():
            mine = [record["best"] for record in fitting.history if record["term"] == part.term_name(kind)]
            if mine and (kind not in best or mine[-1] > best[kind][0]):
                best[kind] = (mine[-1], sizes)
    picked = {kind: best[kind][1] if kind in best else sizes for kind, sizes in usual.items()}
    return picked, [_words(kind, sizes) for kind, sizes in picked.items()]


def drawn(blueprint: Blueprint, options: Training) -> list[Note]:
    """What to say where some items stand for all others in training."""
    cpu = resolve_device(options).type == "cpu"
    number = options.candidates_for(blueprint.items, cpu=cpu) if "item" in blueprint.terms else None
    if number is None:
        return []
    return [
        Note(
            "candidates",
            f"Of {blueprint.items:,} items, {number:,} drawn for each step stand for all others while training; "
            f"{option('candidates', None, of='Training')} is for all of them, exactly. Answers are exact in any case.",
            option="candidates",
        )
    ]


def _words(kind: str, sizes: Sizes) -> Note:
    told = ", ".join(f"{name}={value!r}" for name, value in sizes._asdict().items())
    return Note("sizes", f"Sizes of the {kind} term, the best of those tried on held-out groups: {told}.")
