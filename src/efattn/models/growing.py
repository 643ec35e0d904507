"""Groups that grow row by row, as when they are drawn from the past: each step takes as long as a group is long.

    with growing(terms, batch) as step:
        step(batch, column)      the next row of every group: what `Term.rows` then says of any of these groups

Content of rows that were there before goes through the network once (network/kept.py). Terms that look at times
between rows, at lags or at neighbours are asked as ever, as are simple models.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from efattn.data.batch import LAYOUT, Batch
from efattn.models.scoring import Conditionals
from efattn.models.term import Term, rows_ready
from efattn.network.kept import Kept


@contextmanager
def growing(models: Sequence[Conditionals], batch: Batch) -> Iterator[Callable[[Batch, int], None]]:
    """batch: told apart by the rows of the table that its groups begin with."""
    rows = batch.rows
    plain = rows is not None and batch.exists.shape[1] == batch.length > 0
    terms = [model for model in models if isinstance(model, Term) and plain and _may(model)]
    kept = {id(term): Kept(term.stack) for term in terms}
    first, order = (torch.zeros(0), torch.zeros(0)) if rows is None or not terms else rows[:, 0].sort()
    now, done = dict[int, Tensor](), 0

    def step(batch: Batch, column: int) -> None:
        nonlocal done
        some = _between(batch, done, column + 1)
        for term in terms:
            content, masked = term.embed(some)
            seen = term.looked_at(some)[:, :-1]
            kept[id(term)].add(content[:, :-1], seen)
            now[id(term)] = kept[id(term)].next(masked[:, -1:])
        done = column

    def ready(term: Term) -> Callable[[Batch], Tensor]:
        def of(asked: Batch) -> Tensor:
            assert asked.rows is not None
            return now[id(term)][order[torch.searchsorted(first, asked.rows[:, 0].contiguous())]]

        return of

    token = rows_ready.set({id(term): ready(term) for term in terms})
    try:
        yield step
    finally:
        rows_ready.reset(token)


def _between(batch: Batch, first: int, last: int) -> Batch:
    """Some of the current positions, one after the other."""
    there = ((name, getattr(batch, name)) for name, cells in LAYOUT.items() if cells.over != "group")
    return batch.replace(length=last - first, **{name: x[:, first:last] for name, x in there if x is not None})


def _may(term: Term) -> bool:
    """Whether what it says of a row hangs on the rows before it and on nothing else."""
    return term.context == "past" and term.gaps is None and term.neighbours is None
