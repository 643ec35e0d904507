"""Laws of Gaussian fields: factors for many items, places never seen, rows with attributes and no item."""

import numpy as np
import polars as pl
import pytest
import torch

import efattn
from efattn import SimpleModel, simple
from efattn.data import Batch, Roles, Schema
from efattn.families import Gaussian, Product
from efattn.simple import Setting, factors
from efattn.simple.conditioning import conditioned, factored, misfit
from efattn.simple.correlations import distances, matern

BOTH = pytest.mark.parametrize("context", ["others", "past"])
ROLES = {"group": "g", "value": "y", "attributes": ["u", "v"], "order": "row"}


def built(recipe, items, context="others", lags=0, attributes=0):
    return recipe.build(Setting(Product((Gaussian(),)), items, context, "all", lags, attributes))


def low_rank(context, items=6, lags=1):
    """Not fitted, but with numbers."""
    model, rng = built(simple.GaussianConditional(rank=3), items, context, lags), np.random.default_rng(0)
    size = items * (lags + 1) + 1
    model._set(location=rng.normal(size=size), loadings=rng.normal(size=(size, 3)), noise=rng.uniform(0.2, 2, size))
    return model


def ragged():
    """Groups of several lengths with an item twice, an unknown one, missing values and lags."""
    rng, groups = np.random.default_rng(1), []
    for n, m in ((5, 3), (1, 0), (3, 6), (4, 2)):
        y = rng.normal(size=n + m)
        y[rng.random(n + m) < 0.3] = np.nan
        item = np.r_[rng.integers(0, 7, n), rng.integers(0, 6, m)]
        groups.append({"item": item, "value": y, "lag": np.r_[np.zeros(n, int), np.ones(m, int)]})
    groups[0]["item"][:3] = 2
    return groups


@BOTH
def test_a_matrix_that_rounding_makes_singular_has_conditionals_too(context):
    z = torch.tensor([[1.0, -2.0, 0.5, 1.5], [1.0, 7e16, 7e16, -7e16]]).double()
    k = 0.8 * z[:, :, None] * z[:, None] + 0.5 * torch.eye(4).double()
    seen, rest = torch.ones(2, 4).bool(), torch.tensor([[1.0, -1.0, 0.5, 2.0], [1.0, 6e16, 8e16, -7e16]]).double()
    both, alone = conditioned(k, rest, seen, 4, context), conditioned(k[:1], rest[:1], seen[:1], 4, context)
    assert all(bool(x.isfinite().all()) for x in both)
    assert all(torch.equal(x[:1], y) for x, y in zip(both, alone, strict=True))  # what is whole stays exact


# ---- many items


def textbook(mean, k, y, seen, context, n):
    """Literally, each of the first n entries on its own; what comes after is always seen."""
    found = []
    for i in range(n):
        may = [j for j in range(len(y)) if seen[j] and (j >= n or (j < i if context == "past" else j != i))]
        weights = np.linalg.solve(k[np.ix_(may, may)], k[may, i]) if may else np.zeros(0)
        found.append((mean[i] + weights @ (y[may] - mean[may]), k[i, i] - weights @ k[may, i]))
    return np.array(found).T


@BOTH
def test_conditionals_of_factors_are_those_of_the_covariance_they_stand_for(context):
    model, groups = low_rank(context), ragged()
    mean, variance = model.moments(Batch.of(groups, torch.float64))
    loadings, location, noise = (model.get_buffer(name).numpy() for name in ("loadings", "location", "noise"))
    for row, group in enumerate(groups):
        cell = np.where(group["item"] < 6, group["lag"] * 6 + group["item"], 12)
        n = int((group["lag"] == 0).sum())
        k = loadings[cell] @ loadings[cell].T + np.diag(noise[cell])
        want = textbook(location[cell], k, group["value"], ~np.isnan(group["value"]), context, n)
        np.testing.assert_allclose([mean[row, :n], variance[row, :n]], want, atol=1e-10)


