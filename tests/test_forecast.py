"""Forecasts widen as they should; a measurement is worth what it takes from the variance of the others."""

import datetime

import numpy as np
import polars as pl
import pytest
from shell import forked
from small import efa, weather
from small_models import fitted

from efattn import SimpleModel, simple
from efattn.errors import DataError

SLOPE, DAYS = 0.8, 1000
quiet = pytest.mark.filterwarnings("ignore::efattn.EfattnWarning")


def walk(seed=0, station="s", scale=1.0):
    """y_t = 0.8 y_(t-1) + noise."""
    draw, y = np.random.default_rng(seed), [0.0]
    for _ in range(DAYS - 1):
        y.append(SLOPE * y[-1] + scale * draw.normal())
    day = [datetime.date(2000, 1, 1) + datetime.timedelta(days=k) for k in range(DAYS)]
    return pl.DataFrame({"day": day, "station": station, "y": y})


@pytest.fixture(scope="module")
def series():
    table = walk()
    model = SimpleModel(simple.GaussianConditional(), family="gaussian", lags=1)
    return model.fit(table, group="day", item="station", time="day", value="y"), table


def test_a_forecast_widens_as_that_of_the_process(series):
    model, table = series
    told = model.forecast(table, steps=5, draws=2000)
    k = np.arange(1, 6)
    assert told["step"].to_list() == k.tolist()
    assert told["day"].to_list() == [table["day"][-1] + datetime.timedelta(days=int(n)) for n in k]
    np.testing.assert_allclose(told["y_mean"], table["y"][-1] * SLOPE**k, atol=0.25)
    np.testing.assert_allclose(told["y_sd"], np.sqrt((1 - SLOPE ** (2 * k)) / (1 - SLOPE**2)), rtol=0.1)
    np.testing.assert_allclose(told["y_upper"] - told["y_lower"], 2 * 1.645 * told["y_sd"], rtol=0.1)


def test_one_step_on_is_what_predict_says_of_a_row_without_a_value(series):
    model, table = series
    (told,) = model.forecast(table, steps=1, draws=3000).rows(named=True)
    asked = pl.DataFrame({"day": [told["day"]], "station": ["s"], "y": [None]}, schema=table.schema)
    said = model.predict(pl.concat([table, asked])).tail(1)
    assert told["y_mean"] == pytest.approx(said["y_mean"].item(), abs=0.06)
    assert told["y_sd"] == pytest.approx(said["y_sd"].item(), rel=0.05)


def test_paths_are_what_a_forecast_is_the_summary_of(series):
    model, table = series
    paths = model.forecast(table, steps=3, draws=50, paths=True)
    told = model.forecast(table, steps=3, draws=50)
    assert paths["draw"].unique().sort().to_list() == list(range(1, 51))
    mean = paths.group_by("day").agg(pl.col("y").mean()).sort("day")["y"]
    np.testing.assert_allclose(mean, told["y_mean"], rtol=1e-12)
    assert not paths.equals(model.forecast(table, steps=3, draws=50, paths=True, seed=1))


def test_each_series_goes_on_from_its_own_last_group_whatever_columns_name_groups():
    one = weather(days=8, stations=2)
    two = weather(seed=1, days=6, stations=2)
    table = pl.concat([one.with_columns(place=pl.lit("a")), two.with_columns(place=pl.lit("b"))])
    table = table.with_columns(visit=pl.concat_str("place", "day"), mood=pl.lit("calm"))
    roles = {"group": "visit", "item": "station", "value": "tmax", "attributes": ["latitude", "longitude"]}
    model = efa(lags=2, terms="value").fit(table, **roles, time="day", series="place")
    told = model.forecast(table, steps=2, draws=3, burn_in=1)
    assert told["place"].to_list() == ["a", "a", "b", "b"] * 2
    assert told["day"].to_list() == [8, 8, 6, 6, 9, 9, 7, 7]
    assert told["visit"].to_list() == ["a7 + 1", "a7 + 1", "b5 + 1", "b5 + 1", "a7 + 2", "a7 + 2", "b5 + 2", "b5 + 2"]
    assert told["latitude"].to_list()[:2] == one["latitude"].to_list()[:2]
    assert "mood" not in told.columns
    assert told.null_count().sum_horizontal().item() == 0
    early = table.filter((pl.col("day") >= 6) | (pl.col("place") == "b") & (pl.col("day") >= 4))
    assert model.forecast(early, steps=2, draws=3, burn_in=1).equals(told)  # nothing before the lags is looked at


@quiet
def test_python_and_the_shell_forecast_the_same_and_choose_the_same(tmp_path):
    model, table, _ = fitted("lags")
    model.save(tmp_path / "m.efattn")
    table.write_parquet(tmp_path / "t.parquet")
    words = ("--steps", 2, "--draws", 4, "--seed", 1, "--burn-in", 2)
    forked("forecast", "m.efattn", "t.parquet", *words, "-o", "o.parquet", cwd=tmp_path).good()
    mine = model.forecast(table, 2, 4, 1, burn_in=2)
    assert pl.read_parquet(tmp_path / "o.parquet").equals(mine)
    ask = table.filter(pl.col("day") == 23)
    ask.write_parquet(tmp_path / "c.parquet")
    table.filter(pl.col("day") < 23).write_parquet(tmp_path / "k.parquet")
    forked("where-next", "m.efattn", "k.parquet", "c.parquet", "-o", "w.parquet", cwd=tmp_path).good()
    assert pl.read_parquet(tmp_path / "w.parquet").equals(model.where_next(table.filter(pl.col("day") < 23), ask))


