"""What a row whose item is the target may show of itself: the attributes that do not give the item away.

    shown     the same throughout each group (or time) that has several items: whatever the row's item is, it is known
    shown     varies within them, and the item explains at most a quarter of it: the prices of a day, the weather
    hidden    the rest: what an item is, costs or weighs; a second name of it; what tells it with other columns, as the
              price of a whole basket does beside the prices of the others

Rows of the context show everything, since their items are seen as well. Three measures, each 0 where attribute and item
have nothing to do with each other and 1 where one tells the other:

    share       of an attribute's variance (its ranks, or levels) that the item explains, less what chance gives
    likeness    how much oftener the row of another group that is nearest by these columns has the same item
    equality    the share, of whether two columns are equal: the price paid is the price of what was bought

Where items never come twice nothing can be measured, and all is hidden that is not the group's. What is hidden by
mistake costs information; what is shown by mistake makes every score a lie. So doubts hide.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import final

import numpy as np

from efattn.data.groups import Groups
from efattn.errors import Note, option

MOST_SHARE = 0.25  # of an attribute's variance: a normal one then tells at most 0.14 nats of the item
MOST_ALIKE, MOST_TOGETHER = 0.5, 0.75  # likeness by one column, by several
MOSTLY = 0.9  # of the groups, in which a column is the sum of another
SURE = 0.01  # the chance that a column is the same throughout groups for no reason
ROWS, ASKING, EACH = 1500, 300, 20  # rows that likeness is measured on, those that ask, rows of one item
PAIRS = 15  # columns up to which all pairs are looked at
EQUAL = 20_000  # rows, about, that are looked at for two columns that are equal
NAMED = 8  # columns that a note names


@final
@dataclass(frozen=True)
class Column:
    """One of the table: a single column of numbers as ranks from 0 to 1, or one of 0 and 1 for each level."""

    name: str
    entries: np.ndarray

    def codes(self) -> np.ndarray:
        """Equal where the column is."""
        if self.entries.shape[1] == 1:
            return np.unique(self.entries[:, 0], return_inverse=True)[1]
        return np.where(self.entries.any(1), self.entries.argmax(1), -1)

    def apart(self, some: np.ndarray, others: np.ndarray) -> np.ndarray:
        """(some, others), from 0 to 1."""
        if self.entries.shape[1] == 1:
            return np.abs(self.entries[some] - self.entries[others].T).astype(np.float32)
        code = self.codes()
        return (code[some][:, None] != code[others]).astype(np.float32)


def decide(groups: Groups, columns: Sequence[str], asked: str) -> tuple[tuple[bool, ...], Note | None]:
    """By column of a batch's attributes, whether a target shows it; and that in words. columns: the table's column that
    each belongs to; asked: "auto", "known" or "hidden"."""
    attributes, item = groups.attributes, groups.item
    if asked != "auto" or attributes is None or item is None or groups.vocabulary is None:
        return (asked == "known",) * len(columns), None
    known = item < groups.vocabulary.unknown
    names = list(dict.fromkeys(columns))
    raw = {name: attributes[known][:, [c == name for c in columns]] for name in names}
    table = {name: Column(name, _ranks(x[:, 0])[:, None] if x.shape[1] == 1 else x) for name, x in raw.items()}
    item, group = item[known], groups.group[known]
    keys = [group] if groups.when is None else [group, np.unique(groups.when[known], return_inverse=True)[1]]
    within = [Within.of(key, item) for key in keys]
    settled = [name for name in names if any(one.same_throughout(table[name].codes()) for one in within)]
    totals = _totals(raw, settled, group)
    settled = [name for name in settled if name not in totals]
    free = _harmless({n: x for n, x in table.items() if n not in totals}, raw, settled, item, group)
    return tuple(name in settled or name in free for name in columns), _words(names, settled, free)


def _ranks(x: np.ndarray) -> np.ndarray:
    """From 0 to 1, equal ones their mean."""
    _, where, count = np.unique(x, return_inverse=True, return_counts=True)
    last = np.cumsum(count)
    return ((last - (count - 1) / 2) / max(len(x), 1))[where.reshape(-1)]


@final
@dataclass(frozen=True)
class Within:
    """Rows sorted by a key and, within it, by item. alike: whether a row has its key from the row before, and that key
    has several items; pairs: how many of them differ in their item."""

    by: np.ndarray
    alike: np.ndarray
    pairs: int

    @classmethod
    def of(cls, key: np.ndarray, item: np.ndarray) -> "Within":
        by = np.lexsort((item, key))
        key, item = key[by], item[by]
        follows = key[1:] == key[:-1]
        differ = follows & (item[1:] != item[:-1])
        return cls(by, follows & np.isin(key[1:], key[1:][differ]), int(differ.sum()))

    def same_throughout(self, code: np.ndarray) -> bool:
        """Whether a column is constant within each group (or time) of several items, and that is no accident."""
        mine = code[self.by]
        if not self.pairs or (self.alike & (mine[1:] != mine[:-1])).any():
            return False
        share = np.unique(code, return_counts=True)[1] / len(code)
        return float((share**2).sum()) ** self.pairs < SURE or len(share) == 1


def _totals(raw: Mapping[str, np.ndarray], settled: Sequence[str], group: np.ndarray) -> set[str]:
    """Columns of groups that are sums or means of a column of rows: with the rest of the group they tell the row's."""
    _, first, where, count = np.unique(group, return_index=True, return_inverse=True, return_counts=True)
    several, found = count > 1, set[str]()
    for name, rows in raw.items():
        if name in settled or rows.shape[1] > 1:
            continue
        total = np.bincount(where, rows[:, 0])
        for whole in settled:
            if raw[whole].shape[1] == 1 and several.any():
                told = raw[whole][first, 0]
                same = [np.isclose(told, made, rtol=1e-6, atol=0)[several].mean() for made in (total, total / count)]
                found |= {whole} if max(same) > MOSTLY else set()
    return found


