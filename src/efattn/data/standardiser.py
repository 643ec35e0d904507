"""Values in units of their own spread.

    y' = (y - centre) / scale,      log p(y) = log p(y') - log scale

The centre is the training mean m, or each item's own: with n_i values of mean m_i, variance s^2 within items and t^2
between their true means, item i is centred at (n_i m_i + k m) / (n_i + k), k = s^2 / t^2, so that a rare item stays
near m. An unknown item is centred at m. The scale is the standard deviation around the centres; a constant's is 1.
Where items have scales of their own ("item_spread"), centre and scale are each item's own mean and spread.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, final, get_args

import numpy as np

from efattn.errors import DataError, option

Method = Literal["none", "global", "item", "item_spread"]
FEW = 5  # values, with fewer of which an item's spread is that of a typical item


@final
@dataclass(frozen=True, eq=False)
class Standardiser:
    """centre, scale: (columns,); item_centre: (D + 1, columns), its last row for the unknown item, where any column is
    centred by item; item_scale: the same, where any is scaled by item."""

    methods: tuple[Method, ...]
    centre: np.ndarray
    scale: np.ndarray
    item_centre: np.ndarray | None = None
    item_scale: np.ndarray | None = None

    @classmethod
    def fit(
        cls,
        value: np.ndarray,
        methods: Sequence[Method],
        item: np.ndarray | None = None,
        items: int = 0,
        plain: np.ndarray | None = None,
    ) -> "Standardiser":
        """value: (row, column), NaN where missing; item: (row,), numbers below `items`, or `items` for unknown; plain:
        (items + 1, column), of which items values that have a spread of their own stay as they are."""
        columns = value.shape[1]
        centre, scale = np.zeros(columns), np.ones(columns)
        spreads = "item_spread" in methods
        by_item = np.zeros((items + 1, columns)) if spreads or "item" in methods else None
        scales = np.ones((items + 1, columns)) if spreads else None
        for c, method in enumerate(methods):
            seen = ~np.isnan(value[:, c])
            y = value[seen, c]
            if method == "none" or not len(y):
                continue
            if method == "item_spread" and item is not None and by_item is not None and scales is not None:
                left = np.zeros(items + 1, bool) if plain is None else plain[:, c]
                kept = ~left[item[seen]]
                if kept.any():
                    by_item[:, c], scales[:, c] = item_units(y[kept], item[seen][kept], items)
                by_item[left, c], scales[left, c] = 0.0, 1.0
                continue
            centre[c] = y.mean()
            rest = y - centre[c]
            if method == "item" and item is not None and by_item is not None:
                shift = _item_shifts(rest, item[seen], items)
                by_item[:, c] = centre[c] + shift
                rest = rest - shift[item[seen]]
            scale[c] = _spread(rest, np.abs(y).max())
        return cls(tuple(methods), centre, scale, by_item, scales)

    @property
    def is_identity(self) -> bool:
        return (
            all(method == "none" for method in self.methods) and not self.centre.any()
        )  # large whole numbers have one

    @property
    def item_shifts(self) -> np.ndarray | None:
        """(D + 1, columns): what was taken from each item's values beyond the overall centre, standardised."""
        if self.item_centre is None:
            return None
        return (self._centres(np.arange(len(self.item_centre))) - self.centre) / self.scale

    def apply(self, value: np.ndarray, item: np.ndarray | None = None) -> np.ndarray:
        """(..., row, column) in the table's units -> standardised."""
        return (value - self._centres(item)) / self._scales(item)

    def to_scale(self, sd: np.ndarray, item: np.ndarray | None = None) -> np.ndarray:
        """Standard deviations in the table's units -> those of standardised values."""
        return sd / self._scales(item)

    def undo(self, mean: np.ndarray, item: np.ndarray | None = None) -> np.ndarray:
        """Means, quantiles and draws back in the table's units."""
        return mean * self._scales(item) + self._centres(item)

    def undo_scale(self, sd: np.ndarray, item: np.ndarray | None = None) -> np.ndarray:
        """Standard deviations back in the table's units."""
        return sd * self._scales(item)

    def log_jacobian(self, observed: np.ndarray, item: np.ndarray | None = None) -> np.ndarray:
        """(..., row): what to add to log p(y') for log p(y); observed: (..., row, column), truth values."""
        if self.item_scale is None:
            return -(np.asarray(observed, dtype=np.float64) @ np.log(self.scale))
        return -(np.asarray(observed, dtype=np.float64) * np.log(self._scales(item))).sum(-1)

    def to_unknown(self) -> np.ndarray | None:
        """(D + 1, column): what to add to standardised values of an item for those it has as an unknown one."""
        if self.item_centre is None:
            return None
        by_item = np.array([method == "item" for method in self.methods])
        return np.where(by_item, (self.item_centre - self.item_centre[-1]) / self.scale, 0.0)

    def select(self, columns: Sequence[int]) -> "Standardiser":
        """The standardiser of some of the columns, for a term that models only those."""
        index = np.asarray(columns, dtype=np.int64)
        by_item, scales = (None if x is None else x[:, index] for x in (self.item_centre, self.item_scale))
        methods = tuple(self.methods[c] for c in index)
        return Standardiser(methods, self.centre[index], self.scale[index], by_item, scales)

    def some_items(self, items: np.ndarray) -> "Standardiser":
        """Of these alone, in the same units. items: (D,), truth values."""
        kept = np.append(items, True)
        by_item, scales = (None if x is None else x[kept] for x in (self.item_centre, self.item_scale))
        return replace(self, item_centre=by_item, item_scale=scales)

    def extended(self, items: int) -> "Standardiser":
        """For a vocabulary that has grown: new items are centred as unknown ones were."""
        if self.item_centre is None:
            return self

        def longer(x: np.ndarray) -> np.ndarray:
            return np.concatenate((x[:-1], np.repeat(x[-1:], items + 2 - len(x), axis=0)))

        scales = None if self.item_scale is None else longer(self.item_scale)
        return replace(self, item_centre=longer(self.item_centre), item_scale=scales)

    def digest(self) -> str:
        """Of all that it does."""
        arrays = {"centre": self.centre, "scale": self.scale} | self.arrays()
        text = repr((self.methods, [(name, x.shape, x.tobytes()) for name, x in arrays.items()]))
        return hashlib.sha256(text.encode()).hexdigest()

    def to_json(self) -> dict[str, Any]:
        return {"how": list(self.methods), "centre": self.centre.tolist(), "scale": self.scale.tolist()}

    def arrays(self) -> dict[str, np.ndarray]:
        arrays = {"item_centre": self.item_centre, "item_scale": self.item_scale}
        return {name: x for name, x in arrays.items() if x is not None}

    @classmethod
    def from_saved(cls, saved: Mapping[str, Any], arrays: Mapping[str, Any]) -> "Standardiser":
        names = ("item_centre", "item_scale")
        by_item, scales = (np.asarray(arrays[name]) if name in arrays else None for name in names)
        centre, scale = (np.array(saved[name], float) for name in ("centre", "scale"))
        return cls(tuple(saved["how"]), centre, scale, by_item, scales)

    def _centres(self, item: np.ndarray | None) -> np.ndarray:
        if self.item_centre is None:
            return self.centre
        if item is None:
            raise DataError("Values are centred by item: the item of each row is needed.")
        by_item = np.array([method in ("item", "item_spread") for method in self.methods])
        return np.where(by_item, self.item_centre[item], self.centre)

    def _scales(self, item: np.ndarray | None) -> np.ndarray:
        if self.item_scale is None:
            return self.scale
        if item is None:
            raise DataError("Values are scaled by item: the item of each row is needed.")
        by_item = np.array([method == "item_spread" for method in self.methods])
        return np.where(by_item, self.item_scale[item], self.scale)


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
    if {"item", "item_spread"} & set(given) and not has_item:
        asked, other = option("standardise", "item"), option("standardise", "global")
        raise DataError(f"{asked} needs an item column. Pass {option('item')}, or {other}.", option="standardise")
    return tuple(given)  # type: ignore[arg-type]


