"""What the README says is what the repository does."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

HOME = Path(__file__).parent.parent
README = (HOME / "README.md").read_text()
ENSEMBLES = (HOME / "docs/ensembles.md").read_text()


def test_its_benchmark_table_is_the_result_file():
    from efattn.bench.conditionals import table

    found = json.loads((HOME / "benchmarks/results/conditionals.json").read_text())
    assert table(found["records"]) in README


def test_its_table_of_results_is_made_from_the_result_files():
    from efattn.experiments.page import leading_table, markdown
    from efattn.experiments.page.results import Results

    (shown,) = re.findall(r"<!-- results -->\n(.*?)\n<!-- /results -->", README, re.S)
    assert shown == markdown.block(leading_table.brief(Results.read(HOME / "results")))


def test_a_command_writes_its_table_of_results(tmp_path):
    from efattn.experiments.page.__main__ import BETWEEN, into_readme
    from efattn.experiments.page.results import Results

    stale = tmp_path / "README.md"
    stale.write_text(BETWEEN.sub("a table of long ago", README))
    assert stale.read_text() != README
    into_readme(stale, Results.read(HOME / "results"))
    assert stale.read_text() == README


def test_its_race_is_the_result_file():
    found = json.loads((HOME / "benchmarks/results/race.json").read_text())["records"]
    seconds = [record["seconds"] for record in found]
    assert f"in {min(seconds):.0f} to {max(seconds):.0f} seconds" in README
    assert max(record["test"] for record in found) < 3.420


def test_its_demo_table_is_the_result_file():
    found = json.loads((HOME / "benchmarks/results/demo.json").read_text())
    error = {(row["context"], row["model"]): row["error"] for row in found["errors"]}
    for context, words in (("past", "earlier ratings"), ("others", "all other ratings")):
        numbers = f"{error[context, 'latent factors']:14.3f}  {error[context, 'EFA']:5.3f}  {found['floor']:13.3f}"
        assert f"{words:17}  {numbers}" in README


@pytest.mark.slow
def test_its_shell_lines_run_as_they_stand_in_an_empty_folder(tmp_path):
    (lines,) = re.findall(r"```sh\n(.*?)```", README, re.S)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    for line in lines.splitlines():
        done = subprocess.run(
            shlex.split(line),
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "PATH": path},
        )
        assert done.returncode == 0, done.stderr
    assert (
        (tmp_path / "predicted.csv")
        .read_text()
        .startswith("station,latitude,longitude,date,tmax,tmin,tmean,tmean_mean")
    )


PAGES = README + ENSEMBLES + (HOME / "docs/priors.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", PAGES, re.S)


@pytest.mark.parametrize(
    "block",
    [pytest.param(b, marks=pytest.mark.slow if ".fit(" in b else (), id=f"block {n}") for n, b in enumerate(BLOCKS)],
)
def test_its_python_runs_as_it_stands_in_an_empty_folder(block, tmp_path):
    (tmp_path / "readme.py").write_text(block)
    done = subprocess.run([sys.executable, "readme.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", ["ARCHITECTURE.md", "CONTRIBUTING.md", "docs/notation.md"])
def test_the_pages_it_names_exist(page):
    assert page in README
    assert (HOME / page).exists()


def test_the_architecture_page_has_a_line_for_every_file():
    page = (HOME / "ARCHITECTURE.md").read_text()
    for path in (HOME / "src/efattn").rglob("*.py"):
        if path.name != "__init__.py":
            assert path.name in page, f"{path.relative_to(HOME)} is not in ARCHITECTURE.md"
