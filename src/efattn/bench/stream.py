"""More rows than memory: a Parquet folder into groups on disk, and steps of training from them.

Rows of all groups are scattered over all files. Each size runs in a process of its own. `anonymous` is memory that is
the process's own, the highest seen while each stage ran; `resident` is that and what the system happens to keep of
mapped files, which it drops before anything else. If a stage needs no more memory for more rows, its anonymous memory
is the same in every line.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from efattn.bench.keeping import keep

SIZES = (1_000_000, 10_000_000, 100_000_000)
LENGTH, ITEMS, FILE, STEPS = 50, 1_000, 2_000_000, 300


class _Stop(Exception):
    """Instead of training."""


def draw(folder: Path, rows: int) -> None:
    """Ratings of 1,000 items by users who have 50 rows each on average, at random times."""
    import polars as pl

    random = np.random.default_rng(0)
    level = random.normal(size=ITEMS)
    for k, start in enumerate(range(0, rows, FILE)):
        size = min(FILE, rows - start)
        item = random.integers(0, ITEMS, size)
        columns = {"user": random.integers(0, max(rows // LENGTH, 1), size), "item": item}
        rating = np.round(level[item] + random.normal(size=size), 3)
        at = random.integers(0, 2**31, size)
        pl.DataFrame({**columns, "rating": rating, "at": at}).write_parquet(folder / f"{k:04}.parquet")


def memory() -> dict[str, int]:
    """Of this process now, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    sizes = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines if line.startswith(("RssAnon", "VmRSS"))}
    return {"anonymous": sizes["RssAnon"], "resident": sizes["VmRSS"]}


@contextmanager
def watched(record: dict[str, Any], stage: str) -> Iterator[None]:
    """Seconds, and the most memory that was seen."""
    done, most = threading.Event(), {"anonymous": 0, "resident": 0}

    def look() -> None:
        while True:
            for name, size in memory().items():
                most[name] = max(most[name], size)
            if done.wait(0.02):
                return

    start, thread = time.perf_counter(), threading.Thread(target=look)
    before = memory()["anonymous"]
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        record[stage] = {"seconds": time.perf_counter() - start, "before": before, **most}


def measure(folder: Path, rows: int, steps: int = STEPS) -> dict[str, Any]:
    """Of one folder: read into groups; what is learnt before training; steps of training; scores of held-out groups."""
    from efattn import EFA, Training
    from efattn.data import Roles
    from efattn.data.stored import Stored
    from efattn.training import Fitting
    from efattn.training.held_out import mean_log_prob

    record: dict[str, Any] = {"rows": rows, "files": len(list(folder.iterdir())), "steps": steps}
    record["parquet_bytes"] = sum(path.stat().st_size for path in folder.iterdir())
    columns: dict[str, Any] = {"group": "user", "item": "item", "value": "rating", "order": "at"}
    plans: list[Any] = []
    options = Training(device="cpu")
    model = EFA(terms="value", context="past", companions=None, refit=False, training=options)
    with watched(record, "read"):
        home = Stored(folder).fit_encode(Roles(**columns), **model._schema_options())[1].home
    assert home is not None
    record["groups_bytes"] = sum(path.stat().st_size for path in home.iterdir())

    def stop(blueprint: Any) -> None:
        plans.append(blueprint)
        raise _Stop

    with watched(record, "learn"):
        with suppress(_Stop):
            model.fit(folder, **columns, on_disk=True, planned=stop, progress=False)
        (plan,) = plans
        plan = model._network(plan, options, None)
        network = model._build(plan)
    record |= {"groups": len(plan.groups), "held_rows": plan.held.count}
    taken = [0]

    def tick(term: str, step: int, of: int) -> None:
        taken[0] = step
        if step == steps:
            raise KeyboardInterrupt

    with watched(record, "train"):
        Fitting(network, plan.train, plan.held, options, tick=tick).run()
    record["train"] |= {"tokens": options.tokens, "steps": taken[0]}
    with watched(record, "validate"):
        term = network[network.terms[0]]
        record["held_out"] = mean_log_prob(term, plan.held.batches(options.tokens, context="past"), "cpu")
    return record


def main(folder: Path, sizes: tuple[int, ...] = SIZES, steps: int = STEPS) -> None:
    print(f"{'rows':>12}{'':9}{'seconds':>9}{'rows a second':>15}{'anonymous MiB':>15}{'resident MiB':>14}")
    records = []
    for rows in sizes:
        with tempfile.TemporaryDirectory() as temporary:
            place = Path(temporary) / "parts"
            place.mkdir()
            _elsewhere(f"draw(Path({str(place)!r}), {rows})", temporary)
            records.append(
                json.loads(_elsewhere(f"print(json.dumps(measure(Path({str(place)!r}), {rows}, {steps})))", temporary))
            )
            shutil.rmtree(Path(temporary) / "efattn", ignore_errors=True)
        for stage, count in _counts(records[-1]).items():
            mine = records[-1][stage]
            a_second = f"{count / mine['seconds']:15,.0f}" if count else f"{'':15}"
            memory = f"{mine['anonymous'] / 2**20:15,.0f}{mine['resident'] / 2**20:14,.0f}"
            print(f"{rows:12,} {stage:8}{mine['seconds']:9.1f}{a_second}{memory}", flush=True)
    keep(folder, "stream", records, cores=os.cpu_count())


def _counts(record: dict[str, Any]) -> dict[str, int]:
    """Rows of each stage."""
    trained = record["train"]["steps"] * record["train"]["tokens"]
    return {"read": record["rows"], "learn": 0, "train": trained, "validate": record["held_rows"]}


def _elsewhere(code: str, cache: str) -> str:
    words = f"import json; from pathlib import Path; from efattn.bench.stream import draw, measure; {code}"
    done = subprocess.run(
        [sys.executable, "-c", words],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"XDG_CACHE_HOME": cache},
    )
    return done.stdout.splitlines()[-1] if done.stdout else ""


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "benchmarks/results"))
