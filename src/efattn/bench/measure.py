"""Seconds and peak bytes of a piece of work.

Times are minima over interleaved repeats, so that a slow moment of the machine hits all candidates alike. Bytes are
those of torch's own allocator on the CPU: the highest running sum of what the work allocates and has not yet freed.
"""

import os
import time
from collections.abc import Callable, Mapping

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # the profiler writes to standard error otherwise

from torch.profiler import ProfilerActivity, profile

Work = Callable[[], object]


def fastest(works: Mapping[str, Work], repeats: int) -> dict[str, float]:
    """Seconds of each work, the minimum of `repeats` rounds; the first round warms up and does not count."""
    best = dict.fromkeys(works, float("inf"))
    for round_ in range(repeats + 1):
        for name, work in works.items():
            start = time.perf_counter()
            work()
            if round_:
                best[name] = min(best[name], time.perf_counter() - start)
    return best


def peak_bytes(work: Work) -> int:
    """What the work holds at its worst moment, beyond what was there before."""
    work()  # gradients and caches that stay are allocated now
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        work()
    results = seen.profiler.kineto_results if seen.profiler is not None else None
    events = [] if results is None else [e for e in results.events() if e.name() == "[memory]"]
    held = highest = 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        held += event.nbytes()
        highest = max(highest, held)
    return highest
