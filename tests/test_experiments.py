"""Experiments: what is planned is run once, recorded whole, gone on with after a stop, and compared on equal rows."""

import io
import json
import logging
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from shell import efattn, forked
from small_training import Stop, dying_at

from efattn import DataError, SimpleModel
from efattn.estimators import LatentFactor
from efattn.experiments import records, reproducing, runner, summary
from efattn.experiments.presets import EXPERIMENTS
from efattn.experiments.settings import (
    MSE,
    PROTOCOLS,
    TRAIN,
    Entry,
    Metric,
    Setting,
    Split,
    quarter_held,
    random_users,
)
from efattn.simple import ItemMean
from efattn.training import Training

HOME = Path(__file__).parent.parent
ROLES = {"group": "user", "item": "movie", "value": "rating"}
QUICK = Training(epochs=3, patience=None, rate=0.01, checkpoint_seconds=0.0, device="cpu")


def tiny_split(seed):
    draw = np.random.default_rng(7)
    user = np.repeat(np.arange(60), 3)
    movie = np.tile(["a", "b", "c"], 60)
    frame = pl.DataFrame({"user": user, "movie": movie, "rating": draw.normal(size=180) + np.tile([1.0, 2.0, 3.0], 60)})
    return quarter_held(frame.filter(pl.col("user") < 45), frame.filter(pl.col("user") >= 45), "user", seed)


def latent(seed):
    return LatentFactor(family="gaussian", context="others", terms="value", seed=seed, training=QUICK)


TINY = Setting(
    "tiny",
    "only, one",
    tiny_split,
    ROLES,
    MSE,
    (
        Entry("item mean", "peer", lambda seed: SimpleModel(ItemMean(), family="gaussian"), fixed=True),
        Entry("EFA", "best", latent, paper=1.5, look=lambda estimator, parts: {"seen": len(parts.test)}),
    ),
    look=lambda estimator, parts: {"always": 1},
)


@pytest.fixture
def tiny(monkeypatch):
    """One setting of two models, which take no time."""
    monkeypatch.setattr(runner, "SETTINGS", (TINY,))
    monkeypatch.setattr(runner, "EXPERIMENTS", ("tiny",))
    monkeypatch.setattr(summary, "SETTINGS", (TINY,))
    runner._split.cache_clear()
    yield TINY
    runner._split.cache_clear()


# ---- splits


def test_splits_share_no_group_and_lose_none():
    frame = pl.DataFrame({"user": np.repeat(np.arange(101), 2), "x": np.arange(202)})
    drawn = [random_users(frame, seed) for seed in (0, 1)]
    for parts in drawn:
        sets = [set(part["user"]) for part in parts]
        assert [len(x) for x in sets] == [56, 19, 26]
        assert set.union(*sets) == set(range(101))
        assert sum(map(len, parts)) == len(frame)
    assert set(drawn[0].test["user"]) != set(drawn[1].test["user"])


# ---- running


KEYS = {"experiment", "setting", "model", "preset", "seed", "metric", "value", "log_likelihood", "rows", "groups"}
KEYS |= {"seconds", "epochs", "versions", "commit", "device", "parameters", "protocol"}


def test_a_record_has_all_that_tables_need(tiny, tmp_path):
    runs = runner.planned(seeds=2)
    assert len(runs) == 4
    assert runner.run_all(runs, tmp_path) == 4
    every = {(r["model"], r["seed"], r["protocol"]): r for r in records.read(tmp_path)}
    assert set(every) == {("EFA", 0, TRAIN), ("EFA", 1, TRAIN), *(("item mean", 0, one) for one in PROTOCOLS)}
    made = {(model, seed): r for (model, seed, protocol), r in every.items() if protocol == TRAIN}
    assert "held_out" not in every["item mean", 0, "refitted"]
    assert set(made["EFA", 0]["held_out"]) == {"value", "log_likelihood"}
    assert 0.5 < made["EFA", 0]["coverage"]["0.9"]["all"] <= 1
    for record in made.values():
        assert set(record) >= KEYS
        groups = record["groups"]
        assert sum(groups["rows"]) == record["rows"] == 45
        for key in ("value", "log_likelihood"):
            assert np.average(groups[key], weights=groups["rows"]) == pytest.approx(record[key], rel=1e-4)
    assert made["EFA", 0]["seen"] == 45
    assert "seen" not in made["EFA", 1], "what an entry looks at is kept of the first seed"
    assert made["EFA", 1]["always"] == 1
    assert made["EFA", 0]["epochs"] == 3
    assert (tmp_path / "tiny" / "only-one" / "efa-best-1.json").exists()


