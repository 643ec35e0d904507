"""Ranks are those of a literal loop over all items; whatever is batched, cut or shuffled, the numbers are the same."""

import numpy as np
import polars as pl
import pytest
import torch
from small import QUICK, efa, ratings, weather

from efattn import DataError, SimpleModel, inference, plots, simple
from efattn.data import Table
from efattn.inference import ranking

TABLE = ratings(users=12, movies=6)
AGAIN = pl.concat([TABLE, TABLE.with_columns(pl.col("at") + 10)]).sort("user", "at")  # every movie twice
ROLES = {"group": "user", "item": "movie", "order": "at"}
_FITTED: dict = {}


def fitted(name):
    """past, others: items may repeat; distinct: they may not; both: items and values."""
    make = {
        "past": lambda: efa(context="past", support="all").fit(AGAIN, **ROLES),
        "others": lambda: efa(support="all").fit(AGAIN, **ROLES),
        "pieces": lambda: efa(support="all", context="past", max_length=3).fit(AGAIN, **ROLES),
        "distinct": lambda: efa(context="past").fit(TABLE, **ROLES),
        "both": lambda: efa().fit(TABLE, group="user", item="movie", value="real"),
        "ensemble": lambda: efa(context="past", ensemble=2, companions=simple.Popularity()).fit(TABLE, **ROLES),
        "values": lambda: efa().fit(weather(), group="day", attributes=["latitude"], value=["tmax", "tmin"]),
    }
    if name not in _FITTED:
        _FITTED[name] = make[name]()
    return _FITTED[name]


def by_hand(model, table, row):
    """The probability of every item in place of this row's: each put there and scored."""
    names = model.schema_.vocabulary.names
    p = []
    for name in names:
        put = table.with_columns(movie=pl.when(pl.int_range(pl.len()) == row).then(pl.lit(name)).otherwise("movie"))
        p.append(np.exp(model.log_likelihood(put)["item_log_likelihood"][row]))
    return np.array(p), names


def metrics(rank, k):
    hit = rank is not None and rank <= k
    return {"recall": float(hit), "ndcg": hit / np.log2(1 + rank) if hit else 0.0, "mrr": 1 / rank if hit else 0.0}


@pytest.mark.parametrize("name", ["past", "others"])
@pytest.mark.parametrize("seen", [True, False])
def test_metrics_are_those_of_a_literal_loop_over_all_items(name, seen):
    model, user = fitted(name), AGAIN.filter(pl.col("user") == "u1")[:5]
    user = user.with_columns(movie=pl.Series(["m0", "m1", "m0", "m2", "m3"]))
    told = model.evaluate(user, (1, 3), rows="all", seen=seen)
    ranks, mass, lists = [], [], []
    for row, item in enumerate(user["movie"]):
        p, names = by_hand(model, user, row)
        context = user["movie"][:row] if name == "past" else user.filter(pl.int_range(pl.len()) != row)["movie"]
        p = [0.0 if not seen and n in context.to_list() else x for n, x in zip(names, p, strict=True)]
        order = sorted((k for k in range(len(p)) if p[k] > 0), key=lambda k: (-p[k], k))
        ranks.append(next((k + 1 for k, i in enumerate(order) if names[i] == item), None))
        mass.append(sum(p[i] for i in order[:3]))
        lists.append([names[i] for i in order[:3]])
    for k in (1, 3):
        for metric in ("recall", "ndcg", "mrr"):
            assert told.mean(metric, k) == pytest.approx(np.mean([metrics(r, k)[metric] for r in ranks])), metric
    assert told.mean("mass", 3) == pytest.approx(np.mean(mass), rel=1e-5)
    assert told.mean("excess", 3) == pytest.approx(told.mean("recall", 3) - told.mean("mass", 3))
    assert told.mean("coverage", 3) == len({n for names in lists for n in names}) / len(names)
    share = {n: (int((user["movie"] == n).sum()) + 0.5) / (len(user) + 0.5 * len(names)) for n in names}
    assert told.mean("novelty", 3) == pytest.approx(np.mean([np.mean([-np.log2(share[n]) for n in x]) for x in lists]))
    assert told.about["repeats"] == (1 if name == "past" else 2)
    assert told.mean("recall", 3, part="repeat") <= (1 if seen else 0)


