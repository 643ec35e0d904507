"""A fit beside busy programs: its time as a multiple of its fair share.

The same fit (15,000 baskets, a few epochs) runs alone, and beside as many busy processes as there are cores. If t of
its threads and b busy processes want c cores, each gets c / (t + b) of one: a fit whose threads never wait in vain
takes (t + b) / c times as long as alone. By default threads spin for a few microseconds where they wait, then sleep
(GOMP_SPINCOUNT=500, which importing efattn sets unless somebody has chosen otherwise); threads that go on spinning are
what a plain torch has.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from efattn.bench.keeping import keep

BASKETS, PRODUCTS, EPOCHS = 15_000, 169, 3
WAYS = {
    "default": {},
    "one thread": {"OMP_NUM_THREADS": "1"},
    "asleep at once": {"OMP_WAIT_POLICY": "PASSIVE"},
    "spinning": {"OMP_WAIT_POLICY": "ACTIVE"},
}


def drawn_baskets(number: int) -> Any:
    """A frame of baskets of products, some of which are bought far more often than others."""
    import numpy as np
    import polars as pl

    draw = np.random.default_rng(0)
    basket = np.repeat(np.arange(number), 1 + draw.poisson(3.0, number))
    product = np.minimum(draw.zipf(1.3, len(basket)) - 1, PRODUCTS - 1)
    return pl.DataFrame({"basket": basket, "product": product}).unique(maintain_order=True)


def fit(baskets: int, epochs: int) -> dict[str, Any]:
    """Seconds of an epoch, the first left out, and the threads it ran on."""
    import torch

    from efattn import EFA, Training

    table = drawn_baskets(baskets)
    training, threads = Training(epochs=epochs + 1, patience=None), set[int]()
    model = EFA(context="others", companions=None, refit=False, training=training)
    model.fit(
        table,
        group="basket",
        item="product",
        progress=False,
        callbacks=[lambda record: threads.add(torch.get_num_threads())],
    )
    seconds = [record["seconds"] for record in model.history_]
    return {"seconds": (sum(seconds) - seconds[0]) / epochs, "threads": max(threads)}


@contextmanager
def busy(programs: int) -> Iterator[None]:
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(programs)]
    try:
        yield
    finally:
        for one in others:
            one.kill()
            one.wait()


def timed(way: str, baskets: int, epochs: int) -> dict[str, Any]:
    code = f"import json; from efattn.bench.busy import fit; print(json.dumps(fit({baskets}, {epochs})))"
    own = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "GOMP_"))}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env={**own, **WAYS[way]})
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def run(baskets: int = BASKETS, epochs: int = EPOCHS) -> list[dict[str, Any]]:
    cores, records = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1, []
    print(f"{'':16}{'threads':>8}{'alone':>9}{'beside':>9}  s an epoch, beside {cores} busy programs; times fair share")
    for way in WAYS:
        alone = timed(way, baskets, epochs)
        with busy(cores):
            beside = timed(way, baskets, epochs)
        fair = max(1.0, (alone["threads"] + cores) / cores)
        record = {"way": way, "threads": alone["threads"], "cores": cores, "busy": cores, "fair": fair}
        record |= {"alone": alone["seconds"], "beside": beside["seconds"]}
        record["times_fair_share"] = record["beside"] / (fair * record["alone"])
        records.append(record)
        times = f"{record['alone']:9.2f}{record['beside']:9.2f}"
        print(f"{way:16}{record['threads']:8}{times}{record['times_fair_share']:10.2f}x", flush=True)
    return records


def main(folder: Path, baskets: int = BASKETS, epochs: int = EPOCHS) -> None:
    keep(folder, "busy", run(baskets, epochs), baskets=baskets, epochs=epochs)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "benchmarks/results"))
