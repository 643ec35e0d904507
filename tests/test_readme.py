"""What the README says is what the repository does."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

HOME = Path(__file__).parent.parent
README = (HOME / "README.md").read_text()


def test_its_benchmark_table_is_the_result_file():
    from efattn.bench.conditionals import table

    found = json.loads((HOME / "benchmarks/results/conditionals.json").read_text())
    assert table(found["records"]) in README


def test_its_demo_table_is_the_result_file():
    found = json.loads((HOME / "benchmarks/results/synthetic-study.json").read_text())
    for row in found["records"]:
        line = f"{row['context']:8} {row['model']:16} {row['error']:8.3f} {row['floor']:8.3f} {row['seconds']:8.1f}"
        assert line in README


BLOCKS = re.findall(r"```python\n(.*?)```", README, re.S)


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
