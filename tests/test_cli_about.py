"""What the shell says of itself, without a model: help, names of options, versions, data sets, benches."""

import subprocess
import sys

import polars as pl
import pytest
import typer
from shell import efattn, forked

import efattn as library
from efattn import DataError
from efattn.cli import app
from efattn.cli.messages import in_words
from efattn.cli.names import KNOWN, flag
from efattn.errors import named, option

VERBS = [
    "fit",
    "score",
    "predict",
    "recommend",
    "similar",
    "attention",
    "explain",
    "summary",
    "datasets",
    "bench",
    "demo",
    "compare",
    "evaluate",
    "split",
    "sample",
    "forecast",
    "where-next",
    "joint",
    "impute",
    "report",
    "embeddings",
]


def command(verb):
    return typer.main.get_command(app).commands[verb]


def test_datasets(tmp_path):
    assert "noaa-october" in efattn("datasets", cwd=tmp_path).good().out
    found = efattn("datasets", "list", "--json", cwd=tmp_path).good().json()
    assert {"name", "what", "where", "licence", "source", "here"} == set(found[0])
    efattn("datasets", "export", "noaa-october", "-o", "noaa.parquet", cwd=tmp_path).good()
    assert len(pl.read_parquet(tmp_path / "noaa.parquet")) > 10_000


@pytest.mark.slow
def test_bench(tmp_path):
    told = efattn("bench", "tables", "--rows", "2000", "--json", "-o", "results", cwd=tmp_path).good()
    assert len(told.json()["tables"]["records"]) == 3
    assert (tmp_path / "results" / "tables.json").exists()


def test_messages_speak_the_language_of_the_shell():
    def shell(*marked):
        return in_words(DataError(" ".join(marked)))

    assert shell(option("encoding", "latin-1"), option("columns", "[...]")) == (
        "--encoding latin-1 --columns NAME,NAME,..."
    )
    assert shell("If -1 marks it, pass", option("missing", -1)) == "If -1 marks it, pass --missing -1"
    assert shell(option("rate", 3e-4, of="Training"), named("steps")) == "--rate 0.0003 --steps"
    assert shell(option("order"), option("order", "row")) == "--order NAME --order row"
    assert shell(option("max_length", 3), option("header", True), option("header", False)) == (
        "--max-length 3 --header --no-header"
    )
    assert shell(option("resume", True), option("k", 3), option("terms", ["item", "value"])) == (
        "--resume --count 3 --terms item --terms value"
    )
    assert shell(option("group", "my user"), option("clip", None)) == "--group 'my user' --clip none"
    assert shell(option("callbacks"), option("sums", "known")) == "callbacks=... sums='known'"


def test_every_option_has_a_name_in_the_shell_that_a_command_takes():
    taken = {word for verb in VERBS for one in command(verb).params for word in (*one.opts, *one.secondary_opts)}
    for name in KNOWN:
        assert flag(name) in taken, name


def test_help_starts_fast_and_loads_no_torch():
    code = "import sys; sys.argv = ['efattn', '--help']; from efattn.cli import main\n"
    code += "try: main()\nexcept SystemExit: pass\n"
    code += "found = {'torch', 'polars', 'numpy', 'sklearn', 'pyarrow'} & set(sys.modules); assert not found, found"
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


@pytest.mark.parametrize("verb", VERBS)
def test_help_of_every_verb_has_an_example(verb, tmp_path):
    told = forked(verb, "--help", cwd=tmp_path).good().out
    assert "Example" in told
    assert f"efattn {verb} " in told.split("Example")[1]
    assert "--json" in told


def test_version_and_module():
    assert efattn("--version").good().out == f"efattn {library.__version__}\n"
    done = subprocess.run([sys.executable, "-m", "efattn", "--version"], check=True, capture_output=True, text=True)
    assert done.stdout == f"efattn {library.__version__}\n"


def test_completion_knows_the_verbs():
    environment = {"_EFATTN_COMPLETE": "complete_bash", "COMP_WORDS": "efattn s", "COMP_CWORD": "1"}
    assert set(efattn(**environment).out.split()) == {"sample", "score", "serve", "similar", "split", "summary"}
