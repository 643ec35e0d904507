"""In which units a model sees the values of its training groups."""

from dataclasses import replace

import numpy as np

from efattn.data import Groups, Schema
from efattn.data.sampling import few
from efattn.data.standardiser import cost_of_one_scale
from efattn.estimators.blueprint import Blueprint
from efattn.families import PerItem

COST = 0.1  # nats a value
LARGE = 2.0**20  # whole numbers beyond are counted from the family's origin: single precision has none between 2^24s


def in_units(draft: Blueprint, train: Groups, held: Groups | None, ways: list[str] | None) -> Blueprint:
    """In units of the training groups. ways: how each column is standardised, None where the schema knows it."""
    schema, groups = draft.schema, draft.groups
    assert groups is not None
    if ways is not None:
        schema = schema.fit_standardiser(train, ways, _as_they_are(draft))
        schema = _from_origins(draft, schema, groups)
    return replace(
        draft,
        schema=schema,
        train=schema.standardise(train),
        held=None if held is None else schema.standardise(held),
    )


def ways_to_standardise(draft: Blueprint, train: Groups, standardise: str) -> list[str]:
    """Real-valued columns are standardised, by item where there is enough of each to know its mean; in units of each
    item's own where items are of different kinds, or of so different spreads that one for all would cost much."""
    if draft.family is None or train.every.value is None:
        return ["none"] * len(draft.schema.roles.of("value"))
    enough = draft.items > 1 and train.count >= 10 * draft.items
    ways = []
    for part, _, columns in draft.family.slices():
        for c in range(columns.start, columns.stop):
            way = standardise
            if way == "auto":
                way = "item" if draft.items and train.count >= 10 * draft.items else "global"
                way = "item_spread" if enough and part.scalar and _spreads_differ(train, c, draft.items) else way
            if isinstance(part, PerItem) and way != "none":
                way = "item_spread"
            if not part.units_by_item and way in ("item", "item_spread"):
                way = "global"
            ways.append(way if part.standardised else "none")
    return ways


def _spreads_differ(train: Groups, column: int, items: int) -> bool:
    """Whether items' spreads differ so much that one for all would cost a tenth of a nat a value."""
    train = few(train)
    assert train.value is not None
    assert train.item is not None
    seen = np.isfinite(train.value[:, column])
    return bool(seen.any()) and cost_of_one_scale(train.value[seen, column], train.item[seen], items) > COST


def _as_they_are(draft: Blueprint) -> np.ndarray | None:
    """(items + 1, column): of which items a family takes values as they are."""
    if draft.family is None or not draft.family.kinds:
        return None
    columns = []
    for part in draft.family.parts:
        if isinstance(part, PerItem):
            kinds = part.kind_of(np.arange(draft.items + 1))
            columns.append(np.array([not one.standardised for one in part.parts])[kinds])
        else:
            columns += [np.zeros(draft.items + 1, bool)] * part.columns
    return np.stack(columns, 1)


def _from_origins(draft: Blueprint, schema: Schema, groups: Groups) -> Schema:
    """Large whole numbers are counted from their family's origin, in double precision."""
    fitted, value = schema.standardiser, groups.every.value
    if draft.family is None or fitted is None or value is None:
        return schema
    centre = fitted.centre.copy()
    for part, _, columns in draft.family.slices():
        if part.origin and abs(part.origin) >= LARGE:
            centre[columns] = part.origin
    return replace(schema, standardiser=replace(fitted, centre=centre))
