"""EFA's defaults beside the best peer, setting by setting, under both protocols; cover of their intervals."""

from collections import Counter
from collections.abc import Iterator

from efattn.experiments.page.blocks import Block, Bullets, Cell, Heading, Text, table
from efattn.experiments.page.comparisons import difference
from efattn.experiments.page.numbers import NONE, digits, number, spread
from efattn.experiments.page.results import Results, named
from efattn.experiments.presets import SETTINGS
from efattn.experiments.records import Record
from efattn.experiments.settings import PROTOCOLS, Entry, Protocol, Setting

HEAD = (
    "setting", "protocol", "best peer", "its loss", "EFA, defaults", "network alone", "shares of the mixture",
    "EFA less best peer", "EFA is",
)  # fmt: skip
ABOUT = (
    "EFA with nothing but the roles named, beside simple models and latent factors that are told the same. Train only: "
    "fitted to training groups, everything chosen on validation groups. Refitted: given both as one table, EFA does "
    "what its defaults do (it holds some groups out to choose, then fits to all), and peers choose their penalties "
    "inside. The best peer is the one with the lowest loss on validation groups, fitted to training groups; where a "
    "peer has no such loss on record, the one with the lowest on test groups, marked by a star. Network alone is EFA's "
    "networks without the simple models that predict beside them. Differences are of losses row by row, ± the standard "
    "error over test groups (weeks, where these are days); ahead and behind are by more than two of them."
)
COVER = (
    "The share of test rows inside EFA's intervals of 50, 80 and 90 %, and inside the best peer's of 90 %; then the "
    "covers of 90 % of items: a tenth of the items is below the first number and a tenth above the second. By chance "
    "these would lie where the last column says, if all items had the same. Intervals of whole numbers cover more than "
    "they promise, and cannot do otherwise."
)
COVER_HEAD = (
    "setting", "protocol", "50 %", "80 %", "90 %", "best peer, 90 %", "items, 90 %", "items by chance",
)  # fmt: skip


def blocks(results: Results) -> Iterator[Block]:
    yield Heading("Defaults beside the best peer")
    yield Text(ABOUT)
    yield table(HEAD, [_row(results, *one) for one in every()], words=3)
    words = tuple(words for protocol in PROTOCOLS if (words := standing(results, protocol)))
    if words:
        yield Bullets(words)
    rows = [row for one in every() if (row := _cover(results, *one)) is not None]
    if rows:
        yield Heading("Cover of intervals", 3)
        yield Text(COVER)
        yield table(COVER_HEAD, rows, words=2)


def every() -> Iterator[tuple[Setting, Entry, Protocol]]:
    """EFA's defaults in each setting, under each protocol."""
    for setting in SETTINGS:
        for entry in setting.entries:
            if entry.preset == "defaults" and entry.model.startswith("EFA"):
                for protocol in entry.protocols:
                    yield setting, entry, protocol


def titled(setting: Setting, entry: Entry) -> str:
    told = entry.model.removeprefix("EFA").removeprefix(", ")
    return f"{named(setting)}, {told}" if told else named(setting)


def _row(results: Results, setting: Setting, entry: Entry, protocol: Protocol) -> list[str | Cell]:
    peer, places = results.chosen_peer(setting, protocol, entry.sees), digits(setting)
    mine, theirs = results.on_shared_seeds(setting, [entry, None if peer is None else peer.entry], protocol)
    gap = (results.summary_of(setting, entry, protocol) or {}).get("against")
    name = "not run yet" if peer is None else peer.entry.model + ("*" if peer.by == "test" else "")
    shown = "not run yet" if mine is None else spread(mine, places)
    means = [one["mean"] for one in (mine, theirs) if one is not None]
    low = min(means, default=None) if len(means) == 2 else None
    line = mine or {}
    return [
        titled(setting, entry), protocol, name,
        Cell(spread(theirs, places), bold=theirs is not None and theirs["mean"] == low),
        Cell(shown, bold=mine is not None and mine["mean"] == low),
        number(line.get("alone"), places), shares(line), difference(setting, gap), (gap or {}).get("standing") or NONE,
    ]  # fmt: skip


def shares(line: Record) -> str:
    """The largest first; less than half a per cent is not named."""
    mixed = sorted(line.get("shares", {}).items(), key=lambda one: -one[1])
    return ", ".join(f"{name} {100 * share:.0f} %" for name, share in mixed if share >= 0.005) or NONE


def standing(results: Results, protocol: Protocol) -> str:
    """In how many rows EFA is ahead, level and behind, and where behind."""
    found = standings(results, protocol)
    if not found:
        return ""
    counts = Counter(kind for _, kind in found)
    words = f"ahead of the best peer in {counts['ahead']}, level in {counts['level']}, behind in {counts['behind']}"
    behind = [title for title, kind in found if kind == "behind"]
    return f"{protocol.capitalize()}, of {len(found)} rows: {words}" + (f" ({'; '.join(behind)})." if behind else ".")


def standings(results: Results, protocol: Protocol) -> list[tuple[str, str]]:
    """Of each row that has a peer: its title, and whether EFA is ahead, level or behind."""
    found = []
    for setting, entry, mine in every():
        gap = (results.summary_of(setting, entry, mine) or {}).get("against")
        if mine == protocol and gap is not None and gap["standing"] is not None:
            found.append((titled(setting, entry), gap["standing"]))
    return found


def _cover(results: Results, setting: Setting, entry: Entry, protocol: Protocol) -> list[str | Cell] | None:
    line = results.summary_of(setting, entry, protocol) or {}
    cover = line.get("coverage")
    if cover is None:
        return None
    peer = results.chosen_peer(setting, protocol, entry.sees)
    theirs = None if peer is None else results.summary_of(setting, peer.entry, protocol)
    other = (theirs or {}).get("coverage", {}).get("0.9", {}).get("all")
    ends = [
        NONE if name not in cover["0.9"] else " to ".join(number(x, 3) for x in cover["0.9"][name])
        for name in ("items", "by_chance")
    ]
    levels = [number(cover[level]["all"], 3) for level in ("0.5", "0.8", "0.9")]
    return [titled(setting, entry), protocol, *levels, number(other, 3), *ends]
