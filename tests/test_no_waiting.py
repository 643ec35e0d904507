"""A step of training never waits for the device: no number is read from it, and nothing is sent that is not ahead.

The device here is torch's `meta`, which has shapes and no numbers: whoever asks it for one gets an error, as for
whatever depends on one (which rows are true, how many there are). What is sent from the CPU is seen by a dispatch mode.
"""

import copy
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
import torch
from small import efa, ratings, weather
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from efattn import Training
from efattn.data import Roles, Schema
from efattn.data.batch import LAYOUT
from efattn.data.resident import Resident
from efattn.network import gaps
from efattn.training import loop

META = torch.device("meta")


class Sent(TorchDispatchMode):
    """What has something of the CPU among what it is given, and something of the device among what it makes."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        made = function(*arguments, **(options or {}))
        given = [x.device.type for x in tree_leaves((arguments, options)) if isinstance(x, torch.Tensor)]
        there = [x.device.type for x in tree_leaves(made) if isinstance(x, torch.Tensor)]
        if "cpu" in given and "meta" in (*given, *there):
            self.seen.append(str(function))
        return made


class Done(Exception):
    """What ends a fit whose first step has been looked at."""


TIMED = ratings().with_columns(at=pl.col("at") * 1000.0 + pl.Series(np.arange(len(ratings())) % 7))
CASES = {
    "items, distinct": ({"terms": "item", "support": "distinct"}, {"item": "movie"}),
    "items, past, times": ({"terms": "item", "context": "past"}, {"item": "movie", "order": "at"}),
    "values": ({"terms": "value", "dropout": 0.2}, {"item": "movie", "value": "real"}),
    "values of two columns": ({"terms": "value"}, {"item": "movie", "value": ["real", "size"]}),
    "counts with exposure": (
        {"terms": "value", "family": "poisson"},
        {"item": "movie", "value": "count", "exposure": "hours", "attributes": ["x"]},
    ),
    "drawn targets": (
        {"terms": "value", "layers": 3, "training": Training(draws=2, tokens=64, device="cpu")},
        {"item": "movie", "value": "rating"},
    ),
    "running mean": (
        {"terms": "value", "training": Training(average=0.9, tokens=64, device="cpu")},
        {"item": "movie", "value": "liked"},
    ),
}


def looked_at(monkeypatch, fit):
    """What the second step of a fit sends to its device."""
    sent = Sent()

    def epoch(self):
        model = copy.deepcopy(self.fitting.model).to(META)
        there = loop._Term(replace(self.fitting, model=model), self.name, META)
        first, second = there.train.of(there.one_pass(0)[:1] * 2)
        there.step(first, 1e-3, 0)
        with sent:
            there.step(second, 1e-3, 1)
        raise Done

    monkeypatch.setattr(loop._Term, "epoch", epoch)
    with pytest.raises(Done):
        fit()
    return sent.seen


@pytest.mark.parametrize("case", CASES)
def test_a_step_never_waits(monkeypatch, case):
    options, roles = CASES[case]
    table = TIMED if "order" in roles else ratings()
    assert looked_at(monkeypatch, lambda: efa(**options).fit(table, group="user", **roles)) == []


def test_a_step_with_neighbours_and_lags_never_waits(monkeypatch):
    roles = {"group": "day", "item": "station", "attributes": ["latitude", "longitude"], "value": "tmax"}
    options = {"terms": "value", "lags": 1, "neighbours": 2}
    fit = lambda: efa(**options).fit(weather(), time="day", **roles)  # noqa: E731
    assert looked_at(monkeypatch, fit) == []


def test_a_step_of_a_wide_table_never_waits(monkeypatch):
    columns = ratings().select("real", "count", "liked", "rating", "size")
    assert looked_at(monkeypatch, lambda: efa().fit_wide(columns)) == []


def test_gaps_are_learnt_by_the_same_sums_on_any_device(monkeypatch):
    torch.manual_seed(0)
    gap, weight = torch.randint(55, (3, 4, 7, 7)), torch.randn(3, 4, 2, 7, 7, dtype=torch.float64)
    found = []
    for room in (None, 2**10, 2**26):
        table = torch.randn(2, 55, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).requires_grad_()
        if room is None:
            out = gaps.looked_up(table, gap)
        else:
            monkeypatch.setattr(gaps, "ROOM", room)
            out = gaps._LookedUp.apply(table, gap)
        (out * weight).sum().backward()
        found.append((out.detach(), table.grad))
    for out, gradient in found[1:]:
        assert torch.equal(out, found[0][0])
        torch.testing.assert_close(gradient, found[0][1], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("context", ["past", "others"])
@pytest.mark.parametrize("longest", [None, 3])
def test_batches_gathered_on_a_device_are_those_that_are_sent_there(context, longest):
    table = ratings().with_columns(pl.when(pl.col("x") > 3).then(None).otherwise("real").alias("real"))
    table = table.with_columns(goal=pl.col("rating") > 2, day=pl.col("user").str.slice(1).cast(int))
    roles = Roles(
        group="user", item="movie", value=("real", "size"), attributes=("x", "z"), order="at", time="day",
        exposure="hours", weight="share", target="goal",
    )  # fmt: skip
    _, groups = Schema.fit_encode(table, roles, lags=1, max_length=longest, when=True)
    there = Resident(groups, torch.device("cpu"))
    for pieces in groups.plan(60, shuffle=0):
        one, two = groups.batch(pieces, context), there.batch(pieces, context)
        assert one.length == two.length
        for name in LAYOUT:
            x, y = getattr(one, name), getattr(two, name)
            assert (x is None) == (y is None), name
            assert x is None or (x.dtype == y.dtype and torch.equal(x, y)), name
