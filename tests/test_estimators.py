"""What every fitted model promises of the rows of a table, whatever its terms, families and context."""

import math

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from small import efa, latent
from small_models import BOTH, MODELS, NUMBERS, TABLE, WEATHER, fitted

from efattn import DataError, Training


def names(value):
    return [value] if isinstance(value, str) else list(value)


def predicted(model, table, value, row=None):
    found = model.predict(table)
    columns = np.column_stack([found[f"{name}_{what}"].to_numpy() for name in names(value) for what in NUMBERS])
    return columns if row is None else columns[row]


# ---- each row from its context


@pytest.mark.parametrize("name", MODELS)
def test_a_row_is_predicted_without_its_own_value(name):
    model, table, roles = fitted(name)
    whole = predicted(model, table, roles["value"])
    for row in (0, 7, len(table) - 1):
        here = pl.int_range(pl.len()) == row
        for new in (None, 4):
            change = [pl.when(here).then(pl.lit(new)).otherwise(n).alias(n) for n in names(roles["value"])]
            other = table.with_columns(change)
            np.testing.assert_allclose(predicted(model, other, roles["value"], row), whole[row], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["others", "past", "latent"])
def test_other_values_matter(name):
    model, table, roles = fitted(name)
    whole = predicted(model, table, roles["value"])
    other = table.with_columns(pl.when(pl.col("at") == 0).then(pl.col("real") + 3).otherwise("real").alias("real"))
    changed = np.abs(predicted(model, other, "real") - whole).max(1) > 1e-6
    longer = (pl.Series(table["user"]).is_duplicated() & (table["at"] > 0)).to_numpy()
    assert changed[longer].mean() > 0.5


@pytest.mark.parametrize("name", [name for name in MODELS if name != "lags"])
def test_one_group_alone_gives_the_same_as_among_others(name):
    model, table, roles = fitted(name)
    whole, scored = predicted(model, table, roles["value"]), model.log_likelihood(table)
    ends = [column for column in scored.columns if column.endswith("_log_likelihood")]
    for group in table[roles["group"]].unique().sort()[:5]:
        mine = table[roles["group"]] == group
        alone = table.filter(mine)
        np.testing.assert_allclose(
            predicted(model, alone, roles["value"]), whole[mine.to_numpy()], rtol=1e-4, atol=1e-4
        )
        np.testing.assert_allclose(
            model.log_likelihood(alone)[ends].to_numpy(), scored.filter(mine)[ends].to_numpy(), rtol=1e-4, atol=1e-4
        )


def test_a_lagged_group_gives_the_same_with_only_its_lags_present():
    model, table, _ = fitted("lags")
    whole = predicted(model, table, "tmax")
    pair = table.filter(pl.col("day").is_in([9, 10]))
    mine = (table["day"] == 10).to_numpy()
    np.testing.assert_allclose(
        predicted(model, pair, "tmax")[(pair["day"] == 10).to_numpy()], whole[mine], rtol=1e-4, atol=1e-4
    )


@pytest.mark.parametrize("name", ["others", "past", "lags", "pieces"])
def test_the_order_of_the_table_is_kept(name):
    model, table, roles = fitted(name)
    if name == "pieces":  # which rows share a piece depends on the order of the table
        return
    by = np.random.default_rng(1).permutation(len(table))
    np.testing.assert_allclose(
        predicted(model, table[by], roles["value"]), predicted(model, table, roles["value"])[by], rtol=1e-3, atol=1e-4
    )


def test_past_predictions_ignore_what_comes_later():
    model, table, _ = fitted("past")
    first = table.filter(pl.col("at") <= 2)
    np.testing.assert_allclose(
        predicted(model, first, "real"),
        predicted(model, table, "real")[(table["at"] <= 2).to_numpy()],
        rtol=1e-4,
        atol=1e-4,
    )


# ---- frames


