"""A predictive distribution is one law, however it is asked: of every family, alone and as a mixture, in any units."""

import numpy as np
import pytest
import torch
from family_cases import ALL, over, points

from efattn import DataError, families
from efattn.inference import Distribution, mixture
from efattn.inference.laws import Laws

ONE_COLUMN = [one for one in ALL if one.of_values and one.scalar and not isinstance(one, families.PerItem)]
ROWS, SHARES = 6, (0.5, 0.3, 0.2)


def parted(shares, rows):
    return torch.tensor(shares, dtype=torch.float64).expand(rows, -1)


def distribution(family, shares=SHARES, rows=ROWS, centre=2.0, scale=1.5, column=0):
    """A mixture a row, in units of its own where the family may be standardised."""
    members = [family.column(points(family, rows, seed), column) for seed in range(len(shares))]
    laws = Laws(members[0][0], tuple(f for _, f in members), parted(shares, rows))
    plain = not family.standardised
    units = np.full(rows, 0.0 if plain else centre), np.full(rows, 1.0 if plain else scale)
    nothing, every = np.full(rows, np.nan), np.ones(rows, bool)
    return Distribution("y", ((np.arange(rows), laws),), *units, nothing, every, np.arange(rows) // 2)


def grid(law):
    """Whole numbers that have all but 1e-9 of the probability."""
    return np.arange(law.quantiles(1e-10).min(), law.quantiles(1 - 1e-10).max() + 1)[None]


def integral(ask, law, at=None):
    """(row,): of ask(x) over all x, by Gauss and Legendre between many quantiles of each row and `at`."""
    tail = 10.0 ** np.arange(-9, -1.5, 0.25)
    ends = law.quantiles([*tail, *np.arange(0.04, 0.97, 0.05), *(1 - tail[::-1])])
    ends = np.sort(np.column_stack([ends, ends[:, 0] if at is None else np.clip(at, ends[:, 0], ends[:, -1])]), axis=1)
    half, middle = np.diff(ends, axis=1) / 2, (ends[:, 1:] + ends[:, :-1]) / 2
    nodes = zip(*np.polynomial.legendre.leggauss(8), strict=True)
    return (sum(weight * ask(middle + t * half) for t, weight in nodes) * half).sum(1)


@over(ONE_COLUMN)
@pytest.mark.parametrize("shares", [(1.0,), SHARES], ids=["alone", "mixed"])
def test_cdf_and_quantiles_invert_each_other(family, shares):
    law = distribution(family, shares)
    levels = [0.01, 0.1, 0.5, 0.9, 0.99]
    found = law.quantiles(levels)
    assert (np.diff(found, axis=1) >= 0).all()
    if family.discrete:
        assert (law.cdf(found) >= np.array(levels) - 1e-12).all()
        assert (law.cdf(found - 1) < np.array(levels)).all()
    elif family.atoms:  # at one of them cdf jumps over levels
        below = np.stack([law.probability(below=x) for x in found.T], 1)
        assert (law.cdf(found) >= np.array(levels) - 1e-7).all()
        assert (below <= np.array(levels) + 1e-7).all()
    else:
        np.testing.assert_allclose(law.cdf(found), np.broadcast_to(levels, found.shape), rtol=1e-7)
    lower, upper = law.interval(0.8)
    np.testing.assert_allclose(np.stack([lower, law.median, upper], 1), law.quantiles([0.1, 0.5, 0.9]), rtol=1e-9)


@over(ONE_COLUMN)
def test_densities_integrate_to_one_and_probabilities_sum_to_one(family):
    law = distribution(family)
    if family.discrete:
        p = law.pmf(grid(law))
        np.testing.assert_allclose(p.sum(1), 1, rtol=1e-8)
        np.testing.assert_allclose((p * grid(law)).sum(1), law.mean, rtol=1e-6)
        np.testing.assert_allclose(p.cumsum(1), law.cdf(grid(law)), atol=1e-8)
        assert (law.pdf(0.5) == 0).all()
        assert law.pmf(grid(law)[0, 0]) == pytest.approx(p[:, 0])
    else:
        atoms = [x * law.scale[0] + law.centre[0] for x in family.atoms]
        total = integral(law.pdf, law) + sum(law.probability(between=(x, x)) for x in atoms)
        np.testing.assert_allclose(total, 1, atol=5e-3 if atoms else 1e-4)  # next to 0 there are no panels
        with pytest.raises(DataError, match="densities"):
            law.pmf(1.0)


@over(ONE_COLUMN)
def test_mean_and_sd_are_those_of_the_draws(family):
    law = distribution(family)
    y = law.sample(4000, seed=1)
    np.testing.assert_array_equal(y, law.sample(4000, seed=1))
    assert (law.log_pdf(y[:, :5]) > -np.inf).all()
    error = law.sd / np.sqrt(y.shape[1])
    assert (np.abs(y.mean(1) - law.mean) < 5 * error).all()
    at = law.quantiles([0.2, 0.7])
    share = (y[:, :, None] <= at[:, None]).mean(1)
    np.testing.assert_allclose(share, law.cdf(at), atol=5 * 0.5 / np.sqrt(y.shape[1]))


@over(ONE_COLUMN)
def test_crps_is_the_integral_that_defines_it(family):
    law = distribution(family)
    y = np.choose(np.arange(ROWS) % 4, [*law.sample(2, seed=3).T, law.quantiles(1e-6), law.quantiles(1 - 1e-6)])
    if family.discrete:
        x = grid(law)
        defined = ((law.cdf(x) - (x >= y[:, None])) ** 2).sum(1)
    else:
        defined = integral(lambda x: (law.cdf(x) - (x >= y[:, None])) ** 2, law, y)
    np.testing.assert_allclose(law.crps(y), defined, atol=1e-5 * law.sd.max())
    far = law.mean + 1000 * law.sd + 1
    np.testing.assert_allclose(law.crps(far + 7) - law.crps(far), 7, rtol=1e-4)


@over(ONE_COLUMN)
def test_crps_is_what_draws_say(family):
    law = distribution(family, rows=2)
    y = law.sample(1, seed=5)[:, 0]
    one, two = law.sample(4000, seed=6), law.sample(4000, seed=7)
    terms = np.abs(one - y[:, None]) - np.abs(one - two) / 2
    assert (np.abs(terms.mean(1) - law.crps(y)) < 5 * terms.std(1) / np.sqrt(4000)).all()


@pytest.mark.parametrize("shares", [(1.0,), SHARES, (0.1,) * 10], ids=["one", "three", "ten"])
@pytest.mark.parametrize("family", [families.Gaussian("predicted")], ids=repr)
def test_integration_agrees_with_the_closed_form_of_normal_laws(family, shares):
    from efattn.inference.crps import _integrated, crps

    f = tuple(torch.randn(200, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(k)) for k in range(10))
    f = tuple(x * torch.tensor([3.0, 1.5]) for x in f[: len(shares)])  # narrow ones among wide ones, far apart
    laws = Laws(family, f, parted(shares, 200))
    y = laws.sample(1, torch.Generator().manual_seed(0))[:, 0] * 1.3
    np.testing.assert_allclose(_integrated(laws, y, laws.cdf), crps(laws, y), rtol=1e-5)


@pytest.mark.parametrize("family", [families.Poisson(), families.NegativeBinomial(r=3.0)], ids=repr)
def test_the_crps_of_large_counts_is_integrated_and_agrees_with_the_sum(family):
    from efattn.inference import crps as module

    f = tuple(torch.full((3, 1), x, dtype=torch.float64) for x in (9.0, 9.3))
    law, y = Laws(family, f, parted((0.4, 0.6), 3)), torch.tensor([7000.0, 9500.0, 40_000.0]).double()
    found = module.crps(law, y)
    x = torch.arange(0, 120_000, dtype=torch.float64)[None].expand(3, -1)
    defined = ((law.cdf(x) - (x >= y[:, None]).double()) ** 2).sum(1)
    np.testing.assert_allclose(found, defined, rtol=1e-5)


@over(ONE_COLUMN)
def test_the_probability_of_an_event_is_the_sum_of_its_parts(family):
    law = distribution(family)
    low, high = law.quantiles(0.3), law.quantiles(0.8)
    above, below, between = (
        law.probability(above=high),
        law.probability(below=low),
        law.probability(between=(low, high)),
    )
    np.testing.assert_allclose(above + below + between, 1, atol=1e-12)
    y = law.sample(4000, seed=2)
    np.testing.assert_allclose((y < low[:, None]).mean(1), below, atol=5 * 0.5 / np.sqrt(4000))
    for wrong in ({}, {"above": 1, "below": 2}, {"between": 3}):
        with pytest.raises(DataError):
            law.probability(**wrong)


@over(ONE_COLUMN)
def test_pit_of_draws_is_uniform(family):
    law = distribution(family, rows=500)
    u = np.sort(law.pit(law.sample(1, seed=4)[:, 0], seed=8))
    assert np.abs(u - (np.arange(500) + 0.5) / 500).max() < 1.8 / np.sqrt(500)  # Kolmogorov's, one in 300


@over(ONE_COLUMN)
def test_nothing_is_said_of_missing_values_and_all_of_those_that_cannot_be(family):
    law = distribution(family)
    y = law.sample(1)[:, 0]
    y[2] = np.nan
    for ask in (law.log_score, law.crps, law.pit, law.cdf, law.pdf):
        assert (np.isnan(ask(y)) == np.isnan(y)).all()
    assert np.isnan(law.crps()).all()  # this table had no values
    assert (law.pdf([-np.inf] * ROWS) == 0).all()
    np.testing.assert_array_equal(law.cdf(np.array([[-np.inf, np.inf]])), [[0, 1]] * ROWS)


def test_columns_that_vary_together_have_their_marginal_laws():
    family = families.MultivariateGaussian(3, "predicted")
    f = points(family, ROWS)
    for c in range(3):
        law = distribution(family, (1.0,), centre=0.0, scale=1.0, column=c)
        np.testing.assert_allclose(law.mean, family.mean(f)[:, c], rtol=1e-10)
        np.testing.assert_allclose(law.sd, family.variance(f)[:, c].sqrt(), rtol=1e-10)
        np.testing.assert_allclose(law.quantiles(0.7), family.quantile(f, 0.7)[:, c], rtol=1e-10)


def test_a_mixture_is_asked_with_the_quantiles_that_predict_has():
    family = families.Gamma("predicted")
    law = distribution(family)
    members = [points(family, ROWS, seed) for seed in range(3)]
    mine = mixture.quantile(families.Product((family,)), members, SHARES, 0.3)[:, 0]
    np.testing.assert_array_equal(law.quantiles(0.3), mine)


def test_some_rows_have_the_laws_they_have_among_all():
    law = distribution(families.LogNormal())
    mask = np.arange(ROWS) % 2 == 1
    for which, index in ((2, [2]), (-1, [5]), (slice(1, 4), [1, 2, 3]), (mask, [1, 3, 5]), ([4, 0], [4, 0])):
        some = law[which]
        assert len(some) == len(index)
        np.testing.assert_array_equal(some.mean, law.mean[index])
        np.testing.assert_array_equal(some.crps(np.ones(len(index))), law.crps(np.ones(ROWS))[index])
        np.testing.assert_array_equal(some.group, law.group[index])
    assert [one.mean[0] for one in law] == list(law.mean)
    assert law["y"] is law
    with pytest.raises(KeyError):
        law["z"]
    with pytest.raises(IndexError):
        law[ROWS]


def test_levels_are_told_where_they_are_few():
    law = distribution(families.Ordinal(5, low=1))
    assert list(law.levels) == [1, 2, 3, 4, 5]
    np.testing.assert_allclose(law.pmf().sum(1), 1)
    np.testing.assert_allclose(law.pmf() @ law.levels, law.mean)
    assert list(distribution(families.Bernoulli()).levels) == [0, 1]
    with pytest.raises(DataError, match="no list"):
        distribution(families.Poisson()).pmf()


@pytest.mark.parametrize("ask", [lambda law: law.quantiles(1.5), lambda law: law.interval("wide"),
                                 lambda law: law.cdf(np.zeros(4)), lambda law: law.crps([1.0]),
                                 lambda law: law.sample(0)])  # fmt: skip
def test_what_cannot_be_asked_is_told(ask):
    with pytest.raises(DataError):
        ask(distribution(families.Gaussian()))
