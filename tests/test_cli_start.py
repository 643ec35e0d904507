"""What can be refused without a model is refused before torch is imported."""

import subprocess
import sys

import pytest
from shell import ENVIRONMENT, QUICK, forked
from small import ratings

CODE = """
import sys
sys.argv[0] = "efattn"
from efattn.cli import main
try:
    main()
except SystemExit as end:
    loaded = sorted({"torch", "sklearn", "scipy"} & set(sys.modules))
    print("LOADED", *loaded, file=sys.stderr)
    sys.exit(end.code)
"""
ROLES = ["--group", "user", "--item", "movie", "--value", "rating"]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    folder = tmp_path_factory.mktemp("start")
    ratings().write_csv(folder / "ratings.csv")
    forked("fit", "ratings.csv", *ROLES, "-o", "m.efattn", *QUICK, cwd=folder).good()
    (folder / "cut.efattn").write_bytes((folder / "m.efattn").read_bytes()[:-50])
    (folder / "empty").mkdir()
    (folder / "state").mkdir()
    (folder / "state" / "training.checkpoint").write_text("")
    return folder


QUICKLY = {
    "fit: no file": ["fit", "missing.csv", *ROLES, "-o", "n.efattn"],
    "fit: a misspelt column": ["fit", "ratings.csv", "--group", "usr", "--item", "movie", "-o", "n.efattn"],
    "fit: nothing to model": ["fit", "ratings.csv", "--group", "user", "-o", "n.efattn"],
    "fit: a column twice": ["fit", "ratings.csv", *ROLES, "--order", "rating", "-o", "n.efattn"],
    "fit: a bad number": ["fit", "ratings.csv", *ROLES, "--layers", "two", "-o", "n.efattn"],
    "fit: out of range": ["fit", "ratings.csv", *ROLES, "--rate", "-1", "-o", "n.efattn"],
    "fit: width and heads": ["fit", "ratings.csv", *ROLES, "--width", "9", "--heads", "2", "-o", "n.efattn"],
    "fit: no such option": ["fit", "ratings.csv", "--widht", "9", "-o", "n.efattn"],
    "fit: no folder": ["fit", "ratings.csv", *ROLES, "-o", "no/n.efattn"],
    "fit: no validation table": ["fit", "ratings.csv", *ROLES, "--validation", "x.csv", "-o", "n.efattn"],
    "fit: nothing to resume": ["fit", "ratings.csv", *ROLES, "--checkpoint", "x", "--resume", "-o", "n.efattn"],
    "fit: an unfinished fit": ["fit", "ratings.csv", *ROLES, "--checkpoint", "state", "-o", "n.efattn"],
    "score: no model": ["score", "nowhere.efattn", "ratings.csv"],
    "score: a table as model": ["score", "ratings.csv", "ratings.csv"],
    "score: a cut model": ["score", "cut.efattn", "ratings.csv"],
    "predict: no table": ["predict", "m.efattn", "nowhere.csv"],
    "predict: a folder of no tables": ["predict", "m.efattn", "empty"],
    "predict: a model as table": ["predict", "m.efattn", "m.efattn"],
    "predict: an output of no kind": ["predict", "m.efattn", "ratings.csv", "-o", "x.xlsx"],
    "predict: a wide interval": ["predict", "m.efattn", "ratings.csv", "--interval", "2"],
    "predict: no piece size": ["predict", "m.efattn", "ratings.csv", "--piece-size", "nan"],
    "similar: no model": ["similar", "nowhere.efattn", "m1"],
    "attention: no table": ["attention", "m.efattn", "nowhere.csv"],
    "no verb": ["scor"],
}


@pytest.mark.parametrize("name", QUICKLY)
def test_a_mistake_is_answered_before_torch_is_imported(home, name):
    before = sorted(path.name for path in home.iterdir())
    done = subprocess.run(
        [sys.executable, "-c", CODE, *QUICKLY[name]],
        cwd=home, env=ENVIRONMENT, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    told = done.stderr.splitlines()
    assert done.returncode == 2, done
    assert told[-1] == "LOADED", done.stderr
    assert len(told) == 2
    assert told[0].startswith("efattn: ")
    assert sorted(path.name for path in home.iterdir()) == before


@pytest.mark.parametrize("words", [["--help"], ["fit", "--help"], ["predict", "--help"], ["--version"]])
def test_help_needs_no_torch(words, tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", CODE, *words], cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, check=True
    )
    assert done.stderr == "LOADED\n"
