"""Bad use through the shell: exit 2, one clear line on standard error, no traceback, nothing written.

The rows of docs/odd-inputs.md that end in a DataError and can be written into a file are walked here; the others are
about frames in Python, or work, and are named below with the reason.
"""

import gzip
import os
import re
import resource
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
from shell import EFATTN, ENVIRONMENT, QUICK, efattn, forked
from small import ratings
from test_data_odd_inputs import LISTED

PAGE = Path(__file__).parents[1] / "docs" / "odd-inputs.md"
BASE = {
    "user": ["u1", "u1", "u2", "u2", "u3", "u3"],
    "movie": [10, 20, 10, 30, 20, 10],
    "rating": [1.5, 2.0, 3.0, 4.0, 5.0, 2.5],
    "age": [30.0, 30.0, 40.0, 40.0, 50.0, 50.0],
    "when": [3, 1, 2, 5, 4, 6],
    "w": [1.0, 2.0, 1.0, 1.0, 1.0, 1.0],
    "e": [1.0, 2.0, 1.0, 1.0, 1.0, 1.0],
    "t": ["true", "true", "false", "true", "true", "true"],
    "day": [1, 1, 2, 2, 3, 3],
}
ROLES = ["--group", "user", "--item", "movie", "--value", "rating"]
LAGGED = ["--group", "day", "--item", "movie", "--value", "rating", "--time", "day", "--lags", "1"]


AT = ["--time", "when", "--lags", "1"]


def changed(**columns):
    return pl.DataFrame({**BASE, **columns}, strict=False).write_csv().encode()


def put(column, row, entry):
    entries = [None if x is None else str(x) for x in BASE[column]]
    entries[row] = entry
    return changed(**{column: entries})


