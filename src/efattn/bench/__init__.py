"""Speed and memory, as ratios measured in one run.

    BENCHES   one line each: the name of a module here, which has main(folder, **options), and options for a small run

`efattn bench` runs all of them small, `efattn bench NAME` one in full. Aims and what was tried: aims.py.
"""

from typing import Any, NamedTuple


class Bench(NamedTuple):
    """small: options of its `main` for a run of about a minute; None where every run is the same."""

    name: str
    words: str
    small: dict[str, Any] | None = None


BENCHES = (
    Bench("conditionals", "exact conditionals beside the literal form and an ordinary pass", {"repeats": 5}),
    Bench("baskets", "Instacart baskets beside masked copies; products beside their peak", {"small": True}),
    Bench("catalogue", "one item among a thousand to a million, in blocks and whole", {"most": 100_000, "repeats": 3}),
    Bench("content", "what isolated content saves", {"repeats": 2, "lengths": (24, 50)}),
    Bench("orders", "a joint density in one pass beside asking row by row"),
    Bench("tables", "a table into groups and batches", {"rows": 1_000_000}),
    Bench("stream", "tables larger than memory", {"sizes": (300_000, 1_000_000), "steps": 50}),
    Bench("long", "groups of thousands of rows", {"lengths": (1_000, 2_000)}),
    Bench("race", "seconds to the paper's number on Instacart baskets", {"seeds": 1}),
    Bench("busy", "a fit beside busy programs", {"baskets": 4_000, "epochs": 1}),
    Bench("serving", "requests to a server", {"seconds": 2.0}),
    Bench("recommend", "lists of items, of whole histories and of growing ones", {"calls": 50, "warm": 5}),
    Bench("processes", "one fit by two processes beside one"),
    Bench("gpu", "a GPU beside two cores, where there is one"),
)  # fmt: skip
NAMES = tuple(bench.name for bench in BENCHES)
