"""One history that grows: what comes next after each row, from keys and values that are kept.

    with `add` the new rows alone go through the networks;  `recommend` asks for the row that comes

The answers are those of `recommend` on the whole history, but for rounding. Simple models beside the networks, which
are quick, look at the whole history each time.
"""

from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from efattn.data import Batch, Table
from efattn.errors import DataError, named, option
from efattn.inference import mixture
from efattn.inference.allowed import allowed, check_at_least
from efattn.inference.diversity import check_diversity, directions
from efattn.inference.fitted import Fitted, Part
from efattn.inference.pool import Pool
from efattn.inference.recommend import Lists, check_count, ranked, soon
from efattn.inference.tables import Tell, announce, encoded
from efattn.models import Term
from efattn.network.kept import Kept


@final
class Following:
    """Of one group: its rows so far, and for each network what it keeps of them."""

    def __init__(self, fitted: Fitted, table: Table | None = None, *, tell: Tell = announce) -> None:
        self.fitted, self.tell = fitted, tell
        self.parts = fitted.parts_of("item", "be followed")
        self.batch: Batch | None = None
        self.inner = [one for part in self.parts for one in part.inside]
        self.kept = [_kept(part) for part in self.inner]
        if table is not None and len(table):
            self.add(table)

    def __len__(self) -> int:
        return 0 if self.batch is None else self.batch.length

    @torch.no_grad()
    def add(self, rows: Any) -> "Following":
        """Further rows of the group, a frame or a mapping of columns, in their order."""
        (asked,) = encoded(self.fitted, [Table.read(rows)], self.tell)
        groups = self.fitted.schema.standardise(asked.groups)
        if len(groups) != 1:
            raise DataError(f"One history is followed; these rows are of {len(groups)} groups.", option="group")
        more = groups.batch(np.arange(1), self.parts[0].model.context, self.fitted.dtype)
        whole = more if self.batch is None else _joined(self.batch, more)
        limit = self.fitted.schema.max_length
        if limit is not None and whole.length > limit:
            said = f"The history is longer than {option('max_length', limit)}: ask {named('recommend')} instead."
            raise DataError(said, option="max_length")
        if self.fitted.support == "distinct":
            _refuse_repeats(whole, self.fitted)
        first = len(self)
        self.batch = whole
        for part, kept in zip(self.inner, self.kept, strict=True):
            if kept is not None and isinstance(part.model, Term):
                here = whole.to(part.device)
                content, _ = part.model.embed(_rows(here, first))
                kept.add(content, gap=_gap(part.model, here, first))
        return self

    @torch.no_grad()
    def recommend(
        self,
        k: int = 10,
        *,
        among: Any = None,
        exclude: Any = None,
        at_least: float = 0.0,
        diversity: float = 0.0,
    ) -> Any:
        """As `recommend` of the whole history: a row per rank, item and probability."""
        check_count(k)
        check_at_least(at_least)
        check_diversity(diversity)
        may, notes = allowed(self.fitted, among, exclude)
        for note in notes:
            self.tell(note)
        lists = Lists(k, may, float(diversity), directions(self.fitted, None) if diversity else None)
        p = mixture.item_probabilities(self.parts, self._outputs(), self.fitted.vocabulary.columns[0])
        items, values = lists.of(p)
        return ranked(self.fitted, at_least, None, {}, items.numpy(), values.numpy())

    def _outputs(self) -> Any:
        """Of each part, f (1, item)."""
        term, before = self.parts[0].model, self.batch
        if before is None:
            start: dict[str, Any] = {"item": [term.family.size], "lag": [0], "when": [0.0]}
            known = self.fitted.schema.attribute_columns
            start |= {"attributes": np.zeros((1, len(known)))} if known else {}
            longer = Batch.of([start], self.fitted.dtype)
        else:
            more: dict[str, Any] = {"when": soon(self.parts, before)}
            if before.attributes is not None:
                more["attributes"] = before.attributes[:, -1:]
            longer = before.with_one_more(item=term.family.size, **more)
        slots = torch.full((1, 1), longer.length - 1)
        each = zip(self.inner, self.kept, strict=True)
        outputs = {id(part.model): self._one(part, kept, longer, slots) for part, kept in each}
        pools = (part.model for part in self.parts if isinstance(part.model, Pool))
        outputs |= {id(pool): pool.joined(outputs[id(one.model)] for one in pool.parts) for pool in pools}
        return lambda part: outputs[id(part.model)]

    def _one(self, part: Part, kept: Kept | None, longer: Batch, slots: Tensor) -> Tensor:
        if kept is None or self.batch is None or not isinstance(part.model, Term):
            return part.outputs(longer, slots)[:, 0]
        term, here = part.model, longer.to(part.device)
        _, masked = term.embed(_rows(here, longer.length - 2))
        gap = None
        if term.gaps is not None and here.when is not None:
            taken = here.when[:, -1:] if term.own_time else here.when[:, -2:-1]
            gap = term.gaps.between(taken[:, :, None], here.when[:, None, :-1])
        f = term.head(kept.next(masked[:, -1:], gap))[:, 0]
        if term.support == "distinct" and here.item is not None:
            there = here.item[0, :-1]
            f = f.clone()
            f[:, there[there < f.shape[1]]] = -torch.inf
        return f.cpu()


def _kept(part: Part) -> Kept | None:
    """Nothing where rows may see later ones, or none but their neighbours."""
    term = part.model
    if term.context != "past":
        said = f"A history is followed from its past: fit with {option('context', 'past')}."
        raise DataError(said, option="context")
    plain = isinstance(term, Term) and term.neighbours is None and term.embedding.lag is None
    return Kept(term.stack) if plain and isinstance(term, Term) and term.stack.blocks else None


def _rows(batch: Batch, first: int) -> Batch:
    """From a column on."""
    kept: dict[str, Any] = {}
    for name in ("exists", "target", "item", "attributes", "position", "lag", "when", "exposure", "value", "observed"):
        x = getattr(batch, name)
        kept[name] = None if x is None else x[:, first:]
    return batch.replace(length=batch.length - first, **kept)


def _gap(term: Term, batch: Batch, first: int) -> Tensor | None:
    if term.gaps is None or batch.when is None:
        return None
    return term.gaps.between(batch.when[:, first:, None], batch.when[:, None])


def _joined(one: Batch, two: Batch) -> Batch:
    """Rows of one group after the others."""
    joined: dict[str, Any] = {}
    for name in ("exists", "target", "item", "attributes", "lag", "when", "exposure", "value", "observed", "weight"):
        mine, theirs = getattr(one, name), getattr(two, name)
        joined[name] = None if mine is None or theirs is None else torch.cat((mine, theirs), 1)
    length = one.length + two.length
    return one.replace(length=length, position=torch.arange(length)[None], rows=None, **joined)


def _refuse_repeats(batch: Batch, fitted: Fitted) -> None:
    assert batch.item is not None
    known = batch.item[0][batch.item[0] < len(fitted.vocabulary)]
    again = known[torch.bincount(known)[known] > 1] if len(known) else known
    if len(again):
        said = f"{fitted.vocabulary.words(int(again[0]))} comes twice in this history, and the model allows none."
        raise DataError(said, column=fitted.vocabulary.columns[0])