def test_finished_runs_are_skipped(tiny, tmp_path):
    runs = runner.planned(seeds=1)
    runner.run_all(runs, tmp_path)
    path = tmp_path / runs[1].path
    path.write_text(json.dumps({**json.loads(path.read_text()), "value": -1.0}))
    assert runner.run_all(runs, tmp_path) == 0
    assert runner.run_all(runner.planned(seeds=2), tmp_path) == 1
    assert json.loads(path.read_text())["value"] == -1.0


def test_a_stopped_run_goes_on_where_it_was(tiny, tmp_path, monkeypatch):
    (run,) = runner.planned(seeds=1, presets=["best"])
    whole = runner.run_one(run, tmp_path / "whole")
    with monkeypatch.context() as patch:
        dying_at(patch, 2)
        with pytest.raises(Stop):
            runner.run_one(run, tmp_path / "cut")
    assert list((tmp_path / "cut" / ".unfinished").rglob("*.checkpoint"))
    assert not (tmp_path / "cut" / run.path).exists()
    epochs = []
    fit = LatentFactor.fit
    monkeypatch.setattr(
        LatentFactor, "fit", lambda self, *a, **k: fit(self, *a, **k, callbacks=[lambda r: epochs.append(r["epoch"])])
    )
    again = runner.run_one(run, tmp_path / "cut")
    assert again["value"] == whole["value"]
    assert len(epochs) < 3, "it went on, and did not start again"
    assert not list((tmp_path / "cut" / ".unfinished").rglob("*.checkpoint"))


def test_an_interrupted_fit_leaves_no_record(tiny, tmp_path, monkeypatch, caplog):
    def interrupt(record):
        raise KeyboardInterrupt

    fit = LatentFactor.fit
    monkeypatch.setattr(LatentFactor, "fit", lambda self, *a, **k: fit(self, *a, **k, callbacks=[interrupt]))
    (run,) = runner.planned(seeds=1, presets=["best"])
    with caplog.at_level(logging.CRITICAL, "efattn"), pytest.raises(KeyboardInterrupt):
        runner.run_one(run, tmp_path)
    assert not (tmp_path / run.path).exists()


def test_a_test_row_without_a_score_is_refused(tiny, tmp_path, monkeypatch):
    metric = Metric("half of it", lambda mean, y: np.where(np.arange(len(y)) % 2, np.nan, 0.0))
    monkeypatch.setattr(runner, "SETTINGS", (replace(TINY, metric=metric),))
    with pytest.raises(DataError, match="a test row has no score"):
        runner.run_one(runner.planned(seeds=1)[0], tmp_path)


def test_rows_that_are_context_only_are_not_scored(tiny, tmp_path, monkeypatch):
    def split(seed):
        return Split(*(part.with_columns(scored=pl.col("movie") != "a") for part in tiny_split(seed)))

    lagged = replace(TINY, split=split, roles={**ROLES, "target": "scored"})
    monkeypatch.setattr(runner, "SETTINGS", (lagged,))
    runner._split.cache_clear()
    assert runner.run_one(runner.planned(seeds=1)[0], tmp_path)["rows"] == 30


# ---- who is ahead