def _harmless(
    table: Mapping[str, Column],
    raw: Mapping[str, np.ndarray],
    settled: Sequence[str],
    item: np.ndarray,
    group: np.ndarray,
) -> list[str]:
    """Of the columns that are not the groups', those that may be shown beside these."""
    again = np.bincount(item)[item] > 1
    free = [name for name in table if name not in settled]
    if again.sum() < 3 or not free:
        return []
    free = [name for name in free if share(table[name].entries[again], item[again]) <= MOST_SHARE]
    near = Nearest(table, item, group)
    free = [name for name in free if near.likeness([name]) <= MOST_ALIKE]
    free = _without_equals(raw, settled, free, item, again)
    alike = {name: near.likeness([name]) for name in free}
    both = (*settled, *free)
    for a, b in combinations(both, 2) if len(both) <= PAIRS else ():
        if (a in free or b in free) and not {a, b} - {*settled, *free} and near.likeness([a, b]) > MOST_TOGETHER:
            free.remove(max({a, b} & set(free), key=lambda name: alike[name]))
    while free and near.likeness([*settled, *free]) > MOST_TOGETHER:
        free.remove(max(free, key=lambda name: alike[name]))
    return free


def share(entries: np.ndarray, item: np.ndarray) -> float:
    """How much of the variance of (row, column) the item explains, less what chance gives and plus twice what that
    varies by: an upper bound, so that small tables do not decide by luck."""
    _, where = np.unique(item, return_inverse=True)
    count = np.bincount(where)
    rows, kinds = len(where), len(count)
    if rows <= kinds:
        return 1.0
    x = entries - entries.mean(0)
    total = float((x**2).sum())
    if total <= 1e-12 * rows:
        return 0.0
    within = total - sum(float((np.bincount(where, c) ** 2 / count).sum()) for c in x.T)
    explained = 1 - (within / (rows - kinds)) / (total / (rows - 1))
    return explained + 2 * np.sqrt(2 * max(kinds - 1, 1)) / (rows - kinds)


