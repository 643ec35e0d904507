"""compare: every model on the same rows, each group scored once, differences with standard errors over groups."""

import json

import numpy as np
import polars as pl
import pytest
from shell import forked
from small import QUICK, efa, ratings, weather
from test_plots import panels

from efattn import DataError, LatentFactor, SimpleModel, simple
from efattn.comparing import Comparison, compare, runs
from efattn.comparing.comparison import paired, standing
from efattn.data import group_folds

TABLE = ratings(users=20)
ROLES = {"group": "user", "item": "movie", "value": "real"}
SMALL = {"terms": "value", "width": 8, "training": QUICK, "companions": None, "refit": False, "family": "gaussian"}
MODELS = ["EFA", "ShrunkMean", "ItemMean"]


@pytest.fixture(scope="module")
def comparison():
    return compare(TABLE, **ROLES, models=MODELS, folds=3, progress=False, **SMALL)


def test_each_group_is_scored_once_and_all_models_on_the_same_rows(comparison):
    for model in MODELS:
        terms = [run["terms"]["real"] for run in comparison.runs if run["model"] == model]
        groups = [g for one in terms for g in one["group"]]
        assert sorted(groups) == list(range(TABLE["user"].n_unique()))
        assert sum(n for one in terms for n in one["rows"]) == len(TABLE)


def test_the_mean_is_that_of_a_model_fitted_to_the_other_folds_by_hand(comparison):
    total = 0.0
    for train, test in group_folds(TABLE, "user", 3, 0):
        model = SimpleModel(simple.ShrunkMean(), family="gaussian", training=QUICK)
        model.fit(TABLE[train], **ROLES, validation=None, progress=False)
        total += model.log_likelihood(TABLE[test])["real_log_likelihood"].sum()
    line = next(x for x in comparison.lines if x.model == "ShrunkMean")
    assert line.log_likelihood == pytest.approx(total / len(TABLE), abs=1e-6)


def test_the_standard_error_is_clustered_by_group():
    rows, draw = np.array([1.0, 4.0, 2.0, 3.0]), np.random.default_rng(0)
    gap = draw.normal(size=4)
    mean, error = paired(gap, rows)
    assert mean == pytest.approx(gap.sum() / 10)
    assert error == pytest.approx(np.sqrt(4 / 3 * np.sum((gap - rows * mean) ** 2)) / 10)
    assert paired(np.tile(gap, 2), np.tile(rows, 2))[1] < error
    assert [standing(x, 1.0) for x in (-3.0, 1.0, 3.0)] == ["behind", "level", "ahead"]


def test_the_verdict_says_when_the_simple_model_is_enough(comparison):
    def run(model, sums):
        terms = {"y": {"group": list(range(6)), "rows": [2.0] * 6, "sum": sums}}
        return {"model": model, "fold": 0, "options": "", "seconds": 1.0, "terms": terms}

    def verdict(sums):
        return Comparison({}, ("EFA", "LinearModel"), {}, [run("EFA", [0.0] * 6), run("LinearModel", sums)]).verdict

    assert "level with EFA (difference +0.000 ± 0.224): the simple model is enough" in verdict([1.0, -1.0] * 3)
    assert verdict([2.0, 2.1] * 3).startswith("LinearModel is ahead of EFA by 1.025")
    assert verdict([-2.0, -2.1] * 3).startswith("EFA is ahead of every other model; the nearest, LinearModel")


def test_what_a_model_does_not_see_is_found_by_shuffling_it():
    table = TABLE.with_columns(x=pl.col("x") * 3)
    found = compare(
        table,
        **ROLES,
        attributes=["x", "z"],
        models=["EFA", "ShrunkMean"],
        folds=2,
        progress=False,
        **SMALL,
    )
    lacks = {line.model: line.lacks for line in found.lines}
    assert lacks == {"EFA": "", "ShrunkMean": "attributes"}


def test_what_does_not_suit_the_table_is_named_with_its_reason():
    table = TABLE.with_columns(count=pl.col("count"))
    found = compare(
        table, group="user", item="movie", value="count", exposure="hours", folds=2, progress=False,
        models=["EFA", "ShrunkMean", "Persistence", LatentFactor(width=4, training=QUICK)],
        **{**SMALL, "family": "poisson"},
    )  # fmt: skip
    assert found.out.keys() == {"ShrunkMean", "Persistence"}
    assert "exposure" in found.out["ShrunkMean"]
    assert found.models == ("EFA", "LatentFactor")


def test_all_peers_of_a_term_compete_unless_said():
    found = compare(TABLE, group="user", item="movie", folds=2, progress=False, **{**SMALL, "terms": None})
    assert {"EFA", "LatentFactor", "Popularity", "AdditiveLogit"} <= {*found.models}
    assert "MarkovChain" in found.out
    assert "ItemMean" not in {*found.out, *found.models}


def test_models_may_be_estimators_and_simple_models(tmp_path):
    mine = efa(terms="value", family="gaussian")
    models = [mine, SimpleModel(simple.ItemMean()), simple.ShrunkMean()]
    found = compare(TABLE, **ROLES, models=models, folds=2, progress=False)
    assert found.models == ("EFA", "ItemMean", "ShrunkMean")
    with pytest.raises(DataError, match="set it there"):
        compare(TABLE, **ROLES, models=models, width=4)
    with pytest.raises(DataError, match="ShrunkMean"):
        compare(TABLE, **ROLES, models=["shrunkmeen"], progress=False, **SMALL)
    with pytest.raises(DataError, match="folds is a whole number, 2 or more; found 1"):
        compare(TABLE, **ROLES, folds=1)
    with pytest.raises(DataError, match="no option 'widht'"):
        compare(TABLE, **ROLES, widht=4)


