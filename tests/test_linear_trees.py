"""Laws of trees on what a linear model leaves."""

import numpy as np
import polars as pl
import pytest

from efattn import EFA, DataError, SimpleModel, Training, load, simple
from efattn.simple.linear_model import PenalisedLinear

ROLES = {"group": "g", "value": "y", "attributes": ["a", "b", "c"]}


def crossed(groups=60, seed=0, bend=1.0):
    """What three attributes say only if all of them are beyond a threshold."""
    rng = np.random.default_rng(seed)
    a, b, c = rng.normal(size=(3, groups * 10))
    level = np.repeat(rng.normal(size=groups), 10)
    y = level + 3 * bend * ((a > 0) & (b > 0) & (c > 0)) + 0.5 * rng.normal(size=len(a))
    return pl.DataFrame({"g": np.repeat(np.arange(groups), 10), "a": a, "b": b, "c": c, "y": y})


def scores(recipe, bend, **options):
    model = SimpleModel(recipe, **options).fit(crossed(bend=bend), **ROLES)
    return model, model.score(crossed(seed=1, bend=bend))


def test_trees_find_what_depends_on_several_things():
    linear, both = (scores(one, 1.0, family="gaussian")[1] for one in (simple.LinearModel(), simple.LinearTrees()))
    assert both > linear + 0.08


def test_trees_add_next_to_nothing_where_there_is_nothing():
    linear, both = (scores(one, 0.0, family="gaussian")[1] for one in (simple.LinearModel(), simple.LinearTrees()))
    assert abs(both - linear) < 0.02


@pytest.mark.parametrize("family", ["gaussian", "student_t", "log_normal", "gamma"])
def test_a_saved_one_says_the_same(tmp_path, family):
    table = crossed().with_columns(y=pl.col("y").exp() if family in ("gamma", "log_normal") else pl.col("y"))
    model = SimpleModel(simple.LinearTrees(trees=10), family=family).fit(table, **ROLES)
    model.save(tmp_path / "m.efattn")
    assert load(tmp_path / "m.efattn").predict(table).equals(model.predict(table))


def test_penalties_are_taken_over_from_the_linear_model_beside_it():
    model = EFA(terms="value", family="gaussian", training=Training(epochs=1)).fit(crossed(), **ROLES)
    names = [type(one.recipe).__name__ for one in model.companions_["y"]]
    assert "LinearTrees" in names
    alone = SimpleModel(simple.LinearModel(), family="gaussian").fit(crossed(), **ROLES)
    term = next(one for one in alone.members_[0].modules() if isinstance(one, PenalisedLinear))
    taken = simple.LinearTrees().taking_over([term])
    assert (taken.penalty, taken.spread) == tuple(term.chosen_options()[name] for name in ("penalty", "spread"))


def test_few_groups_and_several_columns_are_refused():
    with pytest.raises(DataError, match="8 groups"):
        SimpleModel(simple.LinearTrees(), family="gaussian").fit(crossed(groups=5), **ROLES)
    two = crossed().with_columns(z=pl.col("y") + 1)
    with pytest.raises(DataError, match="one value column"):
        SimpleModel(simple.LinearTrees(), family="gaussian").fit(two, group="g", value=["y", "z"])
