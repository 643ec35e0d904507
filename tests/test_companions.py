"""Companions: simple models that predict together with the networks, their shares, their file, and the default."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
import torch
from sklearn.base import clone
from small import efa, ratings

import efattn
from efattn import DataError, ModelFileError, SimpleModel, Training, inference, simple, storage
from efattn.data import Table
from efattn.estimators import companions, shares
from efattn.inference.mixture import Targets

RATINGS = ratings(users=24)
ITEMS = {"group": "user", "item": "movie"}
CALM = Training(epochs=2, tokens=64, device="cpu", rate=1e-3)
GAUSSIAN = simple.GaussianConditional()
CASES = {
    "gaussian": (GAUSSIAN, {"value": "real"}, "gaussian"),
    "ordinal": (GAUSSIAN, {"value": "rating"}, "ordinal"),
    "poisson": (GAUSSIAN, {"value": "count"}, "poisson"),
    "gamma": (simple.ShrunkMean(), {"value": "size"}, "gamma"),
    "linear": (simple.LinearModel(), {"value": "count"}, "negative_binomial"),
    "items": (simple.AdditiveLogit(), {}, "auto"),
    "popular": (simple.Popularity(), {}, "auto"),
}


def likelihoods(fitted, name, **options):
    (told,) = inference.log_likelihood(fitted, [Table.read(RATINGS)], **options)
    return told[f"{name}_log_likelihood"].to_numpy()


@pytest.mark.parametrize("case", CASES)
def test_a_companion_has_its_share_of_the_mixture(tmp_path, case):
    recipe, roles, family = CASES[case]
    model = efa(companions=recipe, family=family, training=CALM, ensemble=2, dropout=0.3).fit(RATINGS, **ITEMS, **roles)
    name = roles.get("value", "item")
    one = model.companions_[name][0]
    fitted = replace(model.fitted_, companions={name: (one._replace(share=0.3),)})
    own = [likelihoods(fitted, name, member=k) for k in range(2)]
    alone = likelihoods(replace(fitted, companions={name: (one._replace(share=1.0),)}), name)
    want = np.log(0.35 * np.exp(own[0]) + 0.35 * np.exp(own[1]) + 0.3 * np.exp(alone))
    np.testing.assert_allclose(likelihoods(fitted, name), want, rtol=1e-5, atol=1e-6)
    assert f"{type(recipe).__name__} 30%" in inference.summary(fitted)
    model.save(tmp_path / "m.efattn")
    again = efattn.load(tmp_path / "m.efattn")
    assert again.score(RATINGS) == pytest.approx(model.score(RATINGS), rel=1e-6)
    assert again.get_params()["companions"] == recipe
    more = ratings(seed=5, users=12, movies=11)
    updated = model.update(more)
    assert np.isfinite(updated.score(more))
    updated.save(tmp_path / "more.efattn")
    assert efattn.load(tmp_path / "more.efattn").score(more) == pytest.approx(updated.score(more), rel=1e-6)


def test_a_companion_with_all_of_the_mixture_is_the_simple_model():
    model = efa(companions=GAUSSIAN, training=CALM, terms="value", standardise="global")
    fitted = model.fit(RATINGS, **ITEMS, value="real").fitted_
    whole = replace(fitted, companions={"real": (fitted.companions["real"][0]._replace(share=1.0),)})
    other = SimpleModel(GAUSSIAN, family="gaussian").fit(RATINGS, **ITEMS, value="real")
    (told,) = inference.predict(whole, [Table.read(RATINGS)])
    want = other.predict(RATINGS)
    for column in ("real_mean", "real_sd", "real_lower", "real_upper"):
        np.testing.assert_allclose(told[column], want[column], rtol=1e-5, atol=1e-5)


def test_shares_that_are_above_one_by_rounding_leave_the_network_none():
    model = efa(companions=GAUSSIAN, family="gaussian", training=CALM).fit(RATINGS, **ITEMS, value="real")
    (one,) = model.companions_["real"]
    shares_ = (0.33, 0.56, 0.11)
    assert sum(shares_) > 1
    fitted = replace(model.fitted_, companions={"real": tuple(one._replace(share=share) for share in shares_)})
    assert fitted.parts("real")[0].share == 0
    alone = replace(fitted, companions={"real": (one._replace(share=1.0),)})
    np.testing.assert_allclose(likelihoods(fitted, "real"), likelihoods(alone, "real"), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("context", ["past", "others"])
def test_a_row_is_predicted_from_its_context_never_from_itself(context):
    several = [GAUSSIAN, simple.ShrunkMean(), simple.RidgePerItem()]
    model = efa(companions=several, training=CALM, terms="value", context=context)
    fitted = model.fit(RATINGS, **ITEMS, value="real", order="at").fitted_
    equal = tuple(one._replace(share=0.25) for one in fitted.companions["real"])
    fitted = replace(fitted, companions={"real": equal})
    here = pl.int_range(pl.len()) == 5
    (plain,) = inference.predict(fitted, [Table.read(RATINGS)])
    for other in (None, 99.0):
        changed = RATINGS.with_columns(pl.when(here).then(pl.lit(other, pl.Float64)).otherwise("real").alias("real"))
        (told,) = inference.predict(fitted, [Table.read(changed)])
        for column in ("real_mean", "real_sd", "real_lower", "real_upper"):
            assert told[column][5] == pytest.approx(plain[column][5], abs=1e-6)


LIES = {
    "share": lambda about: about["companions"]["real"][0].update(share=5),
    "share in words": lambda about: about["companions"]["real"][0].update(share="half"),
    "more than all": lambda about: about["companions"].update(
        real=2 * [about["companions"]["real"][0] | {"share": 0.6}]
    ),
    "no recipe": lambda about: about["companions"]["real"][0].update(recipe="gaussian"),
    "another recipe": lambda about: about["companions"]["real"][0]["recipe"].update(kind="Popularity"),
    "items": lambda about: about["companions"]["real"][0].update(items=10**9),
    "no such term": lambda about: about.update(companions={"x": about["companions"]["real"]}),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_file_that_lies_about_its_companions_is_refused(tmp_path, lie):
    model = efa(companions=GAUSSIAN, training=CALM, terms="value").fit(RATINGS, **ITEMS, value="real")
    model.save(tmp_path / "m.efattn")
    about, tensors = storage.read(tmp_path / "m.efattn", "model")
    about = {key: x for key, x in about.items() if key not in ("format", "kind")}
    LIES[lie](about)
    storage.write(tmp_path / "m.efattn", "model", about, {name: x.clone() for name, x in tensors.items()})
    with pytest.raises(ModelFileError, match=r"m\.efattn"):
        efattn.load(tmp_path / "m.efattn")


def note_of(model):
    return next((str(note) for note in model.notes_ if note.kind == "companions"), "")


def test_shares_are_those_that_held_out_groups_like_best():
    parts = RATINGS.filter(pl.col("user") != "u1"), RATINGS.filter(pl.col("user").is_in(["u1", "u2", "u3"]))
    model = efa(companions=GAUSSIAN, training=CALM, terms="value")
    model.fit(parts[0], **ITEMS, value="real", validation=parts[1])
    assert "GaussianConditional" in note_of(model)
    assert note_of(model) in model.summary()
    one, rows = model.companions_["real"][0], len(parts[1])
    scores = {}
    for share in (0.02, 0.1, 0.3, 0.5, 0.7, 0.9, one.share):
        fitted = replace(model.fitted_, companions={"real": (one._replace(share=share),)})
        mean = inference.score(fitted, [Table.read(parts[1])])["mean_log_likelihood"]
        scores[share] = mean + 5 / 8 * np.log(share * (1 - share)) / rows  # three groups decide little
    assert max(scores.values()) == pytest.approx(scores[one.share], abs=1e-3)


def test_the_best_shares_maximise_the_mixture():
    rng = np.random.default_rng(0)
    scores = torch.as_tensor(rng.normal(size=(400, 3)) + np.array([0, 0.5, -0.2]))
    weight = torch.as_tensor(rng.random(400))
    share = shares.best_shares(scores, weight, 0)

    def value(s):
        return float((scores + torch.as_tensor(s).log()).logsumexp(1) @ weight) + np.log(s).sum()

    assert float(share.sum()) == pytest.approx(1)
    for other in rng.dirichlet([1, 1, 1], 200):
        assert value(share.numpy()) >= value(other) - 1e-3


def test_few_targets_decide_little_and_many_decide():
    better = torch.tensor([[-3.0, -1.0]]).double()
    few, many = (shares.best_shares(better.expand(n, 2), torch.ones(n).double(), n) for n in (1, 1000))
    assert 0.5 < float(few[1]) < 0.75
    assert float(many[1]) == 1.0


def test_a_network_that_needs_no_help_stays_alone(monkeypatch):
    def scored(parts, data, tokens):
        score = -1.0 if hasattr(parts[0].model, "stack") else -50.0
        return Targets(torch.full((200,), score).double(), torch.ones(200).double(), torch.zeros(200).long())

    monkeypatch.setattr(shares.mixture, "log_probs", scored)
    model = efa(companions="auto", training=CALM, terms="value").fit(RATINGS, **ITEMS, value="real")
    assert "does not help" in note_of(model)
    (one,) = model.companions_["real"]
    assert type(one.recipe).__name__ == "ItemMean"
    assert one.share == pytest.approx(1 / 200, rel=0.05)


def test_the_simplest_part_keeps_what_one_target_would_give_it():
    better = torch.tensor([[-1.0, -2.0, -9.0]]).double()
    for rows, want in ((20, 0.01), (400, 1 / 400), (100_000, 0.0)):
        share = shares.best_shares(better.expand(rows, 3), torch.full((rows,), 2.0).double(), 10_000, simplest=2)
        assert float(share[2]) == pytest.approx(want, rel=0.05)
        assert float(share[1]) == 0


OF_VALUES = ["LinearModel", "GaussianConditional", "ItemMean"]


def offered(model):
    """By term, which simple models were tried."""
    asked = []
    model.fit(RATINGS, **ITEMS, value="real", progress=False, planned=asked.append)
    return [type(recipe).__name__ for recipe in companions._offers(asked[0])]


def test_auto_offers_a_linear_model_a_gaussian_and_logits(monkeypatch):
    assert offered(efa()) == ["AdditiveLogit", "ItemLogit", "EASE", "Popularity", *OF_VALUES]
    assert offered(efa(terms="value")) == OF_VALUES
    monkeypatch.setattr(companions, "CELLS", 4)
    monkeypatch.setattr(companions, "CATEGORIES", 4)
    monkeypatch.setattr(companions, "ITEMS", 4)
    assert offered(efa()) == ["Popularity", "LinearModel", "GaussianConditional", "ItemMean"]


def test_auto_is_only_an_offer():
    model = efa(companions="auto", training=CALM, terms="value").fit(RATINGS, **ITEMS, value="real", validation=None)
    assert model.companions_ == {}
    assert note_of(model) == ""


def test_of_several_columns_only_what_can_predict_them_has_a_share():
    model = efa(companions="auto", training=CALM, terms="value").fit(RATINGS, **ITEMS, value=["real", "size"])
    assert [type(one.recipe) for one in model.companions_["real+size"]] == [simple.LinearModel]
    assert "LinearModel" in note_of(model)
    assert "GaussianConditional" not in note_of(model)


def test_auto_with_an_exposure_has_only_what_can_use_one():
    roles = {**ITEMS, "value": "count", "exposure": "hours"}
    model = efa(companions="auto", training=CALM, terms="value", family="poisson").fit(RATINGS, **roles)
    assert [type(one.recipe).__name__ for one in model.companions_["count"]] == ["LinearModel"]
    assert model.predict(RATINGS)["count_mean"].is_finite().all()


def test_without_held_out_groups_shares_are_equal_and_that_is_said():
    several = [GAUSSIAN, simple.ShrunkMean()]
    model = efa(companions=several, training=CALM, terms="value").fit(RATINGS, **ITEMS, value="real", validation=None)
    assert [one.share for one in model.companions_["real"]] == [1 / 3, 1 / 3]
    assert "share equally" in note_of(model)


MISTAKES = {
    "a word": ("gaussian", {"value": "real"}, "companions is 'auto', None"),
    "a class": (simple.ItemMean, {"value": "real"}, "companions is"),
    "not a model": ([GAUSSIAN, 5], {"value": "real"}, "found 5"),
    "of another term": (simple.Popularity(), {"value": "real"}, "Popularity is a model of items"),
    "exposure": (GAUSSIAN, {"value": "count", "exposure": "hours"}, "takes no exposure"),
    "several columns": (GAUSSIAN, {"value": ["real", "size"]}, "one value column"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_what_cannot_be_says_what_to_do(mistake):
    recipe, roles, words = MISTAKES[mistake]
    family = "poisson" if roles["value"] == "count" else "gaussian"
    with pytest.raises(DataError, match=words.replace(".", r"\.")):
        efa(companions=recipe, terms="value", family=family).fit(RATINGS, **ITEMS, **roles)


def test_a_clone_has_the_same_companions():
    model = efa(companions=[GAUSSIAN, simple.ShrunkMean()])
    assert clone(model).companions == model.companions


@pytest.mark.parametrize("moment", ["scoring", "second fit"])
def test_a_companion_that_fails_where_nobody_foresaw_it_ends_no_fit(monkeypatch, caplog, moment):
    """As a covariance that turns out to be none where a row is new."""
    honest = shares.mixture.log_probs

    def broken(*given):
        raise torch.linalg.LinAlgError("not positive-definite")

    def scored(parts, data, tokens):
        return broken() if type(parts[0].model).__name__ == "PenalisedLinear" else honest(parts, data, tokens)

    if moment == "scoring":
        monkeypatch.setattr(shares.mixture, "log_probs", scored)
    else:
        monkeypatch.setattr(companions, "fitted_again", broken)
    table, asked = ratings(users=40), {"group": "user", "item": "movie", "value": "real"}
    model = efa(companions="auto", training=CALM, terms="value", refit=True).fit(table, **asked, progress=False)
    assert np.isfinite(model.score(table))
    words = "score what is held out" if moment == "scoring" else "fitted to all groups"
    assert any(f"cannot {words}" in text or f"cannot be {words}" in text for text in caplog.messages)
    left = {type(one.recipe).__name__ for one in model.companions_["real"]}
    assert ("LinearModel" in left) == (moment == "second fit")
