"""What every simple model promises of the rows of a table, as EFA does; and, on real data, numbers measured before."""

import os
from functools import partial

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone
from small import QUICK, ratings, weather

import efattn
from efattn import DataError, SimpleModel, families, simple

TABLE, WEATHER = ratings(users=40), weather(days=40)
RATED = {"group": "user", "item": "movie", "value": "real", "order": "at"}
PLACED = {"group": "day", "item": "station", "value": "tmax", "attributes": ["latitude", "longitude"], "order": "row"}
TIMED = PLACED | {"time": "day"}
ITEMS = {"group": "user", "item": "movie", "order": "at"}
VALUES = {
    "mean": (partial(SimpleModel, simple.ItemMean(), family="gaussian"), TABLE, RATED),
    "shrunk": (partial(SimpleModel, simple.ShrunkMean(), family="gaussian"), TABLE, RATED),
    "linear": (partial(SimpleModel, simple.LinearModel(), family="gaussian"), TABLE, RATED),
    "linear, places": (partial(SimpleModel, simple.LinearModel(), family="gaussian"), WEATHER, PLACED),
    "trees": (partial(SimpleModel, simple.LinearTrees(trees=8), family="gaussian"), TABLE, RATED),
    "trees, places": (partial(SimpleModel, simple.LinearTrees(trees=8), family="gaussian"), WEATHER, PLACED),
    "linear, lags": (partial(SimpleModel, simple.LinearModel(), family="gaussian", lags=1), WEATHER, TIMED),
    "gaussian": (partial(SimpleModel, simple.GaussianConditional(), family="gaussian"), TABLE, RATED),
    "factors": (partial(SimpleModel, simple.GaussianConditional(rank=3), family="gaussian"), TABLE, RATED),
    "ridge": (partial(SimpleModel, simple.RidgePerItem(), family="gaussian"), TABLE, RATED),
    "lasso": (partial(SimpleModel, simple.LassoPerItem(), family="gaussian"), TABLE, RATED),
    "inverse distance": (partial(SimpleModel, simple.InverseDistance(), family="gaussian"), WEATHER, PLACED),
    "kriging": (partial(SimpleModel, simple.Kriging(), family="gaussian"), WEATHER, PLACED),
    "forest": (partial(SimpleModel, simple.Forest(trees=8), family="gaussian"), WEATHER, PLACED),
    "gaussian, lags": (partial(SimpleModel, simple.GaussianConditional(), family="gaussian", lags=1), WEATHER, TIMED),
    "factors, lags": (
        partial(SimpleModel, simple.GaussianConditional(rank=3), family="gaussian", lags=1),
        WEATHER,
        TIMED,
    ),
    "ridge, lags": (partial(SimpleModel, simple.RidgePerItem(), family="gaussian", lags=1), WEATHER, TIMED),
    "kriging, lags": (partial(SimpleModel, simple.Kriging(), family="gaussian", lags=1), WEATHER, TIMED),
    "persistence": (partial(SimpleModel, simple.Persistence(), family="gaussian", lags=1), WEATHER, TIMED),
}
ONES = {
    "popularity": partial(SimpleModel, simple.Popularity()),
    "late popularity": lambda context="past", **o: SimpleModel(simple.LatePopularity(), context="past", **o),
    "chain": lambda context="past", **o: SimpleModel(simple.MarkovChain(), context="past", **o),
    "additive": partial(SimpleModel, simple.AdditiveLogit(), training=QUICK),
}
FITTED = {}


def fitted(name, context):
    if (name, context) not in FITTED:
        make, table, roles = VALUES.get(name) or (ONES[name], TABLE, ITEMS)
        FITTED[name, context] = make(context=context).fit(table, **roles)
    return FITTED[name, context], *(VALUES.get(name) or (None, TABLE, ITEMS))[1:]


EVERY_VALUE = pytest.mark.parametrize("name", VALUES)
EVERY = pytest.mark.parametrize("name", [*VALUES, *ONES])
BOTH = pytest.mark.parametrize("context", ["others", "past"])


def predicted(model, table, value):
    found = model.predict(table)
    return np.column_stack([found[f"{value}_{what}"].to_numpy() for what in ("mean", "sd", "lower", "upper")])


@EVERY_VALUE
@BOTH
def test_a_row_is_predicted_without_its_own_value(name, context):
    model, table, roles = fitted(name, context)
    value = roles["value"]
    whole = predicted(model, table, value)
    assert np.isfinite(whole).all()
    for row in (0, 7, len(table) - 1):
        here = pl.int_range(pl.len()) == row
        for new in (None, 40.0):
            other = table.with_columns(pl.when(here).then(pl.lit(new)).otherwise(value).alias(value))
            np.testing.assert_allclose(predicted(model, other, value)[row], whole[row], rtol=1e-5, atol=1e-5)