def test_finished_fits_are_not_made_again(tmp_path, monkeypatch):
    path = tmp_path / "c.json"
    first = compare(TABLE, **ROLES, models=MODELS[:2], folds=2, progress=False, output=path, **SMALL)
    made = []
    run = runs.run
    monkeypatch.setattr(runs, "run", lambda task: made.append((task.model, task.fold)) or run(task))
    again = compare(TABLE, **ROLES, models=MODELS, folds=2, progress=False, output=path, **SMALL)
    assert made == [("ItemMean", 0), ("ItemMean", 1)]
    assert again.lines[0]._asdict() in [line._asdict() for line in first.lines]
    assert Comparison.read(path) == again
    assert json.loads(path.read_text())["verdict"] == again.verdict
    with pytest.raises(DataError, match="another comparison: its folds differ"):
        compare(TABLE, **ROLES, models=MODELS, folds=3, progress=False, output=path, **SMALL)


@pytest.mark.slow
def test_side_by_side_is_the_same_as_one_after_the_other(comparison):
    beside = compare(TABLE, **ROLES, models=MODELS[1:], folds=3, jobs=2, progress=False, **SMALL)
    mine = {line.model: line.log_likelihood for line in comparison.lines}
    for line in beside.lines:
        assert line.log_likelihood == pytest.approx(mine[line.model], abs=1e-5)


def test_a_simple_model_trained_by_steps_is_fitted_once_more_to_all_groups():
    roles, some = {"group": "user", "item": "movie"}, {"training": QUICK, "progress": False}
    found = compare(TABLE, **roles, models=["AdditiveLogit"], folds=2, progress=False, **{**SMALL, "terms": None})
    assert "'refit': True" in next(run["options"] for run in found.runs if run["model"] == "AdditiveLogit")
    first, again = (
        SimpleModel(simple.AdditiveLogit(), training=some["training"], refit=refit) for refit in (False, True)
    )
    for model in (first, again):
        model.fit(TABLE, **roles, validation=0.2, progress=False)
    assert first.score(TABLE) != again.score(TABLE)
    assert again.score(TABLE) == pytest.approx(first.score(TABLE), abs=0.5)


def test_values_that_only_test_groups_have_are_no_error():
    table = TABLE.with_columns(level=pl.when(pl.col("user") == "u3").then(9).otherwise(pl.col("rating")))
    found = compare(
        table, group="user", item="movie", value="level", models=["EFA", "ItemMean"], folds=2, progress=False,
        **{**SMALL, "family": "ordinal"},
    )  # fmt: skip
    assert sum(run["terms"]["level"]["rows"][0] > 0 for run in found.runs) == 4


def test_lags_are_compared_over_spans_of_time():
    found = compare(
        weather(), group="day", time="day", item="station", value="tmax", lags=1, folds=2, progress=False,
        models=["EFA", "Persistence", "LatentFactor"], **SMALL,
    )  # fmt: skip
    assert found.models == ("EFA", "Persistence")
    assert "lags" in found.out["LatentFactor"]
    assert [run["terms"]["tmax"]["group"][0] for run in found.runs if run["model"] == "EFA"] == [0, 12]


@pytest.mark.parametrize(("roles", "said"), [({}, "compared over groups"), ({"group": "one"}, "There is one group")])
def test_one_group_is_a_clear_error(roles, said):
    with pytest.raises(DataError, match=said):
        compare(TABLE.with_columns(one=1), item="movie", value="real", progress=False, **roles, **SMALL)


def test_fewer_groups_than_folds_are_a_fold_each():
    table = TABLE.filter(pl.col("user").is_in(["u1", "u2", "u3"]))
    found = compare(table, **ROLES, models=MODELS, progress=False, **SMALL)
    assert found.about["folds"] == found.about["groups"] == 3


def test_the_picture_has_a_dot_for_each_other_model(comparison):
    assert len(panels(comparison.plot())[0].get_yticks()) == len(MODELS) - 1
    with pytest.raises(DataError, match="nothing to draw"):
        Comparison(comparison.about, ("EFA",), {}, [r for r in comparison.runs if r["model"] == "EFA"]).plot()


def test_the_shell_says_what_python_says(comparison, tmp_path):
    TABLE.write_parquet(tmp_path / "t.parquet")
    words = ["compare", tmp_path / "t.parquet", "--group", "user", "--item", "movie", "--value", "real"]
    words += ["--terms", "value", "--width", 8, "--companions", "none", "--no-refit", "--family", "gaussian"]
    words += ["--epochs", 2, "--tokens", 64, "--device", "cpu", "--folds", 3, "--models", ",".join(MODELS)]
    done = forked(*words, "--json", "-o", tmp_path / "c.json", "--plot", tmp_path / "c.png", cwd=tmp_path)
    assert done.code == 0
    told = json.loads(done.out)
    assert told["verdict"] == comparison.verdict
    both = [[{**line, "seconds": 0} for line in one["table"]] for one in (told, comparison.to_json())]
    assert both[0] == both[1]
    assert (tmp_path / "c.png").read_bytes().startswith(b"\x89PNG")
    shown = forked(*words, "-o", tmp_path / "c.json", cwd=tmp_path)
    assert comparison.verdict in " ".join(shown.out.split())


def test_pandas_frames_give_pandas_tables():
    pytest.importorskip("pandas")
    found = compare(TABLE.to_pandas(), **ROLES, models=["EFA", "ItemMean"], folds=2, progress=False, **SMALL)
    assert type(found.table).__module__.startswith("pandas")
