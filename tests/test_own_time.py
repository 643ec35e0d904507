"""The time of the row itself: what a target shows of it, and what recommend is told."""

import numpy as np
import polars as pl
import pytest
import torch
from small import QUICK, efa, ratings

from efattn import DataError, load
from efattn.data import Batch, Schema
from efattn.families import Categorical
from efattn.models import Term
from efattn.network import Embedding, Gaps, Head, ItemVectors, Stack, perceptron
from efattn.network.conditionals import copied, folded, formed, literal, two_streams

ROLES = {"group": "user", "item": "movie", "order": "at"}


def timed(seed=0):
    table = ratings(seed)
    draw = np.random.default_rng(seed)
    return table.with_columns(at=(pl.col("at") * 1000 + pl.Series(draw.integers(0, 900, len(table)))).cast(pl.Float64))


def batch(lags=False):
    draw = np.random.default_rng(0)
    groups = []
    for current, lagged in ((5, 2), (3, 0), (1, 2), (1, 0)):
        n = current + lagged if lags else current
        when = np.concatenate([1000 + np.sort(draw.random(current)) * 500, draw.random(n - current) * 100])
        groups.append({"item": draw.integers(0, 4, n), "when": when})
        if lags:
            groups[-1]["lag"] = [0] * current + [1] * lagged
    return Batch.of(groups, torch.float64)


def term(context, layers, own_time, lags=False, **options):
    torch.manual_seed(0)
    embedding = Embedding(ItemVectors(4, 8), lag=torch.nn.Embedding(2, 2) if lags else None, mix=(8,) if lags else ())
    gaps = Gaps()
    gaps.fit(np.array([8.0]))
    stack = Stack(8, layers, 2, gaps=Gaps.size, **options)
    for block in stack.blocks:
        torch.nn.init.normal_(block.attention.gaps)
    family = Categorical(4)
    head = Head(perceptron(8, (), 4), family.shared)
    made = Term(embedding, stack, head, family, context=context, gaps=gaps, own_time=own_time)
    return made.double().eval()


def sooner(given, column, by):
    return given.replace(when=given.when.index_add(1, torch.tensor([column]), torch.full_like(given.when[:, :1], by)))


@pytest.mark.parametrize("lags", [False, True])
@pytest.mark.parametrize("context", ["past", "others"])
@pytest.mark.parametrize("layers", [1, 2, 3])
def test_a_target_that_hides_its_time_is_predicted_alike_whatever_it_is(context, layers, lags):
    model, given = term(context, layers, own_time=False, lags=lags), batch(lags)
    for column in range(given.length):
        for by in (-90.0, 7e5):
            moved = model.outputs(sooner(given, column, by))[:, column]
            assert torch.allclose(moved, model.outputs(given)[:, column], rtol=0, atol=1e-12)


@pytest.mark.parametrize("context", ["past", "others"])
def test_a_target_that_shows_its_time_is_predicted_by_it(context):
    model, given = term(context, 2, own_time=True), batch()
    moved = model.outputs(sooner(given, 1, 7e5))[0, 1]
    assert not torch.allclose(moved, model.outputs(given)[0, 1])


@pytest.mark.parametrize("lags", [False, True])
@pytest.mark.parametrize(
    ("context", "layers", "path", "options"),
    [
        ("past", 2, two_streams, {}),
        ("others", 1, two_streams, {}),
        ("others", 2, folded, {}),
        ("others", 2, copied, {}),
        ("others", 2, formed, {"feed_forward": 8, "norm": "pre"}),
        ("others", 3, formed, {}),
    ],
)
def test_fast_paths_without_own_times_equal_the_literal_form(context, layers, path, options, lags):
    model, given = term(context, layers, own_time=False, lags=lags, **options), batch(lags)
    assert torch.allclose(model.rows(given, path=path), model.rows(given, path=literal), rtol=0, atol=1e-10)


