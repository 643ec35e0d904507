"""Values in units of their own spread.

    y' = (y - centre) / scale,      log p(y) = log p(y') - log scale

The centre is the training mean m, or each item's own: with n_i values of mean m_i, variance s^2 within items and t^2
between their true means, item i is centred at (n_i m_i + k m) / (n_i + k), k = s^2 / t^2, so that a rare item stays
near m. An unknown item is centred at m. The scale is the standard deviation around the centres; a constant's is 1.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, final, get_args

import numpy as np

from efattn.errors import DataError, option

Method = Literal["none", "global", "item"]


@final
@dataclass(frozen=True, eq=False)
class Standardiser:
    """centre, scale: (columns,); item_centre: (D + 1, columns), its last row for the unknown item, where any column is
    centred by item."""

    methods: tuple[Method, ...]
    centre: np.ndarray
    scale: np.ndarray
    item_centre: np.ndarray | None = None

    @classmethod
    def fit(
        cls, value: np.ndarray, methods: Sequence[Method], item: np.ndarray | None = None, items: int = 0
    ) -> "Standardiser":
        """value: (row, column), NaN where missing; item: (row,), numbers below `items`, or `items` for unknown."""
        columns = value.shape[1]
        centre, scale = np.zeros(columns), np.ones(columns)
        by_item = np.zeros((items + 1, columns)) if "item" in methods else None
        for c, method in enumerate(methods):
            seen = ~np.isnan(value[:, c])
            y = value[seen, c]
            if method == "none" or not len(y):
                continue
            centre[c] = y.mean()
            rest = y - centre[c]
            if method == "item" and item is not None and by_item is not None:
                shift = _item_shifts(rest, item[seen], items)
                by_item[:, c] = centre[c] + shift
                rest = rest - shift[item[seen]]
            scale[c] = _spread(rest, np.abs(y).max())
        return cls(tuple(methods), centre, scale, by_item)

    @property
    def is_identity(self) -> bool:
        return (
            all(method == "none" for method in self.methods) and not self.centre.any()
        )  # large whole numbers have one

    def apply(self, value: np.ndarray, item: np.ndarray | None = None) -> np.ndarray:
        """(..., row, column) in the table's units -> standardised."""
        return (value - self._centres(item)) / self.scale

    def undo(self, mean: np.ndarray, item: np.ndarray | None = None) -> np.ndarray:
        """Means, quantiles and draws back in the table's units."""
        return mean * self.scale + self._centres(item)

    def undo_scale(self, sd: np.ndarray) -> np.ndarray:
        """Standard deviations back in the table's units."""
        return sd * self.scale

    def log_jacobian(self, observed: np.ndarray) -> np.ndarray:
        """(..., row): what to add to log p(y') for log p(y); observed: (..., row, column), truth values."""
        return -(np.asarray(observed, dtype=np.float64) @ np.log(self.scale))

    def to_unknown(self) -> np.ndarray | None:
        """(D + 1, column): what to add to standardised values of an item for those it has as an unknown one."""
        if self.item_centre is None:
            return None
        by_item = np.array([method == "item" for method in self.methods])
        return np.where(by_item, (self.item_centre - self.item_centre[-1]) / self.scale, 0.0)

    def select(self, columns: Sequence[int]) -> "Standardiser":
        """The standardiser of some of the columns, for a term that models only those."""
        index = np.asarray(columns, dtype=np.int64)
        by_item = None if self.item_centre is None else self.item_centre[:, index]
        return Standardiser(tuple(self.methods[c] for c in index), self.centre[index], self.scale[index], by_item)

    def extended(self, items: int) -> "Standardiser":
        """For a vocabulary that has grown: new items are centred as unknown ones were."""
        if self.item_centre is None:
            return self
        old, unknown = self.item_centre[:-1], self.item_centre[-1:]
        return replace(self, item_centre=np.concatenate((old, np.repeat(unknown, items + 1 - len(old), axis=0))))

    def to_json(self) -> dict[str, Any]:
        return {"how": list(self.methods), "centre": self.centre.tolist(), "scale": self.scale.tolist()}

    def arrays(self) -> dict[str, np.ndarray]:
        return {} if self.item_centre is None else {"item_centre": self.item_centre}

    @classmethod
    def from_saved(cls, saved: Mapping[str, Any], arrays: Mapping[str, Any]) -> "Standardiser":
        by_item = np.asarray(arrays["item_centre"]) if "item_centre" in arrays else None
        return cls(tuple(saved["how"]), np.array(saved["centre"], float), np.array(saved["scale"], float), by_item)

    def _centres(self, item: np.ndarray | None) -> np.ndarray:
        if self.item_centre is None:
            return self.centre
        if item is None:
            raise DataError("Values are centred by item: the item of each row is needed.")
        by_item = np.array([method == "item" for method in self.methods])
        return np.where(by_item, self.item_centre[item], self.centre)


def column_methods(
    standardise: str | Sequence[str] | Mapping[str, str], values: Sequence[str], has_item: bool
) -> tuple[Method, ...]:
    """One of none, global, item for each value column."""
    if isinstance(standardise, Mapping):
        extra = [name for name in standardise if name not in values]
        if extra:
            said = f"standardise names {extra[0]!r}, which is no value column. Value columns: {list(values)}."
            raise DataError(said, column=extra[0], option="standardise")
        given = [standardise.get(name, "none") for name in values]
    else:
        given = [standardise] * len(values) if isinstance(standardise, str) else list(standardise)
    if len(given) != len(values) or any(method not in get_args(Method) for method in given):
        raise DataError(
            f"standardise takes 'none', 'global' or 'item', one or one per value column; found {standardise!r}.",
            option="standardise",
        )
    if "item" in given and not has_item:
        asked, other = option("standardise", "item"), option("standardise", "global")
        raise DataError(f"{asked} needs an item column. Pass {option('item')}, or {other}.", option="standardise")
    return tuple(given)  # type: ignore[arg-type]


def _item_shifts(rest: np.ndarray, item: np.ndarray, items: int) -> np.ndarray:
    """(items + 1,): the shrunk mean of each item's deviations from the overall mean; 0 for unknown and unseen items."""
    known = item < items
    count = np.bincount(item[known], minlength=items).astype(np.float64)
    total = np.bincount(item[known], rest[known], minlength=items)
    means = np.divide(total, count, out=np.zeros(items), where=count > 0)
    n, present = count.sum(), int((count > 0).sum())
    if present < 2:
        return np.zeros(items + 1)
    within = ((rest[known] - means[item[known]]) ** 2).sum() / max(n - present, 1)
    between = (count * (means - total.sum() / n) ** 2).sum() / (present - 1)
    typical = (n - (count**2).sum() / n) / (present - 1)
    if n == present:  # one value per item: nothing tells an item's mean from noise
        return np.zeros(items + 1)
    true_spread = max((between - within) / typical, 0.0)
    shrink = count * true_spread / np.maximum(count * true_spread + within, np.finfo(float).tiny)
    return np.append(shrink * means, 0.0)


def _spread(rest: np.ndarray, size: float) -> float:
    spread = float(np.sqrt(np.mean(rest**2)))
    return spread if spread > 1e-10 * size else 1.0
