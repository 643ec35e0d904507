"""Where EFA stands: losses side by side, paired differences, and who is ahead of whom in words."""

from collections.abc import Iterator, Sequence

from efattn.experiments.page.blocks import TIED, Cell, listing
from efattn.experiments.page.numbers import NONE, digits, number, spread
from efattn.experiments.page.results import Results, named
from efattn.experiments.records import Record
from efattn.experiments.settings import Entry, Setting

Gap = Record  # of summary.paired


def losses(results: Results, setting: Setting, shown: Sequence[Entry | None]) -> list[Cell]:
    """Means on equal rows, the lowest bold; the best peer with its name."""
    summaries, peer = results.on_shared_seeds(setting, shown), results.best_peer(setting)
    means = [one["mean"] for one in summaries if one is not None]
    cells = []
    for entry, one in zip(shown, summaries, strict=True):
        text = NONE if one is None else f"{spread(one, digits(setting))}{TIED}({one['seeds']})"
        if entry is not None and entry is peer:
            text = f"{text}, {peer.model}"
        cells.append(Cell(text, bold=one is not None and len(means) > 1 and one["mean"] == min(means)))
    return cells


def against(results: Results, setting: Setting, one: Entry | None) -> Gap | None:
    """To the best peer."""
    return (results.summary_of(setting, one) or {}).get("against")


def difference(setting: Setting, gap: Gap | None) -> str:
    """mean ± standard error"""
    if gap is None or gap["difference"] is None:
        return NONE
    places = digits(setting)
    return f"{number(gap['difference'], places, sign=True)}{TIED}±{TIED}{number(gap['error'], places)}"


def where_efa_stands(gaps: Sequence[tuple[Setting, Gap | None]], whom: str, them: str = "it") -> str:
    """In which settings EFA is behind, level and ahead; nothing where nothing is compared."""
    groups: dict[str, list[str]] = {f"behind {whom}": [], f"level with {them}": [], f"ahead of {them}": []}
    for setting, gap in gaps:
        if gap is not None and gap["difference"] is not None:
            sure = abs(gap["difference"]) > 2 * gap["error"]
            kind = 1 if not sure else 2 if gap["difference"] < 0 else 0
            groups[list(groups)[kind]].append(named(setting))
    if not any(groups.values()):
        return ""
    return "; ".join(f"{kind} in {listed_settings(names, len(gaps))}" for kind, names in groups.items())


def uneven_seeds(results: Results, rows: Sequence[tuple[Setting, Sequence[Entry | None]]]) -> Iterator[str]:
    """Whose means are over fewer seeds than have run."""
    names = [named(setting) for setting, shown in rows if not results.on_equal_rows(setting, shown)]
    if names:
        yield (
            f"Splits move with the seed, and not all have as many, in {listed_settings(names, len(rows))}: the table's "
            "means are over the seeds that all of a row have run, differences over all."
        )


def listed_settings(names: Sequence[str], of: int) -> str:
    return "all settings" if len(names) == of else listing(names) if names else "no setting"
