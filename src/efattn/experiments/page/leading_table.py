"""The leading table: one row per setting of the paper, all on the same test rows, and where EFA stands in words."""

from collections.abc import Iterator, Sequence

from efattn.experiments.page import comparisons, overview
from efattn.experiments.page.blocks import Block, Bullets, Cell, Table, Text, listing, table
from efattn.experiments.page.comparisons import against, listed_settings
from efattn.experiments.page.numbers import digits, number
from efattn.experiments.page.results import Results, efa, named, papers
from efattn.experiments.presets import OF_THE_PAPER
from efattn.experiments.settings import FLOOR, Entry, Setting

HEAD = (
    "setting",
    "FM, paper",
    "EFA, paper",
    "FM, ours",
    "EFA, paper's preset, ours",
    "best peer",
    "EFA, defaults",
    "EFA, best preset",
    "EFA less best peer",
    "aim",
)
BRIEF = ("setting", "FM, paper", "EFA, paper", "FM, ours", "best peer", "EFA, defaults", "EFA, best preset")
ONE_OF_EACH_KIND = (  # of data: an order that decides, sequences, ratings, baskets, places
    ("synthetic", "past"),
    ("sequences", "others"),
    ("ratings", "v1, others"),
    ("instacart", "others"),
    ("cities", "no lag"),
)
ABOUT = (
    "Test losses, mean ± standard deviation over (seeds); lower is better. FM is the paper's latent factor model, "
    "the best peer is the simple model with the lowest loss on validation groups. All are fitted to training groups "
    "alone. Bold is the lowest of the runs made here: all of a row are tested on the same rows, which the paper's "
    "numbers need not be."
)
PAIRED = (
    "EFA less best peer is the mean difference of losses row by row, ± its standard error over test groups (weeks, "
    "where these are days); below zero, EFA is better. It is of EFA's best preset, or of the preset in brackets where "
    "that has not run. Ahead and behind mean by more than two standard errors, in which the spread over seeds is not "
    "counted."
)


def blocks(results: Results) -> Iterator[Block]:
    yield Text(ABOUT)
    yield table(HEAD, [_row(results, setting) for setting in OF_THE_PAPER])
    yield Text(PAIRED)
    yield Bullets(tuple(_standing(results)))
    yield from overview.blocks(results)


def brief(results: Results) -> Table:
    """The same in fewer columns, a row for each kind of data: for the README."""
    kept = [HEAD.index(name) for name in BRIEF]
    shown = [setting for setting in OF_THE_PAPER if (setting.experiment, setting.name) in ONE_OF_EACH_KIND]
    rows = [[row[k] for k in kept] for row in (_row(results, setting) for setting in shown)]
    return table(BRIEF, rows)


def _row(results: Results, setting: Setting) -> list[str | Cell]:
    ours, one = _shown(results, setting), compared(results, setting)
    printed = [number(None if entry is None else entry.paper, places=3) for entry in ours[:2]]
    which = "" if one is None or one.preset == "best" else f" ({one.preset})"
    gap = comparisons.difference(setting, against(results, setting, one)) + which
    return [
        named(setting),
        *printed,
        *comparisons.losses(results, setting, ours),
        gap,
        number(setting.aim, digits(setting)),
    ]


def _shown(results: Results, setting: Setting) -> list[Entry | None]:
    """Whose means of ours stand in a row."""
    paper = [papers(setting, "latent factors"), papers(setting, "EFA")]
    return [*paper, results.best_peer(setting), efa(setting, "defaults"), efa(setting, "best")]


def compared(
    results: Results, setting: Setting, presets: Sequence[str] = ("best", "defaults", "paper")
) -> Entry | None:
    """EFA under the first of these presets that has been compared with a peer."""
    mine = (papers(setting, "EFA") if preset == "paper" else efa(setting, preset) for preset in presets)
    return next((one for one in mine if (against(results, setting, one) or {}).get("groups")), None)


def _standing(results: Results) -> Iterator[str]:
    """Where EFA is ahead, level and behind; which aims are reached; how far the floor is; what is missing."""
    for preset, name in (("best", "EFA, best preset"), ("defaults", "EFA, defaults"), ("paper", "EFA, paper's preset")):
        gaps = [(s, against(results, s, compared(results, s, [preset]))) for s in OF_THE_PAPER]
        where = comparisons.where_efa_stands(gaps, "the best peer")
        if where:
            yield f"{name}: {where}."
    yield from _aims(results)
    yield from _floors(results)
    yield from comparisons.uneven_seeds(results, [(s, _shown(results, s)) for s in OF_THE_PAPER])
    missing = [named(s) for s in OF_THE_PAPER if results.summary_of(s, efa(s, "best")) is None]
    if missing:
        yield f"EFA's best preset is still to be run in {listed_settings(missing, len(OF_THE_PAPER))}."
    missing = [named(s) for s in OF_THE_PAPER if results.best_peer(s) is None]
    if missing:
        yield f"Peers are still to be run in {listed_settings(missing, len(OF_THE_PAPER))}."


def _aims(results: Results) -> Iterator[str]:
    aims = [(named(s), s.aim, results.summary_of(s, efa(s, "best"))) for s in OF_THE_PAPER]
    reached = [title for title, aim, one in aims if aim is not None and one is not None and one["mean"] <= aim]
    missed = [title for title, aim, one in aims if aim is not None and one is not None and one["mean"] > aim]
    if reached or missed:
        sentence = f"The aim is reached in {listing(reached)}" if reached else "No aim is reached"
        yield sentence + (f", and missed in {listing(missed)}." if missed else ".")


def _floors(results: Results) -> Iterator[str]:
    """What drew the data cannot be beaten but by luck: a limit, not a peer."""
    floors = []
    for setting in OF_THE_PAPER:
        floor = results.summary_of(setting, next((e for e in setting.entries if e.model == FLOOR), None))
        one = next((line for p in ("best", "defaults") if (line := results.summary_of(setting, efa(setting, p)))), None)
        if floor is not None:
            gap = "" if one is None else f", EFA ({one['preset']}) is {number(one['mean'] - floor['mean'], 4)} above it"
            floors.append(f"{number(floor['mean'], 4)} in {named(setting)}{gap}")
    if floors:
        yield f"The Bayes floor, the loss of the law that drew the data, is not a peer: {'; '.join(floors)}."
