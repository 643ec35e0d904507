"""What a Python option is called in a shell: the one table, for parsing and for messages.

missing=-1    --missing -1        max_length=3    --max-length 3        header=False    --no-header
k=5           --count 5           resume=True     --resume              order=...       --order NAME
"""

import ast
import shlex
from typing import Any

from efattn.declared import described
from efattn.options import FIT, ROLES, EFAOptions, LatentFactorOptions
from efattn.training_options import Training

# where it is not -- and the name with dashes
OTHERWISE = {"k": "--count"}
ASKED = (
    "k",
    "interval",
    "quantiles",
    "member",
    "term",
    "at",
    "among",
    "exclude",
    "at_least",
    "diversity",
    "why",
    "which",
    "orders",
)  # options of the verbs that ask a fitted model
DRAWN = ("groups", "length", "given", "burn_in", "seed", "steps", "draws", "paths")  # of sample and forecast
EVALUATED = ("rows", "seen", "by", "test")  # of evaluate and split
IMPUTED = ("wide", "id")  # of fits to wide tables
COMPARED = ("models", "folds", "jobs", "output")  # of compare
LAYOUT = ("separator", "decimal", "header", "columns", "encoding", "baskets")
PYTHON_ONLY = ("training", "callbacks", "progress", "planned")
KNOWN = {
    *(name for kind in (EFAOptions, LatentFactorOptions, Training) for name in described(kind)),
    *(role.name for role in ROLES),
    *FIT, *ASKED, *DRAWN, *EVALUATED, *IMPUTED, *COMPARED, *LAYOUT,
} - {*PYTHON_ONLY}  # fmt: skip


def flag(name: str) -> str:
    """--max-length of max_length."""
    return OTHERWISE.get(name, f"--{name.replace('_', '-')}")


def shell_option(name: str, value: str | None) -> str:
    """An option inside a message, value as Python writes it; as in Python where a shell has none of the name."""
    if name not in KNOWN:
        return name if value is None else f"{name}={value}"
    if value is None:
        return flag(name)
    if value in ("...", "[...]"):
        return f"{flag(name)} {'NAME' if value == '...' else 'NAME,NAME,...'}"
    try:
        literal = ast.literal_eval(value)
    except (ValueError, SyntaxError):
        literal = value
    return _given(name, literal)


def _given(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return flag(name) if value else f"--no-{flag(name).removeprefix('--')}"
    if isinstance(value, list | tuple):
        return " ".join(_given(name, one) for one in value) or flag(name)
    return f"{flag(name)} {'none' if value is None else shlex.quote(str(value))}"
