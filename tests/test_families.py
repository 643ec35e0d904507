"""The laws of the families, each over all of them at once, in float64 unless said otherwise."""

import json

import numpy as np
import pytest
import torch
from family_cases import ALL, MIXED, ORDERED, ORDERED_SCALAR, SINGLE, extreme_points, extreme_values, over, points

from efattn import families
from efattn.errors import EfattnError
from efattn.families.base import ScipyFamily
from efattn.families.stable import bounded, unbounded
from efattn.families.supports import NEAR, Between, PositiveReals, UnitInterval, WholeNumbers, ZeroAndMore


def nodes(family, f):
    """Values and weights such that sum(weight * g(value)) is the sum or integral of g."""
    y, weight = smooth_nodes(family, f)
    atoms = torch.tensor(family.atoms, dtype=torch.float64)
    return torch.cat([y, atoms]) if len(atoms) else y, torch.cat([weight, torch.ones_like(atoms)])


def smooth_nodes(family, f):
    if isinstance(family, families.MultivariateGaussian):
        line = torch.arange(-8.5, 8.6, 0.25, dtype=torch.float64)
        z = torch.cartesian_prod(line, line)
        scale = family._scale(f)
        return family.mean(f) + z @ scale.T, torch.full((len(z),), 0.25**2) * scale.det().abs()
    if isinstance(family.support, WholeNumbers):
        high = 600 if family.support.high is None else family.support.high
        y = torch.arange(family.support.low, high + 1, dtype=torch.float64)
        return y, torch.ones_like(y)
    if isinstance(family.support, PositiveReals | ZeroAndMore):
        x = torch.arange(-100, 60, 0.02, dtype=torch.float64)
        return x.exp(), 0.02 * x.exp()
    if isinstance(family.support, Between):
        low, high = family.support.bounds
        x, far = torch.arange(-36, 36, 0.02, dtype=torch.float64), 2 * NEAR  # nearer would be the limit itself
        if np.isfinite(low) and np.isfinite(high):
            y, weight = low + (high - low) * x.sigmoid(), (high - low) * x.sigmoid() * (-x).sigmoid()
        else:
            y, weight = (low + x.exp() if np.isfinite(low) else high - x.exp()), x.exp()
        near = [x - far * sign * abs(x) if np.isfinite(x) else x for x, sign in ((low, -1), (high, 1))]
        return y.clamp(near[0] or 1e-16, near[1]), 0.02 * weight
    if isinstance(family.support, UnitInterval):
        x = torch.arange(-36, 36, 0.02, dtype=torch.float64)
        return x.sigmoid(), 0.02 * x.sigmoid() * (-x).sigmoid()
    sd = family.variance(f).sqrt()
    x = torch.arange(-40, 40, 0.02, dtype=torch.float64)  # far out, for heavy tails
    return family.mean(f) + sd * x.sinh(), 0.02 * sd * x.cosh()


def expectation(family, f, values):
    """E[values(y)], with values (n, ...)."""
    y, weight = nodes(family, f)
    return torch.einsum("n,n...->...", family.log_prob(f, y).exp() * weight, values(y))


@over(SINGLE)
def test_probabilities_sum_to_one(family):
    for f in points(family):
        total = expectation(family, f, lambda y: torch.ones(len(y), dtype=torch.float64))
        assert total.item() == pytest.approx(1, abs=1e-7)


@over([family for family in SINGLE if family.exponential])
def test_the_stable_form_equals_the_definition(family):
    f = points(family, n=200)
    y = family.sample(f, torch.Generator().manual_seed(1))
    torch.testing.assert_close(family.log_prob(f, y), family.natural_log_prob(f, y), rtol=1e-10, atol=1e-10)