def record(model, seed, values, rows, names=None, **more):
    value = float(np.average(values, weights=rows))
    found = {"experiment": "tiny", "setting": "only, one", "model": model, "seed": seed, "value": value}
    found |= {
        "preset": "best" if model == "EFA" else "peer",
        "seconds": 1.0,
        "log_likelihood": -value,
        "rows": sum(rows),
    }
    groups = {"names": names or [str(g) for g in range(len(rows))], "rows": rows, "value": values}
    return {**found, "groups": {**groups, "log_likelihood": [-x for x in values]}, **more}


def test_a_summary_has_spread_over_seeds_and_the_best_peer_is_no_floor(tiny, monkeypatch):
    floor = Entry("Bayes floor", "peer", lambda seed: None, fixed=True)
    monkeypatch.setattr(summary, "SETTINGS", (replace(TINY, entries=(floor, *TINY.entries)),))
    records = [record("EFA", seed, [1.0 + seed], [2]) for seed in (0, 2)] + [record("item mean", 0, [2.0], [2])]
    records.append(record("Bayes floor", 0, [0.0], [2]))
    found = {r["model"]: r for r in summary.summarised(records)}
    assert (found["EFA"]["mean"], found["EFA"]["seeds"]) == (2.0, 2)
    assert found["EFA"]["sd"] == pytest.approx(np.sqrt(2))
    assert found["item mean"]["sd"] is None
    assert found["EFA"]["against"]["model"] == "item mean"
    assert "against" not in found["item mean"]


# ---- files


def groups_of(folder):
    return {(r["model"], r["seed"]): r["groups"] for r in records.read(folder)}


def test_packed_scores_are_those_that_were_measured(tiny, tmp_path):
    runner.run_all(runner.planned(seeds=2), tmp_path)
    before = groups_of(tmp_path)
    records.pack(tmp_path)
    after = groups_of(tmp_path)
    assert set(after) == set(before)
    for run, groups in before.items():
        assert (after[run]["names"], after[run]["rows"]) == (groups["names"], groups["rows"])
        for key in ("value", "log_likelihood"):
            np.testing.assert_allclose(after[run][key], groups[key], rtol=2e-5)
    for path in tmp_path.glob("*/*/*.json"):
        assert "groups" not in json.loads(path.read_text())
    assert runner.run_all(runner.planned(seeds=2), tmp_path) == 0, "a packed run is a finished one"


def test_a_log_likelihood_that_is_the_loss_is_kept_once(tmp_path):
    for seed, shift in ((0, 0.0), (1, 1.0)):
        one = record("EFA", seed, [1.25, 2.5], [1, 3])
        one["groups"]["log_likelihood"] = [-x - shift for x in one["groups"]["value"]]
        records.write(tmp_path / "tiny" / "only" / f"{seed}.json", one)
    records.pack(tmp_path)
    kept = pl.read_parquet(tmp_path / "tiny" / "groups.parquet")
    assert kept["log_likelihood"].to_list() == [None, None, -2.25, -3.5]
    assert [r["groups"]["log_likelihood"] for r in records.read(tmp_path)] == [[-1.25, -2.5], [-2.25, -3.5]]


def test_what_is_packed_later_leaves_what_was_packed_before(tiny, tmp_path):
    for seeds in (1, 2, 3):
        runner.run_all(runner.planned(seeds=seeds), tmp_path)
        records.pack(tmp_path)
    assert set(groups_of(tmp_path)) == {("item mean", 0), ("EFA", 0), ("EFA", 1), ("EFA", 2)}
    (tmp_path / "tiny" / "only-one" / "efa-best-1.json").unlink()
    runner.run_all(runner.planned(seeds=3), tmp_path)
    records.pack(tmp_path)
    assert len(groups_of(tmp_path)) == 4


