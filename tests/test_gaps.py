"""The time between rows: what attention is told of it, and that it helps where it matters."""

import math
from datetime import datetime, timedelta

import numpy as np
import polars as pl
import pytest
import torch
from small import QUICK, efa, ratings

from efattn import EFA, DataError, Training, load
from efattn.data import Batch, Roles, Schema
from efattn.network import Gaps

ROLES = {"group": "user", "item": "movie", "order": "at"}


def timed(seed=0, **sizes):
    """Movies of users at uneven times."""
    table = ratings(seed, **sizes)
    draw = np.random.default_rng(seed)
    return table.with_columns(at=pl.col("at") * 1000 + pl.Series(draw.integers(0, 900, len(table))))


def sessions(users, seed=0):
    """Shows of two kinds. Within minutes a user stays with a kind, after days either comes."""
    draw, rows = np.random.default_rng(seed), []
    for user in range(users):
        kind, at = 0, 0.0
        for _ in range(8):
            pause = draw.random() < 0.5
            at += 500_000 * (1 + draw.random()) if pause else 60 * (1 + draw.random())
            kind = draw.integers(2) if pause else kind
            rows.append({"user": user, "movie": f"{kind}-{draw.integers(3)}", "at": at})
    return pl.DataFrame(rows)


# ---- classes


