"""Data walks one line, left to right: nothing on the left imports anything on the right."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import efattn

HOME = Path(efattn.__file__).parent
LAYERS = {
    "errors": 0,
    "declared": 0,
    "options": 0,
    "training_options": 0,
    "storage": 0,
    "families": 0,
    "data": 1,
    "network": 1,
    "models": 2,
    "simple": 2,
    "training": 3,
    "estimators": 4,
    "inference": 4,
    "theory": 4,
    "plots": 4,
    "comparing": 4,
    "reporting": 4,
    "datasets": 5,
    "experiments": 5,
    "bench": 5,
    "explorer": 6,
    "cli": 6,
    "__main__": 6,
}
# what else they may import
ALONE = {
    "errors": set(),
    "declared": {"errors"},
    "options": {"errors", "declared", "training_options"},
    "training_options": {"errors", "declared"},
    "storage": {"errors"},
    "families": {"errors"},
    "data": {"errors"},
    "network": set(),
}
BARE = {"numpy", "torch", "safetensors"}  # all that layers 0 to 3 need when they are imported
MODULES = sorted(p for p in HOME.rglob("*.py") if p != HOME / "__init__.py")


def room(path: Path) -> str:
    return path.relative_to(HOME).parts[0].removesuffix(".py")


def imported(tree: ast.AST, *, top_level: bool) -> set[str]:
    nodes = tree.body if top_level else ast.walk(tree)
    names = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "write imports out in full"
            names |= {f"{node.module}.{a.name}" if node.module == "efattn" else str(node.module) for a in node.names}
    return names


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(HOME)))
def test_no_module_imports_upward(path):
    mine = room(path)
    assert mine in LAYERS, f"{mine} has no layer: give it one here and in ARCHITECTURE.md"
    for name in imported(ast.parse(path.read_text()), top_level=False):
        if not name.startswith("efattn.") or name == "efattn.__version__":
            continue
        theirs = name.split(".")[1]
        if theirs == mine:
            continue
        assert LAYERS.get(theirs, 0) <= LAYERS[mine], f"{mine} imports {theirs}, which stands above it"
        assert mine not in ALONE or theirs in ALONE[mine], f"{mine} imports {theirs}"


@pytest.mark.parametrize("path", [p for p in MODULES if LAYERS.get(room(p), 9) <= 3], ids=lambda p: p.stem)
def test_the_lower_layers_need_only_a_bare_machine(path):
    for name in imported(ast.parse(path.read_text()), top_level=True):
        top = name.split(".")[0]
        assert top in BARE | {"efattn"} or top in sys.stdlib_module_names, f"{path.name} imports {top} when loaded"


def test_importing_the_package_loads_no_torch():
    code = "import sys, efattn; dir(efattn); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    ("given", "before", "want"),
    [
        ({}, "", "500"),
        ({"GOMP_SPINCOUNT": "9"}, "", "9"),
        ({"OMP_WAIT_POLICY": "ACTIVE"}, "", "None"),
        ({}, "sys.modules['torch'] = sys", "None"),
    ],
)
def test_threads_soon_sleep_where_they_wait_unless_somebody_has_chosen(given, before, want):
    code = f"import os, sys; {before or 'pass'}; import efattn; print(os.environ.get('GOMP_SPINCOUNT'))"
    rest = {name: value for name, value in os.environ.items() if name not in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")}
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, env=rest | given)
    assert done.stdout.strip() == want


def test_every_public_name_loads():
    for name in efattn.__all__:
        assert getattr(efattn, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        efattn.nothing  # noqa: B018
