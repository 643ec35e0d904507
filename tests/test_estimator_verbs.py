"""What comes next, what a model looks like inside, and going on with new rows."""

import math

import numpy as np
import pandas as pd
import polars as pl
import pytest
from small import efa
from small_models import BOTH, DAYS, MODELS, TABLE, WEATHER, fitted

from efattn import DataError, Training

# ---- what comes next


@pytest.mark.parametrize("name", ["others", "past", "latent"])
def test_probabilities_of_what_comes_next_sum_to_one_without_what_is_there(name):
    model, table, _ = fitted(name)
    found = model.recommend(table, k=100)
    assert found.columns == ["user", "rank", "movie", "probability"]
    for user in table["user"].unique():
        mine, history = found.filter(pl.col("user") == user), table.filter(pl.col("user") == user)["movie"]
        assert mine["probability"].sum() == pytest.approx(1, abs=1e-5)
        assert set(mine["movie"]).isdisjoint(history)
        assert len(mine) == 8 - len(history)
        assert mine["rank"].to_list() == list(range(1, len(mine) + 1))
        assert mine["probability"].is_sorted(descending=True)
    assert found["user"].unique(maintain_order=True).to_list() == table["user"].unique(maintain_order=True).to_list()


def test_with_repeats_allowed_every_item_may_come_next():
    model = efa(support="all").fit(TABLE, **BOTH)
    found = model.recommend(TABLE, k=8)
    assert len(found) == 8 * TABLE["user"].n_unique()
    np.testing.assert_allclose(found.group_by("user").agg(pl.col("probability").sum())["probability"], 1, atol=1e-5)


@pytest.mark.parametrize("name", ["others", "past", "latent"])
def test_an_empty_history_works(name):
    model, table, _ = fitted(name)
    found = model.recommend(k=8)
    assert found["probability"].sum() == pytest.approx(1, abs=1e-5)
    assert model.recommend(table.clear(), k=8).to_dicts() == found.to_dicts()
    assert isinstance(model.recommend(table.to_pandas().iloc[:0], k=2), pd.DataFrame)


def test_what_comes_next_is_what_the_log_likelihood_says():
    """p(last item | what came before), told by recommend and by log_likelihood."""
    model, table, _ = fitted("past")
    user = table.filter(pl.len().over("user") >= 3)["user"][0]
    mine = table.filter(pl.col("user") == user)
    told = model.log_likelihood(mine)["item_log_likelihood"]
    for n in range(1, len(mine)):
        found = model.recommend(mine.head(n), k=8).filter(pl.col("movie") == mine["movie"][n])
        assert math.log(found["probability"][0]) == pytest.approx(told[n], abs=1e-4)
    first = model.recommend(k=8).filter(pl.col("movie") == mine["movie"][0])
    assert math.log(first["probability"][0]) == pytest.approx(told[0], abs=1e-4)


def test_what_is_missing_is_what_the_log_likelihood_says():
    """others: p(item | all others), told by recommend from the others."""
    model, table, _ = fitted("others")
    user = table.filter(pl.len().over("user") >= 3)["user"][0]
    mine = table.filter(pl.col("user") == user)
    told = model.log_likelihood(mine)["item_log_likelihood"]
    for n in range(len(mine)):
        rest = mine.filter(pl.int_range(pl.len()) != n)
        found = model.recommend(rest, k=8).filter(pl.col("movie") == mine["movie"][n])
        assert math.log(found["probability"][0]) == pytest.approx(told[n], abs=1e-4)


def test_one_history_gives_the_same_as_among_others():
    for name in ("others", "past"):
        model, table, _ = fitted(name)
        whole = model.recommend(table, k=3)
        for user in ("u1", "u5"):
            alone = model.recommend(table.filter(pl.col("user") == user), k=3)
            mine = whole.filter(pl.col("user") == user)
            assert alone["movie"].to_list() == mine["movie"].to_list()
            np.testing.assert_allclose(alone["probability"], mine["probability"], atol=1e-6)


def test_long_histories_are_cut_and_everything_in_them_is_still_ruled_out():
    model, table, _ = fitted("pieces")
    found = model.recommend(table, k=8)
    for user in table["user"].unique():
        there = table.filter(pl.col("user") == user)["movie"]
        assert set(found.filter(pl.col("user") == user)["movie"]).isdisjoint(there)


def test_a_full_group_has_nothing_missing():
    model, _, _ = fitted("others")
    full = pl.DataFrame({"user": "full", "movie": [f"m{i}" for i in range(8)], "real": 3.0})
    assert len(model.recommend(full, k=3)) == 0


def test_items_with_lags_have_an_empty_history_too():
    model = efa(lags=1, terms=["item", "value"]).fit(WEATHER, **DAYS, time="day")  # asked for: each day has all items
    assert model.recommend(k=5)["probability"].sum() == pytest.approx(1, abs=1e-5)
    assert len(model.recommend(WEATHER.filter(pl.col("station") < 3), k=2)) == 2 * 24


def test_repeats_in_a_history_are_refused_by_name():
    model, table, _ = fitted("others")
    again = pl.concat([table.head(1), table.head(1)])
    for verb in (model.recommend, model.score):
        with pytest.raises(DataError, match="there again at row 1"):
            verb(again)


# ---- insides


