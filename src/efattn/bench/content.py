"""Depth: a training step whose content mixes positions against one whose content is isolated.

Forward and backward of a stack (width 32, two heads, and once with a feed-forward block and norms) in `others` over
batches of about 1,600 observations, one thread. The conditionals are exact in both; they are those of two models.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

import torch

from efattn.bench.keeping import keep
from efattn.bench.measure import Work, fastest, peak_bytes
from efattn.network import Stack, Visibility
from efattn.network.stack import Content

DEPTHS, LENGTHS, REPEATS = (2, 3, 4), (20, 50, 200), 5
OBSERVATIONS, WIDTH, HEADS = 1600, 32, 2
SHAPES: dict[str, dict[str, Any]] = {"attention alone": {}, "feed-forward": {"feed_forward": 64, "norm": "pre"}}
CONTENTS: tuple[Content, ...] = get_args(Content)


def works(shape: str, depth: int, length: int, seed: int = 0) -> dict[str, Work]:
    torch.manual_seed(seed)
    batch = OBSERVATIONS // length
    content, masked = torch.randn(2, batch, length, WIDTH)
    visibility = Visibility.of("others", torch.ones(batch, length, dtype=torch.bool), length)

    def step(kind: Content) -> Work:
        stack = Stack(WIDTH, depth, HEADS, content=kind, **SHAPES[shape])
        return lambda: stack(content, masked, visibility).square().mean().backward()

    return {kind: step(kind) for kind in CONTENTS}


def record(shape: str, depth: int, length: int, repeats: int) -> dict[str, Any]:
    todo = works(shape, depth, length)
    seconds = fastest(todo, repeats)
    peak = {name: peak_bytes(work) for name, work in todo.items()}
    return {
        "shape": shape,
        "layers": depth,
        "length": length,
        "groups": OBSERVATIONS // length,
        "seconds": {name: round(value, 6) for name, value in seconds.items()},
        "peak_bytes": peak,
        "mixing_over_isolated": round(seconds["mixing"] / seconds["isolated"], 2),
        "mixing_over_isolated_memory": round(peak["mixing"] / peak["isolated"], 2),
    }


def run(
    repeats: int = REPEATS, depths: Sequence[int] = DEPTHS, lengths: Sequence[int] = LENGTHS
) -> list[dict[str, Any]]:
    """All shapes, depths and lengths; prints a row as soon as it is known."""
    torch.set_num_threads(1)
    print(f"{'':31}{'milliseconds':>20}{'peak MiB':>20}{'ratios':>18}")
    print(
        f"{'shape':16}{'layers':>7}{'length':>8}" + f"{'mixing':>10}{'isolated':>10}" * 2 + f"{'time':>9}{'memory':>9}"
    )
    records = []
    for shape in SHAPES:
        for depth in depths:
            for length in lengths:
                one = record(shape, depth, length, repeats)
                records.append(one)
                times = "".join(f"{one['seconds'][kind] * 1e3:10.1f}" for kind in CONTENTS)
                peaks = "".join(f"{one['peak_bytes'][kind] / 2**20:10.1f}" for kind in CONTENTS)
                ratios = f"{one['mixing_over_isolated']:8.1f}x{one['mixing_over_isolated_memory']:8.1f}x"
                print(f"{shape:16}{depth:7}{length:8}{times}{peaks}{ratios}", flush=True)
    return records


def main(folder: Path, repeats: int = REPEATS, lengths: Sequence[int] = LENGTHS) -> None:
    about = {"torch": torch.__version__, "repeats": repeats, "threads": 1, "width": WIDTH, "heads": HEADS, "seed": 0}
    keep(folder, "content", run(repeats, lengths=lengths), **about, command="python -m efattn.bench.content")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "benchmarks/results"))
