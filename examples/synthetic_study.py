"""The paper's synthetic study, straight from the library: order effects that a latent factor model cannot see.

Prints the test error of exponential family attention beside the latent factor model and the error of the model that
drew the data, for both contexts, and what a prediction looks at. Takes about half a minute on two cores. Given a
path, it writes its numbers there as JSON.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

import torch

from efattn import families
from efattn.data import Batch
from efattn.datasets import synthetic
from efattn.models import Conditionals, LatentValues, Term
from efattn.network import Context, Embedding, Head, ItemVectors, Stack, ValueMLP, perceptron

MOVIES, WIDTH, FAMILY = 5, 32, families.Gaussian(1.0)


def attention_model(context: Context) -> Term:
    """The paper's network at half its width: item and rating vectors, positions, two layers of two heads."""
    embedding = Embedding(ValueMLP(1, 32, WIDTH // 2), item=ItemVectors(MOVIES, WIDTH // 2), positions=MOVIES)
    head = Head(perceptron(WIDTH, (32,), 1), FAMILY.shared)
    return Term(embedding, Stack(WIDTH, layers=2, heads=2), head, FAMILY, context=context)


def as_batch(data: synthetic.Ratings) -> Batch:
    rows = zip(data.movie - 1, data.rating, strict=True)
    return Batch.of([{"item": movie, "value": rating} for movie, rating in rows])


def some(batch: Batch, users: torch.Tensor) -> Batch:
    fields = ("exists", "target", "item", "value", "observed", "position")
    return batch.replace(**{name: getattr(batch, name)[users] for name in fields})


def fit(model: Conditionals, train: Batch, epochs: int, rate: float) -> float:
    """Maximise the mean log-probability per target by Adam with a rate that falls to zero; gives the seconds."""
    start = time.perf_counter()
    model.start(train)
    optimiser = torch.optim.Adam(model.parameters(), rate)
    groups = len(train.exists)
    steps = epochs * -(-groups // 128)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, rate, total_steps=steps)
    for _ in range(epochs):
        for users in torch.randperm(groups).split(128):
            optimiser.zero_grad()
            (-model.log_prob(some(train, users)).mean()).backward()
            optimiser.step()
            schedule.step()
    return time.perf_counter() - start


@torch.no_grad()
def test_error(model: Conditionals, test: Batch) -> float:
    return (model.family.mean(model.outputs(test)) - test.value).square().mean().item()


def study(context: Context, data: synthetic.Ratings, records: list[dict[str, Any]]) -> Term:
    train, test = as_batch(data[:7500]), as_batch(data[7500:])
    efa, fm = attention_model(context), LatentValues(MOVIES, WIDTH, FAMILY, context=context, intercept=True)
    for name, model, epochs in (("latent factors", fm, 6), ("attention", efa, 12)):
        seconds = fit(model, train, epochs, 0.01)
        error, floor = test_error(model, test), data[7500:].floor
        print(f"{context:8} {name:16} {error:8.3f} {floor:8.3f} {seconds:8.1f}", flush=True)
        record = {"context": context, "model": name, "error": error, "floor": floor, "epochs": epochs}
        records.append(record | {"seconds": seconds})
    return efa


def show_attention(efa: Term) -> None:
    """What the prediction of movie 2 looks at, where movie 1 came earlier and where it did not."""
    for order in ((1, 3, 2, 5, 4), (4, 3, 2, 5, 1)):
        batch = Batch.of([{"item": torch.tensor(order) - 1, "value": [3.0] * 5}])
        weights = efa.attention(batch)[0].mean((0, 1))[2]  # (layer, head) averaged; the third rating is movie 2's
        print(f"movies {order}:", "  ".join(f"{movie}: {w:.2f}" for movie, w in zip(order, weights, strict=True)))


if __name__ == "__main__":
    seed = 0
    torch.manual_seed(seed)
    data = synthetic.ratings()
    print("10,000 users rate five movies in a random order; the order decides the mean. Test mean squared error:\n")
    print(f"{'context':8} {'model':16} {'error':>8} {'floor':>8} {'seconds':>8}")
    found: list[dict[str, Any]] = []
    past = study("past", data, found)
    study("others", data, found)
    print("\nWhat the rating of movie 2 looks at in the past (weights averaged over layers and heads):")
    show_attention(past)
    if len(sys.argv) > 1:
        about = {"seed": seed, "torch": torch.__version__, "threads": torch.get_num_threads()}
        Path(sys.argv[1]).write_text(json.dumps({"about": about, "records": found}, indent=1) + "\n")
