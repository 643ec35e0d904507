"""A GPU against two cores of the same machine: fit, score, predict and recommend, and what a step on it is made of.

    python -m efattn.bench.gpu [FOLDER]          needs numpy, torch and safetensors alone; under four minutes

The network is what EFA's defaults build (two layers, width 32, two heads, holes in half of the groups). Two cores do a
part of the rows, and their time is taken as proportional to rows. Waits are what CUDA itself reports in an epoch.
"""

import copy
import os
import sys
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from efattn.bench.keeping import keep
from efattn.data.groups import Groups, Observations
from efattn.data.names import Names
from efattn.families import Categorical, Gaussian, Product
from efattn.inference import Part, mixture
from efattn.inference.ranking import best
from efattn.models import Conditionals, Holes, Model, Term
from efattn.network import Embedding, Gaps, Head, ItemVectors, Stack, ValueMLP, Visibility, conditionals, perceptron
from efattn.training import Fitting, Training

WIDTH, LENGTH, ITEMS = 32, 40, 500
TOKENS, CPU_ROWS, CORES = 16_384, 24_000, 2
BUDGET = 210.0  # seconds, after which nothing more is begun
Record = dict[str, Any]


def groups(rows: int, items: int = ITEMS, seed: int = 0) -> Groups:
    """Groups of 20 to 60 rows with an item, a value and a time each; items of a group are distinct."""
    draw = np.random.default_rng(seed)
    lengths = draw.integers(LENGTH // 2, LENGTH * 3 // 2, max(rows // LENGTH, 2))
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    n = int(offsets[-1])
    start = np.repeat(draw.integers(0, items, len(lengths)), lengths)
    step = np.arange(n) - np.repeat(offsets[:-1], lengths)
    item = ((start + step * 7) % items).astype(np.int32)  # 7 and `items` have no factor in common
    value = np.repeat(draw.normal(size=len(lengths)), lengths) + draw.normal(size=items)[item] + draw.normal(size=n)
    when = np.repeat(draw.uniform(0, 1e6, len(lengths)), lengths) + draw.exponential(60, n).cumsum()
    every = Observations(np.arange(n), item, value[:, None].astype(np.float32), when=when)
    return Groups(every, offsets, Names(("int",), (np.arange(len(lengths)),)), ("group",))


def value_term(gaps: bool, items: int = ITEMS) -> Term:
    torch.manual_seed(0)
    family, half = Product((Gaussian(),)), WIDTH // 2
    embedding = Embedding(ValueMLP(1, WIDTH, half), item=ItemVectors(items, half), mix=(WIDTH,))
    head = Head(perceptron(WIDTH, (WIDTH,), sum(not fixed for fixed in family.shared)), family.shared)
    return Term(embedding, stack(gaps), head, family, gaps=told() if gaps else None, holes=Holes(0.5, 0.1))


def item_term(items: int, context: Any = "past", gaps: bool = True) -> Term:
    torch.manual_seed(0)
    family = Categorical(items)
    embedding = Embedding(ItemVectors(items, WIDTH), positions=LENGTH * 3 // 2)
    head = Head(perceptron(WIDTH, (), items), family.shared)
    how: dict[str, Any] = {"context": context, "support": "distinct", "gaps": told() if gaps else None}
    return Term(embedding, stack(gaps), head, family, **how, own_time=context != "past")


def stack(gaps: bool) -> Stack:
    return Stack(WIDTH, 2, 2, gaps=Gaps.size if gaps else 0)


def told() -> Gaps:
    gaps = Gaps()
    gaps.fit(np.random.default_rng(0).exponential(60, 1000))
    return gaps


def fit(term: Conditionals, data: Groups, device: str, tokens: int = TOKENS, epochs: int = 3) -> Record:
    """Seconds of an epoch: the fastest but the first, which warms up (of one epoch, that one)."""
    training = Training(epochs=epochs, patience=None, decay="none", tokens=tokens, device=device)
    fitting = Fitting(Model({"term": term}), data, None, training)
    fitting.run()
    seconds = [record["seconds"] for record in fitting.history]
    steps, best_ = len(data.plan(tokens, shuffle=0)), min(seconds[1:] or seconds)
    return {"seconds": best_, "steps": steps, "ms_per_step": 1e3 * best_ / steps, "train": fitting.history[-1]["train"]}


def timed(work: Callable[[], object], repeats: int = 3) -> float:
    work()
    taken = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        taken.append(time.perf_counter() - start)
    return min(taken)


def fits() -> list[Record]:
    """The same fit on the GPU and on two cores."""
    records = []
    cases: list[tuple[str, Callable[[], Term], int]] = [
        ("values", lambda: value_term(False), TOKENS),
        ("values, gaps", lambda: value_term(True), TOKENS),
        ("items, past, gaps", lambda: item_term(ITEMS), TOKENS),
        ("values, 1,024 tokens", lambda: value_term(False), 1024),
    ]
    for name, make, tokens in cases:
        part = groups(CPU_ROWS)
        torch.set_num_threads(CORES)
        slow = fit(make(), part, "cpu", tokens, epochs=2)
        for rows in (100_000, 480_000) if tokens == TOKENS else (100_000,):
            data = groups(rows)
            fast = fit(make(), data, "cuda", tokens, epochs=5)
            cores = slow["seconds"] * len(data.rows) / len(part.rows)
            found = {"what": "fit", "case": name, "rows": len(data.rows), "tokens": tokens, "gpu": fast["seconds"]}
            found |= {"ms_per_step": fast["ms_per_step"], "steps": fast["steps"], "two_cores": cores}
            found |= {"times_as_fast": cores / fast["seconds"]}
            records.append(found)
            print(
                f"fit {name:22} {len(data.rows):8,} rows {tokens:6,} tokens: {fast['seconds']:7.2f} s an epoch, "
                f"{fast['ms_per_step']:6.1f} ms a step; two cores {cores:7.1f} s: {found['times_as_fast']:5.1f}x",
                flush=True,
            )
    return records


def gaps_cost(records: list[Record]) -> Record:
    by = {x["case"]: x["gpu"] for x in records if x.get("what") == "fit" and x["rows"] > 200_000}
    found = {"what": "gaps", "with_over_without": by["values, gaps"] / by["values"]}
    print(f"gaps: {found['with_over_without']:.2f} times the cost of none")
    return found


def agreement() -> Record:
    """The largest difference of log-probabilities and of gradients between GPU and CPU, relative to the largest."""
    data, worst = groups(4_000), dict[str, float]()
    for name, term in (("values", value_term(True)), ("items", item_term(ITEMS))):
        found = []
        for device in ("cpu", "cuda"):
            mine = copy.deepcopy(term).to(device)
            scores = mine.log_prob(data.batch(np.arange(50), term.context).to(device))
            scores.mean().backward()
            gradients = [p.grad.cpu() for p in mine.parameters() if p.grad is not None]
            found.append([scores.values.detach().cpu(), *gradients])
        apart = [float((x - y).abs().max() / x.abs().max().clamp_min(1e-12)) for x, y in zip(*found, strict=True)]
        worst[name] = max(apart)
    print("agreement of GPU and CPU, log-probabilities and gradients: " + str(worst))
    return {"what": "agreement", "relative": worst}


def waits() -> list[Record]:
    """How often an epoch of training made the host wait, by CUDA's own report, and where: what three epochs have beyond
    what one has, halved."""
    records = []
    for name, term in (("values, gaps", value_term(True)), ("items, past", item_term(ITEMS))):
        data = groups(100_000)
        fit(term, data, "cuda", epochs=1)
        few, many = (waited(partial(fit, term, data, "cuda", epochs=epochs)) for epochs in (1, 3))
        where = {place: (many[place] - few.get(place, 0)) / 2 for place in many if many[place] > few.get(place, 0)}
        steps = len(data.plan(TOKENS, shuffle=0))
        records.append({"what": "waits", "case": name, "steps": steps, "waits": sum(where.values()), "where": where})
        print(f"waits in an epoch of {steps} steps, {name}: {sum(where.values()):g} {where}", flush=True)
    return records


def waited(work: Callable[[], object]) -> dict[str, int]:
    """By place in the sources, how often."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            work()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    places = [f"{Path(one.filename).name}:{one.lineno}" for one in seen if "synchron" in str(one.message)]
    return {place: places.count(place) for place in places}


def profiled(name: str, term: Term, tokens: int = TOKENS) -> Record:
    """Kernels a step, how long the GPU is at work in it, and which kernels take most."""
    from torch.profiler import ProfilerActivity, profile

    data = groups(100_000)
    fit(term, data, "cuda", tokens, epochs=1)
    wall = fit(term, data, "cuda", tokens, epochs=5)
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        fit(term, data, "cuda", tokens, epochs=1)
    events = [e for e in seen.key_averages() if e.self_device_time_total > 0]
    steps = wall["steps"]
    busy = sum(e.self_device_time_total for e in events) / 1e3 / steps
    kernels = sum(e.count for e in events) / steps
    top = sorted(events, key=lambda e: -e.self_device_time_total)[:8]
    at_work = f"GPU at work {busy:.2f} ms in {kernels:.0f} kernels"
    print(f"a step of {name}, {tokens} tokens: {wall['ms_per_step']:.1f} ms, {at_work}")
    for e in top:
        print(f"    {e.self_device_time_total / 1e3 / steps:7.3f} ms {e.count / steps:6.1f}x {e.key[:110]}")
    named = {e.key[:110]: e.self_device_time_total / 1e3 / steps for e in top}
    found = {"what": "step", "case": name, "tokens": tokens, "ms": wall["ms_per_step"], "busy_ms": busy}
    return found | {"kernels": kernels, "top_ms": named}


def paths() -> list[Record]:
    """Forward and backward of the exact conditionals by each path: from which size on which is the fastest."""
    cases = [(tokens, 40, False) for tokens in (1024, 4096, TOKENS)]
    return [path_times(*case) for case in (*cases, (TOKENS, 40, True), (TOKENS, 12, False), (TOKENS, 120, False))]


def path_times(tokens: int, length: int, gaps: bool) -> Record:
    torch.manual_seed(0)
    model, batch = stack(gaps).cuda(), tokens // length
    content, masked = torch.randn(2, batch, length, WIDTH, device="cuda")
    gap = torch.randint(Gaps.size, (batch, length, length), device="cuda") if gaps else None
    exists = torch.ones(batch, length, dtype=torch.bool, device="cuda")
    visibility = Visibility.of("others", exists, length, gap=gap)
    found: Record = {"what": "path", "tokens": tokens, "length": length, "gaps": gaps, "ms": {}, "peak_gb": {}}

    def step(path: Any) -> None:
        for _ in range(5):
            model(content, masked, visibility, path=path).square().mean().backward()

    for path in (conditionals.folded, conditionals.copied, conditionals.literal):
        torch.cuda.reset_peak_memory_stats()
        found["ms"][path.__name__] = 1e3 * timed(partial(step, path)) / 5
        found["peak_gb"][path.__name__] = torch.cuda.max_memory_allocated() / 1e9
    words = ", ".join(f"{k} {v:.2f} ms {found['peak_gb'][k]:.1f} GB" for k, v in found["ms"].items())
    print(f"paths {tokens:6} tokens, length {length:3}, gaps {gaps}: {words}", flush=True)
    return found


def questions() -> list[Record]:
    """score, predict and recommend, as the verbs ask networks."""
    data, records = groups(CPU_ROWS), []
    values, items = value_term(True), item_term(12_001)
    some = groups(CPU_ROWS, 12_001)

    def score(device: str) -> None:
        mixture.log_probs([Part(values.eval(), 1.0, device)], data, TOKENS)

    @torch.no_grad()
    def predict(device: str) -> None:
        part = Part(values.eval(), 1.0, device)
        for batch in data.batches(TOKENS):
            f = part.outputs(batch).double()
            mixture.mean(values.family, [f], [1.0])  # type: ignore[arg-type]

    @torch.no_grad()
    def recommend(device: str) -> None:
        part = Part(items.eval(), 1.0, device)
        for batch in some.batches(5_000, context="past"):
            slots = torch.full((len(batch.exists), 1), batch.length - 1)
            for p in mixture.items_at([part], batch, slots, torch.ones_like(slots).bool(), "item", there=True):
                best(p, 10)

    for name, verb in (("score", score), ("predict", predict), ("recommend", recommend)):
        torch.set_num_threads(CORES)
        cores, gpu = timed(lambda v=verb: v("cpu"), 2), timed(lambda v=verb: v("cuda"))  # type: ignore[misc]
        rows = len(data.rows)
        records.append({"what": name, "rows": rows, "gpu": gpu, "two_cores": cores, "times_as_fast": cores / gpu})
        print(f"{name:10} {rows:7,} rows: {gpu:.3f} s, two cores {cores:.3f} s: {cores / gpu:.1f}x", flush=True)
    return records


def ensemble(members: int = 5) -> Record:
    """Members side by side on the GPU, each in a process of its own, against one alone; seconds of an epoch."""
    from efattn.training.processes import side_by_side

    data, epochs = groups(480_000), 8
    training = Training(epochs=epochs, patience=None, decay="none", tokens=TOKENS, device="cuda")

    def run(number: int) -> float:
        fittings = {k: Fitting(Model({"term": value_term(False)}), data, None, training, k) for k in range(number)}
        list(side_by_side(fittings, False, number))
        return max(float(np.median([x["seconds"] for x in one.history[2:]])) for one in fittings.values())

    one, several = run(1), run(members)
    print(f"{members} members side by side: {several:.2f} s an epoch each, one alone {one:.2f} s: {several / one:.2f}x")
    return {"what": "ensemble", "members": members, "one": one, "several": several, "ratio": several / one}


def run() -> list[Record]:
    start, records = time.monotonic(), list[Record]()

    def attempt(work: Callable[[], Any]) -> None:
        spent = time.monotonic() - start
        if spent > BUDGET:
            print(f"{spent:.0f} s are over: left out")
            return
        try:
            found = work()
            records.extend(found if isinstance(found, list) else [found])
        except Exception as error:  # whatever it is, the rest is measured
            print(f"failed: {type(error).__name__}: {error}", flush=True)
            records.append({"what": "failed", "error": f"{type(error).__name__}: {error}"[:500]})
        print(f"    [{time.monotonic() - start:.0f} s]", flush=True)

    attempt(agreement)
    attempt(waits)
    attempt(paths)
    attempt(fits)
    attempt(lambda: gaps_cost(records))
    attempt(lambda: profiled("values", value_term(False)))
    attempt(lambda: profiled("values, gaps", value_term(True)))
    attempt(lambda: profiled("values", value_term(False), 1024))
    attempt(questions)
    attempt(ensemble)
    return records


def main(folder: Path) -> None:
    if not torch.cuda.is_available():
        print("There is no GPU here: nothing is measured, and what was measured elsewhere stays.")
        return
    about = {"gpu": torch.cuda.get_device_name(), "cores": os.cpu_count(), "threads": CORES, "width": WIDTH}
    print(f"{about['gpu']}, torch {torch.__version__}, {about['cores']} cores, of which {CORES} are compared with")
    keep(folder, "gpu", run(), **about, torch=torch.__version__, command="python -m efattn.bench.gpu")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "benchmarks/results"))
