"""The exact conditionals: fast against literal, and against one ordinary pass of the same stack with nothing masked.

Forward and backward of a two-layer stack (width 32, two heads) over batches of about 1,600 observations, one thread.
"""

import sys
from pathlib import Path
from typing import Any

import torch

from efattn.bench.keeping import keep
from efattn.bench.measure import Work, fastest, peak_bytes
from efattn.network import Context, Stack, Visibility
from efattn.network.conditionals import literal

LENGTHS, REPEATS = (12, 24, 50, 100, 200), 15
CONTEXTS: tuple[Context, ...] = ("others", "past")


def works(context: Context, length: int, seed: int = 0) -> dict[str, Work]:
    torch.manual_seed(seed)
    batch = 1600 // length
    stack = Stack(32, layers=2, heads=2)
    content, masked = torch.randn(2, batch, length, 32)
    exists = torch.ones(batch, length, dtype=torch.bool)

    def seen() -> Visibility:
        return Visibility.of(context, exists, length)

    return {
        "fast": lambda: stack(content, masked, seen()).square().mean().backward(),
        "literal": lambda: stack(content, masked, seen(), path=literal).square().mean().backward(),
        "ordinary": lambda: stack.ordinary(content, seen().content()).square().mean().backward(),
    }


def record(context: Context, length: int, repeats: int) -> dict[str, Any]:
    todo = works(context, length)
    seconds = fastest(todo, repeats)
    peak = {name: peak_bytes(work) for name, work in todo.items()}
    return {
        "context": context,
        "length": length,
        "groups": 1600 // length,
        "seconds": {name: round(value, 6) for name, value in seconds.items()},
        "peak_bytes": peak,
        "literal_over_fast": round(seconds["literal"] / seconds["fast"], 2),
        "fast_over_ordinary": round(seconds["fast"] / seconds["ordinary"], 2),
        "literal_over_fast_memory": round(peak["literal"] / peak["fast"], 2),
    }


def table(records: list[dict[str, Any]]) -> str:
    """The records as Markdown."""
    lines = [
        "| context | group length | times as fast as the literal form | less peak memory | times one ordinary pass |"
    ]
    lines.append("|---|---|---|---|---|")
    for one in records:
        faster, memory = one["literal_over_fast"], one["literal_over_fast_memory"]
        cells = (one["context"], one["length"], f"{faster:.1f}x", f"{memory:.1f}x")
        lines.append("| " + " | ".join(map(str, (*cells, f"{one['fast_over_ordinary']:.1f}x"))) + " |")
    return "\n".join(lines)


def run(repeats: int = REPEATS) -> list[dict[str, Any]]:
    """All lengths and contexts; prints a row as soon as it is known."""
    torch.set_num_threads(1)
    print(f"{'':14}{'milliseconds':>30}{'peak MiB':>18}{'ratios':>36}")
    print(f"{'context':8}{'length':>6}{'fast':>10}{'literal':>10}{'ordinary':>10}{'fast':>9}{'literal':>9}", end="")
    print(f"{'literal/fast':>14}{'fast/ordinary':>15}{'memory':>9}", flush=True)
    records = []
    for context in CONTEXTS:
        for length in LENGTHS:
            one = record(context, length, repeats)
            records.append(one)
            times = "".join(f"{one['seconds'][name] * 1e3:10.1f}" for name in ("fast", "literal", "ordinary"))
            peaks = "".join(f"{one['peak_bytes'][name] / 2**20:9.1f}" for name in ("fast", "literal"))
            ratios = f"{one['literal_over_fast']:13.1f}x{one['fast_over_ordinary']:14.1f}x"
            print(f"{context:8}{length:6}{times}{peaks}{ratios}{one['literal_over_fast_memory']:8.1f}x", flush=True)
    return records


def main(folder: Path, repeats: int = REPEATS) -> None:
    about = {"torch": torch.__version__, "repeats": repeats, "threads": 1, "layers": 2, "width": 32, "heads": 2}
    keep(folder, "conditionals", run(repeats), **about, seed=0)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "benchmarks/results"))
