"""A training that cannot go on says which rows or how much memory it is about, and what helps."""

import re

import polars as pl
import pytest
import torch
from small import efa, latent
from small_training import ROLES, TABLE, model

from efattn import DataError, Training, TrainingError
from efattn.models import Conditionals
from efattn.training import memory

# ---- NaN


def test_a_loss_that_turns_nan_says_where_and_what_to_do(monkeypatch):
    honest, calls = Conditionals.log_prob, [0]

    def broken(self, batch, draws=None):
        scores = honest(self, batch, draws)
        calls[0] += self.training and hasattr(self, "stack")  # a network, not the models that choose its family
        return scores._replace(values=scores.values * float("nan")) if calls[0] == 3 else scores

    monkeypatch.setattr(Conditionals, "log_prob", broken)
    with pytest.raises(TrainingError, match=r"item term .* epoch 1, batch 3 \(rows \d+.*rate=0\.002"):
        model().fit(TABLE, **ROLES)


def test_a_validation_that_turns_nan_says_so(monkeypatch):
    honest = Conditionals.log_prob

    def broken(self, batch, draws=None):
        scores = honest(self, batch, draws)
        return scores if self.training else scores._replace(values=scores.values - float("inf"))

    monkeypatch.setattr(Conditionals, "log_prob", broken)
    with pytest.raises(TrainingError, match="validation log-likelihood of the item term is -inf after epoch 1"):
        model().fit(TABLE, **ROLES)


def with_one(column, x, row=20):
    return TABLE.with_columns(pl.when(pl.int_range(pl.len()) == row).then(x).otherwise(column).alias(column))


EXTREME = {
    "share": (0.99999999, {"value": "share"}, "beta", "Beta cannot hold"),
    "size": (1e-50, {"value": "size"}, "gamma", "Gamma cannot hold"),
    "z": (1e39, {"value": "real", "weight": "z"}, "auto", r"which is 1e\+39"),
    "hours": (1e-50, {"value": "count", "exposure": "hours"}, "poisson", "which is 1e-50"),
    "x": (1e39, {"value": "real", "attributes": "x"}, "auto", r"which is 1e\+39"),
}


@pytest.mark.parametrize("where", ["trained on", "held out"])
@pytest.mark.parametrize("column", EXTREME)
def test_rows_that_no_rate_could_cope_with_are_named(column, where):
    x, roles, family, why = EXTREME[column]
    table, extreme = (t.with_columns(pl.col("z").abs() + 0.1) for t in (TABLE, with_one(column, x)))
    train, held = (extreme, None) if where == "trained on" else (table, extreme)
    with pytest.raises((TrainingError, DataError)) as told:
        efa(family=family, terms="value").fit(train, group="user", item="movie", validation=held, **roles)
    assert told.value.column == column
    assert "row 20" in str(told.value)
    assert "rate" not in str(told.value)
    if isinstance(told.value, TrainingError):  # what a table is refused for has words of its own
        assert f"column {column!r} at row 20 (user 'u" in str(told.value)
        assert told.value.row == 20
        assert re.search(why, str(told.value))


def test_a_rate_that_is_too_high_names_no_row_as_extreme():
    wild = Training(epochs=2, rate=1e30, clip=None, warmup=0.0, device="cpu", tokens=64)
    with pytest.raises(TrainingError, match=r"NaN or infinity.*Try a lower rate, Training\(rate=1e\+29") as told:
        efa(training=wild).fit(TABLE, **ROLES)
    assert told.value.option == "rate"


# ---- memory


def test_a_group_that_is_too_long_is_refused_before_training(monkeypatch):
    monkeypatch.setattr(memory, "available", lambda device: 100_000.0)
    long = TABLE.with_columns(user=pl.when(pl.int_range(pl.len()) < 60).then(pl.lit("long")).otherwise("user"))
    long = long.with_columns(at=pl.int_range(pl.len()))
    with pytest.raises(DataError, match=r"takes .* GiB of memory.*longest group has 60 rows \(user 'long'\)") as told:
        efa(support="all").fit(long, **ROLES, validation=None, callbacks=pytest.fail)
    assert "max_length=" in str(told.value)
    assert "draws=16" in str(told.value)
    efa(support="all", max_length=10).fit(long, **ROLES, validation=None)
    latent(support="all").fit(long, **ROLES, validation=None)


def test_a_network_that_is_too_large_is_refused_before_it_is_built(monkeypatch):
    with pytest.raises(DataError, match=r"takes .* GiB of memory for its weights alone.*smaller width"):
        efa(width=60_000, heads=2).fit(TABLE, **ROLES, callbacks=pytest.fail)


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes."),
        RuntimeError("CUDA out of memory. Tried to allocate 20.00 GiB."),
        MemoryError(),
    ],
    ids=["cpu", "cuda", "python"],
)
def test_torch_running_out_of_memory_is_told_in_words(monkeypatch, error):
    def broken(self, batch, draws=None):
        raise error

    monkeypatch.setattr(Conditionals, "log_prob", broken)
    with pytest.raises(
        TrainingError, match=r"not enough memory.*longest group has \d+ rows \(user .*max_length="
    ) as told:
        model().fit(TABLE, **ROLES)
    assert told.value.option == "max_length"


def test_other_errors_of_torch_stay_what_they_are(monkeypatch):
    def broken(self, batch, draws=None):
        raise RuntimeError("something else")

    monkeypatch.setattr(Conditionals, "log_prob", broken)
    with pytest.raises(RuntimeError, match="something else"):
        model().fit(TABLE, **ROLES)


def test_memory_is_known_here():
    assert 2**20 < memory.available(torch.device("cpu")) < 2**60
