"""The additive logit of items: its formula, who sees whom, how it is fitted, once and once more."""

import math
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
import torch
from small import efa, ratings

import efattn
from efattn import SimpleModel, Training, simple
from efattn.data import Batch, Roles, Schema
from efattn.estimators import companions
from efattn.families import Categorical
from efattn.network import Gaps
from efattn.simple import Setting
from efattn.simple.additive_logit import RANKS

ITEMS = 6
ROLES = {"group": "user", "item": "movie", "order": "at"}
SETTING = Setting(Categorical(ITEMS), ITEMS)
CASES = {
    "baskets": {},
    "distinct": {"support": "distinct"},
    "ordered": {"ordered": True},
    "timed": {"ordered": True, "times": True},
    "time hidden": {"ordered": True, "times": True, "own_time": False},
    "lags": {"ordered": True, "times": True, "lags": 2},
    "lags, time hidden": {"times": True, "own_time": False, "lags": 2},
    "attributes": {"attributes": 3, "own_attributes": (True, False, True)},
}
EVERY = pytest.mark.parametrize("case", CASES)
BOTH = pytest.mark.parametrize("context", ["others", "past"])


def drawn(case, context, seed=0):
    """A model with random weights, and ragged groups with unknown items, the second one padded."""
    torch.manual_seed(seed)
    model = simple.AdditiveLogit(rank=8).build(replace(SETTING, context=context, **CASES[case])).double()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter)
    if model.gaps is not None:
        model.gaps.unit.fill_(0.7)
    rng = np.random.default_rng(seed)
    groups = []
    for n in (5, 3):
        lag = [0] * n + ([1, 1, 2] if model.lags else [])
        item = rng.permutation(ITEMS)[:n].tolist() + rng.integers(0, ITEMS, len(lag) - n).tolist()
        item[1] = ITEMS  # unknown
        when = np.concatenate([np.sort(rng.random(n)) * 50, -np.arange(1, len(lag) - n + 1) * 7.0])
        groups.append({"item": item, "lag": lag, "when": when, "attributes": rng.normal(size=(len(lag), 3))})
    return model, Batch.of(groups, torch.float64), groups


def literal(model, group, i):
    """f of row i of one group, by the definition."""
    item, lag, when = group["item"], group["lag"], group["when"]
    n = lag.count(0)
    sees = [j for j in range(len(item)) if j >= n or (j < i if model.context == "past" else j != i)]
    before = [when[j] for j in sees if j < i or j >= n]
    mine = when[i] if model.own_time else max(before) if before else min([when[j] for j in sees], default=0.0)
    tables = model.by_rank[..., None] + model.by_time[:, None]
    weights = {}
    for j in sees:
        if item[j] == ITEMS:
            continue
        kind = model.near - 1 + lag[j] if j >= n else 0
        if j < n and model.ordered:
            kind = RANKS + int(math.copysign(math.ceil(math.log2(abs(i - j))) + 1, i - j))
        apart = (mine - when[j]) / 0.7
        time = int(math.copysign(round(math.log2(1 + abs(apart))), apart)) + Gaps.size // 2 if model.gaps else 0
        weights[j] = tables[:, kind, time].exp()
    f = model.bias.clone()
    scale = sum(weights.values()) ** -torch.sigmoid(model.power) if weights else 0.0
    vectors = model.inward.unflatten(-1, (4, 2))  # four heads of two numbers, the last two bent
    z = sum(((w * scale)[:, None] * vectors[item[j]] for j, w in weights.items()), torch.zeros(4, 2).double())
    z = torch.cat([z[:2], (z[2:] + model.hinge).clamp_min(0)]).flatten()
    f = f + model.outward @ z
    for j, w in weights.items():
        if model.repeats:
            f = f + (w * scale)[0] * model.again[item[j]] * torch.eye(ITEMS).double()[item[j]]
    if model.shown:
        f = f + model.of_attributes @ torch.as_tensor(group["attributes"][i][list(model.shown)])
    return f


@BOTH
@EVERY
def test_it_is_its_formula(case, context):
    model, batch, groups = drawn(case, context)
    f = model.raw_outputs(batch, torch.arange(batch.length).expand(2, -1))
    for g, group in enumerate(groups):
        for i in range(group["lag"].count(0)):
            torch.testing.assert_close(f[g, i], literal(model, group, i), rtol=1e-9, atol=1e-9)


@BOTH
@EVERY
def test_a_target_never_sees_its_own_item_nor_a_hidden_time(case, context):
    model, batch, _ = drawn(case, context)
    for i in range(batch.length):
        slots = torch.full((2, 1), i)
        f = model.raw_outputs(batch, slots)
        item, when = batch.item.clone(), batch.when.clone()
        item[:, i] = (item[:, i] + 1) % (ITEMS + 1)
        assert torch.equal(f, model.raw_outputs(batch.replace(item=item), slots))
        when[:, i] += 3.0
        hidden = model.gaps is None or not model.own_time
        assert torch.equal(f, model.raw_outputs(batch.replace(when=when), slots)) or not hidden


@BOTH
def test_some_targets_at_a_time_are_the_same_as_all(context, monkeypatch):
    model, batch, _ = drawn("timed", context)
    slots = torch.arange(batch.length).expand(2, -1)
    whole = model.raw_outputs(batch, slots)
    monkeypatch.setattr("efattn.simple.additive_logit.NUMBERS", 8 * batch.exists.numel())
    torch.testing.assert_close(model.raw_outputs(batch, slots), whole)
    torch.testing.assert_close(model.raw_outputs(batch, slots[:, 1:3]), whole[:, 1:3])