def test_a_class_is_a_factor_of_two():
    gaps = Gaps()
    gaps.fit(np.full(10, 8.0))  # the unit is 1
    when = torch.tensor([[0.0, 1.0, 3.0, 1e30]], dtype=torch.float64)
    assert (gaps(when)[0, :, 0] - gaps.size // 2).tolist() == [0, 1, 2, 27]
    assert torch.equal(gaps(when) + gaps(when).mT, torch.full((1, 4, 4), gaps.size - 1))  # the other way around
    assert gaps(when).min() >= 0
    assert gaps(when).max() < gaps.size


def test_the_unit_is_a_small_gap_and_the_usual_one_the_median():
    gaps = Gaps()
    gaps.fit(np.array([0.0, 0.0, 80.0, 100.0, 300.0, 400.0]))
    assert float(gaps.unit) == pytest.approx(np.quantile([80, 100, 300, 400], 0.1) / 8)
    assert float(gaps.usual) == 200
    gaps.fit(np.zeros(3))  # nothing to learn from
    assert float(gaps.usual) == 200


@pytest.mark.parametrize("unit", [0.0, math.nan, math.inf, -1.0, 1e-320])
def test_no_unit_leads_out_of_the_classes(unit):
    gaps = Gaps()
    gaps.unit.fill_(unit)
    found = gaps(torch.tensor([[0.0, 1.0, 1.0, -1e300]], dtype=torch.float64))
    assert found.min() >= 0
    assert found.max() < gaps.size


# ---- when attention is told


@pytest.mark.parametrize(
    ("at", "clock"),
    [
        (pl.col("at").cast(pl.Float64), "number"),
        (pl.from_epoch("at", "s"), "instant"),
        (pl.from_epoch("at", "s").dt.replace_time_zone("UTC"), "instant"),
        (pl.from_epoch(pl.col("at") * 100, "s").dt.date(), "instant"),
        (pl.col("at").rank("ordinal").over("user"), None),
        (pl.lit(0), None),
    ],
    ids=["numbers", "datetimes", "zoned", "dates", "ranks", "ties"],
)
def test_it_is_told_where_the_order_is_a_time(at, clock):
    table = timed().with_columns(at=at)
    model = efa().fit(table, **ROLES)
    assert model.schema_.when_kind == clock
    assert (model.model_["item"].gaps is not None) == (clock is not None)
    assert any("time between them" in str(note) for note in model.notes_) == (clock is not None)
    assert efa(gaps=False).fit(table, **ROLES).schema_.when_kind is None


def test_rows_in_table_order_have_no_times():
    assert efa().fit(timed(), group="user", item="movie", order="row").schema_.when_kind is None
    with pytest.raises(DataError, match="pass order="):
        efa(gaps=True).fit(timed(), group="user", item="movie", order="row")
    with pytest.raises(DataError, match="gaps must be 'auto', True or False"):
        efa(gaps="yes").fit(timed(), **ROLES)


def test_an_order_without_times_is_an_error_where_they_are_asked_for():
    table = timed().with_columns(at=pl.when(pl.int_range(pl.len()) == 3).then(math.inf).otherwise(pl.col("at")))
    assert efa().fit(table, **ROLES).schema_.when_kind is None
    with pytest.raises(DataError, match=r"finite numbers; column 'at' has inf at row 3"):
        efa(gaps=True).fit(table, **ROLES)


def test_networks_of_values_are_told_only_if_asked_for():
    table = timed()
    both = {**ROLES, "value": "rating"}
    assert efa().fit(table, **both).model_["rating"].gaps is None
    model = efa(terms="value").fit(table, **both)
    assert model.model_["rating"].gaps is None
    assert model.schema_.when_kind == "number"  # for simple models beside them
    assert efa(terms="value", gaps=False).fit(table, **both).schema_.when_kind is None
    assert efa(terms=["value"], gaps=True).fit(table, **both).model_["rating"].gaps is not None


def test_numbers_are_not_dates_later():
    model = efa().fit(timed(), **ROLES)
    with pytest.raises(DataError, match=r"Column 'at' \(role order\) holds dates; it was fitted on numbers"):
        model.score(timed().with_columns(at=pl.from_epoch("at", "s")))


# ---- what they do


@pytest.mark.parametrize("context", ["past", "others"])
def test_times_tell_who_belongs_together(context):
    table, test = sessions(300), sessions(200, seed=1)
    training = Training(epochs=40, rate=0.02, tokens=512, device="cpu")
    how = {"context": context, "training": training, "dropout": 0.0, "own_time": "known"}
    told, silent = (efa(**how, gaps=gaps).fit(table, **ROLES).score(test) for gaps in (True, False))
    assert told > silent + 0.05


def test_the_unit_of_time_does_not_matter():
    table = timed()
    seconds = table.with_columns(at=pl.col("at") * 1.0)
    hours = table.with_columns(at=pl.col("at") / 4096)
    dates = table.with_columns(at=pl.lit(datetime(2020, 1, 1)) + pl.col("at") * timedelta(seconds=1))
    first = efa().fit(seconds, **ROLES).score(seconds)
    assert efa().fit(hours, **ROLES).score(hours) == first
    assert efa().fit(dates, **ROLES).score(dates) == pytest.approx(first, abs=1e-6)


def test_times_long_ago_keep_their_seconds():
    """In single precision, seconds since 1970 are told apart by minutes."""
    table = timed()
    model = efa().fit(table, **ROLES)
    later = table.with_columns(at=pl.col("at") + 10**9)
    assert model.score(later) == pytest.approx(model.score(table), abs=1e-9)
    assert Batch.of([{"when": [1e9, 1e9 + 1]}]).to(dtype=torch.float32).when.diff().item() == 1


@pytest.mark.parametrize("context", ["past", "others"])
def test_what_comes_next_comes_at_the_usual_time(context):
    table = timed()
    model = efa(context=context, training=Training(epochs=20, tokens=64, device="cpu")).fit(table, **ROLES)
    usual = float(model.model_["item"].gaps.usual)
    mine = table.filter(pl.col("user") == table.filter(pl.len().over("user") >= 4)["user"][0]).sort("at")
    known, last = mine[:-1], mine["movie"][-1]
    soon = mine.with_columns(
        at=pl.when(pl.int_range(pl.len()) == pl.len() - 1).then(known["at"].max() + usual).otherwise(pl.col("at"))
    )
    told = model.recommend(known, k=8).filter(pl.col("movie") == last)["probability"][0]
    assert math.log(told) == pytest.approx(model.log_likelihood(soon)["item_log_likelihood"][-1], abs=1e-4)
    assert model.recommend(k=8)["probability"].sum() == pytest.approx(1, abs=1e-5)


def test_a_file_keeps_them(tmp_path):
    table = timed()
    model = efa(training=Training(epochs=20, tokens=64, device="cpu")).fit(table, **ROLES)
    model.save(tmp_path / "m.efattn")
    again = load(tmp_path / "m.efattn")
    assert again.score(table) == model.score(table)
    assert again.schema_.when_kind == "number"
    assert again.model_["item"].gaps.unit == model.model_["item"].gaps.unit
    assert torch.equal(
        again.recommend(table, k=3)["probability"].to_torch(), model.recommend(table, k=3)["probability"].to_torch()
    )


def test_going_on_keeps_the_unit():
    model = efa().fit(timed(), **ROLES)
    unit = float(model.model_["item"].gaps.unit)
    new = timed(1).with_columns(pl.col("user") + "x", at=pl.col("at") * 50)
    assert float(model.update(new, training=QUICK).model_["item"].gaps.unit) == unit


def test_pieces_of_long_groups_have_their_times():
    table = timed()
    groups = Schema.fit_encode(table, Roles("user", "movie", order="at"), max_length=3, when=True)[1]
    assert groups.when is not None
    at = table["at"].cast(pl.Float64).to_torch()
    for batch in groups.batches(64):
        assert torch.equal(batch.when[batch.exists], at[batch.rows[batch.exists]])
    model = EFA(width=8, max_length=3, companions=None, training=QUICK).fit(table, **ROLES)
    assert math.isfinite(model.score(table))