@BOTH
def test_the_scale_of_a_group_is_seen_in_both_forms_alike(context):
    rng = np.random.default_rng(0)
    loadings, noise = torch.as_tensor(rng.normal(size=(2, 7, 3))), torch.as_tensor(rng.uniform(0.5, 2, (2, 7)))
    seen = torch.as_tensor(rng.random((2, 7)) < 0.8)
    rest = torch.where(seen, torch.as_tensor(rng.normal(size=(2, 7))), 0.0)
    k = loadings @ loadings.mT + torch.diag_embed(noise)
    one = factored(loadings, noise, rest, seen, 5, context)
    other = conditioned(k, rest, seen, 5, context)
    for a, b in zip(one, other, strict=True):
        np.testing.assert_allclose(a, b.expand(a.shape), atol=1e-10)
    np.testing.assert_allclose(one.scaled(torch.tensor(5.0)), other.scaled(torch.tensor(5.0)))
    for target in range(5):  # Q of what it sees, literally
        may = [j for j in range(7) if seen[0, j] and (j < target + 2 if context == "past" else j != target + 2)]
        q = rest[0, may] @ torch.linalg.solve(k[0][may][:, may], rest[0, may])
        assert float(one.distance[0, target]) == pytest.approx(float(q), abs=1e-9)


@pytest.mark.parametrize("matrices", [1, 3])
def test_the_misfit_of_a_group_is_minus_its_log_likelihood_and_its_gradients_are(matrices):
    torch.manual_seed(0)
    root, rest = torch.randn(matrices, 4, 5).double(), torch.randn(3, 4).double().requires_grad_()
    k = (root @ root.mT).requires_grad_()
    law = torch.distributions.MultivariateNormal(torch.zeros(4).double(), k)
    constant = 3 * 2 * np.log(2 * np.pi)
    torch.testing.assert_close(misfit(k, rest), -law.log_prob(rest).sum() - constant)
    assert torch.autograd.gradcheck(lambda root, rest: misfit(root @ root.mT, rest), (root.requires_grad_(), rest))


@BOTH
@pytest.mark.parametrize("tails", [0.0, 5.0])
def test_a_target_never_sees_itself(context, tails):
    model = low_rank(context)
    model._set(tails=tails)
    batch = Batch.of(ragged(), torch.float64)
    value = batch.value.clone().requires_grad_()
    mean, variance = model.moments(batch.replace(value=value))
    for i in range(batch.length):
        (gradient,) = torch.autograd.grad(mean[:, i].sum() + variance[:, i].sum(), value, retain_graph=True)
        own = gradient[:, i] if context == "others" else gradient[:, i : batch.length]
        assert own.abs().max() < 1e-12


def taste(groups=300, items=60, seed=0):
    """Each group a dozen items, two factors and an effect of its own."""
    rng, world = np.random.default_rng(seed), np.random.default_rng(5)
    l, m = world.normal(0, 0.7, (items, 2)), world.normal(3, 0.5, items)
    item = np.argsort(rng.random((groups, items)), 1)[:, :12]
    z, effect = rng.normal(size=(groups, 1, 2)), rng.normal(0, 0.5, (groups, 1))
    sd = 0.5
    y = m[item] + effect + (l[item] * z).sum(-1) + rng.normal(0, sd, item.shape)
    table = pl.DataFrame({"g": np.repeat(np.arange(groups), 12), "i": item.ravel(), "y": y.ravel()})
    return Schema.fit_encode(table, Roles(group="g", item="i", value="y"))[1], (l, m, sd)


def test_factors_are_found_and_others_dropped_without_a_search():
    groups, (l, m, sd) = taste()
    model = built(simple.GaussianConditional(rank=10), 60)
    model.fit(groups)
    loadings = model.loadings[:-1].numpy()
    assert int((np.abs(loadings).sum(0) > 0).sum()) <= 5
    true = l @ l.T + 0.25
    assert np.abs(loadings @ loadings.T - true).mean() < 0.2
    np.testing.assert_allclose(model.mean[:-1], m, atol=0.5)
    test, _ = taste(seed=1)
    best = built(simple.GaussianConditional(), 60)
    covariance = np.eye(61)
    covariance[:60, :60] = true + sd**2 * np.eye(60)
    best._set(mean=np.append(m, 3.0), covariance=covariance)
    assert model.score(test) > best.score(test) - 0.06
    mean, variance = model.predictive(test)
    cover = (np.abs(test.value[:, 0] - mean) < 1.645 * np.sqrt(variance)).mean()
    assert 0.87 < cover < 0.93


