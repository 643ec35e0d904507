"""Every hostile table is answered, or refused with an error that says what is wrong; see hostile.py for the law."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from hostile import holds
from hostile_tables import case
from small import efa, latent, ratings

import efattn
from efattn import DataError, ModelFileError, SimpleModel, Training, TrainingError, simple
from efattn.simple import additive_logit

RATINGS = ratings()
GROUPED = {"group": "user", "item": "movie"}
REAL = {**GROUPED, "value": "real"}
QUICK, BLOCK, BLOCKS = 200, 50, 14


@pytest.fixture
def short(monkeypatch):
    """Few steps of the one simple model that is trained by many."""
    monkeypatch.setattr(additive_logit, "MOST", 60)


@pytest.mark.parametrize("first", range(0, QUICK, BLOCK))
@pytest.mark.usefixtures("short")
def test_a_hostile_table_is_answered_or_refused_in_words(tmp_path, first):
    for seed in range(first, first + BLOCK):
        try:
            holds(case(seed), tmp_path)
        except Exception as error:
            pytest.fail(f"seed {seed}: {type(error).__name__}: {error}")


@pytest.mark.slow
@pytest.mark.parametrize("first", range(QUICK, QUICK + BLOCKS * BLOCK, BLOCK))
@pytest.mark.usefixtures("short")
def test_hundreds_of_hostile_tables_are_answered_or_refused_in_words(tmp_path, first):
    test_a_hostile_table_is_answered_or_refused_in_words(tmp_path, first)


@pytest.mark.usefixtures("short")
def test_the_hostile_tables_are_answered_often_enough_to_mean_something(tmp_path):
    assert sum(holds(case(seed), tmp_path) == "answered" for seed in range(60)) > 12


def test_a_seed_makes_the_same_table():
    assert case(7).columns.keys() == case(7).columns.keys()
    assert pl.DataFrame(case(7).columns).equals(pl.DataFrame(case(7).columns), null_equal=True)


# ---- what they found, one test each


def test_large_whole_numbers_are_counted_from_their_origin_whatever_is_standardised():
    for offset, levels in ((1_700_000_000, 5), (10**15, 2)):
        table = pl.DataFrame(
            {"g": np.arange(400) // 4, "y": offset + np.random.default_rng(0).integers(0, levels, 400)}
        )
        for model in (efa(), efa(standardise="none"), SimpleModel(simple.ShrunkMean(), standardise="none")):
            fitted = model.fit(table, group="g", value="y", progress=False)
            assert repr(fitted.family_.parts[0]) == f"Ordinal(levels={levels}, low={offset})"
            assert fitted.score(table) == pytest.approx(-np.log(levels), abs=0.1)
            predicted = fitted.predict(table)
            assert predicted["y_mean"].is_between(offset, offset + levels - 1).all()
            assert predicted["y_mode"].is_in(np.arange(offset, offset + levels).astype(float).tolist()).all()
            named = [f"y_p_{offset + k}" for k in range(levels)]
            assert np.allclose(predicted.select(named).sum_horizontal(), 1)


def test_a_companion_without_items_says_the_same_when_it_is_loaded(tmp_path):
    model = efa(companions=[simple.ShrunkMean()]).fit(RATINGS, group="user", value="real", validation=None)
    assert model.companions_
    model.save(tmp_path / "x.efattn")
    assert efattn.load(tmp_path / "x.efattn").score(RATINGS) == model.score(RATINGS)


def test_companions_share_equally_where_no_held_out_row_is_a_target(tmp_path):
    """A share that is NaN would be saved, or rather not."""
    target = pl.Series("target", RATINGS["user"].is_in(["u1", "u2", "u3", "u4"]))
    held = RATINGS.with_columns(target=pl.lit(False))
    model = efa(companions=[simple.ShrunkMean()])
    model.fit(RATINGS.with_columns(target), **REAL, target="target", validation=held)
    (companion,) = model.companions_["real"]
    assert companion.share == 0.5
    model.save(tmp_path / "x.efattn")


@pytest.mark.parametrize("recipe", [simple.ShrunkMean(), simple.GaussianConditional(), simple.RidgePerItem()])
def test_a_simple_model_without_a_target_is_refused_and_without_a_held_out_one_fitted(recipe):
    none = RATINGS.with_columns(target=pl.lit(False))
    with pytest.raises(DataError, match="no training row that is a target has one"):
        SimpleModel(recipe).fit(none, **REAL, target="target")
    one = RATINGS.with_columns(target=pl.col("user") == "u0")
    model = SimpleModel(recipe).fit(one, **REAL, target="target", validation=None)
    assert np.isfinite(model.score(one))


def test_a_simple_model_refuses_a_family_of_several_columns_before_it_is_fitted():
    with pytest.raises(DataError, match="is for several: choose a family of one column"):
        SimpleModel(simple.ItemMean(), family="multivariate_gaussian").fit(RATINGS, **REAL)


def test_a_log_likelihood_below_all_numbers_is_an_error_that_names_column_and_row():
    """Not -inf, which no JSON holds and which every mean is ruined by."""
    model = efa(family="gamma", terms="value").fit(RATINGS, **GROUPED, value="size", validation=None)
    with torch.no_grad():
        for weight in model.model_.parameters():
            weight.mul_(1e12)
    for ask in (model.score, model.log_likelihood):
        with pytest.raises(DataError, match=r"log-likelihood of 'size' is no finite number at row \d+") as told:
            ask(RATINGS)
        assert told.value.column == "size"
        assert told.value.row is not None


def test_weights_that_the_last_step_ruined_are_an_error():
    ruin = Training(epochs=1, rate=1e39, clip=None, tokens=10_000, device="cpu")
    for model in (efa(training=ruin), latent(training=ruin)):
        with pytest.raises(TrainingError, match=r"weights of the item term turned .* Training\(rate=1e\+38\)") as told:
            model.fit(RATINGS, **REAL, validation=None)
        assert told.value.option == "rate"


def test_a_group_too_long_for_memory_is_told_in_words_whatever_is_asked(monkeypatch):
    model = efa().fit(RATINGS, **REAL, validation=None, progress=False)

    def fail(*_, **__):
        raise RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory")

    monkeypatch.setattr("efattn.models.term.Term.rows", fail)
    for ask in (model.score, model.predict, model.recommend, lambda table: model.attention(table[:1])):
        with pytest.raises(DataError, match=r"not enough memory to look at \d+ rows .* max_length=") as told:
            ask(RATINGS)
        assert told.value.option == "max_length"


def test_where_every_item_is_there_already_there_is_no_most_probable_one():
    table = pl.DataFrame({"g": [1, 1, 1, 2, 2], "i": ["a", "b", None, "a", "b"]})
    model = efa(support="distinct").fit(table, group="g", item="i", validation=None)
    predicted = model.predict(table)
    assert predicted["i_mode"].to_list() == ["a", "b", None, "a", "b"]
    assert predicted["i_probability"].to_list() == [1, 1, 0, 1, 1]
    assert model.recommend(table).height == 0


@pytest.mark.parametrize("frame", [lambda t: t, lambda t: t.to_pandas(), lambda t: t.to_arrow()])
def test_predictions_of_no_rows_have_the_columns_and_types_of_some(frame):
    for key in (
        [1, 2],
        ["a", "b"],
        [True, False],
        [pd.Timestamp("2024-01-01").date(), pd.Timestamp("2024-01-02").date()],
    ):
        table = pl.DataFrame({"g": [1, 1, 2, 2], "i": key * 2})
        model = efa().fit(table, group="g", item="i", validation=None)
        assert pl.DataFrame(model.predict(frame(table[:0]))).height == 0
        assert model.predict(table[:0]).schema == model.predict(table).schema


def test_times_too_far_apart_to_subtract_are_refused_and_lags_before_the_first_time_are_none():
    def table(*times):
        rows = [(t, i, float(k)) for k, t in enumerate(times) for i in "ab"]
        return pl.DataFrame(rows, schema=["t", "i", "y"], orient="row")

    roles = {"group": "t", "time": "t", "item": "i", "value": "y"}
    for far in (2**62, -1e300, 1e308):
        with pytest.raises(DataError, match=r"role time needs numbers up to 2\.3"):
            efa(lags=1).fit(table(type(far)(0), far).cast({"t": pl.Float64 if far != 2**62 else pl.Int64}), **roles)
    model = efa(lags=50).fit(table(-(2**60), 0, 2**60), **roles, validation=None)
    assert model.schema_.encode(table(-(2**60), 0, 2**60)).lagged[:, :2].tolist() == [[-1, -1], [0, -1], [1, 0]]


def test_a_time_step_is_never_nothing():
    """A step that rounds to 0 would make each group its own lag, and show it its own values."""
    times = [0.0, 1e-12, 2e-12, 1.0, 3.0, 6.0]
    table = pl.DataFrame({"g": np.arange(12) // 2, "t": np.repeat(times, 2), "i": ["a", "b"] * 6, "y": np.arange(12.0)})
    model = efa(lags=1, terms="value").fit(table, group="g", time="t", item="i", value="y", validation=None)
    assert model.schema_.step > 0
    assert (model.schema_.encode(table).lagged[:, 0] != np.arange(6)).all()


# ---- the order in which a table comes


def shuffles(table, *, rows):
    """The table with its groups in another order, and with the rows of each as well."""
    draw = np.random.default_rng(3)
    users = dict(
        zip(table["user"].unique(maintain_order=True), draw.permutation(table["user"].n_unique()), strict=True)
    )
    place = np.arange(len(table)) if not rows else draw.permutation(len(table))
    return pl.Series(np.lexsort((place, [users[user] for user in table["user"]])))


MODELS = {
    "EFA": (efa(), {**GROUPED, "value": "rating"}),
    "EFA, companions": (efa(companions=[simple.GaussianConditional()], terms="value"), REAL),
    "EFA, past": (efa(context="past"), {**REAL, "order": "at"}),
    "LatentFactor": (latent(), {**GROUPED, "value": "rating"}),
    "SimpleModel": (SimpleModel(simple.GaussianConditional()), REAL),
    "RidgePerItem": (SimpleModel(simple.RidgePerItem()), REAL),
    "Popularity": (SimpleModel(simple.Popularity()), GROUPED),
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("rows", [False, True], ids=["groups", "rows"])
def test_a_fit_does_not_depend_on_the_order_of_groups_nor_of_rows_where_none_is_asked_for(name, rows):
    from sklearn.base import clone

    model, roles = MODELS[name]
    order = shuffles(RATINGS, rows=rows)
    one = clone(model).fit(RATINGS, **roles, progress=False)
    two = clone(model).fit(RATINGS[order], **roles, progress=False)
    mine, theirs = one.predict(RATINGS), two.predict(RATINGS)
    there = two.predict(RATINGS[order])
    for column in mine.columns[len(RATINGS.columns) :]:
        if not mine[column].dtype.is_numeric():
            assert mine[column].to_list() == theirs[column].to_list() == there[order.arg_sort()][column].to_list()
            continue
        np.testing.assert_allclose(mine[order][column], there[column], atol=1e-5, rtol=1e-5)
        np.testing.assert_allclose(mine[column], theirs[column], atol=1e-5 * rows, rtol=1e-5 * rows)


# ---- what options and arguments have to be


def test_predict_checks_the_support_as_score_does():
    model = efa(family="poisson").fit(RATINGS, **GROUPED, value="count", progress=False)
    wrong = RATINGS.with_columns(pl.when(pl.int_range(pl.len()) == 3).then(-1).otherwise("count").alias("count"))
    told = []
    for ask in (model.score, model.predict, model.log_likelihood, model.recommend):
        with pytest.raises(
            DataError, match=r"Poisson values must be whole numbers >= 0; column 'count' has -1.0 at row 3"
        ) as error:
            ask(wrong)
        told.append(str(error.value))
    assert len(set(told)) == 1


@pytest.mark.parametrize(
    ("parameters", "arguments", "words"),
    [
        ({"max_length": 2.0}, {}, r"max_length must be a whole number >= 1 or None, not 2\.0"),
        ({"terms": 5}, {}, "terms are 'item', 'value' or both in a list; found 5"),
        ({"terms": ["item", ["value"]]}, {}, r"terms are 'item', 'value' or both in a list; found \['value'\]"),
        ({}, {"callbacks": 5}, "callbacks is a function of each epoch's record, or several; found 5"),
        ({}, {"callbacks": [print, "x"]}, "callbacks is a function of each epoch's record, or several"),
    ],
)
def test_an_option_of_the_wrong_kind_says_what_was_expected(parameters, arguments, words):
    with pytest.raises(DataError, match=words) as told:
        efa(**parameters).fit(RATINGS, **GROUPED, **arguments)
    assert told.value.option == next(iter({**parameters, **arguments}))


@pytest.mark.parametrize("path", [".", "", None, 5, b"x"])
def test_what_is_no_file_is_neither_saved_to_nor_loaded(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = efa().fit(RATINGS, **GROUPED, validation=None)
    with pytest.raises(ModelFileError, match=r"A model is saved to a file, such as 'model\.efattn'; found"):
        model.save(path)
    with pytest.raises(ModelFileError):
        efattn.load(path)
    assert not list(tmp_path.iterdir())


def test_many_levels_get_a_mode_and_no_column_each():
    for levels, columns in ((50, 50), (51, 0)):
        table = pl.DataFrame({"g": np.arange(2 * levels) // 4, "y": np.arange(2 * levels) % levels})
        predicted = efa(family="ordinal").fit(table, group="g", value="y").predict(table)
        assert sum("_p_" in name for name in predicted.columns) == columns
        assert predicted["y_mode"].is_in(list(map(float, range(levels)))).all()
        assert predicted.select("y_mean", "y_sd", "y_lower", "y_upper").null_count().sum_horizontal().item() == 0
