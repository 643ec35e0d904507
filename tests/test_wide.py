"""Wide tables of mixed columns: a row is a group, a column an item with a family of its own."""

import numpy as np
import polars as pl
import pytest
from shell import forked
from small import QUICK, efa

import efattn
from efattn import EFA, DataError, families
from efattn.data import Table, Wide

CELLS = ["age", "visits", "smokes", "colour", "answer", "mood"]


def people(rows=120, seed=0, holes=0.1):
    draw = np.random.default_rng(seed)
    z = draw.normal(size=rows)
    table = pl.DataFrame(
        {
            "name": [f"p{seed}-{k}" for k in range(rows)],
            "age": 40 + 10 * z + draw.normal(size=rows),
            "visits": draw.poisson(np.exp(0.5 + 0.6 * z)),
            "smokes": draw.random(rows) < 1 / (1 + np.exp(-2 * z)),
            "colour": np.array(["red", "azure", "moss"])[np.digitize(z + 0.3 * draw.normal(size=rows), [-0.5, 0.5])],
            "answer": np.clip(np.round(3 + z), 1, 5).astype(int),
            "mood": pl.Series(np.array(["low", "fair", "high"])[np.digitize(z, [-1, 1])]).cast(
                pl.Enum(["low", "fair", "high"])
            ),
        }
    )
    gone = draw.random((rows, len(CELLS))) < holes
    return table.with_columns(
        pl.when(pl.Series(gone[:, c])).then(None).otherwise(pl.col(name)).alias(name) for c, name in enumerate(CELLS)
    )


TABLE = people()


@pytest.fixture(scope="module")
def fitted():
    return efa().fit_wide(TABLE, id="name", progress=False)


def test_each_column_has_a_family_of_its_own_which_is_said(fitted):
    (told,) = [note for note in fitted.notes_ if note.kind == "families"]
    for words in ("gaussian for age", "bernoulli for smokes", "nominal for colour", "ordinal for"):
        assert words in str(told)
    (family,) = fitted.family_.parts
    names = sorted(CELLS)
    assert isinstance(family.parts[family.kinds[names.index("visits")]], families.Poisson | families.NegativeBinomial)
    assert "wide table" in fitted.summary()


def test_levels_that_go_together_are_neighbours(fitted):
    colour = fitted.fitted_.wide.columns[CELLS.index("colour")]
    assert colour.levels in (("red", "azure", "moss"), ("moss", "azure", "red"))


def test_predict_gives_a_wide_table_back(fitted):
    told = fitted.predict(TABLE, quantiles=[0.5])
    assert told.columns[:7] == TABLE.columns
    assert len(told) == len(TABLE)
    for kind in ("mean", "sd", "lower", "upper", "q50"):
        assert told[f"age_{kind}"].is_finite().all()
    assert told["colour_mode"].is_in(["red", "azure", "moss"]).all()
    assert told["smokes_mode"].dtype == pl.Boolean
    np.testing.assert_allclose(told.select(pl.sum_horizontal("^colour_p_.*$")), 1)
    assert {"mood_p_low", "mood_p_fair", "mood_p_high", "smokes_p_true"} <= set(told.columns)
    assert "age_mode" not in told.columns
    assert "age_p_1" not in told.columns


@pytest.mark.parametrize("name", CELLS)
def test_a_cell_never_sees_itself(fitted, name):
    row = TABLE.filter(~pl.any_horizontal(pl.all().is_null()))[:1]
    told = [c for c in fitted.predict(row).columns if c.startswith(f"{name}_")]
    without = row.with_columns(pl.lit(None).cast(row[name].dtype).alias(name))
    both = [fitted.predict(x).select(told) for x in (row, without)]
    for c in told:
        if both[0][c].dtype.is_float():
            np.testing.assert_allclose(both[0][c], both[1][c], rtol=1e-5)
        else:
            assert both[0][c].equals(both[1][c])


def test_a_row_alone_is_told_the_same_as_among_others(fitted):
    among, alone = fitted.predict(TABLE)[7], fitted.predict(TABLE[7])
    for name, dtype in among.schema.items():
        if dtype.is_float():
            np.testing.assert_allclose(among[name].to_numpy(), alone[name].to_numpy(), rtol=1e-5)


def test_laws_of_words_are_asked_in_words(fitted):
    table = people(seed=7, rows=30)
    law, told = fitted.predict_distribution(table)["colour"], fitted.predict(table)
    assert set(law.words) == {"red", "azure", "moss"}
    for number, word in enumerate(law.words):
        np.testing.assert_allclose(law.pmf(word), told[f"colour_p_{word}"], rtol=1e-5)
        np.testing.assert_array_equal(law.pmf(word), law.pmf()[:, number])
    np.testing.assert_array_equal(law.log_score(table["colour"]), law.log_score())
    assert set(law.sample(5).ravel()) <= set(law.words)
    mood = fitted.predict_distribution(table)["mood"]
    np.testing.assert_allclose(mood.probability(above="low"), mood.pmf("fair") + mood.pmf("high"), atol=1e-9)
    with pytest.raises(DataError, match="or words: "):
        law.pmf("mauve")


