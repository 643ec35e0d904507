"""Targets that are drawn stand for all: on average over the draws, loss and gradients are those of every target."""

from itertools import combinations, product

import numpy as np
import pytest
import torch
from small import efa, ratings

from efattn import Training
from efattn.models import scoring


@pytest.mark.parametrize("context", ["past", "others"])
@pytest.mark.parametrize("term", ["item", "value"])
def test_drawn_targets_are_unbiased(monkeypatch: pytest.MonkeyPatch, context: str, term: str) -> None:
    table = ratings()
    training = Training(epochs=1, device="cpu")
    roles = {"group": "user", "item": "movie", "value": "real", "order": "at", "weight": "weight"}
    table = table.with_columns(weight=np.random.default_rng(0).integers(1, 4, len(table)))
    model = efa(terms=term, context=context, training=training, dropout=0.0)
    fitted = model.fit(table, **roles, progress=False).fitted_
    one = fitted.members[0][fitted.names[0]].double()
    groups = fitted.schema.standardise(fitted.schema.encode(table, need=("value",), sort=True))
    shortest = np.flatnonzero((groups.lengths > 2) & (groups.lengths < 7))[:2]
    batch = groups.batch(shortest, context, torch.float64)
    targets = one.targets(batch)
    assert targets.sum(1).min() > 1

    def loss(draws: int | None) -> list[torch.Tensor]:
        one.zero_grad()
        scores = one.log_prob(batch, draws)
        value = -(scores.values * scores.weight).sum() / scores.weights()
        value.backward()
        return [value.detach(), *(p.grad.clone() for p in one.parameters() if p.grad is not None)]

    expected = loss(None)
    every = [list(combinations(row.nonzero()[:, 0].tolist(), 2)) for row in targets]
    found = []
    for chosen in product(*every):
        number = targets.sum(1, keepdim=True)
        drawn = (torch.tensor(chosen), (number / 2).expand(-1, 2))
        monkeypatch.setattr(scoring, "draw", lambda scored, draws, drawn=drawn: drawn)
        found.append(loss(2))
    for k, whole in enumerate(expected):
        torch.testing.assert_close(torch.stack([x[k] for x in found]).mean(0), whole, rtol=1e-9, atol=1e-9)


def test_steps_of_long_groups_score_as_many_targets_as_tokens() -> None:
    assert Training().most_targets == Training().cells
    assert Training(tokens=70).most_targets == 70
    assert Training(draws=None).most_targets is None
    assert Training(draws=7).most_targets == 7
