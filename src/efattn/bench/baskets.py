"""An epoch of Instacart baskets, `others`, beside masked copies in plain torch; products beside their peak.

The plain version is what one writes first: every basket once for each of its items, that item masked; an embedding, two
layers of `nn.MultiheadAttention` with residual connections and a linear map, of the same sizes; cross-entropy, Adam. It
does a part of the copies, and its time is taken as proportional to them. Both run on the same threads, in turns.

The share of the peak is that of the operations of all matrix products in a step, by torch's own count, in what
the fastest product of large square matrices would do in the step's time.
"""

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from efattn.bench.keeping import keep
from efattn.bench.measure import Work, fastest
from efattn.data import Groups, Roles, Schema
from efattn.families import Categorical
from efattn.models import Model, Term
from efattn.network import Embedding, Head, ItemVectors, Stack, perceptron
from efattn.training import Fitting, Training

WIDTH, HEADS = 32, 2
TOKENS, BATCH = (8192, 1024), 1024
SHARE = 20  # of the copies, one in so many is done
ROUNDS = 3


class MaskedCopies(nn.Module):
    """items (copy, position), `items` for the mask and `items` + 1 for padding -> logits of what is masked."""

    def __init__(self, items: int) -> None:
        super().__init__()
        self.items = items
        self.embedding = nn.Embedding(items + 2, WIDTH, padding_idx=items + 1)
        self.layers = nn.ModuleList(nn.MultiheadAttention(WIDTH, HEADS, batch_first=True) for _ in range(2))
        self.head = nn.Linear(WIDTH, items)

    def forward(self, items: Tensor) -> Tensor:
        x, padding = self.embedding(items), items == self.items + 1
        for layer in self.layers:
            x = x + layer(x, x, x, key_padding_mask=padding, need_weights=False)[0]
        return self.head(x[items == self.items])


def copies(data: Groups, items: int) -> tuple[Tensor, Tensor]:
    """(copy, position), and what was masked (copy,): all baskets padded to the longest."""
    assert data.item is not None
    baskets = [torch.as_tensor(x) for x in np.split(data.item.astype(np.int64), np.cumsum(data.lengths)[:-1])]
    padded = nn.utils.rnn.pad_sequence(baskets, batch_first=True, padding_value=items + 1)
    basket, place = (padded <= items).nonzero(as_tuple=True)
    masked = padded[basket]
    target = masked.gather(1, place[:, None])[:, 0]
    return masked.scatter(1, place[:, None], items), target


def plain(data: Groups, items: int) -> Work:
    """An epoch of a part of the copies."""
    torch.manual_seed(0)
    (sequences, targets), model = copies(data, items), MaskedCopies(items)
    optimiser = torch.optim.Adam(model.parameters(), 3e-3)

    def epoch() -> None:
        order = torch.randperm(len(targets))[: len(targets) // SHARE]
        for some in order.split(BATCH):
            optimiser.zero_grad()
            F.cross_entropy(model(sequences[some]), targets[some]).backward()
            optimiser.step()

    return epoch


def term(items: int) -> Term:
    torch.manual_seed(0)
    family = Categorical(items)
    head = Head(perceptron(WIDTH, (), items), family.shared)
    return Term(Embedding(ItemVectors(items, WIDTH)), Stack(WIDTH, 2, HEADS), head, family, support="distinct")


def ours(data: Groups, items: int, tokens: int) -> float:
    """Seconds of the second epoch."""
    training = Training(epochs=2, patience=None, decay="none", tokens=tokens, device="cpu")
    fitting = Fitting(Model({"item": term(items)}), data, None, training)
    fitting.run()
    return float(fitting.history[-1]["seconds"])


def epochs(data: Groups, items: int, rounds: int) -> list[dict[str, Any]]:
    epoch, best = plain(data, items), dict[Any, float]()
    epoch()
    for _ in range(rounds):
        start = time.perf_counter()
        epoch()
        found = {"plain": (time.perf_counter() - start) * SHARE} | {t: ours(data, items, t) for t in TOKENS}
        best = {name: min(seconds, best.get(name, seconds)) for name, seconds in found.items()}
    records = []
    for tokens in TOKENS:
        one = {"what": "epoch", "rows": len(data.rows), "tokens": tokens, "plain": best["plain"], "ours": best[tokens]}
        records.append(one | {"times_as_fast": best["plain"] / best[tokens]})
        print(
            f"an epoch of {len(data.rows):,} rows: masked copies {best['plain']:.1f} s, ours with {tokens:,} tokens "
            f"{best[tokens]:.2f} s: {records[-1]['times_as_fast']:.1f}x",
            flush=True,
        )
    return records


def peak() -> float:
    """Floating point operations a second of the fastest product of square matrices."""
    n = 1024
    x, y = torch.randn(2, n, n)
    return 2 * n**3 / fastest({"product": lambda: x @ y}, 10)["product"]


def share(case: str, work: Work, top: float) -> dict[str, Any]:
    from torch.utils.flop_counter import FlopCounterMode

    seconds = fastest({"work": work}, 5)["work"]
    with FlopCounterMode(display=False) as counted:
        work()
    operations = counted.get_total_flops()
    found = {"what": "peak", "case": case, "gflop": operations / 1e9, "seconds": seconds, "peak_gflops": top / 1e9}
    found |= {"share": operations / seconds / top}
    print(
        f"{case}: {operations / seconds / 1e9:.1f} of {top / 1e9:.0f} GFLOP/s, {100 * found['share']:.0f} %", flush=True
    )
    return found


def shares(data: Groups, items: int) -> list[dict[str, Any]]:
    from efattn.bench import catalogue, conditionals

    top, model = peak(), term(items)
    batch = data.batch(data.plan(TOKENS[0], shuffle=0)[0])
    large = catalogue.term(12_000)
    many = catalogue.drawn(12_000, catalogue.TOKENS)
    works: dict[str, Work] = {
        "a step of Instacart baskets, 8,192 tokens": lambda: model.log_prob(batch).mean().backward(),
        "exact conditionals, others, length 50": conditionals.works("others", 50)["fast"],
        "exact conditionals, past, length 50": conditionals.works("past", 50)["fast"],
        "12,000 items": lambda: large.log_prob(many).mean().backward(),
    }
    return [share(case, work, top) for case, work in works.items()]


def main(folder: Path, small: bool = False) -> None:
    from efattn.datasets import instacart

    schema, data = Schema.fit_encode(instacart("train"), Roles(group="basket", item="product", order="rank"))
    items = len(schema.vocabulary or ())
    records = [*epochs(data, items, 1 if small else ROUNDS), *shares(data, items)]
    keep(
        folder, "baskets", records, threads=torch.get_num_threads(), width=WIDTH, heads=HEADS, layers=2, share=1 / SHARE
    )


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "benchmarks/results"))