def test_without_factors_they_are_item_and_group_effects():
    rng = np.random.default_rng(0)
    row, column = np.repeat(np.arange(200), 8), np.tile(np.arange(8), 200)
    y = rng.normal(0, 1, 200)[row] + rng.normal(0, 0.5, 1600)
    found = factors.fit(factors.Entries(row, column, y, 200, 8, np.zeros(8, int)), 6)
    k = found.loadings @ found.loadings.T
    np.testing.assert_allclose(k, 1.0, atol=0.25)
    np.testing.assert_allclose(found.noise[:-1], 0.25, atol=0.06)


# ---- places


def stations(days=40, places=14, seed=0):
    """A field with item effects; the last three stations stand apart."""
    rng = np.random.default_rng(seed)
    x = np.random.default_rng(7).uniform(0, 1, (places, 2))
    d = np.sqrt(((x[:, None] - x) ** 2).sum(-1))
    k = 1.0 + 2 * np.exp(-d / 0.4) + 0.1 * np.eye(places)
    y = 5 + 3 * x[:, 0] + rng.multivariate_normal(np.zeros(places), k, days)
    rows = {"g": np.repeat(np.arange(days), places), "i": np.tile(np.arange(places), days), "y": y.ravel()}
    rows |= {"u": np.tile(100 + 100 * x[:, 0], days), "v": np.tile(x[:, 1], days)}  # no latitude
    return pl.DataFrame(rows)


def krige(model, known, place, y, present):
    """Simple kriging of one new place by its definition, with what the model has learnt."""
    smoothness, common, nugget, length = (float(x) for x in model.known_matern[:4])
    x = np.concatenate([known, place[None]])
    spread = known.std(0)
    d = torch.as_tensor(np.sqrt((((x[:, None] - x) / spread) ** 2).sum(-1)))
    r = common + (1 - common - nugget) * matern(d / length, smoothness).numpy() + nugget * np.eye(len(x))
    sd, mean = model.covariance.diagonal()[:-1].sqrt().numpy(), model.mean[:-1].numpy()

    def surface(which):
        """Universal kriging, its drift by generalised least squares with a wide prior."""
        s, g, scale = (float(x) for x in model.known_surfaces[which])
        own = model.known_levels[which].numpy()
        z = np.c_[np.ones(len(x)), (x - known.mean(0)) / spread]
        k = s * np.exp(-d.numpy() / scale) + 100 * (own.var() + 1e-12) * z @ z.T
        weights = np.linalg.solve(k[:-1, :-1] + g * np.eye(len(own)), k[:-1, -1])
        return own.mean() + weights @ (own - own.mean()), k[-1, -1] + g - weights @ k[:-1, -1]

    level, unsure = surface(0)
    size = np.exp(surface(1)[0])
    weights = np.linalg.solve(r[:-1, :-1][np.ix_(present, present)], r[:-1, -1][present])
    shift = size * weights @ ((y - mean) / sd)[present]
    return level + shift, size**2 * (1 - weights @ r[:-1, -1][present]) + unsure


def test_a_new_place_is_kriged_as_the_textbook_has_it():
    table = stations()
    known, new = table.filter(pl.col("i") < 11), table.filter(pl.col("i") == 12)
    schema, groups = Schema.fit_encode(known, Roles(**ROLES, item="i"))
    model = built(simple.Kriging(tails=0.0), 11, attributes=2)
    model.fit(groups)
    here = schema.encode(pl.concat([known, new]).sort("g", "i"))
    mean, variance = model.predictive(here)
    place = new.select("u", "v").to_numpy()[0]
    for day in (0, 5):
        y = groups.value[11 * day : 11 * day + 11, 0]
        want = krige(model, known.select("u", "v").to_numpy()[:11], place, y, np.arange(11))
        np.testing.assert_allclose([mean[12 * day + 11], variance[12 * day + 11]], want, rtol=1e-7)


