"""Batches before they are needed: built in a thread and on their way to the device while that computes.

    plan -> build in numpy -> memory that the device reads by itself -> the device; nobody waits

On a CPU a batch is built when it is asked for: a thread would take a core from the computation.
"""

from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import torch

from efattn.data import Batch, Groups
from efattn.models import Conditionals

DEPTH = 3  # batches that are ready or under way


class Ready(NamedTuple):
    """A batch where it is computed with. scored: whether it has a target of positive weight, looked up before it went
    there."""

    batch: Batch
    scored: bool


def ready(
    data: Groups, plan: Sequence[np.ndarray], term: Conditionals, device: torch.device, first: int = 0
) -> Generator[Ready]:
    """The batches of a plan in its order, from number `first` on."""

    def one(pieces: np.ndarray) -> Ready:
        batch = data.batch(pieces, term.context)
        scored = device.type == "cpu" or has_targets(term, batch)
        return Ready(batch.to(device, ahead=True), scored)

    return (one(pieces) for pieces in plan[first:]) if device.type == "cpu" else _early(one, plan[first:])


def has_targets(term: Conditionals, batch: Batch) -> bool:
    scored = term.targets(batch)
    return bool((scored if batch.weight is None else scored & (batch.weight > 0)).any())


def _early(one: Callable[[np.ndarray], Ready], plan: Sequence[np.ndarray]) -> Generator[Ready]:
    waiting = deque[Future[Ready]]()
    with ThreadPoolExecutor(1, thread_name_prefix="efattn-batches") as thread:
        try:
            for pieces in plan:
                waiting.append(thread.submit(one, pieces))
                if len(waiting) >= DEPTH:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            thread.shutdown(wait=False, cancel_futures=True)