@over([family for family in SINGLE if family.exponential])
def test_moments_of_the_statistic_are_derivatives_of_the_log_partition(family):
    for f in points(family):
        eta = family.natural(f)
        gradient = torch.autograd.functional.jacobian(family.log_partition, eta)
        hessian = torch.autograd.functional.hessian(family.log_partition, eta)
        mean = expectation(family, f, lambda y: family.statistic(y).double())

        def outer(y, mean=mean):
            centred = family.statistic(y) - mean
            return centred.unsqueeze(-1) * centred.unsqueeze(-2)

        torch.testing.assert_close(mean, gradient, rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(expectation(family, f, outer), hessian, rtol=1e-5, atol=1e-5)


@over(SINGLE)
def test_mean_and_variance_are_those_of_the_distribution(family):
    def numbers(y):
        return family.statistic(y).double() if isinstance(family, families.Categorical) else y

    for f in points(family):
        mean = expectation(family, f, numbers)
        variance = expectation(family, f, lambda y, mean=mean: (numbers(y) - mean) ** 2)
        torch.testing.assert_close(family.mean(f), mean, rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(family.variance(f), variance, rtol=1e-5, atol=1e-6)


@over(ALL)
def test_samples_have_the_mean_and_variance_and_lie_in_the_support(family):
    n = 20_000
    for f in points(family, n=2):
        y = family.sample(f.expand(n, -1), torch.Generator().manual_seed(7))
        assert family.support.contains(y).all()
        assert y.shape == ((n,) if family.scalar else (n, family.columns))
        if isinstance(family, families.Categorical):
            y = family.statistic(y).double()
        assert y.dtype == f.dtype
        mean, variance = family.mean(f), family.variance(f)
        fourth = ((y - mean) ** 4).mean(0)
        assert ((y.mean(0) - mean).abs() < 5 * (variance / n).sqrt()).all()
        assert ((((y - mean) ** 2).mean(0) - variance).abs() < 5 * (fourth / n).sqrt()).all()


@over(ALL)
def test_a_seed_gives_the_same_sample_and_float32_stays_float32(family):
    f = points(family).float()
    one, two = (family.sample(f, torch.Generator().manual_seed(3)) for _ in range(2))
    assert torch.equal(one, two)
    assert one.dtype == (torch.long if isinstance(family, families.Categorical) else torch.float32)
    for number in (family.log_prob(f, one), family.mean(f), family.variance(f)):
        assert number.dtype == torch.float32


@over([family for family in ORDERED_SCALAR if family.discrete])
def test_the_cdf_is_the_sum_of_the_probabilities(family):
    for f in points(family):
        for end in family.quantile(f.expand(3, -1), torch.tensor([0.1, 0.5, 0.93])):
            below = expectation(family, f, lambda y, end=end: (y <= end).double())
            torch.testing.assert_close(family.cdf(f, end), below, rtol=1e-9, atol=1e-9)
            torch.testing.assert_close(family.cdf(f, end + 0.5), below, rtol=1e-9, atol=1e-9)
        assert family.cdf(f, torch.tensor(family.support.low - 1.0)) == 0


@over([family for family in ORDERED_SCALAR if not family.discrete and family in SINGLE])
def test_the_density_is_the_derivative_of_the_cdf(family):
    f = points(family, n=30)
    low, high = family.support.bounds
    y = family.sample(f, torch.Generator().manual_seed(5)).clamp(max(low, 0.0) + 0.01, min(high, 1.0) - 0.01)
    slope = (family.cdf(f, y + 1e-5) - family.cdf(f, y - 1e-5)) / 2e-5
    torch.testing.assert_close(slope, family.log_prob(f, y).exp(), rtol=1e-4, atol=1e-6)


@over([family for family in ORDERED_SCALAR if family.discrete])
def test_the_quantile_is_the_first_value_whose_cdf_reaches_p(family):
    f = points(family, n=50)
    y = family.sample(f, torch.Generator().manual_seed(2))
    assert torch.equal(family.quantile(f, family.cdf(f, y)), y)
    for p in (0.0, 0.025, 0.5, 0.975):
        q = family.quantile(f, p)
        assert family.support.contains(q).all()
        assert (family.cdf(f, q) >= p).all()
        assert ((family.cdf(f, q - 1) < p) | (q == family.support.low)).all()


@over([family for family in ORDERED if not family.discrete])
def test_the_quantile_inverts_the_cdf(family):
    f = points(family, n=50)
    y = family.sample(f, torch.Generator().manual_seed(2))
    torch.testing.assert_close(family.quantile(f, family.cdf(f, y)), y, rtol=1e-6, atol=1e-6)
    assert family.quantile(f, 0.9).shape == y.shape


@over([family for family in SINGLE if isinstance(family, ScipyFamily)])
def test_scipy_agrees(family):
    from scipy import stats

    f = points(family, n=20)
    y = family.sample(f, torch.Generator().manual_seed(4))
    theirs = family.distribution(f)
    if isinstance(family, families.MultivariateGaussian):
        scale = family._scale(f)
        cases = zip(y, family.mean(f), scale @ scale.mT, strict=True)
        logs = [stats.multivariate_normal(m.numpy(), c.numpy()).logpdf(row.numpy()) for row, m, c in cases]
    else:
        logs = theirs.logpmf(y.numpy()) if family.discrete else theirs.logpdf(y.numpy())
    np.testing.assert_allclose(family.log_prob(f, y).numpy(), logs, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(family.mean(f).numpy(), theirs.mean(), rtol=1e-8)
    np.testing.assert_allclose(family.variance(f).numpy(), theirs.var(), rtol=1e-8)


@over(ALL)
def test_gradients_agree_with_finite_differences(family):
    f = points(family).requires_grad_()
    y = family.sample(f, torch.Generator().manual_seed(1))
    assert torch.autograd.gradcheck(lambda f: family.log_prob(f, y), f)
    assert torch.autograd.gradcheck(family.mean, f)
    assert torch.autograd.gradcheck(family.variance, f)


@over(ALL)
def test_values_and_gradients_are_finite_in_float32_at_extreme_outputs(family):
    points, values = extreme_points(family), extreme_values(family)
    f = points.repeat_interleave(len(values), 0).requires_grad_()
    y = values.repeat(len(points), *[1] * (values.ndim - 1))
    for number in (family.log_prob(f, y), family.mean(f), family.variance(f)):
        assert number.isfinite().all()
        if number.requires_grad:  # a known variance has no gradient
            (gradient,) = torch.autograd.grad(number.sum(), f)
            assert gradient.isfinite().all()
    if family.discrete:
        assert (family.log_prob(f, y) < 1e-4).all()
    assert family.support.contains(family.sample(f, torch.Generator().manual_seed(0))).all()


@over(ALL)
def test_float32_is_close_to_float64(family):
    f = 3 * points(family, n=300).float()
    y = family.sample(f, torch.Generator().manual_seed(1))
    torch.testing.assert_close(family.log_prob(f, y).double(), family.log_prob(f.double(), y), rtol=2e-6, atol=2e-6)
    torch.testing.assert_close(family.mean(f).double(), family.mean(f.double()), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(family.variance(f).double(), family.variance(f.double()), rtol=1e-4, atol=1e-5)


def test_counts_in_the_millions_keep_their_digits_in_float32():
    for family in (families.Poisson(), families.NegativeBinomial(r="predicted")):
        f, y = torch.full((1, family.size), 13.8), torch.tensor([987654.0])
        torch.testing.assert_close(family.log_prob(f, y).double(), family.log_prob(f.double(), y), rtol=1e-6, atol=0)


@over(ALL)
def test_the_start_is_the_marginal_maximum(family):
    y = family.sample(points(family, n=1, seed=3).expand(4000, -1), torch.Generator().manual_seed(9))
    start = family.start(y).requires_grad_()
    (gradient,) = torch.autograd.grad(family.log_prob(start, y).mean(), start)
    assert start.shape == (family.size,)
    assert gradient.abs().max() < 1e-6


@over(ALL)
def test_the_start_skips_missing_rows_and_takes_weights(family):
    y = family.sample(points(family, n=1, seed=3).expand(500, -1), torch.Generator().manual_seed(9)).double()
    weight = torch.randint(1, 4, (500,), generator=torch.Generator().manual_seed(1))
    gaps = torch.cat([y, torch.full_like(y[:50], torch.nan)])
    twice = family.start(y.repeat_interleave(weight, 0))
    torch.testing.assert_close(family.start(gaps), family.start(y), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(family.start(y, weight), twice, rtol=1e-6, atol=1e-6)


@over(ALL)
def test_the_start_is_finite_on_degenerate_data(family):
    one = family.sample(points(family, n=1)).double()
    lots = [one, one.repeat(50, *[1] * (one.ndim - 1)), one[:0], torch.full_like(one, torch.nan)]
    if family.scalar:
        lots += [value.double().expand(20) for value in extreme_values(family)]
    for y in lots:
        start = family.start(y)
        assert start.shape == (family.size,)
        assert start.isfinite().all()
        if len(y) and not y.isnan().any():
            assert family.log_prob(start.float(), y.float()).isfinite().all()


@over(ALL)
def test_outputs_are_counted_and_json_round_trips(family):
    assert len(family.shared) == family.size
    assert all(0 <= index < family.size for index in family.exposures)
    again = families.from_json(json.loads(json.dumps(families.to_json(family))))
    assert again == family
    assert hash(again) == hash(family)
    assert eval(repr(family), vars(families) | {type(family).__name__: type(family)}) == family


@over(SINGLE)
def test_one_output_serves_many_values_and_one_value_many_outputs(family):
    f = points(family)
    y = family.sample(f)
    rows = torch.stack([family.log_prob(f[0], y[i]) for i in range(len(y))])
    torch.testing.assert_close(family.log_prob(f[0], y), rows)
    columns = torch.stack([family.log_prob(f[i], y[0]) for i in range(len(f))])
    torch.testing.assert_close(family.log_prob(f, y[0]), columns)


def test_a_product_is_the_sum_of_its_parts():
    family = MIXED
    f = points(family, n=6)
    y = family.sample(f, torch.Generator().manual_seed(0))
    gamma, both, ordinal = family.parts
    parts = [
        gamma.log_prob(f[:, :2], y[:, 0]),
        both.log_prob(f[:, 2:7], y[:, 1:3]),
        ordinal.log_prob(f[:, 7:], y[:, 3]),
    ]
    torch.testing.assert_close(family.log_probs(f, y), torch.stack(parts, -1))
    torch.testing.assert_close(family.log_prob(f, y), sum(parts))
    torch.testing.assert_close(family.cdf(f, y)[:, 3], ordinal.cdf(f[:, 7:], y[:, 3]))
    torch.testing.assert_close(family.quantile(f, 0.3)[:, 1:3], both.quantile(f[:, 2:7], 0.3))


def test_an_exposure_multiplies_the_rate():
    f = torch.tensor([[0.3]], dtype=torch.float64)
    for family in (families.Poisson(), families.NegativeBinomial(r=2.0)):
        assert family.exposure == 0
        torch.testing.assert_close(family.mean(f + np.log(5.0)), 5 * family.mean(f))
    assert families.Poisson(link="softplus").exposure is None
    both = families.Product((families.Gaussian(), families.Poisson(), families.NegativeBinomial()))
    assert both.exposures == (2, 3)
    with pytest.raises(EfattnError, match="several outputs"):
        _ = both.exposure


def test_levels_without_order_have_no_cdf():
    family = families.Categorical(levels=3)
    with pytest.raises(EfattnError, match="Ordinal"):
        family.cdf(torch.zeros(3), torch.tensor(1))
    with pytest.raises(EfattnError, match="Ordinal"):
        family.quantile(torch.zeros(3), 0.5)


def test_a_learned_r_has_no_natural_form():
    with pytest.raises(EfattnError, match="known r"):
        families.NegativeBinomial().natural(torch.zeros(2))


def test_the_soft_bound_is_exact_inside_and_never_flat():
    f = torch.tensor([-1e4, -31.0, -30.0, -1.0, 0.0, 29.9, 30.0, 30.1, 1e4], dtype=torch.float64, requires_grad=True)
    value = bounded(f, 30.0)
    (gradient,) = torch.autograd.grad(value.sum(), f)
    assert torch.equal(value[2:7], f[2:7])
    assert (gradient > 0).all()
    assert (value.diff() > 0).all()
    assert value.abs().max() < 40
    torch.testing.assert_close(unbounded(value, 30.0)[1:-1], f.detach()[1:-1])
