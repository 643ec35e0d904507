"""What a fit keeps in a folder is never lost, and one fit at a time uses it."""

import contextlib
import os
import subprocess
import sys
import threading
import time

import pytest
from small_training import ROLES, TABLE, Stop, model, same, weights

import efattn
from efattn import DataError, ModelFileError, storage
from efattn.training import checkpoint as checkpoints
from efattn.training import forget, left_in, lock

# ---- what is kept


def test_without_resume_nothing_that_was_kept_is_lost(stopped):
    before = (stopped / checkpoints.NAME).read_bytes()
    with pytest.raises(DataError, match=r"holds an unfinished fit.*resume=True.*another folder"):
        model().fit(TABLE, **ROLES, checkpoint=stopped, callbacks=pytest.fail)
    assert (stopped / checkpoints.NAME).read_bytes() == before
    model().fit(TABLE, **ROLES, checkpoint=stopped, resume=True)
    with pytest.raises(DataError, match=r"holds a finished fit that was not saved.*resume=True"):
        model().fit(TABLE, **ROLES, checkpoint=stopped, callbacks=pytest.fail)


def test_with_nothing_to_resume_no_fit_is_started(tmp_path):
    for folder in (tmp_path, tmp_path / "absent"):
        with pytest.raises(DataError, match=r"nothing to resume in checkpoint=.*Leave resume=True out"):
            model().fit(TABLE, **ROLES, checkpoint=folder, resume=True, callbacks=pytest.fail)
    assert not list(tmp_path.iterdir())


def test_a_finished_fit_is_kept_until_it_is_forgotten(tmp_path):
    whole = model().fit(TABLE, **ROLES, checkpoint=tmp_path)
    again = model().fit(TABLE, **ROLES, checkpoint=tmp_path, resume=True, callbacks=pytest.fail)
    assert same(weights(again), weights(whole))
    assert again.history_ == whole.history_
    with pytest.raises(DataError, match="other options: width=8 there"):
        model(width=16).fit(TABLE, **ROLES, checkpoint=tmp_path, resume=True)
    forget(tmp_path, {"data": "of another fit"})
    assert left_in(tmp_path)
    forget(tmp_path)
    assert not list(tmp_path.iterdir())
    forget(tmp_path / "absent")


def test_a_checkpoint_goes_when_its_model_is_saved_and_not_before(tmp_path):
    kept, path = tmp_path / "kept", tmp_path / "m.efattn"
    found = model().fit(TABLE, **ROLES, checkpoint=kept)
    with pytest.raises(ModelFileError, match="too long"):
        found.save(tmp_path / ("n" * 256))
    assert left_in(kept)
    found.save(path)
    assert not list(kept.iterdir())
    assert same(weights(efattn.load(path)), weights(found))
    other = model(width=16).fit(TABLE, **ROLES, checkpoint=kept)
    found.save(path)
    assert left_in(kept), "it is another's"
    other.save(path)
    assert not list(kept.iterdir())


def test_a_model_that_was_interrupted_leaves_its_checkpoint_when_it_is_saved(tmp_path):
    def interrupt(record):
        if record["epoch"] == 2:
            raise KeyboardInterrupt

    kept = tmp_path / "kept"
    model().fit(TABLE, **ROLES, checkpoint=kept, callbacks=[interrupt]).save(tmp_path / "m.efattn")
    resumed = model().fit(TABLE, **ROLES, checkpoint=kept, resume=True)
    assert same(weights(resumed), weights(model().fit(TABLE, **ROLES)))


def test_what_is_not_finished_is_not_forgotten(stopped):
    forget(stopped)
    assert left_in(stopped)


def test_a_disk_that_fills_up_while_training_costs_the_checkpoint_only(tmp_path, monkeypatch, caplog):
    def full(*_):
        raise ModelFileError("There is no room.")

    monkeypatch.setattr(storage, "write", full)
    found = model().fit(TABLE, **ROLES, checkpoint=tmp_path)
    assert "There is no room. Training goes on" in caplog.text
    monkeypatch.undo()
    assert same(weights(found), weights(model().fit(TABLE, **ROLES)))


# ---- one fit at a time


def test_a_second_fit_in_the_same_folder_is_told_who_is_at_work(tmp_path):
    words: list[str] = []

    def second(record):
        if not words:
            with pytest.raises(DataError, match=rf"is in use: process {os.getpid()} on .*Wait for it") as told:
                model().fit(TABLE, **ROLES, checkpoint=tmp_path, resume=bool(left_in(tmp_path)))
            words.append(str(told.value))
        forget(tmp_path)

    whole = model().fit(TABLE, **ROLES, checkpoint=tmp_path, callbacks=[second])
    assert len(words) == 1
    assert same(weights(whole), weights(model().fit(TABLE, **ROLES)))
    assert [path.name for path in tmp_path.iterdir()] == [checkpoints.NAME], "the lock is gone"


def test_the_lock_of_a_dead_process_holds_nobody_up(tmp_path):
    program = """
import os, signal
from pathlib import Path
from efattn.training.lock import locked
with locked(Path(".")):
    os.kill(os.getpid(), signal.SIGKILL)
"""
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=False)
    assert [path.name for path in tmp_path.iterdir()] == [lock.NAME]
    with lock.locked(tmp_path), pytest.raises(DataError, match=f"process {os.getpid()}"), lock.locked(tmp_path):
        pass
    assert not list(tmp_path.iterdir())


def test_an_error_gives_the_folder_free(stopped):
    def broken(record):
        raise Stop

    with pytest.raises(Stop):
        model().fit(TABLE, **ROLES, checkpoint=stopped, resume=True, callbacks=[broken])
    assert [path.name for path in stopped.iterdir()] == [checkpoints.NAME]


def test_of_many_at_a_time_one_holds_the_folder(tmp_path):
    """However they come and go: the lock's file is removed with each."""
    inside, most, held = [0], [0], [0]

    def visit():
        for _ in range(50):
            with contextlib.suppress(DataError), lock.locked(tmp_path):
                inside[0] += 1
                most[0], held[0] = max(most[0], inside[0]), held[0] + 1
                time.sleep(0.0005)
                inside[0] -= 1

    threads = [threading.Thread(target=visit) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1]
    assert held[0] >= 1


def test_a_folder_that_nothing_can_be_written_to_is_found_before_training(tmp_path, monkeypatch):
    def denied(path, *_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(lock, "_held", denied)
    with pytest.raises(DataError, match="cannot be a folder to write to: Permission denied"):
        model().fit(TABLE, **ROLES, checkpoint=tmp_path, callbacks=pytest.fail)
    monkeypatch.undo()

    def full(path):
        raise ModelFileError("There is no room. Make some.")

    monkeypatch.setattr(storage, "try_path", full)
    with pytest.raises(DataError, match="cannot be a folder to write to: There is no room"):
        model().fit(TABLE, **ROLES, checkpoint=tmp_path, callbacks=pytest.fail)


def test_resume_without_a_folder_and_a_folder_that_is_a_file_are_refused(tmp_path):
    with pytest.raises(DataError, match=r"resume=True needs checkpoint="):
        model().fit(TABLE, **ROLES, resume=True)
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="cannot be a folder"):
        model().fit(TABLE, **ROLES, checkpoint=tmp_path / "file", callbacks=pytest.fail)
