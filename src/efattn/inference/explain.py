"""Which rows of its context carried a prediction: by attention, and by predicting again without each of them.

    change_j = prediction with all of the context - prediction with all of it but row j

Exact, of the mixture of all members and companions: a row is taken out of its group, and the rest is as if it had never
been there. The natural parameter is the first of the value's family, or its location where there is none, averaged over
the mixture, in the units in which models compute; of an item it is the logarithm of its odds. Changes of rows that say
the same do not add up to what they say together: each is the rest's to say without it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from numbers import Integral
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from efattn.data import Batch, Groups, Table
from efattn.data.groups import Observations
from efattn.data.wide import VALUE
from efattn.errors import DataError, named, option
from efattn.families import ExponentialFamily, Product
from efattn.inference import frames, mixture
from efattn.inference.fitted import Fitted, Part, batch_tokens, models_of
from efattn.inference.predict import in_units
from efattn.inference.recommend import soon
from efattn.inference.tables import Tell, announce, encoded
from efattn.models import Term


def explain(
    fitted: Fitted,
    table: Table,
    row: int | None = None,
    *,
    item: Any = None,
    term: str | None = None,
    member: int | None = None,
    tell: Tell = announce,
) -> Any:
    """A frame with a row for each row of the context, that which changed most first: row, its number in the table; its
    item; lag; attention, the mean over networks, layers and heads; and for each value column <value>_natural and
    <value>_mean, what the row changed, and <value>_mean_without, what is predicted without it. Of items: _natural,
    _probability and _probability_without.

    row: which row is explained, from 0. term: "value" (the default where there are values) or "item". item: one that is
    recommended: what carried it as the next (past) or a missing one (others) of the group of that row, or of the one
    group there is. Of a wide table: the column whose cell of that row is explained."""
    column = None
    if fitted.wide is not None and item is not None:
        column, row, item = item, _cell(fitted, row, item), None
    of_items = _of_items(fitted, term, item)
    parts = fitted.parts_of("item" if of_items else "value", "be explained", member)
    (asked,) = encoded(fitted, [table], tell)
    groups = fitted.schema.standardise(asked.groups)
    number, at = _target(groups, row, item is not None)
    made = copies(groups, number, at)
    key = None if item is None else fitted.vocabulary.number(item)
    answers = Answers(fitted, parts, made, key, of_items)
    told = answers.told()
    columns = _about(fitted, groups, made) | {"attention": answers.attention()} | told
    import polars as pl

    largest = next(name for name in told if name.endswith("_natural" if of_items else "_mean"))
    frame = pl.DataFrame(columns, strict=False)
    frame = frame.sort(pl.col(largest).abs(), descending=True, maintain_order=True)
    if column is not None:  # all of one row, told of by its columns
        frame = frame.drop("row").rename({name: name.replace(VALUE, column, 1) for name in told})
    return table.same_kind(frame)


def _cell(fitted: Fitted, row: int | None, column: Any) -> int:
    """The number of a cell of a wide table, row by row."""
    assert fitted.wide is not None
    names = fitted.wide.names
    if column not in names:
        raise DataError(f"{named('item')} is a column of the wide table; found {column!r}.", option="item")
    if not isinstance(row, Integral) or isinstance(row, bool) or row < 0:
        raise DataError(f"Say which {named('row')} is explained, by its number from 0; found {row!r}.", option="row")
    return int(row) * len(names) + names.index(column)


def _of_items(fitted: Fitted, term: str | None, item: Any) -> bool:
    if term not in (None, "value", "item"):
        raise DataError(f"{named('term')} is 'value' or 'item'; found {term!r}.", option="term")
    if item is not None and term == "value":
        raise DataError(f"{named('item')} is explained by the item term: leave {named('term')} out.", option="term")
    return item is not None or term == "item" or (term is None and "value" not in fitted.terms)


def _target(groups: Groups, row: int | None, one_more: bool) -> tuple[int, int | None]:
    """The number of the group, and where in the arrays the row stands that is explained: None for one that comes."""
    if row is None:
        if not one_more or len(groups) != 1:
            what = f"the table has {len(groups)} groups" if one_more else "a prediction is that of one row"
            raise DataError(f"Say which {named('row')} is explained, by its number from 0: {what}.", option="row")
        return 0, None
    found = np.flatnonzero(groups.every.row == row) if isinstance(row, Integral) else np.zeros(0, np.int64)
    if not found.size or isinstance(row, bool):
        rows = int(groups.every.row.max(initial=-1)) + 1
        raise DataError(f"{named('row')} is the number of one, 0 to {rows - 1}; found {row!r}.", option="row")
    number = int(np.searchsorted(groups.offsets, found[0], "right")) - 1
    return number, None if one_more else int(found[0])


@final
@dataclass(frozen=True, eq=False)
class Copies:
    """groups: the group as it is, then without each row of its context; context: where these stand in the arrays; lag:
    of each; target: the table's row that is explained, None for one more at the end."""

    groups: Groups
    context: np.ndarray
    lag: np.ndarray
    target: int | None


