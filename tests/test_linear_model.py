"""The penalised linear model: what a row knows, how it is fitted, and what it finds in data made for it."""

import math

import numpy as np
import polars as pl
import pytest
import torch
from small import days

import efattn
from efattn import DataError, SimpleModel, families, simple
from efattn.data import Roles, Schema
from efattn.families import Gaussian, PerItem, Poisson, Product
from efattn.simple import Setting
from efattn.simple.linear_fit import FIRST
from efattn.simple.newton import Arrow, Pair, newton

ROLES = {"group": "g", "item": "i", "value": "y", "attributes": ["t", "u"], "order": "t"}
BOTH = pytest.mark.parametrize("context", ["others", "past"])


def table(groups=30, seed=0, length=6):
    """Ragged groups, repeated items, missing values, two attributes."""
    rng = np.random.default_rng(seed)
    size = rng.integers(1, length + 1, groups)
    g = np.repeat(np.arange(groups), size)
    n = len(g)
    t = np.concatenate([np.sort(rng.uniform(0, 5, s)) for s in size])
    u, i = rng.normal(size=n), rng.integers(0, 3, n)
    y = rng.normal(size=groups)[g] + 0.5 * t + 0.3 * u + i + rng.normal(size=n) * 0.4
    y[rng.random(n) < 0.1] = np.nan
    y[0] = 0.0
    other = rng.poisson(np.exp(0.3 * np.nan_to_num(y) - 1)).astype(float)
    return pl.DataFrame({"g": g, "i": i, "t": t, "u": u, "y": y, "z": other, "e": rng.uniform(0.5, 2, n)})


def encoded(frame, **roles):
    return Schema.fit_encode(frame, Roles(**(ROLES | roles)))[1]


def built(groups, family=None, context="others", penalty=1.0, spread=None, **more):
    family = Product((Gaussian(),)) if family is None else family
    setting = Setting(family, 3, context, attributes=2, ordered=True)
    model = simple.LinearModel(penalty=penalty, spread=spread).build(setting)
    model.fit(groups, **more)
    return model


# ---- what a row knows


@BOTH
def test_what_a_row_knows_equals_a_loop_over_its_context(context):
    groups = encoded(table())
    model = built(groups, context=context)
    sight = model.sight()
    batch = groups.batch(np.arange(len(groups)), context, torch.float64)
    item, known = sight.describe(batch)
    basis = torch.cat(sight.basis(batch), -1)
    f = sight.base(0, item, basis, torch.zeros(item.shape, dtype=torch.float64))
    rest = ((batch.value[..., 0] - f[..., 0]) / Gaussian().variance(f).sqrt()).clamp(-8, 8)
    linear = known.linear
    for b in range(len(groups)):
        n = int(batch.exists[b].sum())
        for i in range(n):
            see = [j for j in range(n) if batch.observed[b, j, 0] and (j < i if context == "past" else j != i)]
            e = rest[b, see]
            total, count = float(e.sum()), len(see)
            near = (i - 1, i + 1 if context == "others" else i - 2)
            before, after = (float(rest[b, j]) if j in see else 0.0 for j in near)
            if context == "past":  # by how much the last is more than the one before
                after = before - after if set(near) <= set(see) else 0.0
            away = linear[b, i, :2] - linear[b, see, :2].mean(0) if see else torch.zeros(2)
            wanted = [total / (count + 1), total / (count + 5), before, after, math.log(count + 1) - 1, *away.tolist()]
            np.testing.assert_allclose(known.extras[b, i], wanted, atol=1e-9)
            cells = [e[item[b, see] == x].mean().item() if (item[b, see] == x).any() else 0.0 for x in range(3)]
            np.testing.assert_allclose(known.cells[b, i], cells, atol=1e-9)
            varied = float(e.var(correction=0)) * count if count else 0.0
            assert float(known.scatter[b, i, 0, 1]) == pytest.approx(
                math.log((varied + 1) / (max(count - 1, 0) + 1)), abs=1e-9
            )


