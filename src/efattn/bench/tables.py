"""A table of ten million rows into groups and batches: seconds, and the highest memory of the process.

Each case runs in a process of its own, which first draws the table and then notes what it holds already.
"""

import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from efattn.bench.keeping import keep

CASES = ("sorted", "shuffled", "text")


def measure(case: str, rows: int, seed: int = 0) -> dict[str, Any]:
    """200,000 groups, 50,000 items, one value and an order, sorted or not, with names as numbers or as text."""
    import numpy as np
    import polars as pl

    from efattn.data import Roles, Schema

    draw = np.random.default_rng(seed)
    user = np.sort(draw.integers(0, max(rows // 50, 1), rows))
    columns = {"user": user, "item": draw.integers(0, 50_000, rows), "rating": draw.normal(size=rows)}
    frame = pl.DataFrame({**columns, "when": np.arange(rows)})
    del columns, user
    if case != "sorted":
        frame = frame.sample(fraction=1.0, shuffle=True, seed=seed)
    if case == "text":
        frame = frame.with_columns(
            pl.format("user {}", "user").alias("user"), pl.format("item {}", "item").alias("item")
        )
    before = _peak()
    start = time.perf_counter()
    roles = Roles(group="user", item="item", value="rating", order="when")
    schema, groups = Schema.fit_encode(frame, roles, standardise="item")
    read = time.perf_counter() - start
    start = time.perf_counter()
    batches = sum(1 for _ in schema.standardise(groups).batches(16_384, shuffle=seed))
    batched = time.perf_counter() - start
    about = {"case": case, "rows": rows, "groups": len(groups), "batches": batches, "seed": seed}
    return about | {"read_seconds": read, "batch_seconds": batched, "peak_bytes": _peak(), "before_bytes": before}


def _peak() -> int:
    """The most memory this process ever held."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def main(folder: Path, rows: int = 10_000_000) -> None:
    print(f"{'rows':>10}  {'names':10}{'read s':>8}{'batch s':>9}{'peak GiB':>10}")
    records = []
    for case in CASES:
        code = f"import json; from efattn.bench.tables import measure; print(json.dumps(measure({case!r}, {rows})))"
        done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
        record = json.loads(done.stdout)
        records.append(record)
        seconds = f"{record['read_seconds']:8.1f}{record['batch_seconds']:9.1f}"
        print(f"{rows:10}  {case:10}{seconds}{record['peak_bytes'] / 2**30:10.2f}", flush=True)
    keep(folder, "tables", records)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "benchmarks/results"))