@pytest.mark.parametrize("writes", [0, 1, 2])
def test_packing_that_dies_loses_no_score(tiny, tmp_path, monkeypatch, writes):
    """After the common file, and after so many of the JSON files."""
    runner.run_all(runner.planned(seeds=2), tmp_path)
    before, left = groups_of(tmp_path), iter(range(writes))
    write = records.write
    with monkeypatch.context() as patch:
        patch.setattr(records, "write", lambda path, one: (next(left), write(path, one)))
        with pytest.raises(StopIteration):
            records.pack(tmp_path)
    for _ in range(2):
        found = groups_of(tmp_path)
        for run, groups in before.items():
            np.testing.assert_allclose(found[run]["value"], groups["value"], rtol=2e-5)
        records.pack(tmp_path)


@pytest.mark.skipif(sys.platform == "win32", reason="no lock there")
def test_two_commands_do_not_pack_at_once(tmp_path):
    path = tmp_path / "tiny" / "only" / "efa-best-0.json"
    records.write(path, record("EFA", 0, [1.0, 2.0], [1, 1]))
    other = threading.Thread(target=records.pack, args=[tmp_path])
    with records._alone(tmp_path):
        other.start()
        other.join(0.2)
        assert "groups" in json.loads(path.read_text()), "it waits"
    other.join()
    assert "groups" not in json.loads(path.read_text())


def test_scores_of_a_run_made_again_take_the_place_of_the_old(tmp_path):
    path = tmp_path / "tiny" / "only" / "efa-best-0.json"
    for values in ([1.0, 2.0], [4.0, 8.0]):
        records.write(path, record("EFA", 0, values, [1, 1]))
        assert records.read(tmp_path)[0]["groups"]["value"] == values, "also before it is packed"
        records.pack(tmp_path)
        assert records.read(tmp_path)[0]["groups"]["value"] == values


def test_scores_that_are_lost_or_of_another_run_are_an_error(tmp_path):
    path = tmp_path / "tiny" / "only" / "efa-best-0.json"
    records.write(path, record("EFA", 0, [1.0, 2.0], [1, 1]))
    records.pack(tmp_path)
    other = json.loads(path.read_text())
    records.write(path, {**other, "value": 1.7})
    with pytest.raises(DataError, match=r"efa-best-0.json' are of another run.* Delete this file"):
        records.read(tmp_path)
    records.write(path, other)
    (tmp_path / "tiny" / "groups.parquet").write_bytes(b"PAR1")
    with pytest.raises(DataError, match=r"groups.parquet' cannot be read"):
        records.read(tmp_path)
    (tmp_path / "tiny" / "groups.parquet").unlink()
    with pytest.raises(DataError, match=r"efa-best-0.json' has no scores by group.* Delete this file"):
        records.read(tmp_path)


@given(st.floats(-1e6, 1e6).filter(lambda x: x == 0 or abs(x) > 1e-30))
def test_rounding_keeps_16_bits(x):
    (found,) = records.rounded(np.array([x]))
    assert abs(found - x) <= abs(x) * 2.0**-16


def test_a_record_names_the_commit_of_the_checkout_it_was_made_by(tiny, tmp_path, monkeypatch):
    ask = ["git", "-C", str(HOME), "rev-parse", "HEAD"]
    asked = subprocess.run(ask, capture_output=True, text=True, check=False)
    expected = asked.stdout.strip() if asked.returncode == 0 else None
    records.commit.cache_clear()
    assert runner.run_one(runner.planned(seeds=1)[0], tmp_path)["commit"] == expected
    for elsewhere in (tmp_path, HOME / "venv" / "efattn"):
        monkeypatch.setattr("efattn.__file__", str(elsewhere / "__init__.py"))
        records.commit.cache_clear()
        assert records.commit() is None, "the commit of another project would mislead"
    records.commit.cache_clear()


def test_the_results_of_this_repository_are_small():
    files = [path for path in (HOME / "results").rglob("*") if path.is_file() and ".unfinished" not in path.parts]
    assert sum(path.stat().st_size for path in files) < 5_000_000
    assert len(records.read(HOME / "results")) > 500


