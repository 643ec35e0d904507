"""Positions that groups have in common, as items of simple models."""

import json

import numpy as np
import polars as pl
import pytest
import torch

from efattn import EFA, DataError, SimpleModel, Training, compare, load, simple
from efattn.data import Roles, Schema
from efattn.data.positions import MOST, Positions
from efattn.simple.at_positions import AtPositions

ROLES = {"group": "firm", "order": "year", "value": "y"}
RECIPES = (simple.LinearModel, simple.LinearTrees, simple.GaussianConditional, simple.Forest)


def panel(groups=40, years=8, seed=0, begin=0, effect=2.0):
    """Years have levels that no firm and no line over time tells. begin: by how much firms may begin later."""
    rng = np.random.default_rng(seed)
    level = effect * np.random.default_rng(9).normal(size=years + begin)
    firm = np.repeat(np.arange(groups), years)
    year = np.tile(np.arange(years), groups) + np.repeat(rng.integers(0, begin + 1, groups), years)
    y = level[year] + np.repeat(rng.normal(size=groups), years) + 0.5 * rng.normal(size=len(firm))
    return pl.DataFrame({"firm": firm, "year": 2000 + year, "y": y})


def found(table, **roles):
    schema, groups = Schema.fit_encode(table, Roles(**(ROLES | roles)), when="auto")
    return schema, Positions.of(groups)


def test_years_of_a_balanced_panel_are_ranks():
    schema, positions = found(panel())
    assert schema.when_kind is None
    assert positions == Positions("rank", tuple(range(8)))


def test_years_of_firms_that_begin_apart_are_times():
    schema, positions = found(panel(begin=3))
    assert schema.when_kind is not None
    assert positions is not None
    assert positions.kind == "time"
    assert len(positions) == 11


def test_times_that_no_two_groups_share_leave_ranks_and_long_groups_nothing():
    table = panel().with_columns(year=pl.Series(np.random.default_rng(0).random(320)))
    assert found(table)[1].kind == "rank"
    assert found(panel(years=MOST + 1, groups=8))[1] is None
    assert found(panel(groups=3))[1] is None


def test_a_position_that_was_not_known_has_a_number_of_its_own():
    positions = Positions("time", (2000.0, 2001.0, 2003.0))
    assert positions.numbers(torch.tensor([2003.0, 2002.0, 2000.0, 1990.0, 2050.0])).tolist() == [2, 3, 0, 3, 3]


@pytest.mark.parametrize("begin", [0, 3])
@pytest.mark.parametrize("recipe", RECIPES)
def test_levels_of_years_are_learnt(recipe, begin):
    table, new = panel(begin=begin), panel(seed=1, begin=begin)
    plain, placed = simple.LinearModel(), recipe(by_position=True)
    without, own = (SimpleModel(one, family="gaussian").fit(table, **ROLES).score(new) for one in (plain, placed))
    assert own > without + 0.2


@pytest.mark.parametrize("context", ["others", "past"])
@pytest.mark.parametrize("begin", [0, 3])
def test_a_target_never_sees_itself(begin, context):
    table = panel(begin=begin)
    model = SimpleModel(simple.LinearModel(by_position=True), family="gaussian", context=context).fit(table, **ROLES)
    seen = model.predict(table)["y_mean"].to_numpy()
    moved = table.with_columns(y=pl.col("y") + 50.0 * (pl.int_range(pl.len()) == 12))
    now = model.predict(moved)["y_mean"].to_numpy()
    assert now[12] == pytest.approx(seen[12], abs=1e-9)
    inside = np.arange(8, 16) if context == "others" else np.arange(13, 16)
    changed = np.flatnonzero(np.abs(now - seen) > 1e-9)
    assert set(changed) <= set(inside)
    assert len(changed)


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_saved_one_says_the_same_also_of_years_never_seen(tmp_path, recipe):
    model = SimpleModel(recipe(by_position=True), family="gaussian").fit(panel(begin=3), **ROLES)
    model.save(tmp_path / "m.efattn")
    new = panel(seed=2, begin=3).with_columns(pl.col("year") + 5)
    again = load(tmp_path / "m.efattn")
    assert again.predict(new).equals(model.predict(new))
    assert np.isfinite(again.score(new))


def test_a_table_without_positions_is_refused():
    table = panel(groups=12).with_columns(year=pl.Series(np.random.default_rng(0).random(96)), item=pl.col("year") % 4)
    with pytest.raises(DataError, match="Positions"):
        SimpleModel(simple.LinearModel(by_position=True)).fit(table, **ROLES, item="item")


@pytest.mark.parametrize(
    "wrong", [[2.0, 1.0], [1.0], [1.0, 1.0], [float("nan"), 2.0], list(range(MOST + 1)), ["a", "b"], None]
)
def test_positions_of_a_wrong_file_are_refused(wrong):
    with pytest.raises((ValueError, TypeError)):
        Positions.from_json({"kind": "time", "known": wrong})


def test_positions_are_the_same_after_json():
    one = Positions("time", (1.5, 2.0))
    assert Positions.from_json(json.loads(json.dumps(one.to_json()))) == one


def test_they_are_offered_as_companions_and_as_peers():
    table = panel(groups=20)
    model = EFA(family="gaussian", training=Training(epochs=1)).fit(table, **ROLES)
    offered = [one.recipe.label for one in model.companions_["y"]]
    assert any(label.endswith("by position") for label in offered)
    assert any(isinstance(one.model, AtPositions) for one in model.companions_["y"])
    quick = {"folds": 2, "training": Training(epochs=1), "progress": False}
    beside = compare(table, **ROLES, family="gaussian", **quick)
    assert "LinearModel by position" in beside.table["model"].to_list()
