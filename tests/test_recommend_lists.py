"""Lists that are diverse, explained, or chosen by features; histories that grow."""

import json

import numpy as np
import polars as pl
import pytest
import torch
from typer.testing import CliRunner

from efattn import EFA, SimpleModel, simple
from efattn.cli import app
from efattn.errors import DataError
from efattn.inference.diversity import directions, diverse
from efattn.training import Training

ROLES = {"group": "user", "item": "item", "order": "at", "progress": False}


@pytest.fixture(scope="module")
def model() -> EFA:
    draw = np.random.default_rng(0)
    rows = [(u, at, int(x)) for u in range(40) for at, x in enumerate(draw.permutation(np.arange(u % 2, 20, 2))[:6])]
    table = pl.DataFrame(rows, ["user", "at", "item"], orient="row").with_columns(at=pl.col("at") ** 2)
    known = pl.DataFrame({"item": np.arange(20), "kind": ["even", "odd"] * 10, "price": np.arange(20) / 7})
    options = {"context": "past", "terms": "item", "refit": False, "width": 8, "effort": "quick"}
    training = Training(epochs=15, tokens=64, rate=0.01, device="cpu")
    options |= {"companions": [simple.MarkovChain()], "training": training}
    return EFA(**options, ensemble=2).fit(table, **ROLES, item_features=known)


HISTORY = pl.DataFrame({"user": [1, 1, 1, 2, 2], "at": [0, 1, 4, 0, 1], "item": [0, 2, 5, 1, 3]})


def test_no_diversity_is_the_order_of_probability(model):
    plain = model.recommend(HISTORY, k=5)
    assert model.recommend(HISTORY, k=5, diversity=0).equals(plain)
    falls = plain.select(pl.col("probability").diff().over("user")).drop_nulls()
    assert (falls["probability"] <= 0).all()


def test_each_further_item_has_the_largest_marginal_relevance(model):
    told = model.recommend(HISTORY, k=6, diversity=0.4)
    every = model.recommend(HISTORY, k=20)
    towards = directions(model.fitted_, None)
    for user in (1, 2):
        p = dict(every.filter(user=user).select("item", "probability").iter_rows())
        listed, left = [], set(p)
        first = max(p.values())
        for x in told.filter(user=user).sort("rank")["item"]:

            def worth(y, listed=listed, p=p, first=first):
                near = max((max(float(towards[y] @ towards[z]), 0) for z in listed), default=0.0)
                return 0.6 * p[y] / first - 0.4 * near

            best = max(left, key=worth) if listed else max(p, key=p.get)
            assert worth(x) == pytest.approx(worth(best), abs=1e-9)
            listed.append(x)
            left.remove(x)
        mine = dict(told.filter(user=user).select("item", "probability").iter_rows())
        assert mine == {x: p[x] for x in listed}, "probabilities stay what they are"


def test_a_diverse_list_is_less_alike():
    draw = torch.Generator().manual_seed(0)
    towards = torch.nn.functional.normalize(torch.randn(50, 4, generator=draw).double(), dim=1)
    p, items = torch.rand(3, 50, generator=draw).double().sort(1, descending=True)

    def alike(d):
        found, values = diverse(items, p, towards, 8, d)
        place = [[items[k].tolist().index(int(x)) for x in found[k]] for k in range(3)]
        assert torch.equal(values, p.gather(1, torch.tensor(place)))
        mine = towards[found]
        return float((mine @ mine.mT).triu(1).clamp_min(0).sum())

    assert alike(0.0) > alike(0.5) > alike(1.0)


def test_impossible_items_are_never_listed_for_diversity(model):
    told = model.recommend(HISTORY, k=20, diversity=1.0)
    assert set(told.filter(user=1)["item"]) == set(range(20)) - {0, 2, 5}


def test_what_carried_a_recommendation_is_what_explain_says(model):
    told = model.recommend(HISTORY, k=3, why=2)
    for row in told.filter(user=1).iter_rows(named=True):
        found = model.explain(HISTORY, row=0, item=row["item"]).sort("item_natural", descending=True)
        best = found.filter(pl.col("item_natural") > 0)
        for k in (1, 2):
            if len(best) >= k:
                assert row[f"why_{k}"] == best["item"][k - 1]
                assert row[f"why_{k}_change"] == pytest.approx(best["item_natural"][k - 1], rel=1e-4, abs=1e-6)
            else:
                assert row[f"why_{k}"] is None
    empty = model.recommend(k=3, why=1)
    assert empty["why_1"].null_count() == 3


