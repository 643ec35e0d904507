"""Each group held out once: folds that are fitted without it choose, tell and predict together."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from shell import BRIEF as SHORT
from shell import forked
from small import efa, ratings, weather
from small_training import ROLES, STEPS, TABLE, Stop, dying_at, model, same, without_seconds

import efattn
from efattn import DataError, inference, simple
from efattn.data import Roles, Table
from efattn.data.folds import parts_in_turn, rows_apart
from efattn.estimators import companions, shares
from efattn.estimators.preparing import prepare
from efattn.estimators.verdict import verdict
from efattn.training import forget, left_in

COMPANIONS = [simple.LinearModel(penalty=10.0), simple.ItemMean()]
BRIEF = replace(STEPS, epochs=2)


def folded(table=TABLE, roles=ROLES, **options):
    """A model, and what it was planned from."""
    told, validation = [], options.pop("validation", "auto")
    made = model(training=BRIEF, refit="auto", **{"companions": COMPANIONS, "terms": "value", **options})
    return made.fit(table, **roles, validation=validation, planned=told.append), told[0]


def planned(table, validation="auto", context="others", **columns):
    sizes = {"lags": 1} if "time" in columns else {}
    options = {"terms": None, "support": "auto", "standardise": "auto", "seed": 0, "sizes": sizes, "family": "auto"}
    return prepare(table, Roles(**columns), validation=validation, context=context, folds=True, **options)


def weights(fitted):
    return {f"{k}.{name}": x for k, one in enumerate(fitted.members_) for name, x in one.state_dict().items()}


@pytest.mark.parametrize("ensemble", [1, 2])
def test_a_small_table_is_fitted_in_folds_and_predicted_by_all_of_them(tmp_path, ensemble):
    fitted, blueprint = folded(ensemble=ensemble)
    assert len(blueprint.folds) == 5
    assert len(fitted.members_) == 5 * ensemble
    assert [record["fold"] for record in fitted.history_] == sorted(record["fold"] for record in fitted.history_)
    assert {record["member"] for record in fitted.history_} == set(range(5 * ensemble))
    assert "Fold 5: " in fitted.summary()
    assert "held out once, in 5 folds" in fitted.summary()
    fitted.save(tmp_path / "m.efattn")
    again = efattn.load(tmp_path / "m.efattn")
    assert again.score(TABLE) == pytest.approx(fitted.score(TABLE), rel=1e-6)
    assert np.isfinite(again.update(ratings(seed=3), validation=0.2).score(TABLE))


def test_the_shell_makes_folds_and_says_so(tmp_path):
    TABLE.write_csv(tmp_path / "t.csv")
    words = ["fit", "t.csv", "--group", "user", "--item", "movie", "--value", "real", "--terms", "value", *SHORT]
    words += ["--companions", "ItemMean", "--compare", "--json", "-o", "m.efattn", "--validation", "3"]
    told = forked(*words, cwd=tmp_path).good()
    assert "Held out: each group once, in 3 folds." in told.err
    assert np.isfinite(told.json()["held_out"]["real"]["model"])
    assert len(efattn.load(tmp_path / "m.efattn").members_) == 3


def test_each_group_is_held_out_once_and_gone_from_what_its_fold_knows():
    _, blueprint = folded()
    held = np.concatenate([fold.held.rows for fold in blueprint.folds])
    assert sorted(held) == list(range(len(TABLE)))
    for fold in blueprint.folds:
        assert not {*fold.train.numbers} & {*fold.held.numbers}
        value = fold.train.value
        assert np.nanmean(value) == pytest.approx(0, abs=1e-6)  # in units of its own


def test_what_is_told_is_of_groups_that_nothing_had_seen():
    fitted, blueprint = folded()
    total = 0.0
    for first, fold in zip(fitted.first_fits_, blueprint.folds, strict=True):
        rows = TABLE[np.sort(fold.held.rows)]
        total += inference.score(first, [Table.read(rows)])["mean_log_likelihood"] * len(rows)
    told = verdict(fitted, blueprint)["real"]
    assert told["model"] == pytest.approx(total / len(TABLE), rel=1e-4)
    assert told["network"] != told["model"]
    (note,) = (str(note) for note in fitted.notes_ if note.kind == "companions")
    assert f"together {told['model']:.4f}" in note
    assert f"networks alone {told['network']:.4f}" in note


def test_a_network_is_judged_as_if_other_folds_had_stopped_it():
    scores = [[-3.0, -2.0, -2.5], [-3.0, -2.2, -2.1], [-3.0, -1.5], [-4.0, -1.0, -2.0]]
    history = [
        {"term": "real", "member": k, "fold": k, "validation": score} for k, mine in enumerate(scores) for score in mine
    ]
    assert shares.optimism(history, "real") == pytest.approx(np.median([0.0, 0.1, 0.0, 0.0]))
    assert shares.optimism([record for record in history if record["fold"] < 2], "real") == 0
    assert shares.optimism(history, "item") == 0
    jumpy = [{**record, "validation": record["validation"] - (record["fold"] == 3) * 9} for record in history]
    assert shares.optimism(jumpy, "real") == 0  # one odd fold decides nothing


def test_companions_are_fitted_to_all_groups_and_keep_their_shares():
    fitted, _ = folded()
    whole = {type(one.recipe): one for one in fitted.companions_["real"]}
    for first in fitted.first_fits_:
        for one in first.companions["real"]:
            other = whole[type(one.recipe)]
            assert one.share == other.share
            assert one.recipe == other.recipe
            assert not same(one.model.state_dict(), other.model.state_dict())


def test_companions_choose_again_where_each_group_was_held_out_once():
    """How much to shrink: beside folds as by itself on all groups; where a share was held out it keeps its choice."""
    options = {"training": BRIEF, "terms": "value", "companions": simple.GaussianConditional(), "refit": "auto"}
    alone = efattn.SimpleModel(simple.GaussianConditional(), family="gaussian").fit(TABLE, **ROLES, validation=None)
    (wanted,) = (part.chosen_options() for part in alone.model_.modules() if isinstance(part, simple.DirectlyFitted))
    for validation, chosen in ((3, wanted), (0.3, {})):
        fitted = model(family="gaussian", **options).fit(TABLE, **ROLES, validation=validation)
        assert [one.model.chosen_options() for one in fitted.companions_["real"]] == [chosen]


def test_all_groups_are_shrunk_as_much_as_the_middle_fold():
    assert companions._middle([3.0, 1.0, 2.0, 9.0]) == 2.0
    assert companions._middle([(1.0, 5.0), (2.0, 3.0), (3.0, 4.0)]) == (2.0, 4.0)
    assert companions._middle([((0.1, 5),), ((0.3, 2), (0.1, 4)), ()]) == ((0.1, 5),)


@pytest.mark.parametrize("ensemble", [1, 2])
def test_folds_that_are_resumed_are_the_same(tmp_path, monkeypatch, ensemble):
    options = {"training": BRIEF, "refit": "auto", "ensemble": ensemble, "terms": "value"}
    whole = model(**options).fit(TABLE, **ROLES, validation=3)
    count = dying_at(monkeypatch, -1)
    model(**options).fit(TABLE, **ROLES, validation=3, checkpoint=tmp_path)
    forget(tmp_path)
    for number in sorted({2, count[0] // 2, count[0]}):
        monkeypatch.undo()
        dying_at(monkeypatch, number)
        with pytest.raises(Stop):
            model(**options).fit(TABLE, **ROLES, validation=3, checkpoint=tmp_path)
        monkeypatch.undo()
        assert left_in(tmp_path)
        resumed = model(**options).fit(TABLE, **ROLES, validation=3, checkpoint=tmp_path, resume=True)
        assert same(weights(resumed), weights(whole)), number
        assert without_seconds(resumed.history_) == without_seconds(whole.history_)
        forget(tmp_path)
        assert not list(tmp_path.iterdir())


def test_folds_are_for_small_tables_that_are_fitted_to_all_groups():
    def folds(**options):
        return len(prepare_all(**options).folds)

    def prepare_all(table=TABLE, **options):
        return planned(table, **{"group": "user", "item": "movie", "value": "real", **options})

    assert folds() == 5
    assert folds(validation=0.2) == folds(validation=None) == 0
    assert folds(validation=3) == 3
    assert folds(table=TABLE.filter(pl.col("user").is_in(["u1", "u2", "u4"]))) == 3
    one = (pl.col("user") == "u1").alias("asked")
    assert folds(table=TABLE.with_columns(one), target="asked") == 0  # a fold would have nothing to fit to
    many = pl.concat([TABLE.with_columns(pl.format("{}.{}", "user", pl.lit(k)).alias("user")) for k in range(80)])
    assert folds(table=many[: 30 * len(TABLE)]) == 3
    assert folds(table=many) == 0
    long = pl.concat([TABLE] * 30)
    assert folds(table=long) == 3
    assert len(prepare_all(table=many).held) == round(0.2 * many["user"].n_unique())
    with pytest.raises(DataError, match="16 groups cannot make 17 folds"):
        folds(validation=17)
    told = []
    model(training=BRIEF).fit(TABLE, **ROLES, planned=told.append)  # refit=False
    assert not told[0].folds


def test_with_lags_folds_are_blocks_of_times():
    columns = {"group": "day", "item": "station", "value": "tmax", "time": "day"}
    blueprint = planned(weather(), **columns)
    for fold in blueprint.folds:
        times = np.unique(fold.held.time[fold.held.numbers])
        assert np.diff(times).max() == 1
    fitted = efa(lags=1, terms="value", refit="auto", family="gaussian").fit(weather(), **columns, validation=3)
    assert np.isfinite(fitted.score(weather()))


@pytest.mark.parametrize("lags", [0, 1])
def test_the_last_times_can_be_held_out(lags):
    told = []
    columns = {"group": "day", "item": "station", "value": "tmax", "time": "day", "validation": "last"}
    efa(lags=lags, terms="value", family="gaussian").fit(weather(), **columns, planned=told.append)
    days = weather()["day"].to_numpy()
    assert {*days[told[0].held.rows]} == {19, 20, 21, 22, 23}
    with pytest.raises(DataError, match=r"validation='last' needs to know when a group was: pass time"):
        efa().fit(TABLE, **ROLES, validation="last")


ONE = ratings(users=1, movies=40, seed=2).with_columns(pl.lit("u").alias("user"))


@pytest.mark.parametrize(("context", "folds"), [("others", 5), ("past", 0)])
def test_of_one_group_rows_are_held_out_and_gone_from_the_training_context(context, folds):
    columns = {"group": "user", "item": "movie", "value": "real", "order": "at"}
    blueprint = planned(ONE, context=context, **columns)
    assert len(blueprint.folds) == folds
    for part in blueprint.parts:
        targets = part.held.rows[part.held.target]
        assert not {*part.train.rows} & {*targets}
        assert len(part.train.rows) + len(targets) == len(ONE)
        if context == "past":
            assert ONE["at"][targets].min() > ONE["at"][part.train.rows].max()
    fitted = model(training=BRIEF, refit="auto", companions=COMPANIONS, context=context, terms="value")
    assert np.isfinite(fitted.fit(ONE, **columns).score(ONE))
    assert "LinearModel" in fitted.summary() or "ItemMean" in fitted.summary()


def test_rows_apart_keep_all_that_is_known_of_them():
    groups = planned(ONE, group="user", item="movie", value="real", order="at", attributes="x").groups
    held = np.arange(len(ONE)) % 3 == 0
    train, rest = rows_apart(groups, held)
    assert np.array_equal(train.value, groups.value[~held])
    assert np.array_equal(train.item, groups.item[~held])
    assert np.array_equal(train.attributes, groups.attributes[~held])
    assert np.array_equal(rest.target, held)
    assert len(parts_in_turn(groups, 2)) == 2
