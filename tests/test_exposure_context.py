"""Exposures in the context: a count is told by what its exposure lets expect, and counts for as much as it can tell."""

import numpy as np
import polars as pl
import pytest
import torch
from scipy.stats import nbinom
from small import efa

from efattn import Training, load
from efattn.data import Batch
from efattn.network import Rates

ROLES = {"group": "place", "value": "cases", "exposure": "people"}


def cases(places=120, seed=0):
    """Places have rates of their own, and are seen with exposures from tens to tens of thousands."""
    draw = np.random.default_rng(seed)
    rate = np.repeat(np.exp(draw.normal(-4, 1, places)), 6)
    people = np.round(np.exp(draw.uniform(3, 10, places * 6)))
    return pl.DataFrame(
        {"place": np.repeat(np.arange(places), 6), "people": people, "cases": draw.poisson(rate * people)}
    )


def alone(table):
    """Of a model in which places have no rates of their own, as good as one can be."""
    y, e = table["cases"].to_numpy(), table["people"].to_numpy()
    mean = y.sum() / e.sum() * e
    return max(nbinom.logpmf(y, r, r / (r + mean)).mean() for r in np.exp(np.linspace(-2, 2, 41)))


def test_the_rate_of_a_group_is_learnt_from_counts_with_very_different_exposures():
    training = Training(epochs=50, tokens=256, rate=0.02, device="cpu")
    model = efa(family="negative_binomial", training=training, dropout=0.0).fit(cases(80), **ROLES)
    test = cases(60, seed=1)
    assert model.score(test) > alone(test) + 0.3


def test_a_target_never_sees_its_count_and_the_others_see_its_exposure():
    table = cases(8)
    model = efa(family="poisson").fit(table, **ROLES)
    first = pl.int_range(pl.len()).over("place") == 0
    mine = model.predict(table)["cases_mean"].to_numpy()
    more = model.predict(table.with_columns(cases=pl.when(first).then(pl.col("cases") + 40).otherwise(pl.col("cases"))))
    assert np.allclose(more["cases_mean"].to_numpy()[::6], mine[::6], rtol=1e-5)
    fewer = table.with_columns(people=pl.when(first).then(pl.col("people") * 9).otherwise(pl.col("people")))
    other = model.predict(fewer)["cases_mean"].to_numpy()
    assert not np.allclose(other[1::6], mine[1::6], rtol=1e-5)


def test_a_unit_of_exposure_does_not_matter():
    rates, value = Rates([True]), torch.tensor([[3.0], [0.0], [70.0]])
    exposure, observed = torch.tensor([10.0, 1000.0, 200.0]), torch.ones(3, 1, dtype=torch.bool)
    rates.fit(value, observed, exposure)
    seen, known = rates(value, exposure)
    rates.fit(value, observed, exposure * 1e4)
    again, known_again = rates(value, exposure * 1e4)
    assert torch.allclose(seen, again, atol=1e-6)
    assert torch.allclose(known, known_again, atol=1e-5)
    assert seen[1] < 0 < seen[0]


def test_lagged_rows_have_their_exposures():
    groups = [{"value": [1.0, 2.0, 5.0], "exposure": [10.0, 20.0, 30.0], "lag": [0, 0, 1]}]
    assert Batch.of(groups).exposure.tolist() == [[10.0, 20.0, 30.0]]


def test_exposure_works_with_lags_and_files(tmp_path):
    table = cases(6).with_columns(day=pl.int_range(pl.len()).over("place"))
    table = table.with_columns(town=pl.col("place"))
    how = {**ROLES, "group": "day", "item": "town", "time": "day"}
    model = efa(family="poisson", terms="value", lags=1).fit(table, **how)
    model.save(tmp_path / "m.efattn")
    assert load(tmp_path / "m.efattn").score(table) == pytest.approx(model.score(table))