def test_among_takes_levels_of_the_features(model):
    told = model.recommend(HISTORY, k=20, among={"kind": "odd"})
    assert set(told["item"].unique()) <= set(range(1, 20, 2))
    rest = model.recommend(HISTORY, k=20, exclude={"kind": ["odd"]})
    assert set(rest["item"].unique()) <= set(range(0, 20, 2))
    for given, words in (
        ({"colour": "red"}, "no column 'colour'; there are 'kind', 'price'"),
        ({"kind": "prime"}, "no level 'prime'; there are 'even', 'odd'"),
        ({"price": 1}, "holds numbers"),
    ):
        with pytest.raises(DataError, match=words):
            model.recommend(HISTORY, among=given)


def test_what_cannot_be_is_refused(model):
    for option, x in (("diversity", 2), ("diversity", "much"), ("why", -1), ("why", True)):
        with pytest.raises(DataError, match=option):
            model.recommend(HISTORY, **{option: x})
    popular = SimpleModel(simple.Popularity(), context="past").fit(HISTORY, **ROLES)
    with pytest.raises(DataError, match="no item vectors"):
        popular.recommend(diversity=0.5)
    with pytest.raises(DataError, match="item_features"):
        popular.recommend(among={"kind": "odd"})


def test_the_shell_lists_as_python_does(model, tmp_path):
    model.save(tmp_path / "m.efattn")
    HISTORY.write_csv(tmp_path / "h.csv")
    words = ["recommend", str(tmp_path / "m.efattn"), str(tmp_path / "h.csv"), "-k", "4", "--diversity", "0.3"]
    found = CliRunner().invoke(app, [*words, "--why", "2", "--among", "kind=odd", "--json"])
    assert found.exit_code == 0, found.output
    wanted = model.recommend(HISTORY, k=4, diversity=0.3, why=2, among={"kind": "odd"})
    assert json.loads(found.stdout) == json.loads(wanted.write_json())


# ---- histories that grow


@pytest.mark.parametrize("own_time", ["hidden", "known"])
@pytest.mark.parametrize(("norm", "content"), [("pre", "mixing"), ("post", "isolated"), (None, "mixing")])
def test_a_history_that_grows_is_told_as_the_whole_one(own_time, norm, content):
    draw = np.random.default_rng(1)
    rows = [(u, u + at**2, int(x)) for u in range(20) for at, x in enumerate(draw.permutation(15)[:6])]
    table = pl.DataFrame(rows, ["user", "at", "item"], orient="row")
    training = Training(epochs=1, device="cpu")
    options = {"context": "past", "terms": "item", "refit": False, "effort": "quick", "width": 8, "layers": 3}
    options |= {"norm": norm, "feed_forward": 8 if norm else 0, "own_time": own_time, "gaps": True}
    options["content"] = content
    model = EFA(**options, companions=[simple.MarkovChain()], training=training).fit(table, **ROLES)
    mine = table.filter(user=3)
    followed = model.follow()
    assert_close(followed.recommend(15), model.recommend(k=15))
    for count in (1, 2, 3, 5, 6):
        followed.add(mine[len(followed) : count])
        assert len(followed) == count
        assert_close(followed.recommend(15), model.recommend(mine[:count], k=15).drop("user"))
    assert_close(model.follow(mine).recommend(15), model.recommend(mine, k=15).drop("user"))
    with pytest.raises(DataError, match="comes twice"):
        followed.add(mine[:1])
    with pytest.raises(DataError, match="of 20 groups"):
        model.follow(table)


def assert_close(one, two):
    """The same items with the same probabilities, whatever the order of those that are level."""
    one, two = one.sort("item"), two.sort("item")
    assert one["item"].equals(two["item"])
    np.testing.assert_allclose(one["probability"], two["probability"], rtol=1e-4, atol=1e-7)


def test_only_the_past_is_followed(model):
    others = EFA(companions=None, refit=False, effort="quick", width=8, training=Training(epochs=1), terms="item")
    others.fit(HISTORY, group="user", item="item", progress=False)
    with pytest.raises(DataError, match="past"):
        others.follow()
    assert_close(
        model.follow(HISTORY.filter(user=1)).recommend(5, among={"kind": "odd"}),
        model.recommend(HISTORY.filter(user=1), k=5, among={"kind": "odd"}).drop("user"),
    )