@pytest.mark.parametrize("name", ["past", "distinct", "ensemble"])
def test_the_last_row_is_ranked_as_recommend_ranks_it(name):
    model, table = fitted(name), AGAIN if name == "past" else TABLE
    before = table.filter(pl.col("at") < pl.col("at").max().over("user"))
    told = model.evaluate(table.filter(pl.col("user").is_in(before["user"].unique())), 3)
    advice = model.recommend(before, 6)
    last = table.group_by("user", maintain_order=True).last().select("user", "movie")
    ranks = last.join(advice, on=["user", "movie"], how="inner").sort("user")
    mine = told.groups.sort("user")
    np.testing.assert_allclose(1 / mine["mrr"].to_numpy(), ranks["rank"].to_numpy())
    np.testing.assert_allclose(np.exp(mine["log_score"].to_numpy()), ranks["probability"].to_numpy(), rtol=1e-5)
    assert told.mean("recall", 3) == pytest.approx((ranks["rank"] <= 3).mean())


@pytest.mark.parametrize("name", ["past", "others", "pieces", "distinct", "both", "ensemble"])
def test_however_few_probabilities_are_held_at_a_time_the_answer_is_the_same(name, monkeypatch):
    model, table = fitted(name), TABLE if name in ("distinct", "both", "ensemble") else AGAIN
    whole = model.evaluate(table, 3, rows="all")
    for cells in (1, 7, 40):
        monkeypatch.setattr(inference.mixture, "CELLS", cells)
        few = model.evaluate(table, 3, rows="all")
        assert few.about == whole.about
        np.testing.assert_allclose(numbers(few), numbers(whole), rtol=1e-5, atol=1e-7)


def numbers(told):
    return [line.mean for line in told.lines]


@pytest.mark.parametrize("name", ["past", "others", "both", "values"])
def test_neither_the_order_of_the_table_nor_its_pieces_change_a_number(name):
    model = fitted(name)
    table = {"both": TABLE, "values": weather()}.get(name, AGAIN)
    group = "day" if name == "values" else "user"
    whole = model.evaluate(table, (1, 2), rows="all")
    shuffled = model.evaluate(table.sample(fraction=1, shuffle=True, seed=3), (1, 2), rows="all")
    parts = [Table.read(part) for part in table.partition_by(group, maintain_order=True)]
    pieces = inference.evaluate(model.fitted_, parts, (1, 2), rows="all", tell=lambda note: None)
    for other in (shuffled, pieces):
        assert [x[:4] for x in other.lines] == [x[:4] for x in whole.lines]
        assert other.about == whole.about
        for what in ("mean", "error"):
            one, two = (
                [np.nan if getattr(x, what) is None else getattr(x, what) for x in e.lines] for e in (other, whole)
            )
            np.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-6)
    assert pieces.by_group[group].to_list() == whole.by_group[group].to_list()


def test_scores_and_errors_are_those_of_score_and_predict():
    model = fitted("both")
    told, scores, rows = model.evaluate(TABLE, rows="all"), model.scores(TABLE), model.predict(TABLE, 0.8)
    assert told.mean("log_score", of="item") == pytest.approx(scores["terms"]["item"], rel=1e-5)
    assert told.mean("log_score", of="real") == pytest.approx(scores["terms"]["real"], rel=1e-5)
    assert told.mean("mse") == pytest.approx(((rows["real"] - rows["real_mean"]) ** 2).mean(), rel=1e-5)
    assert told.mean("inside", 0.8) == rows["real"].is_between(rows["real_lower"], rows["real_upper"]).mean()
    by_item = rows.group_by("movie").agg(mse=((pl.col("real") - pl.col("real_mean")) ** 2).mean()).sort("movie")
    np.testing.assert_allclose(told.items.sort("movie")["real_mse"], by_item["mse"], rtol=1e-6)
    assert told.items["predicted"].sum() == len(TABLE)