@EVERY_VALUE
def test_past_never_looks_ahead(name):
    model, table, roles = fitted(name, "past")
    value, group = roles["value"], roles["group"]
    whole = predicted(model, table, value)
    last = (pl.int_range(pl.len()) == pl.int_range(pl.len()).max()).over(group)
    other = table.with_columns(pl.when(last).then(pl.col(value) + 9).otherwise(value).alias(value))
    changed = np.abs(predicted(model, other, value) - whole).max(1) > 1e-5
    if "time" not in roles:
        assert not changed.any()
    else:  # a group sees all of the one before, and nothing later
        first = table.with_columns(pl.when(pl.col(group) == 20).then(pl.col(value) + 9).otherwise(value).alias(value))
        moved = np.abs(predicted(model, first, value) - whole).max(1) > 1e-5
        assert set(table[group].to_numpy()[moved]) <= {20, 21}
        assert moved[(table[group] == 21).to_numpy()].any()


@EVERY
@BOTH
def test_the_score_is_the_mean_log_likelihood(name, context):
    model, table, _ = fitted(name, context)
    found = model.log_likelihood(table)
    column = [c for c in found.columns if c.endswith("_log_likelihood")]
    assert len(column) == 1
    assert model.score(table) == pytest.approx(found[column[0]].mean(), rel=1e-6)
    scores = model.scores(table)
    assert scores["scored"] == len(table)
    assert scores["unknown"] == 0


@EVERY_VALUE
def test_log_likelihoods_are_those_of_the_predicted_normal(name):
    model, table, roles = fitted(name, "others")
    mean, sd, lower, upper = predicted(model, table, roles["value"]).T
    y = table[roles["value"]].to_numpy()
    want = -0.5 * ((y - mean) / sd) ** 2 - np.log(sd) - 0.5 * np.log(2 * np.pi)
    name = f"{roles['value']}_log_likelihood"
    np.testing.assert_allclose(model.log_likelihood(table)[name].to_numpy(), want, rtol=1e-4, atol=1e-4)
    assert ((lower < mean) & (mean < upper)).all()


@EVERY_VALUE
@BOTH
def test_missing_values_are_predicted_and_not_scored(name, context):
    make, table, roles = VALUES[name]
    value = roles["value"]
    holes = table.with_columns(pl.when(pl.int_range(pl.len()) % 5 == 2).then(None).otherwise(value).alias(value))
    model = make(context=context).fit(holes, **roles)
    assert np.isfinite(predicted(model, holes, value)).all()
    found = model.log_likelihood(holes)[f"{value}_log_likelihood"]
    assert found.is_null().to_list() == holes[value].is_null().to_list()


@EVERY
def test_a_group_of_one_and_an_unknown_item_are_answered(name):
    model, table, roles = fitted(name, "past" if name in ("late popularity", "chain") else "others")
    one = table.head(1)
    strange = pl.concat(
        [table.head(2), table.head(1).with_columns(pl.lit("?").alias(roles["item"]))], how="vertical_relaxed"
    )
    if table[roles["item"]].dtype != pl.String:
        strange = table.head(3).with_columns(
            pl.when(pl.int_range(pl.len()) == 2).then(99).otherwise(roles["item"]).alias(roles["item"])
        )
    assert np.isfinite(model.score(one))
    assert np.isfinite(model.score(strange))
    assert model.scores(strange)["unknown"] == 1
    if "value" in roles:
        assert np.isfinite(predicted(model, one, roles["value"])).all()
        assert np.isfinite(predicted(model, strange, roles["value"])).all()


@EVERY
def test_pandas_in_pandas_out_and_the_same_numbers(name):
    model, table, roles = fitted(name, "others")
    again = clone(model).fit(table.to_pandas(), **roles)
    assert again.score(table.to_pandas()) == pytest.approx(model.score(table), rel=1e-5)
    found = again.predict(table.to_pandas())
    assert isinstance(found, pd.DataFrame)
    assert len(found) == len(table)


@EVERY
def test_without_validation_a_part_is_set_aside_while_fitting(name):
    make, table, roles = VALUES.get(name) or (ONES[name], TABLE, ITEMS)
    assert np.isfinite(make().fit(table, **roles, validation=None).score(table))


@pytest.mark.parametrize("name", ["popularity", "late popularity", "chain", "additive"])
def test_distinct_support_is_found_and_helps(name):
    make = ONES[name]
    distinct, plain = (make(context="past", support=s).fit(TABLE, **ITEMS) for s in ("auto", "all"))
    assert distinct.support_ == "distinct"
    assert distinct.score(TABLE) > plain.score(TABLE)
    history = TABLE.filter(pl.col("user") == "u1")
    for item in distinct.recommend(history, k=8)["movie"]:
        assert item not in history["movie"].to_list()
    assert distinct.recommend(k=8)["probability"].sum() == pytest.approx(1, rel=1e-5)
    assert {"movie_mode", "movie_probability"} <= set(distinct.predict(TABLE).columns)


