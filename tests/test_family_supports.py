"""What a family tells a user whose value, name or parameter it cannot take."""

import numpy as np
import pytest
import torch

from efattn import DataError, families


def test_a_value_outside_the_support_is_named_with_its_place_and_remedy():
    y = np.ones(20)
    y[17] = -1.0
    with pytest.raises(DataError) as error:
        families.Poisson().check(y, column="rating", label=lambda index: f"row {index} (user 'u3')")
    assert str(error.value) == (
        "Poisson values must be whole numbers >= 0; column 'rating' has -1.0 at row 17 (user 'u3'). "
        "If -1 marks a missing value, pass missing=-1."
    )


@pytest.mark.parametrize(
    ("family", "value", "words"),
    [
        (families.Categorical(levels=3), 3, "from 0 to 2; column 'value' has 3 at row 1"),
        (families.Bernoulli(), 2.0, "whole numbers from 0 to 1"),
        (families.Bernoulli(), 0.5, "fraction"),
        (families.Binomial(trials=4), 5.0, "larger range"),
        (families.Poisson(shift=1), 0.0, "whole numbers >= 1; .* missing=0"),
        (families.Poisson(), 2.5, "'gaussian' .* or 'gamma'"),
        (families.Poisson(), np.inf, "Infinity"),
        (families.Gaussian(), -np.inf, "finite numbers; .* -inf .* Infinity"),
        (families.Gamma(), 0.0, "missing=0. Otherwise .* 'poisson' .* 'gaussian'"),
        (families.Gamma(), -3.0, "'gaussian'"),
        (families.Exponential(), 0.0, "> 0"),
        (families.Beta(), 1.0, "interval is open"),
        (families.Beta(), 37.0, "percentages"),
        (families.NegativeBinomial(), -2.0, "missing=-2"),
        (families.Ordinal(levels=5, low=1), 6.0, "from 1 to 5"),
    ],
)
def test_each_family_names_its_support_and_a_remedy(family, value, words):
    inside = 1 if isinstance(family, families.Categorical) else 0.25 if isinstance(family, families.Beta) else 1.0
    for y in (np.array([inside, value]), torch.tensor([inside, value])):
        with pytest.raises(DataError, match=words):
            family.check(y)
    assert not family.support.contains(np.array([value])).any()
    family.check(np.array([inside, np.nan]))


def test_columns_are_named_each_with_its_own_family():
    family = families.Product((families.Gamma(), families.MultivariateGaussian(columns=2)))
    y = torch.tensor([[1.0, -1.0, 0.0], [1.0, torch.inf, torch.nan], [-5.0, 0.0, 0.0]])
    with pytest.raises(DataError, match=r"Gamma values must be .* column 'rain' has -5.0 at row 2"):
        family.check(y, column=("rain", "tmax", "tmin"))
    with pytest.raises(DataError, match=r"MultivariateGaussian values .* column 'tmax' has inf at row 1"):
        family.check(y[:2], column=("rain", "tmax", "tmin"))
    with pytest.raises(DataError, match=r"'value\[1\]'"):
        family.check(y[:2])
    with pytest.raises(DataError, match="covers 3 value columns"):
        family.check(y[:, :2])
    family.check(y[:1])


def test_integers_and_booleans_are_values():
    families.Bernoulli().check(np.array([True, False]))
    families.Bernoulli().check(torch.tensor([True, False]))
    families.Poisson().check(np.arange(5, dtype=np.uint8))
    families.Gaussian().check(torch.arange(3))


def test_names_are_forgiving_and_a_wrong_one_suggests_the_nearest():
    assert families.named("poisson", shift=1) == families.Poisson(shift=1)
    assert families.named("Negative-Binomial") == families.named("NegativeBinomial") == families.NegativeBinomial()
    assert families.named("gaussian", variance=2.0) == families.Gaussian(variance=2.0)
    assert families.named(families.Beta()) == families.Beta()
    assert {family.name for family in families.FAMILIES} >= {"categorical", "multivariate_gaussian", "product"}
    with pytest.raises(DataError, match=r"No family is called 'poison'\. Did you mean 'poisson'\?"):
        families.named("poison")
    with pytest.raises(DataError, match="There are categorical, bernoulli"):
        families.named("xyz")
    with pytest.raises(DataError, match="has no parameter 'shfit': it has shift, link"):
        families.named("poisson", shfit=1)
    with pytest.raises(DataError, match=r"'ordinal' needs levels: families\.Ordinal\(levels=\.\.\.\)"):
        families.named("ordinal", low=1)
    with pytest.raises(DataError, match="constructor"):
        families.named(families.Poisson(), shift=1)


@pytest.mark.parametrize(
    "saved",
    [
        {"name": "gaussian", "variance": -1},
        {"name": "gaussian", "variance": True},
        {"name": "gaussian", "variance": float("nan")},
        {"name": "gaussian", "variance": "big"},
        {"name": "gaussian", "variance": [1]},
        {"name": "gaussian", "noise": 1.0},
        {"name": "binomial", "trials": 0},
        {"name": "binomial", "trials": 2.5},
        {"name": "categorical", "levels": 1},
        {"name": "ordinal", "levels": 1},
        {"name": "ordinal", "levels": 3, "low": 0.5},
        {"name": "poisson", "shift": "one"},
        {"name": "poisson", "link": "probit"},
        {"name": "poisson", "scale": 1},
        {"name": "poisson", "spec": 1},
        {"name": "gamma", "shape": 0},
        {"name": "beta", "concentration": "predict"},
        {"name": "negative_binomial", "r": -2.0},
        {"name": "negative_binomial", "exponential": True},
        {"name": "multivariate_gaussian", "columns": 0},
        {"name": "multivariate_gaussian", "covariance": 1.0},
        {"name": "product", "parts": []},
        {"name": "product", "parts": "poisson"},
        {"name": "product", "parts": [{"name": "categorical", "levels": 3}]},
        {"name": "product", "parts": [{"name": "product", "parts": [{"name": "poisson"}]}]},
        {"name": "product", "parts": [{"name": "gaussian", "variance": -1}]},
        {"name": 3},
        {"shift": 1},
        "poisson",
        None,
    ],
    ids=repr,
)
def test_a_family_that_makes_no_sense_is_a_data_error(saved):
    with pytest.raises(DataError):
        families.from_json(saved)
