"""What goes wrong on a first day is told by column, row and remedy."""

import datetime

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from shell import forked
from small import QUICK, efa

from efattn import DataError, families
from efattn.cli import report

DRAW = np.random.default_rng(0)
TABLE = pd.DataFrame({"g": np.repeat(np.arange(12), 4), "t": np.tile(np.arange(4), 12), "y": DRAW.normal(size=48)})
ROLES = {"group": "g", "value": "y", "order": "t", "progress": False}


def fit(table, **roles):
    return efa(family="gaussian", training=QUICK).fit(table, **{**ROLES, **roles})


def refused(table, **roles):
    with pytest.raises(DataError) as told:
        fit(table, **roles)
    return told.value


def test_one_word_among_numbers_is_one():
    text = refused(TABLE.assign(y=[*map(str, TABLE.y[:-1]), "high"]))
    assert "'high' at row 47." in str(text)
    assert (text.column, text.row) == ("y", 47)
    assert "'high' at row 0 (and 1 more)." in str(refused(TABLE.assign(y=["high", "low", *map(str, TABLE.y[2:])])))


def test_of_dates_the_one_that_is_written_otherwise_is_named():
    days = [str(datetime.date(2024, 1, 1 + k % 28)) for k in range(48)]
    odd = refused(TABLE.assign(t=[*days[:30], "31/12/2024", *days[31:]]))
    assert (odd.column, odd.row) == ("t", 30)
    assert "'31/12/2024' at row 30" in str(odd)


def test_a_whole_number_too_long_for_a_computer_is_named():
    odd = refused(TABLE.assign(y=pd.Series([1, 2, 10**30, *range(45)], dtype=object)))
    assert (odd.column, odd.row) == ("y", 2)
    assert "astype(float)" in str(odd)


def test_names_are_text():
    assert "columns.map(str)" in str(refused(TABLE.rename(columns={"y": 3}), value=3))


@pytest.mark.parametrize(
    ("table", "remedy"),
    [
        ([{"g": 1, "y": 2.0}], "polars.DataFrame(rows)"),
        (np.zeros((3, 2)), "polars.DataFrame(array"),
        (TABLE.y, "to_frame()"),
        (pa.Table.from_pandas(TABLE).to_batches()[0], "from_batches"),
    ],
)
def test_what_is_no_table_is_told_how_to_become_one(table, remedy):
    assert remedy in str(refused(table))


@pytest.mark.parametrize("validation", ["some", 2.5, 1, -0.1])
def test_a_validation_that_is_none_is_called_so(validation):
    told = refused(TABLE, validation=validation)
    assert told.option == "validation"
    assert f"validation={validation!r} is n" in str(told)


def test_so_is_that_of_an_update():
    with pytest.raises(DataError, match="validation='some' is none of"):
        fit(TABLE).update(TABLE, validation="some", progress=False)


def test_a_wide_table_is_told_by_rows_and_columns(capsys):
    efa(training=QUICK).fit_wide(pl.DataFrame({"a": DRAW.normal(size=12), "b": DRAW.normal(size=12)}))
    assert "efattn: 12 rows, 2 columns to model; " in capsys.readouterr().err


def test_items_are_no_remedy_where_there_are_none():
    assert "items" not in str(refused(TABLE.assign(y=np.nan)))


def test_nothing_but_nulls_cannot_be_evaluated():
    with pytest.raises(DataError, match="No row of this table can be evaluated"):
        fit(TABLE).evaluate(TABLE.assign(y=np.nan))


def test_fit_wide_names_what_it_takes():
    with pytest.raises(TypeError, match="'group'; it takes checkpoint"):
        efa().fit_wide(TABLE, group="g")


def test_a_family_of_many_items_is_told_in_brief():
    family = families.PerItem((families.Gaussian(), families.Poisson()), (0, 1) * 500)
    assert family.brief == "PerItem(Gaussian(variance='learned'), Poisson(shift=0, link='log'))"


def test_the_shell_says_what_it_took_for_what(tmp_path):
    pl.DataFrame({"a": [1.5, 2.5, None, 4.0] * 3, "b": ["x", "y", "z", "x"] * 3}).write_csv(tmp_path / "w.csv")
    (tmp_path / "t.json").write_text('[{"a": 1}]')
    words = ["--wide", "--steps", "2", "--companions", "none", "--no-refit", "--no-compare", "-o", "m.efattn"]
    told = forked("fit", "w.csv", *words, cwd=tmp_path).good()
    assert "w.csv: 12 rows, 2 columns to model; 3 of 24 cells are empty." in told.err
    assert "as asked" not in told.err
    told = forked("predict", "w.csv", "m.efattn", cwd=tmp_path)
    assert (told.code, "MODEL comes first" in told.err) == (2, True)
    told = forked("fit", "t.json", "--value", "a", "-o", "n.efattn", cwd=tmp_path)
    assert (told.code, "is JSON" in told.err) == (2, True)


def test_without_items_the_verdict_names_none():
    scores = {"model": -1.0, "network": None, "latent": None, "marginal": -2.0}
    assert "one distribution for all rows" in report._sentence("EFA", "y", scores, items=False)