@pytest.mark.parametrize("kind", ["pandas", "polars", "pyarrow", "lazy", "csv", "mapping"])
def test_the_same_kind_of_frame_comes_back(kind, tmp_path):
    model, table, _ = fitted("others")
    TABLE.write_csv(tmp_path / "t.csv")
    given = {
        "pandas": table.to_pandas().set_index(np.arange(len(table)) + 100),
        "polars": table,
        "pyarrow": table.to_arrow(),
        "lazy": table.lazy(),
        "csv": str(tmp_path / "t.csv"),
        "mapping": table.to_dict(as_series=False),
    }[kind]
    types = {"pandas": pd.DataFrame, "pyarrow": pa.Table, "lazy": pl.LazyFrame}
    for verb in (model.predict, model.log_likelihood, lambda t: model.recommend(t, k=2)):
        assert isinstance(verb(given), types.get(kind, pl.DataFrame))
    out = model.predict(given)
    plain = out.lazy().collect() if isinstance(out, pl.DataFrame | pl.LazyFrame) else pl.DataFrame(out)
    assert plain.columns[: len(table.columns)] == table.columns
    np.testing.assert_allclose(plain["real_mean"].to_numpy(), model.predict(table)["real_mean"].to_numpy(), rtol=1e-6)
    if kind == "pandas":
        assert list(out.index) == list(given.index)
    assert model.score(given) == pytest.approx(model.score(table), rel=1e-6)


@pytest.mark.parametrize("kind", ["pandas", "pyarrow", "csv"])
def test_fitting_does_not_depend_on_the_kind_of_frame(kind, tmp_path):
    TABLE.write_csv(tmp_path / "t.csv")
    given = {"pandas": TABLE.to_pandas(), "pyarrow": TABLE.to_arrow(), "csv": tmp_path / "t.csv"}[kind]
    assert efa().fit(given, **BOTH).score(TABLE) == pytest.approx(efa().fit(TABLE, **BOTH).score(TABLE), rel=1e-6)


def test_the_table_given_is_not_changed():
    given = TABLE.to_pandas()
    before = given.copy()
    efa().fit(given, **BOTH).predict(given)
    pd.testing.assert_frame_equal(given, before)


# ---- units


def simulated(seed, groups=150, size=6):
    draw = np.random.default_rng(seed)
    group = np.repeat(np.arange(groups), size)
    level = draw.normal(size=groups)[group]
    return pl.DataFrame({"g": group, "y": 100 + 10 * (level + draw.normal(size=groups * size))})


def test_intervals_are_in_the_table_s_units_and_roughly_calibrated():
    training = Training(epochs=15, tokens=600, rate=0.01, device="cpu")
    model = efa(family="gaussian", training=training, dropout=0.0).fit(simulated(0), group="g", value="y")
    test = simulated(1)
    found, y = model.predict(test, interval=0.8), test["y"].to_numpy()
    inside = (found["y_lower"].to_numpy() <= y) & (y <= found["y_upper"].to_numpy())
    assert 0.72 < inside.mean() < 0.88
    assert np.abs(found["y_mean"].to_numpy().mean() - 100) < 5
    assert 9 < found["y_sd"].to_numpy().mean() < 15.5
    wider = model.predict(test, interval=0.95)
    assert (wider["y_upper"] > found["y_upper"]).all()
    plain = model.predict(test, interval=None)
    assert "y_lower" not in plain.columns
    assert model.score(test) > -0.5 * math.log(2 * math.pi * math.e * 200) + 0.02, "better than without context"


@pytest.mark.parametrize("way", ["global", "item", "auto"])
def test_the_log_likelihood_is_in_the_table_s_units(way):
    one = efa(family="gaussian", standardise=way, terms="value").fit(TABLE, **BOTH)
    larger = TABLE.with_columns(real=pl.col("real") * 10 + 7)
    two = efa(family="gaussian", standardise=way, terms="value").fit(larger, **BOTH)
    assert two.score(larger) == pytest.approx(one.score(TABLE) - math.log(10), abs=1e-3)
    np.testing.assert_allclose(
        two.predict(larger)["real_upper"].to_numpy(), one.predict(TABLE)["real_upper"].to_numpy() * 10 + 7, atol=0.02
    )


def test_the_jacobian_is_that_of_the_columns_that_are_scored():
    table = WEATHER.with_columns(tmin=pl.when(pl.col("station") == 0).then(None).otherwise("tmin"))
    roles = {"group": "day", "item": "station", "value": ["tmax", "tmin"]}
    one = efa(terms="value").fit(table, **roles)
    two = efa(terms="value").fit(larger := table.with_columns(pl.col("tmax") * 10, pl.col("tmin") * 100), **roles)
    column = "tmax+tmin_log_likelihood"
    gap = one.log_likelihood(table)[column] - two.log_likelihood(larger)[column]
    expected = np.where(table["station"] == 0, math.log(10), math.log(1000))
    np.testing.assert_allclose(gap.to_numpy(), expected, atol=0.01)


