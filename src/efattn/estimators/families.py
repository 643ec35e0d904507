"""Which family each value column gets.

    family="auto"   each family says whether a column looks like its own; of those that do, the first in this order:
      only 0 and 1                                  bernoulli
      whole numbers, at most 11 levels, range <= 10 ordinal, unless they start at 0 and a law of counts does as well
      whole numbers >= 0 that are counts            poisson, or negative_binomial where the variance exceeds 1.5 means;
                                                    no counts: what a normal curve fits better, or never near 0
      numbers strictly between 0 and 1              beta
      numbers > 0                                   gamma or gaussian, whichever describes each item's values better
      anything else                                 gaussian

Or a name, a family, one of them per column as a list, or a mapping from a column (a tuple of columns) to one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch

from efattn import families
from efattn.errors import DataError, Note, option
from efattn.families import Family, Product

Spec = str | Family
POSITIVE = ("gamma", "gaussian")  # what positive numbers may be
ENOUGH, MOST = 8, 200  # values of an item, and items, to look at


class Choice(NamedTuple):
    """The family of some columns (of one, mostly), and why: None where it was asked for."""

    family: Family
    columns: tuple[str, ...]
    why: str | None = None


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
            Note("family", f"Family of {part.columns[0]!r}: {part.family!r} ({part.why}).", part.columns[0])
            for part in told
        ]


def ordered(spec: Any, columns: tuple[str, ...]) -> tuple[str, ...]:
    """The value columns in the order of a mapping's keys, so that those of one family stand side by side."""
    if not isinstance(spec, Mapping):
        return columns
    return tuple(name for names, _ in _from_mapping(spec, columns) for name in names)


def choose(values: np.ndarray, columns: Sequence[str], spec: Any, item: np.ndarray | None = None) -> Choices:
    """values (row, column), NaN where missing; item (row,): the number of each row's, where there are items."""
    choices = []
    for names, one in _pairs(spec, columns):
        y = values[:, [list(columns).index(name) for name in names]]
        choice = automatic(y[:, 0], names[0], item) if one == "auto" else Choice(_asked(one, y, names), names)
        if choice.family.columns != len(names):
            raise DataError(
                f"{choice.family!r} is a family of one column, and {names!r} are {len(names)}. Give each its own, or "
                f"pass {option('family', 'multivariate_gaussian')}.",
                column=names[0],
                option="family",
            )
        choices.append(choice)
    return Choices.of(choices)


def automatic(y: np.ndarray, column: str = "value", item: np.ndarray | None = None) -> Choice:
    """The family of one column and the rule that chose it."""
    there = np.isfinite(y)
    seen = y[there]
    kinds = [kind for kind in families.known() if kind.of_values and not kind.several_columns]
    claims = [(claim.rank, claim.why, kind) for kind in kinds if (claim := kind.applicable(seen)) is not None]
    _, why, kind = min(claims, key=lambda claim: claim[0])
    if kind.name in POSITIVE and seen.size and families.Gamma.support.contains(seen).all():
        kind, why = _within_items(seen, np.zeros(len(seen), np.int64) if item is None else item[there])
    return Choice(kind(**kind.sized(seen, 1)), (column,), why)


def _within_items(y: np.ndarray, item: np.ndarray) -> tuple[type[Family], str]:
    """Of positive numbers: gamma or gaussian, whichever describes each item's own better. Items of different sizes make
    any column look skewed."""
    numbers, count = np.unique(item, return_counts=True)
    kept = numbers[count >= ENOUGH][:MOST]
    if not len(kept):
        kept, item = np.zeros(1, np.int64), np.zeros(len(y), np.int64)
    scores = dict.fromkeys(POSITIVE, 0.0)
    for number in kept:
        mine = torch.as_tensor(y[item == number])
        for name in POSITIVE:
            family = families.named(name)
            scores[name] += float(family.log_prob(family.start(mine).expand(len(mine), -1), mine).sum())
    best = "gamma" if scores["gamma"] > scores["gaussian"] + 1 else "gaussian"
    whose = "of each item" if len(kept) > 1 else "of the column"
    return families.kind(best), f"positive, {'skewed' if best == 'gamma' else 'symmetric'} within the values {whose}"


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
