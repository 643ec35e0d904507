"""Whether there is anything, and how much: two models of one column."""

import numpy as np
import polars as pl
import pytest

from efattn import EFA, DataError, SimpleModel, Training, families, load, simple
from efattn.estimators import companions

ROLES = {"group": "person", "order": "day", "value": "hours", "attributes": ["busy", "strong"]}


def worked(people=60, days=10, seed=0, shown=True):
    """Who is busy works seldom, who is strong works long: no one number says both. shown: whether that is known."""
    rng = np.random.default_rng(seed)
    person, day = np.repeat(np.arange(people), days), np.tile(np.arange(days), people)
    busy, strong = rng.normal(size=(2, people))[:, person]
    some = rng.random(len(person)) < 1 / (1 + np.exp(2 * busy - 0.5))
    hours = np.where(some, np.exp(1 + 0.8 * strong) * rng.gamma(4, 0.25, len(person)), 0.0)
    return pl.DataFrame({"person": person, "day": day, "hours": hours, "busy": shown * busy, "strong": shown * strong})


@pytest.mark.parametrize("base", [families.Gamma(), families.LogNormal(), families.Weibull()])
@pytest.mark.parametrize("context", ["others", "past"])
def test_two_numbers_say_more_than_one(base, context):
    table, new, how = (
        worked(shown=False),
        worked(seed=1, shown=False),
        {"family": families.ZeroOr(base), "context": context},
    )
    one, two = (
        SimpleModel(recipe, **how).fit(table, **ROLES).score(new)
        for recipe in (simple.LinearModel(), simple.TwoParts(0))
    )
    assert two > one + 0.1


@pytest.mark.parametrize("context", ["others", "past"])
def test_a_target_never_sees_itself(context):
    table = worked(people=40, shown=False)
    model = SimpleModel(simple.TwoParts(8), family="zero_or", context=context).fit(table, **ROLES)
    seen = model.predict(table)["hours_mean"].to_numpy()
    for value in (0.0 if table["hours"][12] else 5.0, 50.0):
        moved = table.with_columns(hours=pl.when(pl.int_range(pl.len()) == 12).then(value).otherwise(pl.col("hours")))
        now = model.predict(moved)["hours_mean"].to_numpy()
        assert now[12] == pytest.approx(seen[12], abs=1e-9)
        changed = np.flatnonzero(np.abs(now - seen) > 1e-9)
        assert len(changed)
        assert set(changed) <= set(range(10, 20) if context == "others" else range(13, 20))


def test_what_it_says_of_a_row_is_what_its_parts_say():
    table = worked()
    model = SimpleModel(simple.TwoParts(0), family="zero_or").fit(table, **ROLES)
    law = model.predict_distribution(table)["hours"]
    nothing = law.cdf(np.zeros(len(table)))
    assert np.corrcoef(nothing, table["busy"])[0, 1] > 0.8
    assert abs(nothing.mean() - (table["hours"] == 0).mean()) < 0.03
    amount = law.mean / (1 - nothing)
    assert np.corrcoef(np.log(amount), table["strong"])[0, 1] > 0.8


def test_a_saved_one_says_the_same(tmp_path):
    model = SimpleModel(simple.TwoParts(8), family="zero_or").fit(worked(), **ROLES)
    chosen = model.fitted_.members[0]["hours"].chosen_options()
    assert all(isinstance(chosen[name], tuple) for name in ("some", "amount"))
    model.save(tmp_path / "m.efattn")
    assert load(tmp_path / "m.efattn").predict(worked(seed=2)).equals(model.predict(worked(seed=2)))


@pytest.mark.parametrize("item", [None, "day"])
def test_beside_networks_it_is_kept_in_their_file(tmp_path, item):
    table = worked(people=40, shown=False)
    roles = {"group": "person", "value": "hours", **({"order": "day"} if item is None else {"item": item})}
    two = [simple.TwoParts(8), *([simple.TwoParts(8, by_position=True)] if item is None else [])]
    model = EFA(companions=two, family="zero_or", terms="value", width=8, training=Training(steps=8))
    model.fit(table, **roles, progress=False)
    assert any(isinstance(one.recipe, simple.TwoParts) for one in model.fitted_.companions["hours"])
    model.save(tmp_path / "m.efattn")
    new = worked(people=5, seed=4, shown=False)
    new = new if item is None else new.with_columns(pl.col("day") + 3)  # some days were never seen
    assert load(tmp_path / "m.efattn").predict(new).equals(model.predict(new))


def test_it_stands_beside_networks_of_such_values_alone():
    table, asked = worked(), []
    roles = {**ROLES, "progress": False, "planned": asked.append}
    quick = {"width": 8, "training": Training(steps=8)}
    model = EFA(context="past", family="zero_or", **quick).fit(table, **roles)
    assert simple.TwoParts() in companions._offers(asked[0].folds[0], "past")
    assert np.isfinite(model.score(worked(seed=1)))
    EFA(context="past", family="gaussian", companions=None, **quick).fit(table, **roles)
    assert not any(isinstance(one, simple.TwoParts) for one in companions._offers(asked[1].folds[0], "past"))


def test_other_families_are_refused():
    with pytest.raises(DataError, match="zero_or"):
        SimpleModel(simple.TwoParts(), family="gaussian").fit(worked(), **ROLES)