@BOTH
@pytest.mark.parametrize("recipe", [simple.Kriging(), simple.GaussianConditional()])
def test_new_places_are_better_than_the_mean_and_know_how_sure_they_are(recipe, context):
    table, later = stations(80), stations(60, seed=3)
    known = table.filter(pl.col("i") < 11)
    model = SimpleModel(recipe, family="gaussian", context=context)
    model.fit(known, group="g", item="i", value="y", attributes=["u", "v"], order="row")
    some = later.sort("g", "i")
    with pytest.warns(efattn.EfattnWarning, match="Unknown"):
        found = model.predict(some).filter(pl.col("i") >= 11)
    error = (found["y"] - found["y_mean"]).to_numpy()
    assert (error**2).mean() < 0.6 * found["y"].var()
    assert 0.8 < ((found["y"] > found["y_lower"]) & (found["y"] < found["y_upper"])).mean() < 0.97
    other = some.with_columns(y=pl.when((pl.col("i") == 12) & (pl.col("g") == 4)).then(40.0).otherwise("y"))
    with pytest.warns(efattn.EfattnWarning, match="Unknown"):
        again = model.predict(other).filter(pl.col("i") == 12)
    before = found.filter(pl.col("i") == 12)
    for column in ("y_mean", "y_sd"):
        np.testing.assert_allclose(again[column].to_numpy()[4], before[column].to_numpy()[4], rtol=1e-6)


@BOTH
def test_rows_without_items_are_kriged_from_their_attributes(context, tmp_path):
    table = stations(80)
    model = SimpleModel(simple.Kriging(), family="gaussian", context=context).fit(table, **ROLES)
    plain = SimpleModel(simple.ShrunkMean(), family="gaussian", context=context)
    plain.fit(table, group="g", value="y", order="row")
    later = stations(60, seed=3)
    assert model.score(later) > plain.score(later) + 0.1
    found = model.predict(later)
    assert 0.86 < ((found["y"] > found["y_lower"]) & (found["y"] < found["y_upper"])).mean() < 0.94
    model.save(tmp_path / "field.efattn")
    assert efattn.load(tmp_path / "field.efattn").score(later) == model.score(later)


def test_a_field_with_wide_drift_is_universal_kriging():
    rng = np.random.default_rng(0)
    x, y = rng.uniform(100, 101, (9, 2)), rng.normal(size=9)  # no latitudes
    model = built(simple.Kriging(tails=0.0), 0, attributes=2)
    logs = np.log([0.5, 0.1, 1e7])
    model._set(parts=logs, slopes=np.log([1e7, 1e7]), lengths=np.log([0.3, 0.3]), units=np.stack([x.mean(0), x.std(0)]))
    mean, variance = model.moments(Batch.of([{"attributes": x, "value": y}], torch.float64))
    z = np.c_[np.ones(9), (x - x.mean(0)) / x.std(0)]
    r = distances(x).numpy() / 0.3
    k = 0.5 * np.exp(-r) + 0.1 * np.eye(9)
    for i in range(9):
        o = np.arange(9) != i
        inverse = np.linalg.inv(k[np.ix_(o, o)])
        b = np.linalg.solve(z[o].T @ inverse @ z[o], z[o].T @ inverse @ y[o])  # generalised least squares
        c = k[o, i]
        left = z[i] - z[o].T @ inverse @ c
        want = z[i] @ b + c @ inverse @ (y[o] - z[o] @ b)
        spread = 0.6 - c @ inverse @ c + left @ np.linalg.solve(z[o].T @ inverse @ z[o], left)
        np.testing.assert_allclose([mean[0, i], variance[0, i]], [want, spread], rtol=1e-4, atol=1e-4)


def test_inverse_distance_of_a_new_place_is_the_weighted_mean_of_what_is_there():
    table = stations(30)
    known = table.filter(pl.col("i") < 11)
    schema, groups = Schema.fit_encode(known, Roles(**ROLES, item="i"))
    model = built(simple.InverseDistance(power=2.0), 11, attributes=2)
    model.fit(groups)
    here = schema.encode(table.filter(pl.col("i") < 12).sort("g", "i"))
    mean, variance = model.predictive(here)
    places = here.attributes[:12]
    spread = places[:11].std(0)
    weights = 1 / (((places[11] - places[:11]) / spread) ** 2).sum(1)
    assert mean[11] == pytest.approx(weights @ here.value[:11, 0] / weights.sum())
    assert 0.2 < variance[11] < 6


