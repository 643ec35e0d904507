"""Zeros of their own, and values known up to limits: what such laws contain, what is beyond a limit, every verb."""

import numpy as np
import polars as pl
import pytest
import torch
from family_cases import points
from small import efa
from test_predict_distribution import agree, laws_of, scores_agree

import efattn
from efattn import DataError, families, simple
from efattn.families import Censored, Gaussian, Hurdle, LogNormal, NegativeBinomial, Poisson, Truncated, ZeroInflated
from efattn.families.supports import NEAR
from efattn.inference.crps import crps
from efattn.inference.laws import Laws
from efattn.inference.reliability import row_errors

DRAW = np.random.default_rng(0)
DAYS, PLACES = 24, 4
LEVEL = np.repeat(DRAW.normal(size=DAYS), PLACES) + np.tile(np.arange(PLACES) / 4, DAYS)
RAIN = np.where(DRAW.random(DAYS * PLACES) < 1 / (1 + np.exp(-LEVEL)), DRAW.gamma(2, np.exp(LEVEL)), 0.0)
HEAT = 300 + 20 * (LEVEL + DRAW.normal(size=LEVEL.shape))
TABLE = pl.DataFrame(
    {
        "day": np.repeat(np.arange(DAYS), PLACES),
        "place": np.tile(np.arange(PLACES), DAYS),
        "rain": RAIN,
        "fish": np.where(RAIN > 0, DRAW.poisson(np.exp(LEVEL + 1)), 0),
        "heat": HEAT.clip(290, 330),
        "warm": np.where(HEAT > 290, HEAT, 291.0),
    }
)
CASES = {
    "zero_or": ("rain", families.ZeroOr()),
    "zero_or log": ("rain", families.ZeroOr(LogNormal())),
    "zero_inflated": ("fish", ZeroInflated(Poisson())),
    "hurdle": ("fish", Hurdle()),
    "censored": ("heat", Censored(Gaussian(), 290, 330)),
    "censored log": ("heat", Censored(LogNormal(), 290)),
    "truncated": ("warm", Truncated(Gaussian(), 290)),
}


def fit(name, **parameters):
    column, family = CASES[name]
    model = efa(family=family, terms="value", companions=simple.ShrunkMean(), **parameters)
    return model.fit(TABLE, group="day", item="place", value=column), column


@pytest.mark.parametrize("name", CASES)
def test_every_verb_knows_them_in_the_table_s_units_and_a_file_keeps_them(name, tmp_path):
    model, column = fit(name)
    law = laws_of(model, TABLE)
    assert law.laws[0][1].shares.shape[1] == 2
    agree(model, TABLE, column, law)
    scores_agree(model, TABLE, column, law)
    draws = law.sample(400, seed=1)
    assert (np.abs(draws.mean(1) - law.mean) < 6 * law.sd / 20).all()
    pit = law.pit()
    assert ((pit >= 0) & (pit <= 1)).all()
    told = model.predict(TABLE)
    model.save(tmp_path / "m.efattn")
    again = efattn.load(tmp_path / "m.efattn")
    assert again.family_ == model.family_
    assert again.predict(TABLE).equals(told)
    assert again.score(TABLE) == model.score(TABLE)


@pytest.mark.parametrize("name", ["zero_or", "censored"])
def test_what_has_a_probability_is_told_apart_from_what_has_a_density(name):
    law = laws_of(fit(name)[0], TABLE)
    for atom in law.laws[0][1].family.atoms:
        x = atom * law.scale[0] + law.centre[0]
        mass = law.probability(between=(x, x))
        np.testing.assert_allclose(mass, law.pdf(x), rtol=1e-9)  # of an atom a probability, in the table's units
        assert (mass > 0).all()
        before = x - 3 * NEAR * max(abs(x), 1.0)
        np.testing.assert_allclose(law.cdf(x) - law.cdf(before), mass, atol=1e-4)
        at = law.quantiles([float(law.cdf(x)[0])])[0, 0]
        assert at == pytest.approx(x, abs=1e-9)
    entries = row_errors(law)
    assert (entries["promised_90"] >= 0.9 - 1e-9).all()


def test_the_score_of_a_mixture_with_a_zero_is_its_integral():
    family = families.ZeroOr()
    f = points(family, n=6)
    laws = Laws(family, (f[:3], f[3:]), torch.full((3, 2), 0.5, dtype=torch.float64))
    y = torch.tensor([0.0, 0.4, 3.0], dtype=torch.float64)
    x = torch.linspace(0, 40, 80_001, dtype=torch.float64)[None].expand(3, -1)
    miss = laws.cdf(x) - (x >= y[:, None]).double()
    torch.testing.assert_close(crps(laws, y), torch.trapezoid(miss**2, x), rtol=1e-3, atol=2e-4)


