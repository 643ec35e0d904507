"""The distributions of a fitted model are what predict and score say, and what Python says the shell says."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from shell import forked
from small import QUICK, efa
from small_models import BOTH, MODELS, TABLE, WEATHER, fitted
from test_parity import in_double

from efattn import DataError, families, inference, simple
from efattn.data import Table

COLUMNS = {
    "poisson": "count",
    "negative_binomial": "count",
    "ordinal": "rating",
    "bernoulli": "liked",
    "binomial": "rating",
    "beta": "share",
    "gamma": "size",
    "log_normal": "size",
    "exponential": "size",
    "student_t": "real",
    "gaussian": "real",
}


def laws_of(model, table):
    (law,) = inference.predict_distribution(in_double(model.fitted_), [Table.read(table)])
    return law


def agree(model, table, column, law):
    """With predict and log_likelihood, both in double precision."""
    engine = in_double(model.fitted_)
    (told,) = inference.predict(engine, [Table.read(table)], 0.8, quantiles=[0.025, 0.5])
    for name, mine in (("mean", law.mean), ("sd", law.sd), ("q50", law.median), ("q2.5", law.quantiles(0.025))):
        np.testing.assert_allclose(mine, told[f"{column}_{name}"], rtol=1e-9, atol=1e-9)
    for end, name in zip(law.interval(0.8), ("lower", "upper"), strict=True):
        np.testing.assert_allclose(end, told[f"{column}_{name}"], rtol=1e-9, atol=1e-9)
    assert np.isfinite(law.crps()[law.scored]).all()


def scores_agree(model, table, term, law):
    (rows,) = inference.log_likelihood(in_double(model.fitted_), [Table.read(table)])
    mine = np.where(law.scored, law.log_score(), np.nan)
    np.testing.assert_allclose(mine, rows[f"{term}_log_likelihood"].cast(pl.Float64).to_numpy(), rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("name", MODELS)
def test_laws_say_what_predict_and_score_say(name):
    model, table, roles = fitted(name)
    values = [roles["value"]] if isinstance(roles["value"], str) else roles["value"]
    table = table.with_columns(
        pl.when(pl.int_range(pl.len()) % 7 == 3).then(None).otherwise(value).alias(value) for value in values
    )
    laws = laws_of(model, table)
    for value in values:
        assert laws[value].column == value
        assert len(laws[value]) == len(table)
        agree(model, table, value, laws[value])
    if len(values) == 1:
        scores_agree(model, table, values[0], laws)
    else:
        assert list(laws) == values


@pytest.mark.parametrize("family", COLUMNS)
def test_every_family_is_asked_in_the_table_s_units(family):
    column = COLUMNS[family]
    model = efa(family=family, terms="value", ensemble=2, companions=simple.ShrunkMean())
    model.fit(TABLE, **{**BOTH, "value": column})
    law = laws_of(model, TABLE)
    assert law.laws[0][1].shares.shape[1] == 3
    agree(model, TABLE, column, law)
    scores_agree(model, TABLE, column, law)


def test_items_of_different_kinds_have_laws_of_their_own():
    kind = {f"m{k}": ("real", "liked", "count")[k % 3] for k in range(8)}
    answer = pl.coalesce(pl.when(pl.col("movie").is_in([m for m in kind if kind[m] == c])).then(pl.col(c).cast(float))
                         for c in ("real", "liked", "count"))  # fmt: skip
    table = TABLE.with_columns(answer=answer)
    family = families.PerItem(
        (families.Gaussian(), families.Bernoulli(), families.NegativeBinomial()), tuple(k % 3 for k in range(8))
    )
    model = efa(family=family, terms="value").fit(table, group="user", item="movie", value="answer")
    law = laws_of(model, table)
    agree(model, table, "answer", law)
    scores_agree(model, table, "answer", law)
    whole = np.array([kind[movie] != "real" for movie in table["movie"]])
    assert (law.discrete == whole).all()
    assert set(law[np.array([kind[m] == "liked" for m in table["movie"]])].levels) == {0, 1}
    with pytest.raises(DataError, match="densities"):
        law.pmf()


def test_columns_that_vary_together_have_one_law_each():
    model = efa(family="multivariate_gaussian", ensemble=2, neighbours=3)
    model.fit(WEATHER, group="day", attributes=["latitude", "longitude"], value=["tmax", "tmin"])
    laws = laws_of(model, WEATHER)
    for column in ("tmax", "tmin"):
        agree(model, WEATHER, column, laws[column])


def test_a_row_s_own_value_does_not_move_its_law():
    model, table, _ = fitted("others")
    moved = table.with_columns(real=pl.when(pl.int_range(pl.len()) == 5).then(99.0).otherwise("real"))
    one, two = laws_of(model, table)[5], laws_of(model, moved)[5]
    np.testing.assert_allclose(one.quantiles([0.1, 0.9]), two.quantiles([0.1, 0.9]), rtol=1e-10)
    assert two.observed[0] == 99


def test_rows_that_do_not_count_are_told():
    table = TABLE.with_columns(w=pl.int_range(pl.len()) % 3, scored=pl.int_range(pl.len()) % 5 != 1)
    model = efa(terms="value").fit(table, **BOTH, weight="w", target="scored")
    law = model.predict_distribution(table)
    assert (law.scored == ((table["w"] > 0) & table["scored"]).to_numpy()).all()
    assert len(np.unique(law.group)) == table["user"].n_unique()
    assert [law.items.name(k) for k in law.item] == table["movie"].to_list()
    bare = model.predict_distribution(table.drop("real"))
    assert np.isnan(bare.observed).all()
    assert not bare.scored.any()


def test_a_model_of_items_alone_has_no_laws_of_values():
    model = efa().fit(TABLE, group="user", item="movie")
    with pytest.raises(DataError, match="no value term"):
        model.predict_distribution(TABLE)
    with pytest.raises(DataError, match="no value term"):
        model.predict(TABLE, quantiles=[0.5])


@pytest.mark.parametrize("quantiles", [[0], [1.0], [0.5, 2], ["a"], "0.5", [True], 7, [float("nan")]])
def test_quantiles_are_probabilities(quantiles):
    with pytest.raises(DataError, match="quantiles are probabilities"):
        fitted("others")[0].predict(TABLE, quantiles=quantiles)


@pytest.mark.parametrize("words", ["--quantiles 0.1 0.5 0.9", "--quantiles 0.1,0.5 --quantiles .9"])
def test_the_shell_takes_quantiles_behind_one_another_or_with_commas(words, tmp_path):
    model = efa(companions=simple.ShrunkMean(), ensemble=2, training=QUICK).fit(TABLE, **BOTH)
    model.save(tmp_path / "m.efattn")
    TABLE.write_parquet(tmp_path / "t.parquet")
    forked("predict", *words.split(), "m.efattn", "t.parquet", "-o", "out.parquet", cwd=tmp_path).good()
    mine = model.predict(TABLE, quantiles=[0.1, 0.5, 0.9])
    assert mine.columns[-3:] == ["real_q10", "real_q50", "real_q90"]
    assert pl.read_parquet(tmp_path / "out.parquet").equals(mine)


def test_the_shell_refuses_quantiles_that_are_none(tmp_path):
    model, _, _ = fitted("others")
    model.save(tmp_path / "m.efattn")
    TABLE.write_parquet(tmp_path / "t.parquet")
    for words in (["--quantiles", "2"], ["--quantiles", "a"], ["--quantiles", "0.5", "50"]):
        answer = forked("predict", "m.efattn", "t.parquet", *words, cwd=tmp_path)
        assert answer.code == 2
        assert "--quantiles takes probabilities" in answer.err


def test_rows_of_unknown_items_have_the_mixture_that_predict_has():
    model = efa(terms="value", ensemble=2, companions=simple.ShrunkMean()).fit(TABLE, **BOTH)
    (one,) = model.fitted_.companions["real"]
    engine = replace(in_double(model.fitted_), companions={"real": (one._replace(share=0.2, new=0.9),)})
    table = TABLE.with_columns(movie=pl.when(pl.int_range(pl.len()) % 3 == 0).then(pl.lit("other")).otherwise("movie"))
    (law,) = inference.predict_distribution(engine, [Table.read(table)], tell=lambda note: None)
    (told,) = inference.predict(engine, [Table.read(table)], quantiles=[0.2], tell=lambda note: None)
    strange = (table["movie"] == "other").to_numpy()
    np.testing.assert_allclose(law.laws[0][1].shares[:, -1].numpy(), np.where(strange, 0.9, 0.2))
    for name, mine in (("mean", law.mean), ("sd", law.sd), ("q20", law.quantiles(0.2))):
        np.testing.assert_allclose(mine, told[f"real_{name}"], rtol=1e-9)


def test_a_law_answers_to_the_usual_names_and_to_numbers_alone():
    law = efa(terms="value", training=QUICK).fit(WEATHER, group="day", value="tmax").predict_distribution(WEATHER)
    np.testing.assert_array_equal(law.quantile(0.3), law.quantiles(0.3))
    np.testing.assert_array_equal(law.log_prob(20.0), law.log_pdf(20.0))
    with pytest.raises(DataError, match="x is a number, or numbers; found 'high'"):
        law.probability(above="high")
