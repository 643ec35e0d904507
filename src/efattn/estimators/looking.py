"""What all rows of a table say, where these may be on disk: some groups at a time, or some of them.

Of a table in memory every function here looks at all of it at once.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from efattn.data import Groups, Schema
from efattn.data.sampling import each_part, few
from efattn.families import Product

if TYPE_CHECKING:
    from efattn.estimators.blueprint import Blueprint


def check_values(family: Product, groups: Groups, columns: Sequence[str]) -> None:
    """A DataError for the first value that its family has not got."""
    for part in each_part(groups):
        assert part.value is not None
        family.check(part.value, columns, part.label, item=part.item)


def looked_at(groups: Groups) -> tuple[np.ndarray, np.ndarray | None, np.ndarray | None]:
    """Values, items and exposures that families are chosen by: of all rows or, where these are on disk, of some groups
    and of the rows that have the smallest and the largest values, and values between whole numbers."""
    some = few(groups)
    value, item = some.value, some.item
    assert value is not None
    if some is groups:
        return value, item, some.exposure
    values, items = [value], [] if item is None else [item]
    exposures = [] if some.exposure is None else [some.exposure]
    for part in each_part(groups):
        y, mine = part.value, part.item
        assert y is not None
        known = [np.nan_to_num(one, nan=np.nanmean(one)) for one in y.T if not np.isnan(one).all()]
        found = {int(f(one)) for one in known for f in (np.argmin, np.argmax)}
        found |= {int(np.argmax((one % 1 != 0) & ~np.isnan(one))) for one in y.T}
        at = np.array(sorted(found), np.int64)
        values.append(y[at])
        items += [] if mine is None else [mine[at]]
        exposures += [] if part.exposure is None else [part.exposure[at]]
    item, exposure = (np.concatenate(parts) if parts else None for parts in (items, exposures))
    return np.concatenate(values), item, exposure


def every_item(groups: Groups, schema: Schema) -> bool:
    """Whether every group has every item once."""
    items = len(schema.vocabulary or ())
    if groups.every.item is None or not len(groups) or not bool((groups.lengths == items).all()):
        return False
    places = (part.group * items + part.item for part in each_part(groups) if part.item is not None)
    return all(len(np.unique(place)) == len(place) for place in places)


def missing_values(groups: Groups) -> np.ndarray | None:
    """(column,): how many are."""
    if groups.every.value is None:
        return None
    return np.sum([np.isnan(part.value).sum(0) for part in each_part(groups) if part.value is not None], axis=0)


def mean_log_jacobian(blueprint: "Blueprint", groups: Groups) -> float:
    """The mean of log |dy'/dy| over the targets of the value term: from scores inside to the table's units."""
    if blueprint.family is None or groups.every.value is None or blueprint.schema.standardiser is None:
        return 0.0
    means = [_log_jacobian(blueprint, part) for part in each_part(groups)]
    if len(means) == 1:
        return means[0][0]
    weight = sum(weight for _, weight in means)
    return sum(mean * mine for mean, mine in means) / weight if weight else 0.0


def _log_jacobian(blueprint: "Blueprint", groups: Groups) -> tuple[float, float]:
    """The mean, and the weight that it has."""
    fitted, value, family = blueprint.schema.standardiser, groups.value, blueprint.family
    assert fitted is not None
    assert value is not None
    assert family is not None
    observed = ~np.isnan(value)
    weight = np.ones(len(observed)) if groups.weight is None else groups.weight
    weight = weight * (1.0 if groups.target is None else groups.target)
    whole = np.zeros_like(observed)
    for part, _, columns in family.slices():
        whole[:, columns] = observed[:, columns] & (part.partial | observed[:, columns].all(1, keepdims=True))
    counted = weight * whole.any(1)
    total = float(counted.sum())
    return float(np.average(fitted.log_jacobian(whole, groups.item), weights=counted)) if total else 0.0, total