def copies(groups: Groups, number: int, at: int | None) -> Copies:
    if groups.max_length is not None and np.diff(groups.offsets)[number] > groups.max_length:
        limit = option("max_length", groups.max_length)
        raise DataError(f"This group is longer than {limit} and is cut; pass fewer of its rows.", option="max_length")
    mine = _span(groups, number)
    lags = [] if groups.lagged is None else groups.lagged[number].tolist()
    earlier = [(d + 1, _span(groups, m)) for d, m in enumerate(lags) if m >= 0]
    context = np.concatenate([mine if at is None else mine[mine != at], *(rows for _, rows in earlier)])
    lag = np.concatenate([np.zeros(len(mine) - (at is not None), np.int64), *(np.full(len(r), d) for d, r in earlier)])
    every_time, lagged = [-1, *context.tolist()], list[list[int]]()
    spans, numbers = [mine[mine != left_out] for left_out in every_time], [number] * len(every_time)
    for left_out in every_time:  # behind the copies of the group, those of its lags
        here = [-1] * len(lags)
        for d, rows in earlier:
            if left_out in rows or left_out == -1:
                spans.append(rows[rows != left_out])
                numbers.append(lags[d - 1])
                here[d - 1] = len(spans) - 1
            else:
                here[d - 1] = lagged[0][d - 1]
        lagged.append(here)
    index = np.concatenate(spans)
    old: dict[str, Any] = {f.name: getattr(groups.every, f.name) for f in fields(Observations)}
    every: dict[str, Any] = {name: None if x is None else x[index] for name, x in old.items()}
    made = replace(
        groups,
        every=Observations(**every),
        offsets=np.concatenate([[0], np.cumsum([len(span) for span in spans])]),
        labels=groups.labels.take(np.array(numbers)),
        time=None if groups.time is None else groups.time[numbers],
        series=None if groups.series is None else groups.series[numbers],
        lagged=None if groups.lagged is None else _table(lagged, len(spans), len(lags)),
        chosen=np.arange(len(context) + 1),
        notes=[],
    )
    return Copies(made, context, lag, None if at is None else int(groups.every.row[at]))


def _span(groups: Groups, number: int) -> np.ndarray:
    return np.arange(groups.offsets[number], groups.offsets[number + 1])


def _table(lagged: list[list[int]], groups: int, lags: int) -> np.ndarray:
    found = np.full((groups, lags), -1, np.int64)
    found[: len(lagged)] = np.array(lagged, np.int64).reshape(len(lagged), lags)
    return found