def test_missing_values_and_weights_count_as_in_score():
    holes = TABLE.with_columns(real=pl.when(pl.int_range(pl.len()) % 4 == 1).then(None).otherwise("real"))
    heavy = holes.with_columns(w=pl.int_range(pl.len()) % 3)
    model = efa(terms="value").fit(heavy, group="user", item="movie", value="real", weight="w")
    told = model.evaluate(heavy)
    assert told.mean("log_score") == pytest.approx(model.scores(heavy)["terms"]["real"], rel=1e-5)
    assert told.lines[0].rows == heavy.filter(pl.col("real").is_not_null() & (pl.col("w") > 0)).height


def test_of_one_row_a_group_the_standard_error_is_the_usual_one():
    told = fitted("distinct").evaluate(TABLE, 2)
    hits = told.groups["recall@2"].to_numpy()
    assert told.about["rows"] == "last"
    assert told.mean("recall", 2) == pytest.approx(hits.mean())
    assert told.error("recall", 2) == pytest.approx(hits.std(ddof=1) / np.sqrt(len(hits)))


def test_groups_of_equal_rows_count_as_one_observation_each():
    sums, weight = np.array([3.0, 1.0, 2.0]), np.array([4.0, 2.0, 2.0])
    mean, error = inference.evaluation.per_row(sums, weight)
    assert inference.evaluation.per_row(sums * 10, weight * 10) == (pytest.approx(mean), pytest.approx(error))
    assert inference.evaluation.per_row(sums[:1], weight[:1]) == (0.75, None)
    assert inference.evaluation.per_row(sums[:0], weight[:0]) == (None, None)


def test_ties_are_settled_by_the_vocabulary_and_counted():
    flat = pl.DataFrame({"user": [1, 1, 2, 2], "movie": ["b", "a", "d", "c"], "at": [1, 2, 1, 2]})
    model = SimpleModel(simple.Popularity(), context="past", support="all").fit(flat, **ROLES, validation=None)
    told = model.evaluate(flat, (1, 3))
    assert told.about["ties"] == 2
    assert told.groups["mrr"].to_list() == [1, pytest.approx(1 / 3)]
    assert model.recommend(flat, 4)["movie"].to_list() == ["a", "b", "c", "d"] * 2
    assert "2 rows tied" in told.words


@pytest.mark.parametrize("k", [1, 2, 5, 8])
def test_lists_are_a_stable_sort_of_all_items(k):
    p = torch.as_tensor(np.random.default_rng(k).integers(0, 4, (50, 8)) / 8.0)
    items, values = ranking.best(p, k)
    literal = np.argsort(-p.numpy(), 1, kind="stable")[:, :k]
    np.testing.assert_array_equal(items, literal)
    np.testing.assert_array_equal(values, np.take_along_axis(p.numpy(), literal, 1))
    for item in range(8):
        rank, tied = ranking.places(p, torch.full((50,), item))
        place = np.argsort(np.argsort(-p.numpy(), 1, kind="stable"), 1)[:, item] + 1
        np.testing.assert_array_equal(rank, np.where(p[:, item] > 0, place, 0))
        np.testing.assert_array_equal(tied, np.where(p[:, item] > 0, (p == p[:, [item]]).sum(1) - 1, 0))


@pytest.mark.filterwarnings("ignore:Unknown items")
def test_an_unknown_item_is_missed_and_a_null_is_not_asked_for():
    model = fitted("distinct")
    strange = TABLE.with_columns(
        movie=pl.when(pl.col("user") == "u1")
        .then(pl.lit("new"))
        .when(pl.col("user") == "u2")
        .then(None)
        .otherwise("movie")
    )
    strange = strange.unique(["user", "movie"], maintain_order=True)
    told = model.evaluate(strange, 6)
    assert told.about["unknown"] == 1
    assert "u2" not in told.groups["user"].to_list()
    row = told.groups.filter(pl.col("user") == "u1").to_dicts()[0]
    assert (row["recall@6"], row["mrr"], row["log_score"]) == (0, 0, None)
    assert told.mean("recall", 6) == pytest.approx(1 - 1 / told.about["groups"])


