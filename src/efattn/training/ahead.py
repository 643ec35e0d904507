"""Batches where they are computed with, without anybody waiting for them.

on a CPU     built when asked for, but for a table that is one batch
on a GPU     gathered there from rows that are there (data/resident.py), or, of more rows than it has room for, built
             in a thread and sent from memory that the device reads by itself
"""

from collections import deque
from collections.abc import Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import final

import numpy as np
import torch

from efattn.data import Batch, Groups
from efattn.data.resident import Resident
from efattn.network import Context

DEPTH = 3  # batches that are ready or under way


@final
class Batches:
    """Of these groups, on a device."""

    def __init__(self, data: Groups, context: Context, device: torch.device) -> None:
        self.data, self.context, self.device = data, context, device
        self.resident = Resident(data, device) if Resident.fits(data, device) else None
        self.whole: Batch | None = None  # of a table that is one batch: its groups stand in another order each time

    def of(self, plan: Sequence[np.ndarray]) -> Generator[Batch]:
        """Those of a plan, in its order."""
        if self.resident is not None:
            return (self.resident.batch(pieces, self.context) for pieces in plan)
        return (self.build(pieces) for pieces in plan) if self.device.type == "cpu" else self._early(plan)

    def build(self, pieces: np.ndarray) -> Batch:
        everything = len(self.data.pieces)
        if self.device.type != "cpu" or len(pieces) != everything:
            return self.data.batch(pieces, self.context).to(self.device, ahead=True)
        if self.whole is None:
            self.whole = self.data.batch(np.arange(everything), self.context)
        return self.whole.select(torch.as_tensor(pieces))

    def _early(self, plan: Sequence[np.ndarray]) -> Generator[Batch]:
        waiting = deque[Future[Batch]]()
        with ThreadPoolExecutor(1, thread_name_prefix="efattn-batches") as thread:
            try:
                for pieces in plan:
                    waiting.append(thread.submit(self.build, pieces))
                    if len(waiting) >= DEPTH:
                        yield waiting.popleft().result()
                while waiting:
                    yield waiting.popleft().result()
            finally:
                thread.shutdown(wait=False, cancel_futures=True)
