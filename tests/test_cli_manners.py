"""The shell in an unfriendly place: closed streams, full files, links, odd columns, names that terminals obey."""

import datetime
import json
import os
import stat
import subprocess

import numpy as np
import polars as pl
import pytest
from shell import EFATTN, ENVIRONMENT, QUICK, Answer, efattn, forked
from small import ratings, weather

import efattn as library
from efattn import storage
from efattn.cli import messages, outcome, output, report
from efattn.errors import DataError, Note, option

ROLES = ["--group", "user", "--item", "movie", "--value", "rating"]
ESCAPE = "a\x1b]0;title\x07\x9b31m"


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    folder = tmp_path_factory.mktemp("manners")
    ratings().write_csv(folder / "ratings.csv")
    forked("fit", "ratings.csv", *ROLES, "-o", "m.efattn", *QUICK, cwd=folder).good()
    return folder


def bash(home, words):
    done = subprocess.run(
        ["bash", "-c", f"{EFATTN} {words}"], cwd=home, env=ENVIRONMENT, capture_output=True, text=True, check=False
    )
    return Answer(done.returncode, done.stdout, done.stderr)


# ---- streams


def test_a_closed_standard_output_is_said_before_any_work(home):
    for words in ("score m.efattn ratings.csv", f"fit ratings.csv {' '.join(ROLES)} -o closed.efattn"):
        told = bash(home, f"{words} >&-")
        assert told.code == 2
        assert told.err.startswith("efattn: Standard output is closed")
        assert told.err.count("\n") == 1
    assert not (home / "closed.efattn").exists()


def test_a_closed_standard_input_is_said(home):
    told = bash(home, "predict m.efattn - <&-")
    assert (told.code, told.out) == (2, "")
    assert told.err.startswith("efattn: Standard input is closed")


def test_a_closed_standard_error_changes_no_answer(home):
    told = bash(home, "score m.efattn ratings.csv --json 2>&-")
    assert told.code == 0
    assert told.json()["scored"] == 75


def test_a_pipe_that_can_be_read_once_is_a_table(home):
    told = bash(home, "score m.efattn <(cat ratings.csv) --json").good()
    assert told.json()["observations"] == 75


def test_infinity_has_a_word_in_json(capsys):
    output.print_json({"a": -np.inf, "b": [np.inf, np.nan, np.float64("-inf")], "c": 1.5})
    assert json.loads(capsys.readouterr().out) == {"a": "-inf", "b": ["inf", None, "-inf"], "c": 1.5}


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is always full")
def test_a_full_history_is_told_by_its_name_and_loses_no_model(home):
    words = ["fit", "ratings.csv", *ROLES, "-o", "h.efattn", *QUICK, "--history", "/dev/full"]
    told = forked(*words, cwd=home).good()
    assert told.err.count("'/dev/full' cannot be written to: No space left on device. Training goes on") == 1
    assert "Standard output" not in told.err
    assert len(library.load(home / "h.efattn").history_) == 4


# ---- files


@pytest.mark.parametrize("verb", ["predict", "fit"])
def test_force_writes_through_a_link_and_keeps_the_mode(home, verb):
    name = f"{verb}.csv" if verb == "predict" else "fit.efattn"
    real, link = home / f"real-{name}", home / f"link-{name}"
    real.write_text("old")
    real.chmod(0o640)
    link.symlink_to(real.name)
    words = ["predict", "m.efattn", "ratings.csv"] if verb == "predict" else ["fit", "ratings.csv", *ROLES, *QUICK]
    assert forked(*words, "-o", link.name, cwd=home).code == 2
    forked(*words, "-o", link.name, "--force", cwd=home).good()
    assert link.is_symlink()
    assert stat.S_IMODE(real.stat().st_mode) == 0o640
    assert real.read_bytes() != b"old"