@BOTH
@pytest.mark.parametrize("columns", ["y", ["y", "z"]])
def test_a_target_never_sees_any_value_of_its_own_row(context, columns):
    groups = encoded(table(), value=columns)
    family = Product((Gaussian(), Poisson())[: 1 if columns == "y" else 2])
    model = built(groups, family, context)
    batch = groups.batch(np.arange(12), context, torch.float64)
    value = batch.value.clone().requires_grad_()
    slots = torch.arange(batch.length).expand(12, -1)
    f = type(model).raw_outputs.__wrapped__(model, batch.replace(value=value), slots)
    for i in range(batch.length):
        (gradient,) = torch.autograd.grad(f[:, i].sum(), value, retain_graph=True)
        assert gradient[:, i].abs().max() == 0
        assert context == "others" or gradient[:, i:].abs().max() == 0
        if i == 1:
            assert (gradient[:, 0].abs().amax(0) > 0).all()  # every column of the others is looked at
    moved = batch.value.clone()
    moved[:, 2] += 3.0
    np.testing.assert_array_equal(f[:, 2].detach(), model.raw_outputs(batch.replace(value=moved), slots)[:, 2])


def test_padding_and_company_change_nothing():
    groups = encoded(table())
    model = built(groups)
    whole = groups.batch(np.arange(len(groups)), "others", torch.float64)
    together = model.outputs(whole)
    for k in range(4):
        alone = groups.batch(np.array([k]), "others", torch.float64)
        np.testing.assert_allclose(together[k, : alone.length], model.outputs(alone)[0], atol=1e-8)


@BOTH
def test_some_rows_are_told_the_same_as_all(context):
    frame = days(40).with_columns(t=pl.col("i").cast(pl.Float64), u=0.5)
    roles = {"group": "g", "item": "i", "value": "y", "attributes": ["t", "u"], "order": "t"}
    groups = Schema.fit_encode(frame.with_columns(y=pl.when(pl.col("i") != 2).then("y")), Roles(**roles))[1]
    model = simple.LinearModel(penalty=1.0).build(
        Setting(Product((Gaussian(),)), 6, context, attributes=2, ordered=True)
    )
    model.fit(Schema.fit_encode(frame, Roles(**roles))[1])
    batch = groups.batch(np.arange(10), context, torch.float64)
    slots = torch.tensor([[4, 2]]).expand(10, -1)
    torch.testing.assert_close(model.raw_outputs(batch, slots), model.outputs(batch)[:, [4, 2]], rtol=1e-12, atol=1e-12)


# ---- how it is fitted


def test_newtons_steps_end_where_the_gradient_is_zero():
    generator = torch.Generator().manual_seed(0)
    rows, size, g, q, items = 80, 2, 3, 2, 4
    shared, own = (torch.randn(rows, size, k, dtype=torch.float64, generator=generator) for k in (g, q))
    item = torch.randint(0, items, (rows,), generator=generator).sort().values
    y = torch.randn(rows, dtype=torch.float64, generator=generator)
    ends = torch.bincount(item, minlength=items).cumsum(0).tolist()
    arrow = Arrow(
        lambda f: Gaussian().log_prob(f, y), torch.zeros(rows, size, dtype=torch.float64), shared, own, item, ends
    )
    zero = Pair(torch.zeros(g, dtype=torch.float64), torch.zeros(items, q, dtype=torch.float64))
    weight = Pair(zero.shared + 0.5, zero.own + 2.0)
    found = newton(arrow, weight, zero, zero, math.inf)
    free = Pair(*(x.clone().requires_grad_() for x in found))
    loss = -arrow.log_prob(arrow.outputs(free)).sum() + sum(
        (w / 2 * x**2).sum() for w, x in zip(weight, free, strict=True)
    )
    for slope in torch.autograd.grad(loss, free):
        assert slope.abs().max() < 0.02


def test_newtons_steps_and_descent_agree(monkeypatch):
    groups = encoded(table(60))
    one = built(groups)
    monkeypatch.setattr("efattn.simple.linear_fit.ROOM", 0)
    monkeypatch.setattr("efattn.simple.linear_fit.ROUNDS", 500)
    assert built(groups).score(groups) == pytest.approx(one.score(groups), abs=2e-3)


def test_chosen_penalties_make_the_same_model_again():
    groups = encoded(table(40))
    model = built(groups, penalty=None)
    again = built(groups, **model.chosen_options())
    assert len(model.chosen_options()["penalty"]) == len(FIRST) - 2
    for name, x in model.state_dict().items():
        torch.testing.assert_close(x, again.get_buffer(name))


def test_no_time_is_still_a_model():
    groups = encoded(table())
    model = simple.LinearModel(seconds=0.0).build(Setting(Product((Gaussian(),)), 3, attributes=2, ordered=True))
    model.fit(groups)
    assert np.isfinite(model.score(groups))