def test_places_are_the_same_whether_values_are_centred_by_item_or_not():
    table = stations(60)
    known = table.filter(pl.col("i") < 11)
    found = []
    for way in ("global", "item"):
        model = SimpleModel(simple.Kriging(), family="gaussian", standardise=way)
        model.fit(known, group="g", item="i", value="y", attributes=["u", "v"])
        with pytest.warns(efattn.EfattnWarning, match="Unknown"):
            found.append(model.predict(table).filter(pl.col("i") >= 11)["y_mean"].to_numpy())
    assert np.abs(found[0] - found[1]).mean() < 0.15 * found[0].std()


def test_a_new_place_has_its_own_yesterday():
    rng, x = np.random.default_rng(0), np.random.default_rng(7).uniform(0, 1, (9, 2))
    d = np.sqrt(((x[:, None] - x) ** 2).sum(-1))
    factor, y = np.linalg.cholesky(np.exp(-d / 0.4) + 0.2 * np.eye(9)), np.zeros((120, 9))
    for day in range(1, 120):
        y[day] = 0.8 * y[day - 1] + 0.6 * factor @ rng.normal(size=9)
    rows = {"g": np.repeat(np.arange(120), 9), "i": np.tile(np.arange(9), 120), "y": y.ravel()}
    table = pl.DataFrame(rows | {"u": np.tile(100 + x[:, 0], 120), "v": np.tile(x[:, 1], 120)})
    roles = {"group": "g", "item": "i", "value": "y", "attributes": ["u", "v"]}
    errors = []
    for lags in (0, 1):
        model = SimpleModel(simple.Kriging(), family="gaussian", lags=lags)
        time = {"time": "g"} if lags else {}
        model.fit(table.filter((pl.col("i") < 8) & (pl.col("g") < 80)), **roles, **time)
        with pytest.warns(efattn.EfattnWarning, match="Unknown"):
            found = model.predict(table.filter(pl.col("g") >= 80)).filter((pl.col("i") == 8) & (pl.col("g") > 80))
        errors.append(((found["y"] - found["y_mean"]) ** 2).mean())
    assert errors[1] < 0.8 * errors[0]


def test_repeats_beside_a_new_place_are_answered():
    table = stations(40)
    known = table.filter(pl.col("i") < 11)
    model = SimpleModel(simple.GaussianConditional(), family="gaussian")
    model.fit(known, group="g", item="i", value="y", attributes=["u", "v"])
    twice = pl.concat([table, *[table.filter(pl.col("i") == 3)] * 6])
    with pytest.warns(efattn.EfattnWarning, match="Unknown"):
        found = model.predict(twice)
    assert np.isfinite(found["y_mean"].to_numpy()).all()
    assert (found["y_sd"] > 0).all()


@BOTH
@pytest.mark.parametrize("recipe", [simple.Kriging(), simple.GaussianConditional()])
def test_what_is_the_same_for_all_rows_of_a_day_is_no_place_of_an_item(recipe, context):
    """Means of years by item differ a little where rows are missing, and a new item lay a thousand spreads away."""
    table = stations(60)
    gone = np.random.default_rng(2).random(len(table)) < 0.05
    table = table.filter(~pl.Series(gone)).with_columns(year=1970 + pl.col("g") * 5.0, none=pl.lit(1.0))
    known, later = table.filter((pl.col("i") < 11) & (pl.col("g") < 40)), table.filter(pl.col("g") >= 40)
    found = []
    for attributes in (["year"], ["none"]):
        model = SimpleModel(recipe, family="gaussian", context=context)
        model.fit(known, group="g", item="i", value="y", attributes=attributes, order="row")
        with pytest.warns(efattn.EfattnWarning, match="Unknown"):
            found.append(model.predict(later).select("y_mean", "y_sd").to_numpy())
    np.testing.assert_allclose(*found, rtol=1e-6)


@BOTH
def test_cells_whose_covariance_is_none_are_independent(context):
    k = torch.tensor([[[1.0, 3.0], [3.0, 1.0]], [[1.0, 0.5], [0.5, 1.0]]]).double()
    seen, rest = torch.ones(2, 2).bool(), torch.tensor([[1.0, -1.0], [1.0, -1.0]]).double()
    both, alone = conditioned(k, rest, seen, 2, context), conditioned(k[1:], rest[1:], seen[1:], 2, context)
    assert all(bool(x.isfinite().all()) for x in both)
    assert all(torch.equal(x[1:], y) for x, y in zip(both, alone, strict=True))