def item_units(y: np.ndarray, item: np.ndarray, items: int) -> tuple[np.ndarray, np.ndarray]:
    """(items + 1,) each: means and spreads; an item of few values has the spread of a typical one, the last, unknown,
    the mean of all and their spread."""
    known = item < items
    count = np.bincount(item[known], minlength=items).astype(np.float64)
    overall = float(y.mean())
    means = np.full(items, overall)
    means[count > 0] = (np.bincount(item[known], y[known], items)[count > 0]) / count[count > 0]
    squares = np.bincount(item[known], (y[known] - means[item[known]]) ** 2, items)
    spreads = np.sqrt(squares / np.maximum(count - 1, 1))
    size = np.abs(y).max()
    sure = (count >= FEW) & (spreads > 1e-10 * size)
    typical = float(np.median(spreads[sure])) if sure.any() else _spread(y - overall, size)
    return np.append(means, overall), np.append(np.where(sure, spreads, typical), _spread(y - overall, size))


def cost_of_one_scale(y: np.ndarray, item: np.ndarray, items: int) -> float:
    """Nats a value that normal laws around the items' means lose when all have one spread."""
    _, spreads = item_units(y, item, items)
    mine = np.log(spreads[item[item < items]])
    return float(np.log(np.mean(np.exp(2 * (mine - mine.max())))) / 2 + mine.max() - mine.mean()) if len(mine) else 0.0


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
