"""How numbers are printed: a true minus sign, a dash for what is not there, as many digits as say something."""

from typing import Any

from efattn.experiments.page.blocks import TIED
from efattn.experiments.records import Record
from efattn.experiments.settings import Setting

NONE = "–"  # noqa: RUF001
MINUS = "\N{MINUS SIGN}"


def digits(setting: Setting) -> int:
    return 4 if setting.aim is not None and setting.aim < 2 else 3


def number(x: float | None, places: int = 3, sign: bool = False) -> str:
    if x is None or x != x:
        return NONE
    return f"{x:{'+' if sign else ''}.{places}f}".replace("-", MINUS)


def short(x: Any) -> str:
    """Four digits, or the word."""
    if isinstance(x, bool):
        return "yes" if x else "no"
    if isinstance(x, float):
        if abs(x) == float("inf"):
            return "∞" if x > 0 else f"{MINUS}∞"
        if 1000 <= abs(x) < 1e7:
            return f"{x:,.0f}".replace("-", MINUS)
        return NONE if x != x else f"{x:.4g}".replace("-", MINUS)
    return NONE if x is None else f"{x:,}" if isinstance(x, int) else str(x)


def spread(line: Record | None, places: int) -> str:
    """mean ± sd, in one line"""
    if line is None:
        return NONE
    sd = "" if line["sd"] is None else f"{TIED}±{TIED}{number(line['sd'], places)}"
    return f"{number(line['mean'], places)}{sd}"


def seconds(x: float) -> str:
    """In words that suit its size."""
    if x < 0.1:
        return "< 0.1"
    return f"{x:.1f}" if x < 10 else f"{x:,.0f}"
