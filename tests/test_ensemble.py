"""An ensemble is the mixture of its members, and each member is the model that its seed alone would give."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from scipy.special import logsumexp
from sklearn.base import clone
from small import QUICK, efa, latent, ratings
from small_training import same, without_seconds
from test_model_files import CASES, answers

import efattn
from efattn import DataError, ModelFileError, families, storage
from efattn.estimators.blueprint import Blueprint
from efattn.estimators.verdict import verdict
from efattn.inference import mixture

TABLE, HELD = ratings(), ratings(seed=1)
BOTH = {"group": "user", "item": "movie", "value": "real"}
K = 3
FAST = replace(QUICK, rate=0.05)


@pytest.fixture(scope="module")
def model():
    return efa(ensemble=K, seed=4, training=FAST).fit(TABLE, **BOTH, validation=HELD)


def weights(fitted):
    return [dict(member.state_dict()) for member in fitted.members_]


def all_same(one, two):
    return len(one) == len(two) and all(same(a, b) for a, b in zip(one, two, strict=True))


def stacked(model, verb, name, *arguments):
    return np.stack([getattr(model, verb)(*arguments, member=k)[name].to_numpy() for k in range(K)])


# ---- members


def test_member_k_is_the_model_that_its_seed_alone_gives(model):
    for k in range(K):
        alone = efa(seed=4 + k, training=FAST).fit(TABLE, **BOTH, validation=HELD)
        assert same(dict(alone.model_.state_dict()), weights(model)[k])
        assert alone.score(HELD) == model.score(HELD, member=k)
        assert alone.predict(HELD).equals(model.predict(HELD, member=k))
        mine = [{n: x for n, x in r.items() if n != "member"} for r in model.history_ if r["member"] == k]
        assert without_seconds(mine) == without_seconds(alone.history_)


def test_members_share_the_split_and_the_units():
    one, many = (efa(ensemble=n, training=FAST).fit(TABLE, **BOTH) for n in (1, 2))
    assert same(weights(one)[0], weights(many)[0])
    assert not same(*weights(many))
    assert many.schema_.standardiser.centre == pytest.approx(one.schema_.standardiser.centre, abs=0)


@pytest.mark.parametrize("name", ["both, past", "lags", "a mapping", "family ordinal", "family poisson", "items"])
def test_an_ensemble_of_one_is_the_plain_model(name, tmp_path):
    plain, table, roles = CASES[name]
    one = clone(plain).set_params(ensemble=1).fit(table, **roles)
    assert answers(one, table)["score"] == answers(clone(plain).fit(table, **roles), table)["score"]
    assert one.members_ == (one.model_,)
    assert all("member" not in record for record in one.history_)
    one.save(tmp_path / "x")
    about, tensors = storage.read(tmp_path / "x", "model")
    assert about["members"] == 1
    assert not any(tensor.startswith("member.") for tensor in tensors)


# ---- the mixture


def test_the_likelihood_is_the_log_mean_exp_of_the_members(model):
    total = 0.0
    for term in ("item", "real"):
        own = stacked(model, "log_likelihood", f"{term}_log_likelihood", HELD)
        mixed = model.log_likelihood(HELD)[f"{term}_log_likelihood"].to_numpy()
        np.testing.assert_allclose(mixed, logsumexp(own, axis=0) - np.log(K), rtol=1e-12)
        assert mixed.mean() > own.mean()
        assert model.scores(HELD)["terms"][term] == pytest.approx(mixed.mean())
        total += mixed.mean()
    assert model.score(HELD) == pytest.approx(total)


def test_mean_and_variance_are_those_of_a_mixture(model):
    mean, sd = (stacked(model, "predict", f"real_{what}", HELD) for what in ("mean", "sd"))
    found = model.predict(HELD)
    np.testing.assert_allclose(found["real_mean"], mean.mean(0), rtol=1e-12)
    np.testing.assert_allclose(found["real_sd"], np.sqrt((sd**2).mean(0) + mean.var(0)), rtol=1e-12)


SCALARS = {
    "gaussian": (families.Gaussian("predicted"), 1.0),
    "gamma": (families.Gamma(), 1.0),
    "beta": (families.Beta(), 1.0),
    "exponential": (families.Exponential(), 1.0),
    "several together": (families.MultivariateGaussian(2), 0.5),
    "poisson": (families.Poisson(shift=1), 1.5),
    "negative binomial": (families.NegativeBinomial(), 1.5),
    "binomial": (families.Binomial(9), 1.0),
    "bernoulli": (families.Bernoulli(), 2.0),
    "ordinal": (families.Ordinal(5, low=1), 1.0),
}


def outputs(family, spread, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [spread * torch.randn(200, family.size, generator=generator, dtype=torch.float64) for _ in range(K)]


def even(members):
    return [1 / len(members)] * len(members)


@pytest.mark.parametrize("name", SCALARS)
@pytest.mark.parametrize("p", [0.05, 0.5, 0.95])
def test_a_quantile_inverts_the_averaged_cdf(name, p):
    part, spread = SCALARS[name]
    family = families.Product((part, families.Gaussian()))
    members = outputs(family, spread)
    found = mixture.quantile(family, members, even(members), p)
    own = torch.stack([family.quantile(f, p) for f in members])
    assert bool(((own.amin(0) <= found) & (found <= own.amax(0))).all())
    step = torch.where(torch.tensor([part.discrete] * part.columns + [False]), 1.0, 1e-9 * found.abs())
    whole = step == 1
    assert bool((found == found.floor())[whole].all())
    assert bool((mixture.cdf(family, members, even(members), torch.where(whole, found, found + step)) >= p).all())
    assert bool((mixture.cdf(family, members, even(members), found - step) < p).all())
    np.testing.assert_allclose(mixture.cdf(family, members, even(members), found)[:, -1], p, rtol=1e-9)


def test_huge_counts_have_exact_quantiles_too():
    family = families.Product((families.Poisson(),))
    members = [torch.tensor([[21.0]], dtype=torch.float64), torch.tensor([[22.0]], dtype=torch.float64)]
    found = mixture.quantile(family, members, even(members), 0.6)
    assert (
        float(mixture.cdf(family, members, even(members), found))
        >= 0.6
        > float(mixture.cdf(family, members, even(members), found - 1))
    )


@pytest.mark.parametrize("name", SCALARS)
def test_a_mixture_of_equal_members_is_the_member(name):
    family = families.Product((SCALARS[name][0],))
    f = outputs(family, SCALARS[name][1])[0]
    np.testing.assert_allclose(mixture.mean(family, [f, f], even([f, f])), family.mean(f), rtol=1e-12)
    np.testing.assert_allclose(mixture.variance(family, [f, f], even([f, f])), family.variance(f), rtol=1e-12)
    np.testing.assert_allclose(mixture.quantile(family, [f, f], even([f, f]), 0.3), family.quantile(f, 0.3), rtol=1e-12)


def test_an_interval_lies_between_the_members_and_holds_its_share(model):
    found = model.predict(HELD, interval=0.8)
    for end in ("lower", "upper"):
        own = stacked(model, "predict", f"real_{end}", HELD, 0.8)
        assert (found[f"real_{end}"].to_numpy() >= own.min(0) - 1e-12).all()
        assert (found[f"real_{end}"].to_numpy() <= own.max(0) + 1e-12).all()


def test_probabilities_of_levels_are_averaged():
    found = efa(ensemble=K, family="ordinal", terms="value").fit(TABLE, group="user", item="movie", value="rating")
    mixed, levels = found.predict(TABLE), range(1, 6)
    p = np.stack([mixed[f"rating_p_{level}"] for level in levels])
    for level, mine in zip(levels, p, strict=True):
        np.testing.assert_allclose(mine, stacked(found, "predict", f"rating_p_{level}", TABLE).mean(0), rtol=1e-12)
    np.testing.assert_array_equal(mixed["rating_mode"], 1 + p.argmax(0))


@pytest.mark.parametrize("histories", [TABLE, None], ids=["histories", "an empty one"])
def test_probabilities_of_items_are_averaged(model, histories):
    keys = ["movie"] if histories is None else ["user", "movie"]
    members = pl.concat([model.recommend(histories, k=8, member=k) for k in range(K)])
    mean = members.group_by(keys).agg(pl.col("probability").sum() / K)
    mixed = model.recommend(histories, k=8)
    both = mixed.join(mean, on=keys, validate="1:1", maintain_order="left")
    assert len(both) == len(mean)
    np.testing.assert_allclose(both["probability"], both["probability_right"], rtol=1e-12)
    assert ((mixed["probability"].diff() <= 0) | (mixed["rank"] == 1)).all()


def test_the_most_probable_item_is_that_of_the_averaged_probabilities():
    found = efa(ensemble=2, support="all", training=FAST).fit(TABLE, group="user", item="movie")
    mixed = found.predict(TABLE)["movie_probability"].to_numpy()
    own = np.stack([found.predict(TABLE, member=k)["movie_probability"].to_numpy() for k in range(2)])
    assert (mixed <= own.mean(0) + 1e-12).all()


def test_vectors_and_attention_are_of_one_member(model):
    one = TABLE.filter(user="u0")
    assert model.embeddings().equals(model.embeddings(member=0))
    assert not model.embeddings().equals(model.embeddings(member=1))
    assert not model.similar("m1", member=0).equals(model.similar("m1", member=1))
    assert not np.array_equal(model.attention(one).weights, model.attention(one, member=1).weights)


def test_the_verdict_is_about_the_mixture():
    told: list[Blueprint] = []
    found = efa(ensemble=2, training=FAST, terms="value").fit(TABLE, **BOTH, validation=HELD, planned=told.append)
    assert verdict(found, told[0])["real"]["model"] == pytest.approx(found.score(HELD), rel=1e-5)


# ---- files, words, errors

PROGRAM = """
import json, sys
import torch
torch.set_num_threads(1)
sys.path.insert(0, sys.argv[1])
import polars as pl
from test_model_files import answers
import efattn
model = efattn.load("x.efattn")
found = [answers(model, pl.read_parquet("x.parquet")), model.score(pl.read_parquet("x.parquet"), member=2)]
print(json.dumps(found))
"""


def test_a_loaded_ensemble_says_the_same_in_another_process(model, tmp_path):
    model.save(tmp_path / "x.efattn")
    HELD.write_parquet(tmp_path / "x.parquet")
    command = [sys.executable, "-W", "error", "-c", PROGRAM, str(Path(__file__).parent)]
    done = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True, env={**os.environ})
    told = [answers(model, HELD), model.score(HELD, member=2)]
    assert json.loads(done.stdout) == json.loads(json.dumps(told))
    assert efattn.load(tmp_path / "x.efattn").get_params() == model.get_params()


LIES = {
    "ensemble": lambda about, tensors: about["parameters"].update(ensemble=10**9),
    "more members": lambda about, tensors: about.update(members=10**9),
    "fewer members": lambda about, tensors: about.update(members=2),
    "one member": lambda about, tensors: about.pop("members"),
    "members, no number": lambda about, tensors: about.update(members="all"),
    "members, a flag": lambda about, tensors: about.update(members=True),
    "other numbers": lambda about, tensors: tensors.update(
        {name.replace("member.2.", "member.9."): tensors.pop(name) for name in list(tensors) if "member.2." in name}
    ),
    "half a member": lambda about, tensors: tensors.pop(next(name for name in tensors if name.startswith("member.2."))),
    "another tensor": lambda about, tensors: tensors.update({"member.1.extra": torch.zeros(2)}),
    "a tensor of no member": lambda about, tensors: tensors.update({"member.": torch.zeros(2)}),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_file_that_lies_about_its_members_is_refused(model, lie, tmp_path):
    model.save(tmp_path / "x.efattn")
    about, tensors = storage.read(tmp_path / "x.efattn", "model")
    LIES[lie](about, tensors)
    kept = {key: x for key, x in about.items() if key not in ("format", "kind")}
    storage.write(tmp_path / "x.efattn", "model", kept, tensors)
    with pytest.raises(ModelFileError, match=r"x\.efattn"):
        efattn.load(tmp_path / "x.efattn")


def test_the_summary_counts_the_members(model):
    assert f"{K} members" in model.summary()
    assert model.summary().count("Member 2: ") == 2
    assert "member" not in efa().fit(TABLE, **BOTH).summary()


def test_a_clone_has_as_many_members(model):
    again = clone(model).fit(TABLE, **BOTH, validation=HELD)
    assert all_same(weights(again), weights(model))


@pytest.mark.parametrize("member", [K, -1, 1.5, "0", True])
def test_a_member_that_is_not_there_is_refused(model, member):
    for verb in ("score", "scores", "log_likelihood", "predict", "recommend", "attention"):
        with pytest.raises(DataError, match=r"member is the number of one, 0 to 2; found"):
            getattr(model, verb)(TABLE, member=member)
    for verb, argument in (("similar", "m1"), ("embeddings", "item")):
        with pytest.raises(DataError, match="member is the number of one"):
            getattr(model, verb)(argument, member=member)


def test_other_models_have_one_member():
    found = latent().fit(TABLE, **BOTH)
    assert found.score(TABLE, member=0) == found.score(TABLE)
    with pytest.raises(DataError, match="0 alone: this is no ensemble"):
        found.score(TABLE, member=1)


@pytest.mark.parametrize("number", [0, -1, 2.0, "5", True, None, 10**9])
def test_an_ensemble_is_a_whole_number_of_members(number):
    with pytest.raises(DataError, match="ensemble must be a whole number from 1 to 1000"):
        efa(ensemble=number).fit(TABLE, **BOTH)
