"""The leading table: one row per setting, everybody on the same test rows, and where EFA stands in words."""

from collections.abc import Iterator, Sequence

from efattn.experiments.page import overview
from efattn.experiments.page.blocks import TIED, Block, Bullets, Cell, Table, Text, said, table
from efattn.experiments.page.reading import NONE, Results, digits, efa, named, number, papers, spread
from efattn.experiments.presets import SETTINGS
from efattn.experiments.runner import Record
from efattn.experiments.settings import Entry, Setting
from efattn.experiments.summary import FLOOR

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
ABOUT = (
    "Test losses, mean ± standard deviation over (seeds); lower is better. FM is the paper's latent factor model, "
    "the best peer is the simple model with the lowest mean test loss. Bold is the lowest of the runs made here: all "
    "of a row are tested on the same rows, which the paper's numbers need not be."
)
PAIRED = (
    "EFA less best peer is the mean difference of losses row by row, ± its standard error over test groups; "
    "below zero, EFA is better. It is of EFA's best preset, or of the preset in brackets where that has not run. "
    "Ahead and behind mean by more than two standard errors, in which the spread over seeds is not counted."
)


def blocks(results: Results) -> Iterator[Block]:
    yield Text(ABOUT)
    yield table(HEAD, [_row(results, setting) for setting in SETTINGS])
    yield Text(PAIRED)
    yield Bullets(tuple(_standing(results)))
    yield from overview.blocks(results)


def brief(results: Results) -> Table:
    """The same in fewer columns."""
    kept = [HEAD.index(name) for name in BRIEF]
    rows = [[row[k] for k in kept] for row in (_row(results, setting) for setting in SETTINGS)]
    return table(BRIEF, rows)


def _row(results: Results, setting: Setting) -> list[str | Cell]:
    places, peer = digits(setting), results.peer(setting)
    ours = _shown(results, setting)
    found = results.together(setting, ours)
    means = [one["mean"] for one in found if one is not None]
    cells = [_cell(one, places, len(means) > 1 and one is not None and one["mean"] == min(means)) for one in found]
    if peer is not None:
        cells[2] = cells[2]._replace(text=f"{cells[2].text}, {peer.model}")
    printed = [number(None if one is None else one.paper, places=3) for one in ours[:2]]
    return [named(setting), *printed, *cells, _difference(results, setting), number(setting.aim, places)]


def _shown(results: Results, setting: Setting) -> list[Entry | None]:
    """Whose means of ours stand in a row."""
    paper = [papers(setting, "latent factors"), papers(setting, "EFA")]
    return [*paper, results.peer(setting), efa(setting, "defaults"), efa(setting, "best")]


def _cell(found: Record | None, places: int, best: bool = False) -> Cell:
    return Cell(NONE) if found is None else Cell(f"{spread(found, places)}{TIED}({found['seeds']})", best)


def compared(
    results: Results, setting: Setting, presets: Sequence[str] = ("best", "defaults", "paper")
) -> Entry | None:
    """EFA under the first of these presets that has been compared with a peer."""
    mine = (papers(setting, "EFA") if preset == "paper" else efa(setting, preset) for preset in presets)
    return next((one for one in mine if (_against(results, setting, one) or {}).get("groups")), None)


def _against(results: Results, setting: Setting, one: Entry | None) -> Record | None:
    return (results.of(setting, one) or {}).get("against")


def _difference(results: Results, setting: Setting) -> str:
    one = compared(results, setting)
    gap = _against(results, setting, one)
    if one is None or gap is None:
        return NONE
    places = digits(setting)
    which = "" if one.preset == "best" else f" ({one.preset})"
    return f"{number(gap['difference'], places, sign=True)}{TIED}±{TIED}{number(gap['error'], places)}{which}"


def _standing(results: Results) -> Iterator[str]:
    """Where EFA is ahead, level and behind; which aims are reached; how far the floor is; what is missing."""
    for preset, name in (("best", "EFA, best preset"), ("defaults", "EFA, defaults"), ("paper", "EFA, paper's preset")):
        told = _places(results, preset)
        if told:
            yield f"{name}: {told}."
    yield from _aims(results)
    yield from _floors(results)
    uneven = [named(s) for s in SETTINGS if not results.on_equal_rows(s, _shown(results, s))]
    if uneven:
        yield (
            f"Splits move with the seed, and not all have as many, in {_listed(uneven)}: the table's means are over "
            "the seeds that all of a row have run, differences to the best peer over all."
        )
    missing = [named(s) for s in SETTINGS if results.of(s, efa(s, "best")) is None]
    if missing:
        yield f"EFA's best preset is still to be run in {_listed(missing)}."
    missing = [named(s) for s in SETTINGS if results.peer(s) is None]
    if missing:
        yield f"Peers are still to be run in {_listed(missing)}."


def _listed(names: Sequence[str]) -> str:
    return "all settings" if len(names) == len(SETTINGS) else said(names) if names else "no setting"


def _places(results: Results, preset: str) -> str:
    groups: dict[str, list[str]] = {"behind the best peer": [], "level with it": [], "ahead of it": []}
    for setting in SETTINGS:
        gap = _against(results, setting, compared(results, setting, [preset]))
        if gap is not None:
            sure = abs(gap["difference"]) > 2 * gap["error"]
            kind = "level with it" if not sure else "ahead of it" if gap["difference"] < 0 else "behind the best peer"
            groups[kind].append(named(setting))
    if not any(groups.values()):
        return ""
    return "; ".join(f"{kind} in {_listed(names)}" for kind, names in groups.items())


def _aims(results: Results) -> Iterator[str]:
    found = [(named(s), s.aim, results.of(s, efa(s, "best"))) for s in SETTINGS]
    reached = [title for title, aim, one in found if aim is not None and one is not None and one["mean"] <= aim]
    missed = [title for title, aim, one in found if aim is not None and one is not None and one["mean"] > aim]
    if reached or missed:
        told = f"The aim is reached in {said(reached)}" if reached else "No aim is reached"
        yield told + (f", and missed in {said(missed)}." if missed else ".")


def _floors(results: Results) -> Iterator[str]:
    """What drew the data cannot be beaten but by luck: a limit, not a peer."""
    told = []
    for setting in SETTINGS:
        floor = results.of(setting, next((e for e in setting.entries if e.model == FLOOR), None))
        one = next((found for p in ("best", "defaults") if (found := results.of(setting, efa(setting, p)))), None)
        if floor is not None:
            gap = "" if one is None else f", EFA ({one['preset']}) is {number(one['mean'] - floor['mean'], 4)} above it"
            told.append(f"{number(floor['mean'], 4)} in {named(setting)}{gap}")
    if told:
        yield f"The Bayes floor, the loss of the law that drew the data, is not a peer: {'; '.join(told)}."
