"""Groups of 1,000 to 5,000 rows: the memory that a step of training and a pass of scoring take, with default options.

Each case runs in a process of its own, on two groups of one length: values from the past or from the others, by one
layer or two; shorter ones also with all targets and rows at once. Memory is the process's own, the highest seen, beyond
what it held before the fit.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from efattn.bench.keeping import keep
from efattn.bench.stream import watched

LENGTHS, AT_ONCE, ITEMS = (1_000, 2_000, 5_000), 2_000, 200


def measure(length: int, context: str, layers: int, at_once: bool) -> dict[str, Any]:
    import numpy as np
    import polars as pl

    from efattn import EFA, Training
    from efattn.network import rank_one, stack

    if at_once:
        stack.LONG = rank_one.BLOCK = 2**60
    random, rows = np.random.default_rng(0), 2 * length
    columns = {"group": np.repeat([0, 1], length), "item": random.integers(0, ITEMS, rows)}
    table = pl.DataFrame({**columns, "value": random.normal(size=rows), "at": np.tile(np.arange(length), 2)})
    record: dict[str, Any] = {"length": length, "context": context, "layers": layers, "at_once": at_once}
    options = Training(device="cpu", epochs=1, draws=None if at_once else "auto")
    model = EFA(terms="value", context=context, layers=layers, companions=None, refit=False, training=options)
    roles = {"group": "group", "item": "item", "value": "value", "order": "at"}
    model.fit(table.filter(pl.col("at") < 8), **roles, validation=None, progress=False)
    with watched(record, "fit"):
        model.fit(table, **roles, validation=None, progress=False)
    with watched(record, "score"):
        record["mean"] = model.score(table)
    with watched(record, "predict"):
        model.predict(table)
    return record


def cases(lengths: tuple[int, ...]) -> Iterator[tuple[int, str, int, bool]]:
    for length in lengths:
        for context in ("past", "others"):
            for layers in (1, 2):
                yield length, context, layers, False
                if length <= AT_ONCE:
                    yield length, context, layers, True


def main(folder: Path, lengths: tuple[int, ...] = LENGTHS) -> None:
    print(f"{'rows':>6} {'context':8}{'layers':>6} {'':10}{'fit MiB':>9}{'score MiB':>11}{'predict MiB':>13}")
    records = []
    for case in cases(lengths):
        code = f"import json; from efattn.bench.long import measure; print(json.dumps(measure(*{case!r})))"
        done = subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.PIPE, text=True)
        record = json.loads(done.stdout.splitlines()[-1])
        records.append(record)
        before = record["fit"]["before"]
        sizes = [(record[stage]["anonymous"] - before) / 2**20 for stage in ("fit", "score", "predict")]
        shown = f"{sizes[0]:9,.0f}{sizes[1]:11,.0f}{sizes[2]:13,.0f}"
        print(f"{case[0]:6} {case[1]:8}{case[2]:6} {'at once' if case[3] else '':10}{shown}", flush=True)
    keep(folder, "long", records, cores=os.cpu_count())


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "benchmarks/results"))
