"""Laws of items never seen: shares of their own, learnt from items that were left out."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
import torch

import efattn
from efattn import EFA, Training
from efattn.data import Roles, Schema
from efattn.data.new_items import as_if_unknown, in_table_units, schema_without, some_items, tells_items, without_items
from efattn.estimators import new_items
from efattn.estimators.preparing import prepare
from efattn.inference import mixture
from efattn.simple import GaussianConditional, ItemMean

ROLES = {"group": "day", "item": "place", "attributes": ["north", "east"], "value": "y"}


def fields(days=24, places=16, seed=0, level=3.0):
    """Smooth fields of each day over places that have levels of their own."""
    random = np.random.default_rng(seed)
    at = random.uniform(0, 4, (places, 2))
    apart = np.linalg.norm(at[:, None] - at[None], axis=-1)
    root = np.linalg.cholesky(np.exp(-apart / 3) + 1e-6 * np.eye(places))
    levels = level * np.sin(at[:, 0]) + 0.1 * random.normal(size=places)
    y = levels + random.normal(size=(days, places)) @ root.T + 0.1 * random.normal(size=(days, places))
    day, place = np.indices(y.shape)
    return pl.DataFrame(
        {
            "day": day.ravel(),
            "place": [f"p{k:02d}" for k in place.ravel()],
            "north": at[place.ravel(), 0],
            "east": at[place.ravel(), 1],
            "y": y.ravel(),
        }
    )


def encoded(frame, roles=ROLES, **more):
    schema, groups = Schema.fit_encode(frame, Roles(**roles), standardise="item", **more)
    return schema, schema.standardise(groups)


@pytest.fixture(scope="module")
def fitted():
    frame = fields().filter(pl.col("place") != "p03")
    few = Training(epochs=5)
    companions = [GaussianConditional(weight=0.5, tails=0.0), ItemMean()]
    model = EFA(family="gaussian", terms="value", companions=companions, training=few, width=8)
    return model.fit(frame, **ROLES, progress=False, validation=0.25)


def test_table_units_come_back():
    frame = fields()
    schema, groups = encoded(frame)
    back = in_table_units(schema, groups)
    np.testing.assert_allclose(back.value[:, 0], frame["y"].to_numpy()[groups.rows], rtol=1e-12)
    assert back.centres is None


def test_each_number_leaves_out_other_items():
    times = sum(some_items(23, 0.2, k).astype(int) for k in range(5))
    assert times.min() >= 0
    assert times.max() == times.min() + 1 or times.max() == 1


def test_strange_items_are_unknown_and_the_only_targets():
    schema, groups = encoded(fields())
    items = some_items(16, 0.2)
    made = as_if_unknown(groups.subset(np.arange(5)), items)
    assert len(made) == 5
    np.testing.assert_array_equal(made.target, made.item == 16)
    np.testing.assert_array_equal(made.value, groups.subset(np.arange(5)).value)
    assert schema.vocabulary.unknown == 16
    alone = as_if_unknown(groups, np.zeros(16, bool))
    assert not len(alone)


@pytest.mark.parametrize("kept", [False, True])
def test_without_items_the_others_are_what_they_were(kept):
    frame = fields().with_columns(time=pl.col("day"))
    schema, groups = encoded(frame, ROLES | {"time": "time"}, lags=1)
    items = some_items(16, 0.2)
    less, smaller = without_items(groups, items, kept=kept), schema_without(schema, items)
    assert len(less.vocabulary) == len(smaller.vocabulary) == 13
    names = [groups.vocabulary.name(i) for i in groups.item]
    stays = ~items[groups.item] | kept
    np.testing.assert_array_equal(less.rows, groups.rows[stays])
    known = [n if not items[i] else None for n, i, s in zip(names, groups.item, stays, strict=True) if s]
    assert [less.vocabulary.name(i) for i in less.item] == known
    assert np.array_equal(less.value, groups.value[stays])
    batch = next(iter(less.batches(10_000)))
    assert batch.exists.shape[1] == 2 * (16 if kept else 13)  # with the day before
    assert smaller.standardiser.item_centre.shape == (14, 1)


def test_a_group_of_left_out_items_alone_is_gone_and_may_have_been_a_yesterday():
    frame = pl.DataFrame({"day": [0, 1, 1, 2, 2], "place": list("aabab"), "y": [1.0, 2.0, 3.0, 4.0, 5.0]})
    frame = frame.with_columns(time=pl.col("day"))
    roles = {"group": "day", "item": "place", "value": "y", "time": "time"}
    _, groups = encoded(frame, roles, lags=1)
    less = without_items(groups, np.array([True, False]))
    assert less.lengths.tolist() == [1, 1]
    batches = list(less.batches(100))
    assert sum(int(batch.exists.sum()) for batch in batches) == 3  # two days, one of which has a day before


def test_attributes_that_belong_to_items_are_noticed():
    frame = fields()
    assert tells_items(encoded(frame)[1])
    moving = frame.with_columns(north=pl.Series(np.random.default_rng(0).normal(size=len(frame))))
    assert tells_items(encoded(moving)[1])  # the other still does
    alone = {**ROLES, "attributes": ["north"]}
    assert not tells_items(encoded(moving, alone)[1])
    assert not tells_items(encoded(frame, {**ROLES, "attributes": []})[1])


def part(frame):
    sizes = {"lags": 0, "max_length": None, "when": False}
    given = {"family": "gaussian", "terms": "value", "support": "auto", "standardise": "item", "seed": 0}
    return prepare(frame, Roles(**ROLES), validation=0.25, sizes=sizes, **given)


def test_what_is_fitted_without_an_item_knows_nothing_of_it():
    frame, items = fields(), some_items(16, 0.2)
    mine = pl.col("place").is_in([f"p{k:02d}" for k in np.flatnonzero(items)])
    one, other = (
        part(frame),
        part(frame.with_columns(y=pl.when(mine).then(pl.col("y") * 7 - 50).otherwise(pl.col("y")))),
    )
    same = one.schema.standardise(in_table_units(other.schema, other.train))
    a = new_items._reduced(one, items)
    b = new_items._reduced(replace(one, train=same), items)
    np.testing.assert_allclose(a.train.every.value, b.train.every.value, rtol=1e-10, atol=1e-12)
    np.testing.assert_array_equal(a.train.centres, b.train.centres)
    assert a.items == 13
    assert set(a.train.item) == set(range(13))
    assert set(a.held.item[a.held.target]) == {13}
    assert set(a.held.item[~a.held.target]) == set(range(13))


def test_new_items_have_shares_of_their_own(fitted):
    gaussian, mean = fitted.companions_["y"]
    assert gaussian.new > 0.8
    assert gaussian.new + mean.new == pytest.approx(1)  # the network has seen places with their values
    assert gaussian.share + mean.share < 1
    assert "Of items never seen: " in fitted.summary()


def test_rows_of_new_items_and_of_known_ones_are_mixed_by_their_shares(fitted):
    asked = fields(days=3, seed=5)
    found = fitted.predict(asked)
    groups = fitted.schema_.encode(asked)
    parts = fitted.fitted_.parts("y")
    batch = next(iter(fitted.fitted_.batches(fitted.schema_.standardise(groups), parts[0].model)))
    means = torch.stack([part.model.family.mean(part.outputs(batch).double())[..., 0].detach() for part in parts])
    new = batch.item == 15
    assert int(new.sum()) == 3
    known = torch.tensor([part.share for part in parts], dtype=torch.float64)
    of_new = torch.tensor([part.new for part in parts], dtype=torch.float64)
    assert float(known.sum()) == pytest.approx(1)
    assert float(of_new.sum()) == pytest.approx(1)
    expected = torch.where(new, torch.einsum("k,kbt->bt", of_new, means), torch.einsum("k,kbt->bt", known, means))
    plain = fitted.schema_.standardiser.undo(expected[..., None].numpy(), batch.item.numpy())[..., 0]
    np.testing.assert_allclose(found["y_mean"].to_numpy()[batch.rows.numpy()], plain, rtol=1e-10)
    logs = torch.stack([part.log_prob(batch).values.double().detach() for part in parts])
    mixed = mixture.log_prob(parts, batch).values.detach()
    told = torch.where(
        new, (logs + of_new.log()[:, None, None]).logsumexp(0), (logs + known.log()[:, None, None]).logsumexp(0)
    )
    torch.testing.assert_close(mixed, told)


def test_intervals_of_new_items_hold_what_they_say(fitted):
    asked = fields(days=3, seed=5)
    family = fitted.fitted_.parts("y")[0].model.family
    parts = fitted.fitted_.parts("y")
    inside = fitted.schema_.standardise(fitted.schema_.encode(asked))
    batch = next(iter(fitted.fitted_.batches(inside, parts[0].model)))
    outputs, shares = [part.outputs(batch).double().detach() for part in parts], mixture.shares(parts, batch)
    upper = mixture.quantile(family, outputs, shares, 0.95)
    torch.testing.assert_close(mixture.cdf(family, outputs, shares, upper), torch.full_like(upper, 0.95))


def test_a_file_keeps_them(fitted, tmp_path):
    fitted.save(tmp_path / "model.efattn")
    again = efattn.load(tmp_path / "model.efattn")
    assert [one.new for one in again.companions_["y"]] == [one.new for one in fitted.companions_["y"]]
    asked = fields(days=3, seed=5)
    assert again.predict(asked).equals(fitted.predict(asked))


def test_without_attributes_networks_are_asked_too():
    frame = fields().drop("north", "east")
    roles = {"group": "day", "item": "place", "value": "y"}
    model = EFA(family="gaussian", terms="value", companions=[ItemMean()], training=Training(epochs=3), width=8)
    model.fit(frame, **roles, progress=False, validation=0.25)
    (mean,) = model.companions_["y"]
    assert mean.new is not None
    assert 0 <= mean.new < 1


def test_few_items_have_one_set_of_shares():
    frame = fields(places=6)
    model = EFA(family="gaussian", terms="value", companions=[ItemMean()], training=Training(epochs=3), width=8)
    model.fit(frame, **ROLES, progress=False, validation=0.25)
    assert all(one.new is None for one in model.companions_["y"])


def test_items_start_as_the_unknown_one_but_for_their_levels():
    how = {"standardise": "item", "hide": 0.5, "width": 8}
    model = EFA(family="gaussian", terms="value", companions=None, training=Training(epochs=1), **how)
    model.fit(fields(days=8), **ROLES, progress=False, validation=0.25)
    term = model.untrained()["y"]
    vectors = term.embedding.item.vectors.weight
    assert not vectors[:, 1:].any()
    shift = torch.as_tensor(model.schema_.standardiser.to_unknown())[:, 0]
    torch.testing.assert_close(vectors[:17, 0].detach(), shift.to(vectors.dtype))
    assert not vectors[16].any()