@final
@dataclass(frozen=True, eq=False)
class Answers:
    """What is said of the target in each of the copies. item: that which is one more."""

    fitted: Fitted
    parts: Sequence[Part]
    copies: Copies
    item: int | None
    of_items: bool

    @torch.no_grad()
    def told(self) -> dict[str, np.ndarray]:
        groups, found = self.copies.groups, dict[str, np.ndarray]()
        for batch, slots, number in self.batches(when=self.when()):
            for name, x in (self._items if self.of_items else self._values)(batch, slots).items():
                found.setdefault(name, np.zeros(len(groups)))[number] = x
        columns = dict[str, np.ndarray]()
        for name, x in found.items():
            columns[name] = x[0] - x[1:]
            if not name.endswith("_natural"):
                columns[f"{name}_without"] = x[1:]
        return columns

    @torch.no_grad()
    def attention(self) -> Any:
        """(context,), null where nothing attends."""
        terms = [getattr(model, "network", model) for model in models_of(self.parts)]
        networks = list(dict.fromkeys(term for term in terms if isinstance(term, Term)))
        if not networks or not len(self.copies.context):
            return [None] * len(self.copies.context)
        batch, slots, _ = next(iter(self.batches(self.copies.groups.subset(np.array([0])), self.when())))
        slot, n, total = int(slots[0, 0]), batch.length, np.zeros(batch.exists.shape[1])
        for term in networks:
            parameter = next(term.parameters())
            moved = batch.to(parameter.device, parameter.dtype)
            total += term.attention(moved)[0, :, :, slot].double().mean((0, 1)).cpu().numpy() / len(networks)
        there = batch.exists[0].numpy().copy()
        there[slot] = False
        current, earlier = total[:n][there[:n]], total[n:][there[n:]]
        return np.concatenate([current, earlier])

    def batches(self, groups: Groups | None = None, when: float | None = None, own: np.ndarray | None = None) -> Any:
        """Batch, the target's place (batch, 1), and the number of each copy. when, own: of a row that comes, its time
        and attributes."""
        groups, term, target = groups or self.copies.groups, self.parts[0].model, self.copies.target
        for chosen in groups.plan(batch_tokens(term)):
            batch, number = groups.batch(chosen, term.context, self.fitted.dtype), groups.pieces.group[chosen]
            if target is None:
                given: dict[str, Any] = {} if when is None else {"when": when}
                if batch.attributes is not None:
                    given["attributes"] = self._own() if own is None else torch.as_tensor(own)[None, None]
                slots = torch.full((len(number), 1), batch.length)
                yield batch.with_one_more(item=term.family.size, **given), slots, number
            else:
                assert batch.rows is not None
                yield batch, (batch.rows == target).int().argmax(1, keepdim=True), number

    def when(self) -> float | None:
        """The usual time after the group's last row, whichever row is left out."""
        groups, term = self.copies.groups, self.parts[0].model
        if self.copies.target is not None or groups.every.when is None:
            return None
        whole = groups.subset(np.array([0]))
        batch = whole.batch(np.array([0]), term.context, self.fitted.dtype)
        return float(torch.as_tensor(soon(self.parts, batch)).reshape(-1)[0])

    def _own(self) -> Tensor:
        """Attributes of the row that comes: those of the last row there is."""
        every = self.copies.groups.every.attributes
        assert every is not None
        return torch.as_tensor(every[int(self.copies.groups.offsets[1]) - 1])[None, None]

    def _values(self, batch: Batch, slots: Tensor) -> dict[str, np.ndarray]:
        family, names = self.parts[0].model.family, self.fitted.schema.roles.of("value")
        assert isinstance(family, Product)
        members = [part.outputs(batch, slots).double() for part in self.parts]
        shares = [self._at(share, slots) for share in mixture.shares(self.parts, batch)]
        item = None if batch.item is None else batch.item.gather(1, slots).numpy()
        mean = in_units(self.fitted, mixture.mean(family, members, shares).numpy(), item, spread=False)
        found = dict[str, np.ndarray]()
        for c, name in enumerate(names):
            natural = mixture.average((_natural(*family.column(f, c)) for f in members), shares)
            found |= {f"{name}_natural": natural[:, 0, 0].numpy(), f"{name}_mean": mean[:, 0, c]}
        return found

    def _items(self, batch: Batch, slots: Tensor) -> dict[str, np.ndarray]:
        name = self.fitted.vocabulary.columns[0]
        whole = torch.ones_like(slots, dtype=torch.bool)
        probability = torch.cat(list(mixture.items_at(self.parts, batch, slots, whole, name)))
        assert batch.item is not None
        mine = batch.item.gather(1, slots)[:, 0] if self.item is None else torch.full((len(slots),), self.item)
        if int(mine.max()) >= probability.shape[1]:
            raise DataError("The item of this row is not known to the model: nothing is said of it.", column=name)
        p = probability.gather(1, mine[:, None])[:, 0].double()
        if bool((p <= 0).any()):
            said = f"{self.fitted.vocabulary.words(int(mine[0]))} is in this group already, and none comes twice"
            raise DataError(f"{said}: there is nothing to explain.", column=name, option="item")
        p = p.clamp(1e-300, 1 - 1e-16)
        return {f"{name}_natural": (p.log() - (-p).log1p()).numpy(), f"{name}_probability": p.numpy()}

    def _at(self, share: mixture.Share, slots: Tensor) -> mixture.Share:
        return share.gather(1, slots[..., None]) if isinstance(share, Tensor) else share


def _natural(family: Any, f: Tensor) -> Tensor:
    """(..., 1): the first natural parameter, or the location."""
    exponential = isinstance(family, ExponentialFamily) and family.exponential
    return family.natural(f)[..., :1] if exponential else f[..., :1]


def _about(fitted: Fitted, groups: Groups, copies: Copies) -> dict[str, Any]:
    """What the rows of the context are."""
    every, context = groups.every, copies.context
    columns: dict[str, Any] = {"row": every.row[context]}
    if every.item is not None and fitted.schema.vocabulary is not None:
        vocabulary = fitted.schema.vocabulary
        known = every.item[context] < len(vocabulary)
        names = frames.item_columns(vocabulary, np.where(known, every.item[context], 0))
        columns |= frames.renamed({name: frames.nulls(x, known) for name, x in names.items()}, columns)
    return columns | ({} if groups.lagged is None else {"lag": copies.lag})