def test_what_a_killed_command_left_is_swept(home):
    dead = subprocess.Popen(["true"])
    dead.wait()
    left = home / f".swept.csv.{storage.HOST}.{dead.pid:x}.{'0' * 16}.part"
    other = home / f".swept.csv.{storage.HOST}.{os.getpid():x}.{'0' * 16}.part"
    left.write_text("half"), other.write_text("being written")
    forked("predict", "m.efattn", "ratings.csv", "-o", "swept.csv", cwd=home).good()
    assert not left.exists()
    assert other.exists()
    other.unlink()


def test_nothing_is_written_over_what_is_read(home):
    before = (home / "ratings.csv").read_bytes()
    (home / "same.csv").symlink_to("ratings.csv")
    for name in ("ratings.csv", "./ratings.csv", "same.csv"):
        words = ["fit", "ratings.csv", *ROLES, *QUICK]
        told = forked(*words, "-o", "w.efattn", "--history", name, cwd=home)
        assert told.code == 2
        assert "--history would be written over 'ratings.csv'" in told.err
        told = forked(*words, "-o", name, "--force", cwd=home)
        assert told.code == 2
        assert "The model would be written over 'ratings.csv'" in told.err
    assert "--history would be written over 'w.efattn'" in (
        forked(*words, "-o", "w.efattn", "--history", "w.efattn", cwd=home).err
    )
    assert (home / "ratings.csv").read_bytes() == before


ODD = {
    "list": [[1, 2]],
    "struct": [{"a": 1}],
    "binary": [b"\xff"],
    "duration": [datetime.timedelta(seconds=3)],
}


@pytest.mark.parametrize("kind", ODD)
def test_a_column_that_cannot_be_written_is_found_before_anything_is_computed(home, kind):
    table = ratings()
    table = table.with_columns(pl.Series("odd", ODD[kind] * len(table)))
    table.write_parquet(home / "odd.parquet")
    told = forked("predict", "m.efattn", "odd.parquet", "-o", "odd.csv", cwd=home)
    assert told.code == 2
    assert "Column 'odd' holds" in told.err
    assert ".parquet" in told.err
    assert not (home / "odd.csv").exists()
    told = forked("predict", "m.efattn", "odd.parquet", "--json", cwd=home)
    assert told.code == (2 if kind == "binary" else 0)
    forked("predict", "m.efattn", "odd.parquet", "-o", "odd-out.parquet", "--force", cwd=home).good()
    found = pl.read_parquet(home / "odd-out.parquet")
    assert found["odd"].to_list() == table["odd"].to_list()


# ---- checkpoints


def test_a_checkpoint_is_neither_forgotten_nor_overwritten(home):
    words = ["fit", "ratings.csv", *ROLES, *QUICK, "--checkpoint", "kept", "--checkpoint-seconds", "0"]
    told = forked(*words, "--resume", "-o", "r.efattn", cwd=home)
    assert told.code == 2
    assert "There is nothing to resume in 'kept'" in told.err
    (home / "kept").mkdir()
    (home / "kept" / "training.checkpoint").write_text("of an earlier fit")
    told = forked(*words, "-o", "r.efattn", cwd=home)
    assert told.code == 2
    assert "--resume" in told.err
    assert "--force" in told.err
    assert (home / "kept" / "training.checkpoint").read_text() == "of an earlier fit"
    forked(*words, "-o", "r.efattn", "--force", cwd=home).good()
    assert not (home / "kept" / "training.checkpoint").exists()
    assert "needs --checkpoint" in forked(*words[:-4], "--resume", "-o", "s.efattn", cwd=home).err


# ---- words