def _without_equals(
    raw: Mapping[str, np.ndarray], settled: Sequence[str], free: list[str], item: np.ndarray, again: np.ndarray
) -> list[str]:
    """Without those that are now one, now another column, as the item has it."""
    free, numbers = list(free), [name for name in (*settled, *free) if raw[name].shape[1] == 1]
    some = np.flatnonzero(again)
    some = some[:: max(1, len(some) // EQUAL)]

    def told_by(a: str, b: str) -> float:
        return share((raw[a][some] == raw[b][some]).astype(float), item[some])

    pairs = [(a, b) for a, b in combinations(numbers, 2) if a in free or b in free]
    told = [{a, b} for a, b in pairs if told_by(a, b) > MOST_SHARE]
    while told:
        often = {name: sum(name in pair for pair in told) for name in free}
        worst = [name for name in free if often[name] == max(often.values())]
        free = [name for name in free if name not in worst]
        told = [pair for pair in told if not pair & set(worst)]
    return free


@final
class Nearest:
    """Rows of some items, and for each of some of them how far it is from all others by each column."""

    def __init__(self, table: Mapping[str, Column], item: np.ndarray, group: np.ndarray) -> None:
        rows = _some_rows(item)
        asking = np.random.default_rng(1).permutation(len(rows))[:ASKING]
        same = item[rows][asking][:, None] == item[rows]
        other = group[rows][asking][:, None] != group[rows]
        if not (same & other).any():  # items that stay within one group, or one group only
            other = asking[:, None] != np.arange(len(rows))
        asks = (same & other).any(1)
        self.asking, self.same, self.other = rows[asking[asks]], same[asks], other[asks]
        self.far = {name: column.apart(self.asking, rows) for name, column in table.items()}
        self.chance = float((self.same & self.other).sum()) / max(float(self.other.sum()), 1.0)

    def likeness(self, names: Sequence[str]) -> float:
        if not len(self.asking):
            return 1.0
        far = np.where(self.other, sum(self.far[name] for name in names), np.float32(np.inf))
        nearest = far <= far.min(1, keepdims=True) + 1e-6
        hit = float(((self.same & nearest).sum(1) / nearest.sum(1)).mean())
        return (hit - self.chance) / max(1 - self.chance, 1e-12)


def _some_rows(item: np.ndarray) -> np.ndarray:
    """At most so many rows, of whole items where these are many: others of the same item are there to be found."""
    random = np.random.default_rng(0)
    by = random.permutation(len(item))
    kind = item[by]
    first = np.argsort(kind, kind="stable")
    start = np.searchsorted(kind[first], kind[first])
    rank = np.empty(len(kind), np.int64)
    rank[first] = np.arange(len(kind)) - start  # how many of its item come before it
    counts = np.bincount(item)
    each = max(EACH, ROWS // max(int((counts > 0).sum()), 1))
    wanted = random.permutation(len(counts))
    sizes = np.where(counts[wanted] > 1, np.minimum(counts[wanted], each), 0)
    chosen = np.zeros(len(counts), bool)
    chosen[wanted[(np.cumsum(sizes) <= ROWS) | (np.cumsum(sizes) == sizes)]] = True
    return by[chosen[kind] & (rank < each)][:ROWS]


def _words(names: Sequence[str], settled: Sequence[str], free: Sequence[str]) -> Note:
    parts = []
    hidden = [name for name in names if name not in settled and name not in free]
    if settled:
        parts.append(f"{_list(settled)} (the same throughout each group)")
    if free:
        parts.append(f"{_list(free)} (the item explains little of it)")
    said = f"A row whose item is predicted shows of its own attributes {' and '.join(parts) if parts else 'none'}"
    if hidden:
        said += f"; hidden, as the item may be told from it: {_list(hidden)}"
    ways = f"{option('own_attributes', 'known')} shows all, {option('own_attributes', 'hidden')} none"
    return Note("own attributes", f"{said}. Rows of its context show all. {ways}.", option="own_attributes")


def _list(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(map(repr, names[:NAMED])) + more