def test_a_model_without_lags_says_so():
    model, table, _ = fitted("others")
    with pytest.raises(DataError, match="sees no earlier groups"):
        model.forecast(table)


def test_a_measurement_is_worth_what_it_takes_from_the_others():
    draw = np.random.default_rng(0).normal(size=(300, 4)) @ np.array(
        [[1, 0.9, 0.5, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1.0]]
    )
    long = (
        pl.DataFrame(draw, schema=list("abcd"))
        .with_row_index("day")
        .unpivot(index="day", variable_name="item", value_name="y")
    )
    model = SimpleModel(simple.GaussianConditional(), family="gaussian")
    model.fit(long, group="day", item="item", value="y", validation=None)
    known = pl.DataFrame({"day": [1], "item": ["d"], "y": [0.5]})
    ask = pl.DataFrame({"day": [1, 1, 1, 2], "item": ["c", "b", "a", "a"]})
    told = model.where_next(known, ask)
    assert told["item"].to_list()[0] == "a"
    assert told.filter(pl.col("day") == 2)["y_reduction"].to_list() == [0.0]  # nothing else of its group is asked for

    def spread(**there):
        rows = {"day": [1] * 4, "item": list("abcd"), "y": [there.get(item) for item in "abcd"]}
        return dict(
            zip("abcd", model.predict(pl.DataFrame(rows, schema_overrides={"y": pl.Float64}))["y_sd"] ** 2, strict=True)
        )

    now, after = spread(d=0.5), spread(d=0.5, b=1.0)  # of a Gaussian, whatever is measured
    worth = told.filter(pl.col("item") == "b")
    assert worth["y_reduction"].item() == pytest.approx(sum(now[x] - after[x] for x in "ac"), rel=1e-6)
    assert worth["y_sd"].item() == pytest.approx(np.sqrt(now["b"]), rel=1e-6)


def test_the_cell_of_a_wide_table_that_tells_most_of_its_row_comes_first(tmp_path):
    draw = np.random.default_rng(0).normal(size=(300, 3)) @ np.array([[1, 0.9, 0.5], [0, 0.5, 0], [0, 0, 1]])
    table = pl.DataFrame(draw, schema=list("abc")).with_columns(name=pl.format("p{}", pl.int_range(pl.len())))
    model = SimpleModel(simple.GaussianConditional(), family="gaussian").fit_wide(table, id="name", validation=None)
    ask = pl.DataFrame({"name": ["x", "y"], "a": [None, 0.3], "b": [None, None], "c": [None, None]})
    ask = ask.cast(dict.fromkeys("abc", pl.Float64))
    told = model.where_next(ask)
    assert told.columns == ["row", "name", "column", "reduction"]
    assert told.filter(pl.col("row") == 0)["column"].to_list()[0] == "a"
    assert set(told.filter(name="y")["column"]) == {"b", "c"}

    def spread(a):  # nearly the same whatever is measured
        row = pl.DataFrame({"name": ["x"], "a": [a], "b": [None], "c": [None]}, schema_overrides=ask.schema)
        return model.predict(row).select(pl.col("b_sd", "c_sd") ** 2).row(0)

    fall = sum(1 - after / now for now, after in zip(spread(None), spread(0.7), strict=True))
    assert told.filter(name="x", column="a")["reduction"].item() == pytest.approx(fall, rel=0.05)
    model.save(tmp_path / "m.efattn")
    ask.write_parquet(tmp_path / "t.parquet")
    forked("where-next", "m.efattn", "t.parquet", "-o", "w.parquet", cwd=tmp_path).good()
    assert pl.read_parquet(tmp_path / "w.parquet").equals(told)
    for wrong in ((table.head(2),), (ask, ask)):
        with pytest.raises(DataError, match="missing"):
            model.where_next(*wrong)


def test_a_grid_of_new_places_is_predicted_from_attributes_alone(tmp_path):
    model, table, _ = fitted("places")
    day = table.filter(pl.col("day") == 3)
    grid = pl.DataFrame({"day": 3, "latitude": [33.0, 38.0, 43.0], "longitude": [-95.0, -90.0, -85.0]})
    asked = pl.concat([day, grid], how="diagonal_relaxed")
    told = model.predict(asked).tail(3)
    assert told.select("tmax_mean", "tmax_sd", "tmin_mean").null_count().sum_horizontal().item() == 0
    model.save(tmp_path / "m.efattn")
    asked.write_parquet(tmp_path / "t.parquet")
    forked("predict", "m.efattn", "t.parquet", "-o", "o.parquet", cwd=tmp_path).good()
    assert pl.read_parquet(tmp_path / "o.parquet").tail(3).equals(told)