def test_the_simple_ones_stand_in_their_order():
    scores = [fitted(name, "others")[0].score(TABLE) for name in ("mean", "shrunk", "gaussian")]
    assert scores[0] < scores[1] < scores[2] + 0.05


def test_ratings_can_be_shifted_poisson():
    table = TABLE.filter(pl.col("rating") >= 1)
    model = SimpleModel(simple.ShrunkMean(), family=families.Poisson(shift=1)).fit(
        table, group="user", item="movie", value="rating"
    )
    y, mean = table["rating"].to_numpy(), model.predict(table)["rating_mean"].to_numpy()
    from scipy import stats

    assert model.score(table) == pytest.approx(stats.poisson(mean - 1).logpmf(y - 1).mean(), rel=1e-5)


def test_a_table_without_items_has_means_too():
    roles = {"group": "user", "value": "real"}
    for recipe in (simple.ItemMean(), simple.ShrunkMean()):
        assert np.isfinite(SimpleModel(recipe).fit(TABLE, **roles).score(TABLE))
    with pytest.raises(DataError, match="item"):
        SimpleModel(simple.GaussianConditional()).fit(TABLE, **roles)


REFUSED = {
    "attributes": (simple.Kriging(), RATED, "attributes"),
    "places": (simple.InverseDistance(), RATED, "places"),
    "time": (simple.Persistence(), RATED, "one time step back"),
    "weight": (simple.GaussianConditional(weight=2), RATED, "weight is a number"),
    "rank": (simple.AdditiveLogit(rank=0), ITEMS, "rank is a number"),
    "course": (simple.AdditiveLogit(course=((1.0, -5),)), ITEMS, "pairs of a penalty and steps"),
    "columns": (simple.ItemMean(), RATED | {"value": ["real", "x"]}, "one value column"),
    "looking back": (simple.MarkovChain(), ITEMS, "looks back"),
    "no recipe": ("gaussian", RATED, "one of efattn.simple"),
    "a class": (simple.ItemMean, RATED, "one of efattn.simple"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_is_refused(case):
    recipe, roles, words = REFUSED[case]
    with pytest.raises(DataError, match=words):
        SimpleModel(recipe).fit(TABLE, **roles)


def test_a_simple_model_is_fitted_anew_not_updated():
    with pytest.raises(DataError, match="fit it again"):
        fitted("mean", "others")[0].update(TABLE)
    with pytest.raises(TypeError, match="nothing"):
        SimpleModel(simple.ItemMean()).fit(TABLE, **RATED, nothing=1)


@EVERY
def test_a_saved_peer_is_the_same_when_loaded(name, tmp_path):
    model, table, _ = fitted(name, "others")
    model.save(tmp_path / "peer.efattn")
    again = efattn.load(tmp_path / "peer.efattn")
    assert type(again) is type(model)
    assert again.score(table) == model.score(table)


# ---- numbers measured before, with plain tools


@pytest.mark.slow
@pytest.mark.skipif("EFATTN_DATA" not in os.environ, reason="needs the US cities in $EFATTN_DATA")
@pytest.mark.parametrize("lags", [0, 1])
def test_peers_on_us_cities_are_as_measured_before(lags):
    measured = {
        0: {simple.RidgePerItem: 8.848, simple.LassoPerItem: 8.232, simple.GaussianConditional: 8.096},
        1: {simple.RidgePerItem: 8.433, simple.LassoPerItem: 7.479, simple.GaussianConditional: 6.845},
    }
    october, year = pl.col("date").dt.month() == 10, pl.col("date").dt.year()
    table = efattn.datasets.us_cities("paper").with_columns(scored=october)
    table = table if lags else table.filter(october)
    train, held = table.filter(year <= 2012), table.filter(year.is_between(2013, 2016))
    test = table.filter(year >= 2017)
    roles = {"group": "date", "item": ["city", "state"], "attributes": ["latitude", "longitude"], "target": "scored"}
    roles |= {"time": "date"} if lags else {}
    for recipe, want in measured[lags].items():
        model = SimpleModel(recipe(), family="gaussian", lags=lags)
        found = model.fit(train, value="temperature", validation=held, **roles).predict(test).filter(october)
        error = ((found["temperature_mean"] - found["temperature"]) ** 2).mean()
        assert error == pytest.approx(want, rel=0.03), recipe.__name__