@pytest.mark.parametrize("penalty", [0.0, -1.0, "much", (1.0, 2.0), True])
def test_penalties_that_cannot_be_are_refused(penalty):
    with pytest.raises(DataError, match="penalty"):
        simple.LinearModel(penalty=penalty).build(Setting(Gaussian(), 3))


# ---- what it finds


def score(frame, truth, group="g", **roles):
    """What a linear model has on the second half of the groups, and what the truth has, by rows' log-probabilities."""
    half = frame[group].max() // 2
    model = SimpleModel(simple.LinearModel(seconds=5), family="gaussian").fit(
        frame.filter(pl.col(group) <= half), validation=None, group=group, value="y", **roles
    )
    return model.score(frame.filter(pl.col(group) > half)), float(np.mean(truth[frame[group].to_numpy() > half]))


def conditional(y, mean, cov):
    """log p(y_i | others) of a Gaussian."""
    a = np.linalg.inv(cov)
    d = np.diag(a)
    return -0.5 * np.log(2 * np.pi / d) - 0.5 * d * ((a @ (y - mean)) / d) ** 2


@pytest.mark.parametrize("kind", ["intercept", "slope", "autoregression"])
def test_it_comes_close_to_the_truth_of_a_mixed_model(kind):
    rng = np.random.default_rng(1)
    n, groups = 8, 120
    t = np.arange(n) - 3.5
    cov = {
        "intercept": np.ones((n, n)),
        "slope": 0.5 + 0.2 * np.outer(t, t),
        "autoregression": 0.8 ** np.abs(t[:, None] - t),
    }[kind] + 0.25 * np.eye(n)
    x = rng.normal(size=(groups, n))
    mean = 0.7 * x + 0.2 * t
    y = mean + rng.multivariate_normal(np.zeros(n), cov, groups)
    truth = np.concatenate([conditional(y[g], mean[g], cov) for g in range(groups)])
    frame = pl.DataFrame(
        {"g": np.repeat(np.arange(groups), n), "t": np.tile(t, groups), "x": x.ravel(), "y": y.ravel()}
    )
    got, best = score(frame, truth, attributes=["t", "x"], order="t")
    assert best - 0.06 < got


def of_the_past(frame, **options):
    """Held-out groups from what came earlier, by a linear model as it is and by a plain one."""
    half = frame["g"].max() // 2
    train, test = (frame.filter((pl.col("g") <= half) == first) for first in (True, False))
    several = (simple.LinearModel(**options), simple.LinearModel(plain=True, spread=(0.0, 0.0), **options))
    roles = {"group": "g", "value": "y", "order": "t"}
    models = (SimpleModel(one, family="gaussian", context="past") for one in several)
    return [model.fit(train, validation=None, **roles).score(test) for model in models]


