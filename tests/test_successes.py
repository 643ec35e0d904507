"""Counts of so many trials: the law, and tables whose exposure is the number of trials."""

import numpy as np
import polars as pl
import pytest
import torch
from scipy import stats
from small_training import efa

from efattn import families, load
from efattn.estimators.families import choose

ROLES = {"group": "child", "value": "heard", "exposure": "played", "attributes": "loud"}


def laws(trials):
    """Outputs of several laws, and the same as scipy has them."""
    f = torch.tensor([[0.3, 1.2], [-1.0, 4.0], [2.0, 0.5], [-3.0, 9.0]], dtype=torch.float64)
    m, k = f[:, 0].sigmoid().numpy(), f[:, 1].exp().numpy()
    f = torch.cat([f, torch.full((4, 1), float(np.log(trials)), dtype=torch.float64)], 1)
    return f, stats.betabinom(trials, m * k, (1 - m) * k)


@pytest.mark.parametrize("trials", [1, 7, 300, 1999])
def test_it_is_the_beta_binomial_law(trials):
    family, (f, law) = families.Successes(), laws(trials)
    for y in {0, trials // 3, trials - 1, trials}:
        value = torch.full((4,), float(y), dtype=torch.float64)
        np.testing.assert_allclose(family.log_prob(f, value), law.logpmf(y), rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(family.cdf(f, value), law.cdf(y), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(family.mean(f), law.mean())
    np.testing.assert_allclose(family.variance(f), law.var())
    for p in (0.1, 0.5, 0.93):
        np.testing.assert_array_equal(family.quantile(f, p), law.ppf(p))


def test_of_many_trials_the_share_has_nearly_a_beta_law():
    family, (f, law) = families.Successes(), laws(50_000)
    for p in (0.05, 0.5, 0.9):
        y = family.quantile(f, p)
        assert (law.cdf(y.numpy()) >= p - 0.01).all()
        assert (law.cdf(y.numpy() - 1) <= p + 0.01).all()
        np.testing.assert_allclose(family.cdf(f, y - 1), law.cdf(y.numpy() - 1), atol=0.01)


def test_more_successes_than_trials_are_all_but_impossible():
    f, _ = laws(7)
    assert (families.Successes().log_prob(f, torch.tensor(8.0)) == -1e4).all()


def test_nothing_is_learnt_of_the_number_of_trials():
    f, _ = laws(7)
    f.requires_grad_()
    (gradient,) = torch.autograd.grad(families.Successes().log_prob(f, torch.tensor(3.0)).sum(), f)
    assert (gradient[:, -1] == 0).all()
    assert (gradient[:, :-1] != 0).all()


def test_the_marginal_fit_of_exposed_rows_is_the_best():
    draw = np.random.default_rng(0)
    played = draw.integers(2, 40, 3000)
    y = torch.tensor(draw.binomial(played, draw.beta(3.0, 1.0, 3000)), dtype=torch.float64)
    f = families.Successes().exposed_start(y, torch.tensor(played))
    assert f[0].sigmoid().item() == pytest.approx(0.75, abs=0.02)
    assert f[1].exp().item() == pytest.approx(4.0, rel=0.15)
    assert f[2] == 0


def heard(children=60, seed=0):
    """Children hear better or worse, all hear loud signals; each is tested ten times with 2 to 9 signals."""
    draw = np.random.default_rng(seed)
    child, loud = np.repeat(np.arange(children), 10), draw.normal(size=children * 10)
    played = draw.integers(2, 10, children * 10)
    logit = 1.0 + 1.5 * loud + 1.5 * np.repeat(draw.normal(size=children), 10)
    found = draw.binomial(played, 1 / (1 + np.exp(-logit)))
    return pl.DataFrame({"child": child, "loud": loud, "played": played, "heard": found})


def test_auto_takes_counts_that_never_exceed_their_exposure_for_successes(tmp_path):
    model = efa(companions="auto").fit(heard(), **ROLES)
    assert isinstance(model.family_.parts[0], families.Successes)
    test = heard(40, seed=1)
    counts = efa(companions="auto", family="negative_binomial").fit(heard(), **ROLES)
    assert model.score(test) > counts.score(test) + 0.2
    told = model.predict(test, interval=0.8)
    assert (told["heard_upper"] <= told["played"]).all()
    assert np.corrcoef(told["heard_mean"] / told["played"], told["heard"] / told["played"])[0, 1] > 0.6
    model.save(tmp_path / "m.efattn")
    assert load(tmp_path / "m.efattn").score(test) == model.score(test)


def test_rates_of_rare_events_and_exposures_that_are_no_numbers_of_trials_stay_counts():
    draw = np.random.default_rng(0)
    people = draw.integers(1000, 90_000, 300).astype(float)

    def rivals(y, exposure):
        (choice,) = choose(y[:, None].astype(float), ("y",), "auto", exposure=exposure).parts
        return {one.name for one in choice.rivals}

    assert "successes" not in rivals(draw.poisson(people * 1e-4), people)
    assert "successes" not in rivals(draw.poisson(5, 300), np.full(300, 6.0))
    assert "successes" not in rivals(draw.binomial(9, 0.5, 300), np.full(300, 9.5))
    assert "successes" in rivals(draw.binomial(9, 0.5, 300), np.full(300, 9.0))
