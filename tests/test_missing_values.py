"""Laws of shares where values are missing that a row might have seen."""

import json

import numpy as np
import polars as pl
import pytest
import torch
from small import efa, weather

import efattn
from efattn.data import Roles, Schema
from efattn.estimators import file_checks, missing_values, shares
from efattn.inference import Part, mixture
from efattn.simple import GaussianConditional, ItemMean

ROLES = {"group": "day", "item": "station", "value": "tmax"}
HOLES = ((0.5, 0.6), (1.0, 0.4))


def batch_of(table, **roles):
    _, groups = Schema.fit_encode(table, Roles(**(ROLES | roles)))
    return next(iter(groups.batches(10_000, dtype=torch.float64)))


@pytest.mark.parametrize("context", ["others", "past"])
def test_the_part_that_is_missing_is_of_what_a_row_may_see(context):
    table = weather(days=6)
    gone = np.random.default_rng(0).random(len(table)) < 0.4
    batch = batch_of(table.with_columns(tmax=pl.when(pl.Series(gone)).then(None).otherwise("tmax")), order="row")
    found = mixture.missing(batch, context)[..., 0]
    for group in range(len(found)):
        for row in range(batch.length):
            seen = [c for c in range(batch.length) if (c < row if context == "past" else c != row)]
            empty = [not bool(batch.observed[group, c, 0]) for c in seen if batch.exists[group, c]]
            assert float(found[group, row]) == pytest.approx(np.mean(empty) if empty else 0.0)


def test_shares_are_drawn_straight_between_those_that_are_known():
    at = torch.tensor([0.0, 0.25, 0.5, 0.75, 1.0], dtype=torch.float64)
    torch.testing.assert_close(
        mixture._between(((0.0, 0.2), *HOLES), at), torch.tensor([0.2, 0.4, 0.6, 0.5, 0.4], dtype=torch.float64)
    )
    narrow = ((0.1, 0.3), (0.2, 0.5))
    torch.testing.assert_close(mixture._between(narrow, at[[0, 4]]), torch.tensor([0.3, 0.5], dtype=torch.float64))


def test_whole_rows_have_the_usual_shares_and_a_new_item_has_its_own():
    table = weather(days=4)
    batch = batch_of(table)
    model = efa().fit(table, **ROLES).members_[0]["tmax"]
    network = Part(model, 0.8, holes=tuple((part, 1 - share) for part, share in HOLES), new=0.1, items=4)
    simple = Part(model, 0.2, holes=HOLES, new=0.9, items=4)
    own, other = mixture.shares([network, simple], batch)
    new = batch.item[:, : batch.length, None] >= 4
    assert bool(new.any())
    torch.testing.assert_close(other, torch.where(new, 0.9, 0.2).double())
    torch.testing.assert_close(own + other, torch.ones_like(own))


def test_holes_leave_about_the_part_that_is_asked_for_and_change_no_other_value():
    _, groups = Schema.fit_encode(weather(days=60), Roles(**ROLES))
    for rate in missing_values.RATES:
        left = missing_values.with_holes(groups, rate).value[:, 0]
        there = ~np.isnan(left)
        assert abs(1 - there.mean() - rate) < 0.1
        np.testing.assert_array_equal(left[there], groups.value[there, 0])


@pytest.fixture(scope="module")
def model():
    return efa(companions=[GaussianConditional(), ItemMean()]).fit(weather(days=40), **ROLES, validation=0.3)


def test_a_fit_has_shares_at_each_rate(model):
    several = model.companions_["tmax"]
    for one in several:
        assert [part for part, _ in one.holes] == pytest.approx(missing_values.RATES)
    for part in model.fitted_.parts("tmax"):
        assert all(0 <= share <= 1 for _, share in part.holes)
    assert "values are missing" in model.summary()


def test_a_saved_model_keeps_them_and_an_older_file_has_the_usual_ones_everywhere(model, tmp_path):
    table = weather(days=8, seed=1)
    table = table.with_columns(tmax=pl.when(pl.int_range(pl.len()) % 3 > 0).then("tmax"))
    model.save(tmp_path / "m.efattn")
    again = efattn.load(tmp_path / "m.efattn")
    assert again.companions_["tmax"][0].holes == model.companions_["tmax"][0].holes
    np.testing.assert_array_equal(model.predict(table)["tmax_mean"], again.predict(table)["tmax_mean"])
    about = json.loads(json.dumps(model.companions_["tmax"][0].holes))
    assert file_checks.hole_shares(about) == model.companions_["tmax"][0].holes
    assert file_checks.hole_shares(()) == ()
    for wrong in ([[0.0, 0.5]], [[0.5, 0.1], [0.2, 0.1]], [[0.1, 2.0], [0.5, 0.1]], [[0.1], [0.5]]):
        with pytest.raises(efattn.DataError):
            file_checks.hole_shares(wrong)


def test_few_groups_leave_shares_near_the_usual_ones_and_many_decide():
    usual, weight = torch.tensor([0.8, 0.2]).double(), torch.ones(400, dtype=torch.float64)
    values = torch.stack([torch.zeros(400), torch.full((400,), 0.4)], 1).double()
    few, many = (shares.best_shares(values, weight, groups, usual=usual) for groups in (2, 400))
    assert few[1] > usual[1]
    assert many[1] > few[1] + 0.2
    alike = shares.best_shares(torch.zeros(400, 2, dtype=torch.float64), weight, 40, usual=usual)
    torch.testing.assert_close(alike, usual, atol=1e-3, rtol=0)
