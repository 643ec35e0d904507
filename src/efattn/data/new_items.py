"""Items as if they had never been seen, to find out how well new ones are predicted.

strange    rows of some items have the unknown item instead, and are the only targets
without    rows of some items are gone, and the rest is numbered anew
"""

from dataclasses import fields, replace

import numpy as np

from efattn.data.groups import Groups
from efattn.data.schema import Schema


def some_items(items: int, share: float, number: int = 0, seed: int = 0) -> np.ndarray:
    """(items,), truth values: about that share of them, others for another number as long as there are others."""
    size = max(round(share * items), 1)
    order = np.random.default_rng(seed).permutation(items)
    chosen = np.zeros(items, bool)
    chosen[order[(np.arange(size) + number * size) % items]] = True
    return chosen


def tells_items(groups: Groups) -> bool:
    """Whether an attribute has one value for each item, so that what is learnt about it is about items."""
    x, item = groups.attributes, groups.item
    if x is None or item is None or not len(x):
        return False
    order = np.argsort(item, kind="stable")
    same = np.diff(item[order]) == 0
    steady = (np.diff(x[order], axis=0)[same] == 0).all(0)
    return bool((steady & (x != x[0]).any(0)).any())


def in_table_units(schema: Schema, groups: Groups) -> Groups:
    """What `schema.standardise` was given, but for rounding."""
    every, fitted = groups.every, schema.standardiser
    if every.value is None or fitted is None or fitted.is_identity:
        return groups
    return replace(groups, every=replace(every, value=fitted.undo(every.value, every.item)), centres=None)


def as_if_unknown(groups: Groups, items: np.ndarray) -> Groups:
    """items: (items,), truth values. Groups are those that have one of them."""
    every = groups.every
    assert every.item is not None
    there = np.append(items, False)[every.item]
    targets = there if every.target is None else there & every.target
    item = np.where(there, len(items), every.item).astype(every.item.dtype)
    made = replace(groups, every=replace(every, item=item, target=targets))
    mine = np.zeros(len(groups), bool)
    np.logical_or.at(mine, groups.group, targets[groups.index])
    return made.subset(mine)


def without_items(groups: Groups, items: np.ndarray, *, kept: bool = False) -> Groups:
    """kept: rows of these items stay, as rows of the unknown one. Groups of no row are left out."""
    every = groups.every
    assert every.item is not None
    number = np.append(np.where(items, (~items).sum(), np.cumsum(~items) - 1), (~items).sum())
    stays = np.ones(len(every.row), bool) if kept else ~np.append(items, False)[every.item]
    columns = {f.name: getattr(every, f.name) for f in fields(every)}
    less = {name: x[stays] for name, x in columns.items() if x is not None}
    less["item"] = number[less["item"]].astype(every.item.dtype)
    offsets = np.append(0, np.cumsum(stays))[groups.offsets].astype(groups.offsets.dtype)
    vocabulary = None if groups.vocabulary is None else groups.vocabulary.some(np.flatnonzero(~items))
    made = replace(groups, every=replace(every, **less), offsets=offsets, vocabulary=vocabulary)
    return made.subset(made.lengths > 0)


def schema_without(schema: Schema, items: np.ndarray) -> Schema:
    """Of the rest alone."""
    assert schema.vocabulary is not None
    vocabulary, fitted = schema.vocabulary.some(np.flatnonzero(~items)), schema.standardiser
    features = None if schema.features is None else schema.features.some(np.flatnonzero(~items))
    fitted = None if fitted is None else fitted.some_items(~items)
    return replace(schema, vocabulary=vocabulary, standardiser=fitted, features=features)
