"""Measurement errors of known size: sd^2 + the model's variance, of a new measurement; of the quantity, at noise 0."""

import numpy as np
import polars as pl
import pytest
import torch
from small import efa

from efattn import DataError, SimpleModel, Training, families, load, simple
from efattn.data import Batch
from efattn.network import Noises

ROLES = {"group": "place", "value": "y", "noise": "error"}
WITHOUT = {"group": "place", "value": "y"}


def measured(places=40, rows=6, seed=0):
    """Places have levels of their own (sd 1) and rows vary around them (sd .5), measured with errors from 0 to 3."""
    draw = np.random.default_rng(seed)
    truth = np.repeat(draw.normal(0, 1, places), rows) + 0.5 * draw.normal(size=places * rows)
    error = draw.choice([0.0, 0.3, 3.0], places * rows)
    y = 10 + truth + error * draw.normal(size=len(truth))
    return pl.DataFrame({"place": np.repeat(np.arange(places), rows), "error": error, "y": y, "truth": truth + 10})


@pytest.mark.parametrize("family", [families.Gaussian(), families.Gaussian(variance="predicted")])
def test_noise_adds_its_variance_and_none_changes_nothing(family):
    f = torch.tensor([[0.3, 0.4], [-1.0, -2.0]], dtype=torch.float64)
    s = torch.tensor([0.7, 2.0], dtype=torch.float64)
    noisy = family.with_noise(f, s**2)
    assert torch.allclose(family.variance(noisy), family.variance(f) + s**2, rtol=1e-12)
    assert torch.equal(family.mean(noisy), family.mean(f))
    assert torch.allclose(family.with_noise(f, 0 * s), f, atol=1e-12)
    y = torch.linspace(-40, 40, 20_001, dtype=torch.float64)
    density = family.log_prob(noisy[1].expand(len(y), 2), y).exp()
    assert torch.trapezoid(density, y) == pytest.approx(1, abs=1e-9)
    cdf = family.cdf(noisy, torch.tensor([1.0, -3.0], dtype=torch.float64))
    wanted = torch.distributions.Normal(f[:, 0], (family.variance(f) + s**2).sqrt())
    assert torch.allclose(cdf, wanted.cdf(torch.tensor([1.0, -3.0], dtype=torch.float64)), atol=1e-9)


def test_gradients_pass_through_noise():
    family, s = families.Gaussian(), torch.tensor([0.5, 0.0], dtype=torch.float64)
    f = torch.tensor([[0.3, 0.4], [-1.0, -2.0]], dtype=torch.float64, requires_grad=True)
    y = torch.tensor([1.0, -2.0], dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda f: family.log_prob(family.with_noise(f, s**2), y), (f,))


def test_what_is_seen_of_a_value_is_drawn_to_the_mean_as_far_as_noise_explains_it():
    noises, y = Noises(), torch.tensor([[1.0], [3.0], [2.0]])
    noises.fit(y, torch.ones(3, 1, dtype=torch.bool), torch.zeros(3))
    seen, known = noises(y, torch.tensor([0.0, 1e3, 0.0]))
    assert torch.allclose(seen, torch.tensor([[1.0], [2.0], [2.0]]), atol=1e-3)
    assert known[0] == known[2] == 0 < known[1]


def test_a_batch_pads_noise_with_none():
    batch = Batch.of([{"value": [1.0, 2.0], "noise": [0.5, 1.0]}, {"value": [3.0], "noise": [2.0]}])
    assert batch.noise.tolist() == [[0.5, 1.0], [2.0, 0.0]]


@pytest.fixture(scope="module")
def fitted():
    training = Training(epochs=40, tokens=256, rate=0.02, device="cpu")
    return efa(training=training, dropout=0.0).fit(measured(), **ROLES)


def quantity(table):
    """The same rows, asked for what is measured: as if each had no error, but for those around it."""
    return table.with_columns(error=pl.lit(0.0))


def test_a_prediction_is_of_a_measurement_and_at_noise_zero_of_the_quantity(fitted):
    table = measured(8, seed=2)
    one = pl.int_range(pl.len()).over("place") == 0
    of_one = table.with_columns(error=pl.when(one).then(0.0).otherwise(pl.col("error")))
    new, latent = (fitted.predict(t)["y_sd"].to_numpy()[::6] for t in (table, of_one))
    error = table["error"].to_numpy()[::6]
    same = error == 0
    assert np.allclose(new[same], latent[same], rtol=1e-5)
    assert (new[~same] > np.maximum(error, latent)[~same]).all()


@pytest.mark.parametrize("kind", ["network", "linear"])
def test_a_fit_recovers_what_is_measured(kind, fitted):
    table, new = measured(), measured(seed=1)
    plain = efa(training=fitted.training, dropout=0.0) if kind == "network" else SimpleModel(simple.LinearModel())
    model = fitted if kind == "network" else SimpleModel(simple.LinearModel()).fit(table, **ROLES)
    assert model.score(new) > plain.fit(table, **WITHOUT).score(new) + 0.2
    told = model.predict(new)["y_mean"].to_numpy() - new["truth"].to_numpy()
    assert np.sqrt(np.mean(told**2)) < 0.95  # of 1.12 without any context
    exact = new["error"].to_numpy() == 0
    assert np.median(model.predict(new)["y_sd"].to_numpy()[exact]) < 1.2


@pytest.mark.parametrize("context", ["others", "past"])
def test_a_target_never_sees_its_value_and_others_see_its_noise(context):
    table = measured(8)
    order = {"order": "row"} if context == "past" else {}
    model = efa(context=context).fit(table, **ROLES, **order)
    first = pl.int_range(pl.len()).over("place") == 0
    mine = model.predict(table)["y_mean"].to_numpy()
    moved = model.predict(table.with_columns(y=pl.when(first).then(pl.col("y") + 9).otherwise(pl.col("y"))))
    assert np.allclose(moved["y_mean"].to_numpy()[::6], mine[::6], rtol=1e-5)
    surer = model.predict(table.with_columns(error=pl.when(first).then(9.0).otherwise(pl.col("error"))))
    assert not np.allclose(surer["y_mean"].to_numpy()[1::6], mine[1::6], rtol=1e-5)


def test_units_by_item_and_files(tmp_path):
    table = measured(20).with_columns(kind=pl.int_range(pl.len()) % 2)
    big = pl.when(pl.col("kind") == 1).then(1000.0).otherwise(1.0)
    table = table.with_columns(y=pl.col("y") * big, error=pl.col("error") * big)
    model = efa().fit(table, **ROLES, item="kind")
    model.save(tmp_path / "m.efattn")
    again = load(tmp_path / "m.efattn")
    assert again.score(table) == model.score(table)
    far = table.with_columns(error=pl.lit(1e5))
    assert np.allclose(model.predict(far)["y_sd"].to_numpy(), 1e5, rtol=0.1)


def test_what_cannot_be_is_refused():
    table = measured(8)
    with pytest.raises(DataError, match="gaussian"):
        efa(family="student_t").fit(table, **ROLES)
    with pytest.raises(DataError, match="takes no noise"):
        SimpleModel(simple.GaussianConditional()).fit(table.with_columns(i=pl.int_range(48) % 6), **ROLES, item="i")
    with pytest.raises(DataError, match=">= 0"):
        efa().fit(table.with_columns(error=pl.lit(-1.0)), **ROLES)
    with pytest.raises(DataError, match="error"):
        efa().fit(table, **ROLES).predict(table.drop("error"))