def test_every_verb_takes_wide_tables(fitted):
    other = people(seed=1)
    scores = fitted.log_likelihood(other)
    each = scores.select(pl.col(f"{name}_log_likelihood") for name in CELLS)
    count = sum(len(other) - other[name].null_count() for name in CELLS)
    assert each.sum().sum_horizontal()[0] / count == pytest.approx(fitted.score(other))
    laws = fitted.predict_distribution(other)
    assert list(laws) == CELLS
    np.testing.assert_allclose(laws["age"].mean, fitted.predict(other)["age_mean"])
    assert fitted.evaluate(other) is not None
    assert fitted.evaluate(other.to_pandas()).items.__class__.__module__.startswith("pandas")
    assert fitted.calibrate(other).predict(other)["age_lower"].is_finite().all()
    with pytest.raises(DataError, match="fit"):
        fitted.calibrate(TABLE)


def test_each_column_of_a_wide_table_is_calibrated_by_itself(tmp_path):
    draw = np.random.default_rng(0)
    train, other, new = (pl.DataFrame(draw.normal(size=(rows, 3)), schema=list("abc")) for rows in (60, 300, 300))
    model = efa(family="gaussian").fit_wide(train, progress=False)
    wild = {"a": pl.col("a") * 4, "b": pl.col("b") / 4}  # of one the laws are now too narrow, of another too wide
    other, new = other.with_columns(**wild), new.with_columns(**wild, c=pl.lit(None, pl.Float64))
    model.calibrate(other)
    assert list(model.fitted_.calibration) == ["a", "b", "c"]
    assert "calibrated by 300 rows" in model.summary()
    laws, told = model.predict_distribution(new), model.evaluate(new).items
    for name in "ab":
        lower, upper = laws[name].interval(0.8)
        inside = new[name].is_between(pl.Series(lower), pl.Series(upper)).mean()
        assert abs(inside - 0.8) < 0.1
        assert told.filter(column=name)["value_inside@0.8"].item() == pytest.approx(inside)
        said = model.predict(new, 0.8)
        np.testing.assert_allclose(said[f"{name}_lower"], lower, rtol=1e-6)
        np.testing.assert_allclose(said[f"{name}_upper"], upper, rtol=1e-6)
    filled = model.impute(new, interval=0.8)
    np.testing.assert_allclose(filled["c_upper"], laws["c"].interval(0.8)[1], rtol=1e-6)
    model.save(tmp_path / "m.efattn")
    assert efattn.load(tmp_path / "m.efattn").predict(new).equals(model.predict(new))
    blank = other.head(40).with_columns(b=pl.when(pl.int_range(pl.len()) < 3).then("b"))
    assert list(efa(family="gaussian").fit_wide(train, progress=False).calibrate(blank).fitted_.calibration) == [
        "a",
        "c",
    ]


def test_rows_without_names_that_are_alike_by_chance_are_left_out_of_a_calibration():
    draw = np.random.default_rng(0)
    train, other = (pl.DataFrame(draw.normal(size=(rows, 2)), schema=list("ab")) for rows in (40, 30))
    model = efa(family="gaussian").fit_wide(train, progress=False)
    one, both = model.calibrate(other).fitted_.calibration["a"], pl.concat([other, train.head(4)])
    again = model.calibrate(both).fitted_.calibration["a"]
    assert one.rows == again.rows == 30
    np.testing.assert_allclose(one.adjusted, again.adjusted, atol=0.02)
    with pytest.raises(DataError, match="were there when this model was fitted"):
        model.calibrate(pl.concat([other.head(10), train]))


def test_files_keep_columns_and_levels(fitted, tmp_path):
    fitted.save(tmp_path / "m.efattn")
    again = efattn.load(tmp_path / "m.efattn")
    assert again.fitted_.wide == fitted.fitted_.wide
    assert again.predict(TABLE).equals(fitted.predict(TABLE))


def test_frames_come_back_as_they_went_in(fitted):
    told = fitted.predict(TABLE.to_pandas())
    assert type(told).__module__.startswith("pandas")
    np.testing.assert_allclose(told["age_mean"], fitted.predict(TABLE)["age_mean"])


def test_tables_without_rows_or_entries_are_answered(fitted):
    none = fitted.predict(TABLE[:0])
    assert none.columns == fitted.predict(TABLE[:2]).columns
    assert fitted.impute(TABLE[:0]).columns[:7] == TABLE.columns
    empty = TABLE[:2].with_columns(pl.lit(None).cast(TABLE[name].dtype).alias(name) for name in CELLS)
    for one in [fitted.impute(empty), *fitted.impute(empty, draws=2)]:
        assert one.select(TABLE.columns).null_count().sum_horizontal()[0] == 0
        assert one["mood"].dtype == TABLE["mood"].dtype


def test_columns_that_are_not_there_are_missing(fitted):
    with pytest.warns(efattn.EfattnWarning, match="count as missing"):
        told = fitted.predict(TABLE.drop("colour"))
    assert told["colour_p_red"].is_between(0, 1).all()


