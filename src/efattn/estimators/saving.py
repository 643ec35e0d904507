"""A fitted model as one file.

JSON: estimator, parameters, schema, families, history, companions, calibration
tensors: model.*, member.1.*, ..., schema.*, companion.<term>.<number>.*, seen.groups, lengths.groups
"""

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.overrides import TorchFunctionMode

from efattn import __version__, families, storage
from efattn.errors import DataError, ModelFileError
from efattn.estimators.growing import Grown
from efattn.estimators.old_files import InOtherUnits, WithOffset
from efattn.families import Family
from efattn.inference import Companion, Fitted
from efattn.simple import Recipe
from efattn.training import Training


def save(fitted: Fitted, path: str | Path) -> None:
    """One file, *.efattn, there whole or not at all."""
    if not isinstance(path, str | Path) or not str(path) or os.path.isdir(path):  # which takes any name
        raise ModelFileError(f"A model is saved to a file, such as 'model.efattn'; found {str(path)!r}.")
    about: dict[str, Any] = {
        "version": __version__,
        "estimator": fitted.estimator,
        "parameters": plain(dict(fitted.parameters)),
        "schema": fitted.schema.to_json(),
        "family": None if fitted.family is None else families.to_json(fitted.family),
        "support": fitted.support,
        "terms": list(fitted.terms),
        "longest": fitted.longest,
        "history": list(fitted.history),
        "notes": [note.to_json() for note in fitted.notes],
        "sizes": dict(fitted.sizes),
        "units": dict(fitted.units),
        "network": {kind: plain(sizes) for kind, sizes in fitted.network.items()},
        "frames": fitted.frames,
        "members": len(fitted.members),
        "companions": {name: [_about(one) for one in several] for name, several in fitted.companions.items()},
        "powers": dict(fitted.powers),
        "moves": dict(fitted.moves),
        "offsets": _offsets(fitted),
        "wide": None if fitted.wide is None else fitted.wide.to_json(),
        "calibration": {name: one.to_json() for name, one in fitted.calibration.items()},
        "held_out": {name: dict(scores) for name, scores in fitted.held_out.items()},
    }
    tensors = {
        f"{prefix(k)}{name}": x for k, model in enumerate(fitted.members) for name, x in model.state_dict().items()
    }
    tensors |= {f"schema.{name}": torch.from_numpy(x) for name, x in fitted.schema.arrays().items()}
    if fitted.seen is not None:
        tensors["seen.groups"] = torch.from_numpy(fitted.seen)
    if fitted.lengths is not None:
        tensors["lengths.groups"] = torch.from_numpy(fitted.lengths)
    for term, several in fitted.companions.items():
        for k, one in enumerate(several):
            start = companion_prefix(fitted.names.index(term), k)
            tensors |= {f"{start}{name}": x for name, x in _inner(one).state_dict().items()}
    storage.write(path, "model", about, tensors)


def prefix(member: int) -> str:
    return f"member.{member}." if member else "model."


def companion_prefix(term: int, number: int) -> str:
    return f"companion.{term}.{number}."


def _inner(companion: Companion) -> Any:
    """Of a model that was grown for more items, the one that was fitted."""
    return companion.model.inner if isinstance(companion.model, Grown) else companion.model


def _about(companion: Companion) -> dict[str, Any]:
    """items: how many it knows."""
    model = _inner(companion)
    old = isinstance(model, InOtherUnits)
    items = model.items if old else model.family.size if model.of_items else model.items if model.has_items else 0
    shares: dict[str, Any] = {"share": companion.share, "new_share": companion.new, "hole_shares": companion.holes}
    shares |= {"power": companion.power, "moves": companion.moves}
    return {"recipe": companion.recipe.to_json(), **shares, "items": items, "other_units": old}


def _offsets(fitted: Fitted) -> dict[str, Any]:
    """By term, the simple model inside it, which only older files have."""
    terms = {name: fitted.members[0][name] for name in fitted.names}
    return {
        name: {"recipe": term.simple.recipe.to_json(), "items": term.simple.items}
        for name, term in terms.items()
        if isinstance(term, WithOffset)
    }


@contextlib.contextmanager
def without_memory() -> Iterator[None]:
    """Modules made here have shapes and nothing else."""
    with torch.device("meta"), _Uninitialised():
        yield


class _Uninitialised(TorchFunctionMode):
    """Weights that the file has are not drawn first: to do so on no device at all, torch would load its compiler, which
    takes longer than all else."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__module__", None) == "torch.nn.init":
            return kwargs["tensor"] if kwargs and "tensor" in kwargs else args[0]
        return func(*args, **(kwargs or {}))


def plain(value: Any) -> Any:
    """A constructor's parameter as JSON."""
    if isinstance(value, Family):
        return {"is": "family", "value": families.to_json(value)}
    if isinstance(value, Training):
        return {"is": "training", "value": value.to_json()}
    if isinstance(value, Recipe):
        return {"is": "recipe", "value": value.to_json()}
    if isinstance(value, tuple):
        return {"is": "tuple", "value": [plain(x) for x in value]}
    if isinstance(value, Mapping):
        if all(isinstance(key, str) for key in value) and "is" not in value:
            return {key: plain(x) for key, x in value.items()}
        return {"is": "mapping", "value": [[plain(key), plain(x)] for key, x in value.items()]}
    if isinstance(value, list):
        return [plain(x) for x in value]
    if isinstance(value, np.generic):
        return value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise DataError(f"A parameter of this model cannot be saved: {value!r}.")
