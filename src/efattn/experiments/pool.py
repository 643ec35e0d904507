"""Several runs at a time, each in a process with one thread, which ends when the one that asked for it does."""

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context, parent_process
from typing import Any, TypeVar

import torch

T = TypeVar("T")


def each(function: Callable[..., Any], things: Sequence[T], jobs: int, **options: Any) -> Iterator[tuple[T, Any]]:
    """(thing, function(thing, **options)) of each, as it is finished."""
    with ProcessPoolExecutor(jobs, get_context("spawn"), initializer=_begin) as pool:
        waiting = {pool.submit(function, thing, **options): thing for thing in things}
        try:
            for done in as_completed(waiting):
                yield waiting[done], done.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _begin() -> None:
    torch.set_num_threads(1)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A parent that is killed tells nobody, and its processes would work on."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