# ---- the command


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["citys"], f"There is no experiment 'citys'; there are {', '.join(EXPERIMENTS)}, strangers, theory."),
        (["paper"], f"There is no experiment 'paper'; there are {', '.join(EXPERIMENTS)}, strangers, theory."),
        (["cities", "--preset", "first"], "There is no preset 'first'; there are peer, paper, defaults, best."),
    ],
)
def test_an_unknown_name_is_one_clear_line(words, told, tmp_path):
    done = forked("reproduce", *words, cwd=tmp_path)
    assert (done.code, done.err.splitlines()) == (2, [f"efattn: {told}"])
    assert not list(tmp_path.iterdir())


def test_a_missing_data_set_says_where_it_was_looked_for(tmp_path):
    nowhere = {"EFATTN_DATA": "", "XDG_CACHE_HOME": str(tmp_path / "cache")}
    done = efattn("reproduce", "instacart", "--preset", "paper", "-o", tmp_path / "results", cwd=tmp_path, **nowhere)
    assert done.code == 2
    assert done.err.startswith(
        "efattn: Not run, because their data cannot be loaded: instacart, past; instacart, others."
    )
    assert done.err.count("is not on this machine") == 1
    for part in ("'instacart' is not on this machine", "$EFATTN_DATA is not set", str(tmp_path / "cache")):
        assert part in done.err
    assert "Traceback" not in done.err
    assert not list(tmp_path.rglob("*.json"))


def test_what_has_data_is_run_before_it_is_told_what_has_none(tiny, tmp_path, monkeypatch):
    def nowhere(seed):
        raise DataError("The data set 'moon' is not on this machine.")

    both = tuple(replace(TINY, name=name, split=nowhere) for name in ("far", "farther"))
    for module in (runner, summary, reproducing):
        monkeypatch.setattr(module, "SETTINGS", (both[0], TINY, both[1]))
    monkeypatch.setattr(reproducing, "EXPERIMENTS", ("tiny",))
    console = Console(file=io.StringIO(), width=200)
    with pytest.raises(DataError) as told:
        reproducing.reproduce(reproducing.Asked(["tiny"], seeds=2), tmp_path, pages=tmp_path / "pages", console=console)
    assert str(told.value) == (
        "Not run, because their data cannot be loaded: tiny, far; tiny, farther.\n"
        "The data set 'moon' is not on this machine."
    )
    assert "tiny, far: left out" in console.file.getvalue(), "which is told at once, too"
    assert {(r["setting"], r["model"]) for r in records.read(tmp_path)} == {
        ("only, one", "item mean"),
        ("only, one", "EFA"),
    }
    assert len(json.loads((tmp_path / "summary.json").read_text())) == 3, "one of them under two protocols"
    assert (tmp_path / "pages" / "results.md").exists()


def test_finished_runs_need_no_data(tiny, tmp_path, monkeypatch):
    def nowhere(seed):
        raise DataError("Nowhere.")

    runs = runner.planned(seeds=1)
    runner.run_all(runs, tmp_path)
    monkeypatch.setattr(runner, "SETTINGS", (replace(TINY, split=nowhere),))
    runner._split.cache_clear()
    assert runner.without_data(runs, tmp_path) == {}
    assert runner.without_data(runner.planned(seeds=2), tmp_path) == {0: "Nowhere."}


def test_help_has_an_example():
    done = efattn("reproduce", "--help").good()
    assert "efattn reproduce instacart --preset paper --seeds 3" in done.out


def test_what_another_process_has_not_finished_is_no_record(tmp_path):
    unfinished = tmp_path / ".unfinished" / "strangers" / "quakes.json"
    unfinished.parent.mkdir(parents=True)
    unfinished.write_text("{}")
    assert records.read(tmp_path) == []
    records.pack(tmp_path)
    assert unfinished.read_text() == "{}"
