"""One fit by one process and by two, over the same batches: seconds of an epoch, their ratio, and what travels.

The same fit (15,000 baskets, 8,192 tokens a batch, one thread a process) is made by one process and by two that know of
each other by gloo over the loopback. Two perfect processes would take half as long, and each do half of the work: the
seconds that cores were busy with an epoch, which other programs change little. Scores on held-out groups are kept of
both: they differ by rounding. Besides, the seconds that adding up a buffer of so many numbers takes.
"""

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from efattn.bench.busy import drawn_baskets
from efattn.bench.keeping import keep

BASKETS, TOKENS, EPOCHS, REPEATS = 15_000, 8192, 4, 2
BUFFERS = (1_000, 100_000, 10_000_000)  # numbers of four bytes
CODE = "import json; from efattn.bench.processes import {0}; print(json.dumps({0}({1})))"


def fit(baskets: int, epochs: int) -> dict[str, Any]:
    """Seconds of its fastest epoch, the first left out, those that a core was busy with one, and how good it was."""
    from efattn import EFA, Training
    from efattn.training import together

    table = drawn_baskets(baskets)
    training = Training(epochs=epochs + 1, patience=None, tokens=TOKENS, device="cpu")
    model = EFA(context="others", companions=None, refit=False, hide=0.0, dropout=0.0, training=training)
    busy = list[float]()
    with together():
        model.fit(
            table,
            group="basket",
            item="product",
            progress=False,
            callbacks=[lambda record: busy.append(time.process_time())],
        )
    weights = sum(p.numel() for p in model.model_.parameters() if p.requires_grad)
    scores = [record["validation"] for record in model.history_]
    seconds = [record["seconds"] for record in model.history_[1:]]
    work = (busy[-1] - busy[0]) / epochs
    return {"seconds": min(seconds), "work": work, "score": scores[-1], "parameters": weights}


def sums(repeats: int) -> dict[str, float]:
    """Seconds in which a buffer of so many numbers is added up over all processes, the least of several."""
    import torch
    import torch.distributed as dist

    from efattn.training import together

    found = {}
    with together():
        for size in BUFFERS:
            buffer, passed = torch.ones(size), []
            for _ in range(repeats):
                start = time.perf_counter()
                dist.all_reduce(buffer)
                passed.append(time.perf_counter() - start)
            found[str(size)] = min(passed)
    return found


def launched(processes: int, what: str, *numbers: int) -> list[dict[str, Any]]:
    """What each of so many processes says."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    known = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(processes), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", CODE.format(what, ", ".join(map(str, numbers)))]
    several = [
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, **known, "RANK": str(rank)})
        for rank in range(processes)
    ]
    written = [one.communicate()[0] for one in several]
    for one in several:
        if one.returncode:
            raise subprocess.CalledProcessError(one.returncode, command)
    return [json.loads(text) for text in written]


def run(baskets: int = BASKETS, epochs: int = EPOCHS, repeats: int = REPEATS) -> list[dict[str, Any]]:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    tried: dict[int, list[dict[str, Any]]] = {1: [], 2: []}
    for _ in range(repeats):
        for processes, several in tried.items():
            said = launched(processes, "fit", baskets, epochs)
            several.append(said[0] | {"work": sum(one["work"] for one in said)})
    best = {processes: min(several, key=lambda x: x["seconds"]) for processes, several in tried.items()}
    record: dict[str, Any] = {f"seconds_{processes}": one["seconds"] for processes, one in best.items()}
    record |= {"cores": cores, "ratio": best[1]["seconds"] / best[2]["seconds"]}
    record |= {f"work_{processes}": one["work"] for processes, one in best.items()}
    record["work_ratio"] = best[2]["work"] / best[1]["work"]
    record |= {"score_1": best[1]["score"], "score_2": best[2]["score"], "parameters": best[1]["parameters"]}
    record["seconds_of_a_sum"] = launched(2, "sums", 20)[0]
    print(f"an epoch: {record['seconds_1']:.2f} s by one process, {record['seconds_2']:.2f} s by two")
    print(f"the work of two is {record['work_ratio']:.2f} times that of one")
    print(f"{record['ratio']:.2f}x; held-out scores differ by {abs(record['score_1'] - record['score_2']):.1e}")
    for size, seconds in record["seconds_of_a_sum"].items():
        print(f"{int(size):12,} numbers added up in {1000 * seconds:8.2f} ms")
    return [record]


def main(folder: Path) -> None:
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None  # what else wants the cores
    keep(folder, "processes", run(), baskets=BASKETS, tokens=TOKENS, epochs=EPOCHS, load_before=load)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "benchmarks/results"))
