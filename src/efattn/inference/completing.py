"""Groups with blank cells, completed: items first, then values given items, each round given those before it.

    round    with lags the groups of one time, so that a group sees what was drawn for those before it; of groups cut
             into pieces the first pieces, then the second ones, ...

Cells that are there stay as they are and are what the rest is drawn from.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import final

import numpy as np
import torch

from efattn.data import Groups
from efattn.errors import DataError, Note
from efattn.inference import drawing
from efattn.inference.convergence import RAN_AWAY, convergence
from efattn.inference.fitted import Fitted, Part, batch_tokens
from efattn.inference.predict import in_units

ITEM_SWEEPS, STEPS = 10, 20


@final
@dataclass(frozen=True)
class How:
    """Of drawing: seed, from which all follows; burn_in, sweeps where cells are drawn by turns, None for as many as
    serve: `sweeps`; member, one alone."""

    seed: int = 0
    burn_in: int | None = None
    member: int | None = None

    def sweeps(self, what: str, context: str) -> int:
        """Over items, of which the first are drawn from fewer rows than any group of the fit has. Over values that come
        before others which are given, as nothing else tells them of these. Not over values given others: drawn one
        after the other they have a joint law, and sweeps were no better or much worse on all that was tried. In any
        order none: cells drawn one after the other are of the law that was learnt."""
        usual = {"items": ITEM_SWEEPS, "values": STEPS if context == "past" else 0}
        usual = dict.fromkeys(usual, 0) if context == "any" else usual
        return usual[what] if self.burn_in is None else self.burn_in


@final
@dataclass(frozen=True, eq=False)
class Blank:
    """By row of the table: whether its item (row,) is to be drawn, which of its values (row, column)."""

    item: np.ndarray
    value: np.ndarray


@final
@dataclass(frozen=True, eq=False)
class Completed:
    """By row of the table: the number of its item (row,) and its values (row, column), in the table's units; None where
    there are none. note: whether sweeps were enough."""

    item: np.ndarray | None
    value: np.ndarray | None
    note: Note | None


Trace = tuple[str, np.ndarray, np.ndarray]  # what was drawn, (chain, 1 + sweep, statistic), (chain,) of which kind


def blank_cells(fitted: Fitted, groups: Groups, no_item: np.ndarray) -> Blank:
    """What a model can draw: the items of rows that have none, if it has a term for them, and values that are missing.
    no_item: (row,) of the table."""
    every, rows = groups.every, len(groups.every.row)
    item = no_item & ("item" in fitted.terms)
    value = np.zeros((rows, len(fitted.schema.roles.of("value"))), bool)
    if every.value is not None and "value" in fitted.terms:
        value[every.row] = np.isnan(every.value)
    if fitted.context == "past" and item.any():
        _refuse_later(fitted, groups, item, value)
    return Blank(item, value)


def _refuse_later(fitted: Fitted, groups: Groups, item: np.ndarray, value: np.ndarray) -> None:
    """An item that comes after nothing but is followed by rows that are there would have to be drawn given these."""
    row, of = groups.every.row, groups.group
    blank = item[row]
    known = ~blank | ~value[row].all(1) if value.shape[1] and "value" in fitted.terms else ~blank
    first = np.full(len(groups), len(row))
    np.minimum.at(first, of[blank], np.flatnonzero(blank))
    wrong = np.flatnonzero(known & (np.arange(len(row)) >= first[of]))
    if wrong.size:
        raise DataError(
            f"Items that are to be drawn come after all that is known of their group; {groups.label(int(wrong[0]))} "
            "comes after one, or has a value without an item. Leave such rows out, or fit with others as context.",
            row=groups.first_row + int(row[wrong[0]]),
        )


def completed(fitted: Fitted, groups: Groups, blank: Blank, how: How, kind: np.ndarray | None = None) -> Completed:
    """groups: in the table's units; kind: (group,), the same for groups that are drawn from the same law."""
    every, traces, away = groups.every, list[Trace](), False
    generator = torch.Generator().manual_seed(how.seed)
    own = np.arange(len(groups))
    walk = Walk(fitted, how, generator, own if kind is None else kind)
    place = np.empty(len(every.row), np.int64)
    place[every.row] = np.arange(len(place))
    item, value = (None if x is None else x.copy() for x in (every.item, every.value))
    if blank.item.any():
        assert item is not None
        groups = replace(groups, every=replace(every, item=item))
        traces += walk.items(groups, blank.item, item, place)
        walk = replace(walk, kind=own)  # values are drawn given items, which now differ
    if blank.value.any():
        assert value is not None
        inside = fitted.schema.standardise(groups)
        assert inside.every.value is not None
        drawn = inside.every.value.copy()
        inside = replace(inside, every=replace(inside.every, value=drawn))
        more, away = walk.values(inside, blank.value, drawn, place)
        traces += more
        here = blank.value[every.row]
        value[here] = in_units(fitted, drawn, item, spread=False)[here]
    items, values = (None if x is None else x[place] for x in (item, value))
    return Completed(items, values, RAN_AWAY if away else convergence(traces))