def test_which_rows_are_predicted():
    model = fitted("distinct")
    marked = TABLE.with_columns(held=pl.int_range(pl.len()) % 3 == 0)
    told = model.evaluate(marked, target="held")
    assert (told.about["predicted"], told.about["rows"]) == (marked["held"].sum(), "target")
    asked = model.evaluate(marked, rows="all").about["predicted"]
    assert asked == len(marked)
    with_role = efa(context="past").fit(marked, **ROLES, target="held")
    assert with_role.evaluate(marked).about["predicted"] == marked["held"].sum()
    assert with_role.evaluate(marked.drop("held")).about["rows"] == "last"
    assert fitted("others").evaluate(AGAIN).about["rows"] == "all"


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"k": 0}, "whole number >= 1"),
        ({"k": "ten"}, "whole number >= 1"),
        ({"k": ()}, "whole number >= 1"),
        ({"rows": "first"}, "one of auto, target"),
        ({"rows": "target"}, "needs a column that marks them"),
        ({"rows": "last", "target": "at"}, "leave rows out"),
        ({"target": "nowhere"}, "no column 'nowhere'"),
    ],
)
def test_what_cannot_be_is_refused(how, words):
    with pytest.raises(DataError, match=words):
        fitted("distinct").evaluate(TABLE, **how)


def test_a_table_with_nothing_to_predict_is_refused():
    with pytest.raises(DataError, match="No row"):
        fitted("distinct").evaluate(TABLE.with_columns(none=False), target="none")


def test_parts_by_mass_hold_every_row_and_are_drawn():
    told = fitted("past").evaluate(AGAIN, (2, 4), rows="all")
    for k in (2, 4):
        bins = [one for one in told.bins if one.k == k]
        assert sum(one.rows for one in bins) == len(AGAIN)
        assert sum(one.rows * one.hits for one in bins) / len(AGAIN) == pytest.approx(told.mean("recall", k))
        assert sum(one.rows * one.mass for one in bins) / len(AGAIN) == pytest.approx(told.mean("mass", k))
    assert told.plot(2).get_xlabel() == "mass of the list"
    with pytest.raises(DataError, match="lists of 3"):
        told.plot(3)
    with pytest.raises(DataError, match="no item probabilities"):
        plots.list_mass(fitted("values").evaluate(weather()))


def test_frames_are_of_the_kind_that_came():
    told = fitted("distinct").evaluate(TABLE.to_pandas())
    assert type(told.groups).__module__.startswith("pandas")
    assert type(told.table).__module__.startswith("pandas")
    assert "predicted" in str(told)


def test_simple_models_and_latent_factors_are_asked_the_same():
    table = TABLE.filter(pl.len().over("user") > 1)
    for recipe in (simple.Popularity(), simple.MarkovChain(), simple.AdditiveLogit()):
        model = SimpleModel(recipe, context="past", training=QUICK).fit(table, **ROLES)
        assert 0 <= model.evaluate(table).mean("ndcg", 5) <= 1


def test_some_metrics_are_shown_and_none_is_lost():
    model, table = fitted("both"), ratings(users=4, movies=6)
    whole, some = model.evaluate(table, 3), model.evaluate(table, 3, metrics=["crps", "ndcg"])
    assert set(some.table["metric"]) == {"crps", "ndcg"}
    assert some.table.equals(whole.table.filter(pl.col("metric").is_in(["crps", "ndcg"])))
    assert some.lines == whole.lines
    kept = [name for name in whole.groups.columns if "crps" in name or "ndcg" in name]
    assert [name for name in some.groups.columns if name in kept] == kept
    assert set(some.groups.columns) == {"user", "predicted", *kept}
    assert model.evaluate(table, 3, by="group").equals(whole.groups)
    assert model.evaluate(table, 3, by="item", metrics="crps").columns == ["movie", "predicted", "real_crps"]
    with pytest.raises(DataError, match=r"no metric 'rmse' of these rows; there are .*crps"):
        model.evaluate(table, 3, metrics="rmse")
    with pytest.raises(DataError, match="by 'group' or by 'item'; found 'user'"):
        model.evaluate(table, 3, by="user")