def test_what_a_terminal_would_obey_is_shown(tmp_path):
    table = ratings().rename({"rating": ESCAPE})
    table = table.with_columns(pl.format("\x1b[2J{}", "movie").alias("movie"))
    table.write_csv(tmp_path / "odd.csv")
    words = ["--group", "user", "--item", "movie", "--value", ESCAPE, "-o", "m.efattn", *QUICK]
    told = [forked("fit", "odd.csv", *words, cwd=tmp_path).good()]
    told.append(forked("score", "m.efattn", "odd.csv", cwd=tmp_path).good())
    told.append(forked("summary", "m.efattn", cwd=tmp_path).good())
    told.append(forked("attention", "m.efattn", "odd.csv", "--group", "u3", cwd=tmp_path).good())
    told.append(forked("fit", f"{ESCAPE}.csv", *words, "--force", cwd=tmp_path))
    told.append(forked("similar", "m.efattn", "\x1b[2Jm99", cwd=tmp_path))
    for one in told:
        assert not {"\x1b", "\x07", "\x9b"} & set(one.out + one.err), one
    assert r"\x1b]0;title\x07\x9b31m" in told[0].err
    assert r"\x1b[2Jm" in told[3].out
    csv = forked("predict", "m.efattn", "odd.csv", cwd=tmp_path).good().out  # data, to a file: as they are
    assert ESCAPE in csv


def test_visible_text_stays_what_it_is():
    assert messages.visible("Zürich 東京 👩\u200d👩 a b") == "Zürich 東京 👩\u200d👩 a b"
    assert messages.visible("a\u202eb\x00\u2028") == r"a\u202eb\x00\u2028"
    assert messages.visible("a\nb\tc", keep="\n") == "a\nb\\tc"


def test_notes_and_errors_are_printed_with_the_shells_names(capsys):
    messages.note(Note("support", f"No item repeats: {option('support', 'distinct')}."))
    messages.say(DataError(f"pass {option('max_length', 3)}"))
    assert capsys.readouterr().err == (
        "efattn: note: No item repeats: --support distinct.\nefattn: pass --max-length 3\n"
    )


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("[enforce fail at alloc_cpu.cpp:124] DefaultCPUAllocator: can't allocate memory"),
        RuntimeError("CUDA out of memory. Tried to allocate 20.00 GiB"),
        MemoryError(),
    ],
)
def test_too_little_memory_is_no_mistake_of_ours(error, capsys):
    assert outcome._explain(error) == 2
    told = capsys.readouterr().err
    assert "not enough memory" in told
    assert "--max-length" in told
    assert outcome._explain(RuntimeError("something else")) == 1


def test_a_tie_is_called_one():
    scores = {"model": -1.00001, "marginal": -1.00002, "latent": None}
    assert report._sentence("EFA", "item", scores) == "item: EFA and each item's own distribution are level."
    scores = {"model": -1.00002, "marginal": -1.00001, "latent": None}
    assert report._sentence("EFA", "item", scores) == "item: EFA and each item's own distribution are level."
    behind = {**scores, "marginal": -1.00022}
    assert "is ahead of each item's own distribution by 0.0002" in report._sentence("EFA", "item", behind)


def test_attention_of_many_items_fits_a_terminal(tmp_path):
    table = weather(stations=25).with_columns(pl.format("Station number {}", "station").alias("station"))
    table.write_csv(tmp_path / "w.csv")
    roles = ["--group", "day", "--item", "station", "--value", "tmax", "--terms", "value"]
    forked("fit", "w.csv", *roles, "-o", "w.efattn", *QUICK, cwd=tmp_path).good()
    told = efattn("attention", "w.efattn", "w.csv", "--group", "3", cwd=tmp_path, COLUMNS="80").good()
    lines = told.out.splitlines()
    assert all(len(line) <= 80 for line in lines)
    assert "looks most at" in lines[0]
    assert sum(line.startswith("Station number") for line in lines) == 25
    assert "25 contexts: the 5" in told.err
    forked("attention", "w.efattn", "w.csv", "--group", "3", "-o", "all.csv", cwd=tmp_path).good()
    assert len(pl.read_csv(tmp_path / "all.csv")) == 25 * 25 * 2 * 2


@pytest.mark.parametrize("verb", ["predict", "impute", "recommend"])
def test_no_answer_is_written_over_the_table_that_it_is_about(home, verb):
    before = (home / "ratings.csv").read_bytes()
    told = forked(verb, "m.efattn", "ratings.csv", "-o", "ratings.csv", "--force", cwd=home)
    assert told.code == 2
    assert "The answer would be written over 'ratings.csv'" in told.err
    assert (home / "ratings.csv").read_bytes() == before
