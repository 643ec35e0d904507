"""What a fit is measured by: its networks alone, shares of the mixture, cover of intervals, and what it was given."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from test_experiments import QUICK, ROLES, TINY, tiny_split

import efattn
from efattn import EFA, SimpleModel, simple
from efattn.estimators import LatentFactor
from efattn.experiments import measuring, runner
from efattn.experiments.settings import MSE, PROTOCOLS, REFITTED, TRAIN, Entry, Setting


def efa(**options):
    known = {"family": "gaussian", "context": "others", "terms": "value", "training": QUICK}
    return EFA(**known, companions=simple.RidgePerItem(), refit=False, **options)


def test_networks_alone_are_those_of_the_only_member():
    rows = tiny_split(0)
    model = efa().fit(rows.train, **ROLES, validation=rows.validation)
    found = measuring.parts(TINY, model, rows.test)
    assert sum(found["shares"].values()) == pytest.approx(1)
    assert set(found["shares"]) <= {"network", "RidgePerItem"}
    mean = model.predict(rows.test, interval=None, member=0)["rating_mean"].to_numpy()
    assert found["alone"]["value"] == pytest.approx(np.mean((mean - rows.test["rating"].to_numpy()) ** 2), rel=1e-5)
    assert found["alone"]["log_likelihood"] == pytest.approx(model.score(rows.test, member=0), rel=1e-5)
    mixed = measuring.overall(TINY, model, rows.test)["log_likelihood"]
    assert mixed == pytest.approx(model.score(rows.test), rel=1e-5), "the fit itself is as it was"
    peer = SimpleModel(simple.ItemMean(), family="gaussian").fit(rows.train, **ROLES, validation=rows.validation)
    assert measuring.parts(TINY, peer, rows.test) == {}


def test_shares_are_those_of_new_items_where_all_that_counts_is_new():
    rows = tiny_split(0)
    model = efa().fit(rows.train, **ROLES, validation=rows.validation)
    (one,) = model.companions_["rating"]
    model.fitted_ = replace(model.fitted_, companions={"rating": (one._replace(share=0.25, new=1.0),)})
    test = rows.test.with_columns(scored=pl.col("movie") == "a")
    setting = replace(TINY, scored="scored")
    assert measuring.parts(setting, model, test)["shares"] == {"network": 0.75, "RidgePerItem": 0.25}
    strange = test.with_columns(movie=pl.when("scored").then(pl.lit("z")).otherwise("movie"))
    with pytest.warns(efattn.EfattnWarning, match="Unknown items"):
        found = measuring.parts(setting, model, strange)
    assert found["shares"] == {"network": 0.0, "RidgePerItem": 1.0}


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("kind", ["peer", "latent factors", "EFA"])
def test_a_protocol_says_which_rows_a_fit_is_given(kind, protocol, monkeypatch):
    given = {}
    make = {
        "peer": lambda seed: SimpleModel(simple.ItemMean(), family="gaussian"),
        "latent factors": lambda seed: LatentFactor(family="gaussian", terms="value", training=QUICK),
        "EFA": lambda seed: efa(),
    }[kind]
    entry, rows = Entry(kind, "peer" if kind == "peer" else "defaults", make), tiny_split(0)
    estimator = make(0)
    for known in (EFA, LatentFactor, SimpleModel):
        monkeypatch.setattr(known, "fit", lambda self, table, **more: given.update(rows=table, **more))
    runner.fitted(estimator, entry, TINY, rows, protocol)
    if protocol == TRAIN:
        assert given["rows"].equals(rows.train)
        assert given["validation"].equals(rows.validation)
    else:
        assert given["rows"].equals(pl.concat([rows.train, rows.validation]))
        assert given["validation"] == (None if kind == "peer" else "auto")
        assert kind != "latent factors" or estimator.refit == "auto"


def test_a_refitted_peer_is_the_fit_to_both_parts(tmp_path):
    rows = tiny_split(0)
    made = SimpleModel(simple.GaussianConditional(), family="gaussian")
    entry = Entry("Gaussian", "peer", lambda seed: made, fixed=True)
    runner.fitted(made, entry, TINY, rows, REFITTED)
    again = SimpleModel(simple.GaussianConditional(), family="gaussian").fit(rows.whole, **ROLES, validation=None)
    assert made.score(rows.test) == again.score(rows.test)


def test_cover_is_that_of_a_hand_computation():
    inside = np.array([1, 1, 1, 0] * 10 + [1, 0] * 20 + [1] * 3, bool)
    item = np.array([0] * 40 + [1] * 40 + [2] * 3)
    found = measuring._by_item(inside, item)
    np.testing.assert_allclose(found["items"], np.quantile([0.75, 0.5], (0.1, 0.9)))  # of 3 rows there is no cover
    assert found["by_chance"][0] < inside.mean() < found["by_chance"][1]


def test_items_are_told_apart_by_all_their_columns_and_some_rows_are_not_counted():
    draw = np.random.default_rng(0)
    frame = pl.DataFrame({"g": np.repeat(np.arange(60), 4), "a": list("xxyy") * 60, "b": list("uvuv") * 60})
    frame = frame.with_columns(y=draw.normal(size=240), scored=pl.col("b") == "u")
    roles = {"group": "g", "item": ["a", "b"], "value": "y"}
    setting = Setting("tiny", "two keys", lambda seed: None, roles, MSE, (), scored="scored")
    model = SimpleModel(simple.ItemMean(), family="gaussian").fit(frame, **roles)
    told = measuring.coverage(setting, model, frame)["coverage"]
    assert list(told) == ["0.5", "0.8", "0.9"]
    predicted = model.predict(frame, interval=0.8).filter("scored")
    inside = predicted["y"].is_between(predicted["y_lower"], predicted["y_upper"])
    assert told["0.8"]["all"] == pytest.approx(inside.mean(), abs=1e-4)
    each = predicted.with_columns(inside=inside).group_by("a").agg(pl.col("inside").mean())["inside"]
    np.testing.assert_allclose(told["0.8"]["items"], np.quantile(each, measuring.ENDS), atol=1e-4)
    assert measuring.tested(setting, model, frame)["rows"] == 120
