"""Every option of training, once: how a model is fitted, apart from what it is.

Nothing here needs torch: see options.py, which has the options of models and of fit.
"""

import math
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, final

from efattn.declared import check, described, differing, explained, option_of
from efattn.errors import DataError, named

MOST_EPOCHS = 2000  # that are planned
STEPS = 12_000
USUAL, LARGE, LASTING = 1024, 4096, 0.998  # cells of a batch; of a large one, and the running mean that goes with it
ROUND = 8  # steps at least between two looks at what is held out
PATIENT, LEAST = 60, 60  # patience as a share of all steps, and in steps
EXACT, DRAWN = 200_000, 8_192  # items up to which the loss is of all of them, and how many stand for them beyond
SLOW_EXACT, SLOW_DRAWN = 5_000, 2_048  # the same on a CPU, up to as many as there
DROPS, FACTOR = 2, 0.25  # how often and by how much the rate falls on a plateau


@final
@explained
@dataclass(frozen=True, repr=False)
class Training:
    """How a model is fitted, apart from what it is: a value that never changes. The best weights on held-out groups are
    restored in any case."""

    epochs: int | None = option_of(
        None,
        f"Passes over the data, at most; none for as many as give about {named('steps')} steps, from 5 to 2,000, and "
        f"up to twice as many while held-out groups are still predicted better; an epoch is then {ROUND} steps at "
        "least, several passes over a small table.",
        low=1,
    )
    seconds: float | None = option_of(
        None, "About how long all networks may train together; none for as long as it takes.", above=0
    )
    steps: int | None = option_of(
        None,
        f"About so many steps, where {named('epochs')} says nothing; none for {STEPS:,}, or by effort. A large batch "
        f"that {named('tokens')} chose counts as {LARGE // USUAL}.",
        low=1,
    )
    rate: float = option_of(3e-3, f"The highest learning rate, reached after {named('warmup')}.", above=0)
    optimiser: Literal["adamw", "adam"] = option_of("adamw", "adam is without weight decay, as in the paper.")
    weight_decay: float = option_of(0.01, "Of adamw.", low=0)
    warmup: float = option_of(0.05, "Share of all steps (at most of 1,000) until the highest rate.", low=0, high=1)
    decay: Literal["plateau", "cosine", "none"] = option_of(
        "plateau",
        f"Of the rate: plateau keeps it until the validation score has not risen for {named('patience')} epochs, then "
        "goes back to the best weights and on with a quarter of it, twice; cosine, which plateau means without "
        "validation, lets it fall to 0; none keeps it.",
    )
    average: float | Literal["auto"] = option_of(
        "auto",
        f"Decay of a running mean of the weights, as {LASTING}, kept in their place; 0 for none; auto for {LASTING} "
        f"where {named('tokens')} chose large batches.",
        low=0,
        below=1,
    )
    clip: float | None = option_of(1.0, "The largest norm of a gradient; none for any.", above=0, zero=True)
    patience: int | Literal["auto"] | None = option_of(
        "auto",
        "Epochs without a better validation score before the rate falls or training stops; auto for 5, or those of "
        f"{STEPS // PATIENT} steps (a sixtieth of {named('steps')}, and at least {LEAST}); none to run all epochs.",
        low=1,
        zero=True,
    )
    tokens: int | Literal["auto"] = option_of(
        "auto",
        f"Padded cells per batch; auto for {USUAL:,}, and for {LARGE:,} in the past of more than 300 items of 30 rows "
        "each.",
        low=1,
    )
    draws: int | Literal["auto"] | None = option_of(
        "auto",
        f"Score so many targets per group and step, drawn at random, for very long groups; auto for {named('tokens')}, "
        "none for all.",
        low=1,
    )
    candidates: int | Literal["auto"] | None = option_of(
        "auto",
        "Of items: so many, drawn for each step by how often they come and corrected for that, stand for all others in "
        f"the loss of training; none for all of them, exactly, as auto up to {EXACT:,} items, with {DRAWN:,} of more; "
        f"on a CPU up to {SLOW_EXACT:,}, with {SLOW_DRAWN:,}. "
        "Held-out groups and all answers are computed exactly in any case.",
        low=1,
        zero=True,
    )
    precision: Literal["float32", "mixed"] = option_of("float32", "mixed computes in bfloat16 on a GPU.")
    device: str = option_of(
        "auto", "auto takes a GPU if there is one; or cpu, cuda, ... Networks are fitted and answer there."
    )
    jobs: int | Literal["auto"] = option_of(
        "auto",
        "How many folds, or members of an ensemble, are trained side by side, each in a process with one thread. auto "
        "is one after the other, helped by a process for each idle core where the table is small and it takes longer "
        "than a few seconds; the result is the same.",
        low=1,
    )
    checkpoint_seconds: float = option_of(
        30.0, f"How often a checkpoint is written, where {named('checkpoint')} asks for one.", low=0
    )

    def __post_init__(self) -> None:
        check(self, "Training: ")

    def __repr__(self) -> str:
        return f"Training({', '.join(f'{name}={value!r}' for name, value in differing(self).items())})"

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """As scikit-learn asks for them, so that a grid may have training__rate."""
        return {one.name: getattr(self, one.name) for one in fields(self)}

    def set_params(self, **options: Any) -> "Training":
        """Another value: this one stays what it is."""
        known = described(Training)
        for name in options:
            if name not in known:
                raise DataError(f"Invalid parameter {name!r} for Training. Valid parameters are: {sorted(known)}.")
        return replace(self, **options)

    def to_json(self) -> dict[str, Any]:
        return {name: x.item() if hasattr(x, "item") else x for name, x in self.get_params().items()}  # numpy's, plain

    @classmethod
    def from_json(cls, saved: Any) -> "Training":
        known = described(cls)
        if not isinstance(saved, dict) or not set(saved) <= set(known):
            raise DataError(f"Training options are an object with {', '.join(sorted(known))}.")
        return cls(**saved)

    @property
    def most_targets(self) -> int | None:
        """Of one group in a step; none for all."""
        return self.cells if self.draws == "auto" else self.draws

    def settled(self, *, large: bool) -> "Training":
        """Of one term, with nothing left open about its batches; large: those that the table asks for."""
        average = LASTING if large and self.average == "auto" else self.decay_of_mean
        if not large or self.tokens != "auto":
            return replace(self, average=average, tokens=self.cells)
        return replace(self, average=average, tokens=LARGE, steps=max(self.planned_steps * USUAL // LARGE, 1))

    @property
    def decay_of_mean(self) -> float:
        """Of the weights, in the usual case."""
        return 0.0 if self.average == "auto" else self.average

    @property
    def cells(self) -> int:
        """Of a batch, in the usual case."""
        return USUAL if self.tokens == "auto" else self.tokens

    @property
    def planned_steps(self) -> int:
        return STEPS if self.steps is None else self.steps

    def passes_for(self, batches: int) -> int:
        """Over the data in an epoch, of so many batches each."""
        return 1 if self.epochs is not None else -(-ROUND // max(batches, 1))

    def epochs_for(self, batches: int) -> int:
        planned = min(max(round(self.planned_steps / max(batches, 1)), 5), MOST_EPOCHS)
        return -(-planned // self.passes_for(batches)) if self.epochs is None else self.epochs

    def patience_for(self, batches: int) -> int | None:
        steps, mine = max(self.planned_steps // PATIENT, LEAST), max(batches, 1) * self.passes_for(batches)
        return max(5, -(-steps // mine)) if self.patience == "auto" else self.patience

    def candidates_for(self, items: int, *, cpu: bool = False) -> int | None:
        """How many are drawn of so many items; None for all. A GPU is done with all of many as soon as with some."""
        some = DRAWN if items > EXACT else SLOW_DRAWN if cpu and items > SLOW_EXACT else None
        number = some if self.candidates == "auto" else self.candidates
        return None if number is None or number >= items else number

    def warm_steps(self, total: int) -> int:
        """How many steps it takes until the highest rate."""
        return max(round(self.warmup * min(total, 1000)), 1)

    def rate_at(self, step: int, total: int, drops: int | None = None) -> float:
        """The learning rate of a step, 0 .. total - 1, after so many drops; None where nothing tells of a plateau."""
        warm = self.warm_steps(total)
        if step < warm:
            return self.rate * (step + 1) / warm
        if self.decay == "none":
            return self.rate
        if self.decay == "plateau" and drops is not None:
            return self.rate * FACTOR**drops
        return self.rate * 0.5 * (1 + math.cos(math.pi * (step - warm) / max(total - warm, 1)))
