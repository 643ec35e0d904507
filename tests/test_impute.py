"""Missing values filled in: means and modes given what is observed, draws that are right together, pooled estimates."""

import numpy as np
import polars as pl
import pytest
from small import efa, ratings, weather

import efattn
from efattn import DataError, SimpleModel, simple

DAYS = weather(days=40)
WEATHER = {"group": "day", "item": "station", "value": "tmax"}


def punched(table, *columns, rate=0.3, seed=0):
    draw = np.random.default_rng(seed)
    return table.with_columns(
        pl.when(pl.Series(draw.random(len(table)) < rate)).then(None).otherwise(pl.col(name)).alias(name)
        for name in columns
    )


HOLES = punched(DAYS, "tmax")


@pytest.fixture(scope="module")
def fitted():
    return efa(terms="value").fit(DAYS, **WEATHER, attributes=["latitude", "longitude"], progress=False)


def test_means_are_those_of_predict_for_rows_with_holes(fitted):
    filled, told = fitted.impute(HOLES, interval=0.8), fitted.predict(HOLES, interval=0.8)
    gone = HOLES["tmax"].is_null()
    assert filled["tmax"].filter(~gone).equals(HOLES["tmax"].filter(~gone))
    np.testing.assert_allclose(filled["tmax"].filter(gone), told["tmax_mean"].filter(gone), rtol=1e-5)
    for kind in ("sd", "lower", "upper"):
        assert filled[f"tmax_{kind}"].is_null().equals(~gone.alias(f"tmax_{kind}"))
        np.testing.assert_allclose(
            filled[f"tmax_{kind}"].filter(gone), told[f"tmax_{kind}"].filter(gone), rtol=1e-4, atol=1e-4
        )


def test_any_pattern_is_filled(fitted):
    empty = DAYS.with_columns(pl.when(pl.col("day") == 3).then(None).otherwise(pl.col("tmax")).alias("tmax"))
    assert fitted.impute(empty)["tmax"].is_finite().all()
    assert fitted.impute(DAYS.drop("tmax"))["tmax"].is_finite().all()
    assert fitted.impute(DAYS).select(DAYS.columns).equals(DAYS)
    assert len(fitted.impute(DAYS[:0])) == 0


def test_a_group_is_filled_the_same_whatever_surrounds_it(fitted):
    some = HOLES.filter(pl.col("day").is_in([4, 9]))
    among = HOLES.sample(fraction=1, shuffle=True, seed=1)
    for alone, one in zip(
        [fitted.impute(some), *fitted.impute(some, draws=2, seed=5)],
        [fitted.impute(among), *fitted.impute(among, draws=2, seed=5)],
        strict=True,
    ):
        keys = ["day", "station"]
        other = one.filter(pl.col("day").is_in([4, 9]))
        np.testing.assert_allclose(alone.sort(keys)["tmax"], other.sort(keys)["tmax"], rtol=1e-4)


def test_seeds_and_draws_differ(fitted):
    one, two = fitted.impute(HOLES, draws=2, seed=0)
    (other,) = fitted.impute(HOLES, draws=1, seed=1)
    gone = HOLES["tmax"].is_null()
    assert (one["tmax"] != two["tmax"]).equals(gone.alias("tmax"))
    assert (one["tmax"] != other["tmax"]).filter(gone).all()
    assert fitted.impute(HOLES, draws=1, seed=0)[0].equals(one)


def correlated(rows=300, seed=0):
    draw = np.random.default_rng(seed)
    cov = np.array([[1.0, 0.8, 0.5], [0.8, 1.0, 0.6], [0.5, 0.6, 1.0]])
    x = draw.multivariate_normal([1, -2, 5], cov, rows)
    return pl.DataFrame({"a": x[:, 0], "b": x[:, 1], "c": x[:, 2]}), cov


def test_draws_are_jointly_right():
    table, cov = correlated()
    model = SimpleModel(simple.GaussianConditional(), family="gaussian").fit_wide(table, progress=False)
    holes = pl.DataFrame({"a": [None] * 400, "b": [None] * 400, "c": [6.5] * 400}, strict=False)
    holes = holes.with_columns(pl.col("a", "b").cast(pl.Float64), id=pl.int_range(400))
    (drawn,) = model.impute(holes, draws=1)
    x = drawn.select("a", "b").to_numpy()
    mean = np.array([1, -2]) + cov[:2, 2] * 1.5
    np.testing.assert_allclose(x.mean(0), mean, atol=0.2)
    np.testing.assert_allclose(np.cov(x.T), cov[:2, :2] - np.outer(cov[:2, 2], cov[:2, 2]), atol=0.2)
    np.testing.assert_allclose(model.impute(holes[:1])["a"], mean[:1], atol=0.2)


