"""What a term is trained on, step by step: the data, or something made of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, final

import numpy as np

from efattn.data import Batch, Groups
from efattn.models import Conditionals


class Feed(Protocol):
    """phases: how many kinds of training follow each other; each ends when the validation score stalls, or after its
    share of the epochs. start_counts: the weights before the first step may be the best. What is given for the same
    step is always the same, so that training can stop and go on anywhere."""

    @property
    def phases(self) -> int: ...

    @property
    def start_counts(self) -> bool: ...

    def prepare(self, term: Conditionals) -> None:
        """Called once, before training."""

    def batches(self, pieces: np.ndarray, term: Conditionals, step: "Step") -> Sequence[tuple[float, Batch]]:
        """The batches of one step, each with its share of the loss; the first is what the history tells about."""


@final
@dataclass(frozen=True)
class Step:
    """seed: of the fit; epoch, number: of the batch within it; phase: counted from 0."""

    seed: int
    epoch: int
    number: int
    phase: int


@final
@dataclass(frozen=True)
class Plain:
    """The data as they are."""

    data: Groups
    phases: int = 1
    start_counts: bool = False

    def prepare(self, term: Conditionals) -> None:
        """Nothing to do."""

    def batches(self, pieces: np.ndarray, term: Conditionals, step: Step) -> Sequence[tuple[float, Batch]]:
        return [(1.0, self.data.batch(pieces, term.context))]
