"""Which family each value column gets.

    family="auto"   each family says whether a column looks like its own; of those that do, the first in this order:
      items that differ in kind                     per_item, a family for each kind
      only 0 and 1                                  bernoulli
      whole numbers, at most 11 levels, range <= 10 ordinal, unless they start at 0 and a law of counts does as well
      whole numbers >= 0 that are counts            poisson, or negative_binomial where the variance exceeds 1.5 means;
                                                    no counts: what a normal curve fits better, or never near 0
      numbers strictly between 0 and 1              beta
      numbers > 0, not whole and near 0             gaussian, gamma or log_normal, whichever describes items better
      numbers >= 0, more than 5 % of them exactly 0 zero_or(gamma)
      anything else                                 gaussian

Where several are plausible they are rivals, and groups that are left out decide (deciding.py): heavier tails of real
numbers and of shares, and zeros of their own among counts, only ever by them. Or a name, a family, one of them per
column as a list, or a mapping from a column (a tuple of columns) to one.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch

from efattn import families
from efattn.errors import DataError, Note, option
from efattn.estimators import kinds
from efattn.families import Family, PerItem, Product
from efattn.families.evidence import FAR, OVERDISPERSED, are_whole

Spec = str | Family
# what positive numbers may be, the simplest first
POSITIVE = ("gaussian", "gamma", "log_normal", "weibull", "student_t")
REAL, COUNTS = ("gaussian", "student_t", "johnson"), ("poisson", "negative_binomial")
SHARES = ("beta", "gaussian", "student_t")  # what numbers between 0 and 1 may be, whose tails may be heavier
DEGREES = 5.0  # of freedom, with which heavy tails are a rival; how heavy is asked once they are chosen
SHOWN = 4  # items by name
OFTEN, MOST_TRIALS = 0.01, 100_000  # successes per trial, for counts to be of trials; of fewer a rate says the same
NEAR = 5  # a whole number, below which there is not far to 0
ZEROS = 0.05  # the share of zeros among numbers >= 0, from which on they may be of their own
AMOUNTS = (families.ZeroOr(), families.ZeroOr(families.LogNormal()), families.ZeroOr(families.Weibull()))
INFLATED = (families.ZeroInflated(families.Poisson()), families.ZeroInflated())
WITHOUT_ZEROS = (families.Hurdle(families.Poisson()), families.Hurdle())


class Choice(NamedTuple):
    """The family of some columns (of one, mostly), and what their values are: None where it was asked for; looks: of
    what shape these were, on which the choice rests; rivals: what else it could be, the simplest first, itself among
    them; none where nothing is open."""

    family: Family
    columns: tuple[str, ...]
    values: str | None = None
    looks: str = ""
    rivals: tuple[Family, ...] = ()

    @property
    def why(self) -> str | None:
        return f"{self.values}, {self.looks}" if self.looks else self.values


class Items(NamedTuple):
    """How many there are, and the name of each by its number."""

    number: int
    name: Callable[[int], Any] = str


class Choices(NamedTuple):
    """The family of all value columns, and how each part was chosen."""

    family: Product
    parts: tuple[Choice, ...]

    @classmethod
    def of(cls, parts: Sequence[Choice]) -> "Choices":
        return cls(Product(tuple(part.family for part in parts)), tuple(parts))

    @property
    def notes(self) -> list[Note]:
        """What was chosen without being asked for."""
        told = [part for part in self.parts if part.why is not None]
        return [
            Note("family", f"Family of {part.columns[0]!r}: {part.family.brief} ({part.why}).", part.columns[0])
            for part in told
        ]


def ordered(spec: Any, named: Any) -> tuple[str, ...]:
    """The value columns, one, several or none, in the order of a mapping's keys, so that those of one family stand side
    by side."""
    one = isinstance(named, str) or not isinstance(named, Iterable)
    columns = () if named is None else (named,) if one else tuple(named)
    if not isinstance(spec, Mapping):
        return columns
    return tuple(name for names, _ in _from_mapping(spec, columns) for name in names)


def choose(
    values: np.ndarray,
    columns: Sequence[str],
    spec: Any,
    item: np.ndarray | None = None,
    items: Items | None = None,
    exposure: np.ndarray | None = None,
) -> Choices:
    """values (row, column), NaN where missing; item (row,): the number of each row's, where there are items; items: how
    many, and their names; exposure (row,), where there is one, which counts have."""
    items = Items(0 if item is None else int(item.max(initial=-1)) + 1) if items is None else items
    choices = []
    for several, one in _pairs(spec, columns):
        y = values[:, [list(columns).index(name) for name in several]]
        if one == "auto" or (isinstance(one, str) and families.kind(one) is PerItem):
            choice = automatic(y[:, 0], several[0], item, items, exposure, each=one != "auto")
        else:
            choice = Choice(_asked(one, y, several), several)
        _check_kinds(choice, several, item, items.number)
        if choice.family.columns != len(several):
            raise DataError(
                f"{choice.family!r} is a family of one column, and {several!r} are {len(several)}. Give each its own, "
                f"or pass {option('family', 'multivariate_gaussian')}.",
                column=several[0],
                option="family",
            )
        choices.append(choice)
    return Choices.of(choices)


def automatic(
    y: np.ndarray,
    column: str = "value",
    item: np.ndarray | None = None,
    items: Items | None = None,
    exposure: np.ndarray | None = None,
    each: bool = False,
) -> Choice:
    """The family of one column and the rule that chose it. each: of each item, whether or not they differ in kind."""
    there = np.isfinite(y)
    seen = y[there]
    mine = np.zeros(len(seen), np.int64) if item is None else item[there]
    items = Items(int(mine.max(initial=0)) + 1) if items is None or item is None else items
    if each and item is not None:
        family = kinds.each(seen, mine, items.number)
        return Choice(family, (column,), f"asked for each item: {_parts(family, items)}")
    if exposure is not None and are_whole(seen) and seen.min() >= 0:
        return _exposed(seen, exposure[there], column)
    known = [kind for kind in families.known() if kind.of_values and not kind.several_columns]
    claims = [(claim, kind) for kind in known if (claim := kind.applicable(seen)) is not None]
    claim, kind = min(claims, key=lambda one: one[0].rank)
    mix = kinds.mixed(seen, mine, items.number) if kind in families.FAMILIES and item is not None else None
    if mix is not None:
        return Choice(mix, (column,), f"items differ in kind: {_parts(mix, items)}")
    if kind.name in COUNTS and not kinds.rounded(seen, mine, items.number):
        return _counted(seen, column, claim)
    if kind.name in (*POSITIVE, *COUNTS):
        return _measured(seen, mine, items.number, column)
    rivals = _sized(SHARES, seen) if kind.name == SHARES[0] else ()
    return Choice(kind(**kind.sized(seen, 1)), (column,), claim.why, claim.looks, rivals)


def _counted(y: np.ndarray, column: str, claim: families.Claim, far: bool = True) -> Choice:
    """Poisson or negative binomial, by the variance, until groups that are left out decide; far: or normal, where all
    lie far from 0."""
    even = not y.size or y.var() <= OVERDISPERSED * y.mean()
    family = families.Poisson() if even else families.NegativeBinomial()
    rivals: tuple[Family, ...] = (families.Poisson(), families.NegativeBinomial())
    if far and y.size and y.min() > 0 and y.mean() > FAR:  # so far from 0 a density at whole numbers is a probability
        rivals = (families.Gaussian(), *rivals)
    if y.size and y.min() < y.max():
        rivals = (*rivals, *_with_own_zeros(y))
    return Choice(family, (column,), claim.why, claim.looks, rivals if y.size and y.min() < y.max() else ())


def _exposed(y: np.ndarray, exposure: np.ndarray, column: str) -> Choice:
    """Counts with an exposure; or, where that is whole and never exceeded, successes of so many trials."""
    counted = _counted(y, column, families.Claim(0, "counts with an exposure"), far=False)
    trials = are_whole(exposure) and bool((y <= exposure).all()) and y.sum() > OFTEN * exposure.sum()
    if not counted.rivals or not trials or exposure.max() > MOST_TRIALS:
        return counted
    return counted._replace(rivals=(*counted.rivals[:2], families.Successes(), *counted.rivals[2:]))


def _with_own_zeros(y: np.ndarray) -> list[Family]:
    """Laws of counts with zeros of their own that describe a column better than without, by Schwarz's criterion. Of a
    column that has no zero, though a law of counts would expect some, those with fewer."""
    counts, times = np.unique(y, return_counts=True)
    values, weight = torch.as_tensor(counts), torch.as_tensor(times)

    def criterion(family: Family) -> float:
        f = family.start(values, weight)
        return float(family.log_prob(f, values) @ weight.double()) - family.size * np.log(y.size) / 2

    plain = max(criterion(family) for family in (families.Poisson(), families.NegativeBinomial()))
    return [family for family in (WITHOUT_ZEROS if y.min() else INFLATED) if criterion(family) > plain]


def _measured(y: np.ndarray, item: np.ndarray, items: int, column: str) -> Choice:
    """Real numbers: normal until others are likelier."""
    if not y.size or y.min() == y.max():
        return Choice(families.Gaussian(), (column,), "real numbers" if y.size else "nothing observed")
    positive, near = bool(families.Gamma.support.contains(y).all()), are_whole(y) and 0 <= y.min() < NEAR
    best, looked = kinds.best_measure(y, item, items)
    if near:  # the next one may be 0, which no law of positive numbers has
        positive, best = False, "gaussian"
    whose = "of each item" if looked > 1 else "of the column"
    values, looks = "whole numbers" if near else "real numbers", ""
    if positive:
        values, looks = "positive", f"{'symmetric' if best == 'gaussian' else 'skewed'} within the values {whose}"
    zeros = float(np.mean(y == 0))
    rivals = (*_sized(POSITIVE if positive else REAL, y), *([families.NegativeBinomial()] if near else []))
    if y.min() == 0 and zeros > ZEROS and AMOUNTS[0].support.contains(y).all():
        looks = f"of which {zeros:.0%} are exactly 0"
        return Choice(AMOUNTS[0], (column,), "numbers >= 0", looks, (*AMOUNTS, *rivals))
    return Choice(families.named(best), (column,), values, looks, rivals)


def _sized(names: Sequence[str], y: np.ndarray) -> tuple[Family, ...]:
    several = (families.named(name, **families.kind(name).sized(y, 1)) for name in names)
    return tuple(families.StudentT(degrees=DEGREES) if one.name == "student_t" else one for one in several)


def _parts(family: PerItem, items: Items) -> str:
    """gaussian for Temp, Wind; negative_binomial for Ozone"""
    told = []
    for k, part in enumerate(family.parts):
        mine = [str(items.name(i)) for i, kind in enumerate(family.kinds) if kind == k]
        more = f" and {len(mine) - SHOWN} more" if len(mine) > SHOWN else ""
        told.append(f"{part.name} for {', '.join(mine[:SHOWN])}{more}")
    return "; ".join(told)


def _check_kinds(choice: Choice, columns: tuple[str, ...], item: np.ndarray | None, items: int) -> None:
    family = choice.family
    if isinstance(family, PerItem) and (item is None or len(family.kinds) != items):
        there = "there is no item column" if item is None else f"there are {items} items"
        raise DataError(
            f"A family per item has a kind for each, in the order of their names: it has {len(family.kinds)}, and "
            f"{there}. Pass {option('item')}, or another {option('family')}.",
            column=columns[0],
            option="family",
        )


def _pairs(spec: Any, columns: Sequence[str]) -> list[tuple[tuple[str, ...], Spec]]:
    if isinstance(spec, Mapping):
        return _from_mapping(spec, columns)
    if isinstance(spec, str | Family):
        return _from_one(spec, columns)
    if not isinstance(spec, Sequence):
        raise DataError(
            f"family is a name, a family, a list of them or a mapping from columns; found {spec!r}.", option="family"
        )
    if len(spec) != len(columns):
        raise DataError(
            f"family has {len(spec)} entries for the {len(columns)} value columns {list(columns)}.", option="family"
        )
    return [((column,), one) for column, one in zip(columns, spec, strict=True)]


def _from_one(spec: Spec, columns: Sequence[str]) -> list[tuple[tuple[str, ...], Spec]]:
    if isinstance(spec, Product):
        if spec.columns != len(columns):
            raise DataError(
                f"{spec!r} covers {spec.columns} columns; the value columns are {list(columns)}.", option="family"
            )
        return [(tuple(columns[where]), part) for part, _, where in spec.slices()]
    kind = type(spec) if isinstance(spec, Family) else None if spec == "auto" else families.kind(spec)
    if kind is not None and kind.several_columns and len(columns) > 1:
        return [(tuple(columns), spec)]
    return [((column,), spec) for column in columns]


def _from_mapping(spec: Mapping[Any, Spec], columns: Sequence[str]) -> list[tuple[tuple[str, ...], Spec]]:
    pairs = [((key,) if isinstance(key, str) else tuple(key), one) for key, one in spec.items()]
    named = [name for names, _ in pairs for name in names]
    for name in named:
        if name not in columns or named.count(name) > 1:
            raise DataError(
                f"family names {name!r}, which is no value column or is there twice: {list(columns)}.", option="family"
            )
    return [*pairs, *(((name,), "auto") for name in columns if name not in named)]


def _asked(one: Spec, y: np.ndarray, names: tuple[str, ...]) -> Family:
    """A family by its name, with sizes from the data, or as it is; one of several columns fits theirs."""
    if isinstance(one, Family):
        fits = one.columns == len(names) or not one.several_columns
        return one if fits else replace(one, **one.sized(y, len(names)))  # type: ignore[type-var]
    kind = families.kind(one)
    if not kind.of_values:
        raise DataError(
            f"{one!r} is no family of a value column: a category is an item, or 'ordinal' if it has an order. "
            f"There are {', '.join(families.value_families())}.",
            column=names[0],
            option="family",
        )
    try:
        return families.named(one, **kind.sized(y, len(names)))
    except DataError as error:
        raise DataError(f"Column {names[0]!r}: {error.text}", column=names[0], option="family") from None
