"""A family per item: each row has the law of its item's kind, in every model, verb and file."""

import numpy as np
import polars as pl
import pytest
import torch
from small import QUICK, efa

import efattn
from efattn import DataError, families, simple

PARTS = (families.Gaussian(), families.NegativeBinomial(), families.Bernoulli(), families.Ordinal(levels=4, low=1))
ROLES = {"group": "day", "item": "what", "value": "value"}


def melted(days=60, seed=0):
    draw = np.random.default_rng(seed)
    level = draw.normal(0, 1, days)
    columns = {
        "answer": draw.integers(1, 5, days).astype(float),
        "count": draw.poisson(np.exp(1 + 0.5 * level)).astype(float),
        "rain": (draw.random(days) < 1 / (1 + np.exp(-level))).astype(float),
        "temperature": 300 + 40 * level + draw.normal(0, 5, days),
        "wind": 0.01 * level + draw.normal(0, 0.01, days),
    }
    names = np.repeat(sorted(columns), days)
    values = np.concatenate([columns[name] for name in sorted(columns)])
    return pl.DataFrame({"day": np.tile(np.arange(days), len(columns)), "what": names, "value": values})


FAMILY = families.PerItem(PARTS, (3, 1, 2, 0, 0))


@pytest.fixture(scope="module")
def fitted():
    return efa(family=FAMILY, terms="value", training=QUICK).fit(melted(), **ROLES)


def test_a_row_has_the_law_of_its_kind():
    f = torch.randn(40, FAMILY.size, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    f[:, -1] = torch.arange(40) % 4
    y = FAMILY.sample(f, torch.Generator().manual_seed(1))
    for k, part in enumerate(PARTS):
        mine = f[k::4, : part.size]
        torch.testing.assert_close(FAMILY.log_prob(f, y)[k::4], part.log_prob(mine, y[k::4]))
        torch.testing.assert_close(FAMILY.mean(f)[k::4], part.mean(mine))
        torch.testing.assert_close(FAMILY.variance(f)[k::4], part.variance(mine))
        torch.testing.assert_close(FAMILY.cdf(f, y)[k::4], part.cdf(mine, y[k::4]))
        torch.testing.assert_close(FAMILY.quantile(f, 0.3)[k::4], part.quantile(mine, 0.3))


def test_each_item_starts_at_its_own_fit():
    y = torch.tensor([3.0, 5.0, 40.0, 60.0] * 50, dtype=torch.float64)
    item = torch.tensor([0, 0, 1, 1] * 50)
    family = families.PerItem((families.Poisson(), families.Gaussian()), (0, 0, 1))
    starts = family.starts(y, item)
    assert family.mean(starts)[:2].tolist() == pytest.approx([4, 50], rel=0.2)
    assert starts[:, -1].tolist() == [0, 0, 1, 0]


def test_it_goes_through_every_verb_and_a_file(fitted, tmp_path):
    table = melted(seed=1)
    told = fitted.predict(table, interval=0.8)
    by = {name: told.filter(pl.col("what") == name) for name in table["what"].unique()}
    assert by["temperature"]["value_mean"].mean() == pytest.approx(300, abs=20)
    assert by["rain"]["value_mean"].is_between(0, 1).all()
    assert by["rain"]["value_upper"].is_in([0.0, 1.0]).all()
    assert (by["count"]["value_lower"] == by["count"]["value_lower"].round()).all()
    assert by["answer"]["value_mode"].is_in([1.0, 2.0, 3.0, 4.0]).all()
    assert by["wind"]["value_mode"].is_nan().all() or by["wind"]["value_mode"].is_null().all()
    fitted.save(tmp_path / "m.efattn")
    again = efattn.load(tmp_path / "m.efattn")
    assert again.family_ == fitted.family_
    assert again.score(table) == fitted.score(table)
    assert again.predict(table, interval=0.8).equals(told)


def test_scores_are_in_the_units_of_the_table(fitted):
    table = melted(seed=1)
    scaled = pl.when(pl.col("what") == "temperature").then(pl.col("value") * 10).otherwise(pl.col("value"))
    other = efa(family=FAMILY, terms="value", training=QUICK).fit(melted().with_columns(value=scaled), **ROLES)
    lost = fitted.score(table) - other.score(table.with_columns(value=scaled))
    assert lost == pytest.approx(np.log(10) / 5, abs=0.01)


def test_an_item_that_is_not_known_is_predicted_and_not_scored(fitted):
    strange = pl.concat([melted(seed=1), pl.DataFrame({"day": [0], "what": ["new"], "value": [-7.5]})])
    with pytest.warns(UserWarning, match="Unknown items"):
        told = fitted.log_likelihood(strange)
    assert told["value_log_likelihood"].is_null().sum() == 1
    with pytest.warns(UserWarning, match="Unknown items"):
        assert fitted.predict(strange)["value_mean"].is_finite().all()


def test_a_value_that_its_kind_has_not_got_is_named(fitted):
    table = melted(seed=1).with_columns(
        value=pl.when((pl.col("what") == "rain") & (pl.col("day") == 7)).then(0.5).otherwise("value")
    )
    with pytest.raises(DataError, match=r"Bernoulli values must be whole numbers from 0 to 1.*0\.5 at row"):
        fitted.score(table)


@pytest.mark.parametrize("recipe", [simple.LinearModel(), simple.ShrunkMean(), simple.GaussianConditional()], ids=repr)
def test_simple_models_take_it(recipe, tmp_path):
    model = efattn.SimpleModel(recipe, family=FAMILY).fit(melted(), **ROLES)
    marginal = efattn.SimpleModel(simple.ItemMean(), family=FAMILY).fit(melted(), **ROLES)
    table = melted(seed=1)
    assert model.score(table) > marginal.score(table) - 0.1
    model.save(tmp_path / "s.efattn")
    assert efattn.load(tmp_path / "s.efattn").score(table) == model.score(table)


def test_an_update_takes_new_items_for_such_as_most_are(fitted):
    more = pl.concat([melted(seed=2), pl.DataFrame({"day": [0, 1], "what": ["new", "new"], "value": [1.5, 2.5]})])
    model = efa(family=FAMILY, terms="value", training=QUICK).fit(melted(), **ROLES).update(more)
    assert np.isfinite(model.score(melted(seed=3)))
