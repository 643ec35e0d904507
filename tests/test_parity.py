"""One engine: Python and the shell answer the same to the bit, and a table in pieces as the table at once."""

import copy
import datetime
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from shell import forked
from small import QUICK, efa
from small_models import BOTH, MODELS, TABLE, WEATHER
from small_models import fitted as small

from efattn import SimpleModel, inference, simple
from efattn.data import Table

WEIGHTED = TABLE.with_columns(w=pl.int_range(pl.len()) % 3, scored=pl.int_range(pl.len()) % 5 != 1)
PLACED = {"group": "day", "item": "station", "value": "tmax", "attributes": ["latitude", "longitude"]}
EXTRA = {
    "items alone": (efa(), TABLE, {"group": "user", "item": "movie"}),
    "companion": (efa(companions=simple.ShrunkMean(), ensemble=2), TABLE, BOTH),
    "item companion": (efa(companions=simple.Popularity()), TABLE, {"group": "user", "item": "movie"}),
    "weights and targets": (efa(), WEIGHTED, {**BOTH, "weight": "w", "target": "scored"}),
    "simple": (SimpleModel(simple.GaussianConditional()), WEATHER, PLACED),
    "simple items": (SimpleModel(simple.AdditiveLogit(), training=QUICK), TABLE, {"group": "user", "item": "movie"}),
    "exposure": (efa(family="poisson", terms="value"), TABLE, {**BOTH, "value": "count", "exposure": "hours"}),
    "noise": (efa(family="gaussian", terms="value"), TABLE, {**BOTH, "noise": "hours"}),
    "names that are taken": (efa(), TABLE.with_columns(real_mean=1.0, real_sd="x"), BOTH),
}
NAMES = [*MODELS, *EXTRA]
_FITTED: dict = {}


def fitted(name):
    """A model, a table with holes, an unknown item and scattered groups, and its roles."""
    if name in MODELS:
        model, table, roles = small(name)
    else:
        if name not in _FITTED:
            make, table, roles = EXTRA[name]
            _FITTED[name] = make.fit(table, **roles), table, roles
        model, table, roles = _FITTED[name]
    value = roles.get("value", [])
    for column in [value] if isinstance(value, str) else value:
        hole = pl.int_range(pl.len()) % 7 == 3
        table = table.with_columns(pl.when(hole).then(None).otherwise(column).alias(column))
    return model, table, roles


def scattered(table, roles):
    """The same rows in another order; of rows that are ordered by the table it would be another order."""
    return table if roles.get("order") == "row" else table.sample(fraction=1, shuffle=True, seed=1)


@pytest.fixture(scope="module", params=NAMES)
def case(request, tmp_path_factory):
    model, table, roles = fitted(request.param)
    folder = tmp_path_factory.mktemp("parity")
    table = scattered(table, roles)
    table.write_parquet(folder / "t.parquet")
    model.save(folder / "m.efattn")
    return model, table, roles, folder


def written(folder, *words):
    forked(*words, "-o", "out.parquet", "--force", cwd=folder).good()
    return pl.read_parquet(folder / "out.parquet")


def test_python_and_the_shell_predict_the_same(case):
    model, table, _, folder = case
    values = "value" in model.terms_
    mine = model.predict(folder / "t.parquet", quantiles=[0.1, 0.5, 0.975] if values else ())
    words = ("--quantiles", 0.1, 0.5, 0.975) if values else ()
    assert written(folder, "predict", "m.efattn", "t.parquet", *words).equals(mine)
    assert mine.select(table.columns).equals(table)


def test_python_and_the_shell_score_the_same(case):
    model, _, _, folder = case
    assert forked("score", "m.efattn", "t.parquet", "--json", cwd=folder).good().json() == model.scores(
        folder / "t.parquet"
    )


