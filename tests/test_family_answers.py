"""What families say about themselves, in laws over all of them: outputs from moments, bounds, origins, levels."""

import numpy as np
import pytest
import torch
from family_cases import ALL, MIXED, ORDERED, extreme_points, over, points

from efattn import families
from efattn.errors import DataError, EfattnError
from efattn.families.limits import BetweenLimits

ONE_COLUMN = [family for family in ALL if family.of_values and family.scalar]


def fitted(family, seed=3):
    """A marginal fit."""
    y = family.sample(points(family, n=1, seed=seed).expand(400, -1), torch.Generator().manual_seed(9))
    return family.start(y)


@over(ONE_COLUMN)
def test_outputs_from_moments_have_the_mean_and_a_free_variance(family):
    there, start = points(family, n=50), fitted(family)
    if family.known_outputs:  # of rows that are told the same
        there[:, -family.known_outputs :] = start[-family.known_outputs :]
    mean, variance = family.mean(there), family.variance(there)
    found, other = (family.from_moments(mean, v, start) for v in (variance, 1.01 * variance))
    assert found.shape == (50, family.size)
    torch.testing.assert_close(family.mean(found), mean, rtol=1e-6, atol=1e-6)
    if isinstance(family, BetweenLimits) and family.size > 1:  # the spread is that of the base, whatever is cut off
        asked = family.base.from_moments(mean, variance, start)
        torch.testing.assert_close(found[:, 1], asked[:, 1])
    elif not torch.equal(found, other):
        torch.testing.assert_close(family.variance(found), variance, rtol=1e-6, atol=1e-6)
    else:  # a dispersion that is known, or that the location decides
        assert (found[:, 1:] == start[1:]).all()


@over(ONE_COLUMN)
def test_the_outputs_of_a_marginal_fit_are_found_again_from_its_moments(family):
    start = fitted(family)
    found = family.from_moments(family.mean(start), family.variance(start), start)
    if isinstance(family, BetweenLimits):  # what is cut off of the spread is not given back
        found, start = family.mean(found), family.mean(start)
    torch.testing.assert_close(found, start, rtol=1e-6, atol=1e-6)


@over(ONE_COLUMN)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_moments_that_a_family_cannot_have_are_moved_inside(family, dtype):
    low, high = (x if np.isfinite(x) else -1e6 for x in family.mean_bounds)
    mean = torch.tensor([low - 5, low, low + 1e-12, high, high + 7, 1e6], dtype=dtype).repeat_interleave(4)
    variance = torch.tensor([0.0, 1e-30, 1.0, 1e12], dtype=dtype).repeat(6)
    found = family.from_moments(mean, variance, fitted(family))
    assert found.dtype == dtype
    assert found.isfinite().all()
    assert family.log_prob(found, torch.tensor(family.support.inside)).isfinite().all()
    assert (family.mean(found) >= family.mean_bounds[0]).all()
    assert (family.mean(found) <= family.mean_bounds[1]).all()


def test_moments_do_not_describe_several_columns_or_categories():
    one = families.Product((families.Gamma(),))
    start, numbers = fitted(families.Gamma()), torch.tensor([1.0, 2.0], dtype=torch.float64)
    assert torch.equal(
        one.from_moments(numbers, numbers, start), families.Gamma().from_moments(numbers, numbers, start)
    )
    for family in (MIXED, families.Categorical(3), families.MultivariateGaussian(2)):
        with pytest.raises(DataError):
            family.from_moments(numbers, numbers, torch.zeros(family.size))


@over(ORDERED)
def test_means_lie_within_their_bounds(family):
    mean = family.mean(torch.cat([points(family, n=100), extreme_points(family).double()]))
    low, high = family.mean_bounds
    assert (mean >= low).all()
    assert (mean <= high).all()


@over([family for family in ALL if family.standardised])
def test_a_standardised_family_fits_shifted_and_scaled_values_alike(family):
    y = family.sample(points(family, n=1).expand(500, -1), torch.Generator().manual_seed(0))
    other = (y - 7) / 3
    moved_family = family.in_units(7, 3)  # limits move with the values
    plain = family.log_prob(family.start(y), y)
    moved = moved_family.log_prob(moved_family.start(other), other)
    torch.testing.assert_close(moved - family.columns * np.log(3), plain)


@over(ALL)
def test_a_family_at_its_origin_is_the_same_for_what_is_left_of_the_values(family):
    f, here = points(family, n=40), family.at_origin()
    y = family.sample(f, torch.Generator().manual_seed(1))
    origin = torch.tensor(family.origins if isinstance(family, families.Product) else family.origin).to(y)
    torch.testing.assert_close(here.log_prob(f, y - origin), family.log_prob(f, y))
    assert here.at_origin() == here
    if not isinstance(family, families.Categorical):
        torch.testing.assert_close(here.mean(f) + origin, family.mean(f))
        torch.testing.assert_close(here.quantile(f, 0.3) + origin, family.quantile(f, 0.3))


@over(ORDERED)
def test_a_column_on_its_own_has_the_moments_and_the_cdf_it_has_among_others(family):
    f = points(family, n=20)
    y = family.sample(f, torch.Generator().manual_seed(1))
    everything = [x.reshape(20, family.columns) for x in (y, family.mean(f), family.variance(f), family.cdf(f, y))]
    for c in range(family.columns):
        one, mine = family.column(f, c)
        values, mean, variance, cdf = (x[:, c] for x in everything)
        assert one.scalar
        torch.testing.assert_close(one.mean(mine), mean)
        torch.testing.assert_close(one.variance(mine), variance)
        torch.testing.assert_close(one.cdf(mine, values), cdf)


@over(ALL)
def test_levels_have_probabilities_or_there_are_none(family):
    f = points(family)
    if not family.level_names:
        with pytest.raises(EfattnError, match="no levels"):
            family.probabilities(f)
        return
    p = family.probabilities(f)
    for k, level in enumerate(family.level_names):
        torch.testing.assert_close(p[..., k].log(), family.log_prob(f, torch.tensor(float(level))))
    torch.testing.assert_close(p.sum(-1), torch.ones(len(f), dtype=f.dtype))


@over(ALL)
def test_a_family_says_how_many_numbers_it_needs_and_what_identifies_it(family):
    assert family.numbers >= family.size
    f = points(family, n=6)
    mean = family.mean(f) if family.columns > 1 or not family.scalar else family.mean(f).reshape(6, -1)
    found = family.identified(f, mean)
    assert found.shape[:-1] == (6,)
    assert found.isfinite().all()
    if family.exponential and not family.standardised and not family.squared_loss:
        assert torch.equal(found, family.natural(f))


@over([family for family in ALL if family.of_values])
def test_sizes_from_data_make_a_family_that_has_the_data(family):
    y = family.sample(points(family, n=1).expand(300, -1), torch.Generator().manual_seed(4)).numpy()
    y[:3] = np.nan
    kind = type(family)
    sized = families.named(kind.name, **kind.sized(y, family.columns))
    sized.check(y - getattr(family, "shift", 0))
    assert sized.columns == family.columns
    families.named(kind.name, **kind.sized(np.full(3, np.nan), family.columns))
