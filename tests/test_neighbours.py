"""EASE, neighbours, longer chains: what an item adds is its definition; scores become probabilities by likelihood."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
import torch
from small import efa, ratings

import efattn
from efattn import DataError, SimpleModel, simple
from efattn.data import Batch, Roles, Schema
from efattn.families import Categorical
from efattn.simple import Setting, neighbours

RECIPES = [simple.EASE(), simple.ItemNeighbours()]
DRAW = np.random.default_rng(0)


def table(users=60, items=9, repeats=False, seed=0):
    """Items of one half go together, and the next is often the one after."""
    draw, rows = np.random.default_rng(seed), []
    for user in range(users):
        half, at = draw.integers(2), draw.integers(items)
        for k in range(draw.integers(1, 6)):
            at = (at + 1) % items if draw.random() < 0.5 else draw.integers(items // 2) + half * (items // 2)
            rows.append({"user": user, "item": f"i{at}", "at": k})
    made = pl.DataFrame(rows)
    return made if repeats else made.unique(["user", "item"], keep="first", maintain_order=True)


def encoded(frame):
    schema = Schema.fit(frame, Roles(group="user", item="item", order="at"))
    return schema, schema.encode(frame)


def built(recipe, items, context="past", support="distinct"):
    return recipe.build(Setting(Categorical(items), items, context, support))


def has(frame, names):
    """X (group, item)"""
    groups = frame["user"].unique(maintain_order=True).to_list()
    x = np.zeros((len(groups), len(names)))
    for user, item in frame.select("user", "item").rows():
        x[groups.index(user), names.index(item)] = 1
    return x


def dense(model):
    size = model.family.size
    return torch.zeros(size, size).scatter_(1, model.get_buffer("added_to").long(), model.get_buffer("amount")).numpy()


@pytest.mark.parametrize("pairs", [1, 50, 2**24])
def test_pairs_are_counted_once_a_group_however_few_at_a_time(pairs, monkeypatch):
    frame = table(repeats=True)
    schema, groups = encoded(frame)
    monkeypatch.setattr(neighbours, "PAIRS", pairs)
    counts, x = neighbours.counted(groups, len(schema.vocabulary)), has(frame, schema.vocabulary.names)
    both = np.zeros((x.shape[1],) * 2)
    both[counts.one, counts.two] = counts.both
    np.testing.assert_array_equal(both + np.diag(counts.each), x.T @ x)


def test_ease_is_a_ridge_regression_of_each_item_on_the_others():
    frame = table()
    schema, groups = encoded(frame)
    x = has(frame, schema.vocabulary.names)
    model = built(simple.EASE(penalty=3.0), x.shape[1])
    model.fit(groups)
    for item in range(x.shape[1]):
        rest = np.delete(np.arange(x.shape[1]), item)
        wanted = np.linalg.solve(x[:, rest].T @ x[:, rest] + 3 * np.eye(len(rest)), x[:, rest].T @ x[:, item])
        np.testing.assert_allclose(dense(model)[rest, item], wanted, rtol=1e-5, atol=1e-6)
        assert dense(model)[item, item] == 0


def test_neighbours_are_shrunk_cosines():
    frame = table()
    schema, groups = encoded(frame)
    x = has(frame, schema.vocabulary.names)
    model = built(simple.ItemNeighbours(penalty=2.0), x.shape[1])
    model.fit(groups)
    n = x.sum(0)
    wanted = (x.T @ x) / (np.sqrt(np.outer(n, n)) + 2)
    np.testing.assert_allclose(dense(model), wanted - np.diag(np.diag(wanted)), rtol=1e-6)


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda x: type(x).__name__)
@pytest.mark.parametrize("context", ["past", "others"])
@pytest.mark.parametrize("support", ["all", "distinct"])
@pytest.mark.parametrize("largest", [None, 3])
def test_outputs_are_a_literal_loop_over_rows_of_the_context(recipe, context, support, largest, monkeypatch):
    if largest is not None:
        monkeypatch.setattr(neighbours, "FULL", 4)
        monkeypatch.setattr(neighbours, "LARGEST", largest)
    frame = table(repeats=support == "all")
    schema, groups = encoded(frame)
    size = len(schema.vocabulary)
    model = built(recipe, size, context, support).double()
    model.fit(groups)
    monkeypatch.setattr(neighbours, "CELLS", 3 * size)
    chosen, b, share = model.chosen_options(), dense(model.float()), model.get_buffer("log_share").numpy()
    model = model.double()
    items = [[0, 1, size, 2], [3], [4, 5]] + ([[1, 1, 2, 1]] if support == "all" else [])
    f = model.raw_outputs(batch := Batch.of([{"item": x} for x in items], torch.float64), every(batch))
    for g, row in enumerate(items):
        for i in range(len(row)):
            near = [j for j in range(len(row)) if (j < i if context == "past" else j != i) and row[j] < size]
            w = {j: chosen["decay"] ** (i - j - 1) if context == "past" else 1.0 for j in near}
            total = max(sum(w.values()), 1e-12) ** chosen["power"]
            wanted = chosen["popularity"] * share + chosen["sharpness"] * sum(w[j] * b[row[j]] for j in near) / total
            if support == "all":
                for j in near:
                    wanted[row[j]] += chosen["again"] * w[j] / total
            np.testing.assert_allclose(f[g, i].numpy(), wanted, rtol=1e-5, atol=1e-6)


def every(batch):
    return torch.arange(batch.length).expand(len(batch.exists), -1)


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda x: type(x).__name__)
@pytest.mark.parametrize("context", ["past", "others"])
def test_a_target_never_sees_itself(recipe, context):
    schema, groups = encoded(table())
    model = built(recipe, len(schema.vocabulary), context)
    model.fit(groups)
    one, two = (Batch.of([{"item": [0, 1, x, 3]}]) for x in (2, 5))
    assert torch.equal(model.raw_outputs(one, every(one))[:, 2], model.raw_outputs(two, every(two))[:, 2])
    assert not torch.equal(model.raw_outputs(one, every(one))[:, 3], model.raw_outputs(two, every(two))[:, 3])


def test_weights_are_where_no_step_makes_held_out_rows_more_probable():
    s, r = (torch.as_tensor(DRAW.normal(size=(40, 7))) for _ in range(2))
    q = torch.as_tensor(DRAW.normal(size=7)).expand(40, -1)
    target, out = (s + 0.3 * q + torch.as_tensor(DRAW.gumbel(size=(40, 7)))).argmax(1), torch.zeros(40, 7).bool()
    out[:, 0] = target != 0
    theta, score = neighbours.newton([s, q, r], target, out, [None, None, None], [0.0, 1.0, 0.0])
    for step in torch.eye(3).tolist():
        for sign in (-0.01, 0.01):
            near = [x + sign * y for x, y in zip(theta, step, strict=True)]
            assert neighbours.newton([s, q, r], target, out, near, near)[1] < score + 1e-6
    kept, _ = neighbours.newton([s, q, r], target, out, [None, 0.5, 0.0], [0.0, 1.0, 0.0])
    assert kept[1:] == [0.5, 0.0]


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda x: type(x).__name__)
def test_it_is_ahead_of_popularity_where_items_go_together_and_is_fitted_again_as_chosen(recipe):
    frame, test = table(300), table(100, seed=1)
    roles = {"group": "user", "item": "item", "order": "at"}
    model = SimpleModel(recipe, context="past").fit(frame, **roles)
    plain = SimpleModel(simple.Popularity(), context="past").fit(frame, **roles)
    assert model.score(test) > plain.score(test) + 0.02
    chosen = model.model_["item"].chosen_options()
    again = SimpleModel(replace(recipe, **chosen), context="past").fit(frame, **roles)
    np.testing.assert_allclose(again.score(test), model.score(test), rtol=1e-6)


def test_of_many_items_each_adds_to_those_it_adds_most_to(monkeypatch):
    frame = table()
    schema, groups = encoded(frame)
    size = len(schema.vocabulary)
    whole = built(simple.EASE(penalty=3.0), size)
    whole.fit(groups)
    monkeypatch.setattr(neighbours, "FULL", 4)
    monkeypatch.setattr(neighbours, "LARGEST", 3)
    monkeypatch.setattr(neighbours, "POPULAR", 5)
    few = built(simple.EASE(penalty=3.0), size)
    few.fit(groups)
    full = dense(whole)
    least = np.sort(np.abs(full), 1)[:, -3:-2]
    np.testing.assert_allclose(dense(few), np.where(np.abs(full) >= least, full, 0.0), rtol=1e-6)
    assert built(simple.ItemNeighbours(), size).fit(groups) is None


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda x: type(x).__name__)
def test_it_is_kept_in_a_file_and_is_a_companion(recipe, tmp_path):
    frame, roles = ratings(), {"group": "user", "item": "movie", "order": "at"}
    for name, model in (
        ("simple", SimpleModel(recipe, context="past")),
        ("companion", efa(context="past", companions=recipe)),
    ):
        model.fit(frame, **roles)
        model.save(tmp_path / f"{name}.efattn")
        assert efattn.load(tmp_path / f"{name}.efattn").recommend(frame, 3).equals(model.recommend(frame, 3))


def test_a_chain_over_the_last_few_rows_is_a_mixture_of_what_follows_each():
    frame = table(80, repeats=True)
    schema, groups = encoded(frame)
    size = len(schema.vocabulary)
    model = built(simple.MarkovChain(strength=2.0, last=3, decay=0.6), size, support="all")
    model.fit(groups)
    item, step = groups.item, np.zeros((size + 2, size))
    popular = (np.bincount(item, minlength=size) + 0.5) / (len(item) + 0.5 * size)
    for i in range(len(item)):
        start = groups.offsets[groups.group[i]]
        if i == start:
            step[size + 1, item[i]] += 1
        for back in range(1, min(i - start, 3) + 1):
            step[item[i - back], item[i]] += 0.6 ** (back - 1)
    step = (step + 2 * popular) / (step.sum(1, keepdims=True) + 2)
    batch = Batch.of([{"item": [0, 1, size, 2, 1]}, {"item": [3, 4]}])
    p = model.raw_outputs(batch, every(batch)).exp().numpy()
    for g, row in enumerate([[0, 1, size, 2, 1], [3, 4]]):
        for i in range(len(row)):
            weights = {i - back: 0.6 ** (back - 1) for back in range(1, min(i, 3) + 1)}
            mixed = sum(w * step[row[j]] for j, w in weights.items())
            wanted = mixed / sum(weights.values()) if weights else step[size + 1]
            np.testing.assert_allclose(p[g, i], wanted, rtol=1e-5)
    chosen = built(simple.MarkovChain(last=3), size, support="all")
    chosen.fit(groups)
    assert set(chosen.chosen_options()) == {"strength", "decay"}
    assert set(built(simple.MarkovChain(), size).chosen_options()) == {"strength"}


@pytest.mark.parametrize("last", [1, 3])
@pytest.mark.parametrize("support", ["all", "distinct"])
def test_a_chain_that_keeps_every_follower_equals_the_table_of_all_pairs(last, support):
    frame = table(80, repeats=support == "all")
    schema, groups = encoded(frame)
    size = len(schema.vocabulary)
    whole, kept = (
        built(simple.MarkovChain(last=last, followers=number), size, support=support) for number in (None, size)
    )
    for model in (whole, kept):
        model.fit(groups)
    assert kept.chosen_options() == pytest.approx(whole.chosen_options())
    for batch in groups.batches(256, context="past"):
        there = batch.exists[:, : batch.length]
        literal = whole.outputs(batch)[there].log_softmax(-1)
        np.testing.assert_allclose(kept.outputs(batch)[there].log_softmax(-1), literal, atol=1e-4)
        formed = kept.logits(batch, every(batch), there).formed().log_softmax(-1)
        np.testing.assert_allclose(formed, literal, atol=1e-4)


def test_a_chain_of_few_followers_keeps_those_that_followed_most():
    groups = encoded(pl.DataFrame({"user": [1] * 7, "item": [0, 1, 0, 1, 0, 2, 0], "at": range(7)}))[1]
    model = built(simple.MarkovChain(strength=1.0, followers=1), 3, support="all")
    model.fit(groups)
    assert model.get_buffer("follower")[0, 0] == 1
    assert model.get_buffer("count_")[0, 0] == 2
    with pytest.raises(DataError, match="followers"):
        built(simple.MarkovChain(followers=0), 5)


@pytest.mark.parametrize(
    "options", [{"penalty": 0}, {"decay": 2.0}, {"decay": 0}, {"power": -1}, {"sharpness": "much"}]
)
def test_what_cannot_be_is_refused(options):
    with pytest.raises(DataError, match=next(iter(options))):
        built(simple.EASE(**options), 5)
    with pytest.raises(DataError, match="a number of rows"):
        built(simple.MarkovChain(last=0), 5)
    with pytest.raises(DataError, match="at most"):
        simple.EASE().build(Setting(Categorical(20_000), 20_000))
