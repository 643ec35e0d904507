"""What a page looks at: a model, and a table of at most so many rows, drawn by whole groups."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, final

import numpy as np

from efattn import inference
from efattn.data import Groups, Table, Wide
from efattn.data.fingerprints import fingerprints
from efattn.errors import DataError, EfattnError, Note
from efattn.inference import Evaluation, Fitted
from efattn.inference.predict import expected
from efattn.inference.score import Rows, row_weights, term_scores
from efattn.inference.tables import Asked, encoded
from efattn.models import Model

CELLS = 2e8  # rows times items that are ranked


@final
@dataclass(frozen=True, eq=False)
class Look:
    """table, groups: what is looked at, in the table's units; rows: of the whole table; numbers: which of its groups
    are looked at; whole: how many it has; notes: about the table; seed: of the groups that were drawn; wide: how the
    table was laid out, where its rows were groups."""

    fitted: Fitted
    table: Table
    groups: Groups
    rows: int
    numbers: np.ndarray
    whole: int
    notes: tuple[Note, ...]
    seed: int
    wide: Wide | None = None

    @classmethod
    def at(cls, fitted: Fitted, table: Any, most: int, seed: int) -> "Look":
        """Of a wide table, its long form."""
        notes: list[Note] = []
        (asked,) = encoded(fitted, [Table.read(table)], notes.append)
        if not len(asked.table):
            raise DataError("The table has no rows: there is nothing to look at.")
        wide, fitted = fitted.wide, replace(fitted, wide=None)  # what came back is long
        rows, whole, kept = len(asked.table), len(asked.groups), np.arange(len(asked.groups))
        if "item" in fitted.terms:
            most = min(most, max(int(CELLS // len(fitted.vocabulary)), 500))
        if rows > most and whole > 1:
            kept = drawn(asked.groups, most, seed)
            source = Table.read(asked.table.take(np.sort(asked.groups.subset(kept).rows)))
            (asked,) = encoded(fitted, [source], lambda note: None)
        return cls(fitted, asked.table, asked.groups, rows, kept, whole, tuple(notes), seed, wide)

    @property
    def asked(self) -> Asked:
        return Asked(self.table, self.groups)

    @property
    def seen(self) -> int | None:
        """How many of the groups were there when the model was fitted; None where nobody knows."""
        known = self.fitted.seen
        return None if known is None else int(np.isin(fingerprints(self.groups), known).sum())

    @cached_property
    def evaluation(self) -> Evaluation | None:
        """None where no row can be evaluated."""
        try:
            return inference.evaluate(self.fitted, [self.table], tell=lambda note: None)
        except EfattnError:
            return None

    @cached_property
    def scores(self) -> Mapping[str, Rows]:
        """By term, the log score of each row of the table."""
        if "value" in self.fitted.terms and self.groups.every.value is None:
            return {}
        return {name: self.scored(self.fitted, name) for name in self.fitted.names}

    def scored(self, fitted: Fitted, name: str) -> Rows:
        return term_scores(fitted, name, self.groups, len(self.table))

    def alone(self, name: str) -> dict[str, Rows]:
        """Of a term, what each part of the mixture scores on its own."""
        companions, found = self.fitted.companions.get(name, ()), dict[str, Rows]()
        if not companions:
            return found
        who = "the networks alone" if len(self.fitted.members) > 1 else "the network alone"
        found[who] = self.scored(self.fitted.networks_alone(), name)
        for one in companions:
            kind = f"{one.recipe.label} alone"
            mine = replace(self.fitted, members=(Model({name: one.model}),), companions={}, moves={})
            found[f"{kind}, another" if kind in found else kind] = self.scored(mine, name)
        return found

    @cached_property
    def weight(self) -> np.ndarray:
        return row_weights(self.asked)

    @cached_property
    def group(self) -> np.ndarray:
        """(row,), in the order of the table."""
        found = np.zeros(len(self.table), np.int64)
        found[self.groups.every.row] = self.groups.group
        return found

    @cached_property
    def predicted(self) -> dict[str, np.ndarray]:
        """Of values: <value>_mean, _sd, _lower, _upper (row,), in the order of the table."""
        parts = self.fitted.parts_of("value", "predict")
        return expected(self.fitted, parts, self.groups, len(self.table), 0.9)

    def by_row(self, entries: np.ndarray) -> np.ndarray:
        """From the order of the groups to that of the table."""
        found = np.empty_like(entries)
        found[self.groups.every.row] = entries
        return found


def drawn(groups: Groups, most: int, seed: int) -> np.ndarray:
    """The numbers of as many groups as have about so many rows, at least one: at random, or with lags the last times,
    whose groups know each other."""
    order = np.random.default_rng(seed).permutation(len(groups))
    if groups.lagged is not None and groups.time is not None:
        order = np.argsort(-groups.time[groups.numbers], kind="stable")
    size = int(np.searchsorted(np.cumsum(groups.lengths[order]), most, "right"))
    return np.sort(order[: max(size, 1)])


def levels(wide: Wide | None, item: Any) -> tuple[str, ...]:
    """The words of a column of a wide table; none where its values are numbers."""
    return () if wide is None else next((one.levels for one in wide.columns if one.name == item), ())
