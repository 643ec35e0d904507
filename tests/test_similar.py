"""What goes together is asked of the model's predictions: presence that raises presence, values that rise together."""

import numpy as np
import polars as pl
import pytest
from small import efa, ratings

from efattn import SimpleModel, Training, simple


def topics(baskets=600, items=12, seed=0):
    """Baskets from three kinds of shoppers, each with four products of its own."""
    draw, rows = np.random.default_rng(seed), []
    for basket in range(baskets):
        own = draw.integers(3)
        weight = np.where(np.arange(items) // 4 == own, 20.0, 1.0)
        for item in draw.choice(items, 3, replace=False, p=weight / weight.sum()):
            rows.append({"basket": basket, "item": f"p{item:02d}"})
    return pl.DataFrame(rows)


def correlated(groups=400, seed=0):
    """Four columns of a wide table, melted, and their correlations."""
    draw = np.random.default_rng(seed)
    common = draw.normal(size=(groups, 1))
    x = np.column_stack([common + 0.5 * draw.normal(size=(groups, 2)), -common, draw.normal(size=(groups, 1))])
    x[:, 2] += draw.normal(size=groups)
    names = ["a", "b", "against", "alone"]
    rows = [{"group": g, "item": n, "value": 10 * k + x[g, k]} for g in range(groups) for k, n in enumerate(names)]
    return pl.DataFrame(rows), dict(zip(names, np.corrcoef(x.T)[0], strict=True))


def test_what_is_bought_together_goes_together():
    table = topics()
    model = efa(training=Training(epochs=60, device="cpu")).fit(table, group="basket", item="item")
    for item in ("p00", "p05", "p11"):
        near = model.similar(item, k=3)["item"].to_list()
        assert {int(name[1:]) // 4 for name in near} == {int(item[1:]) // 4}


def test_of_values_it_is_how_far_they_rise_together():
    table, expected = correlated()
    roles = {"group": "group", "item": "item", "value": "value"}
    model = SimpleModel(simple.GaussianConditional()).fit(table, **roles)
    told = dict(model.similar("a", k=3).iter_rows())
    assert told == pytest.approx({name: expected[name] for name in ("b", "alone", "against")}, abs=0.08)


def test_both_sides_count():
    table = topics(200)
    model = efa().fit(table, group="basket", item="item")
    there, back = (dict(model.similar(item, k=20).iter_rows()) for item in ("p00", "p07"))
    assert there["p07"] == pytest.approx(back["p00"], abs=1e-6)


@pytest.mark.parametrize("columns", [{"attributes": ["x", "z"]}, {"order": "at"}, {"exposure": "hours"}])
def test_it_answers_whatever_else_the_table_has(columns):
    value = "count" if "exposure" in columns else "real"
    model = efa(terms="value").fit(ratings(), group="user", item="movie", value=value, **columns)
    assert model.similar("m1", k=20)["score"].is_finite().all()
