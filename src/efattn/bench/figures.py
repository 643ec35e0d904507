"""From what a bench keeps to its figures: each a name, a number, and whether less or more of it is better.

    figures("conditionals", records)   ->   others, length 50: times one ordinary pass    4.1    less is better

A bench that has none here is kept, and never compared.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Literal, NamedTuple

Record = Mapping[str, Any]


class Figure(NamedTuple):
    """ratio: measured within one run, so that figures of different machines can be compared."""

    name: str
    value: float
    better: Literal["less", "more"]
    ratio: bool = True


def figures(bench: str, records: Sequence[Record]) -> list[Figure]:
    return list(OF[bench](records)) if records and bench in OF else []


def _conditionals(records: Sequence[Record]) -> Iterator[Figure]:
    for one in records:
        at = f"{one['context']}, length {one['length']}"
        yield Figure(f"{at}: times one ordinary pass", one["fast_over_ordinary"], "less")
        yield Figure(f"{at}: times as fast as the literal form", one["literal_over_fast"], "more")


def _catalogue(records: Sequence[Record]) -> Iterator[Figure]:
    for one in records:
        at = f"{one['items']:,} items"
        yield Figure(f"{at}: time, of that of whole arrays", one["blocks_over_whole"], "less")
        yield Figure(f"{at}: times less peak memory", one["whole_over_blocks_memory"], "more")
        yield Figure(f"{at}: difference of the loss", one["difference"]["loss"], "less")
        yield Figure(f"{at}: difference of gradients", one["difference"]["gradients"], "less")
        if "former" in one.get("seconds", {}):
            faster = one["seconds"]["former"] / one["seconds"]["blocks"]
            yield Figure(f"{at}: times as fast as before", faster, "more")


def _busy(records: Sequence[Record]) -> Iterator[Figure]:
    for one in records:
        yield Figure(f"{one['way']}: times its fair share", one["times_fair_share"], "less")
        yield Figure(f"{one['way']}: seconds of an epoch alone", one["alone"], "less", ratio=False)


def _tables(records: Sequence[Record]) -> Iterator[Figure]:
    for one in records:
        at = f"{one['rows']:,} rows, {one['case']}"
        yield Figure(f"{at}: seconds to read", one["read_seconds"], "less", ratio=False)
        yield Figure(f"{at}: seconds to batch", one["batch_seconds"], "less", ratio=False)
        yield Figure(f"{at}: peak GB", one["peak_bytes"] / 1e9, "less", ratio=False)


def _content(records: Sequence[Record]) -> Iterator[Figure]:
    for one in records:
        at = f"{one['shape']}, {one['layers']} layers, length {one['length']}"
        yield Figure(f"{at}: times as fast as mixing content", one["mixing_over_isolated"], "more")


def _processes(records: Sequence[Record]) -> Iterator[Figure]:
    for one in records:
        yield Figure("two processes: times as fast as one", one["ratio"], "more")
        if "work_ratio" in one:
            yield Figure("two processes: work of both, of that of one", one["work_ratio"], "less")
        yield Figure("two processes: difference of the score", abs(one["score_1"] - one["score_2"]), "less")


def _race(records: Sequence[Record]) -> Iterator[Figure]:
    yield Figure("mean seconds", sum(one["seconds"] for one in records) / len(records), "less", ratio=False)


def _serving(records: Sequence[Record]) -> Iterator[Figure]:
    for one in records:
        at = f"{one['model']} {one['verb']}, {one['clients']} clients"
        yield Figure(f"{at}: requests a second", one["per_second"], "more", ratio=False)
        yield Figure(f"{at}: p99 in ms", one["p99_ms"], "less", ratio=False)


def _recommend(records: Sequence[Record]) -> Iterator[Figure]:
    for one in records:
        at = f"{one['kind']}, {one['rows']} rows, {one['items']:,} items"
        yield Figure(f"{at}: p50 in ms", one["p50_ms"], "less", ratio=False)
        yield Figure(f"{at}: ms of work", one["work_ms"], "less", ratio=False)


def _baskets(records: Sequence[Record]) -> Iterator[Figure]:
    for one in records:
        if one["what"] == "epoch":
            name = f"{one['tokens']:,} tokens: times as fast as masked copies"
            yield Figure(name, one["times_as_fast"], "more")
        else:
            yield Figure(f"{one['case']}: share of the peak of matrix products", one["share"], "more")


def _gpu(records: Sequence[Record]) -> Iterator[Figure]:
    for one in records:
        match one["what"]:
            case "fit":
                at = f"fit, {one['case']}, {_about(one['rows'])} rows"
                yield Figure(f"{at}: times as fast as two cores", one["times_as_fast"], "more")
                yield Figure(f"{at}: ms a step", one["ms_per_step"], "less", ratio=False)
            case "gaps":
                yield Figure("gaps: times the cost of none", one["with_over_without"], "less")
            case "waits":
                yield Figure(f"{one['case']}: waits in an epoch", one["waits"], "less")
            case "score" | "predict" | "recommend" as verb:
                yield Figure(f"{verb}: times as fast as two cores", one["times_as_fast"], "more")
            case "ensemble":
                yield Figure(f"{one['members']} members: times the time of one", one["ratio"], "less")
            case "agreement":
                for term, apart in one["relative"].items():
                    yield Figure(f"{term}: difference from the CPU", apart, "less")


def _stream(records: Sequence[Record]) -> Iterator[Figure]:
    for first, one in pairwise(records):
        at = f"{one['rows'] / 1e6:g} million rows, of {first['rows'] / 1e6:g} million"
        for stage in ("read", "train"):
            times = one[stage]["anonymous"] / first[stage]["anonymous"]
            yield Figure(f"{at}: times the memory to {stage}", times, "less")
    for one in records:
        yield Figure(
            f"{one['rows'] / 1e6:g} million rows: read, a second",
            one["rows"] / one["read"]["seconds"],
            "more",
            ratio=False,
        )


def _long(records: Sequence[Record]) -> Iterator[Figure]:
    for one in records:
        if one["at_once"]:
            continue
        at = f"{one['length']:,} rows, {one['context']}, {one['layers']} layers"
        for stage in ("fit", "score", "predict"):
            size = (one[stage]["anonymous"] - one["fit"]["before"]) / 2**20
            yield Figure(f"{at}: MiB to {stage}", size, "less", ratio=False)


def _about(rows: int) -> str:
    return f"{round(rows / 20_000) * 20_000:,}"


OF: dict[str, Callable[[Sequence[Record]], Iterator[Figure]]] = {
    "conditionals": _conditionals,
    "catalogue": _catalogue,
    "busy": _busy,
    "tables": _tables,
    "content": _content,
    "processes": _processes,
    "race": _race,
    "serving": _serving,
    "recommend": _recommend,
    "baskets": _baskets,
    "gpu": _gpu,
    "stream": _stream,
    "long": _long,
}
