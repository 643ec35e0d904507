"""The unit of a table is no part of what is learnt from it."""

import numpy as np
import polars as pl
import pytest
import torch
from small import QUICK, efa

from efattn import families, load
from efattn.estimators.efa import _views
from efattn.network import ItemViews

FAMILIES = [families.Gamma(), families.Exponential(), families.LogNormal(), families.ZeroOr(families.Gamma())]


def table(unit: float) -> pl.DataFrame:
    rng = np.random.default_rng(3)
    group = np.repeat(np.arange(30), 4)
    level = rng.normal(size=30)[group]
    return pl.DataFrame({"group": group, "value": np.exp(level + 0.3 * rng.normal(size=120)) * unit})


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: type(family).__name__)
@pytest.mark.parametrize("unit", [1e-4, 1e5])
def test_a_fit_in_another_unit_says_the_same(family, unit):
    roles = {"group": "group", "value": "value"}
    one, other = (
        efa(family=family, training=QUICK).fit(table(scale), **roles).score(table(scale)) for scale in (1.0, unit)
    )
    assert one == pytest.approx(other + np.log(unit), abs=2e-2)


@pytest.mark.parametrize("family", [families.Poisson(), families.NegativeBinomial(), families.Binomial(trials=9_000)])
def test_vast_counts_are_seen_as_numbers_near_one(family):
    views = _views(families.Product((family,)))
    y = torch.as_tensor(np.random.default_rng(0).integers(200, 8_000, (40, 5, 1)), dtype=torch.float32)
    views.fit(y, torch.ones_like(y, dtype=torch.bool), None)
    assert float(views(y, None).abs().max()) < 5


def test_small_counts_are_seen_as_they_are():
    views = _views(families.Product((families.Poisson(),)))
    y = torch.as_tensor(np.random.default_rng(0).integers(0, 8, (40, 5, 1)), dtype=torch.float32)
    views.fit(y, torch.ones_like(y, dtype=torch.bool), None)
    assert torch.equal(views(y, None), y)


def test_answers_of_levels_need_no_view():
    for family in (families.Bernoulli(), families.Ordinal(5), families.Nominal(4), families.Gaussian()):
        assert _views(families.Product((family,))) is None
    assert isinstance(_views(families.Product((families.Beta(),))), ItemViews)


def test_a_file_from_before_there_were_views_sees_values_as_they_are(tmp_path, monkeypatch):
    from efattn.estimators import efa as module

    roles = {"group": "group", "value": "value"}
    with monkeypatch.context() as before:
        before.setattr(module, "_views", lambda family: None)
        model = efa(family="gamma", training=QUICK).fit(table(1.0), **roles)
        model.save(tmp_path / "old.efattn")
        expected = model.predict(table(1.0))
    assert load(tmp_path / "old.efattn").predict(table(1.0)).equals(expected)
