"""How many threads a fit runs on.

Several threads wait for each other after every small product, so that beside other busy programs two take many times as
long as one; of small products they gain little anywhere. A fit to few rows runs on one.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

SMALL = 20_000  # rows


@contextmanager
def suited_to(rows: int) -> Iterator[None]:
    before = torch.get_num_threads()
    if rows < SMALL:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