# id: (what is in the file, options of fit, words of the message)
ODD = {
    "null-group": (put("user", 1, None), ROLES, ["user", "row 1"]),
    "null-attribute": (changed(age=[None] * len(BASE["age"])), [*ROLES, "--attributes", "age"], ["age", "row 0"]),
    "null-order": (put("when", 3, None), [*ROLES, "--order", "when"], ["when", "row 3"]),
    "null-time": (put("when", 3, None), [*LAGGED[:-4], *AT], ["when", "row 3"]),
    "null-series": (put("w", 3, None), [*LAGGED, "--series", "w"], ["'w'", "row 3"]),
    "null-exposure": (put("e", 4, None), [*ROLES, "--exposure", "e", "--family", "gamma"], ["'e'", "row 4"]),
    "null-weight": (put("w", 0, None), [*ROLES, "--weight", "w"], ["'w'", "row 0"]),
    "null-target": (put("t", 1, None), [*ROLES, "--target", "t"], ["'t'", "row 1"]),
    "infinite-value": (put("rating", 3, "inf"), ROLES, ["rating", "row 3"]),
    "huge-value": (put("rating", 3, "9.97e36"), ROLES, ["rating", "row 3", "--missing"]),
    "huge-attribute": (put("age", 3, "1e38"), [*ROLES, "--attributes", "age"], ["age", "row 3"]),
    "stray-quote": (put("user", 1, "XX").replace(b"XX", b'u"1'), ROLES, ["quote", "line"]),
    "infinite-attribute": (put("age", 1, "-inf"), [*ROLES, "--attributes", "age"], ["age", "row 1"]),
    "infinite-time": (put("when", 1, "inf"), [*LAGGED[:-4], *AT], ["when", "row 1"]),
    "infinite-group": (put("movie", 1, "inf"), ROLES, ["movie", "row 1"]),
    "all-missing": (changed(rating=[None] * 6), ROLES, ["rating", "missing"]),
    "empty-table": (changed().splitlines()[0] + b"\n", ROLES, ["no rows"]),
    "missing-column": (changed(), [*ROLES, "--order", "zzzz"], ["'zzzz'", "Columns"]),
    "misspelt-column": (changed(), [*ROLES, "--order", "whem"], ["Did you mean 'when'"]),
    "text-value": (put("rating", 2, "good"), ROLES, ["rating", "row 2", "good"]),
    "thousands-text": (put("rating", 2, "1,234"), ROLES, ["rating", "row 2"]),
    "ambiguous-date": (changed(when=["01/02/2024"] * 6), [*ROLES, "--order", "when"], ["when", "row 0"]),
    "text-order": (changed(when=list("abcdef")), [*ROLES, "--order", "when"], ["when", "row 0"]),
    "target-number": (changed(t=[1, 0, 2, 1, 1, 1]), [*ROLES, "--target", "t"], ["'t'", "row 2"]),
    "outside-support": (put("rating", 2, "-7"), [*ROLES, "--family", "gamma"], ["rating", "row 2", "u2"]),
    "bad-max-length": (changed(), [*ROLES, "--max-length", "0"], ["--max-length"]),
    "same-time-twice": (changed(day=[1, 1, 1, 1, 2, 2]), ["--group", "user", *LAGGED[2:]], ["user 'u1'", "series"]),
    "time-varies-in-group": (
        changed(),
        ["--group", "user", "--item", "movie", "--time", "when", "--lags", "1"],
        ["when"],
    ),
    "one-time": (changed(day=[1] * 6), LAGGED, ["two times"]),
    "lags-without-time": (changed(), [*ROLES, "--lags", "1"], ["--time"]),
    "repeated-item": (put("movie", 1, "10"), [*ROLES, "--support", "distinct"], ["movie 10", "row 1", "u1"]),
    "huge-float": (put("movie", 1, "1e300"), ROLES, ["movie", "row 1"]),
    "duplicate-role": (changed(), [*ROLES, "--value", "rating"], ["rating", "twice"]),
    "incompatible-roles": (changed(), [*ROLES, "--order", "rating"], ["rating", "order"]),
    "told-item": (changed(), ["--group", "user", "--item", "movie", "--order", "movie"], ["movie", "--terms value"]),
    "nothing-to-model": (changed(), ["--group", "user"], ["--item", "--value"]),
    "duplicate-name": (b"a,a\n1,2\n3,4\n", ["--group", "a", "--value", "a"], ["'a'", "--columns"]),
    "negative-weight": (put("w", 3, "-0.5"), [*ROLES, "--weight", "w"], ["-0.5", "row 3"]),
    "zero-exposure": (put("e", 1, "0"), [*ROLES, "--exposure", "e"], ["0.0", "row 1"]),
    "no-header": (b"1,2,3\n4,5,6\n", ROLES, ["header", "--columns"]),
    "ragged-line": (changed() + b"1,2,3,4,5,6,7,8,9,10\n", ROLES, ["line 8"]),
    "not-utf8": (changed(user=["é"] * 6).decode().encode("latin-1"), ROLES, ["line 2", "--encoding latin-1"]),
    "binary-file": (b"\x89PNG\x00\x00", ROLES, ["CSV"]),
    "empty-file": (b"", ROLES, ["empty"]),
    "cut-file": (gzip.compress(changed() * 100)[:-9], ROLES, ["gzip"]),
}
ELSEWHERE = {  # DataErrors that need a frame in Python, a second table, or a test of their own below
    "unknown-item-type", "index-column", "date-value", "time-kind-changed", "order-kind-changed", "infinite-order",
    "huge-integer", "mixed-types", "nested",
    "ordered-categories", "bomb", "bad-separator",
    "not-a-table", "directory", "unreadable-file", "no-file", "timezone", "leading-zeros",
}  # fmt: skip


def one_line(told, *words, code=2):
    """What every mistake of a user looks like."""
    assert told.code == code, told
    assert told.out == ""
    assert "Traceback" not in told.err
    lines = told.err.strip().splitlines()
    assert len([line for line in lines if not line.startswith("efattn: note")]) == 1, told.err
    assert lines[-1].startswith("efattn: ")
    for word in words:
        assert word in lines[-1], told.err


@pytest.mark.parametrize("name", ODD)
def test_an_odd_table_is_refused_in_one_line(name, tmp_path):
    content, options, words = ODD[name]
    (tmp_path / "table.csv").write_bytes(content)
    one_line(forked("fit", "table.csv", *options, "-o", "m.efattn", *QUICK, cwd=tmp_path), *words)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["table.csv"]


