"""What a fit says while it runs and afterwards: lines, warnings, units, kinds of frames."""

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from small import QUICK, efa, latent, ratings, weather

import efattn
from efattn import DataError, EfattnWarning, SimpleModel, simple

TABLE, WEATHER = ratings(users=24), weather()
ROLES = {"group": "user", "item": "movie", "value": "rating"}


def test_off_a_terminal_a_fit_says_a_line_per_stage(capsys):
    efa(companions=simple.ShrunkMean()).fit(TABLE, **ROLES)
    out, err = capsys.readouterr()
    lines = err.splitlines()
    assert out == ""
    assert all(line.startswith("efattn: ") for line in lines)
    assert "rows in 24 groups, 8 items" in lines[0]
    assert "Family of 'rating': Ordinal" in err
    assert "'item' fitted, epochs: 2" in err
    assert "'rating' fitted, epochs: 2" in err
    assert "ShrunkMean" in lines[-1]


def test_one_of_a_kind_is_told_in_the_singular(capsys):
    model = SimpleModel(simple.ShrunkMean(), family="gaussian")
    told = model.fit(TABLE.head(1), **ROLES, validation=None).summary()
    assert "1 row in 1 group, 1 item; 0 held out." in capsys.readouterr().err
    assert "Fitted to 1 row in 1 group, 1 item." in told


def test_a_silent_fit_is_silent(capsys):
    efa().fit(TABLE, **ROLES, progress=False)
    assert capsys.readouterr() == ("", "")
    with pytest.raises(DataError, match="progress is True, False or None"):
        efa().fit(TABLE, **ROLES, progress="yes")


def test_in_a_notebook_there_is_a_bar(monkeypatch, capsys):
    class Shell:
        kernel = object()

    class Module:
        @staticmethod
        def get_ipython():
            return Shell()

    from efattn.estimators.progress import Stages

    monkeypatch.setitem(__import__("sys").modules, "IPython", Module())
    assert Stages(None).with_bar
    assert not Stages(None).with_lines


def test_what_should_not_be_missed_is_a_warning():
    model = efa().fit(TABLE, **ROLES)
    strange = TABLE.with_columns(movie=pl.when(pl.int_range(pl.len()) == 3).then(pl.lit("?")).otherwise("movie"))
    for verb in (model.score, model.predict, model.recommend, model.log_likelihood):
        with pytest.warns(EfattnWarning, match=r"Unknown items in 1 of \d+ rows .*movie '\?' at row 3"):
            verb(strange)
    with pytest.warns(EfattnWarning, match="Did you mean 'Rating'"):
        model.predict(TABLE.rename({"rating": "Rating"}))


def test_notes_are_data_and_text():
    model = efa().fit(TABLE, **ROLES)
    note = next(note for note in model.notes_ if note.kind == "family")
    assert note.column == "rating"
    assert str(note) == "Family of 'rating': Ordinal(levels=5, low=1) (whole numbers from 1 to 5)."
    assert f"Note: {note}" in model.summary()


def test_a_summary_is_in_the_tables_units():
    small = efa(terms="value").fit(WEATHER, group="day", item="station", value="tmax")
    large = WEATHER.with_columns(tmax=pl.col("tmax") * 1000)
    scaled = efa(terms="value").fit(large, group="day", item="station", value="tmax")

    def told(model):
        (line,) = (line for line in model.summary().splitlines() if "training log-likelihood" in line)
        return float(line.split("training log-likelihood ")[1].split(";")[0])

    assert told(small) - told(scaled) == pytest.approx(6.9078, abs=0.01)  # log 1000
    assert told(small) == pytest.approx(small.score(WEATHER), abs=0.5)


MAKERS = {"pandas": lambda t: t.to_pandas(), "polars": lambda t: t, "pyarrow": lambda t: t.to_arrow()}
KINDS = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "pyarrow": pa.Table}


@pytest.mark.parametrize("kind", MAKERS)
def test_every_answer_is_of_the_kind_of_frame_that_was_fitted(kind, tmp_path):
    frame = MAKERS[kind](TABLE)
    model = efa().fit(frame, **ROLES)
    model.save(tmp_path / "m.efattn")
    for one in (model, efattn.load(tmp_path / "m.efattn")):
        answers = [one.predict(frame), one.log_likelihood(frame), one.recommend(frame), one.recommend()]
        answers += [one.similar("m1"), one.embeddings()]
        assert all(isinstance(answer, KINDS[kind]) for answer in answers)


def test_a_wide_table_is_told_how_to_become_long():
    wide = pl.DataFrame({"day": [1, 2, 3], "wind": [1.0, 2.0, 3.0], "rain": [0.1, 0.2, 0.5], "sun": [5.0, 4.0, 2.0]})
    with pytest.raises(DataError, match=r"wide table.*from_wide\(table, group=\['day'\]\)") as error:
        efa().fit(wide, group="day", value=["wind", "rain", "sun"])
    assert error.value.column == "wind"
    long = efattn.from_wide(wide, group=["day"])
    assert efa(terms="value").fit(long, group="day", item="item", value="value", validation=None) is not None


@pytest.mark.parametrize("make", [efa, latent, lambda: SimpleModel(simple.ItemMean())], ids=["efa", "latent", "simple"])
def test_every_option_of_fit_is_described(make):
    words = type(make()).fit.__doc__
    for name in ("group", "item", "attributes", "order", "exposure", "validation", "checkpoint", "progress"):
        assert name in words


def test_gaussians_of_many_items_are_told_of_while_they_are_fitted():
    told = []
    from efattn.estimators.companions import fitted_simple
    from efattn.estimators.progress import Stages
    from efattn.simple.gaussian import WEIGHTS

    class Listener(Stages):
        def tick(self, what, step, steps, **labels):
            told.append((what, step, steps))

    model = SimpleModel(simple.GaussianConditional(seconds=0.01), training=QUICK)
    kept = []
    model.fit(WEATHER, group="day", item="station", value="tmax", planned=kept.append)
    fitted_simple(model.model, kept[0], "others", QUICK, 0, Listener(False))
    assert told[0] == ("GaussianConditional", 0, len(WEIGHTS))
