"""Calibrated intervals hold what they promise, by groups that the fit has not seen; everything else stays."""

import json

import numpy as np
import polars as pl
import pytest
from shell import forked
from small import efa, ratings, weather

import efattn
from efattn import DataError, ModelFileError, inference, storage
from efattn.inference import Calibration, reliability
from efattn.inference.calibration import independent

WEATHER = weather(days=200)
PART = {name: WEATHER.filter(pl.col("day").is_between(*days)) for name, days in
        {"train": (0, 39), "other": (40, 119), "test": (120, 199)}.items()}  # fmt: skip
DAYS = {"group": "day", "item": "station", "value": "tmax"}


def plain():
    return efa(terms="value").fit(PART["train"], **DAYS)


@pytest.fixture(scope="module")
def model():
    return plain().calibrate(PART["other"])


# ---- the map


@pytest.mark.parametrize("m", [9, 19, 99])
def test_with_a_row_a_group_intervals_hold_exactly_what_they_promise(m):
    """Places of m calibration rows and one more are in any order alike, whatever law they have."""
    draw, held, tries = np.random.default_rng(m), 0, 4000
    for _ in range(tries):
        u = draw.beta(0.4, 0.7, m + 1)
        low, high = Calibration.fit(u[:-1], np.arange(m)).level([0.1, 0.9])
        held += low <= u[-1] <= high
    assert abs(held / tries - 0.8) < 4 * np.sqrt(0.16 / tries)


def test_rows_that_say_the_same_count_once_and_independent_ones_each():
    draw, group = np.random.default_rng(2), np.repeat(np.arange(200), 5)
    assert independent(np.repeat(draw.random(200), 5), group) == pytest.approx(200)
    assert independent(draw.random(1000), group) > 800
    spread = np.repeat(draw.choice([0.05, 1.0], 200), 5)  # of some groups all values are near the middle
    assert independent(0.5 + spread * (draw.random(1000) - 0.5), group) < 600
    assert independent(draw.random(30), np.arange(30)) == 30


def test_intervals_hold_what_they_promise_where_rows_of_a_group_go_together():
    draw, held, tries = np.random.default_rng(3), [], 600
    group = np.repeat(np.arange(21), 4)
    for _ in range(tries):
        z = 0.6 * draw.normal(size=21)[group] + 0.8 * draw.normal(size=84)
        u = 1 / (1 + np.exp(-3 * z))  # laws that are too narrow
        low, high = Calibration.fit(u[:80], group[:80]).level([0.1, 0.9])
        held.append(np.mean((low <= u[80:]) & (u[80:] <= high)))
    assert abs(np.mean(held) - 0.8) < 0.02


def in_a_row(draw, days, rows, follow):
    """Places of rows whose days are alike, and each day like the one before."""
    day = draw.normal(size=days)
    for k in range(1, days):
        day[k] = follow * day[k - 1] + np.sqrt(1 - follow**2) * day[k]
    return 1 / (1 + np.exp(-2 * (0.5 * day[:, None] + 0.9 * draw.normal(size=(days, rows)))))


@pytest.mark.parametrize("follow", [0.0, 0.8])
def test_intervals_hold_what_they_promise_in_another_year_where_days_follow_each_other(follow):
    draw, held, group = np.random.default_rng(4), [], np.repeat(np.arange(34), 10)
    for _ in range(300):
        seen, new = in_a_row(draw, 34, 10, follow), in_a_row(draw, 34, 10, follow)
        low, high = Calibration.fit(seen.ravel(), group).level([0.1, 0.9])
        held.append(np.mean((low <= new) & (new <= high)))
    assert abs(np.mean(held) - 0.8) < 0.012  # without a look at neighbours .77


def test_groups_that_follow_each_other_count_as_fewer_whatever_the_order_of_rows():
    draw, group = np.random.default_rng(5), np.repeat(np.arange(60), 10)
    pit = in_a_row(draw, 60, 10, 0.9).ravel()
    mixed = draw.permutation(60)[group]  # the same groups, in any order
    assert independent(pit, group) < 0.5 * independent(pit, mixed)
    days = PART["other"].with_columns(tmax=pl.col("tmax") + 8 * np.repeat(in_a_row(draw, 80, 1, 0.9), 5))
    one, other = (plain().calibrate(table).fitted_.calibration["tmax"] for table in (days, days.sample(
        fraction=1, shuffle=True, seed=0)))  # fmt: skip
    np.testing.assert_allclose(one.adjusted, other.adjusted, atol=1e-9)


