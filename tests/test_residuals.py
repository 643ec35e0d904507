"""Laws of simple models, moved and spread as groups left out ask for."""

from copy import copy
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
import torch
from small import QUICK

from efattn import EFA, DataError, Training, families, load, simple
from efattn.data import Batch
from efattn.estimators import file_checks, residuals
from efattn.inference.moved import Moved, Once, may_spread, may_step

ROLES = {"group": "person", "value": "seconds", "attributes": ["length"]}


def read(people=60, words=12, seed=0):
    """Times that are skewed on their own scale, and far out now and then: no normal law."""
    rng = np.random.default_rng(seed)
    person, length = np.repeat(np.arange(people), words), rng.normal(size=people * words)
    rest = rng.gamma(1.5, 1.0, len(person)) * np.where(rng.random(len(person)) < 0.1, 3.0, 1.0)
    return pl.DataFrame({"person": person, "length": length, "seconds": 5 + length + rest})


def efa(**more):
    how = {"family": "gaussian", "width": 8, "training": QUICK, "companions": simple.LinearModel(), **more}
    return EFA(**how)


@pytest.fixture(scope="module")
def fitted():
    return efa().fit(read(), **ROLES, progress=False)


def laws(model):
    (companion,) = model.fitted_.companions["seconds"]
    return companion.moves


def test_held_out_groups_ask_for_another_law(fitted, monkeypatch):
    moves = laws(fitted)
    assert len(moves) > 1
    assert sum(part for *_, part in moves) == pytest.approx(1)
    assert "narrower, wider or moved" in fitted.summary()
    new = read(seed=1)
    monkeypatch.setattr(residuals, "LEAST", 10**9)
    plain = efa().fit(read(), **ROLES, progress=False)
    assert laws(plain) == ()
    assert fitted.score(new) > plain.score(new) + 0.05


def bounded(people=60, words=12, seed=0):
    """What only a network sees, and residuals as flat as those of a score between bounds."""
    rng = np.random.default_rng(seed)
    person, length = np.repeat(np.arange(people), words), rng.uniform(-2, 2, people * words)
    rest = rng.uniform(-1, 1, len(person))
    return pl.DataFrame({"person": person, "length": length, "seconds": np.sin(3 * length) * 2 + rest})


@pytest.fixture(scope="module")
def of_network():
    training = Training(epochs=150, rate=0.01, patience=None, device="cpu")
    how = {"width": 16, "training": training, "companions": simple.ItemMean(), "dropout": 0.0}
    return efa(**how).fit(bounded(people=100), **ROLES, progress=False, validation=0.3)


def test_the_law_of_networks_is_moved_too(of_network):
    fitted = of_network.fitted_
    assert "seconds" in fitted.moves
    assert any(step for step, *_ in fitted.moves["seconds"]), "flat, as two normal laws side by side are"
    parts = fitted.parts("seconds")
    assert sum(part.share for part in parts) == pytest.approx(1)
    assert len(parts) > 2
    assert "the network" in of_network.summary().split("moved, as held-out groups ask for, too:")[1].split(".")[0]
    new, plain = bounded(seed=1), copy(of_network)
    plain.fitted_ = replace(fitted, moves={})
    assert of_network.score(new) > plain.score(new) + 0.02
    alone = fitted.networks_alone()
    assert len(alone.parts("seconds")) == len(alone.members)


def test_a_saved_network_is_moved_as_before(of_network, tmp_path):
    new = bounded(seed=2)
    of_network.save(tmp_path / "m.efattn")
    again = load(tmp_path / "m.efattn")
    assert again.fitted_.moves == of_network.fitted_.moves
    assert again.predict(new).equals(of_network.predict(new))
    assert again.explain(new.head(5), row=2).equals(of_network.explain(new.head(5), row=2))
    of_network.update(bounded(people=5, seed=9).with_columns(person=pl.col("person") + 1000), progress=False)
    assert of_network.fitted_.moves == again.fitted_.moves


def test_what_a_moved_network_looks_at_is_what_the_network_does(of_network):
    rows = bounded(people=1).head(4)
    plain = copy(of_network)
    plain.fitted_ = replace(of_network.fitted_, moves={})
    seen = [one.explain(rows, row=1)["attention"].to_numpy() for one in (of_network, plain)]
    np.testing.assert_allclose(*seen, rtol=1e-6)


@pytest.mark.parametrize(
    "told",
    [[], {"other": []}, {"seconds": [[0.0, 1.0]]}, {"seconds": [[0.0, 0.0, 0.6]]}, {"item": [[0.0, 0.0, 1.0]]}],
)
def test_a_file_with_a_law_of_networks_that_cannot_be_is_refused(of_network, told):
    with pytest.raises(DataError):
        file_checks.moves_of_networks(told, of_network.members_[0])


