"""What a model says about the rows of a table, as arrays to draw: beside what happened, and where each row stands."""

import re
from typing import Any, NamedTuple

import numpy as np

from efattn.data import Groups, Table
from efattn.errors import DataError
from efattn.inference.fitted import Fitted
from efattn.inference.predict import expected
from efattn.inference.tables import encoded
from efattn.plots import style

EAST, NORTH = re.compile(r"lon(g(itude)?)?|lng", re.I), re.compile(r"lat(itude)?", re.I)


class Rows(NamedTuple):
    """Of one value column, in the order of the groups: y (row,), NaN where it is missing; mean, lower and upper (row,)
    of the predictive law."""

    fitted: Fitted
    groups: Groups
    column: str
    y: np.ndarray
    mean: np.ndarray
    lower: np.ndarray
    upper: np.ndarray

    @property
    def missing(self) -> np.ndarray:
        return np.isnan(self.y)


def expected_rows(model: Any, table: Any, of: str | None = None, interval: float = 0.9) -> Rows:
    """of: which value column, the first unless said."""
    fitted: Fitted = style.fitted(model)
    parts = fitted.parts_of("value", "predict values")
    names = fitted.schema.roles.of("value")
    if of is not None and of not in names:
        raise DataError(f"There is no value column {of!r}; this model has {', '.join(map(repr, names))}.")
    column, source = of or names[0], Table.read(table)
    (asked,) = encoded(fitted, [source], lambda note: None, items=False)
    columns = expected(fitted, parts, asked.groups, len(asked.table), interval)
    order = asked.groups.every.row
    y, at = asked.groups.every.value, names.index(column)
    seen = np.full(len(order), np.nan) if y is None else y[:, at]
    return Rows(
        fitted, asked.groups, column, seen, *(columns[f"{column}_{kind}"][order] for kind in ("mean", "lower", "upper"))
    )


def degrees(fitted: Fitted, groups: Groups) -> tuple[np.ndarray, np.ndarray] | None:
    """Longitude and latitude (row,) of each row, where the model has attributes of such names; else None."""
    names, x = fitted.schema.attribute_names, groups.every.attributes
    east, north = ([k for k, name in enumerate(names) if one.fullmatch(name)] for one in (EAST, NORTH))
    if x is None or not east or not north:
        return None
    return x[:, east[0]], x[:, north[0]]


def places(fitted: Fitted, groups: Groups) -> tuple[np.ndarray, np.ndarray]:
    """The same, or a DataError."""
    found = degrees(fitted, groups)
    if found is None:
        raise DataError("There is no map without places: fit with attributes named latitude and longitude.")
    return found


def item_names(fitted: Fitted, numbers: np.ndarray, letters: int = style.LETTERS) -> list[str]:
    vocabulary = fitted.vocabulary
    return [style.label(vocabulary.name(int(k)), letters) for k in numbers]
