"""Cells of a batch that are blank, drawn from what a model says of each given the rest.

    past      in order, each cell from its conditional: together, exactly a draw of the joint law; what the network
              makes of rows that are there is kept, so that a step takes as long as a group is long (growing.py)
              a blank value before values that are there: proposed in the same way and taken with probability min(1,
              product over the later rows of p(new) / p(old)) (Metropolis), sweep after sweep
    any       in an order drawn at random, each given those drawn before it: a draw of the mixture over orders
    others    each cell given those drawn so far, then sweeps over all of them, each given all others (Gibbs)

Conditionals that were each learnt alone need not be those of any joint law. Where sweeps run away, which they may if
values given all others follow them too closely, they are given up, and what was drawn before them is taken.

Items are drawn first, since they never depend on values. A target never sees itself, so that a cell may be drawn in
its place.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from efattn.data import Batch
from efattn.inference import mixture
from efattn.inference.cells import draw_item, draw_values
from efattn.inference.fitted import Part
from efattn.models import Conditionals
from efattn.models.growing import growing

AWAY = 10.0  # times the mean square of what was drawn at first, or of values in units of their spread


@final
@dataclass(frozen=True, eq=False)
class Drawn:
    """cells: (batch, length) items or (batch, length, columns) values; trace: (batch, 1 + sweep, statistic), from
    where sweeps begin, which tells whether they were enough; None where there were none; ran_away: whether they were
    given up."""

    cells: Tensor
    trace: Tensor | None = None
    ran_away: bool = False


@torch.no_grad()
def items(
    parts: Sequence[Part], batch: Batch, blank: Tensor, name: str, generator: torch.Generator, sweeps: int
) -> Drawn:
    """blank: (batch, length), which to draw; name: of the items' column."""
    assert batch.item is not None
    batch = batch.replace(item=batch.item.clone(), exists=batch.exists.clone())
    assert batch.item is not None
    past = parts[0].model.context == "past"
    latest = torch.zeros(blank.shape, dtype=torch.float64)
    batch.exists[:, : batch.length] &= ~blank

    def draw(column: int) -> None:
        rows = blank[:, column].nonzero()[:, 0]
        assert batch.item is not None
        batch.exists[rows, column] = True
        some = batch.select(rows)
        found = draw_item(parts, some.first(column + 1) if past else some, column, name, generator)
        batch.item[rows, column] = found[:, 0].long()
        latest[rows, column] = found[:, 1]

    columns, trace = _turns(parts, blank, generator), list[Tensor]()
    for _ in range(1 if past or len(columns) < 2 else 1 + sweeps):
        with growing(_here(parts) if past else (), batch) as step:
            for column in columns:
                step(batch, column)
                draw(column)
        trace.append((latest.sum(1) / blank.sum(1).clamp_min(1))[:, None])
    return Drawn(batch.item[:, : batch.length], torch.stack(trace, 1) if len(trace) > 1 else None)


@torch.no_grad()
def values(parts: Sequence[Part], batch: Batch, blank: Tensor, generator: torch.Generator, sweeps: int) -> Drawn:
    """blank: (batch, length, columns), which to draw, in the units of the batch."""
    state = Values(parts, batch, blank, generator)
    if parts[0].model.context == "past":
        return state.in_order(sweeps)
    return state.by_turns(sweeps)


