"""The second parameter of a family (variance, shape, concentration, r), known or an output of the head.

    a number    known: the head gives the location only
    "learned"   one more output, bias-only: the same for all rows
    "predicted" one more output, varying from row to row

Constructors check what they are given here, so that a mistake is a DataError when a family is written down.
"""

import math
from numbers import Integral, Real
from typing import Literal

import torch

from efattn.errors import DataError
from efattn.families.stable import bounded

Dispersion = float | Literal["learned", "predicted"]


def check_dispersion(title: str, name: str, value: object) -> None:
    if value in ("learned", "predicted") if isinstance(value, str) else _positive(value):
        return
    raise DataError(f"{title}: {name} must be a positive number, 'learned' or 'predicted', not {value!r}.")


def check_whole(title: str, name: str, value: object, low: int, high: int | None = None, why: str = "") -> None:
    """why: there is a largest number, and what to do about a larger one."""
    if not isinstance(value, Integral) or isinstance(value, bool) or int(value) < low:
        raise DataError(f"{title}: {name} must be a whole number >= {low}, not {value!r}.")
    if high is not None and int(value) > high:
        raise DataError(f"{title}: {name} must be at most {high}, not {value!r}: {why}")


def check_choice(title: str, name: str, value: object, choices: tuple[str, ...]) -> None:
    if not isinstance(value, str) or value not in choices:
        raise DataError(f"{title}: {name} must be {' or '.join(map(repr, choices))}, not {value!r}.")


def outputs(dispersion: Dispersion) -> tuple[bool, ...]:
    """The shared flags of location and dispersion."""
    return (False, dispersion == "learned") if isinstance(dispersion, str) else (False,)


def log_dispersion(dispersion: Dispersion, f: torch.Tensor, bound: float) -> torch.Tensor:
    """log of the known number, or the head's second output."""
    if isinstance(dispersion, str):
        return bounded(f[..., 1], bound)
    return torch.full_like(f[..., 0], math.log(dispersion))


def _positive(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and 0 < float(value) < math.inf
