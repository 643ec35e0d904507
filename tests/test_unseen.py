"""Stations that were never seen, and cells that are missing: each is predicted from what remains of its day alone."""

import numpy as np
import polars as pl
import pytest

from efattn import EFA, SimpleModel, datasets, simple
from efattn.experiments import runner
from efattn.experiments.presets import cities, unseen
from efattn.experiments.settings import REFITTED, Split
from efattn.training import Training

QUICK = Training(epochs=2, patience=None, device="cpu")


@pytest.fixture
def weather(monkeypatch):
    """Five cities in one October of each year."""
    draw = np.random.default_rng(2)
    days = pl.date_range(pl.date(2007, 10, 1), pl.date(2019, 10, 31), eager=True)
    days = days.filter((days.dt.month() == 10) & (days.dt.day() < 9))
    place = {"city": list("abcde"), "state": ["X"] * 5, "latitude": [30.0, 32, 35, 41, 44]}
    places = pl.DataFrame(place).with_columns(longitude=-90.0 - pl.col("latitude"))
    frame = pl.DataFrame({"date": days, "day": draw.normal(60, 9, len(days))}).join(places, how="cross")
    frame = frame.with_columns(temperature=pl.col("day") + draw.normal(0, 2, len(frame))).drop("day")
    monkeypatch.setattr(datasets, "us_cities", lambda which: frame)
    return frame


def test_every_station_is_new_once_and_is_never_in_what_is_fitted():
    folds = [unseen.new_stations(fold) for fold in range(unseen.FOLDS)]
    new = [set(parts.test.filter("scored")["station"]) for parts in folds]
    assert [len(stations) for stations in new] == [unseen.IN_A_FOLD] * unseen.FOLDS
    assert len(set.union(*new)) == datasets.noaa_october()["station"].n_unique()
    for parts, stations in zip(folds, new, strict=True):
        assert not stations & (set(parts.train["station"]) | set(parts.validation["station"]))
        assert set(parts.whole["year"]) == {1990, 1991, 1992}
        assert set(parts.test["year"]) == {1993}


def test_a_new_station_stands_alone_among_the_known_ones():
    parts = unseen.new_stations(4)
    known = set(parts.train["station"])
    sizes = parts.test.group_by("date").agg(
        pl.len(), pl.col("scored").sum(), known=pl.col("station").is_in(known).sum()
    )
    assert set(sizes["len"]) == {100}
    assert set(sizes["scored"]) == {1}
    assert set(sizes["known"]) == {99}
    assert len(sizes) == 34 * unseen.IN_A_FOLD


@pytest.mark.parametrize("rate", unseen.RATES)
def test_as_many_cells_are_missing_as_were_drawn(rate, weather):
    for seed in (0, 1):
        parts, whole = unseen.missing_cells(seed, rate), cities.split(seed).test
        gone = np.random.default_rng(seed).random((whole["date"].n_unique(), 5)) < rate
        scored = parts.test.filter("scored")
        assert len(scored) == gone.sum()
        np.testing.assert_array_equal(scored["temperature"], whole["temperature"].to_numpy()[gone.ravel()])
        days = dict(zip(whole["date"].unique(maintain_order=True), gone, strict=True))
        for copy in parts.test.partition_by("date"):
            hidden = days[copy["day"][0]] & ~copy["scored"].to_numpy()
            np.testing.assert_array_equal(copy["temperature"].is_null().to_numpy(), hidden)


def test_a_missing_cell_is_predicted_as_if_it_alone_were_asked_about(weather):
    """All removed cells of a day at once, none of them with a value, get the same prediction."""
    parts = unseen.missing_cells(0, 0.3)
    setting = unseen.SETTINGS[2]
    model = SimpleModel(simple.GaussianConditional(), family="gaussian")
    model.fit(parts.train, **setting.roles, validation=parts.validation)
    one = model.predict(parts.test, interval=None).filter("scored").sort("day", "city")
    cells = one.select("day", "city", gone=True)
    day = cities.split(0).test.join(cells, left_on=["date", "city"], right_on=["day", "city"], how="left")
    day = day.with_columns(temperature=pl.when("gone").then(None).otherwise("temperature"))
    both = model.predict(day, interval=None).filter("gone").sort("date", "city")
    np.testing.assert_allclose(one["temperature_mean"], both["temperature_mean"])


@pytest.mark.parametrize("protocol", ["train only", REFITTED])
def test_one_fit_is_tested_on_all_rates_and_says_how_it_is_mixed(weather, protocol, tmp_path, monkeypatch):
    fit = EFA.fit
    fits = []

    def quick(self, *rows, **roles):
        fits.append(len(rows[0]))
        self.set_params(training=QUICK, companions=simple.GaussianConditional())
        return fit(self, *rows, **roles)

    monkeypatch.setattr(EFA, "fit", quick)
    runner._split.cache_clear()
    (run,) = runner.planned(["cities"], ["defaults"], 1, protocols=[protocol], settings=["no lag"])
    runner.run_one(run, tmp_path, bar=False)
    runner._split.cache_clear()
    parts: Split = cities.split(0)
    assert fits == [len(parts.train) + (len(parts.validation) if protocol == REFITTED else 0)]
    records = [path.parent.name for path in tmp_path.glob("*/*/*.json")]
    assert sorted(records) == ["no-lag", "us-cities-10-missing", "us-cities-30-missing", "us-cities-50-missing"]