def test_the_map_rises_from_0_to_1_and_its_two_ways_invert_each_other():
    draw = np.random.default_rng(0)
    for pit in (draw.random(50), draw.beta(5, 5, 5000), np.repeat([0.0, 0.2, 0.2, 1.0], 20), np.full(30, 0.5)):
        one = Calibration.fit(pit, np.arange(len(pit)) // 2)
        assert len(one.own) <= 514
        for x in (one.own, one.adjusted):
            assert (x[0], x[-1]) == (0, 1)
            assert (np.diff(x) > 0).all()
        p = np.linspace(0, 1, 101)
        np.testing.assert_allclose(one.probability(one.level(p)), p, atol=1e-12)
        again = Calibration.from_json(json.loads(json.dumps(one.to_json())))
        np.testing.assert_array_equal(again.level(p), one.level(p))


def test_right_levels_hardly_move_and_wrong_ones_become_right():
    draw = np.random.default_rng(1)
    levels = np.array([0.05, 0.25, 0.5, 0.75, 0.95])
    right = Calibration.fit(draw.random(20_000), np.arange(20_000))
    np.testing.assert_allclose(right.level(levels), levels, atol=0.02)
    wrong = Calibration.fit(draw.random(20_000) ** 2, np.arange(20_000))
    np.testing.assert_allclose(wrong.level(levels), levels**2, atol=0.02)


# ---- of a model


def test_calibrated_intervals_hold_what_they_promise_on_other_groups(model):
    before, after = plain().predict_distribution(PART["test"]), model.predict_distribution(PART["test"])
    rows = reliability(before), reliability(after)
    assert any(abs(one.covered - one.level) > 2 * one.error for one in rows[0].coverage)  # two epochs are too few
    for one in rows[1].coverage:
        assert abs(one.covered - one.level) < 3 * one.error + 0.02  # 80 groups have chosen the levels


def test_only_quantiles_intervals_cdf_and_events_change(model):
    before, after = plain().predict_distribution(PART["test"]), model.predict_distribution(PART["test"])
    for ask in (lambda x: x.mean, lambda x: x.sd, lambda x: x.crps(), lambda x: x.log_score(), lambda x: x.sample(3)):
        np.testing.assert_array_equal(ask(before), ask(after))
    assert not np.array_equal(before.quantiles(0.9), after.quantiles(0.9))
    np.testing.assert_array_equal(before.quantiles(0.9), after.own.quantiles(0.9))
    q = after.quantiles([0.1, 0.9])
    np.testing.assert_allclose(after.cdf(q), np.broadcast_to([0.1, 0.9], q.shape), atol=1e-9)
    np.testing.assert_allclose(after.probability(between=(q[:, 0], q[:, 1])), 0.8, atol=1e-9)
    told = model.predict(PART["test"], 0.8, quantiles=[0.5])
    np.testing.assert_allclose(np.column_stack([told["tmax_lower"], told["tmax_upper"]]), q, rtol=1e-9)
    np.testing.assert_allclose(told["tmax_q50"], after.median, rtol=1e-9)
    np.testing.assert_array_equal(told["tmax_mean"], plain().predict(PART["test"])["tmax_mean"])


def test_one_member_and_an_updated_model_are_not_adjusted(model):
    alone = plain()
    assert model.predict(PART["test"], member=0).equals(alone.predict(PART["test"], member=0))
    assert model.predict_distribution(PART["test"], member=0).calibration is None
    again = plain().calibrate(PART["other"])
    again.update(PART["other"].filter(pl.col("day") < 60))
    assert not again.fitted_.calibration
    with pytest.raises(DataError, match="were there when this model was fitted"):
        again.calibrate(PART["other"])


def test_groups_of_the_fit_are_refused_by_their_names(tmp_path):
    model = plain()
    for table in (PART["train"], WEATHER, PART["train"].sample(3, seed=0)):
        with pytest.raises(DataError, match="were there when this model was fitted"):
            model.calibrate(table)
    model.calibrate(
        PART["train"].with_columns(day=pl.col("day") + 1000)
    )  # others of the same content are the user's say
    held = efa(terms="value").fit(PART["train"], **DAYS, validation=PART["other"])
    with pytest.raises(DataError, match="80 of 80 groups"):
        held.calibrate(PART["other"])
    with pytest.raises(DataError, match="at least 5 groups"):
        model.calibrate(PART["other"].filter(pl.col("day") < 43))
    items = efa().fit(ratings(), group="user", item="movie")
    with pytest.raises(DataError, match="no value term"):
        items.calibrate(ratings())


def test_several_columns_and_whole_numbers_are_calibrated_each():
    roles = {"group": "user", "item": "movie", "value": ["real", "count"]}
    other = ratings(3, users=40).with_columns(user="v" + pl.col("user"))
    model = efa(terms="value", family={"real": "gaussian", "count": "poisson"}).fit(ratings(), **roles)
    model.calibrate(other)
    assert set(model.fitted_.calibration) == {"real", "count"}
    told, laws = model.predict(other, 0.5), model.predict_distribution(other)
    for name in ("real", "count"):
        lower, upper = laws[name].interval(0.5)
        np.testing.assert_allclose(told[f"{name}_lower"], lower, rtol=1e-9)
        np.testing.assert_allclose(told[f"{name}_upper"], upper, rtol=1e-9)
    assert laws["count"].discrete.all()


def test_a_file_keeps_it_and_says_so(model, tmp_path):
    model.save(tmp_path / "m.efattn")
    again = efattn.load(tmp_path / "m.efattn")
    assert again.predict(PART["test"]).equals(model.predict(PART["test"]))
    assert "calibrated by 400 rows in 80 groups" in model.summary() == again.summary()
    with pytest.raises(DataError, match="were there"):
        again.calibrate(PART["train"])
    about, tensors = storage.read(tmp_path / "m.efattn", "model")
    older = {name: x for name, x in about.items() if name != "calibration"}
    storage.write(tmp_path / "old.efattn", "model", older, {n: x for n, x in tensors.items() if n != "seen.groups"})
    old = efattn.load(tmp_path / "old.efattn")
    assert old.predict(PART["test"]).equals(plain().predict(PART["test"]))
    with pytest.raises(DataError, match="does not say which groups"):
        old.calibrate(PART["other"])
    for wrong in ({"tmin": about["calibration"]["tmax"]}, {"tmax": {**about["calibration"]["tmax"], "own": [0, 1]}},
                  {"tmax": {**about["calibration"]["tmax"], "rows": 0}}, {"tmax": 3}, 7):  # fmt: skip
        storage.write(tmp_path / "bad.efattn", "model", {**about, "calibration": wrong}, tensors)
        with pytest.raises(ModelFileError):
            efattn.load(tmp_path / "bad.efattn")


def test_python_and_the_shell_calibrate_the_same(model, tmp_path):
    plain().save(tmp_path / "m.efattn")
    for name in ("other", "test"):
        PART[name].write_parquet(tmp_path / f"{name}.parquet")
    answer = forked("calibrate", "m.efattn", "other.parquet", "-o", "c.efattn", cwd=tmp_path).good()
    assert "80 groups" in answer.err
    assert efattn.load(tmp_path / "c.efattn").predict(PART["test"]).equals(model.predict(PART["test"]))
    assert forked("calibrate", "m.efattn", "other.parquet", "-o", "c.efattn", cwd=tmp_path).code == 2
    forked("calibrate", "m.efattn", "other.parquet", "-o", "m.efattn", "--force", cwd=tmp_path).good()
    assert forked("calibrate", "m.efattn", "test.parquet", cwd=tmp_path).code == 2


def test_pieces_of_a_table_calibrate_as_the_table(model):
    from efattn.data import Table

    engine = plain().fitted_
    halves = [PART["other"].filter(pl.col("day") < 80), PART["other"].filter(pl.col("day") >= 80)]
    found = inference.calibrate(engine, [Table.read(half) for half in halves]).calibration["tmax"]
    np.testing.assert_allclose(found.own, model.fitted_.calibration["tmax"].own, atol=1e-6)
    assert found.groups == 80