def test_without_zeros_of_their_own_counts_are_those_of_the_base():
    y = torch.arange(12.0, dtype=torch.float64)
    for base in (Poisson(), NegativeBinomial()):
        f = torch.cat([points(base), torch.zeros(4, 1, dtype=torch.float64)], 1)
        plain = base.log_prob(f[:, None, :-1], y)
        torch.testing.assert_close(Hurdle(base).log_prob(f[:, None], y), plain)
        f[:, -1] = -1e8  # no extra zeros
        torch.testing.assert_close(ZeroInflated(base).log_prob(f[:, None], y), plain, rtol=1e-6, atol=1e-6)


def test_more_zeros_leave_the_others_as_they_were():
    f, y = points(Hurdle()), torch.arange(1.0, 9, dtype=torch.float64)
    more = f + torch.tensor([0.0, 0.0, 1.0], dtype=torch.float64)
    change = Hurdle().log_prob(f[:, None], y) - Hurdle().log_prob(more[:, None], y)
    torch.testing.assert_close(change, change[:, :1].expand(-1, 8))


def test_limits_far_away_change_nothing():
    f = points(Gaussian())
    y = Gaussian().sample(f, torch.Generator().manual_seed(0))
    for kind in (Censored, Truncated):
        far = kind(Gaussian(), -1e4, 1e4)
        torch.testing.assert_close(far.log_prob(f, y), Gaussian().log_prob(f, y))
        torch.testing.assert_close(far.mean(f), Gaussian().mean(f))
        torch.testing.assert_close(far.variance(f), Gaussian().variance(f))


def test_scipy_agrees_with_a_truncated_normal_law_far_out_in_its_tail():
    from scipy import stats

    f = torch.tensor([[-30.0, 0.0], [0.0, 2.0], [40.0, 0.0]], dtype=torch.float64)
    family = Truncated(Gaussian(), 0.0, 2.0)
    mean, sd = f[:, 0].numpy(), np.exp(-f[:, 1].numpy() / 2)
    theirs = stats.truncnorm((0 - mean) / sd, (2 - mean) / sd, mean, sd)
    np.testing.assert_allclose(family.mean(f), theirs.mean(), rtol=1e-6)
    np.testing.assert_allclose(family.log_prob(f, torch.tensor(0.1)), theirs.logpdf(0.1), rtol=1e-6)
    np.testing.assert_allclose(family.quantile(f, 0.3), theirs.ppf(0.3), rtol=1e-5)


def test_what_is_there_is_found_behind_a_limit_of_detection():
    """Half of the values lie below the limit; their law is recovered from the others and from how many there are."""
    y = torch.tensor(np.exp(np.random.default_rng(1).normal(1.0, 0.8, 20_000)))
    family = Censored(LogNormal(), lower=float(np.exp(1.0)))
    start = family.start(y.clamp_min(family.lower))
    m, b = start.tolist()
    assert m == pytest.approx(1.0, abs=0.03)
    assert np.exp(-b / 2) == pytest.approx(0.8, abs=0.03)
    assert family.underlying.mean(start) < family.mean(start)


def test_the_law_of_what_is_there_goes_beyond_the_limits():
    model, _ = fit("censored")
    law = model.predict_distribution(TABLE)
    assert law.quantiles(0.001).min() >= 290
    assert law.underlying.quantiles(0.001).min() < 290
    assert model.predict_distribution(TABLE).underlying.sd.mean() > law.sd.mean()
    plain = efa(family="gaussian", terms="value").fit(TABLE, group="day", item="place", value="warm")
    law = plain.predict_distribution(TABLE)
    assert law.underlying is law


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Censored(Gaussian()), "give lower, upper or both"),
        (lambda: Censored(Poisson(), lower=1), "base must be Gaussian"),
        (lambda: Truncated(LogNormal(), lower=0), "must be > 0"),
        (lambda: Truncated(Gaussian(), 2, 1), "less than upper"),
        (lambda: Censored(Gaussian(), "low"), "must be a number"),
        (lambda: ZeroInflated(Gaussian()), "counts 0, 1, 2"),
        (lambda: Hurdle(Poisson(shift=1)), "counts 0, 1, 2"),
        (lambda: families.ZeroOr(Poisson()), "numbers > 0"),
        (lambda: families.ZeroOr(zeros="some"), "zeros must be"),
        (lambda: families.PerItem((Censored(Gaussian(), 0.0),), (0,)), "units that items do not share"),
        (
            lambda: Censored(Gaussian(), 290).check(np.array([289.0])),
            "numbers >= 290; .*is written as the limit",
        ),
        (lambda: Truncated(Gaussian(), -1, 2).check(np.array([3.0])), "numbers from -1 to 2; .*beyond the limits"),
        (lambda: families.ZeroOr().check(np.array([0.0, -1.0])), "finite numbers >= 0; .*missing=-1"),
    ],
)
def test_what_makes_no_sense_is_said(make, words):
    with pytest.raises(DataError, match=words):
        make()


def test_calibration_takes_them():
    model, _ = fit("zero_or")
    other = TABLE.with_columns(pl.col("day") + 100)
    law = model.calibrate(other).predict_distribution(other)
    low, high = law.interval(0.8)
    held = (low <= RAIN) & (high >= RAIN)
    assert held.mean() > 0.75
    assert (low >= 0).all()
