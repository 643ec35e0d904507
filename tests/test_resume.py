"""Stopping and going on changes nothing, whatever stopped it."""

import logging
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from small_training import PLATEAU, ROLES, STEPS, TABLE, Stop, dying_at, model, same, weights, without_seconds
from test_storage import edited

import efattn
from efattn import DataError, ModelFileError
from efattn.training import checkpoint as checkpoints
from efattn.training import forget, left_in

# ---- stopping and going on


@pytest.mark.parametrize(
    ("training", "every"),
    [
        pytest.param(STEPS, 5, id="cosine"),
        pytest.param(PLATEAU, 23, id="plateau"),
        pytest.param(replace(PLATEAU, average=0.9), 29, id="plateau, averaged"),
        pytest.param(replace(STEPS, candidates=3), 40, id="candidates"),
        pytest.param(STEPS, 1, id="cosine, all", marks=pytest.mark.slow),
        pytest.param(PLATEAU, 1, id="plateau, all", marks=pytest.mark.slow),
    ],
)
def test_resumed_training_equals_uninterrupted_training_at_every_checkpoint(tmp_path, monkeypatch, training, every):
    whole = model(training=training).fit(TABLE, **ROLES)
    assert {record["term"] for record in whole.history_} == {"item", "real"}
    assert len(whole.history_) < 2 * training.epochs, "early stopping is part of this test"
    count = dying_at(monkeypatch, -1)
    model(training=training).fit(TABLE, **ROLES, checkpoint=tmp_path)
    forget(tmp_path)
    for number in {*range(1, count[0], every), count[0]}:
        monkeypatch.undo()
        dying_at(monkeypatch, number)
        with pytest.raises(Stop):
            model(training=training).fit(TABLE, **ROLES, checkpoint=tmp_path)
        monkeypatch.undo()
        resumed = model(training=training).fit(TABLE, **ROLES, checkpoint=tmp_path, resume=True)
        assert same(weights(resumed), weights(whole)), number
        assert without_seconds(resumed.history_) == without_seconds(whole.history_)
        assert [path.name for path in tmp_path.iterdir()] == [checkpoints.NAME]
        forget(tmp_path)
        assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("options", [{"optimiser": "adam"}, {"draws": 1}, {"patience": None}], ids=str)
def test_resuming_again_and_again_changes_nothing(tmp_path, monkeypatch, options):
    training = replace(STEPS, epochs=2, **options)
    whole = model(training=training).fit(TABLE, **ROLES)
    for _ in range(100):
        dying_at(monkeypatch, 3)
        try:
            resume = bool(left_in(tmp_path))
            resumed = model(training=training).fit(TABLE, **ROLES, checkpoint=tmp_path, resume=resume)
            break
        except Stop:
            monkeypatch.undo()
    assert same(weights(resumed), weights(whole))


PROGRAM = """
import sys
import torch
torch.set_num_threads(1)
sys.path.insert(0, sys.argv[1])
from efattn.training import left_in
from small_training import ROLES, TABLE, model
said = [lambda record: print(record, flush=True)]
model().fit(TABLE, **ROLES, checkpoint="kept", resume=bool(left_in("kept")), callbacks=said).save("done.efattn")
"""


def started(folder, **more):
    command = [sys.executable, "-c", PROGRAM, str(Path(__file__).parent)]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more)


def killed_until_done(folder, draw, kills):
    """Kill the process after a while, once it has written something, so often; then let it finish."""
    for _ in range(kills):
        process = started(folder)
        waited, before = time.monotonic(), stamp(folder)
        while process.poll() is None and stamp(folder) == before and time.monotonic() - waited < 60:
            time.sleep(0.001)
        time.sleep(draw.uniform(0, 0.05))
        process.kill()
        process.communicate()
        if (folder / "done.efattn").exists():
            break
    process = started(folder)
    _, complaint = process.communicate(timeout=120)
    assert process.returncode == 0, complaint
    assert [file.name for file in folder.glob("kept/*")] == []
    assert [file.name for file in folder.glob("kept/.*")] == []
    return efattn.load(folder / "done.efattn")


def stamp(folder):
    try:
        return (folder / "kept" / checkpoints.NAME).stat().st_mtime_ns
    except OSError:
        return 0


def test_a_killed_process_resumes_to_the_same_weights(tmp_path):
    """checkpoint_seconds=0: a checkpoint is being written most of the time."""
    whole = model().fit(TABLE, **ROLES)
    found = killed_until_done(tmp_path, np.random.default_rng(0), kills=1)
    assert same(weights(found), weights(whole))


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_a_process_killed_many_times_resumes_to_the_same_weights(tmp_path, seed):
    whole = model().fit(TABLE, **ROLES)
    found = killed_until_done(tmp_path, np.random.default_rng(seed), kills=4)
    assert same(weights(found), weights(whole))


def test_what_a_killed_process_left_is_swept_away(tmp_path):
    left = tmp_path / f".{checkpoints.NAME}.{'0' * 8}.1.{'0' * 16}.part"
    left.write_bytes(b"half a checkpoint")
    other = tmp_path / "mine.txt"
    other.write_text("not ours")
    model().fit(TABLE, **ROLES, checkpoint=tmp_path)
    forget(tmp_path)
    assert list(tmp_path.iterdir()) == [other]


