"""Where a fitted network answers: the same rule as for training, and always through the weights of now."""

import torch
from small import efa, ratings

from efattn import Training
from efattn.inference import devices

ROLES = {"group": "user", "item": "movie", "value": "real"}


def test_a_network_answers_where_it_would_be_trained():
    assert devices.resolved("auto", {"training": Training(device="cpu")}) == torch.device("cpu")
    assert devices.resolved("cpu", {}) == torch.device("cpu")
    there = "cuda" if torch.cuda.is_available() else "cpu"
    assert devices.resolved("auto", {"training": None}) == torch.device(there)


def test_a_device_that_is_not_here_is_no_reason_not_to_answer():
    assert devices.resolved("auto", {"training": Training(device="xpu:3")}) == torch.device("cpu")


def test_a_copy_on_a_device_is_made_once_and_again_when_weights_change():
    model = efa(terms="value").fit(ratings(), **ROLES).model_["real"]
    assert devices.on(model, "cpu") is model
    there = devices.on(model, "meta")
    assert all(p.device.type == "meta" for p in there.parameters())
    assert all(p.device.type == "cpu" for p in model.parameters())
    assert not there.training
    assert devices.on(model, "meta") is there
    with torch.no_grad():
        next(model.parameters()).add_(1.0)
    assert devices.on(model, "meta") is not there


def test_all_that_is_fitted_can_be_told_where_to_answer():
    fitted = efa(terms="value").fit(ratings(), **ROLES).fitted_
    assert fitted.where == torch.device("cpu")
    there = fitted.to("meta")
    assert [part.device for part in there.parts("real")] == [there.where]
    assert fitted.parts("real")[0].device == torch.device("cpu")
