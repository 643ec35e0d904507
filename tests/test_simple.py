"""Laws of the simple fitted models: what each computes, against the definition."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
import torch
from small import ratings, weather

from efattn import families, simple
from efattn.data import Roles, Schema
from efattn.errors import DataError
from efattn.families import Categorical, Gaussian, Ordinal, Poisson, Product
from efattn.simple import Setting, em
from efattn.simple.correlations import Matern, distances, exchangeable, fit_matern, matern
from efattn.simple.gaussian import WEIGHTS, dense
from efattn.simple.linear_model import PenalisedLinear

COVARIANCE = np.array([[2.0, 1.2, 0.4], [1.2, 1.5, -0.3], [0.4, -0.3, 1.0]])
MEAN = np.array([1.0, -2.0, 0.5])


def built(recipe, family, items, context="others", support="all", lags=0, attributes=0):
    family = family if isinstance(family, Categorical) else Product((family,))
    return recipe.build(Setting(family, items, context, support, lags, attributes))


def complete(groups, seed=0):
    """Groups of three items from one Gaussian, in another order each time."""
    rng = np.random.default_rng(seed)
    x = rng.multivariate_normal(MEAN, COVARIANCE, groups)
    item = np.argsort(rng.random(x.shape), 1)
    table = pl.DataFrame(
        {"g": np.repeat(np.arange(groups), 3), "i": item.ravel(), "y": np.take_along_axis(x, item, 1).ravel()}
    )
    return table


def encoded(table, **roles):
    return Schema.fit_encode(table, Roles(**{"group": "g", "item": "i", "value": "y", "order": "row", **roles}))[1]


def exact(x, item, context):
    """Conditional mean and variance of each row, by the textbook."""
    found = []
    for i, of in enumerate(item):
        seen = [j for j in range(len(item)) if (j < i if context == "past" else j != i) and not np.isnan(x[j])]
        other = item[seen]
        weights = np.linalg.solve(COVARIANCE[np.ix_(other, other)], COVARIANCE[other, of]) if seen else np.zeros(0)
        mean = MEAN[of] + weights @ (x[seen] - MEAN[other])
        found.append((mean, COVARIANCE[of, of] - weights @ COVARIANCE[other, of]))
    return np.array(found).T


def with_truth(context):
    model = built(simple.GaussianConditional(), Gaussian(), 3, context)
    covariance = np.eye(4)
    covariance[:3, :3] = COVARIANCE
    model._set(mean=np.append(MEAN, 0.0), covariance=covariance)
    return model


@pytest.mark.parametrize("context", ["past", "others"])
def test_conditioning_is_the_textbook_one_whatever_is_missing(context):
    table = complete(30).with_columns(y=pl.when(pl.int_range(pl.len()) % 4 == 1).then(None).otherwise("y"))
    groups = encoded(table)
    mean, variance = with_truth(context).predictive(groups)
    for f in range(30):
        here = slice(3 * f, 3 * f + 3)
        want = exact(groups.value[here, 0], groups.item[here], context)
        np.testing.assert_allclose([mean[here], variance[here]], want, atol=1e-10)


@pytest.mark.parametrize("context", ["past", "others"])
def test_the_fitted_gaussian_approaches_the_true_one(context):
    model = built(simple.GaussianConditional(), Gaussian(), 3, context)
    model.fit(encoded(complete(6000)))
    np.testing.assert_allclose(model.covariance[:3, :3], COVARIANCE, atol=0.12)
    test = encoded(complete(500, seed=1))
    assert model.score(test) == pytest.approx(with_truth(context).score(test), abs=0.01)
    assert float(model.chosen) < 0.3


def test_the_weight_of_the_target_is_chosen_large_where_data_are_few():
    model = built(simple.GaussianConditional(), Gaussian(), 8)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(12, 8)) + rng.normal(size=(12, 1))
    table = pl.DataFrame({"g": np.repeat(np.arange(12), 8), "i": np.tile(np.arange(8), 12), "y": x.ravel()})
    model.fit(encoded(table))
    assert float(model.chosen) >= 0.4


@pytest.mark.parametrize("strength", [0.0, 5.0])
def test_no_round_of_em_lowers_the_objective(strength):
    rng = np.random.default_rng(0)
    x = rng.multivariate_normal(MEAN, COVARIANCE, 200)
    x[rng.random(x.shape) < 0.4] = np.nan
    start = em.Normal(torch.zeros(3).double(), torch.eye(3).double(), [])
    found = em.fit(em.Rows(x), start, torch.eye(3).double(), strength, rounds=60, tolerance=0.0)
    assert len(found.trace) > 5
    assert np.all(np.diff(found.trace)[:-1] >= -1e-6)


def test_with_complete_rows_em_is_the_blend_of_sample_and_target():
    x = np.random.default_rng(0).multivariate_normal(MEAN, COVARIANCE, 50)
    start, target = em.Normal(torch.zeros(3).double(), torch.eye(3).double(), []), 2 * torch.eye(3).double()
    found = em.fit(em.Rows(x), start, target, 50 * 0.7 / 0.3)
    np.testing.assert_allclose(found.mean, x.mean(0), atol=1e-8)
    np.testing.assert_allclose(found.covariance, 0.3 * np.cov(x.T, bias=True) + 0.7 * target.numpy(), atol=1e-7)


def test_a_repeated_item_is_noise_and_what_it_shares():
    table = pl.concat([complete(300), complete(300).with_columns(y=pl.col("y") + 0.5)]).sort("g", maintain_order=True)
    model = built(simple.GaussianConditional(), Gaussian(), 3)
    model.fit(encoded(table))
    mean, variance = model.predictive(encoded(table))
    assert np.isfinite(mean).all()
    assert (variance > 0).all()


# ---- effects


def test_item_means_are_the_items_means():
    table = ratings()
    model = built(simple.ItemMean(), Gaussian(), 8)
    groups = encoded(table, group="user", item="movie", value="real", order="at")
    model.fit(groups)
    want = table.with_columns(pl.col("real").mean().over("movie").alias("m"))["m"].to_numpy()[groups.rows]
    np.testing.assert_allclose(model.predictive(groups)[0], want)


@pytest.mark.parametrize("context", ["past", "others"])
def test_the_shrunk_mean_is_the_posterior_of_a_group_effect(context):
    model = built(simple.ShrunkMean(), Gaussian(), 3, context)
    groups = encoded(complete(40))
    model.fit(groups)
    mean, variance = model.predictive(groups)
    m, s, t = (model.get_buffer(name).numpy() for name in ("mean", "within", "between"))
    gaussian = built(simple.GaussianConditional(), Gaussian(), 3, context)
    covariance = np.eye(4)
    covariance[:3, :3] = t + s * np.eye(3)
    gaussian._set(mean=m, covariance=covariance)
    np.testing.assert_allclose([mean, variance], gaussian.predictive(groups), rtol=1e-8, atol=1e-10)


def test_group_effects_are_found_where_there_are_some():
    rng, n = np.random.default_rng(0), 400
    effect, item = rng.normal(0, 2, n), np.tile(np.arange(6), (n, 1))
    y = 5 + effect[:, None] + np.arange(6) + rng.normal(0, 0.5, (n, 6))
    table = pl.DataFrame({"g": np.repeat(np.arange(n), 6), "i": item.ravel(), "y": y.ravel()})
    model = built(simple.ShrunkMean(), Gaussian(), 6)
    model.fit(encoded(table))
    assert float(model.within) == pytest.approx(0.25, rel=0.1)
    assert float(model.between) == pytest.approx(4, rel=0.2)
    np.testing.assert_allclose(model.mean[:6], 5 + np.arange(6) + effect.mean(), atol=0.2)


# ---- correlations


def test_correlations_are_positive_definite_with_ones_on_the_diagonal():
    x = np.random.default_rng(0).uniform([30, -120], [45, -80], (7, 2))
    for lags in (0, 2):
        for r in (
            Matern(1.5, 0.2, 0.1, 0.2, 2.0, 1.0).correlation(distances(x), lags),
            exchangeable(0.4, 0.7, 7, lags),
        ):
            np.testing.assert_allclose(r.diagonal(), 1)
            assert torch.linalg.eigvalsh(r)[0] > 0
    assert matern(torch.zeros(1), 2.5) == 1


def test_the_fitted_matern_finds_its_own_length():
    x = np.random.default_rng(0).uniform([30, -120], [45, -80], (25, 2))
    true = Matern(1.5, 0.0, 0.1, 0.2, 1.0, 1.0)
    found = fit_matern(true.correlation(distances(x), 0), distances(x), 0)
    assert found.smoothness == 1.5
    assert found.length == pytest.approx(0.2, rel=0.1)
    assert found.nugget == pytest.approx(0.1, abs=0.02)


# ---- linear ones


def stations(lags=1):
    _, groups = Schema.fit_encode(
        weather(days=60), Roles("day", "station", "tmax", ["latitude", "longitude"], time="day"), lags=lags
    )
    return groups


def test_persistence_is_yesterday():
    groups = stations()
    model = built(simple.Persistence(), Gaussian(), 5, lags=1)
    model.fit(groups)
    y = groups.value[:, 0].reshape(60, 5)
    mean = model.predictive(groups)[0].reshape(60, 5)
    np.testing.assert_allclose(mean[1:], y[:-1])
    np.testing.assert_allclose(mean[0], model.mean[:5])


def test_inverse_distances_weigh_what_is_there():
    groups = stations(0)
    model = built(simple.InverseDistance(power=2.0), Gaussian(), 5, attributes=2)
    model.fit(groups)
    weights = distances(groups.attributes[:5]).numpy()
    weights = np.where(weights > 0, 1 / np.maximum(weights, 1e-9) ** 2, 0)
    rest = groups.value[:5, 0] - model.mean[:5].numpy()
    want = model.mean[:5].numpy() + weights @ rest / weights.sum(1)
    np.testing.assert_allclose(model.predictive(groups)[0][:5], want)


@pytest.mark.parametrize("recipe", [simple.RidgePerItem(), simple.LassoPerItem()])
def test_a_regression_per_item_beats_the_mean_and_never_uses_its_own_value(recipe):
    model, plain, groups = (
        built(recipe, Gaussian(), 5, lags=1),
        built(simple.ItemMean(), Gaussian(), 5),
        stations(),
    )
    model.fit(groups)
    plain.fit(groups)
    assert np.all(model.weights[:5, :5].diagonal().numpy() == 0)
    assert model.score(groups) > plain.score(groups) + 0.3


# ---- items


def item_groups():
    return encoded(ratings(users=60), group="user", item="movie", value=(), order="at")


@pytest.mark.parametrize("support", ["all", "distinct"])
def test_item_probabilities_sum_to_one_on_their_support(support):
    groups = item_groups()
    for recipe in (simple.Popularity(), simple.LatePopularity(), simple.MarkovChain(), simple.AdditiveLogit()):
        model = built(recipe, Categorical(8), 8, "past", support)
        if isinstance(model, simple.DirectlyFitted):
            model.fit(groups)
        for batch in groups.batches(256):
            p = model.family.mean(model.outputs(batch))
            np.testing.assert_allclose(p.sum(-1).detach()[batch.exists], 1, rtol=1e-5)
            if support == "distinct":
                assert float(p[0, 1, batch.item[0, 0]].detach()) == 0


def test_late_popularity_counts_a_row_less_the_more_rows_come_after_it():
    table = pl.DataFrame({"g": [1, 1, 1, 2], "i": [0, 0, 1, 2]})
    model = built(simple.LatePopularity(decay=0.5, strength=2.0), Categorical(3), 3, "past")
    model.fit(encoded(table, value=()))
    usual = np.array([2.5, 1.5, 1.5]) / 5.5
    expected = (np.array([0.25 + 0.5, 1, 1]) + 2 * usual) / (2.75 + 2)
    np.testing.assert_allclose(model.get_buffer("log_share").exp(), expected, rtol=1e-5)


def drifting(users=300, length=12, items=8):
    """Early rows are of the first half of the items, late ones of the second, more and more."""
    draw = np.random.default_rng(0)
    late = draw.random((users, length)) < np.linspace(0, 1, length)
    item = draw.integers(items // 2, size=(users, length)) + late * (items // 2)
    return encoded(pl.DataFrame({"g": np.repeat(np.arange(users), length), "i": item.ravel()}), value=())


def test_late_popularity_follows_what_changes_and_learns_how_fast():
    groups = drifting()
    ends = np.cumsum(groups.lengths)
    last = replace(groups, every=replace(groups.every, target=np.isin(np.arange(groups.count), ends - 1)))
    before = replace(groups, every=replace(groups.every, target=~np.isin(np.arange(groups.count), ends - 1)))
    plain, late = (built(x, Categorical(8), 8, "past") for x in (simple.Popularity(), simple.LatePopularity()))
    for model in (plain, late):
        model.fit(before, last)
    assert late.chosen_options()["decay"] < 1
    assert late.score(last) > plain.score(last) + 0.1


def test_what_is_late_has_an_order():
    with pytest.raises(DataError, match="has an order"):
        built(simple.LatePopularity(), Categorical(8), 8, "others")


def test_a_markov_chain_learns_what_follows_what():
    n = 200
    table = pl.DataFrame({"g": np.repeat(np.arange(n), 4), "i": np.tile(np.arange(4), n)})
    model = built(simple.MarkovChain(), Categorical(4), 4, "past")
    model.fit(encoded(table, value=()))
    step = model.log_step.exp()
    np.testing.assert_allclose(step.sum(1), 1, rtol=1e-5)
    assert all(step[x, x + 1] > 0.95 for x in range(3))
    assert step[5, 0] > 0.95  # at the start
    np.testing.assert_allclose(step[4], 0.25, atol=0.01)  # after an unknown one


# ---- families and refusals


def test_a_shifted_poisson_gets_the_predicted_mean():
    table = ratings()
    groups = encoded(table, group="user", item="movie", value="rating", order="at")
    model, plain = built(simple.ItemMean(), Poisson(shift=1), 8), built(simple.ItemMean(), Gaussian(), 8)
    model.fit(groups)
    plain.fit(groups)
    batch = groups.batch(np.arange(3))
    got = model.family.mean(model.outputs(batch))[..., 0]
    np.testing.assert_allclose(got[batch.exists], plain.moments(batch)[0][batch.exists], rtol=1e-6)


CASES = [
    (Gaussian("predicted"), "real"),
    (Poisson(), "count"),
    (families.NegativeBinomial(), "count"),
    (families.Gamma(), "size"),
    (families.Exponential(), "size"),
    (families.Beta(), "share"),
    (families.Bernoulli(), "liked"),
    (families.Binomial(5), "rating"),
    (Ordinal(5, 1), "rating"),
]


@pytest.mark.parametrize(("family", "column"), CASES, ids=lambda x: x if isinstance(x, str) else x.name)
def test_every_family_of_one_column_gets_the_predicted_mean(family, column):
    groups = encoded(ratings(), group="user", item="movie", value=column, order="at")
    model = built(simple.ShrunkMean(), family, 8)
    model.fit(groups)
    batch = groups.batch(np.arange(6))
    mean, low, high = model.moments(batch)[0], *family.mean_bounds
    inside = batch.exists[:, : batch.length] & (mean > low + 0.05) & (mean < high - 0.05)
    got = model.family.mean(model.outputs(batch))[..., 0].double()
    np.testing.assert_allclose(got[inside], mean[inside], rtol=1e-3)
    assert torch.isfinite(model.log_prob(batch).values).all()


# ---- the linear model


@pytest.mark.parametrize("context", ["past", "others"])
def test_the_linear_model_of_a_gaussian_approaches_the_true_conditionals(context):
    train, test = encoded(complete(2000)), encoded(complete(600, seed=1))
    model = built(simple.LinearModel(), Gaussian("predicted"), 3, context)
    model.fit(train)
    assert model.score(test) == pytest.approx(
        with_truth(context).score(test), abs=0.03 if context == "others" else 0.12
    )


def test_a_linear_model_is_a_logistic_regression_per_item():
    from sklearn.linear_model import LogisticRegression

    rng = np.random.default_rng(0)
    taste = rng.normal(size=(500, 1))
    x = (rng.random((500, 4)) < 1 / (1 + np.exp(-2 * taste + np.arange(4) - 1))).astype(float)
    frame = {"g": np.repeat(np.arange(500), 4), "i": np.tile(np.arange(4), 500), "y": x.ravel()}
    table, train = pl.DataFrame(frame), 400
    groups, test = encoded(table.filter(pl.col("g") < train)), encoded(table.filter(pl.col("g") >= train))
    model = built(simple.LinearModel(), families.Bernoulli(), 4)
    model.fit(groups)
    scores = []
    for item in range(4):
        others = np.delete(x, item, 1)
        plain = LogisticRegression(C=1.0).fit(others[:train], x[:train, item])
        p = plain.predict_proba(others[train:])[np.arange(100), x[train:, item].astype(int)]
        scores.append(np.log(p).mean())
    assert model.score(test) > np.mean(scores) - 0.01


def test_a_linear_model_knows_exposure_as_offset_and_in_its_context():
    rng = np.random.default_rng(0)
    rate, size = rng.gamma(2.0, 0.5, 300), rng.uniform(1, 100, (300, 5))
    y = rng.poisson(rate[:, None] * size)
    frame = {"g": np.repeat(np.arange(300), 5), "i": np.tile(np.arange(5), 300), "y": y.ravel(), "e": size.ravel()}
    parts = [pl.DataFrame(frame).filter((pl.col("g") < 200) == first) for first in (True, False)]
    train, test = (encoded(part, exposure="e") for part in parts)
    model = built(simple.LinearModel(), families.NegativeBinomial(), 5)
    model.fit(train)
    late = rate[200:, None] * size[200:]
    from scipy import stats

    best = stats.poisson(late).logpmf(y[200:]).mean()
    assert model.score(test) > best - 0.35


def test_items_differ_in_spread():
    rng = np.random.default_rng(0)
    y = rng.normal(size=(300, 3)) * [0.1, 1.0, 10.0]
    table = pl.DataFrame({"g": np.repeat(np.arange(300), 3), "i": np.tile(np.arange(3), 300), "y": y.ravel()})
    model = built(simple.LinearModel(), Gaussian(), 3)
    model.fit(encoded(table))
    batch = encoded(table).batch(np.arange(5))
    sd = model.family.variance(model.outputs(batch)).sqrt()[..., 0]
    order = batch.item.argsort(1)
    np.testing.assert_allclose(sd.gather(1, order)[0], [0.1, 1.0, 10.0], rtol=0.2)


def test_a_target_never_sees_itself_in_a_linear_model():
    groups = encoded(ratings(users=40), group="user", item="movie", value="real", order="at")
    for context in ("past", "others"):
        recipe, family = simple.LinearModel(penalty=1.0), Product((Gaussian(),))
        model = recipe.build(Setting(family, 8, context, ordered=True))
        model.fit(groups)
        batch = groups.batch(np.arange(12), context, torch.float64)
        value = batch.value.clone().requires_grad_()
        f = PenalisedLinear.raw_outputs.__wrapped__(model, batch.replace(value=value), slots_of(batch))[..., 0]
        for i in range(batch.length):
            (gradient,) = torch.autograd.grad(f[:, i].sum(), value, retain_graph=True)
            assert gradient[:, i].abs().max() == 0
            if context == "past":
                assert gradient[:, i:].abs().max() == 0


def slots_of(batch):
    return torch.arange(batch.length).expand(len(batch.exists), -1)


def test_what_has_no_mean_and_variance_is_refused():
    two = Product((Gaussian(), Gaussian()))
    with pytest.raises(DataError, match="one value column"):
        simple.ItemMean().build(Setting(two, 3))


def test_a_search_that_takes_long_stops_with_what_it_has():
    told = []
    model = built(simple.GaussianConditional(seconds=0.0), Gaussian(), 3)
    model.fit(encoded(complete(40)), tick=lambda done, of: told.append((done, of)))
    assert told == [(0, len(WEIGHTS))]
    assert np.isfinite(model.score(encoded(complete(20, seed=1))))


def test_repeats_are_averaged_in_a_row():
    table = pl.DataFrame({"g": [0, 0, 0], "i": [0, 0, 1], "y": [1.0, 3.0, None]})
    np.testing.assert_array_equal(
        dense(built(simple.GaussianConditional(), Gaussian(), 2), encoded(table)), [[2.0, np.nan]]
    )
