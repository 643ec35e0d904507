"""What a row of the context changed is found by predicting again without it: exactly, whatever predicts."""

import numpy as np
import polars as pl
import pytest
from shell import forked
from small import efa, weather
from small_models import BOTH, TABLE, fitted

from efattn import DataError, LatentFactor, simple

KINDS = ("others", "past", "lags", "places", "alone", "latent", "three layers")


def alone(model, table, row, value, without=None):
    """The mean of a row, as predict gives it, where another is not in the table."""
    told = model.predict(table.filter(pl.int_range(pl.len()) != (-1 if without is None else without)))
    return told[f"{value}_mean"][row - (without is not None and without < row)]


@pytest.mark.parametrize("name", KINDS)
def test_a_change_is_what_predicting_without_the_row_changes(name):
    model, table, roles = fitted(name)
    value = roles["value"] if isinstance(roles["value"], str) else roles["value"][0]
    row = 12
    found = model.explain(table, row)
    assert set(found.columns) >= {"row", "attention", f"{value}_natural", f"{value}_mean", f"{value}_mean_without"}
    full = alone(model, table, row, value)
    np.testing.assert_allclose(found[f"{value}_mean"] + found[f"{value}_mean_without"], full, rtol=1e-5)
    for other in found["row"].to_list()[:2] + found["row"].to_list()[-1:]:
        without = found.filter(pl.col("row") == other)[f"{value}_mean_without"].item()
        assert without == pytest.approx(alone(model, table, row, value, other), rel=1e-5)
    size = found[f"{value}_mean"].abs().to_numpy()
    assert (np.diff(size) <= 0).all()


def test_what_cannot_be_seen_changes_nothing():
    model, table, _ = fitted("past")
    mine = table.with_row_index("n").filter(pl.col("user") == "u0")["n"].to_list()
    found = model.explain(table, mine[2])
    later = found.filter(pl.col("row") > mine[2])
    assert sorted(found["row"]) == [row for row in mine if row != mine[2]]  # of no other group, and not itself
    assert len(later) == len(mine) - 3
    for column in ("attention", "real_natural", "real_mean"):
        assert (later[column] == 0).all()


def test_attention_is_that_of_the_row():
    for name, place in (("others", 2), ("lags", 1)):
        model, table, roles = fitted(name)
        group = table[roles["group"]].unique(maintain_order=True)[3]
        one = table.filter(pl.col(roles["group"]).is_in(table[roles["group"]].unique(maintain_order=True)[2:4]))
        row = int(np.flatnonzero((one[roles["group"]] == group).to_numpy())[place])
        found = model.explain(one, row)
        if name == "others":
            weights = model.attention(one.filter(pl.col("user") == group), "real").mean()[place]
            first = found["row"].min() if found["row"].min() < row else row
            for line in found.iter_rows(named=True):
                assert line["attention"] == pytest.approx(weights[line["row"] - first], rel=1e-4)
        assert 0 < found["attention"].sum() < 1  # the rest is its own masked form's


def test_changes_of_a_sum_add_up_to_all_that_the_context_says():
    """Places of a latent factor model: f = h . sum_j h_j y_j."""
    table = weather(days=6)
    roles = {"group": "day", "attributes": ["latitude", "longitude"], "value": "tmax"}
    model = LatentFactor(width=4, training=efa().training).fit(table, **roles)
    found = model.explain(table, 7)
    nothing = alone(model, table[7:8], 0, "tmax")
    assert found["tmax_mean"].sum() == pytest.approx(alone(model, table, 7, "tmax") - nothing, rel=1e-4)
    assert found["attention"].is_null().all()


def test_the_natural_parameter_of_a_normal_law_is_its_mean_by_its_variance():
    model, table, _ = fitted("others")

    def natural(table, row):
        law = model.predict_distribution(table)[row]
        return float((law.mean[0] - law.centre[0]) * law.scale[0] / law.sd[0] ** 2)  # in units inside the model

    found = model.explain(table, 3)
    for line in found.iter_rows(named=True):
        without = natural(table.filter(pl.int_range(pl.len()) != line["row"]), 3 - (line["row"] < 3))
        assert line["real_natural"] == pytest.approx(natural(table, 3) - without, rel=1e-3, abs=1e-6)


