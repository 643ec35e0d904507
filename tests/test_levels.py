"""Laws of ordered levels that follow from a mean and a variance: simple models of answers, grades, yes and no."""

import numpy as np
import polars as pl
import pytest
import torch

import efattn
from efattn import SimpleModel, families, simple
from efattn.estimators.loading import fill
from efattn.simple import levels
from efattn.simple.base import MeanAndVariance
from efattn.simple.levels import Levels, Predicted

ORDERED = pytest.mark.parametrize("family", [families.Ordinal(levels=5, low=1), families.Bernoulli()])
ROLES = {"group": "person", "item": "question", "value": "answer"}


def answers(people=120, questions=6, cuts=(-0.2, 0.3, 0.5, 2.0), seed=0):
    """One taste each, questions of different loadings, levels that are not equally far apart."""
    draw = np.random.default_rng(seed)
    latent = draw.normal(size=(people, 1)) * np.linspace(0.5, 1.5, questions) + 0.7 * draw.normal(
        size=(people, questions)
    )
    person, question = np.indices(latent.shape)
    level = 1 + (latent.ravel()[:, None] > np.array(cuts)).sum(1)
    return pl.DataFrame({"person": person.ravel(), "question": [f"q{q}" for q in question.ravel()], "answer": level})


def predicted(family, rows=4000, items=3, seed=0, spread=0.0):
    """Levels drawn as cut-points have it; spread: how far those of items lie apart."""
    draw = np.random.default_rng(seed)
    mean, deviation = draw.normal(2, 1, rows), np.exp(0.3 * draw.normal(size=rows))
    item, low = draw.integers(0, items, rows), family.support.bounds[0]
    cut = 2 + np.cumsum([0.0, 0.2, 0.7, 1.5][: family.cut_points]) + spread * np.arange(items)[item, None]
    below = 1 / (1 + np.exp(-(cut - mean[:, None]) / deviation[:, None]))
    y = low + (draw.random((rows, 1)) > below).sum(1)
    truth = np.diff(np.pad(below, ((0, 0), (1, 1)), constant_values=(0, 1)))[np.arange(rows), (y - low).astype(int)]
    columns = (y.astype(float), mean, deviation**2, item, np.arange(rows) // 10)
    return Predicted(*(torch.as_tensor(x) for x in columns)), float(np.log(truth).mean())


@ORDERED
def test_outputs_from_margins_have_these_cumulative_probabilities(family):
    margins = torch.linspace(-2.5, 3, 3 * family.cut_points, dtype=torch.float64).reshape(3, -1)
    f = family.from_margins(margins)
    for k in range(family.cut_points):
        y = torch.full((3,), family.support.bounds[0] + k, dtype=torch.float64)
        torch.testing.assert_close(family.cdf(f, y).double(), margins[:, k].sigmoid())


@ORDERED
@pytest.mark.parametrize("spread", [0.0, 0.8])
def test_levels_that_follow_from_moments_are_learnt_nearly_as_well_as_they_can_be(family, spread):
    rows, _ = predicted(family, spread=spread)
    fresh, best = predicted(family, seed=1, spread=spread)
    start = family.start(rows.y)
    found = levels.learnt(family, rows, 3, start)
    score = family.log_prob(found.outputs(family, fresh.mean, fresh.variance, fresh.item), fresh.y).mean()
    plain = family.log_prob(family.from_moments(fresh.mean, fresh.variance, start), fresh.y).mean()
    assert found.usable
    assert best - 0.01 < score
    assert plain < score - 0.02


def test_where_the_familys_own_way_with_moments_is_right_it_stays():
    draw, family = np.random.default_rng(0), families.Bernoulli()
    p = draw.uniform(0.05, 0.95, 3000)
    columns = ((draw.random(3000) < p).astype(float), p, p * (1 - p), np.zeros(3000, int), np.arange(3000))
    rows = Predicted(*(torch.as_tensor(x) for x in columns))
    assert not levels.learnt(family, rows, 1, family.start(rows.y)).usable


def test_an_item_never_seen_has_what_all_items_share():
    family = families.Ordinal(levels=5, low=1)
    rows, _ = predicted(family, spread=0.8)
    found = levels.learnt(family, rows, 3, family.start(rows.y))
    assert float(found.own[:-1].abs().max()) > 0.1
    assert float(found.own[-1].abs().max()) == 0.0


def test_derivatives_of_margins_are_those_of_automatic_differentiation():
    draw = torch.Generator().manual_seed(0)
    shared = torch.randn(7, dtype=torch.float64, generator=draw)
    own = torch.zeros(2, 5, dtype=torch.float64)
    u, w, item = torch.tensor([0.3, -1.2]).double(), torch.tensor([0.5, -0.4]).double(), torch.tensor([0, 1])

    def margins(x):
        return levels._margins(Levels(torch.ones(2), x, own), u, w, item)[0]

    by = levels._margins(Levels(torch.ones(2), shared, own), u, w, item)[1]
    torch.testing.assert_close(by, torch.autograd.functional.jacobian(margins, shared))


@pytest.mark.parametrize(
    "recipe", [simple.GaussianConditional(), simple.GaussianConditional(rank=2), simple.ShrunkMean()]
)
def test_an_ordinal_gaussian_says_more_than_its_mean_and_never_sees_its_target(recipe):
    table, fresh = answers(), answers(seed=1)
    model = SimpleModel(recipe, family=families.Ordinal(levels=5, low=1), refit=False).fit(table, **ROLES)
    term = model.members_[0]["answer"]
    assert term.levels.usable
    better = model.score(fresh)
    other = fresh.with_columns(
        answer=pl.when(pl.int_range(pl.len()) == 7).then(6 - pl.col("answer")).otherwise("answer")
    )
    seen, again = (np.asarray(model.predict(x)["answer_mean"])[7] for x in (fresh, other))
    np.testing.assert_allclose(seen, again, rtol=1e-9)
    term._take_levels(Levels.empty(4, 6))
    assert better > model.score(fresh) + 0.01


def test_a_saved_model_keeps_its_levels_and_a_file_without_them_has_none(tmp_path):
    table = answers(people=60)
    model = SimpleModel(simple.ShrunkMean(), family="ordinal", refit=False).fit(table, **ROLES)
    model.save(tmp_path / "m.efa")
    again = efattn.load(tmp_path / "m.efa")
    assert model.members_[0]["answer"].levels.usable
    np.testing.assert_array_equal(model.predict(table)["answer_mean"], again.predict(table)["answer_mean"])
    term = again.members_[0]["answer"]
    fill(term, {name: x for name, x in term.state_dict().items() if not name.startswith("levels_")})
    assert not term.levels.usable


def test_levels_are_learnt_from_groups_that_moments_were_predicted_without(monkeypatch):
    fitted, asked, learnt = {}, [], []
    fit, say = MeanAndVariance.fit, MeanAndVariance.predicted

    def fit_and_note(self, groups, *more):
        fitted[self] = set(groups.numbers)
        fit(self, groups, *more)

    def say_and_note(self, groups):
        asked.append((fitted[self], set(groups.numbers)))
        return say(self, groups)

    monkeypatch.setattr(MeanAndVariance, "fit", fit_and_note)
    monkeypatch.setattr(MeanAndVariance, "predicted", say_and_note)
    monkeypatch.setattr(MeanAndVariance, "learn_levels", lambda self, rows: learnt.append(rows))
    SimpleModel(simple.ShrunkMean(), family="ordinal", refit=False).fit(answers(people=30), **ROLES, validation=None)
    assert len(asked) == 3
    assert all(not known & left for known, left in asked)
    assert set.union(*(left for _, left in asked)) == set(range(30))
    assert len(learnt[0].y) == 180
