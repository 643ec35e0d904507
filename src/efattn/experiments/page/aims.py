"""Aims: what the defaults were to reach, what they reach, and whether that is met; computed from records."""

from collections.abc import Iterator
from typing import NamedTuple

from efattn.experiments.aims import AIMS, Aim
from efattn.experiments.page import protocols, strangers
from efattn.experiments.page.blocks import TIED, Block, Cell, Heading, Text, table
from efattn.experiments.page.comparisons import difference
from efattn.experiments.page.numbers import NONE, digits, number
from efattn.experiments.page.results import Results, entry, named
from efattn.experiments.presets import SETTINGS
from efattn.experiments.records import Record
from efattn.experiments.settings import PROTOCOLS, Protocol, Setting

HEAD = ("task", "protocol", "aim", "EFA, defaults", "seeds", "met")
ABOUT = (
    "What EFA's defaults were to reach, set before these runs, and what they reach: means over seeds. Ahead is by more "
    "than two standard errors over groups."
)
SMALL, SECONDS = 5000, 60  # rows of a table, and what a default fit of it may take


class Found(NamedTuple):
    """met: None where it has not run."""

    aim: str
    reached: str
    met: bool | None


def blocks(results: Results) -> Iterator[Block]:
    yield Heading("Aims")
    yield Text(ABOUT)
    rows = [_row(results, aim) for aim in AIMS]
    rows += [_everywhere(results, protocol) for protocol in PROTOCOLS]
    rows += [["strangers", NONE, one.aim, one.reached, NONE, _word(one.met)] for one in of_strangers(results)]
    yield table(HEAD, rows, words=3)
    met = sum(row[-1] == Cell("met", bold=True) for row in rows)
    missed = sum(row[-1] == Cell("missed") for row in rows)
    rest = len(rows) - met - missed
    yield Text(f"{met} met, {missed} missed" + (f", {rest} not run yet." if rest else "."))


def _row(results: Results, aim: Aim) -> list[str | Cell]:
    setting = next(s for s in SETTINGS if s.title == aim.setting)
    line = results.summary_of(setting, entry(setting, "defaults", lambda model: model == aim.model), aim.protocol)
    found = of_line(setting, aim, line)
    seeds = NONE if line is None else str(line["seeds"])
    told = aim.model.removeprefix("EFA").removeprefix(", ")
    task = f"{named(setting)}, {told}" if told else named(setting)
    return [task, aim.protocol, found.aim, found.reached, seeds, _word(found.met)]


def of_line(setting: Setting, aim: Aim, line: Record | None) -> Found:
    """What a line of the summary says about an aim."""
    places = digits(setting)
    if aim.most is not None:
        words = f"≤{TIED}{number(aim.most, places)}" + (", as before" if aim.before else "")
        if line is None:
            return Found(words, NONE, None)
        return Found(words, number(line["mean"], places), round(line["mean"], places) <= aim.most)
    if aim.cover is not None:
        low, high = aim.cover
        words, cover = f"cover of 90 % from {low:.2f} to {high:.2f}", (line or {}).get("coverage", {}).get("0.9")
        if cover is None:
            return Found(words, NONE, None)
        return Found(words, number(cover["all"], 3), low <= round(cover["all"], 3) <= high)
    against = (line or {}).get("against")
    words = "ahead of the best peer"
    if against is None or against["difference"] is None:
        return Found(words, NONE, None)
    return Found(words, f"{difference(setting, against)} ({against['model']})", against["standing"] == "ahead")


def _everywhere(results: Results, protocol: Protocol) -> list[str | Cell]:
    standings = protocols.standings(results, protocol)
    behind, words = sum(kind == "behind" for _, kind in standings), "behind the best peer nowhere"
    reached = f"behind in {behind} of {len(standings)}" if standings else NONE
    return ["all settings", protocol, words, reached, NONE, _word(None if not standings else not behind)]


def of_strangers(results: Results) -> Iterator[Found]:
    rows = strangers.rows_of(results)
    behind = [row.errors for row in rows if row.difference < 0]
    two, three = (sum(x < -k for x in behind) for k in (2, 3))
    ahead, total = sum(row.standing == "ahead" for row in rows), sum(row.difference for row in rows)
    took = [
        run["seconds"]
        for _, one in results.strangers.values()
        for run in one.runs
        if run["model"] == one.reference and one.about["rows"] < SMALL
    ]
    said: tuple[tuple[str, str, bool], ...] = (
        ("behind by more than two standard errors on at most one", f"{two} of {len(rows)}", two <= 1),
        ("behind by more than three on none", f"{three} of {len(rows)}", three == 0),
        ("ahead on at least half", f"{ahead} of {len(rows)}", 2 * ahead >= len(rows)),
        ("ahead on the sum of all", f"{number(total, 2, sign=True)} nats", total > 0),
        (
            f"a default fit of fewer than {SMALL:,} rows in {SECONDS} s",
            f"the longest {max(took, default=0):.0f} s, on one thread",
            max(took, default=0) <= SECONDS,
        ),
    )
    for aim, reached, met in said:
        yield Found(aim, reached, met) if rows else Found(aim, NONE, None)


def _word(met: bool | None) -> Cell:
    return Cell("not run yet" if met is None else "met" if met else "missed", bold=bool(met))
