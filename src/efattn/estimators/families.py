"""Which family each value column gets.

    family="auto"   by what the column holds, the first rule that fits:
      only 0 and 1                                  bernoulli
      whole numbers, at most 11 levels, range <= 10 ordinal, from the smallest to the largest
      whole numbers >= 0                            poisson, or negative_binomial where the variance exceeds 1.5 means
      numbers strictly between 0 and 1              beta
      numbers > 0, skewed (mean > 1.2 medians)      gamma
      anything else                                 gaussian

Or a name, a family, one of them per column as a list, or a mapping from a column (a tuple of columns) to one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from efattn import families
from efattn.errors import DataError
from efattn.families import Family, MultivariateGaussian, Ordinal, Product

Spec = str | Family


def ordered(spec: Any, columns: tuple[str, ...]) -> tuple[str, ...]:
    """The value columns in the order of a mapping's keys, so that those of one family stand side by side."""
    if not isinstance(spec, Mapping):
        return columns
    return tuple(name for names, _ in _from_mapping(spec, columns) for name in names)


def choose(values: np.ndarray, columns: Sequence[str], spec: Any) -> tuple[Product, list[str]]:
    """values (row, column), NaN where missing. Gives the family of all columns and what was chosen, in words."""
    if isinstance(spec, Mapping):
        pairs = _from_mapping(spec, columns)
    elif isinstance(spec, str | Family):
        pairs = _from_one(spec, columns)
    elif isinstance(spec, Sequence):
        if len(spec) != len(columns):
            raise DataError(f"family has {len(spec)} entries for the {len(columns)} value columns {list(columns)}.")
        pairs = [((column,), one) for column, one in zip(columns, spec, strict=True)]
    else:
        raise DataError(f"family is a name, a family, a list of them or a mapping from columns; found {spec!r}.")
    parts, notes = [], []
    for names, one in pairs:
        y = values[:, [list(columns).index(name) for name in names]]
        if one == "auto":
            found, why = automatic(y[:, 0])
            notes.append(f"Family of {names[0]!r}: {found!r} ({why}).")
        else:
            found = _named(one, y, names)
        if found.columns != len(names):
            raise DataError(
                f"{found!r} is a family of one column, and {names!r} are {len(names)}. Give each its own, or pass "
                "families.MultivariateGaussian()."
            )
        parts.append(found)
    return Product(tuple(parts)), notes


def automatic(y: np.ndarray) -> tuple[Family, str]:
    """The family of one column and the rule that chose it."""
    seen = y[np.isfinite(y)]
    if not len(seen):
        return families.Gaussian(), "nothing observed"
    low, high, whole = seen.min(), seen.max(), bool(np.all(seen == np.floor(seen)))
    if whole and low >= 0 and high <= 1:
        return families.Bernoulli(), "only 0 and 1"
    if whole and high - low <= 10 and high > low:
        return Ordinal(int(high - low) + 1, int(low)), f"whole numbers from {low:g} to {high:g}"
    if whole and low >= 0 and high > low:
        spread = seen.var() / seen.mean()
        if spread > 1.5:
            return families.NegativeBinomial(), f"counts, variance {spread:.1f} times the mean"
        return families.Poisson(), f"counts, variance {spread:.1f} times the mean"
    if low > 0 and high < 1:
        return families.Beta(), "strictly between 0 and 1"
    if low > 0 and seen.mean() > 1.2 * np.median(seen):
        return families.Gamma(), "positive and skewed"
    return families.Gaussian(), "real numbers"


def _from_one(spec: Spec, columns: Sequence[str]) -> list[tuple[tuple[str, ...], Spec]]:
    several = isinstance(spec, MultivariateGaussian) or _plain(spec) == "multivariate_gaussian"
    if several and len(columns) > 1:
        return [(tuple(columns), spec)]
    if isinstance(spec, Product):
        if spec.columns != len(columns):
            raise DataError(f"{spec!r} covers {spec.columns} columns; the value columns are {list(columns)}.")
        return [(tuple(columns[where]), part) for part, _, where in spec.slices()]
    return [((column,), spec) for column in columns]


def _from_mapping(spec: Mapping[Any, Spec], columns: Sequence[str]) -> list[tuple[tuple[str, ...], Spec]]:
    pairs = [((key,) if isinstance(key, str) else tuple(key), one) for key, one in spec.items()]
    named = [name for names, _ in pairs for name in names]
    for name in named:
        if name not in columns or named.count(name) > 1:
            raise DataError(f"family names {name!r}, which is no value column or is there twice: {list(columns)}.")
    return [*pairs, *(((name,), "auto") for name in columns if name not in named)]


def _named(one: Spec, y: np.ndarray, names: tuple[str, ...]) -> Family:
    """A family from its name, sizes taken from the data where it needs one."""
    seen = y[np.isfinite(y)]
    low, high = (int(np.floor(seen.min())), int(np.ceil(seen.max()))) if len(seen) else (0, 1)
    if isinstance(one, str):
        plain = _plain(one)
        needs: dict[str, dict[str, Any]] = {
            "ordinal": {"levels": max(high - low + 1, 2), "low": low},
            "binomial": {"trials": max(high, 1)},
            "multivariate_gaussian": {"columns": len(names)},
        }
        if plain in ("categorical", "product"):
            raise DataError(
                f"{one!r} is no family of a value column: a category is an item, or 'ordinal' if it has an order."
            )
        return families.named(one, **needs.get(plain, {}))
    if isinstance(one, MultivariateGaussian) and one.columns != len(names):
        return replace(one, columns=len(names))
    return families.named(one)


def _plain(name: object) -> str:
    """As families.named reads it."""
    return str(name).strip().lower().replace("-", "_").replace(" ", "_")
