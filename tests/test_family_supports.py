"""What a family tells a user whose value, name or parameter it cannot take."""

import numpy as np
import pytest
import torch

from efattn import DataError, families
from efattn.estimators.families import automatic, choose


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
        (families.Gaussian(), 1e308, r"'value' has 1e\+308 at row 1. Beyond 1e\+150 squares are infinite: .* units"),
        (families.Gaussian(variance=1.0), -1e25, r"Beyond 1e\+18"),
        (families.Gamma(), 1e-50, r"1e-50 at row 1. In single precision, in which networks compute, it is 0. .* units"),
        (families.Exponential(), 1e39, "it is infinite"),
        (families.Beta(), 0.99999999, "single precision, .* it is 1. The interval is open"),
        (families.Beta(), 1e-50, "it is 0. The interval is open"),
        (families.Poisson(), 1e20, r"missing=1e\+20. Numbers as large as this want family='gaussian'"),
        (families.NegativeBinomial(), 1e300, "family='gaussian'"),
        (families.Ordinal(levels=5), 1e20, "from 0 to 4; .* family='gaussian'"),
        (families.Binomial(trials=4), 123456789.0, "missing=123456789"),
    ],
)
def test_each_family_names_its_support_and_a_remedy(family, value, words):
    inside = 1 if isinstance(family, families.Categorical) else 0.25 if isinstance(family, families.Beta) else 1.0
    for y in (np.array([inside, value]), torch.tensor([inside, value], dtype=None if value == 3 else torch.float64)):
        with pytest.raises(DataError, match=words):
            family.check(y)
    assert not family.support.contains(np.array([value])).any()
    family.check(np.array([inside, np.nan]))


def test_an_error_carries_column_and_row_beside_its_text():
    y = np.array([1.0, -1.0])
    with pytest.raises(DataError) as plain:
        families.Poisson().check(y, column="count")
    assert (plain.value.column, plain.value.row) == ("count", 1)
    with pytest.raises(DataError) as labelled:  # in words alone, whose number in the table is not known
        families.Poisson().check(y, column="count", label=lambda index: f"row {index + 40}")
    assert labelled.value.row is None
    with pytest.raises(DataError) as numbered:
        families.Product((families.Poisson(),)).check(y[:, None], ("count",), str, row=lambda index: index + 40)
    assert (numbered.value.column, numbered.value.row) == ("count", 41)


def test_values_that_pass_are_finite_in_single_precision():
    edges = {
        families.Gaussian(variance=1.0): [-1e18, 1e18],
        families.Gamma(): [2e-38, 3e38],
        families.Exponential(): [2e-38, 3e38],
        families.Beta(): [2e-38, 1 - 1e-7],
        families.Poisson(): [0.0, 9e18],
        families.NegativeBinomial(): [0.0, 9e18],
    }
    for family, ends in edges.items():
        family.check(np.array(ends))
        y = torch.tensor(ends)
        assert family.log_prob(family.start(y).float(), y).isfinite().all()
        assert family.log_prob(torch.zeros(family.size), y).isfinite().all()


def test_sizes_beyond_reason_are_refused_with_a_way_out():
    with pytest.raises(DataError, match=r"levels must be at most 10000, not 1000001: .* 'gaussian'"):
        families.Ordinal(levels=1_000_001)
    with pytest.raises(DataError, match="low must be at most"):
        families.Ordinal(levels=2, low=10**20)
    with pytest.raises(DataError, match=r"trials must be at most 16777216, not 10{20}: .*'beta'"):
        families.Binomial(trials=10**20)
    with pytest.raises(DataError, match="shift must be at most"):
        families.Poisson(shift=10**20)


def test_levels_far_from_0_are_told_apart_from_their_origin():
    y = 1_700_000_000 + np.arange(1000.0) % 5
    family = families.Ordinal(**families.Ordinal.sized(y, 1))
    family.check(y)
    inside, rest = family.at_origin(), torch.tensor(y - family.origin, dtype=torch.float32)
    start = inside.start(rest).float()
    assert family.level_names[0] == 1_700_000_000
    torch.testing.assert_close(inside.log_prob(start, rest).mean().item(), -np.log(5), rtol=1e-6, atol=0)


