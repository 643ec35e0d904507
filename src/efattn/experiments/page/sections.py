"""A section per experiment: every model of every setting, why numbers differ from the paper's, and pictures."""

from collections.abc import Callable, Iterator

from efattn.experiments.page import baskets, cities, lists, ratings
from efattn.experiments.page.blocks import Block, Bullets, Cell, Heading, Text, table
from efattn.experiments.page.numbers import NONE, digits, number, seconds, spread
from efattn.experiments.page.results import Results, named, settings
from efattn.experiments.presets import EXPERIMENTS
from efattn.experiments.records import Record
from efattn.experiments.settings import FLOOR, REFITTED, Entry, Setting

HEAD = ("model", "preset", "paper", "train only", "refitted", "on validation", "seeds", "log-likelihood", "seconds")
ALONE = "network alone"
FAR = 0.02
TITLES = {
    "synthetic": "Synthetic ratings",
    "sequences": "MovieLens sequences",
    "ratings": "MovieLens ratings",
    "instacart": "Instacart baskets",
    "cities": "US cities",
    "beyond": "Beyond the paper",
    "recommending": "The next item, over the whole catalogue",
}
FIRST = {
    "beyond": "Data that the paper does not use, with nothing tuned: latent factors and EFA have the library's "
    "defaults, and there is no other preset."
}
MORE: dict[str, Callable[[Results], Iterator[Block]]] = {
    "ratings": ratings.blocks,
    "instacart": baskets.blocks,
    "cities": cities.blocks,
    "recommending": lists.blocks,
}


def blocks(results: Results) -> Iterator[Block]:
    for experiment in EXPERIMENTS:
        yield Heading(TITLES.get(experiment, experiment))
        if experiment in FIRST:
            yield Text(FIRST[experiment])
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
    again = {entry: results.summary_of(setting, entry, REFITTED) for entry in setting.entries}
    shown = [e for e in setting.entries if summaries[e] is not None or again[e] is not None or e.paper is not None]
    shown.sort(key=lambda entry: _place(summaries[entry] or again[entry]))
    equal = results.on_equal_rows(setting, setting.entries)
    lowest = [_lowest(lines) if equal else None for lines in (summaries, again)]
    if shown:
        chosen = results.chosen_peers(setting)
        rows = [row for e in shown for row in _rows(setting, e, (summaries[e], again[e]), lowest, e in chosen)]
        empty = {name for k, name in enumerate(HEAD) if all(row[k] in (NONE, Cell(NONE)) for row in rows)}
        kept = [k for k, name in enumerate(HEAD) if name not in empty & {"paper", "refitted", "on validation"}]
        yield table([HEAD[k] for k in kept], [[row[k] for k in kept] for row in rows], words=2)
    missing = [f"{entry.model} ({entry.preset})" for entry, one in summaries.items() if one is None]
    missing += [
        f"{entry.model} ({entry.preset}, {REFITTED})"
        for entry, one in again.items()
        if one is None and REFITTED in entry.protocols
    ]
    if missing:
        yield Text(f"Not run yet: {'; '.join(missing)}.")
    yield from _off(summaries)


def _lowest(lines: dict[Entry, Record | None]) -> float | None:
    return min((one["mean"] for entry, one in lines.items() if one is not None and entry.model != FLOOR), default=None)


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


def _rows(
    setting: Setting,
    entry: Entry,
    lines: tuple[Record | None, Record | None],
    lowest: list[float | None],
    chosen: bool,
) -> Iterator[list[str | Cell]]:
    """Of a model train only and refitted; then of its networks alone. chosen: by validation rows, of all peers."""
    places, (line, again) = digits(setting), lines
    preset = "floor, not a peer" if entry.model == FLOOR else f"{entry.preset}, chosen" if chosen else entry.preset
    told = line or again
    losses = [
        Cell(NONE if one is None else spread(one, places), bold=_is(one, low) and entry.model != FLOOR)
        for one, low in zip(lines, lowest, strict=True)
    ]
    if told is None:
        losses[0] = Cell("not run yet")
    likely, took, seeds = NONE, NONE, NONE
    if told is not None:
        likely, took, seeds = number(told["log_likelihood"], places), seconds(told["seconds"]), str(told["seeds"])
    held = number((line or {}).get("held_out"), places)
    yield [entry.model, preset, number(entry.paper, 3), *losses, held, seeds, likely, took]
    alone = [number((one or {}).get("alone"), places) for one in lines]
    if any(x != NONE for x in alone):
        yield [f"{entry.model}, {ALONE}", preset, NONE, *alone, NONE, seeds, NONE, NONE]


def _is(line: Record | None, lowest: float | None) -> bool:
    return line is not None and line["mean"] == lowest
