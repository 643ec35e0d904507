"""Serving recommendations on one core: one history of 50 rows, 12,000 items, lists of ten.

    whole     `recommend`, from a frame to a frame
    follow    one more row, and the list after it

Milliseconds, p50 and p99 over a few hundred calls each, and the seconds of processor time of a call: where a machine is
busy with other things, the latter say more.
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from efattn.bench.keeping import keep

ITEMS, ROWS, K = 12_000, 50, 10
CALLS, WARM = 300, 30


def model_of(items: int = ITEMS, width: int = 64) -> Any:
    """Fitted for one epoch to every item once: what it costs is what a trained one does."""
    import polars as pl

    from efattn import EFA, Training

    table = pl.DataFrame({"user": np.arange(items) // ROWS, "item": np.arange(items), "at": np.arange(items) % ROWS})
    model = EFA(context="past", terms="item", width=width, companions=None, refit=False, effort="quick")
    model.set_params(training=Training(epochs=1, device="cpu"))
    return model.fit(table, group="user", item="item", order="at", progress=False)


def timed(ask: Callable[[int], object], calls: int = CALLS, warm: int = WARM) -> dict[str, float]:
    """Of so many calls, each told its number."""
    for number in range(warm):
        ask(number)
    wall, work = np.zeros(calls), np.zeros(calls)
    for number in range(calls):
        start, spent = time.perf_counter(), time.process_time()
        ask(warm + number)
        wall[number], work[number] = time.perf_counter() - start, time.process_time() - spent
    p50, p99 = (float(1000 * np.quantile(wall, p)) for p in (0.5, 0.99))
    return {"p50_ms": p50, "p99_ms": p99, "work_ms": float(1000 * np.median(work))}


def measured(items: int = ITEMS, calls: int = CALLS, warm: int = WARM) -> list[dict[str, Any]]:
    import polars as pl

    model, draw = model_of(items), np.random.default_rng(0)
    histories = [
        pl.DataFrame({"user": 0, "item": draw.permutation(items)[:ROWS], "at": np.arange(ROWS)}) for _ in range(8)
    ]
    followed = model.follow(histories[0])
    left = iter(np.setdiff1d(draw.permutation(items), histories[0]["item"].to_numpy()))

    def one_more(number: int) -> object:
        nonlocal followed
        if len(followed) >= 2 * ROWS:
            followed = model.follow(histories[0])
        followed.add({"user": [0], "item": [int(next(left))], "at": [len(followed)]})
        return followed.recommend(K)

    kinds = {"whole": lambda number: model.recommend(histories[number % 8], K), "follow": one_more}
    about = {"items": items, "rows": ROWS, "k": K}
    return [{"kind": kind, **about, **timed(ask, calls, warm)} for kind, ask in kinds.items()]


def main(folder: Path, calls: int = CALLS, warm: int = WARM) -> None:
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        records = measured(calls=calls, warm=warm)
    finally:
        torch.set_num_threads(threads)
    print("                                 p50 ms   p99 ms   work ms")
    for one in records:
        told = f"{one['kind']:8} {one['rows']:3} rows, {one['items']:6,} items"
        print(f"{told:30} {one['p50_ms']:8.2f} {one['p99_ms']:8.2f} {one['work_ms']:9.2f}", flush=True)
    keep(folder, "recommend", records)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "benchmarks/results"))