def test_quantiles_of_counts_without_bound_are_there_at_once():
    """Those of scipy took hours here."""
    family, f = families.NegativeBinomial(), torch.tensor([[35.0, -6.0], [1.0, 1.0]], dtype=torch.float64)
    for p in (1e-12, 0.5, 0.999, 1 - 1e-12):
        found = family.quantile(f, p)
        assert found.isfinite().all()
        assert (family.cdf(f, found) >= p - 1e-9).all()
        assert ((found == 0) | (family.cdf(f, found * (1 - 1e-6) - 1) <= p)).all()


def test_quantiles_of_huge_counts_are_finite_and_right():
    f = torch.tensor([20.0, 27.0, 30.0, 34.0, 1e4], dtype=torch.float64).unsqueeze(-1)
    for family in (families.Poisson(), families.Poisson(link="softplus"), families.NegativeBinomial(r=20.0)):
        low, middle, high = (family.quantile(f, p) for p in (0.025, 0.5, 0.975))
        assert torch.stack([low, middle, high]).isfinite().all()
        assert (low < middle).all()
        assert (middle < high).all()
        torch.testing.assert_close(family.cdf(f, low)[:3], torch.full((3,), 0.025, dtype=f.dtype), rtol=1e-3, atol=0)
        torch.testing.assert_close(family.cdf(f, high)[:3], torch.full((3,), 0.975, dtype=f.dtype), rtol=1e-3, atol=0)


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


def test_integers_booleans_and_single_precision_are_values():
    families.Bernoulli().check(np.array([True, False]))
    families.Bernoulli().check(torch.tensor([True, False]))
    families.Poisson().check(np.arange(5, dtype=np.uint8))
    families.Gaussian().check(torch.arange(3))
    for kind in families.FAMILIES:
        for family in kind.examples():
            y = family.sample(torch.zeros(5, family.size))
            family.check(y.numpy())  # in single precision, as batches have them
            family.check(y.double().numpy())


def test_names_are_forgiving_and_a_wrong_one_suggests_the_nearest():
    assert families.named("poisson", shift=1) == families.Poisson(shift=1)
    assert families.named("Negative-Binomial") == families.named("NegativeBinomial") == families.NegativeBinomial()
    assert families.named("gaussian", variance=2.0) == families.Gaussian(variance=2.0)
    assert families.named(families.Beta()) == families.Beta()
    assert {family.name for family in families.FAMILIES} >= {"categorical", "multivariate_gaussian", "product"}
    with pytest.raises(DataError, match=r"No family is called 'poison'\. Did you mean 'poisson'\?"):
        families.named("poison")
    with pytest.raises(DataError, match="There are bernoulli, binomial"):
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


def test_a_value_column_may_have_most_families():
    names = families.value_families()
    assert "gaussian" in names
    assert "categorical" not in names
    assert "product" not in names
    assert families.kind("Multivariate-Gaussian") is families.MultivariateGaussian


def test_what_auto_chooses_has_the_column():
    draw = np.random.default_rng(0)
    hostile = [
        1e15 + np.arange(30) % 2,
        1e17 + 1e3 * np.arange(30.0),
        np.append(draw.gamma(1, 1, 30), 1e-50),
        np.append(draw.uniform(0.1, 0.9, 30), 0.99999999),
        np.append(draw.poisson(3, 30), 1e20),
        -(2.0**53) + np.arange(5),
        np.full(5, 1e-300),
    ]
    for y in hostile:
        automatic(y).family.check(y)
    assert automatic(hostile[0]).family == families.Ordinal(2, 10**15)


def test_choices_say_why_as_data_and_as_notes():
    y = np.array([[0.0, 1.5], [1, 2.5]])
    choices = choose(y, ("yes", "size"), {"size": "gaussian"})
    assert [(part.columns, part.why) for part in choices.parts] == [(("size",), None), (("yes",), "only 0 and 1")]
    assert choices.family.parts == (families.Gaussian(), families.Bernoulli())
    (note,) = choices.notes
    assert (note.kind, note.column) == ("family", "yes")
    assert str(note) == "Family of 'yes': Bernoulli() (only 0 and 1)."


def test_a_size_that_data_ask_for_and_a_family_refuses_names_the_column():
    y = np.array([[0.0], [1e6], [1e20]])
    for name in ("ordinal", "binomial"):
        with pytest.raises(DataError, match=r"Column 'n': .* must be at most") as error:
            choose(y, ("n",), name)
        assert error.value.column == "n"
    with pytest.raises(DataError, match=r"'categorical' is no family of a value column.*There are bernoulli"):
        choose(y, ("n",), "categorical")
