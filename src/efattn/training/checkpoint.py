"""Where training stands, in a file that is there whole or not at all.

It holds the weights of every term, the best ones so far, the optimiser's moments, the random state, the place in the
data order, the history and the fingerprint of the table: all that the next step depends on. Resuming gives the
weights that an uninterrupted run would have given, bit for bit, on the same build, CPU and thread count.
"""

import hashlib
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

import torch
from torch import Tensor

from efattn import storage
from efattn.data import Groups
from efattn.errors import DataError

NAME = "training.checkpoint"


@final
@dataclass
class Checkpoint:
    """A folder to write to every `seconds`. `about`: the fingerprint of data and options, which must be the same."""

    folder: Path
    about: dict[str, Any]
    seconds: float
    name: str = NAME
    last: float = field(default_factory=time.monotonic)

    @property
    def path(self) -> Path:
        return self.folder / self.name

    def prepare(self) -> None:
        """A folder to write to, before anything is computed that would be lost."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DataError(
                f"checkpoint={str(self.folder)!r} cannot be a folder to write to: {error.strerror}. Choose another."
            ) from error
        self._sweep()

    def due(self) -> bool:
        return time.monotonic() - self.last >= self.seconds

    def write(self, state: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
        storage.write(self.path, "checkpoint", {"about": self.about, "state": dict(state)}, tensors)
        self.last = time.monotonic()

    def read(self) -> tuple[dict[str, Any], dict[str, Tensor]] | None:
        """State and tensors, or None where nothing was written yet."""
        if not self.path.exists():
            return None
        found, tensors = storage.read(self.path, "checkpoint")
        for name, mine in self.about.items():
            if found["about"].get(name) != mine:
                raise DataError(
                    f"The checkpoint {str(self.path)!r} belongs to other {name}. "
                    "Resume with what it was started with, or choose another folder."
                )
        return found["state"], tensors

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)
        self._sweep()

    def _sweep(self) -> None:
        """Away with what a process left that was killed while it wrote."""
        for left in self.folder.glob(f".{self.name}.*.part"):
            left.unlink(missing_ok=True)


def fingerprint(*parts: Groups | None) -> str:
    """Of everything that is known about the groups."""
    each = ("none" if groups is None else groups.fingerprint() for groups in parts)
    return hashlib.sha256(" ".join(each).encode()).hexdigest()


def optimiser_tensors(optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Moments and step counts of each parameter, by its number."""
    states = optimiser.state_dict()["state"]
    return {f"optimiser.{number}.{name}": x for number, state in states.items() for name, x in state.items()}


def restore_optimiser(optimiser: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    whole = optimiser.state_dict()
    for name, x in tensors.items():
        if name.startswith("optimiser."):
            _, number, key = name.split(".", 2)
            whole["state"].setdefault(int(number), {})[key] = x
    optimiser.load_state_dict(whole)
