"""What README, docs and ARCHITECTURE say is what the repository does."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from shell import ENVIRONMENT, forked

HOME = Path(__file__).parent.parent
README = (HOME / "README.md").read_text()
PAGES = {path.relative_to(HOME).as_posix(): path.read_text() for path in (HOME / "README.md", *HOME.glob("docs/*.md"))}


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


def snippets(kind):
    """Every block of one kind of README and docs, by page and number."""
    found = {}
    for name, text in PAGES.items():
        blocks = re.findall(rf"```{kind}\n(.*?)```", text, re.S)
        found |= {f"{name}, {number}": block for number, block in enumerate(blocks, 1)}
    return found


def hurried(text):
    """The same on fewer stations and days, and with a single epoch."""
    text = re.sub(r"epochs([ =])\d+", r"epochs\g<1>1", text)
    few = '(pl.col("station") % 13 == 0) & (pl.col("date").dt.day() < 8)'
    return text.replace("noaa_october()", f"noaa_october().filter({few})")


SHELL, PYTHON = snippets("sh"), snippets("python")


def check_python(block, folder):
    (folder / "snippet.py").write_text(block)
    command = [sys.executable, "snippet.py"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env=ENVIRONMENT)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", PYTHON)
def test_python_snippets_run_in_an_empty_folder(name, tmp_path):
    check_python(hurried(PYTHON[name]), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [name for name, block in PYTHON.items() if name.startswith("README") and hurried(block) != block]
)
def test_python_snippets_run_as_they_stand(name, tmp_path):
    check_python(PYTHON[name], tmp_path)


@pytest.mark.parametrize("name", SHELL)
def test_shell_snippets_run_in_an_empty_folder(name, tmp_path):
    for line in SHELL[name].splitlines():
        program, *words = shlex.split(hurried(line), comments=True)
        if program == "efattn":
            forked(*words, cwd=tmp_path).good()
            stations = tmp_path / "noaa.csv"
            if words[:2] == ["datasets", "export"]:  # a few of them are enough
                head, *rows = stations.read_text().splitlines()
                few = [row for row in rows if int(row.split(",")[0]) % 13 == 0 and re.search(r"-0[1-7],", row)]
                stations.write_text("\n".join([head, *few]) + "\n")
        else:
            subprocess.run(["sh", "-c", line], cwd=tmp_path, check=True)
    if name == "README.md, 1":
        head = "station,latitude,longitude,date,tmax,tmin,tmean,tmean_mean"
        assert (tmp_path / "predicted.csv").read_text().startswith(head)


NAMED = re.compile(r"`((?:[\w.-]+/)*[\w-]+\.(?:py|md|json|cff|txt))`")


@pytest.mark.parametrize("page", [*PAGES, "ARCHITECTURE.md", "CONTRIBUTING.md"])
def test_every_file_that_a_page_names_exists(page):
    text = (HOME / page).read_text()
    links = re.findall(r"\]\(([\w./-]+)\)", text)
    for name in {*NAMED.findall(text), *links}:
        if any(part.isupper() for part in Path(name).stem.split("-")) and name.endswith(".py"):
            continue  # NAME.py
        homes = (HOME, HOME / "src/efattn", (HOME / page).parent)
        inside = "/" not in name and any((HOME / "src/efattn").rglob(name))
        assert inside or any((home / name).exists() for home in homes), f"{page} names {name}"


@pytest.mark.parametrize("page", ["ARCHITECTURE.md", "CONTRIBUTING.md", *sorted({*PAGES} - {"README.md"})])
def test_the_readme_names_every_page(page):
    assert page in README


def tree(page):
    """The paths that an indented tree lists."""
    folders, found = {}, []
    for indent, name in re.findall(r"^( {4,})((?:src/efattn/)|[\w]+(?:/|\.py))(?: |$)", page, re.M):
        depth = len(indent)
        folders = {d: folder for d, folder in folders.items() if d < depth}
        path = folders[max(folders)] + name if folders else name
        if name.endswith("/"):
            folders[depth] = path
        else:
            found.append(path)
    return found


def test_the_architecture_page_has_a_line_for_every_file_and_for_no_other():
    page = (HOME / "ARCHITECTURE.md").read_text().split("## The tree")[1].split("\nBeside it")[0]
    listed = tree(page)
    assert len(listed) == len(set(listed))
    assert set(listed) == {path.relative_to(HOME).as_posix() for path in (HOME / "src/efattn").rglob("*.py")}


def test_the_architecture_page_has_the_layers_that_are_enforced():
    from test_architecture import LAYERS

    page = (HOME / "ARCHITECTURE.md").read_text()
    shown = {}
    for layer, packages in re.findall(r"^\| (\d) \| (.*?) \|", page, re.M):
        shown |= {name: int(layer) for name in re.findall(r"`(\w+)(?:/|\.py)`", packages)}
    there = {path.stem for path in (HOME / "src/efattn").iterdir() if path.suffix in ("", ".py")}
    assert shown == {name: layer for name, layer in LAYERS.items() if name in there}
