"""Recommenders as experiments: leave-last-out, full ranking, one record a run."""

import json

import numpy as np
import polars as pl
import pytest

from efattn import simple
from efattn.estimators import EFA, SimpleModel
from efattn.experiments import measuring, ranking, records, trial
from efattn.experiments.presets import recommending
from efattn.experiments.settings import NDCG, TRAIN, Entry, Setting
from efattn.training import Training

QUICK = Training(epochs=2)


def tiny(seed: int = 0):
    draw = np.random.default_rng(3)
    rows = [(u, k, x) for u in range(30) for k, x in enumerate(draw.permutation(12)[:6])]
    return recommending.last_out(pl.DataFrame(rows, ["user", "position", "item"], orient="row"), "position")


MAKE = {"context": "past", "terms": "item", "training": QUICK, "companions": None, "width": 8, "effort": "quick"}
TINY = Setting(
    "recommending",
    "tiny",
    tiny,
    recommending.BEAUTY,
    NDCG,
    (Entry("EFA", "defaults", lambda seed: EFA(**MAKE, seed=seed), again=False),),
)


def test_the_validation_item_is_history_at_test_time_and_no_target_of_training():
    parts = tiny()
    last = parts.test.filter("target")
    assert len(last) == 30
    before = parts.validation.filter("target")
    assert parts.train.join(before, on=["user", "item"]).is_empty()
    history = parts.test.filter(~pl.col("target"))
    assert len(history.join(before, on=["user", "item"])) == 30
    assert parts.train["target"].all()


def test_every_model_is_fitted_to_training_rows_alone():
    for setting in recommending.SETTINGS:
        assert all(entry.protocols == (TRAIN,) for entry in setting.entries)


def test_a_record_has_the_lists_of_evaluate_and_losses_by_user(tmp_path):
    model = SimpleModel(simple.MarkovChain(last=3), context="past").fit(tiny().train, **recommending.BEAUTY)
    found = measuring.tested(TINY, model, tiny().test)
    told = model.evaluate(tiny().test)
    assert found["value"] == pytest.approx(1 - told.mean("ndcg", 10))
    assert found["lists"]["recall@10"] == pytest.approx([told.mean("recall", 10), told.error("recall", 10)], rel=1e-5)
    assert np.average(found["groups"]["value"], weights=found["groups"]["rows"]) == pytest.approx(found["value"])
    path = tmp_path / "recommending" / "tiny" / "a-peer-0.json"
    records.write(path, found)
    records.pack(tmp_path)
    (back,) = records.read(tmp_path)
    assert back["lists"] == json.loads(json.dumps(found["lists"]))
    assert ranking.LENGTHS == (1, 5, 10, 20)


def test_a_trial_looks_at_validation_rows_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(trial, "SETTINGS", (TINY,))
    words = ["recommending/tiny", "width=8", "companions=null", "effort=quick", "training.epochs=1"]
    path = trial.main([*words, "--device", "cpu", "--groups", "20", "-o", str(tmp_path)])
    record = json.loads(path.read_text())
    assert record["validation"]["lists"]["predicted"] == 20
    assert "test" not in record
    assert record["parameters"]["width"] == 8