CHANGED = TABLE.with_columns(pl.when(pl.int_range(pl.len()) == 0).then(9.0).otherwise("real").alias("real"))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda path: model().fit(CHANGED, **ROLES, checkpoint=path, resume=True), "other data"),
        (lambda path: model().fit(TABLE.head(50), **ROLES, checkpoint=path, resume=True), "other data"),
        (lambda path: model().fit(TABLE, **ROLES, checkpoint=path, resume=True, validation=0.4), "other data"),
        (
            lambda path: model().fit(TABLE, **ROLES | {"order": "row"}, checkpoint=path, resume=True),
            "other columns: order='at' there, order='row' here",
        ),
        (
            lambda path: model(width=16).fit(TABLE, **ROLES, checkpoint=path, resume=True),
            "other options: width=8 there, width=16 here",
        ),
        (
            lambda path: model(dropout=0.3, ensemble=2).fit(TABLE, **ROLES, checkpoint=path, resume=True),
            "other options: dropout=0.2 there, dropout=0.3 here; ensemble='auto' there, ensemble=2 here",
        ),
        (
            lambda path: model(training=replace(STEPS, rate=0.1)).fit(TABLE, **ROLES, checkpoint=path, resume=True),
            "other options: rate=0.02 there, rate=0.1 here",
        ),
    ],
)
def test_resuming_with_something_else_is_refused(stopped, change, words):
    before = (stopped / checkpoints.NAME).read_bytes()
    with pytest.raises(DataError, match=words):
        change(stopped)
    assert (stopped / checkpoints.NAME).read_bytes() == before


def test_how_often_a_checkpoint_is_written_may_change(stopped):
    again = model(training=replace(STEPS, checkpoint_seconds=100.0))
    again.fit(TABLE, **ROLES, checkpoint=stopped, resume=True)
    assert same(weights(again), weights(model().fit(TABLE, **ROLES)))


def test_a_damaged_checkpoint_is_refused(stopped):
    path = stopped / checkpoints.NAME
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ModelFileError, match="damaged"):
        model().fit(TABLE, **ROLES, checkpoint=stopped, resume=True)


def test_a_checkpoint_that_is_whole_and_yet_none_is_refused(stopped):
    kept = (stopped / checkpoints.NAME).read_bytes()
    for change in (
        lambda about: about["state"].pop("progress"),
        lambda about: about["state"]["progress"].update(unheard_of=1),
        lambda about: about["state"].update(term="other"),
        lambda about: about.update(state=None),
        lambda about: about.pop("about"),
        lambda about: about["state"].update(finished=True, history=5),
    ):
        edited(stopped / checkpoints.NAME, lambda about, change=change: (change(about), None)[1])
        with pytest.raises(ModelFileError, match="no usable checkpoint"):
            model().fit(TABLE, **ROLES, checkpoint=stopped, resume=True)
        (stopped / checkpoints.NAME).write_bytes(kept)


# ---- Ctrl-C


def test_an_interrupt_keeps_the_best_weights_and_says_so(caplog):
    def interrupt(record):
        if record["term"] == "real" and record["epoch"] == 2:
            raise KeyboardInterrupt

    training = replace(STEPS, patience=None, rate=0.1)
    with caplog.at_level(logging.WARNING, "efattn"):
        found = model(training=training).fit(TABLE, **ROLES, callbacks=[interrupt])
    assert found.interrupted_
    assert "Interrupted" in caplog.text
    assert "best weights, of epoch" in caplog.text
    best = max(r["validation"] for r in found.history_ if r["term"] == "real")
    assert best == found.history_[-1]["best"]
    assert np.isfinite(found.score(TABLE))


def test_an_interrupt_in_the_first_term_leaves_a_model_that_works():
    def interrupt(record):
        raise KeyboardInterrupt

    found = model().fit(TABLE, **ROLES, callbacks=[interrupt])
    assert found.interrupted_
    assert len(found.history_) == 1
    assert np.isfinite(found.score(TABLE))


def test_an_interrupt_keeps_the_checkpoint_to_go_on_from(tmp_path):
    def interrupt(record):
        raise KeyboardInterrupt

    model().fit(TABLE, **ROLES, checkpoint=tmp_path, callbacks=[interrupt])
    resumed = model().fit(TABLE, **ROLES, checkpoint=tmp_path, resume=True)
    assert same(weights(resumed), weights(model().fit(TABLE, **ROLES)))


INTERRUPTED = """
import logging, sys
sys.path.insert(0, sys.argv[1])
from small import efa, ratings
from efattn import Training
logging.basicConfig()
training = Training(epochs=100_000, patience=None, tokens=64, device="cpu")
said = [lambda record: print("epoch", flush=True)]
model = efa(training=training).fit(ratings(), group="user", item="movie", callbacks=said)
assert model.interrupted_
model.save("kept.efattn")
"""


def test_a_real_ctrl_c_keeps_the_best_weights(tmp_path):
    command = [sys.executable, "-c", INTERRUPTED, str(Path(__file__).parent)]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "epoch\n"
    time.sleep(0.05)
    os.kill(process.pid, signal.SIGINT)
    _, told = process.communicate(timeout=60)
    assert process.returncode == 0, told
    assert "keeping the best weights" in told
    assert (tmp_path / "kept.efattn").exists()


def test_a_fit_that_fails_leaves_the_estimator_as_it_was(monkeypatch):
    found = model().fit(TABLE, **ROLES)
    before = found.score(TABLE)

    def broken(record):
        raise Stop

    with pytest.raises(Stop):
        found.fit(TABLE, **ROLES, callbacks=[broken])
    with pytest.raises(Stop):
        found.update(TABLE, callbacks=[broken])
    assert found.score(TABLE) == before
    fresh = model()
    with pytest.raises(Stop):
        fresh.fit(TABLE, **ROLES, callbacks=[broken])
    assert not hasattr(fresh, "model_")
