"""The sums of an epoch, kept where they are computed until somebody asks.

    total = sum w_i log p_i,     weight = sum w_i,     broken = the first batch whose loss is no number

Reading a number from a GPU means waiting for all that it still has to do, so nobody reads one at each step. A step
after a broken one changes nothing (`stopped`): when that is noticed, the weights are those before it.
"""

from typing import final

import torch
from torch import Tensor

NONE = 2**31  # stands for no batch
OFTEN, SELDOM = 1, 50  # steps after which a loss that is no number is looked for: on a CPU, elsewhere


@final
class Ledger:
    def __init__(self, device: torch.device) -> None:
        self.device, self.every = device, OFTEN if device.type == "cpu" else SELDOM
        self.open()

    def open(self, total: float = 0.0, weight: float = 0.0) -> None:
        """Begin with these sums."""
        self.total = torch.full((), total, dtype=torch.float64, device=self.device)
        self.weight = torch.full((), weight, dtype=torch.float64, device=self.device)
        self.first = torch.full((), NONE, dtype=torch.int64, device=self.device)

    def add(self, total: Tensor, weight: Tensor) -> None:
        self.total = self.total + total.detach().double()
        self.weight = self.weight + weight.detach().double()

    def note(self, loss: Tensor, number: int) -> None:
        """Of batch `number`, before its step."""
        self.first = torch.where(loss.detach().isfinite(), self.first, self.first.clamp_max(number))

    def stopped(self, weight: Tensor) -> Tensor:
        """1 if a step on targets of this weight has no effect, because of a broken one or of no weight; else 0."""
        return ((self.first < NONE) | ~(weight > 0)).float()

    def broken(self) -> int | None:
        """The first batch whose loss was no number. This waits."""
        first = int(self.first)
        return None if first == NONE else first

    def sums(self) -> tuple[float, float]:
        """total, weight. This waits."""
        return float(self.total), float(self.weight)