def test_a_gaussian_log_likelihood_is_that_of_its_prediction():
    model, table, _ = fitted("others")
    found, y = model.predict(table), table["real"].to_numpy()
    mean, sd = found["real_mean"].to_numpy(), found["real_sd"].to_numpy()
    expected = -0.5 * ((y - mean) / sd) ** 2 - np.log(sd) - 0.5 * math.log(2 * math.pi)
    np.testing.assert_allclose(model.log_likelihood(table)["real_log_likelihood"].to_numpy(), expected, atol=1e-4)


# ---- scores


@pytest.mark.parametrize("name", MODELS)
def test_the_score_is_the_mean_of_the_log_likelihoods(name):
    model, table, _ = fitted(name)
    found = model.log_likelihood(table).select(pl.col("^.*_log_likelihood$"))
    assert found.width == len(model.model_.terms)
    assert model.score(table) == pytest.approx(found.sum_horizontal().mean(), rel=1e-6)
    told = model.scores(table)
    assert told["observations"] == len(table)
    assert told["terms"] == pytest.approx({name: found[f"{name}_log_likelihood"].mean() for name in model.model_.terms})


def test_unknown_items_are_counted_and_not_scored():
    model, table, _ = fitted("others")
    strange = table.with_columns(movie=pl.when(pl.col("at") == 1).then(pl.lit("new")).otherwise("movie"))
    count = (table["at"] == 1).sum()
    assert model.scores(strange)["unknown"] == count
    found = model.log_likelihood(strange)
    assert found["item_log_likelihood"].is_null().sum() == count
    assert found["item_log_likelihood"].is_nan().sum() == 0
    assert found["real_log_likelihood"].is_null().sum() == 0
    assert model.predict(strange)["real_mean"].is_finite().all()


def test_missing_values_and_context_only_rows_are_not_scored():
    model, table, _ = fitted("others")
    gaps = table.with_columns(real=pl.when(pl.col("at") == 1).then(None).otherwise("real"))
    found = model.log_likelihood(gaps)
    assert found["real_log_likelihood"].is_null().to_list() == (table["at"] == 1).to_list()
    flagged = table.with_columns(t=pl.col("at") != 1)
    flags = efa().fit(flagged, **BOTH, target="t")
    assert flags.log_likelihood(flagged)["item_log_likelihood"].is_null().to_list() == (table["at"] == 1).to_list()
    assert flags.scores(flagged)["scored"] == (table["at"] != 1).sum()


def test_nothing_to_score_is_an_error():
    model, table, _ = fitted("others")
    with pytest.raises(DataError, match="No row of this table can be scored"):
        model.score(table.with_columns(movie=pl.lit("new"), real=pl.lit(None, pl.Float64)))
    with pytest.raises(DataError, match="'real'"):
        model.score(table.drop("real"))


def test_missing_codes():
    coded = TABLE.with_columns(real=pl.when(pl.col("at") == 1).then(-99.0).otherwise("real"))
    nulls = TABLE.with_columns(real=pl.when(pl.col("at") == 1).then(None).otherwise("real"))
    one, two = efa().fit(coded, **BOTH, missing=-99), efa().fit(nulls, **BOTH)
    assert one.score(coded) == two.score(nulls)


def test_exposure_multiplies_the_rate():
    roles = {"group": "user", "item": "movie", "value": "count", "exposure": "hours"}
    model = efa(family="poisson", terms="value").fit(TABLE, **roles)
    double = TABLE.with_columns(pl.col("hours") * 2)
    np.testing.assert_allclose(
        model.predict(double)["count_mean"].to_numpy(), 2 * model.predict(TABLE)["count_mean"].to_numpy(), rtol=0.02
    )
    plain = latent(family="poisson", terms="value").fit(TABLE, **roles)  # of which no part looks at exposures
    np.testing.assert_allclose(
        plain.predict(double)["count_mean"].to_numpy(), 2 * plain.predict(TABLE)["count_mean"].to_numpy(), rtol=1e-4
    )
    with pytest.raises(DataError, match="takes no exposure"):
        efa(family="gaussian").fit(TABLE, **roles)
