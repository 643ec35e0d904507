"""A simple model as a member of the mixture: its share, its file, and the default that chooses it."""

import numpy as np
import polars as pl
import pytest
import torch
from sklearn.base import clone
from small import efa, ratings

import efattn
from efattn import ModelFileError, Training, baselines, storage
from efattn.estimators import prior as priors
from efattn.models import Model

RATINGS = ratings(users=24)
ITEMS = {"group": "user", "item": "movie"}
CALM = Training(epochs=2, tokens=64, device="cpu", rate=1e-3)

MIXED = {"prior_use": "member", "prior_weight": 0.3, "training": CALM}


@pytest.mark.parametrize(
    ("prior", "roles", "family"),
    [
        ("gaussian", {"value": "real"}, "gaussian"),
        ("gaussian", {"value": "rating"}, "ordinal"),
        ("gaussian", {"value": "count"}, "poisson"),
        ("additive", {}, "auto"),
    ],
)
def test_a_prior_beside_the_network_has_its_share_of_the_mixture(tmp_path, prior, roles, family):
    model = efa(prior=prior, family=family, **MIXED, ensemble=2).fit(RATINGS, **ITEMS, **roles)
    name = "item" if prior == "additive" else roles["value"]
    column = f"{name}_log_likelihood"
    own = [model.log_likelihood(RATINGS, member=k)[column].to_numpy() for k in range(2)]
    alone, networks = model.beside_[name], model.members_
    model.beside_, model.members_ = {}, (Model(dict.fromkeys(networks[0].terms, alone)),)
    beside = model.log_likelihood(RATINGS)[column].to_numpy()
    model.beside_, model.members_ = {name: alone}, networks
    want = np.log(0.35 * np.exp(own[0]) + 0.35 * np.exp(own[1]) + 0.3 * np.exp(beside))
    np.testing.assert_allclose(model.log_likelihood(RATINGS)[column].to_numpy(), want, rtol=1e-5, atol=1e-6)
    assert "30% of the mixture" in model.summary()
    model.save(tmp_path / "m.efattn")
    assert efattn.load(tmp_path / "m.efattn").score(RATINGS) == pytest.approx(model.score(RATINGS), rel=1e-6)
    more = ratings(seed=5, users=12, movies=11)
    assert np.isfinite(model.update(more).score(more))


def test_a_prior_beside_the_network_is_the_peer():
    peer = baselines.GaussianConditional()
    model = efa(prior=peer, **{**MIXED, "prior_weight": 1.0}, terms="value", standardise="global")
    other = clone(peer).fit(RATINGS, **ITEMS, value="real")
    assert model.fit(RATINGS, **ITEMS, value="real").score(RATINGS) == pytest.approx(other.score(RATINGS), rel=1e-5)
    both = efa(prior="gaussian", prior_use=("draws", "member"), training=CALM, terms="value")
    assert "draws and member" in " ".join(both.fit(RATINGS, **ITEMS, value="real").notes_)


@pytest.mark.parametrize("context", ["past", "others"])
def test_a_row_is_predicted_from_its_context_never_from_itself(context):
    model = efa(prior="gaussian", **MIXED, terms="value", context=context)
    model.fit(RATINGS, **ITEMS, value="real", order="at")
    here = pl.int_range(pl.len()) == 5
    plain = model.predict(RATINGS)
    for other in (None, 99.0):
        changed = RATINGS.with_columns(pl.when(here).then(pl.lit(other, pl.Float64)).otherwise("real").alias("real"))
        told = model.predict(changed)
        for column in ("real_mean", "real_sd", "real_lower", "real_upper"):
            assert told[column][5] == pytest.approx(plain[column][5], abs=1e-6)


LIES = {
    "share": lambda about: about["beside"]["real"].update(share=5),
    "share in words": lambda about: about["beside"]["real"].update(share="half"),
    "no peer": lambda about: about["beside"]["real"]["origin"].update(peer="gaussian"),
    "no such term": lambda about: about.update(beside={"x": about["beside"]["real"]}),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_file_that_lies_about_what_stands_beside_is_refused(tmp_path, lie):
    model = efa(prior="gaussian", **MIXED, terms="value").fit(RATINGS, **ITEMS, value="real")
    model.save(tmp_path / "m.efattn")
    about, tensors = storage.read(tmp_path / "m.efattn", "model")
    about = {key: x for key, x in about.items() if key not in ("format", "kind")}
    LIES[lie](about)
    storage.write(tmp_path / "m.efattn", "model", about, {name: x.clone() for name, x in tensors.items()})
    with pytest.raises(ModelFileError, match=r"m\.efattn"):
        efattn.load(tmp_path / "m.efattn")


def note_of(model):
    return next((note for note in model.notes_ if note.startswith("A Gaussian beside the network")), "")


def test_auto_gives_a_simple_model_the_share_that_held_out_groups_like_best():
    parts = RATINGS.filter(pl.col("user") != "u1"), RATINGS.filter(pl.col("user").is_in(["u1", "u2", "u3"]))
    model = efa(prior="auto", training=CALM, terms="value").fit(parts[0], **ITEMS, value="real", validation=parts[1])
    assert "gets" in note_of(model)
    assert note_of(model) in model.summary()
    alone, simple = model.score(parts[1], member=0), model.beside_["real"]
    chosen = simple.share
    scores = {}
    for share in (0.1, 0.3, 0.5, 0.7, 0.9, chosen):
        simple.share = share
        scores[share] = model.score(parts[1])
    assert max(scores, key=scores.get) == chosen
    assert scores[chosen] > alone


def test_auto_leaves_a_network_alone_that_needs_no_help(monkeypatch):
    def same(terms, data, tokens):
        return torch.full((9,), -1.0 if hasattr(terms[0], "stack") else -50.0).double(), torch.ones(9).double()

    monkeypatch.setattr(priors.mixture, "log_probs", same)
    model = efa(prior="auto", training=CALM, terms="value").fit(RATINGS, **ITEMS, value="real")
    assert "does not help" in note_of(model)
    assert model.beside_ == {}


ALONE = {
    "several columns": {"value": ["real", "size"]},
    "a family without": {"value": "size", "family": "gamma"},
    "nothing held out": {"value": "real", "validation": None},
    "items only": {"terms": "item"},
    "exposure": {"value": "count", "family": "poisson", "exposure": "hours"},
}


@pytest.mark.parametrize("case", ALONE)
def test_auto_is_only_an_offer(case):
    roles = {**ITEMS, **ALONE[case]}
    options = {name: roles.pop(name) for name in ("family", "terms") if name in roles}
    model = efa(**{"prior": "auto", "training": CALM, "terms": "value", **options}).fit(RATINGS, **roles)
    assert model.beside_ == {}
    assert note_of(model) == ""


def test_auto_stays_away_from_what_takes_long(monkeypatch):
    monkeypatch.setattr(priors, "CELLS", 4)
    assert efa(prior="auto", training=CALM, terms="value").fit(RATINGS, **ITEMS, value="real").beside_ == {}