def test_an_item_that_is_recommended_is_explained():
    model, table, _ = fitted("others")
    one = table.filter(pl.col("user") == "u0")
    best = model.recommend(one, 1)
    found = model.explain(one, item=best["movie"][0])
    assert sorted(found["row"]) == list(range(len(one)))
    total = found["movie_probability"] + found["movie_probability_without"]
    np.testing.assert_allclose(total, best["probability"][0], rtol=1e-5)
    fewer = {row["movie"]: row["probability"] for row in model.recommend(one[1:], 8).iter_rows(named=True)}
    without = found.filter(pl.col("row") == 0)["movie_probability_without"].item()
    assert without == pytest.approx(fewer[best["movie"][0]], rel=1e-4)
    again = model.explain(table, 0, item=best["movie"][0])  # of the group of row 0
    np.testing.assert_allclose(again["movie_natural"], found["movie_natural"], rtol=1e-4, atol=1e-6)


def test_an_item_that_is_there_is_explained_by_its_log_odds():
    model, table, _ = fitted("others")
    found, scored = model.explain(table, 3, term="item"), model.log_likelihood(table)["item_log_likelihood"][3]
    p = (found["movie_probability"] + found["movie_probability_without"]).to_numpy()
    np.testing.assert_allclose(np.log(p), scored, rtol=1e-4)
    q = found["movie_probability_without"].to_numpy()
    np.testing.assert_allclose(found["movie_natural"], np.log(p / (1 - p)) - np.log(q / (1 - q)), rtol=1e-6)


def test_the_mixture_is_explained_or_one_member():
    model = efa(ensemble=2, companions=simple.ShrunkMean(), terms="value").fit(TABLE, **BOTH)
    both, one = model.explain(TABLE, 3), model.explain(TABLE, 3, member=1)
    for found, told in ((both, model.predict(TABLE)), (one, model.predict(TABLE, member=1))):
        np.testing.assert_allclose(found["real_mean"] + found["real_mean_without"], told["real_mean"][3], rtol=1e-5)
    assert not np.allclose(both.sort("row")["real_mean"], one.sort("row")["real_mean"])


def test_a_row_without_context_has_nothing_to_be_carried_by():
    model, table, _ = fitted("others")
    found = model.explain(table[:1], 0)
    assert len(found) == 0
    assert "real_mean_without" in found.columns


def test_mistakes_are_told():
    model, table, _ = fitted("others")
    one = table.filter(pl.col("user") == "u0")
    for wrong, words in (
        ({}, "Say which row"),
        ({"row": 10_000}, "number of one, 0 to"),
        ({"row": -1}, "number of one"),
        ({"row": 1.5}, "number of one"),
        ({"row": 1, "term": "x"}, "'value' or 'item'"),
        ({"item": "m1", "term": "value"}, "item term"),
        ({"item": "m1"}, "the table has"),
        ({"row": 0, "item": "nobody"}, "nobody"),
        ({"row": 0, "item": one["movie"][0]}, "already"),
    ):
        with pytest.raises(DataError, match=words):
            model.explain(table, **wrong)
    pieces, table, _ = fitted("pieces")
    with pytest.raises(DataError, match="max_length"):
        pieces.explain(table, 0)


def test_a_score_says_what_it_is():
    (others, table, _), (past, _, _) = fitted("others"), fitted("past")
    assert others.scores(table)["kind"] == "leave-one-out log score"
    assert past.scores(table)["kind"] == "log-likelihood"
    assert "leave-one-out" in others.summary()
    assert "leave-one-out" not in past.summary()


def test_a_cell_of_a_wide_table_is_named_by_row_and_column(tmp_path):
    table = pl.DataFrame(np.random.default_rng(0).normal(size=(40, 3)), schema=["a", "b", "c"])
    model = efa(family="gaussian").fit_wide(table, progress=False)
    found = model.explain(table, 5, item="b")
    assert set(found["column"]) == {"a", "c"}
    assert found.columns[1:] == ["attention", "b_natural", "b_mean", "b_mean_without"]
    np.testing.assert_allclose(found["b_mean"] + found["b_mean_without"], model.predict(table)["b_mean"][5], rtol=1e-5)
    model.save(tmp_path / "m.efattn")
    table.write_csv(tmp_path / "t.csv")
    words = ("explain", "m.efattn", "t.csv", "--row", 5, "--item", "b", "-o", "e.parquet")
    forked(*words, cwd=tmp_path).good()
    np.testing.assert_allclose(pl.read_parquet(tmp_path / "e.parquet")["b_mean"], found["b_mean"])
    for wrong in ({"row": 5, "item": "d"}, {"row": -1, "item": "b"}, {"row": 40, "item": "b"}, {"item": "b"}):
        with pytest.raises(DataError, match=r"row|item"):
            model.explain(table, **wrong)
