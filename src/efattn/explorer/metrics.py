"""How a server fares, in the text form that Prometheus reads.

Labels are models, verbs and statuses that there are: what a stranger writes in a path never becomes one.
"""

import threading
from collections import defaultdict
from typing import final

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
Labels = tuple[tuple[str, str], ...]


@final
class Metrics:
    """Counted from the loop and from the threads that compute."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts = defaultdict[tuple[str, Labels], float](float)
        self._seconds = defaultdict[Labels, list[float]](lambda: [0.0] * (len(BUCKETS) + 2))
        self.waiting = 0

    def add(self, name: str, amount: float = 1, **labels: str) -> None:
        with self._lock:
            self._counts[name, tuple(sorted(labels.items()))] += amount

    def request(self, model: str, verb: str, status: int, seconds: float) -> None:
        """One that was answered."""
        self.add("efattn_requests_total", model=model, verb=verb, status=str(status))
        with self._lock:
            line = self._seconds[(("model", model), ("verb", verb))]
            for number, bound in enumerate(BUCKETS):
                line[number] += seconds <= bound
            line[-2] += 1
            line[-1] += seconds

    def text(self) -> str:
        with self._lock:
            counts, seconds = dict(self._counts), {labels: list(line) for labels, line in self._seconds.items()}
        lines = list[str]()
        for name in sorted({name for name, _ in counts}):
            lines.append(f"# TYPE {name} counter")
            lines += [f"{name}{_labels(at)} {value:g}" for (one, at), value in sorted(counts.items()) if one == name]
        lines.append("# TYPE efattn_request_seconds histogram")
        for at, line in sorted(seconds.items()):
            for bound, count in zip((*BUCKETS, "+Inf"), line, strict=False):
                lines.append(f"efattn_request_seconds_bucket{_labels((*at, ('le', str(bound))))} {count:g}")
            lines.append(f"efattn_request_seconds_count{_labels(at)} {line[-2]:g}")
            lines.append(f"efattn_request_seconds_sum{_labels(at)} {line[-1]:.6f}")
        for name, value in (("efattn_waiting", self.waiting), ("process_resident_memory_bytes", resident_bytes())):
            if value is not None:
                lines += [f"# TYPE {name} gauge", f"{name} {value}"]
        return "\n".join(lines) + "\n"


def resident_bytes() -> int | None:
    """Of this process; None where the system does not say."""
    try:
        with open("/proc/self/status") as file:
            return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmRSS"))
    except (OSError, StopIteration):
        return None


def _labels(at: Labels) -> str:
    quoted = (f'{name}="{_escaped(value)}"' for name, value in at)
    return f"{{{','.join(quoted)}}}" if at else ""


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
