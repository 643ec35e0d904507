"""Scores and predictions of a table that comes in pieces of whole groups: the same as of the table at once."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np

from efattn.data import Groups, Table
from efattn.errors import DataError
from efattn.estimators.base import GroupEstimator
from efattn.inference import rows

Tell = Callable[[str], object]


def scores(model: GroupEstimator, pieces: Iterable[Table], tell: Tell, member: int | None = None) -> dict[str, Any]:
    """As GroupEstimator.scores. tell: called with each note about the rows."""
    observations, scored, unknown, notes = 0, 0, 0, _Notes(tell)
    members = model._of_terms(member)
    sums = dict.fromkeys(model.model_.terms, 0.0)
    counts = dict.fromkeys(model.model_.terms, 0)
    for piece in pieces:
        groups = model.schema_.encode(piece, need=("value",) if "value" in model.terms_ else ())
        model._check_fits(groups)
        notes.hear(groups)
        found = rows.log_likelihoods(members, model.schema_, groups, len(piece))
        any_ = np.zeros(len(piece), bool)
        for name, x in found.items():
            here = ~np.isnan(x)
            sums[name] += float(x[here].sum())
            counts[name] += int(here.sum())
            any_ |= here
        observations, scored = observations + len(piece), scored + int(any_.sum())
        if groups.item is not None and groups.vocabulary is not None:
            unknown += int((groups.item == groups.vocabulary.unknown).sum())
    notes.close()
    if not scored:
        raise DataError("No row of this table can be scored: every target is missing or unknown.")
    total = sum(sums.values()) / scored
    terms = {name: sums[name] / counts[name] if counts[name] else None for name in sums}
    counted = {"observations": observations, "scored": scored, "unknown": unknown}
    return {"mean_log_likelihood": total, "terms": terms, **counted}


def predictions(
    model: GroupEstimator, pieces: Iterable[Table], interval: float | None, tell: Tell, member: int | None = None
) -> Iterator[Any]:
    """Of each piece, what GroupEstimator.predict gives."""
    notes = _Notes(tell)
    if interval is not None and not 0 < interval < 1:
        raise DataError(f"interval is a probability between 0 and 1, or None; found {interval!r}.")
    terms = model._of_kind("value", "predict", member)
    for piece in pieces:
        groups = model.schema_.encode(piece)
        notes.hear(groups)
        yield piece.with_columns(rows.predictions(terms, model.schema_, groups, len(piece), interval))
    notes.close()


@final
@dataclass
class _Notes:
    """What was noted about the pieces. Of several, only what holds for any part of a table; each kind once."""

    tell: Tell
    heard: list[list[Any]] = field(default_factory=list)

    def hear(self, groups: Groups) -> None:
        self.heard.append(groups.notes)

    def close(self) -> None:
        if len(self.heard) == 1:
            for note in self.heard[0]:
                self.tell(str(note))
            return
        for kind in ("There is no column", "No item", "Unknown items", "Ties"):
            first = next((note for notes in self.heard for note in notes if str(note).startswith(kind)), None)
            if first is not None:
                self.tell(f"In one of {len(self.heard)} pieces, perhaps in others: {first}")
