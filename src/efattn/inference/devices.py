"""Where a fitted network answers: on the device that its training would take, through a copy that stays there.

The network itself stays on the CPU, where it is saved from and looked into. Simple models answer on the CPU.
"""

import copy
from collections.abc import Mapping
from typing import Any
from weakref import WeakKeyDictionary

import torch

from efattn.errors import DataError
from efattn.models import Conditionals
from efattn.training import Training, resolve_device

CPU = torch.device("cpu")
State = tuple[tuple[int, int], ...]
_copies: "WeakKeyDictionary[Conditionals, tuple[torch.device, State, Conditionals]]" = WeakKeyDictionary()


def resolved(asked: torch.device | str, parameters: Mapping[str, Any]) -> torch.device:
    """asked: a device, or auto for what the options of training say. A model may have been fitted where there are
    others: what is not here is done on the CPU."""
    if asked == "auto":
        training = parameters.get("training")
        asked = training.device if isinstance(training, Training) else "auto"
    try:
        return resolve_device(Training(device=str(asked)))
    except DataError:
        return CPU


def on(model: Conditionals, device: torch.device | str) -> Conditionals:
    """The model on a device; elsewhere than on the CPU a copy, made once and again when its weights have changed."""
    device = torch.device(device)
    if device == CPU:
        return model
    state = tuple((x.data_ptr(), x._version) for x in (*model.parameters(), *model.buffers()))
    known = _copies.get(model)
    if known is None or known[:2] != (device, state):
        known = (device, state, copy.deepcopy(model).to(device).eval())
        _copies[model] = known
    return known[2]
