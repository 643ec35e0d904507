"""One fit by several processes is the fit of one, whichever of them ends."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
from several import Server
from shell import ENVIRONMENT, QUICK
from small_training import TABLE, without_seconds
from teamwork import FITS, fitted

import efattn
from efattn.training import left_in
from efattn.training.teams import Team, together

KILLED = "Another of the 2 processes ended: it failed, was killed, or its machine cannot be reached. "
FIT = ["fit", "t.csv", "--group", "user", "--value", "real", "--family", "gaussian", "-o", "m.efattn", *QUICK]
LONG = [*FIT, "--epochs", "2000", "--patience", "none", "--checkpoint", "kept", "--checkpoint-seconds", "0"]


@pytest.fixture(scope="module")
def server():
    one = Server()
    yield one
    one.close()


@pytest.fixture(scope="module")
def fits(server, tmp_path_factory):
    folder = tmp_path_factory.mktemp("fits")
    assert server.run(folder, work="fit_all") == ([0, 0], ["", ""], ["", ""])
    return folder


def loaded(folder, name, processes=2):
    return [efattn.load(folder / f"{name}.{k}.efattn") for k in range(processes)]


def weights(model):
    return {f"{k}.{name}": x for k, one in enumerate(model.members_) for name, x in one.state_dict().items()}


def same(one, two):
    mine, theirs = weights(one), weights(two)
    return mine.keys() == theirs.keys() and all(torch.equal(x, theirs[name]) for name, x in mine.items())


def assert_alike(one, two):
    """Up to rounding, which Adam makes larger where a gradient is zero."""
    for mine, theirs in zip(one.history_, two.history_, strict=True):
        for name in ("train", "validation", "best", "rate"):
            assert mine[name] == pytest.approx(theirs[name], abs=1e-5), name
    assert one.score(TABLE) == pytest.approx(two.score(TABLE), abs=1e-4)


@pytest.mark.parametrize("name", ["both terms", "one group a batch", "members", "defaults"])
def test_two_processes_fit_what_one_fits(fits, name):
    assert_alike(loaded(fits, name)[0], fitted(name))


@pytest.mark.parametrize("name", FITS)
def test_all_processes_have_the_same_model_and_one_writes_its_history(fits, name):
    first, second = loaded(fits, name)
    assert same(first, second)
    assert first.history_ == second.history_
    assert [str(note) for note in first.notes_] == [str(note) for note in second.notes_]
    assert first.score(TABLE) == second.score(TABLE)
    lines = [json.loads(line) for line in (fits / f"{name}.history").read_text().splitlines()]
    assert lines[: len(first.history_)] == first.history_


def test_two_processes_fit_to_groups_on_disk(fits):
    first, second = loaded(fits, "from disk")
    assert same(first, second)
    assert len(list((fits / "cache/efattn/groups").iterdir())) == 1
    assert_alike(first, fitted("members"))


def test_processes_draw_their_own_random_numbers_known_at_each_step():
    def drawn(rank, *step):
        with torch.random.fork_rng():
            Team(rank, 2).seed(*step)
            return torch.rand(3)

    assert torch.equal(drawn(0, 1, 2, 3), drawn(0, 1, 2, 3))
    assert not torch.equal(drawn(0, 1, 2, 3), drawn(1, 1, 2, 3))
    assert not torch.equal(drawn(0, 1, 2, 3), drawn(0, 1, 2, 4))


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_every_group_of_a_batch_is_in_one_part(size):
    parts = [Team(k, size).part(np.arange(5)) for k in range(size)]
    assert sorted(np.concatenate(parts)) == [0, 1, 2, 3, 4]


def test_a_process_that_was_started_alone_fits_alone():
    with together() as team:
        assert team is None


@pytest.mark.parametrize(("before", "after"), [(2, 1), (1, 3)])
def test_another_number_of_processes_goes_on(server, tmp_path, before, after):
    server.run(tmp_path, "both terms", 5, work="fit_until", processes=before)
    assert left_in(tmp_path / "kept")
    assert server.run(tmp_path, "both terms", work="go_on", processes=after).codes == [0] * after
    assert_alike(efattn.load(tmp_path / "resumed.0.efattn"), fitted("both terms"))


def test_the_same_number_goes_on_to_the_same_weights_bit_for_bit(server, fits, tmp_path):
    server.run(tmp_path, "random", 4, work="fit_until")
    assert server.run(tmp_path, "random", work="go_on").codes == [0, 0]
    whole, resumed = loaded(fits, "random")[0], efattn.load(tmp_path / "resumed.0.efattn")
    assert same(whole, resumed)
    assert without_seconds(whole.history_) == without_seconds(resumed.history_)


def test_processes_with_other_tables_say_so(server, tmp_path):
    ended = server.run(tmp_path, work="fit_other_tables")
    assert json.loads(ended.out[1])[1].startswith("Process 1 of 2 was given other data than the first")
    assert json.loads(ended.out[0])[0] == "Lost"


def test_a_loss_that_one_process_finds_to_be_nan_stops_all_alike(server, tmp_path):
    first, second = map(json.loads, server.run(tmp_path, work="fit_with_a_loss_that_is_nan").out)
    assert first == second
    assert "turned into NaN or infinity in epoch 1, batch 1 (rows " in first[1]


# ---- the command


@pytest.fixture
def home(tmp_path):
    TABLE.write_csv(tmp_path / "t.csv")
    return tmp_path


def until_kept(folder, seconds=60):
    """Until a newer checkpoint is there."""
    end, before = time.monotonic() + seconds, stamps(folder)
    while stamps(folder) == before and time.monotonic() < end:
        time.sleep(0.01)


def stamps(folder):
    try:
        return [path.stat().st_mtime_ns for path in left_in(folder / "kept")]
    except FileNotFoundError:
        return []


def test_a_killed_process_gives_one_line_and_a_checkpoint_that_resumes(server, home):
    second = server.start(home, *LONG)[1]
    until_kept(home)
    os.kill(second, signal.SIGKILL)
    codes, _, (first, nothing) = server.ended()
    assert codes == [2, -signal.SIGKILL]
    assert nothing == ""
    told = first.splitlines()[-1]
    assert told.startswith(f"efattn: {KILLED}--checkpoint kept holds where it stood, in epoch ")
    assert "Traceback" not in first
    ended = server.run(home, *LONG, "--resume", "--seconds", "0.1", processes=1)
    assert ended.codes == [2], "other options"
    first, second = server.start(home, *LONG, "--resume")
    until_kept(home)
    os.kill(first, signal.SIGKILL)
    codes, _, (nothing, said) = server.ended()
    assert codes == [-signal.SIGKILL, 2]
    assert said.startswith(f"efattn: {KILLED.rstrip()}")
    assert said.count("\n") == 1


def test_a_mistake_is_told_once(server, home):
    for words in (["--group", "nobody"], ["--epochs", "0"], ["--resume"]):
        ended = server.run(home, *FIT, *words)
        assert all(ended.codes), words
        assert sum(text.count("\n") for text in ended.err) == 1, ended
    ended = server.run(home, "score", "m.efattn", "t.csv")
    assert [text.count("\n") for text in ended.err] == [1, 0]


@pytest.mark.slow
def test_torchrun_starts_anew_what_was_killed_and_it_goes_on(home):
    own = {name: x for name, x in ENVIRONMENT.items() if name not in ("RANK", "WORLD_SIZE")}
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = [*torchrun, "--max-restarts", "1", "-m", "efattn", *LONG, "--seconds", "6"]
    process = subprocess.Popen(command, cwd=home, env=own, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    until_kept(home)
    children = subprocess.run(["ps", "-o", "pid=", "--ppid", str(process.pid)], capture_output=True, text=True).stdout
    os.kill(int(children.split()[-1]), signal.SIGKILL)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert [line for line in err.splitlines() if "Another of the 2 processes ended" in line or "Ended from" in line]
    assert out.count("Wrote m.efattn") == 1
    assert len(efattn.load(home / "m.efattn").history_) > 1