def test_similar_items():
    model, _, _ = fitted("others")
    found = model.similar("m1", k=3)
    assert found.columns == ["movie", "score"]
    assert len(found) == 3
    assert "m1" not in found["movie"].to_list()
    assert found["score"].is_sorted(descending=True)
    assert len(model.similar("m1", k=100)) == 7
    with pytest.raises(DataError, match="Did you mean 'm1'"):
        model.similar("M1 ")
    for name in ("lags", "latent"):
        other = fitted(name)[0]
        assert other.similar(other.schema_.vocabulary.names[0])["score"].is_finite().all()
    with pytest.raises(DataError, match="without an item column"):
        fitted("alone")[0].similar("m1")


def test_embeddings_have_a_row_per_item():
    model, _, _ = fitted("others")
    for which in ("item", "centre"):
        found = model.embeddings(which)
        assert found["movie"].to_list() == [f"m{i}" for i in range(8)]
        assert found.columns == ["movie", "x", "y", *(f"v{c}" for c in range(8))]
    with pytest.raises(DataError, match="'item' or 'centre'"):
        model.embeddings("user")
    with pytest.raises(DataError, match="no centre vectors"):
        fitted("lags")[0].embeddings("centre")


@pytest.mark.parametrize("name", ["others", "past", "places", "lags", "alone", "three layers"])
def test_attention_has_labels_and_rows_that_sum_to_one(name):
    model, table, roles = fitted(name)
    group = table.filter(pl.len().over(roles["group"]) >= 3)[roles["group"]][0]
    mine = table.filter(pl.col(roles["group"]) == group)
    found = model.attention(mine)
    n = len(mine)
    assert found.weights.shape == (model.layers, model.heads, n, n)
    np.testing.assert_allclose(found.weights.sum(-1), 1, atol=1e-5)
    assert len(found.targets) == n
    if "item" in roles:
        assert found.targets == mine[roles["item"]].to_list()
    assert found.mean().shape == (n, n)
    long = pl.DataFrame(found.columns())
    assert len(long) == found.weights.size
    if name == "past":
        assert not np.triu(found.weights[0, 0], 1).any()
    with pytest.raises(DataError, match="one group at a time"):
        model.attention(table)
    with pytest.raises(DataError, match="There is no term 'nothing'"):
        model.attention(mine, term="nothing")


def test_attention_is_refused_where_there_is_none():
    with pytest.raises(DataError, match="Only an EFA has attention"):
        fitted("latent")[0].attention(TABLE.head(1))
    long = TABLE.filter(pl.len().over("user") > 3)
    with pytest.raises(DataError, match="max_length"):
        fitted("pieces")[0].attention(long.filter(pl.col("user") == long["user"][0]))


@pytest.mark.parametrize("name", MODELS)
def test_a_summary_names_terms_and_families(name):
    model, table, _ = fitted(name)
    text = model.summary()
    assert f"{len(table)} rows" in text
    for term in model.model_.terms:
        assert f"Term {term!r}" in text
    assert "parameters" in text
    assert "epochs in" in text


# ---- updates


def test_an_update_appends_items_and_keeps_the_rest():
    old = TABLE.filter(pl.col("movie") < "m6")
    model = efa(support="all").fit(old, **BOTH)
    before = model.predict(old)["real_mean"].to_numpy()
    centre, scale = model.schema_.standardiser.centre.copy(), model.schema_.standardiser.scale.copy()
    model.update(TABLE, training=Training(epochs=1, rate=1e-5, tokens=10_000, device="cpu"))
    assert model.schema_.vocabulary.names == [f"m{i}" for i in range(8)]
    np.testing.assert_allclose(model.predict(old)["real_mean"].to_numpy(), before, atol=0.01)
    np.testing.assert_array_equal(model.schema_.standardiser.centre, centre)
    np.testing.assert_array_equal(model.schema_.standardiser.scale, scale)
    assert model.scores(TABLE)["unknown"] == 0
    assert "1 of 1 epoch in" in model.summary()


def test_an_update_learns():
    model = efa(training=Training(epochs=2, tokens=64, device="cpu")).fit(TABLE, **BOTH)
    before, rows = model.score(TABLE), len(model.history_)
    model.update(TABLE, validation=None, training=Training(epochs=20, rate=0.01, tokens=64, device="cpu"))
    assert model.score(TABLE) > before
    assert len(model.history_) == rows + 40


@pytest.mark.parametrize("name", ["latent", "ordinal", "places", "lags", "past"])
def test_every_model_can_be_updated(name):
    model, table, roles = MODELS[name]
    fresh = type(model)(**model.get_params(deep=False)).fit(table, **roles)
    if name in ("latent", "ordinal", "past"):
        table = pl.concat([table, table.with_columns(movie=pl.lit("new " + name)).unique("user", maintain_order=True)])
    assert np.isfinite(fresh.update(table).score(table))


def test_an_update_is_checked_like_a_fit():
    model = efa(family="poisson").fit(TABLE, **{**BOTH, "value": "count"})
    with pytest.raises(DataError, match="Poisson values must be"):
        model.update(TABLE.with_columns(count=-1))
    with pytest.raises(DataError, match="There is no column 'count'"):
        model.update(TABLE.drop("count"))
    with pytest.raises(DataError, match="no rows"):
        model.update(TABLE.clear())
    with pytest.raises(TypeError):
        model.update(TABLE, epoch=3)


def test_a_model_of_items_predicts_the_most_probable_one_of_each_row():
    model = efa().fit(TABLE, group="user", item="movie", order="at")
    told = model.predict(TABLE)
    assert told.columns == [*TABLE.columns, "movie_mode", "movie_probability"]
    assert told["movie_probability"].is_between(1 / 8, 1).all()
    for _, group in told.group_by("user"):  # an item of another row of the group is ruled out
        for row in group.iter_rows(named=True):
            others = set(group["movie"]) - {row["movie"]}
            assert row["movie_mode"] not in others