def test_python_and_the_shell_recommend_and_compare_the_same(case):
    model, table, roles, folder = case
    if "item" not in model.terms_:
        answer = forked("recommend", "m.efattn", "t.parquet", cwd=folder)
        assert answer.code == 2
        assert "no item term" in answer.err
        return
    assert written(folder, "recommend", "m.efattn", "t.parquet", "-k", 3).equals(model.recommend(table, 3))
    assert written(folder, "recommend", "m.efattn", "-k", 3).equals(model.recommend(k=3))
    if type(model) is not SimpleModel:
        item = table[roles["item"]][0]
        assert written(folder, "similar", "m.efattn", item, "-k", 3).equals(model.similar(item, 3))


def test_python_and_the_shell_evaluate_the_same(case):
    model, _, _, folder = case
    for words, how in (
        ((), {}),
        (("-k", 2, "-k", 3, "--rows", "all", "--no-seen"), {"k": (2, 3), "rows": "all", "seen": False}),
    ):
        mine = model.evaluate(folder / "t.parquet", **how)
        ask = ("evaluate", "m.efattn", "t.parquet", *words, "--json")
        assert forked(*ask, cwd=folder).good().json() == mine.to_json()
        assert written(folder, *ask).equals(mine.groups)


def test_python_and_the_shell_are_told_the_same_about_the_next_row(tmp_path):
    draw = np.random.default_rng(0)
    at = pl.Series(1000 * TABLE["at"].to_numpy() + draw.integers(0, 900, len(TABLE)))
    due = pl.from_epoch(pl.lit(at) + 86_400, "s")
    table = TABLE.with_columns(day=pl.from_epoch(at, "s"), due=due, mood=pl.Series(draw.choice(["x", "y"], len(at))))
    table = table.with_columns(warm=pl.Series(draw.random(len(at))))
    roles = {"group": "user", "item": "movie", "order": "day", "attributes": ["mood", "warm"]}
    model = efa(context="past", own_time="known", own_attributes="known").fit(table, **roles)
    table.write_parquet(tmp_path / "t.parquet")
    model.save(tmp_path / "m.efattn")
    ask = ("recommend", "m.efattn", "t.parquet", "-k", 3)
    usual = model.recommend(table, 3)
    for words, given in (
        ((), {}),
        (("--at", "1970-02-01"), {"at": datetime.date(1970, 2, 1)}),
        (("--at", "due"), {"at": "due"}),
        (("--attributes", "mood=x", "--attributes", "warm=0.5"), {"attributes": {"mood": "x", "warm": 0.5}}),
    ):
        mine = model.recommend(table, 3, **given)
        assert written(tmp_path, *ask, *words).equals(mine)
        assert mine.equals(usual) is not bool(given)


def test_python_and_the_shell_look_at_the_same(case):
    model, table, roles, folder = case
    group = table[roles["group"]][0]
    words = ("attention", "m.efattn", "t.parquet", "--group", group)
    if not hasattr(model.model_[model.model_.terms[-1]], "stack") or model.schema_.lags or model.schema_.max_length:
        return
    mine = model.attention(table.filter(pl.col(roles["group"]) == group)).columns()["weight"]
    np.testing.assert_allclose(written(folder, *words)["weight"], mine, atol=1e-6)


def test_python_and_the_shell_tell_the_same(case):
    model, _, _, folder = case
    told = forked("summary", "m.efattn", cwd=folder).good().out.split("Note:")[0]
    assert told.strip() == model.summary().split("Note:")[0].strip()


# ---- in pieces


