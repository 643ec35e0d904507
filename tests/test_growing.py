"""Groups that grow row by row: what was kept gives the rows of an ordinary pass, and draws stay what they were."""

import numpy as np
import polars as pl
import pytest
import torch
from small import efa, ratings

from efattn.inference import drawing
from efattn.models.growing import growing
from efattn.network import Stack, Visibility
from efattn.network.kept import Kept

OPTIONS = [
    {}, {"own": False}, {"norm": "pre", "feed_forward": 8}, {"norm": "post"}, {"kind": "linear", "average": True},
    {"content": "isolated", "feed_forward": 8}, {"layers": 1}, {"layers": 3},
]  # fmt: skip


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("steps", [(0, 1, 2, 3, 4, 5), (2, 5)])
def test_kept_content_gives_the_rows_of_two_streams(options, steps):
    torch.manual_seed(0)
    stack = Stack(8, **{"layers": 2, "heads": 2} | options).double().eval()
    content, masked = torch.randn(2, 3, 6, 8, dtype=torch.float64)
    exists = torch.ones(3, 6, dtype=torch.bool)
    exists[1, 2:4] = exists[2, 0] = False
    whole = stack(content, masked, Visibility.of("past", exists, 6, own=stack.own))
    kept, before = Kept(stack), 0
    for t in steps:
        kept.add(content[:, before:t], exists[:, before:t])
        row = kept.next(masked[:, t : t + 1])
        before = t
        assert torch.allclose(row, whole[:, t : t + 1], atol=1e-12), t


TABLE = ratings(users=12).with_columns(pl.col("real").round(3))
ROLES = {"group": "user", "item": "movie", "value": "real", "order": "row"}


@pytest.fixture(scope="module")
def model():
    return efa(context="past", family="gaussian").fit(TABLE, **ROLES)


@pytest.mark.parametrize("given", [False, True])
def test_draws_are_those_of_whole_passes(model, given, monkeypatch):
    holes = pl.int_range(pl.len()) % 3 == 1
    asked = {"given": TABLE.with_columns(real=pl.when(holes).then(None).otherwise("real"))} if given else {"groups": 6}
    kept = model.sample(**asked, seed=3)
    monkeypatch.setattr(drawing, "_here", lambda parts: [])
    plain = model.sample(**asked, seed=3)
    assert kept.drop("real").equals(plain.drop("real"))
    np.testing.assert_allclose(kept["real"].to_numpy(), plain["real"].to_numpy(), rtol=1e-4, atol=1e-4)


def test_it_is_used_and_ends_with_the_drawing(model):
    groups = model.fitted_.schema.standardise(model.fitted_.schema.encode(TABLE))
    batch = groups.batch(np.arange(4), "past", torch.float32)
    term = model.fitted_.members[0]["real"]
    slots = torch.full((2, 1), 1)
    some = batch.select(torch.tensor([2, 0])).first(2)
    with torch.no_grad():
        wanted = term.rows(some, slots)
        with growing([term], batch) as step:
            step(batch, 1)
            assert torch.allclose(term.rows(some, slots), wanted, atol=1e-5)
            other = term.rows(some.replace(item=some.item * 0), slots)
            assert torch.allclose(other, wanted, atol=1e-5)  # nothing is computed anew
        assert not torch.allclose(term.rows(some.replace(item=some.item * 0), slots), wanted, atol=1e-5)