@pytest.mark.parametrize("family", ["poisson", "ordinal", "bernoulli", "gamma", "student_t"])
def test_draws_lie_in_the_support(family):
    column = {"poisson": "count", "ordinal": "rating", "bernoulli": "liked", "gamma": "size", "student_t": "real"}
    name, table = column[family], ratings()
    roles = {"group": "user", "item": "movie", "value": name}
    model = efa(family=family, terms="value").fit(table, **roles, progress=False)
    for one in model.impute(punched(table, name), draws=2):
        model.family_.check(one[name].cast(pl.Float64).to_numpy()[:, None], name)
        assert one[name].dtype == table[name].dtype


def test_several_columns_and_the_past():
    table = punched(ratings(), "real", "rating")
    roles = {"group": "user", "item": "movie", "value": ["rating", "real"], "order": "at"}
    model = efa(context="past", terms="value").fit(ratings(), **roles, progress=False)
    for one in [model.impute(table), *model.impute(table, draws=2)]:
        assert one["real"].null_count() == one["rating"].null_count() == 0
    earlier = table.with_columns(pl.when(pl.col("at") > 1).then(0.5).otherwise(pl.col("real")).alias("real"))
    now = pl.col("at") <= 1
    for one, two in zip(model.impute(table, draws=2), model.impute(earlier, draws=2), strict=True):
        assert len(one.filter(now)) == len(two.filter(now))


def test_columns_that_vary_together_are_drawn_together():
    both = {"group": "day", "item": "station", "value": ["tmax", "tmin"]}
    model = efa(family="multivariate_gaussian", terms="value").fit(DAYS, **both, progress=False)
    empty = DAYS.with_columns(pl.lit(None).cast(pl.Float64).alias(name) for name in ("tmax", "tmin"))
    (one,) = model.impute(empty, draws=1)
    assert np.corrcoef(one["tmax"], one["tmin"])[0, 1] > 0.5


def test_ordered_categories_are_filled_with_levels():
    levels = pl.Enum(["low", "fair", "high"])
    words = DAYS.with_columns(
        pl.Series(np.array(["low", "fair", "high"])[np.digitize(DAYS["tmax"], [25, 30])]).cast(levels).alias("felt")
    )
    model = efa(terms="value").fit(words, group="day", item="station", value="felt", progress=False)
    filled = model.impute(punched(words, "felt"))
    assert set(filled["felt"].cast(pl.String)) <= {"low", "fair", "high"}
    assert filled["felt_probability"].drop_nulls().is_between(0, 1).all()


@pytest.mark.parametrize("asked", [{"draws": -1}, {"draws": 1.5}, {"seed": -1}, {"interval": 2}])
def test_what_cannot_be_is_refused(fitted, asked):
    with pytest.raises(DataError) as caught:
        fitted.impute(HOLES, **asked)
    assert caught.value.option == next(iter(asked))


def test_a_model_of_items_alone_has_nothing_to_impute():
    model = efa(terms="item").fit(ratings(), group="user", item="movie", progress=False)
    with pytest.raises(DataError, match="no value term"):
        model.impute(ratings())


def test_estimates_are_pooled_by_rubins_rules():
    estimates, variances = np.array([1.0, 1.2, 0.9, 1.3]), np.array([0.04, 0.05, 0.04, 0.05])
    pooled = efattn.pool(estimates, variances)
    between = estimates.var(ddof=1)
    total = variances.mean() + 1.25 * between
    assert pooled.estimate == pytest.approx(estimates.mean())
    assert pooled.sd == pytest.approx(np.sqrt(total))
    assert pooled.missing == pytest.approx(1.25 * between / total)
    assert pooled.degrees == pytest.approx(3 / pooled.missing**2)
    assert pooled.lower < pooled.estimate < pooled.upper
    several = efattn.pool(np.stack([estimates, estimates], 1), np.stack([variances, variances], 1))
    np.testing.assert_allclose(several.sd, [pooled.sd] * 2)
    same = efattn.pool([2.0, 2.0], [0.1, 0.1])
    assert same.missing == 0
    assert same.upper == pytest.approx(2 + 1.959964 * np.sqrt(0.1), rel=1e-4)
    with pytest.raises(DataError):
        efattn.pool([1.0], [0.1])