# ---- fitted


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    """As many steps as these tables need."""
    monkeypatch.setattr("efattn.simple.additive_logit.MOST", 160)


def chain(groups, seed=0, items=6):
    """Each item is followed by the next one, most of the time; hours between rows."""
    rng, rows = np.random.default_rng(seed), []
    for g in range(groups):
        x, at = int(rng.integers(items)), 0.0
        for _ in range(8):
            rows.append({"user": g, "movie": x, "at": at})
            x = (x + 1) % items if rng.random() < 0.8 else int(rng.integers(items))
            at += float(rng.integers(1, 100))
    return pl.DataFrame(rows)


def encoded(table, when=False):
    return Schema.fit_encode(table, Roles(**ROLES), when=when)[1]


def fitted(table, held=None, when=False, recipe=None, **setting):
    groups = encoded(table, when)
    size = len(groups.vocabulary)
    known = Setting(Categorical(size), size, ordered=True, times=groups.when is not None, **setting)
    model = (recipe or simple.AdditiveLogit()).build(known)
    model.fit(groups, held)
    return model


def test_it_learns_what_follows_what():
    test = encoded(chain(100, seed=1))
    score = fitted(chain(80), context="past").score(test)
    assert score > fitted(chain(80), context="past", recipe=simple.MarkovChain()).score(test) - 0.05
    assert score > fitted(chain(80), context="past", recipe=simple.Popularity()).score(test) + 0.5


@pytest.mark.parametrize("groups", [3, 30])
def test_where_there_is_nothing_to_learn_it_is_popularity(groups):
    rng = np.random.default_rng(groups)

    def noise(n):
        each = {"user": np.repeat(np.arange(n), 5), "movie": rng.choice(8, 5 * n, p=np.arange(1, 9) / 36)}
        return pl.DataFrame({**each, "at": np.tile(np.arange(5), n)})

    table = noise(groups).vstack(pl.DataFrame({"user": [-1] * 8, "movie": range(8), "at": range(8)}))
    test = encoded(noise(400))
    assert fitted(table).score(test) > fitted(table, recipe=simple.Popularity()).score(test) - 0.03


def test_what_was_fitted_once_more_took_the_same_course():
    table, held = chain(40), encoded(chain(20, seed=3))
    model = fitted(table, held)
    again = fitted(table, recipe=simple.AdditiveLogit(**model.chosen_options()))
    assert again.chosen_options() == model.chosen_options()
    assert sum(steps for _, steps in model.course) > 0
    assert again.score(held) == pytest.approx(model.score(held), abs=0.02)


def test_a_companion_is_fitted_to_all_groups_once_more():
    calm, recipe = Training(epochs=2, tokens=64, device="cpu"), simple.AdditiveLogit()
    options = {"companions": recipe, "terms": "item", "training": calm, "context": "past", "gaps": False}
    once, again = (efa(**options, refit=refit).fit(chain(40), **ROLES, validation=0.2) for refit in (False, True))
    one, two = (model.companions_["item"][0] for model in (once, again))
    assert one.share == two.share > 0.5
    assert one.recipe == two.recipe == recipe
    assert not torch.equal(one.model.inward, two.model.inward)


def test_time_seen_or_hidden_a_file_says_the_same(tmp_path):
    table = ratings(users=24).with_columns(at=pl.col("at") * 1000 + pl.int_range(pl.len()) ** 2 % 900)
    model = SimpleModel(simple.AdditiveLogit(), context="past").fit(table, **ROLES)
    assert model.model_["item"].gaps is not None
    model.save(tmp_path / "m.efattn")
    again = efattn.load(tmp_path / "m.efattn")
    assert again.score(table) == model.score(table)
    assert again.recommend(table.head(9), k=3).equals(model.recommend(table.head(9), k=3))


def test_it_is_offered_where_an_epoch_is_quick(monkeypatch):
    asked = []
    efa(companions=None).fit(ratings(users=24), group="user", item="movie", planned=asked.append, progress=False)
    logit, chain_, popular = simple.AdditiveLogit(), simple.MarkovChain(), simple.Popularity()
    few = [simple.ItemLogit(), simple.EASE()]
    assert companions._offers(asked[0]) == [logit, *few, popular]
    assert companions._offers(asked[0], "past") == [logit, *few, chain_, simple.LatePopularity(), popular]
    monkeypatch.setattr(companions, "MANY", 2)
    assert companions._offers(asked[0]) == [logit, *few, simple.ItemNeighbours(), popular]
    monkeypatch.setattr(companions, "CATEGORIES", 2)
    monkeypatch.setattr(companions, "STATES", 2)
    assert companions._offers(asked[0]) == [logit, simple.ItemNeighbours(), popular]
    monkeypatch.setattr(companions, "LOGITS", 10.0)
    assert companions._offers(asked[0]) == [popular]


def test_attributes_that_tell_nothing_of_the_item_are_used():
    rng = np.random.default_rng(0)
    price = rng.normal(size=(400, 2))
    item = (price[:, 0] > price[:, 1]).astype(int)
    table = pl.DataFrame({"user": np.repeat(np.arange(100), 4), "movie": item, "a": price[:, 0], "b": price[:, 1]})
    groups = Schema.fit_encode(table, Roles(group="user", item="movie", attributes=("a", "b")))[1]
    scores = []
    for own in ((), (True, True)):
        model = simple.AdditiveLogit().build(Setting(Categorical(2), 2, attributes=2, own_attributes=own))
        model.fit(groups)
        scores.append(model.score(groups))
    assert scores[1] > scores[0] + 0.3
