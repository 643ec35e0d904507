"""How a model is fitted, apart from what it is."""

import math
from dataclasses import dataclass, fields
from numbers import Integral, Real
from typing import Any, Literal, final

import torch

from efattn.errors import DataError

DROPS, FACTOR = 2, 0.25  # how often and by how much the rate falls on a plateau


@final
@dataclass(frozen=True)
class Training:
    """epochs: at most so many passes over the data; None for as many as give about `steps` steps, between 5 and 500.
    rate: the highest learning rate, reached after the share `warmup` of all steps (at most of 1,000). decay: "plateau"
    keeps it until the validation score has not risen for `patience` epochs, then goes back to the best weights and on
    with a quarter of the rate, twice, before it stops; "cosine" (what "plateau" means without validation) lets it fall
    to 0; "none" keeps it. patience: epochs without a better validation score, "auto" for 5 or those of 100 steps; None
    to run all epochs. The best weights are restored in any case. optimiser: "adamw", or "adam" without weight decay as
    in the paper. average: decay of a running mean of the weights, as 0.998, which is validated and kept in their place;
    0 for none. clip: the largest norm of a gradient. tokens: padded cells per batch. draws: score so many targets per
    group and step, for very long groups. precision: "mixed" computes in bfloat16 on a GPU. device: "auto" takes a GPU
    if there is one. jobs: how many members of an ensemble are trained side by side, each in a process with one thread;
    1 for one after the other in this one. checkpoint_seconds: how often a checkpoint is written where one is asked for.
    """

    epochs: int | None = None
    steps: int = 12000
    rate: float = 3e-3
    optimiser: Literal["adamw", "adam"] = "adamw"
    weight_decay: float = 0.01
    warmup: float = 0.05
    decay: Literal["plateau", "cosine", "none"] = "plateau"
    average: float = 0.0
    clip: float | None = 1.0
    patience: int | Literal["auto"] | None = "auto"
    tokens: int = 1024
    draws: int | None = None
    precision: Literal["float32", "mixed"] = "float32"
    device: str = "auto"
    jobs: int = 1
    checkpoint_seconds: float = 30.0

    def __post_init__(self) -> None:
        for name, low in (("steps", 1), ("tokens", 1), ("jobs", 1), ("epochs", 1), ("draws", 1), ("patience", 1)):
            value = getattr(self, name)
            if (value == "auto" and name == "patience") or (value is None and name in ("epochs", "draws", "patience")):
                continue
            if isinstance(value, bool) or not isinstance(value, Integral) or value < low:
                raise DataError(f"Training: {name} must be a whole number >= {low}, not {value!r}.")
        if not _finite(self.rate) or not self.rate > 0:
            raise DataError(f"Training: rate must be a positive number, not {self.rate!r}.")
        if self.clip is not None and (not _finite(self.clip) or not self.clip > 0):
            raise DataError(f"Training: clip must be a positive number or None, not {self.clip!r}.")
        if not _finite(self.average) or not 0 <= self.average < 1:
            raise DataError(f"Training: average is a decay from 0 to below 1, not {self.average!r}.")
        if not _finite(self.warmup) or not 0 <= self.warmup <= 1:
            raise DataError(f"Training: warmup is a share of all steps, from 0 to 1, not {self.warmup!r}.")
        for name in ("weight_decay", "checkpoint_seconds"):
            if not _finite(getattr(self, name)) or getattr(self, name) < 0:
                raise DataError(f"Training: {name} must be a number >= 0, not {getattr(self, name)!r}.")
        choices = {
            "optimiser": ("adamw", "adam"),
            "decay": ("plateau", "cosine", "none"),
            "precision": ("float32", "mixed"),
        }
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                raise DataError(
                    f"Training: {name} must be {' or '.join(map(repr, allowed))}, not {getattr(self, name)!r}."
                )

    def to_json(self) -> dict[str, Any]:
        found = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: x.item() if hasattr(x, "item") else x for name, x in found.items()}  # numpy's, plain

    @classmethod
    def from_json(cls, saved: Any) -> "Training":
        known = {field.name for field in fields(cls)}
        if not isinstance(saved, dict) or not set(saved) <= known:
            raise DataError(f"Training options are an object with {', '.join(sorted(known))}.")
        return cls(**saved)

    def epochs_for(self, batches: int) -> int:
        return self.epochs if self.epochs is not None else min(max(round(self.steps / max(batches, 1)), 5), 500)

    def patience_for(self, batches: int) -> int | None:
        return max(5, -(-100 // max(batches, 1))) if self.patience == "auto" else self.patience

    def rate_at(self, step: int, total: int, drops: int | None = None) -> float:
        """The learning rate of a step, 0 .. total - 1, after so many drops; None where nothing tells of a plateau."""
        warm = max(round(self.warmup * min(total, 1000)), 1)
        if step < warm:
            return self.rate * (step + 1) / warm
        if self.decay == "none":
            return self.rate
        if self.decay == "plateau" and drops is not None:
            return self.rate * FACTOR**drops
        return self.rate * 0.5 * (1 + math.cos(math.pi * (step - warm) / max(total - warm, 1)))

    def resolve_device(self) -> torch.device:
        if self.device == "auto":
            return torch.device("cuda" if torch.cuda.is_available() else "cpu")
        try:
            device = torch.device(self.device)
            torch.zeros(1, device=device).tolist()
        except (RuntimeError, AssertionError, TypeError) as error:  # whatever torch says of it
            raise DataError(f"Training: device {self.device!r} is not there: {str(error).splitlines()[0]}") from error
        return device


def _finite(number: object) -> bool:
    return isinstance(number, Real) and not isinstance(number, bool) and math.isfinite(number)