def test_a_curve_over_the_places_of_a_group_is_found():
    rng = np.random.default_rng(0)
    t = np.tile(np.arange(7), 60)
    y = 4 * np.exp(-0.5 * (t - 2.0) ** 2) + np.repeat(rng.normal(size=60), 7) * 0.3
    y += rng.normal(size=420) * 0.3
    got, plain = of_the_past(pl.DataFrame({"g": np.arange(420) // 7, "t": t, "y": y}))
    best = -0.5 * math.log(2 * math.pi * 0.09) - 0.5
    assert best - 0.3 < got
    assert plain < got - 0.3


def test_the_time_of_a_row_counts_where_rows_have_times():
    """Groups begin when they like, and values follow the clock."""
    rng = np.random.default_rng(0)
    t = np.sort(rng.uniform(0, 10, 100))[:, None] + np.cumsum(rng.exponential(size=(100, 4)), 1)
    y = 0.8 * t + rng.normal(size=(100, 4)) * 0.5
    by = rng.permutation(100)
    frame = pl.DataFrame({"g": np.repeat(np.arange(100), 4), "t": t[by].ravel(), "y": y[by].ravel()})
    got, plain = of_the_past(frame)
    assert -0.5 * math.log(2 * math.pi * 0.25) - 0.5 - 0.1 < got
    assert plain < got - 0.3


def test_a_first_row_is_less_certain_than_those_that_follow():
    """A walk: where it starts nothing is known, and every step is small."""
    rng = np.random.default_rng(0)
    y = rng.normal(size=(80, 1)) * 3 + np.cumsum(rng.normal(size=(80, 12)) * 0.1, 1)
    frame = pl.DataFrame({"g": np.repeat(np.arange(80), 12), "t": np.tile(np.arange(12), 80), "y": y.ravel()})
    got, plain = of_the_past(frame, penalty=1000.0)
    start, step = (-0.5 * math.log(2 * math.pi * v) - 0.5 for v in (9.0, 0.01))
    assert (start + 11 * step) / 12 - 0.1 < got
    assert plain < got - 0.1


def test_dispersions_are_those_of_groups_left_out():
    """Few groups of many items that go together: rows that the map was fitted to lie much nearer to it than others."""
    rng = np.random.default_rng(0)
    load, n = rng.normal(size=(2, 16)), 16
    y = rng.normal(size=(60, 2)) @ load + rng.normal(size=(60, n)) * 0.3
    frame = pl.DataFrame({"g": np.repeat(np.arange(60), n), "i": np.tile(np.arange(n), 60), "y": y.ravel()})
    train, test = (frame.filter((pl.col("g") < 24) == first) for first in (True, False))
    roles = {"group": "g", "item": "i", "value": "y"}
    models = [SimpleModel(simple.LinearModel(spread=x), family="gaussian") for x in (None, (0.0, 0.0))]
    got, without = (model.fit(train, validation=None, **roles).score(test) for model in models)
    inside = models[0].predict(test, interval=0.9)
    assert without < got - 0.05
    assert 0.8 < float(((inside["y_lower"] <= inside["y"]) & (inside["y"] <= inside["y_upper"])).mean()) < 0.97


def test_a_value_far_out_in_an_attribute_does_not_rule():
    """Populations: one group has a thousand times what others have, and its value is like theirs."""
    rng = np.random.default_rng(0)
    a = np.repeat(np.exp(rng.normal(size=200) * 2.5), 3)
    y = 0.5 * np.log(a) + rng.normal(size=600) * 0.3
    frame = pl.DataFrame({"g": np.repeat(np.arange(200), 3), "a": a, "y": y})
    got, best = score(
        frame, -0.5 * np.log(2 * np.pi * 0.09) - 0.5 * ((y - 0.5 * np.log(a)) / 0.3) ** 2, attributes=["a"]
    )
    assert best - 0.1 < got


def test_residuals_are_taken_after_attributes():
    """Groups differ in an attribute that explains them: their level is no news."""
    rng = np.random.default_rng(0)
    a = np.repeat(rng.normal(size=100) * 3, 3)
    b = rng.normal(size=300)
    y = a + 2 * b + rng.normal(size=300)
    frame = pl.DataFrame({"g": np.repeat(np.arange(100), 3), "a": a, "b": b, "y": y})
    got, best = score(frame, -0.5 * np.log(2 * np.pi) - 0.5 * (y - a - 2 * b) ** 2, attributes=["a", "b"])
    assert got > best - 0.06


def test_bends_and_products_of_attributes_are_found():
    rng = np.random.default_rng(0)
    a, b = rng.uniform(-2, 2, (2, 600))
    y = np.abs(a) * 2 + a * b + rng.normal(size=600) * 0.3
    frame = pl.DataFrame({"g": np.repeat(np.arange(200), 3), "a": a, "b": b, "y": y})
    got, _ = score(frame, y, attributes=["a", "b"])
    assert got > -0.5 * math.log(2 * math.pi * 0.09) - 0.5 - 0.2


# ---- families, columns, hard tables


EACH = {
    "gaussian": "y", "gamma": "e", "poisson": "z", "negative_binomial": "z", "exponential": "e",
}  # fmt: skip


@pytest.mark.parametrize("family", EACH)
def test_every_family_and_several_columns_can_be_saved(family, tmp_path):
    frame = table()
    roles = ROLES | {"value": [EACH[family], "u"], "attributes": ["t"]}
    model = SimpleModel(simple.LinearModel(penalty=3.0), family=[family, "gaussian"], context="past")
    model.fit(frame, validation=None, **roles).save(tmp_path / "m.efattn")
    again = efattn.load(tmp_path / "m.efattn")
    assert np.isfinite(model.score(frame))
    assert again.score(frame) == model.score(frame)


def test_the_other_column_of_other_rows_is_used():
    rng = np.random.default_rng(0)
    level = np.repeat(rng.normal(size=150), 4)
    frame = pl.DataFrame({"g": np.repeat(np.arange(150), 4), "y": level + rng.normal(size=600), "z": level * 2})
    recipe = SimpleModel(simple.LinearModel(seconds=3), family="gaussian")
    one, both = (recipe.fit(frame, group="g", value=v, validation=None).predict(frame) for v in ("y", ["y", "z"]))
    assert both["y_sd"].mean() < 1.07 < one["y_sd"].mean()


def test_items_of_different_kinds_have_their_own_families():
    rng = np.random.default_rng(0)
    level = rng.normal(size=(120, 1))
    y = np.column_stack([level + rng.normal(size=(120, 2)) * 0.3, rng.poisson(np.exp(level + 1))])
    frame = pl.DataFrame({"g": np.repeat(np.arange(120), 3), "i": np.tile(np.arange(3), 120), "y": y.ravel()})
    family = PerItem((Gaussian(), Poisson()), (0, 0, 1))
    groups = encoded(frame, attributes=(), order=None)
    scores = []
    for penalty in (1e4, 1.0):
        model = simple.LinearModel(penalty=penalty).build(Setting(Product((family,)), 3))
        model.fit(groups.subset(np.arange(120) < 80))
        scores.append(model.score(groups.subset(np.arange(120) >= 80)))
    single = simple.ItemMean().build(Setting(Product((family,)), 3))
    single.fit(groups.subset(np.arange(120) < 80))
    assert min(scores) > single.score(groups.subset(np.arange(120) >= 80)) + 0.2


def test_hard_tables_give_numbers():
    n = 40
    g, one = np.repeat(np.arange(20), 2), np.ones(n)
    rng = np.random.default_rng(0)
    tables = {
        "separated": (one * (np.arange(n) % 2), "bernoulli", np.arange(n) % 2 * 100.0),
        "constant attribute": (rng.normal(size=n), "gaussian", one * 7),
        "huge": (rng.normal(size=n) * 1e12, "gaussian", rng.normal(size=n) * 1e9),
        "skewed": (np.exp(rng.normal(size=n) * 4), "gamma", np.exp(rng.normal(size=n) * 8)),
        "constant": (one * 3, "gaussian", rng.normal(size=n)),
        "no counts": (one * 0, "poisson", rng.normal(size=n)),
    }
    for name, (y, family, x) in tables.items():
        for groups in (g, np.arange(n), np.zeros(n, int)):
            frame = pl.DataFrame({"g": groups, "y": y, "x": x})
            model = SimpleModel(simple.LinearModel(penalty=1.0), family=family)
            model.fit(frame, group="g", value="y", attributes="x", validation=None)
            found = model.predict(frame).select("y_mean", "y_sd").to_numpy()
            assert np.isfinite(found).all(), name


def test_what_has_several_columns_in_one_law_is_refused():
    with pytest.raises(DataError, match="family of one column"):
        simple.LinearModel().build(Setting(Product((families.MultivariateGaussian(2),)), 3))


@BOTH
@pytest.mark.parametrize("family", ["log_normal", "johnson"])
def test_a_normal_law_on_a_bent_scale_is_the_normal_law_of_bent_values(family, context):
    """Residuals are taken where values are normal: a few huge ones say no more than their logarithms do."""
    rng = np.random.default_rng(0)
    g, t = np.repeat(np.arange(90), 5), np.tile(np.arange(5.0), 90)
    bent = 1 + 1.2 * rng.normal(size=90)[g] + 0.3 * rng.normal(size=len(g))
    y = np.exp(bent) if family == "log_normal" else np.sinh(bent)
    slope = bent if family == "log_normal" else np.log(np.cosh(bent))
    frame = pl.DataFrame({"g": g, "t": t, "y": y, "bent": bent, "slope": slope})
    law = families.LogNormal() if family == "log_normal" else families.Johnson()
    train, new = frame.filter(pl.col("g") < 60), frame.filter(pl.col("g") >= 60)
    scores = {}
    for value, mine in (("y", law), ("bent", Gaussian())):
        model = SimpleModel(simple.LinearModel(penalty=100.0), family=mine, context=context)
        scores[value] = model.fit(train, group="g", order="t", value=value, progress=False).score(new)
    assert scores["y"] == pytest.approx(scores["bent"] - new["slope"].mean(), abs=0.05)