@final
class Values:
    """The values of a batch as they stand, some of them blank yet."""

    def __init__(self, parts: Sequence[Part], batch: Batch, blank: Tensor, generator: torch.Generator) -> None:
        assert batch.value is not None
        assert batch.observed is not None
        self.parts, self.blank, self.generator = parts, blank, generator
        self.value, self.observed = batch.value.clone(), batch.observed.clone()
        self.batch = batch.replace(value=self.value, observed=self.observed)
        now = self.value[:, : batch.length].double()
        self.now = now.masked_fill(~self.observed[:, : batch.length], torch.nan)

    @property
    def columns(self) -> list[int]:
        """In which there is anything to draw, in the order in which it is."""
        return _turns(self.parts, self.blank.any(-1), self.generator)

    def proposed(self, column: int, rows: Tensor, past: bool) -> Tensor:
        some = self.batch.select(rows)
        some = some.first(column + 1) if past else some
        own = self.now[rows, column].masked_fill(self.blank[rows, column], torch.nan)
        item = None if some.item is None else some.item[:, column]
        return draw_values(self.parts, some, column, own, item, self.generator)

    def put(self, column: int, rows: Tensor, y: Tensor) -> None:
        self.now[rows, column] = y
        self.observed[rows, column] = ~y.isnan()
        self.value[rows, column] = y.nan_to_num(0.0).to(self.value.dtype)

    def by_turns(self, sweeps: int) -> Drawn:
        """Gibbs. A value that is not drawn yet counts as missing."""
        columns, trace, begun = self.columns, list[Tensor](), self.now
        alone = bool((self.blank.any(-1).sum(1) < 2).all())  # one cell a group is drawn from its law at once
        for _ in range(1 if alone else 1 + sweeps):
            for column in columns:
                rows = self.blank[:, column].any(-1).nonzero()[:, 0]
                self.put(column, rows, self.proposed(column, rows, past=False))
            trace.append(_statistics(self.now, self.blank))
            begun = self.now.clone() if len(trace) == 1 else begun
            if _far(trace[-1]) > AWAY * max(_far(trace[0]), 1.0):
                return Drawn(begun, ran_away=True)
        return Drawn(self.now, torch.stack(trace, 1) if len(trace) > 1 else None)

    def in_order(self, sweeps: int) -> Drawn:
        """Ancestral; with Metropolis steps where values that are there come later."""
        length = self.blank.shape[1]
        there = ((~self.now.isnan()).any(-1) & ~self.blank.all(-1)) * torch.arange(1, length + 1)
        last = there.amax(1) if length else there.sum(1)  # (batch,): how many rows, up to the last with a value
        before = torch.arange(length) < (last - 1)[:, None]
        self._forward(self.blank.any(-1) & before)
        moving = self.blank & before[..., None]
        trace = [_statistics(self.now, moving)] if moving.any() else []
        for _ in range(sweeps if moving.any() else 0):
            for column in moving.any(-1).any(0).nonzero()[:, 0].tolist():
                self._step(column, moving[:, column].any(-1).nonzero()[:, 0], last)
            trace.append(_statistics(self.now, moving))
        self._forward(self.blank.any(-1) & ~before)
        return Drawn(self.now, torch.stack(trace, 1) if trace else None)

    def _forward(self, cells: Tensor) -> None:
        with growing(_here(self.parts), self.batch) as step:
            for column in cells.any(0).nonzero()[:, 0].tolist():
                step(self.batch, column)
                rows = cells[:, column].nonzero()[:, 0]
                self.put(column, rows, self.proposed(column, rows, past=True))

    def _step(self, column: int, rows: Tensor, last: Tensor) -> None:
        """Another value of these rows, where the later ones allow it."""
        end = int(last[rows].max())
        later = (torch.arange(end) > column) & (torch.arange(end) < last[rows][:, None])

        def log_prob() -> Tensor:
            scores = mixture.log_prob(self.parts, _all_scored(self.batch.select(rows).first(end)))
            return torch.where(scores.scored & later, scores.values, 0.0).sum(1)

        old, before = self.now[rows, column].clone(), log_prob()
        self.put(column, rows, self.proposed(column, rows, past=True))
        allowed = log_prob() - before
        uniform = torch.rand(len(rows), generator=self.generator, dtype=torch.float64)
        back = ~(uniform.log() < allowed)
        self.put(column, rows[back], old[back])


def _turns(parts: Sequence[Part], blank: Tensor, generator: torch.Generator) -> list[int]:
    """The columns of blank (batch, length) in which there is anything to draw."""
    columns = blank.any(0).nonzero()[:, 0]
    if parts[0].model.context == "any":
        columns = columns[torch.randperm(len(columns), generator=generator)]
    return columns.tolist()


def _here(parts: Sequence[Part]) -> list[Conditionals]:
    """The models that run where batches are."""
    return [one.model for part in parts for one in part.inside if str(one.device) == "cpu"]


def _all_scored(batch: Batch) -> Batch:
    """Rows that are context only are evidence all the same."""
    return batch.replace(target=batch.exists[:, : batch.length], weight=None)


def _far(statistics: Tensor) -> float:
    """The mean square of what was drawn, of the middle one of all groups, in the column where it is largest."""
    squares = statistics[:, statistics.shape[1] // 2 :]
    return float(squares.nan_to_num(torch.inf).median(0).values.max())


def _statistics(now: Tensor, blank: Tensor) -> Tensor:
    """(batch, statistic): mean and mean square of what was drawn, in each column."""
    number = blank.sum(1).clamp_min(1)
    drawn = torch.where(blank, now, 0.0)
    return torch.cat((drawn.sum(1) / number, (drawn**2).sum(1) / number), -1)