def pieces(table, group):
    """Three tables of whole groups."""
    names = table[group].unique(maintain_order=True)
    third = -(-len(names) // 3)
    return [table.filter(pl.col(group).is_in(names[k * third : (k + 1) * third].to_list())) for k in range(3)]


def in_double(fitted):
    members = tuple(copy.deepcopy(model).double() for model in fitted.members)
    companions = {
        name: tuple(one._replace(model=copy.deepcopy(one.model).double()) for one in several)
        for name, several in fitted.companions.items()
    }
    return replace(fitted, members=members, companions=companions)


def same(one, two, tolerance):
    assert one.columns == two.columns
    for name in one.columns:
        if one[name].dtype.is_float():
            np.testing.assert_allclose(one[name].to_numpy(), two[name].to_numpy(), rtol=tolerance, atol=tolerance)
        else:
            assert one[name].to_list() == two[name].to_list()


@pytest.mark.parametrize("precision", ["single", "double"])
@pytest.mark.parametrize("name", [name for name in NAMES if name != "lags"])
def test_a_table_in_pieces_is_answered_as_the_table_at_once(name, precision):
    model, table, roles = fitted(name)
    engine, tolerance = (model.fitted_, 1e-5) if precision == "single" else (in_double(model.fitted_), 1e-10)
    parts = pieces(table, roles["group"])
    whole = pl.concat(parts)

    def read(frames):
        return [Table.read(frame) for frame in frames]

    for verb in (inference.predict, inference.log_likelihood):
        (at_once,) = verb(engine, read([whole]))
        same(pl.concat(list(verb(engine, read(parts)))), at_once, tolerance)
    if "item" in model.terms_:
        (at_once,) = inference.recommend(engine, read([whole]), 3)
        by_parts = pl.concat(list(inference.recommend(engine, read(parts), 3)))
        np.testing.assert_allclose(by_parts["probability"], at_once["probability"], rtol=tolerance, atol=tolerance)
    one, two = (inference.score(engine, read(frames)) for frames in (parts, [whole]))
    assert one["mean_log_likelihood"] == pytest.approx(two["mean_log_likelihood"], rel=tolerance)
    assert {k: one[k] for k in ("observations", "scored", "unknown")} == {
        k: two[k] for k in ("observations", "scored", "unknown")
    }


# ---- what was found to differ


def test_a_row_of_weight_zero_does_not_count_in_a_score():
    model, table, _ = fitted("weights and targets")
    wild = table.with_columns(real=pl.when(pl.col("w") == 0).then(pl.col("real") + 50).otherwise("real"))
    counted = model.log_likelihood(wild)
    assert counted.filter(pl.col("w") == 0)["real_log_likelihood"].null_count() == (table["w"] == 0).sum()
    scored = counted.filter(pl.col("real_log_likelihood").is_not_null())
    mean = np.average(scored["real_log_likelihood"], weights=scored["w"])
    assert model.scores(wild)["terms"]["real"] == pytest.approx(mean, rel=1e-9)


def test_no_column_of_the_users_is_ever_replaced():
    model, table, _ = fitted("names that are taken")
    told = model.predict(table)
    assert told.select(table.columns).equals(table)
    assert {"real_mean_", "real_sd_", "real_lower", "real_upper"} <= set(told.columns)
    again = model.predict(told)
    assert again.select(told.columns).equals(told)
    assert {"real_mean__", "real_lower_"} <= set(again.columns)


def test_a_score_that_is_not_a_number_is_an_error_not_a_row_less():
    model, table, _ = fitted("others")
    broken = copy.deepcopy(model)
    for parameter in broken.model_.parameters():
        parameter.data.fill_(float("nan"))
    for verb in (broken.score, broken.predict, broken.log_likelihood):
        with pytest.raises(Exception, match="no finite number"):
            verb(table)


def test_python_and_the_shell_explain_the_same(tmp_path):
    model, table, _ = small("others")
    table.write_parquet(tmp_path / "t.parquet")
    model.save(tmp_path / "m.efattn")
    for words, how in ((("--row", 3), {"row": 3}), (("--row", 0, "--item", "m1"), {"row": 0, "item": "m1"})):
        forked("explain", "m.efattn", "t.parquet", *words, "-o", "e.parquet", "--force", cwd=tmp_path).good()
        assert pl.read_parquet(tmp_path / "e.parquet").equals(model.explain(table, **how))
    told = forked("explain", "m.efattn", "t.parquet", "--row", 3, cwd=tmp_path).good().out
    assert "real_natural" in told
    assert forked("explain", "m.efattn", "t.parquet", cwd=tmp_path).code == 2