def test_every_refusal_on_the_page_is_walked():
    rows = re.findall(r"^\| ([a-z0-9-]+) \| .* \| (.*) \|$", PAGE.read_text(), re.MULTILINE)
    refused = {name for name, answer in rows if "DataError" in answer}
    assert refused <= set(ODD) | ELSEWHERE, refused - set(ODD) - ELSEWHERE
    assert set(ODD) <= set(LISTED)


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bad")
    ratings().write_csv(folder / "ratings.csv")
    roles = ["--group", "user", "--item", "movie", "--value", "rating"]
    forked("fit", "ratings.csv", *roles, "-o", "m.efattn", *QUICK, cwd=folder).good()
    (folder / "folder").mkdir()
    (folder / "cut.efattn").write_bytes((folder / "m.efattn").read_bytes()[:-50])
    (folder / "old.csv").write_text("keep me")
    return folder


WRONG_FILES = {
    "directory as table": (["score", "m.efattn", "folder"], ["directory"]),
    "model as table": (["score", "m.efattn", "m.efattn"], ["model", "TABLE"]),
    "table as model": (["score", "ratings.csv", "ratings.csv"], ["not an efattn file"]),
    "cut model": (["score", "cut.efattn", "ratings.csv"], ["damaged"]),
    "no model": (["summary", "nowhere.efattn"], ["no file", "nowhere.efattn"]),
    "directory as model": (["summary", "folder"], ["directory"]),
    "no table": (["predict", "m.efattn", "nowhere.csv"], ["nowhere.csv", "path"]),
    "an address": (["predict", "m.efattn", "https://example.org/t.csv"], ["address"]),
    "output exists": (["predict", "m.efattn", "ratings.csv", "-o", "old.csv"], ["exists", "--force"]),
    "output is a folder": (["predict", "m.efattn", "ratings.csv", "-o", "folder"], [".csv"]),
    "output of no kind": (["predict", "m.efattn", "ratings.csv", "-o", "x.xlsx"], [".csv"]),
    "output in no folder": (["predict", "m.efattn", "ratings.csv", "-o", "no/x.csv"], ["no folder", "'no'"]),
    "output is a device": (["fit", "ratings.csv", "--item", "movie", "-o", "/dev/null"], ["plain file"]),
    "unknown item": (["similar", "m.efattn", "m9"], ["'m9'"]),
    "too many words": (["similar", "m.efattn", "m1", "m2"], ["MOVIE"]),
    "unknown group": (["attention", "m.efattn", "ratings.csv", "--group", "u99"], ["u99"]),
    "several groups": (["attention", "m.efattn", "ratings.csv"], ["--group u0"]),
    "unknown term": (["attention", "m.efattn", "ratings.csv", "--group", "u3", "--term", "x"], ["'x'"]),
    "unknown set": (["datasets", "export", "noaa"], ["noaa-october"]),
    "k of none": (["recommend", "m.efattn", "-k", "0"], ["0"]),
    "a wide interval": (["predict", "m.efattn", "ratings.csv", "--interval", "2"], ["interval", "2"]),
    "a long separator": (["score", "m.efattn", "ratings.csv", "--separator", "ab"], ["separator"]),
    "a wrong encoding": (["score", "m.efattn", "ratings.csv", "--encoding", "klingon"], ["klingon"]),
    "no validation table": (
        ["fit", "ratings.csv", "--item", "movie", "-o", "n.efattn", "--validation", "x.csv"],
        ["x.csv"],
    ),
    "past without order": (
        ["fit", "ratings.csv", "--item", "movie", "--group", "user", "--context", "past", "-o", "n.efattn"],
        ["--order"],
    ),
    "resume of nothing": (
        ["fit", "ratings.csv", "--item", "movie", "--group", "user", "--resume", "-o", "n.efattn"],
        ["--resume", "--checkpoint"],
    ),
    "no such family": (
        ["fit", "ratings.csv", "--value", "rating", "--family", "poison", "-o", "n.efattn"],
        ["'poisson'"],
    ),
    "family of no column": (
        ["fit", "ratings.csv", "--value", "rating", "--group", "user", "--family", "x=poisson", "-o", "n.efattn"],
        ["'x'"],
    ),
    "width and heads": (
        ["fit", "ratings.csv", "--item", "movie", "--width", "9", "--heads", "2", "-o", "n.efattn"],
        ["--width 9", "--heads 2"],
    ),
    "a negative rate": (["fit", "ratings.csv", "--item", "movie", "--rate", "-1", "-o", "n.efattn"], ["rate"]),
    "no such device": (
        ["fit", "ratings.csv", "--item", "movie", "--group", "user", "--device", "abacus", "-o", "n.efattn"],
        ["abacus"],
    ),
    "no verb of the name": (["scor"], ["'score'"]),
    "no option of the name": (["score", "m.efattn", "ratings.csv", "--jsn"], ["--json"]),
    "no argument": (["score"], ["MODEL", "efattn score --help"]),
    "no output": (["fit", "ratings.csv"], ["--output"]),
    "no such context": (["fit", "ratings.csv", "--context", "pst", "-o", "n.efattn"], ["past"]),
    "no number": (["recommend", "m.efattn", "-k", "many"], ["-k", "integer"]),
}


