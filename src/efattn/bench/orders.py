"""The joint density of a group's values: all conditionals of an order in one pass against asking one by one.

A value term as `EFA(context="any")` has it (two layers, width 32, two heads) over one group, and over as many as make
about 1,600 observations, one thread, without gradients. Asked one by one, each row is the only target, given the values
before it.
"""

import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from efattn.bench.keeping import keep
from efattn.bench.measure import fastest
from efattn.data import Batch
from efattn.families import Gaussian, Product
from efattn.models import Term, orders
from efattn.network import Embedding, Head, ItemVectors, Stack, ValueMLP, perceptron

LENGTHS, REPEATS, OBSERVATIONS = (12, 24, 50, 100, 200), 5, 1600


def term(items: int, width: int = 32) -> Term:
    torch.manual_seed(0)
    family = Product((Gaussian(),))
    embedding = Embedding(ValueMLP(1, width, width // 2), item=ItemVectors(items, width // 2), mix=(width,))
    head = Head(perceptron(width, (width,), sum(not x for x in family.shared)), family.shared)
    return Term(embedding, Stack(width, 2, 2, content="isolated"), head, family, context="any").eval()


def drawn(groups: int, length: int) -> Batch:
    torch.manual_seed(1)
    there = torch.ones(groups, length, dtype=torch.bool)
    item = torch.arange(length).expand(groups, length)
    value = torch.randn(groups, length, 1)
    return orders.stated(Batch(length, there, there, item, value, there[..., None]), 0)


@torch.no_grad()
def together(model: Term, batch: Batch) -> Tensor:
    """(batch,)"""
    return model.log_prob(batch).values.sum(1)


@torch.no_grad()
def one_by_one(model: Term, batch: Batch) -> Tensor:
    """(batch,): all groups have the same order."""
    assert batch.rank is not None
    assert batch.value is not None
    assert batch.observed is not None
    total = torch.zeros(len(batch.exists))
    for column in batch.rank[0].argsort().tolist():
        known = (batch.rank < batch.rank[:, [column]])[..., None]
        asked = batch.replace(rank=None, observed=batch.observed & known, value=batch.value * known)
        f = model.outputs(asked, torch.full((len(total), 1), column))
        total += model.family.log_prob(f, batch.value[:, [column]])[:, 0]
    return total


def record(groups: int, length: int, repeats: int) -> dict[str, Any]:
    model, batch = term(length), drawn(groups, length)
    apart = float((together(model, batch) - one_by_one(model, batch)).abs().max())
    works = {"together": lambda: together(model, batch), "one by one": lambda: one_by_one(model, batch)}
    seconds = fastest(works, repeats)
    return {
        "length": length,
        "groups": groups,
        "seconds": {name: round(value, 6) for name, value in seconds.items()},
        "one_by_one_over_together": round(seconds["one by one"] / seconds["together"], 1),
        "difference": apart,
    }


def table(records: list[dict[str, Any]]) -> str:
    """The records of one group at a time, as Markdown."""
    lines = ["| rows of a group | one pass, ms | one by one, ms | times as fast |", "|---|---|---|---|"]
    for one in records:
        if one["groups"] == 1:
            times = (f"{one['seconds'][way] * 1e3:.1f}" for way in ("together", "one by one"))
            lines.append(f"| {one['length']} | {' | '.join(times)} | {one['one_by_one_over_together']:.0f} |")
    return "\n".join(lines)


def run(repeats: int = REPEATS) -> list[dict[str, Any]]:
    """All lengths; prints a row as soon as it is known."""
    torch.set_num_threads(1)
    print(f"{'':12}{'milliseconds':>24}")
    print(f"{'length':>6}{'groups':>7}{'together':>11}{'one by one':>12}{'ratio':>9}{'difference':>12}", flush=True)
    records = []
    for length in LENGTHS:
        for groups in (1, OBSERVATIONS // length):
            one = record(groups, length, repeats)
            records.append(one)
            times = f"{one['seconds']['together'] * 1e3:11.2f}{one['seconds']['one by one'] * 1e3:12.1f}"
            print(
                f"{length:6}{groups:7}{times}{one['one_by_one_over_together']:8.1f}x{one['difference']:12.0e}",
                flush=True,
            )
    return records


def main(folder: Path) -> None:
    about = {"torch": torch.__version__, "repeats": REPEATS, "threads": 1, "layers": 2, "width": 32, "heads": 2}
    keep(folder, "orders", run(), **about, seed=0)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "benchmarks/results"))