def test_a_hidden_time_is_that_of_the_row_before():
    gaps = Gaps()
    gaps.fit(np.array([8.0]))
    when = torch.tensor([[0.0, 8.0, 100.0, 3.0]], dtype=torch.float64)
    exists = torch.tensor([[True, True, True, True]])
    past = gaps.without_own(when, exists, 3, "past")
    assert past[0, 2].tolist() == [*gaps(when)[0, 1, :2].tolist(), Gaps.size // 2, *gaps(when)[0, 1, 3:].tolist()]
    assert past[0, 0, 3] == Gaps.size // 2  # the first row is as late as what lies at a lag
    others = gaps.without_own(when, exists, 3, "others")
    assert torch.equal(others[0, 0, 1:], gaps(when)[0, 1, 1:])  # and in others as the row after it


# ---- a fitted model


def fitted(context, own_time, **options):
    return efa(context=context, own_time=own_time, **options).fit(timed(), **ROLES)


@pytest.mark.parametrize(("context", "shown"), [("past", False), ("others", True)])
def test_by_default_own_times_are_hidden_in_past_and_known_in_others(context, shown):
    model = fitted(context, "auto")
    assert model.schema_.own_time is shown
    assert model.model_["item"].own_time is shown
    assert any("own time" in str(note) for note in model.notes_)


@pytest.mark.parametrize(("own_time", "same"), [("hidden", True), ("known", False)])
def test_a_score_does_not_depend_on_a_time_that_is_hidden(own_time, same):
    table = timed()
    model = fitted("past", own_time, training=QUICK)
    last = pl.col("at") == pl.col("at").max().over("user")
    later = table.with_columns(at=pl.when(last).then(pl.col("at") + 90_000).otherwise(pl.col("at")))
    mine, theirs = (model.log_likelihood(t)["item_log_likelihood"].to_numpy() for t in (table, later))
    assert np.allclose(mine, theirs, atol=1e-6) is same


def test_what_comes_next_is_as_probable_as_its_row_is_scored():
    """A hidden time makes both the same question."""
    table = timed()
    model = fitted("past", "hidden")
    user = table.filter(pl.len().over("user") >= 4)["user"][0]
    mine = table.filter(pl.col("user") == user).sort("at")
    told = model.recommend(mine[:-1], k=8).filter(pl.col("movie") == mine["movie"][-1])["probability"][0]
    assert np.log(told) == pytest.approx(model.log_likelihood(mine)["item_log_likelihood"][-1], abs=1e-4)


@pytest.mark.parametrize("context", ["past", "others"])
def test_recommend_is_told_when_the_next_row_comes(context):
    table, model = timed(), fitted(context, "known")
    user = table.filter(pl.len().over("user") >= 4)["user"][0]
    mine = table.filter(pl.col("user") == user).sort("at")
    known, (last, at) = mine[:-1], mine.select("movie", "at").row(-1)
    told = model.recommend(known, k=8, at=at)
    assert np.log(told.filter(pl.col("movie") == last)["probability"][0]) == pytest.approx(
        model.log_likelihood(mine)["item_log_likelihood"][-1], abs=1e-4
    )
    assert model.recommend(known, k=8, at={user: at}).equals(told)
    assert model.recommend(known.with_columns(due=pl.lit(at)), k=8, at="due").equals(told)
    assert not model.recommend(known, k=8, at=at + 1e6).equals(told)


def test_a_time_that_is_hidden_is_not_asked_for():
    with pytest.raises(DataError, match="hides the time"):
        fitted("past", "auto").recommend(timed(), at=3.0)
    silent = efa(gaps=False).fit(timed(), **ROLES)
    with pytest.raises(DataError, match="looks at no times"):
        silent.recommend(timed(), at=3.0)


@pytest.mark.parametrize("at", ["2020-01-05", {"nobody": 3.0}, "soon"])
def test_a_time_of_another_kind_is_refused(at):
    with pytest.raises(DataError):
        fitted("others", "known").recommend(timed(), at=at)


def test_a_file_keeps_what_is_hidden(tmp_path):
    model = fitted("past", "auto")
    model.save(tmp_path / "m.efattn")
    again = load(tmp_path / "m.efattn")
    assert again.schema_.own_time is False
    assert again.score(timed()) == model.score(timed())


def test_a_file_from_before_this_was_asked_shows_what_it_showed():
    schema = fitted("past", "auto").schema_
    saved = {name: x for name, x in schema.to_json().items() if name not in ("own_time", "own_attributes", "exposed")}
    old = Schema.from_saved(saved, schema.arrays())
    assert (old.own_time, old.own_attributes, old.exposed) == (True, None, False)
