"""Many items: the loss of a step in blocks against the same with its (token, item) arrays formed whole.

Forward and backward of an item term (two layers, width 64, `past`, distinct items) over groups of eight rows, one
thread. Of a million items the batch is smaller, so that the whole arrays fit into memory. The blocks alone are measured
with the batch as it was, too. Then the parts of a training step: the exact loss, or that of candidates which stand for
all others, and what Adam takes to update all item vectors, or those that were touched.
"""

import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from efattn.bench.keeping import keep
from efattn.bench.measure import Work, fastest, peak_bytes
from efattn.data import Batch
from efattn.families import Categorical
from efattn.models import Term
from efattn.network import Candidates, Embedding, Head, ItemVectors, Stack, perceptron
from efattn.training.optimiser import Adam, clip
from efattn.training_options import DRAWN

ITEMS = (1_000, 12_000, 100_000, 1_000_000)
TOKENS, LENGTH, WIDTH = 1024, 8, 64
CELLS = 2**27  # of an array of tokens by items
REPEATS = 10  # at most
PARTS = ("loss", "update")


def term(items: int) -> Term:
    torch.manual_seed(0)
    family = Categorical(items)
    embedding, head = Embedding(ItemVectors(items, WIDTH)), Head(perceptron(WIDTH, (), items), family.shared)
    return Term(embedding, Stack(WIDTH, 2, 2), head, family, context="past", support="distinct")


def drawn(items: int, tokens: int) -> Batch:
    item = torch.stack([torch.randperm(items)[:LENGTH] for _ in range(max(tokens // LENGTH, 1))])
    there = torch.ones_like(item, dtype=torch.bool)
    return Batch(LENGTH, there, there, item)


def blocks(model: Term, batch: Batch) -> Tensor:
    return model.log_prob(batch).mean()


def whole(model: Term, batch: Batch) -> Tensor:
    """The definition: every position's outputs, masked, and their logarithm of the softmax."""
    assert batch.item is not None
    scored = model.targets(batch)
    f = torch.where(scored[..., None], model.outputs(batch), 0.0)
    values = model.family.log_prob(f, torch.where(scored, batch.item, 0))
    return torch.where(scored, values, 0.0).sum() / scored.sum()


def work(loss: Any, model: Term, batch: Batch) -> Work:
    def step() -> None:
        loss(model, batch).backward()
        model.zero_grad(set_to_none=True)

    return step


def difference(model: Term, batch: Batch) -> dict[str, float]:
    """Of the losses, and of the gradients relative to the largest of each."""
    losses, gradients = [], []
    for form in (blocks, whole):
        model.zero_grad(set_to_none=True)
        loss = form(model, batch)
        loss.backward()
        losses.append(float(loss.detach()))
        gradients.append([p.grad for p in model.parameters() if p.grad is not None])
    apart = [float((x - y).abs().max() / y.abs().max()) for x, y in zip(*gradients, strict=True) if y.abs().max() > 0]
    return {"loss": abs(losses[0] - losses[1]), "gradients": max(apart)}


def parts(model: Term, batch: Batch, repeats: int) -> dict[str, float]:
    """Seconds of the loss with its gradients and of the update, clipping included, of a training step."""
    parameters = list(model.parameters())
    adam = Adam(parameters, 1e-3, 0.01)

    def loss() -> None:
        for p in parameters:
            p.grad = None
        (-blocks(model, batch)).backward()

    def update() -> None:
        clip(parameters, 1.0)
        adam.step()

    return {name: round(x, 6) for name, x in fastest({"loss": loss, "update": update}, repeats).items()}


def training(items: int, repeats: int) -> dict[str, dict[str, float]]:
    """The same of the exact loss, and of one with candidates where there are many times as many items as those."""
    model, batch = term(items).train(), drawn(items, TOKENS)
    found = {"exact": parts(model, batch, repeats)}
    if items > 4 * DRAWN:
        model.draw_candidates(Candidates(torch.ones(items), DRAWN))
        found["candidates"] = parts(model, batch, max(repeats, 3))
    return found


def record(items: int, repeats: int) -> dict[str, Any]:
    model, tokens = term(items), min(TOKENS, CELLS // items)
    batch = drawn(items, tokens)
    works = {"blocks": work(blocks, model, batch), "whole": work(whole, model, batch)}
    apart = difference(model, batch)
    seconds = fastest(works, repeats)
    peak = {name: peak_bytes(one) for name, one in works.items()}
    found: dict[str, Any] = {
        "items": items,
        "tokens": batch.exists.numel(),
        "seconds": {name: round(value, 6) for name, value in seconds.items()},
        "peak_bytes": peak,
        "blocks_over_whole": round(seconds["blocks"] / seconds["whole"], 3),
        "whole_over_blocks_memory": round(peak["whole"] / peak["blocks"], 2),
        "difference": apart,
        "training": training(items, 1 if tokens < TOKENS else repeats),
    }
    if tokens < TOKENS:
        usual = work(blocks, model, drawn(items, TOKENS))
        alone = {"tokens": TOKENS, "seconds": found["training"]["exact"]["loss"]}
        found["blocks_alone"] = alone | {"peak_bytes": peak_bytes(usual)}
    return found


def run(repeats: int = REPEATS, most: int = ITEMS[-1]) -> list[dict[str, Any]]:
    """All numbers of items up to `most`; prints a row as soon as it is known."""
    torch.set_num_threads(1)
    print(f"{'':15}{'milliseconds':>20}{'peak MiB':>20}{'ratios':>26}{'difference':>20}")
    print(f"{'items':>9}{'rows':>6}" + f"{'blocks':>10}{'whole':>10}" * 2, end="")
    print(f"{'blocks/whole':>15}{'memory':>11}{'loss':>10}{'gradients':>10}", flush=True)
    records = []
    for items in (x for x in ITEMS if x <= most):
        one = record(items, max(min(repeats, 10**6 // items), 2))
        records.append(one)
        times = "".join(f"{one['seconds'][name] * 1e3:10.1f}" for name in ("blocks", "whole"))
        peaks = "".join(f"{one['peak_bytes'][name] / 2**20:10.1f}" for name in ("blocks", "whole"))
        ratios = f"{one['blocks_over_whole']:14.2f}x{one['whole_over_blocks_memory']:10.1f}x"
        apart = f"{one['difference']['loss']:10.0e}{one['difference']['gradients']:10.0e}"
        print(f"{items:9}{one['tokens']:6}{times}{peaks}{ratios}{apart}", flush=True)
    _print_training(records)
    return records


def _print_training(records: list[dict[str, Any]]) -> None:
    print(f"\na step of {TOKENS} rows, milliseconds{'all items, exactly':>26}{f'{DRAWN} candidates':>22}")
    print(f"{'items':>9}{'':25}" + f"{'loss':>11}{'update':>11}" * 2)
    for one in records:
        cells = [one["training"][way][part] * 1e3 for way in one["training"] for part in PARTS]
        print(f"{one['items']:9}{'':25}" + "".join(f"{x:11.1f}" for x in cells), flush=True)


def main(folder: Path, repeats: int = REPEATS, most: int = ITEMS[-1]) -> None:
    about = {"torch": torch.__version__, "repeats": repeats, "threads": 1, "layers": 2, "width": WIDTH}
    about |= {"candidates": DRAWN, "command": "efattn bench catalogue"}
    keep(folder, "catalogue", run(repeats, most), **about)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "benchmarks/results"))