def test_what_cannot_be_is_refused_by_its_column(fitted):
    with pytest.raises(DataError, match="'visits'") as caught:
        fitted.predict(TABLE.with_columns(pl.lit(-3).alias("visits")))
    assert caught.value.column == "visits"
    with pytest.raises(DataError, match="'purple' at row 0"):
        fitted.predict(TABLE.with_columns(pl.lit("purple").alias("colour")))
    with pytest.raises(DataError, match="names each row once"):
        efa().fit_wide(pl.concat([TABLE, TABLE]), id="name")
    with pytest.raises(DataError, match="others"):
        EFA(context="past").fit_wide(TABLE)
    with pytest.raises(DataError, match="'agee'"):
        efa(family={"agee": "gaussian"}).fit_wide(TABLE, id="name")


def test_families_may_be_asked_for():
    model = efa(family={"age": families.StudentT()}).fit_wide(TABLE, id="name", exclude="mood", progress=False)
    (family,) = model.family_.parts
    assert families.StudentT() in family.parts
    assert "mood" not in model.fitted_.wide.names


def test_zeros_of_their_own_are_told_of_and_drawn_where_they_are_asked_for():
    draw = np.random.default_rng(0)
    rain = np.where(draw.random(len(TABLE)) < 0.5, draw.gamma(2, 3, len(TABLE)), 0.0)
    table = TABLE.select("age", "colour").with_columns(rain=pl.Series(rain))
    (note,) = (one for one in efa().fit_wide(table, progress=False).notes_ if one.kind == "zeros")
    assert note.column == "rain"
    assert "zero_or" in str(note)
    model = efa(family={"rain": "zero_or"}).fit_wide(table, progress=False)
    assert not any(one.kind == "zeros" for one in model.notes_)
    drawn = model.impute(table.with_columns(rain=pl.lit(None, pl.Float64)), draws=1)[0]["rain"]
    assert 0.2 < (drawn == 0).mean() < 0.8
    assert drawn.min() == 0


def test_names_and_dates_are_left_out_and_said():
    many = pl.DataFrame(
        {
            "x": np.arange(60.0),
            "note": [f"note {k}" for k in range(60)],
            "day": ["2024-01-01"] * 60,
            "nothing": pl.Series([None] * 60, dtype=pl.Float64),
            "code": ["-9"] * 30 + ["7"] * 30,
        }
    )
    wide, notes = Wide.fit(Table.read(many), missing=-9)
    assert wide.names == ("x", "code")
    assert [note.column for note in notes] == ["note", "day", "nothing"]
    assert np.isnan(wide.codes(Table.read(many))[:30, 1]).all()


def test_rows_are_known_by_what_they_hold():
    wide, _ = Wide.fit(Table.read(TABLE), exclude=["name"])
    one, two = wide.long(Table.read(TABLE)).native, wide.long(Table.read(TABLE[::-1])).native
    assert set(one["row"]) == set(two["row"])
    assert len(set(one["row"])) == len(TABLE)
    twins = wide.long(Table.read(pl.concat([TABLE[:1]] * 2))).native
    assert twins["row"].n_unique() == 2


def test_a_shell_gives_what_python_gives(tmp_path):
    table = people(60).select("name", "age", "smokes", "colour")
    table.write_csv(tmp_path / "people.csv")
    options = ["--epochs", "2", "--tokens", "64", "--width", "8", "--layers", "2", "--heads", "2", "--device", "cpu"]
    options += ["--companions", "none", "--no-refit", "--no-compare"]
    source, model = str(tmp_path / "people.csv"), str(tmp_path / "m.efattn")

    def run(*words):
        forked(*words, cwd=tmp_path).good()

    run("fit", source, "--wide", "--id", "name", "-o", model, *options)
    run("predict", model, source, "-o", str(tmp_path / "told.csv"))
    run("impute", model, source, "-o", str(tmp_path / "filled.csv"))
    run("impute", model, source, "--draws", "2", "--seed", "3", "-o", str(tmp_path / "drawn.csv"))
    here = efa(training=QUICK).fit_wide(pl.read_csv(source), id="name", progress=False)
    for told, mine in (("told", here.predict(pl.read_csv(source))), ("filled", here.impute(pl.read_csv(source)))):
        shell = pl.read_csv(tmp_path / f"{told}.csv")
        assert shell.columns == mine.columns
        np.testing.assert_allclose(shell["age"], mine["age"])
        assert shell["colour"].equals(mine["colour"])
    drawn = pl.read_csv(tmp_path / "drawn.csv")
    several = here.impute(pl.read_csv(source), draws=2, seed=3)
    for k, mine in enumerate(several, start=1):
        np.testing.assert_allclose(drawn.filter(pl.col("draw") == k)["age"], mine["age"])


def test_a_shell_tells_of_each_column_in_its_own_units(fitted, tmp_path):
    fitted.save(tmp_path / "m.efattn")
    people(seed=1).write_parquet(tmp_path / "t.parquet")
    told = forked("evaluate", "m.efattn", "t.parquet", cwd=tmp_path).good().out
    assert "promised by its 90% interval" in told
    assert all(name in told for name in CELLS)
    assert told.count("mse") == 1
