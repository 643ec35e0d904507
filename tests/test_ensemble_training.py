"""Members train one after the other or side by side, and stopping and going on changes nothing."""

import json
import logging
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from small import QUICK, efa
from small_training import STEPS, Stop, same, without_seconds
from test_ensemble import BOTH, FAST, HELD, TABLE, K, all_same, weights

import efattn
from efattn import DataError, TrainingError, plots, simple
from efattn.estimators import members
from efattn.training import checkpoint as checkpoints
from efattn.training import processes

# ---- one after the other


def test_update_goes_on_with_every_member():
    found = efa(ensemble=2, training=FAST).fit(TABLE, **BOTH)
    before, records = weights(found), len(found.history_)
    more = HELD.with_columns(movie=pl.when(pl.col("movie") == "m1").then(pl.lit("new")).otherwise("movie"))
    found.update(more, training=FAST)
    assert len(found.members_) == 2
    assert not any(same(a, b) for a, b in zip(weights(found), before, strict=True))
    assert {record["member"] for record in found.history_[records // 2 :]} == {0, 1}
    assert [record["member"] for record in found.history_] == sorted(record["member"] for record in found.history_)
    assert np.isfinite(found.score(more))


def test_a_fit_killed_in_the_middle_member_resumes_to_the_same_weights(tmp_path, monkeypatch):
    make = {"ensemble": K, "training": replace(STEPS, epochs=2), "dropout": 0.2, "terms": "value"}
    whole = efa(**make).fit(TABLE, **BOTH)
    trained: list[int] = []
    write, count = checkpoints.Checkpoint.write, [0]

    def counted(self, *arguments):
        write(self, *arguments)
        count[0] += self.folder.name == "member-1"
        if count[0] == 3:
            raise Stop

    monkeypatch.setattr(checkpoints.Checkpoint, "write", counted)
    with pytest.raises(Stop):
        efa(**make).fit(TABLE, **BOTH, checkpoint=tmp_path)
    monkeypatch.undo()
    callbacks = [lambda record: trained.append(record["member"])]
    resumed = efa(**make).fit(TABLE, **BOTH, checkpoint=tmp_path, resume=True, callbacks=callbacks)
    assert all_same(weights(resumed), weights(whole))
    assert without_seconds(resumed.history_) == without_seconds(whole.history_)
    assert set(trained) == {1, 2}, "the first was finished"
    again = efa(**make).fit(TABLE, **BOTH, checkpoint=tmp_path, resume=True, callbacks=[pytest.fail])
    assert all_same(weights(again), weights(whole))
    checkpoints.forget(tmp_path)
    assert not list(tmp_path.iterdir())


def test_members_that_an_earlier_fit_finished_are_never_lost(tmp_path):
    make = {"ensemble": 2, "training": QUICK, "terms": "value"}

    def interrupt(record):
        if record["member"] == 1:
            raise KeyboardInterrupt

    efa(**make).fit(TABLE, **BOTH, checkpoint=tmp_path, callbacks=[interrupt])
    with pytest.raises(DataError, match="other data"):
        efa(**make).fit(HELD, **BOTH, checkpoint=tmp_path, resume=True)
    with pytest.raises(DataError, match="ensemble=2 there, ensemble=1 here"):
        efa(**make | {"ensemble": 1}).fit(TABLE, **BOTH, checkpoint=tmp_path, resume=True)
    with pytest.raises(DataError, match="which would be lost"):
        efa(**make).fit(TABLE, **BOTH, checkpoint=tmp_path, callbacks=[pytest.fail])
    trained: list[int] = []
    callbacks = [lambda r: trained.append(r["member"])]
    efa(**make).fit(TABLE, **BOTH, checkpoint=tmp_path, resume=True, callbacks=callbacks)
    assert set(trained) == {1}


@pytest.mark.parametrize(("at", "left"), [(0, 1), (1, 1), (2, 2)])
def test_an_interrupt_keeps_the_finished_members_and_says_so(at, left, caplog, tmp_path):
    def interrupt(record):
        if record["member"] == at:
            raise KeyboardInterrupt

    with caplog.at_level(logging.WARNING, "efattn"):
        found = efa(ensemble=K, training=QUICK).fit(TABLE, **BOTH, callbacks=[interrupt])
    assert found.interrupted_
    assert len(found.members_) == left
    assert f"{at} of {K} members finished: keeping {left}" in caplog.text
    found.save(tmp_path / "x")
    assert efattn.load(tmp_path / "x").score(HELD) == found.score(HELD)


def test_an_interrupted_update_keeps_every_member():
    found = efa(ensemble=2, training=QUICK).fit(TABLE, **BOTH)
    before = weights(found)

    def interrupt(record):
        raise KeyboardInterrupt

    found.update(HELD, callbacks=[interrupt])
    assert found.interrupted_
    assert len(found.members_) == 2
    assert same(weights(found)[1], before[1])


def test_each_record_says_of_which_member_it_is(tmp_path):
    path = tmp_path / "h.jsonl"
    found = efa(ensemble=2).fit(TABLE, **BOTH, history=path, progress=True)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert lines == found.history_
    assert [line["member"] for line in lines] == [0] * 4 + [1] * 4
    assert len(plots.history(found)[0].lines[-2].get_xdata()) == 2


# ---- side by side

JOBS = replace(STEPS, epochs=2, jobs=2)
MAKE = {"dropout": 0.2, "terms": "value"}
ALONE = torch.get_num_threads() == 1  # as a worker is: only then bit for bit


def test_members_trained_side_by_side_are_those_trained_in_turn():
    """Bit for bit with one thread; callbacks are called here."""
    heard: list[int] = []
    callbacks = [lambda record: heard.append(record["member"])]
    turn = efa(ensemble=2, training=replace(JOBS, jobs=1), **MAKE).fit(TABLE, **BOTH)
    side = efa(ensemble=2, training=JOBS, **MAKE).fit(TABLE, **BOTH, callbacks=callbacks, progress=True)
    assert sorted(heard) == [record["member"] for record in side.history_] == [0, 0, 1, 1]
    assert side.score(HELD) == pytest.approx(turn.score(HELD), rel=1e-4)
    if ALONE:
        assert all_same(weights(side), weights(turn))
        assert without_seconds(side.history_) == without_seconds(turn.history_)


@pytest.fixture
def idle(monkeypatch):
    """A machine with another core, on which help comes at once."""
    monkeypatch.setattr(members, "spare", lambda: 1)
    monkeypatch.setattr(processes, "SOON", 0.0)
    monkeypatch.setattr(processes, "MINE", -1.0)


def test_members_trained_with_help_are_those_trained_in_turn(idle, monkeypatch):
    heard: list[int] = []
    taken: list[int] = []
    take = processes._Worker.take
    monkeypatch.setattr(processes._Worker, "take", lambda self, k, *rest: (taken.append(k), take(self, k, *rest)))
    callbacks = [lambda record: heard.append(record["member"])]
    long = replace(JOBS, jobs="auto", epochs=4)
    turn = efa(ensemble=3, training=replace(long, jobs=1), **MAKE).fit(TABLE, **BOTH)
    assert not taken
    helped = efa(ensemble=3, training=long, **MAKE).fit(TABLE, **BOTH, callbacks=callbacks)
    assert taken[0] == 2, "the last, while the first is trained here"
    assert sorted(heard) == sorted(record["member"] for record in helped.history_)
    assert all_same(weights(helped), weights(turn))
    assert without_seconds(helped.history_) == without_seconds(turn.history_)


def test_folds_with_help_and_companions_fitted_meanwhile_are_those_in_turn(idle, monkeypatch):
    done: list[str] = []
    fit, run = simple.ShrunkMean.build, processes._Team.run_here
    monkeypatch.setattr(simple.ShrunkMean, "build", lambda *x: (done.append("companion"), fit(*x))[1])
    monkeypatch.setattr(processes._Team, "run_here", lambda *x: (done.append("network"), run(*x))[1])
    make = MAKE | {"refit": True, "companions": simple.ShrunkMean()}
    long = replace(JOBS, jobs="auto", epochs=20)
    turn = efa(training=replace(long, jobs=1), **make).fit(TABLE, **BOTH)
    done.clear()
    helped = efa(training=long, **make).fit(TABLE, **BOTH)
    first = done.index("network")
    assert done[first + 1 : first + 6] == ["companion"] * 5, "before other networks, once a helper has begun"
    assert all_same(weights(helped), weights(turn))
    assert helped.score(HELD) == turn.score(HELD)


def test_a_helper_that_dies_is_done_without(idle, monkeypatch):
    monkeypatch.setattr(processes, "PROGRAM", "import os; os._exit(7)")
    found = efa(ensemble=2, training=replace(JOBS, jobs="auto"), **MAKE).fit(TABLE, **BOTH)
    turn = efa(ensemble=2, training=replace(JOBS, jobs=1), **MAKE).fit(TABLE, **BOTH)
    assert all_same(weights(found), weights(turn))


@pytest.mark.parametrize("whose", [0, 2])
def test_an_interrupt_ends_the_helpers_too(whose, idle, caplog):
    def interrupt(record):
        if record["member"] == whose:
            raise KeyboardInterrupt

    found = efa(ensemble=3, training=replace(JOBS, jobs="auto"), **MAKE).fit(TABLE, **BOTH, callbacks=[interrupt])
    assert found.interrupted_
    assert "of 3 members finished" in caplog.text


def test_one_of_several_processes_asks_for_no_help(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert processes.spare() == 0
    monkeypatch.delenv("OMP_NUM_THREADS")
    assert processes.spare() >= 0
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(processes.spare).result() == 0


def test_a_worker_that_dies_is_an_error(monkeypatch):
    monkeypatch.setattr(processes, "PROGRAM", "import os; os._exit(7)")
    with pytest.raises(TrainingError, match=r"ended with code 7.*jobs=1"):
        efa(ensemble=2, training=JOBS).fit(TABLE, **BOTH)


@pytest.mark.slow
def test_an_error_there_is_the_same_error_here():
    wild = replace(JOBS, rate=1e30, clip=None, warmup=0.0)
    with pytest.raises(TrainingError, match="NaN or infinity"):
        efa(ensemble=2, training=wild).fit(TABLE, **BOTH)


@pytest.mark.slow
@pytest.mark.parametrize("error", [Stop, KeyboardInterrupt])
def test_what_stops_here_stops_there(error, caplog):
    def stop(record):
        raise error

    endless = efa(ensemble=2, training=replace(JOBS, epochs=100_000, patience=None), **MAKE)
    with pytest.raises(error):
        endless.fit(TABLE, **BOTH, callbacks=[stop])
    assert not hasattr(endless, "model_")
    assert ("nothing is kept" in caplog.text) == (error is KeyboardInterrupt)


@pytest.mark.slow
def test_an_interrupt_side_by_side_keeps_the_finished_and_resumes_to_the_same_weights(tmp_path):
    def stop(record):
        if record["member"] == 2:  # which starts when one of the first two is done
            raise KeyboardInterrupt

    found = efa(ensemble=3, training=JOBS, **MAKE).fit(TABLE, **BOTH, checkpoint=tmp_path, callbacks=[stop])
    assert found.interrupted_
    assert len(found.members_) in (1, 2)
    assert {record["member"] for record in found.history_} == set(range(len(found.members_)))
    again = efa(ensemble=3, training=JOBS, **MAKE).fit(TABLE, **BOTH, checkpoint=tmp_path, resume=True)
    checkpoints.forget(tmp_path)
    assert not list(tmp_path.iterdir())
    whole = efa(ensemble=3, training=replace(JOBS, jobs=1), **MAKE).fit(TABLE, **BOTH)
    assert len(again.members_) == 3
    assert not ALONE or all_same(weights(again), weights(whole))


KILLED = """
import sys
sys.path.insert(0, sys.argv[1])
from test_ensemble_training import BOTH, JOBS, MAKE, TABLE
from dataclasses import replace
from small import efa
said = [lambda record: print(record["member"], flush=True)]
efa(ensemble=2, training=replace(JOBS, epochs=100_000, patience=None), **MAKE).fit(TABLE, **BOTH, callbacks=said)
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_workers_end_with_their_parent(how, tmp_path):
    """They stop writing checkpoints, whatever ended it."""
    program = KILLED.replace("callbacks=said", "callbacks=said, checkpoint='kept'")
    command = [sys.executable, "-c", program, str(Path(__file__).parent)]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert {process.stdout.readline() for _ in range(200)} <= {"0\n", "1\n"}
    os.kill(process.pid, how)
    process.communicate(timeout=60)
    time.sleep(1.5)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.checkpoint")}
    time.sleep(0.5)
    assert before
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.checkpoint")} == before