def test_where_the_law_is_right_nothing_is_gained():
    rng = np.random.default_rng(3)
    table = read().with_columns(seconds=pl.col("length") + pl.Series(rng.normal(size=720)))
    model = efa().fit(table, **ROLES, progress=False)
    others = [part for step, narrower, part in laws(model) if (step, narrower) != residuals.STAY]
    assert sum(others) < 0.3


def test_every_answer_is_of_one_law(fitted):
    new = read(people=10, seed=2)
    law = fitted.predict_distribution(new)["seconds"]
    frame = fitted.predict(new, interval=0.8, quantiles=[0.5])
    np.testing.assert_allclose(frame["seconds_mean"], law.mean, rtol=1e-9)
    np.testing.assert_allclose(law.cdf(frame["seconds_q50"].to_numpy()), 0.5, atol=1e-6)
    np.testing.assert_allclose(law.cdf(frame["seconds_lower"].to_numpy()), 0.1, atol=1e-6)
    scores = fitted.log_likelihood(new)["seconds_log_likelihood"].to_numpy()
    np.testing.assert_allclose(np.log(law.pdf(new["seconds"].to_numpy())), scores, rtol=1e-6, atol=1e-8)
    grid = np.linspace(-40, 80, 40_001)
    np.testing.assert_allclose(np.trapezoid(law.pdf(np.tile(grid, (len(new), 1))), grid), 1, atol=1e-3)


def test_a_saved_one_says_the_same(fitted, tmp_path):
    fitted.save(tmp_path / "m.efattn")
    again = load(tmp_path / "m.efattn")
    assert laws(again) == laws(fitted)
    assert again.predict(read(seed=2)).equals(fitted.predict(read(seed=2)))


@pytest.mark.parametrize(
    "moves", [[[0.0, 1.0]], [[0.0, 1.0, "x"]], [[0.0, 0.0, 0.6]], [[0.0, 0.0, 1.5], [0.0, 1.0, -0.5]]]
)
def test_a_file_with_a_law_that_cannot_be_is_refused(moves):
    with pytest.raises((DataError, TypeError)):
        file_checks.moves(moves)


def test_a_move_is_in_units_of_the_law():
    model = simple.LinearModel().build(_setting(families.Gaussian()))
    batch = Batch.of([{"value": [1.0, 2.0, float("nan")]}])
    once = Once(model)
    f, moved = model.outputs(batch), Moved(once, (2.0, 1.0)).outputs(batch)
    torch.testing.assert_close(moved[..., 0], f[..., 0] + 2 * (-f[..., 1] / 2).exp())
    torch.testing.assert_close(moved[..., 1], f[..., 1] + 1)


def test_what_was_said_of_a_batch_is_said_once_and_never_of_another():
    asked = []
    model = simple.ItemMean().build(_setting(families.Gaussian()))
    plain = model.raw_outputs
    object.__setattr__(model, "raw_outputs", lambda *given: asked.append(1) or plain(*given))
    once, batch = Once(model), Batch.of([{"value": [1.0, 2.0]}])
    first, second = Moved(once, (0.0, 0.0)), Moved(once, (0.0, 1.0))
    first.outputs(batch)
    second.outputs(batch)
    assert len(asked) == 1
    batch.value.mul_(2)  # the same tensors, other numbers
    first.outputs(batch)
    first.outputs(Batch.of([{"value": [1.0, 2.0]}]))
    assert len(asked) == 3


@pytest.mark.parametrize(
    ("family", "spread", "step"),
    [
        (families.Gaussian(), True, True),
        (families.LogNormal(), True, True),
        (families.StudentT(), True, True),
        (families.Gamma(), True, False),
        (families.NegativeBinomial(), True, False),
        (families.Weibull(), True, False),
        (families.Poisson(), False, False),
        (families.Bernoulli(), False, False),
        (families.Ordinal(levels=5), False, False),
        (families.Gaussian(variance=1.0), False, False),
        (families.Product((families.Gaussian(), families.Gaussian())), False, False),
    ],
)
def test_laws_with_a_dispersion_may_be_spread(family, spread, step):
    assert (may_spread(family), may_step(family)) == (spread, step)


def test_few_groups_keep_the_plain_law():
    model = efa().fit(read(people=residuals.LEAST - 2), **ROLES, progress=False)
    assert laws(model) == ()


def _setting(family):
    from efattn.simple import Setting

    return Setting(family, 0)


def test_shares_of_parts_and_laws_are_the_whole(fitted):
    parts = fitted.fitted_.parts_of("value", "be asked")
    assert sum(part.share for part in parts) == pytest.approx(1)
