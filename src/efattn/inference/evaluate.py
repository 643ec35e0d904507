"""How well a model predicts rows that it did not see, each from its context, never from itself.

items    the rank of the item that came among the whole catalogue, nothing sampled. At each length k of a list:
             recall   is it among the first k?  (the hit rate)         ndcg   1 / log2(1 + rank), 0 behind k
             mrr      1 / rank, 0 behind k                             mass   the probability of the k items together
             excess   recall - mass, 0 if probabilities can be trusted
             coverage the share of the catalogue that is on any list   novelty  mean of -log2 of an item's share of rows
values   log score; squared and absolute errors; how often intervals hold the value (`value_errors`)

An item that the model does not know counts as missed. Repeats, whose item is in their context too, and new items are
told apart.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any, NamedTuple, final

import numpy as np

from efattn.data import Groups, Table
from efattn.data.columns import flags, plain
from efattn.errors import DataError, named, option
from efattn.inference import frames
from efattn.inference.evaluation import Bin, Evaluation, Line, per_row
from efattn.inference.fitted import Fitted
from efattn.inference.ranking import Ranking, ranked, repeated
from efattn.inference.tables import Asked, Tell, announce, encoded
from efattn.inference.value_errors import value_errors

LENGTHS = (1, 5, 10, 20)
ROWS = ("auto", "target", "last", "all")
BINS = 10
Metric = tuple[str, str, float | None]  # of which column, what, k
Entries = dict[Metric, np.ndarray]


def evaluate(
    fitted: Fitted,
    tables: Iterable[Table],
    k: int | Sequence[int] = LENGTHS,
    *,
    rows: str = "auto",
    target: str | None = None,
    seen: bool | None = None,
    member: int | None = None,
    tell: Tell = announce,
) -> Evaluation:
    """k: lengths of lists. rows: which are predicted: "target", those that a column marks; "last" of each group; "all";
    "auto" for the first of these that suits: a model of items from the past predicts the last. target: that column, by
    default the model's. seen: whether items of a row's context are ranked too, by default if the model allows them."""
    question = _Question(fitted, _lengths(k), rows, target, seen, member)
    kinds, pieces = [fitted.frames], list[_Piece]()

    def noted() -> Iterator[Table]:
        for table in tables:
            kinds.append(table.kind)
            yield table

    for asked in encoded(fitted, noted(), tell, need=("value",) if "value" in fitted.terms else ()):
        pieces.append(question.answered(asked))
    whole = _joined(pieces)
    if not any(np.isfinite(one).any() for one in whole.entries.values()):
        raise DataError("No row of this table can be evaluated: none is asked for, or every one is missing.")
    return question.evaluation(whole, kinds[-1])


class _Piece(NamedTuple):
    """Of the predicted rows (row,): group (its number), weight, item (the unknown one where it is not known), again
    (whether it is a repeat), tied, entries by metric, NaN where there is none. lists (row, most): the most probable
    items, -1 for none. names: of the groups. counts (2, item): of rows that are context, and of all rows."""

    group: np.ndarray
    weight: np.ndarray
    item: np.ndarray
    again: np.ndarray
    tied: np.ndarray
    lists: np.ndarray
    entries: Entries
    names: Any
    counts: np.ndarray
    rows: str


@final
@dataclass(frozen=True)
class _Question:
    fitted: Fitted
    lengths: tuple[int, ...]
    rows: str
    target: str | None
    seen: bool | None
    member: int | None

    def __post_init__(self) -> None:
        if self.rows not in ROWS:
            known = ", ".join(ROWS)
            raise DataError(f"{named('rows')} is one of {known}; found {self.rows!r}.", option="rows")
        if self.target is not None and self.rows not in ("auto", "target"):
            said = f"{option('target')} says which rows are predicted: leave {named('rows')} out."
            raise DataError(said, option="rows")

    @property
    def ranks_seen(self) -> bool:
        return self.fitted.support != "distinct" if self.seen is None else bool(self.seen)

    @property
    def of_items(self) -> str:
        """The name of the item term; empty where no items are predicted."""
        return next((name for name in self.fitted.names if self.fitted.members[0][name].of_items), "")

    def answered(self, asked: Asked) -> _Piece:
        table, groups, fitted = asked.table, asked.groups, self.fitted
        every = groups.every
        chosen, rows = self._chosen(table, groups)
        if every.weight is not None:
            chosen &= every.weight > 0
        size = 0 if fitted.schema.vocabulary is None else len(fitted.vocabulary)
        item = np.full(len(chosen), size) if every.item is None else np.minimum(every.item, size).astype(np.int64)
        entries, lists, tied = Entries(), np.zeros((len(chosen), 0), np.int64), np.zeros(len(chosen), np.int64)
        if "item" in fitted.terms:
            named_ = ~_nulls(table, fitted.vocabulary.columns)[every.row]
            chosen &= named_ | ("value" in fitted.terms)
            parts, most = fitted.parts_of("item", "be evaluated", self.member), max(self.lengths)
            ranking = ranked(fitted, parts, groups, chosen & named_, most, seen=self.ranks_seen)
            entries |= self._item_entries(ranking, len(chosen))
            lists = _spread(ranking.at, ranking.items, len(chosen), -1)
            tied[ranking.at] = ranking.tied
        if "value" in fitted.terms:
            marked = replace(groups, every=replace(every, target=chosen))
            entries |= value_errors(fitted, marked, len(table), self.member)
        again = np.zeros(len(chosen), bool) if every.item is None else repeated(groups, fitted.context)
        counts = np.stack([np.bincount(item[mine], minlength=size + 1)[:size] for mine in (~chosen, slice(None))])
        weight = np.ones(len(chosen)) if every.weight is None else every.weight
        return _Piece(
            groups.group[chosen],
            weight[chosen],
            item[chosen],
            again[chosen],
            tied[chosen],
            lists[chosen],
            {metric: x[chosen] for metric, x in entries.items()},
            frames.name_columns(groups.labels, groups.columns) if groups.columns else {},
            counts,
            rows,
        )

    def _chosen(self, table: Table, groups: Groups) -> tuple[np.ndarray, str]:
        """(row,), in the order of the groups: which are predicted; and by which rule."""
        marked, fitted, rows = groups.every.target, self.fitted, self.rows
        if self.target is not None:
            column = table.column(self.target, "target")
            marked = flags(column, "target", groups.notes, first=table.first_row)[groups.every.row]
        if rows == "auto":
            rows = "last" if fitted.context == "past" and "item" in fitted.terms else "all"
            rows = rows if marked is None else "target"
        if rows == "target" and marked is None:
            said = f"{option('rows', 'target')} needs a column that marks them: name it in {option('target')}."
            raise DataError(said, option="target")
        if rows == "target":
            return np.array(marked, bool), rows
        chosen = np.full(len(groups.every.row), rows == "all")
        if rows == "last":
            chosen[groups.offsets[1:][np.diff(groups.offsets) > 0] - 1] = True
        return chosen, rows

    def _item_entries(self, ranking: Ranking, rows: int) -> Entries:
        """(row,) of all rows, NaN where nothing was asked."""
        of, rank = self.of_items, np.where(ranking.rank > 0, ranking.rank, np.inf)
        entries: Entries = {(of, "log_score", None): ranking.log_prob, (of, "mrr", None): 1 / rank}
        mass = np.cumsum(ranking.probability, 1)
        for k in self.lengths:
            hit, at = rank <= k, min(k, mass.shape[1]) - 1
            entries |= {(of, "recall", k): hit.astype(float), (of, "ndcg", k): hit / np.log2(1 + rank)}
            entries |= {(of, "mrr", k): hit / rank, (of, "mass", k): mass[:, at], (of, "excess", k): hit - mass[:, at]}
        return {metric: _spread(ranking.at, x, rows, np.nan) for metric, x in entries.items()}

    def evaluation(self, whole: _Piece, kind: str) -> Evaluation:
        lines, bins = list[Line](), list[Bin]()
        about: dict[str, Any] = {"predicted": len(whole.weight), "groups": int(whole.group.max()) + 1}
        about["rows"] = whole.rows
        if self.of_items:
            size = len(self.fitted.vocabulary)
            asked = ~np.isnan(whole.entries[self.of_items, "mrr", None])
            known = asked & (whole.item < size)
            about |= {"items": size, "seen": self.ranks_seen, "unknown": int((asked & ~known).sum())}
            about |= {"ties": int((whole.tied[asked] > 0).sum()), "repeats": int((whole.again & known).sum())}
            whole = whole._replace(entries=whole.entries | self._novelty(whole))
            bins = _bins(self.of_items, whole, self.lengths)
        pits = {of: whole.entries.pop((of, what, k)) for of, what, k in list(whole.entries) if what == "pit"}
        for metric, x in whole.entries.items():
            lines.append(_line(metric, "all", x, whole))
        if self.of_items:
            lines += [self._coverage(whole, k) for k in self.lengths]
            for part, mine in (("repeat", whole.again & known), ("new", ~whole.again & known)):
                lines += [
                    _line(metric, part, np.where(mine, x, np.nan), whole)
                    for metric, x in whole.entries.items()
                    if metric[0] == self.of_items and mine.any() and metric[1] != "novelty"
                ]
        by_item = None if self.fitted.schema.vocabulary is None else self._by_item(whole)
        return Evaluation(about, lines, bins, self._by_group(whole), by_item, kind, pits)

    def _novelty(self, whole: _Piece) -> Entries:
        """Of the listed items -log2 of their share of the rows that are context, or of all where there is none."""
        count = whole.counts[0] if whole.counts[0].sum() else whole.counts[1]
        told = np.append(-np.log2((count + 0.5) / (count + 0.5).sum()), 0.0)  # the last: nothing listed
        listed, info = whole.lists >= 0, told[whole.lists]
        means = Entries()
        with np.errstate(invalid="ignore"):
            for k in self.lengths:
                means[self.of_items, "novelty", k] = info[:, :k].sum(1) / listed[:, :k].sum(1)
        return means

    def _coverage(self, whole: _Piece, k: int) -> Line:
        listed = np.unique(whole.lists[:, :k])
        share = float((listed >= 0).sum()) / len(self.fitted.vocabulary)
        return Line(self.of_items, "all", "coverage", k, share, None, len(whole.weight))

    def _by_group(self, whole: _Piece) -> Any:
        import polars as pl

        count = int(whole.group.max(initial=-1)) + 1
        return pl.DataFrame(whole.names | frames.renamed(self._means(whole, whole.group, count), whole.names))

    def _by_item(self, whole: _Piece) -> Any:
        import polars as pl

        known = whole.item < len(self.fitted.vocabulary)
        numbers, at = np.unique(whole.item[known], return_inverse=True)
        names = frames.item_columns(self.fitted.vocabulary, numbers)
        mine = whole._replace(
            weight=whole.weight[known], entries={metric: x[known] for metric, x in whole.entries.items()}
        )
        return pl.DataFrame(names | frames.renamed(self._means(mine, at, len(numbers)), names))

    def _means(self, whole: _Piece, at: np.ndarray, count: int) -> dict[str, Any]:
        """Of each metric over the rows of one kind, at: (row,), which; null where there are none."""
        columns: dict[str, Any] = {"predicted": np.bincount(at, minlength=count)}
        for (of, what, k), x in whole.entries.items():
            sums, weight = _sums(x, whole.weight, at, count)
            name = what if of == self.of_items else f"{of}_{what}"
            with np.errstate(invalid="ignore", divide="ignore"):
                columns[name if k is None else f"{name}@{k:g}"] = frames.nulls(sums / weight, weight > 0)
        return columns


def _joined(pieces: Sequence[_Piece]) -> _Piece:
    """One after the other; the groups that have predicted rows are numbered."""
    import polars as pl

    firsts = np.cumsum([0, *(max((len(x) for x in piece.names.values()), default=1) for piece in pieces)])
    columns = {
        name: np.concatenate([getattr(piece, name) for piece in pieces])
        for name in ("weight", "item", "again", "tied", "lists")
    }
    group = np.concatenate([piece.group + first for piece, first in zip(pieces, firsts, strict=False)])
    entries = {metric: np.concatenate([piece.entries[metric] for piece in pieces]) for metric in pieces[0].entries}
    numbers, group = np.unique(group, return_inverse=True)
    names = {name: pl.concat([piece.names[name] for piece in pieces]).gather(numbers) for name in pieces[0].names}
    counts: np.ndarray = np.sum([piece.counts for piece in pieces], 0)
    return _Piece(group=group, entries=entries, names=names, counts=counts, rows=pieces[0].rows, **columns)


def _line(metric: Metric, part: str, x: np.ndarray, whole: _Piece) -> Line:
    mean, error = per_row(*_sums(x, whole.weight, whole.group))
    return Line(metric[0], part, metric[1], metric[2], mean, error, int((~np.isnan(x)).sum()))


def _sums(x: np.ndarray, weight: np.ndarray, at: np.ndarray, count: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """By kind of row: the weighted sum of what is no NaN, and its weight."""
    there = ~np.isnan(x)
    sums = np.bincount(at[there], weight[there] * x[there], count)
    return sums, np.bincount(at[there], weight[there], count)


def _bins(of: str, whole: _Piece, lengths: Sequence[int]) -> list[Bin]:
    """Rows in up to ten parts of equal size, by the mass of their lists; rows of equal mass stay together."""
    found = []
    for k in lengths:
        mass, hits = whole.entries[of, "mass", k], whole.entries[of, "recall", k]
        there = np.flatnonzero(~np.isnan(mass))
        edges = np.unique(np.quantile(mass[there], np.arange(1, BINS) / BINS)) if len(there) else np.zeros(0)
        number = np.searchsorted(edges, mass[there], "right")
        for one in np.unique(number):
            mine = there[number == one]
            group, weight = whole.group[mine], whole.weight[mine]
            share, error = per_row(*_sums(hits[mine], weight, group))
            middle, _ = per_row(*_sums(mass[mine], weight, group))
            found.append(Bin(k, len(mine), float(middle or 0.0), float(share or 0.0), error))
    return found


def _spread(at: np.ndarray, x: np.ndarray, rows: int, fill: float) -> np.ndarray:
    """x of some rows among all rows."""
    out = np.full((rows, *x.shape[1:]), fill, x.dtype)
    out[at] = x
    return out


def _nulls(table: Table, columns: Sequence[str]) -> np.ndarray:
    """(row,): where any key of the item is null."""
    found = np.zeros(len(table), bool)
    for column in table.columns(columns, "item"):
        found |= plain(column).is_null().to_numpy()
    return found


def _lengths(k: Any) -> tuple[int, ...]:
    several = (
        (k,) if isinstance(k, Integral) else tuple(k) if isinstance(k, Iterable) and not isinstance(k, str) else ()
    )
    if not several or not all(isinstance(x, Integral) and not isinstance(x, bool) and int(x) >= 1 for x in several):
        said = f"{named('k')} is the length of a list, a whole number >= 1, or several; found {k!r}."
        raise DataError(said, option="k")
    return tuple(sorted({int(x) for x in several}))
