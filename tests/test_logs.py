"""Laws of Gaussians of logarithms."""

import numpy as np
import polars as pl
import pytest

from efattn import DataError, SimpleModel, load, simple

ROLES = {"group": "g", "item": "i", "value": "y"}


def factors(groups=60, seed=0):
    """Logarithms of three items from one Gaussian, of spreads that make a few values huge."""
    rng = np.random.default_rng(seed)
    z = 1.5 * rng.normal(size=(groups, 1)) + np.array([0.0, 2.0, 4.0]) + 0.2 * rng.normal(size=(groups, 3))
    return pl.DataFrame({"g": np.repeat(np.arange(groups), 3), "i": np.tile(list("abc"), groups), "y": z.ravel()})


def test_of_a_log_normal_law_it_is_the_gaussian_of_the_logarithms():
    """Its score is that of the logarithms less their mean: the density of y is that of log y over y."""
    train, new = factors(), factors(seed=1)
    plain = SimpleModel(simple.GaussianConditional(weight=0.1, tails=0), family="gaussian").fit(train, **ROLES)
    grown = [x.with_columns(pl.col("y").exp()) for x in (train, new)]
    logs = SimpleModel(simple.GaussianConditional(weight=0.1, tails=0, logs=True), family="log_normal")
    logs.fit(grown[0], **ROLES)
    assert logs.score(grown[1]) == pytest.approx(plain.score(new) - float(new["y"].mean()), abs=1e-6)


@pytest.mark.parametrize("family", ["log_normal", "gamma", "negative_binomial"])
def test_values_that_differ_by_factors_are_told_better(family):
    train, new = (factors(seed=k).with_columns(pl.col("y").exp()) for k in (0, 1))
    if family == "negative_binomial":
        train, new = (x.with_columns(pl.col("y").round()) for x in (train, new))
    raw, logs = (
        SimpleModel(simple.GaussianConditional(logs=x), family=family).fit(train, **ROLES).score(new)
        for x in (False, True)
    )
    assert logs > raw + 0.1


def test_a_row_never_sees_itself_and_a_file_says_the_same(tmp_path):
    table = factors().with_columns(pl.col("y").exp())
    for recipe in (simple.GaussianConditional(logs=True), simple.Forest(trees=5, logs=True)):
        model = SimpleModel(recipe, family="log_normal").fit(table, **ROLES)
        other = table.with_columns(y=pl.when(pl.col("i") == "b").then(pl.col("y") * 3).otherwise(pl.col("y")))
        here, there = (model.predict(x).filter(pl.col("i") == "b")["y_mean"].to_numpy() for x in (table, other))
        np.testing.assert_allclose(here, there, rtol=1e-12)
        model.save(tmp_path / "m.efattn")
        assert load(tmp_path / "m.efattn").predict(table).equals(model.predict(table))


def test_kriging_of_logarithms_finds_places_that_differ_by_factors():
    rng = np.random.default_rng(0)
    x, y = rng.uniform(size=(2, 400))
    table = pl.DataFrame({"g": np.repeat(np.arange(20), 20), "x": x, "y": y})
    table = table.with_columns(
        zinc=(4 * (6 * pl.col("x")).sin() + 3 * pl.col("y")).exp() * np.exp(0.2 * rng.normal(size=400))
    )
    train, new = table.head(300), table.tail(100)
    raw, logs = (
        SimpleModel(simple.Kriging(logs=x), family="log_normal")
        .fit(train, group="g", value="zinc", attributes=["x", "y"])
        .score(new)
        for x in (False, True)
    )
    assert logs > raw + 0.1


def test_real_numbers_have_none():
    with pytest.raises(DataError, match="positive numbers or counts"):
        SimpleModel(simple.GaussianConditional(logs=True), family="gaussian").fit(factors(), **ROLES)
