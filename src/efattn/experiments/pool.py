"""Several runs at a time, each in a process with one thread."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from typing import Any, TypeVar

import torch

T = TypeVar("T")


def each(function: Callable[..., Any], things: Sequence[T], jobs: int, **options: Any) -> Iterator[tuple[T, Any]]:
    """(thing, function(thing, **options)) of each, as it is finished."""
    with ProcessPoolExecutor(jobs, get_context("spawn"), initializer=_one_thread) as pool:
        waiting = {pool.submit(function, thing, **options): thing for thing in things}
        try:
            for done in as_completed(waiting):
                yield waiting[done], done.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _one_thread() -> None:
    torch.set_num_threads(1)