@pytest.mark.parametrize("name", WRONG_FILES)
def test_wrong_files_and_options_are_refused_in_one_line(name, home):
    words, wanted = WRONG_FILES[name]
    before = sorted(path.name for path in home.iterdir())
    one_line(forked(*words, cwd=home), *wanted)
    assert sorted(path.name for path in home.iterdir()) == before
    assert (home / "old.csv").read_text() == "keep me"


def test_a_mistake_looks_the_same_from_the_installed_command(home):
    one_line(efattn("datasets", "export", "noaa-october", "-o", "old.csv", cwd=home), "exists")
    one_line(efattn("scor", cwd=home), "'score'")


def test_a_table_that_comes_empty_through_a_pipe(home):
    one_line(forked("score", "m.efattn", "-", cwd=home), "Standard input is empty")


def test_another_type_of_item_than_was_fitted(home):
    ratings().with_columns(movie=pl.int_range(pl.len())).write_csv(home / "numbers.csv")
    one_line(forked("score", "m.efattn", "numbers.csv", cwd=home), "'movie'", "text")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read and write everything")
def test_what_may_not_be_read_or_written(home):
    (home / "secret.csv").write_text("a,b\n1,2\n")
    (home / "secret.csv").chmod(0)
    one_line(forked("score", "m.efattn", "secret.csv", cwd=home), "Permission denied")
    (home / "closed").mkdir(mode=0o500)
    one_line(forked("predict", "m.efattn", "ratings.csv", "-o", "closed/x.csv", cwd=home), "closed")


def limited(home, words, size=1000):
    """The command where no file may grow past `size` bytes, as on a full disk."""
    done = subprocess.run(
        [EFATTN, *words],
        cwd=home,
        capture_output=True,
        text=True,
        check=False,
        env={**ENVIRONMENT, "PYTHONDONTWRITEBYTECODE": "1"},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size)),
    )
    return done


@pytest.mark.parametrize("name", ["full.csv", "full.csv.gz", pytest.param("full.parquet", marks=pytest.mark.slow)])
def test_a_full_disk_leaves_nothing_behind(home, name):
    slow = name.endswith("parquet")
    words = ["predict", "m.efattn", "ratings.csv"] if slow else ["datasets", "export", "noaa-october"]
    done = limited(home, [*words, "-o", name])
    assert done.returncode == 2, done
    assert "cannot be written" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (home / name).exists()
    assert not list(home.glob(".*.part"))


@pytest.mark.slow
def test_a_full_disk_while_fitting_leaves_nothing_behind(home):
    done = limited(home, ["fit", "ratings.csv", "--item", "movie", "--group", "user", "-o", "full.efattn", *QUICK])
    assert done.returncode == 2, done
    assert "cannot be written" in done.stderr
    assert not list(home.glob("*full*"))


def test_a_full_standard_output_is_said():
    done = subprocess.run(
        ["bash", "-c", f"{EFATTN} datasets list > /dev/full"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr == "efattn: Standard output cannot be written: No space left on device.\n"


def test_a_mistake_of_ours_asks_for_a_report_and_shows_its_trace_only_on_demand(tmp_path):
    code = "import sys, efattn.cli.tables as t; t.load = lambda path: {}['gone']; from efattn.cli import main; main()"
    words = [sys.executable, "-c", code, "summary", "m.efattn"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "report" in done.stderr
    done = subprocess.run([*words, "--debug"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "Traceback" in done.stderr
