"""A report of reliability tells right laws from wrong ones, with errors that respect groups, and becomes a picture."""

import json
from dataclasses import replace

import numpy as np
import pytest
from small_models import fitted
from test_distributions import distribution
from test_plots import PNG, png

from efattn import DataError, families, plots
from efattn.inference import reliability
from efattn.inference.reliability import clustered, row_errors


def observed(family, rows=3000, seed=1):
    """Laws, and a draw of each as what happened."""
    law = distribution(family, rows=rows)
    return replace(law, observed=law.sample(1, seed)[:, 0])


@pytest.mark.parametrize("family", [families.Gaussian(), families.Gamma(), families.Poisson(), families.Ordinal(5, 1)],
                         ids=repr)  # fmt: skip
def test_right_laws_hold_what_they_promise(family):
    report = reliability(observed(family))
    assert [one.level for one in report.coverage] == [0.5, 0.8, 0.9, 0.95]
    for one in report.coverage:
        assert one.promised == pytest.approx(one.level) or family.discrete
        assert one.promised >= one.level - 1e-9
        assert abs(one.covered - one.promised) < 4 * one.error + 1e-9
    assert report.pit.shape == (3000,)
    assert abs(report.pit.mean() - 0.5) < 4 * np.sqrt(1 / 12 / 3000)


def test_laws_that_are_too_narrow_are_told_apart():
    law = observed(families.Gaussian())
    narrow = replace(law, scale=law.scale / 2)
    one, other = reliability(law), reliability(narrow, law.observed)
    assert other.coverage[2].covered < other.coverage[2].level - 4 * other.coverage[2].error
    assert one.crps.mean < other.crps.mean
    assert one.log_score.mean > other.log_score.mean
    assert "90% intervals hold" in str(one)


def test_errors_are_over_groups():
    draw = np.random.default_rng(0)
    x = draw.normal(size=40)
    mean, error = clustered(x, np.arange(40))
    assert (mean, error) == pytest.approx((x.mean(), x.std(ddof=1) / np.sqrt(40)))
    twice = clustered(np.repeat(x, 5), np.repeat(np.arange(40), 5))
    assert twice == pytest.approx((mean, error))  # rows that say the same say it once
    assert clustered(x, np.zeros(40)).error is None


def test_each_item_has_its_own():
    model, table, _ = fitted("others")
    law = model.predict_distribution(table)
    report, entries = reliability(law), row_errors(law)
    by_item = report.by_item.sort("movie")
    for name in ("crps", "inside_50", "inside_95"):
        mine = table.select("movie").with_columns(x=entries[name]).group_by("movie").mean().sort("movie")
        np.testing.assert_allclose(by_item[name], mine["x"])
    assert by_item["rows"].sum() == report.rows == len(table)
    assert json.loads(json.dumps(report.to_json()))["coverage"][0]["level"] == 0.5


def test_missing_values_are_left_out_and_nothing_at_all_is_an_error():
    law = observed(families.Gaussian(), rows=50)
    holes = np.where(np.arange(50) % 3 == 0, np.nan, law.observed)
    assert reliability(law, holes).rows == (~np.isnan(holes)).sum()
    assert all((np.isnan(x) == np.isnan(holes)).all() for x in row_errors(law, holes).values())
    with pytest.raises(DataError, match="can be scored"):
        reliability(law, np.full(50, np.nan))


@pytest.mark.parametrize("name", ["others", "ordinal", "alone"])
def test_evaluate_says_the_same(name):
    model, table, roles = fitted(name)
    told, laws = model.evaluate(table, rows="all"), model.predict_distribution(table)
    for value in [roles["value"]] if isinstance(roles["value"], str) else roles["value"]:
        mine = reliability(laws[value])
        assert told.mean("crps", of=value) == pytest.approx(mine.crps.mean)
        assert told.error("crps", of=value) == pytest.approx(mine.crps.error)
        for one, other in zip(mine.coverage, told.reliability(value).coverage, strict=True):
            assert one == pytest.approx(other)
        if not laws[value].discrete.any():
            np.testing.assert_allclose(np.sort(told.pit[value]), np.sort(mine.pit))
        assert png(told.plot(of=value)).startswith(PNG)
    with pytest.raises(DataError, match="no value column"):
        told.reliability("nothing")


@pytest.mark.parametrize("rows", [40, 3000])
def test_it_becomes_a_picture(rows):
    left, right = shown = plots.reliability(reliability(observed(families.Gaussian(), rows=rows)))
    assert len(left.patches) == (20 if rows > 400 else 10) + 1  # and the band
    assert all(axes.get_xlabel() and axes.get_ylabel() for axes in (left, right))
    assert "y" in shown.figure.get_suptitle()
    assert png(shown).startswith(PNG)
