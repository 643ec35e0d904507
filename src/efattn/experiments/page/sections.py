"""A section per experiment: every model of every setting, why numbers differ from the paper's, and pictures."""

from collections.abc import Callable, Iterator

from efattn.experiments.page import baskets, beyond, cities, ratings
from efattn.experiments.page.blocks import Block, Bullets, Cell, Heading, Text, table
from efattn.experiments.page.numbers import NONE, digits, number, seconds, spread
from efattn.experiments.page.results import Results, named, settings
from efattn.experiments.presets import EXPERIMENTS
from efattn.experiments.records import Record
from efattn.experiments.settings import FLOOR, Entry, Setting

HEAD = ("model", "preset", "paper", "ours", "seeds", "log-likelihood", "seconds")
FAR = 0.02
TITLES = {
    "synthetic": "Synthetic ratings",
    "sequences": "MovieLens sequences",
    "ratings": "MovieLens ratings",
    "instacart": "Instacart baskets",
    "cities": "US cities",
    "beyond": "Beyond the paper",
}
FIRST: dict[str, Callable[[Results], Iterator[Block]]] = {"beyond": beyond.blocks}
MORE: dict[str, Callable[[Results], Iterator[Block]]] = {
    "ratings": ratings.blocks,
    "instacart": baskets.blocks,
    "cities": cities.blocks,
}


def blocks(results: Results) -> Iterator[Block]:
    for experiment in EXPERIMENTS:
        yield Heading(TITLES.get(experiment, experiment))
        if experiment in FIRST:
            yield from FIRST[experiment](results)
        chosen = settings(experiment)
        notes = tuple(dict.fromkeys(note for setting in chosen for note in setting.notes))
        if notes:
            yield Bullets(notes)
        for setting in chosen:
            yield Heading(f"{named(setting)}: {setting.metric.name}", 3)
            yield from _table(results, setting)
        if experiment in MORE:
            yield from MORE[experiment](results)


def _table(results: Results, setting: Setting) -> Iterator[Block]:
    """The lowest loss first; what the paper has a number for is there even if it has not run."""
    summaries = {entry: results.summary_of(setting, entry) for entry in setting.entries}
    shown = [entry for entry, one in summaries.items() if one is not None or entry.paper is not None]
    shown.sort(key=lambda entry: _place(summaries[entry]))
    competing = [one["mean"] for entry, one in summaries.items() if one is not None and entry.model != FLOOR]
    lowest = min(competing, default=None) if results.on_equal_rows(setting, setting.entries) else None
    if shown:
        rows = [_row(setting, entry, summaries[entry], lowest) for entry in shown]
        printed = any(entry.paper is not None for entry in setting.entries)
        kept = [k for k, name in enumerate(HEAD) if name != "paper" or printed]
        yield table([HEAD[k] for k in kept], [[row[k] for k in kept] for row in rows], words=2)
    missing = [f"{entry.model} ({entry.preset})" for entry, one in summaries.items() if one is None]
    if missing:
        yield Text(f"Not run yet: {'; '.join(missing)}.")
    yield from _off(summaries)


def _off(summaries: dict[Entry, Record | None]) -> Iterator[Block]:
    """Where ours is not the paper's number."""
    gaps = [(e.model, one["mean"] / e.paper - 1) for e, one in summaries.items() if one is not None and e.paper]
    far = [f"{model} ({number(100 * gap, 1, sign=True)} %)" for model, gap in gaps if abs(gap) > FAR]
    if far:
        yield Text(
            f"More than {100 * FAR:.0f} % from the paper's number: {'; '.join(far)}. The notes above say what differs."
        )
    elif gaps:
        yield Text(f"Within {100 * FAR:.0f} % of the paper's numbers: {'; '.join(model for model, _ in gaps)}.")


def _place(line: Record | None) -> float:
    return float("inf") if line is None else float(line["mean"])


def _row(setting: Setting, entry: Entry, line: Record | None, lowest: float | None) -> list[str | Cell]:
    places = digits(setting)
    preset = "floor, not a peer" if entry.model == FLOOR else entry.preset
    printed = number(entry.paper, 3)
    if line is None:
        return [entry.model, preset, printed, "not run yet", NONE, NONE, NONE]
    mean = Cell(spread(line, places), bold=line["mean"] == lowest and entry.model != FLOOR)
    likely = number(line["log_likelihood"], places)
    return [entry.model, preset, printed, mean, str(line["seeds"]), likely, seconds(line["seconds"])]
