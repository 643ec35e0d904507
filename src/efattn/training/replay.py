"""A second fit that goes through what served in the first: as many steps, the rate falling where it fell.

first fit    rates of its epochs, those that were taken back when the rate fell left out, up to the best
second fit   the same steps over more data, nothing held out; then on, until it fits its rows nearly as well as the
             first did: where a network had just begun to learn, a few steps more or less are everything
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, final

NEARLY = 0.9  # of what the first fit gained on its rows after its first epoch
FELL = 0.999  # a smaller share of the rate before is a fall, after which training went back to its best weights


@final
@dataclass(frozen=True)
class Replay:
    """rates: of each epoch that served; batches: of an epoch then; reached: the score of its rows to be reached."""

    rates: tuple[float, ...]
    batches: int
    reached: float = -float("inf")

    @classmethod
    def of(cls, records: Iterable[dict[str, Any]], batches: int, *, goes_back: bool) -> "Replay":
        """records: of one term, in order; goes_back: whether a fall of the rate goes back to the best weights."""
        path, served, best, before = list[float](), 0, None, 0.0
        begun, reached = None, cls.reached
        for record in records:
            begun = record["train"] if begun is None else begun
            if goes_back and record["rate"] < FELL * before:
                path = path[:served]
            before = record["rate"]
            path.append(before)
            score = record["validation"]
            if score is None or best is None or score > best:
                best, served, reached = score, len(path), begun + NEARLY * (record["train"] - begun)
        return cls(tuple(path[:served]), batches, reached)

    def epochs(self, batches: int) -> int:
        """How many epochs of so many batches are as many steps."""
        return max(round(len(self.rates) * self.batches / max(batches, 1)), 1)

    def rate(self, step: int, total: int) -> float:
        return self.rates[min(step * len(self.rates) // max(total, 1), len(self.rates) - 1)]
