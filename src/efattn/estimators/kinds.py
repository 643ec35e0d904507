"""Of which kind values are, those of a whole column or of each item's own, and which families may be theirs.

    yes or no     only 0 and 1
    levels        a few whole numbers from 0 or 1 on that no law of counts describes
    counts        whole numbers >= 0 that a law of counts describes better than a rounded normal one
    measures      anything else: real, positive or whole numbers

Items of one kind have one family between them. Where kinds differ, each has its own (`PerItem`), but for items that are
of another kind by chance alone: a count that was never more than 1 is a count among counts.
"""

from collections.abc import Iterator
from typing import Literal, NamedTuple

import numpy as np
import torch

from efattn import families
from efattn.families import Bernoulli, Family, NegativeBinomial, Ordinal, PerItem, Poisson
from efattn.families.evidence import (
    OVERDISPERSED,
    are_whole,
    counts_are_better,
    counts_suffice,
    dispersion_of_counts,
    normal_is_better,
)

KindName = Literal["yes or no", "levels", "counts", "measures"]
MOST_ITEMS, ROWS = 50, 20  # items that may have families of their own, and values of one to know its kind by
NEAR = 0.25  # of its median: an item that comes so near to 0 may be 0, where others are
SURE = 100  # values that are 0 or 1, after which it is not by chance among levels from 0 on
ENOUGH, MOST = 8, 200  # values of an item, and items, to look at
LONG = 20_000  # values of an item: more say no more
SKEWED = ("gamma", "log_normal")


class Fit(NamedTuple):
    """A family by its name, the log-likelihood of all values under each item's own fit, and of how many items."""

    name: str
    items: int


def kind_of(y: np.ndarray) -> KindName | None:
    """None where all are the same."""
    if not len(y) or y.min() == y.max():
        return None
    if are_whole(y) and y.min() >= 0 and y.max() <= 1:
        return "yes or no"
    if Ordinal.applicable(y) is not None:
        return "levels"
    return "measures" if dispersion_of_counts(y) is None else "counts"


def mixed(y: np.ndarray, item: np.ndarray, items: int) -> PerItem | None:
    """A family per item where items differ in kind; None where they do not, are too many or have too few values."""
    if not 2 <= items <= MOST_ITEMS:
        return None
    values = dict(by_item(y, item, items))
    kinds = {number: kind_of(one) for number, one in values.items() if len(one) >= ROWS}
    if 2 * len(kinds) < items:
        return None
    kinds = _alike(kinds, values, kind_of(y[:: -(-len(y) // LONG)]))
    if len({kind for kind in kinds.values() if kind is not None}) < 2:
        return None
    return _per_item(kinds, values, items)


def each(y: np.ndarray, item: np.ndarray, items: int) -> PerItem:
    """A family per item, asked for."""
    values = dict(by_item(y, item, items))
    return _per_item({number: kind_of(one) for number, one in values.items()}, values, items)


def _alike(
    kinds: dict[int, KindName | None], values: dict[int, np.ndarray], whole: KindName | None
) -> dict[int, KindName | None]:
    """What is of another kind by chance alone is of that of the others. whole: of which kind all values are."""
    there, made = set(kinds.values()), dict(kinds)
    for number, kind in kinds.items():
        y = values[number]
        few = kind in ("yes or no", "levels") and "counts" in there and whole != "levels"
        if few and counts_suffice(y, least=1, spare=0):
            made[number] = "counts"
        elif kind == "yes or no" and "levels" in there and len(y) < SURE:
            made[number] = "levels"
        elif kind == "levels" and "measures" in there and not 0 <= y.min() <= 1:
            made[number] = "measures"
        elif kind == "counts" and whole == "levels":
            made[number] = "levels"
        elif kind == "counts" and "measures" in there and y.mean() > 3 * y.std() and not counts_are_better(y):
            made[number] = "measures"
        elif kind == "measures" and whole == "counts" and not normal_is_better([y]):
            made[number] = "counts"  # which happened not to come near 0
    return made


def _per_item(kinds: dict[int, KindName | None], values: dict[int, np.ndarray], items: int) -> PerItem:
    """The parts in the order of their first item; measures are normal, or skewed each in its own way."""
    parts, numbers = list[Family](), list[int]()
    for number in range(items):
        y, kind = values.get(number, np.zeros(0)), kinds.get(number)
        family = _of_kind(kind, y, kinds, values) if kind is not None else None
        if family is None:  # nothing is known: as one of those it could be
            known = (_of_kind(other, values[n], kinds, values) for n, other in kinds.items() if other is not None)
            could = [one for one in known if one.support.contains(y).all()]
            family = max(could, key=could.count) if could else families.Gaussian()
        if family not in parts:
            parts.append(family)
        numbers.append(parts.index(family))
    return PerItem(tuple(parts), tuple(numbers))


def _of_kind(kind: KindName, y: np.ndarray, kinds: dict[int, KindName | None], values: dict[int, np.ndarray]) -> Family:
    """Levels have one scale, counts one law."""
    if kind == "yes or no":
        return Bernoulli()
    if kind == "measures":
        name = best_measure(y, np.zeros(len(y), np.int64), 1).name
        none = any(not one.all() for one in values.values())  # 0 is a value of this column
        if name in SKEWED and none and y.min() < NEAR * np.median(y):
            return families.Gaussian()
        return families.named(name)
    mine = [values[number] for number, other in kinds.items() if other == kind]
    if kind == "levels":
        return Ordinal(**Ordinal.sized(np.concatenate(mine), 1))
    ratios = [one.var() / one.mean() for one in mine if one.mean() > 0]
    return NegativeBinomial() if max(ratios, default=1.0) > OVERDISPERSED else Poisson()


def rounded(y: np.ndarray, item: np.ndarray, items: int) -> bool:
    """Whether whole numbers that look like counts are, within the items, better described by a rounded normal law."""
    several = [one for _, one in by_item(y, item, items, MOST) if len(one) >= ENOUGH]
    return len(several) > 1 and normal_is_better(several)


def best_measure(y: np.ndarray, item: np.ndarray, items: int) -> Fit:
    """Of positive numbers: gaussian, gamma or log_normal, whichever describes each item's own best. Items of different
    sizes make any column look skewed."""
    if not len(y) or not families.Gamma.support.contains(y).all() or y.min() == y.max():
        return Fit("gaussian", 1)
    several = [one for _, one in by_item(y, item, items, MOST) if len(one) >= ENOUGH] or [y[:: -(-len(y) // LONG)]]
    scores = dict.fromkeys(("gaussian", *SKEWED), 0.0)
    for mine in several:
        values = torch.as_tensor(mine)
        for name in scores:
            family = families.named(name)
            scores[name] += float(family.log_prob(family.start(values).expand(len(mine), -1), values).sum())
    best = "gaussian"
    for name in SKEWED:
        best = name if scores[name] > scores[best] + 1 else best
    return Fit(best, len(several))


def by_item(y: np.ndarray, item: np.ndarray, items: int, most: int | None = None) -> Iterator[tuple[int, np.ndarray]]:
    """The values of each item, thinned where they are many; most: of how many items."""
    order = np.argsort(item, kind="stable")
    ends = np.searchsorted(item[order], np.arange(items + 1))
    for number in range(items if most is None else min(items, most)):
        mine = y[order[ends[number] : ends[number + 1]]]
        if len(mine):
            yield number, mine[:: -(-len(mine) // LONG)]