@final
@dataclass(frozen=True, eq=False)
class Walk:
    fitted: Fitted
    how: How
    generator: torch.Generator
    kind: np.ndarray

    def items(self, groups: Groups, blank: np.ndarray, item: np.ndarray, place: np.ndarray) -> list[Trace]:
        """Draw into `item`, from which the groups read."""
        parts, traces = self._parts("item"), list[tuple[np.ndarray, np.ndarray]]()
        name, sweeps = self.fitted.vocabulary.columns[0], self.how.sweeps("items", parts[0].model.context)
        for chosen in self._rounds(groups, blank, parts):
            batch = groups.batch(chosen, parts[0].model.context, self.fitted.dtype)
            assert batch.rows is not None
            rows = batch.rows.numpy()
            cells = torch.from_numpy(blank[rows] & (rows >= 0))
            drawn = drawing.items(parts, batch, cells, name, self.generator, sweeps)
            item[place[rows[cells.numpy()]]] = drawn.cells[cells].numpy()
            self._keep(traces, groups, chosen, drawn)
        return _joined("items", traces)

    def values(
        self, groups: Groups, blank: np.ndarray, value: np.ndarray, place: np.ndarray
    ) -> tuple[list[Trace], bool]:
        """Draw into `value`, from which the groups read, in the models' units; whether sweeps ran away."""
        parts, traces, away = self._parts("value"), list[tuple[np.ndarray, np.ndarray]](), False
        sweeps = self.how.sweeps("values", parts[0].model.context)
        for chosen in self._rounds(groups, np.any(blank, axis=1), parts):
            batch = groups.batch(chosen, parts[0].model.context, self.fitted.dtype)
            assert batch.rows is not None
            rows = batch.rows.numpy()
            cells = torch.from_numpy(blank[rows] & (rows >= 0)[..., None])
            drawn = drawing.values(parts, batch, cells, self.generator, sweeps)
            some = cells.any(-1)
            here = place[rows[some.numpy()]]
            value[here] = np.where(cells[some].numpy(), drawn.cells[some].numpy(), value[here])
            self._keep(traces, groups, chosen, drawn)
            away |= drawn.ran_away
        return _joined("values", traces), away

    def _parts(self, kind: str) -> tuple[Part, ...]:
        parts = self.fitted.parts_of(kind, "sample", self.how.member)
        return tuple(part for part in parts if part.ever)

    def _rounds(self, groups: Groups, blank: np.ndarray, parts: tuple[Part, ...]) -> Iterator[np.ndarray]:
        """Pieces of like length, round by round, that have anything to draw."""
        pieces = groups.pieces
        number = np.arange(len(pieces)) - np.searchsorted(pieces.group, pieces.group)
        time = np.zeros(len(groups)) if groups.time is None else np.unique(groups.time, return_inverse=True)[1]
        _, turn = np.unique(np.stack((time[pieces.group], number), 1), axis=0, return_inverse=True)
        has = np.add.reduceat(blank[groups.every.row], pieces.start) > 0 if len(pieces) else np.zeros(0, bool)
        planned = groups.plan(batch_tokens(parts[0].model))
        for now in range(int(turn.max(initial=-1)) + 1):
            for chosen in planned:
                mine = chosen[(turn.reshape(-1)[chosen] == now) & has[chosen]]
                if len(mine):
                    yield mine

    def _keep(
        self, traces: list[tuple[np.ndarray, np.ndarray]], groups: Groups, chosen: np.ndarray, drawn: drawing.Drawn
    ) -> None:
        if drawn.trace is not None:
            cut = groups.max_length is not None  # of pieces that see others, none is like another
            kind = (
                sum(len(one) for one, _ in traces) + np.arange(len(chosen))
                if cut
                else self.kind[groups.pieces.group[chosen]]
            )
            traces.append((drawn.trace.numpy(), kind))


def _joined(what: str, traces: list[tuple[np.ndarray, np.ndarray]]) -> list[Trace]:
    if not traces:
        return []
    every, kinds = zip(*traces, strict=True)
    return [(what, np.concatenate(every), np.concatenate(kinds))]
