"""Which groups are trained on, and which are held out to choose by.

Of a small table every group is held out once, in folds (`validation="auto"`): a fifth of a hundred groups would be too
few to choose anything by. Each fold has units of its own, so that nothing held out is known to what is fitted to the
rest.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from efattn.data import Groups
from efattn.data.folds import Parts, last_groups, parts_in_turn, rows_of_one
from efattn.data.histories import history
from efattn.errors import DataError, Note, option
from efattn.estimators.blueprint import Blueprint
from efattn.estimators.looking import check_values
from efattn.estimators.units import in_units, ways_to_standardise
from efattn.network import Context

# folds by rows: what takes about a minute; and the share of the groups of a larger table
SMALL, FOLDS, MEDIUM, FEWER_FOLDS, SHARE = 1000, 5, 5000, 3, 0.2
MOST_NAMES = 5_000_000  # of training groups, up to which those held out are looked for among them
MOST_HELD = 1_000_000  # rows, of which no more are held out unasked: their mean score has an error of a few 1e-3


def validation_rule(validation: Any, draft: Blueprint, folds: bool, seed: int, context: Context) -> Any:
    """What "auto" stands for: folds of a small table, if they are allowed and each leaves something to fit to; else a
    share."""
    groups = draft.groups
    assert groups is not None
    if not isinstance(validation, str) or validation != "auto":
        _refuse_words(validation)
        return validation
    count = len(groups) if len(groups) > 1 else groups.count
    if count < 2:
        return None
    rows = groups.count
    number = FOLDS if rows < SMALL else FEWER_FOLDS if rows < MEDIUM else 0
    number = min(number, count)
    if groups.lagged is not None and groups.time is not None:
        number = min(number, len(np.unique(groups.time)))
    share = min(SHARE, MOST_HELD / rows)
    if not folds or number < 2:
        return share
    parts = own_parts(draft, number, seed, context)
    return number if all(_something_to_fit(draft, train) for train, _ in parts) else share


def _refuse_words(validation: Any) -> None:
    """Text is a path; a bare word that is none is a mistake of another kind than a file that is not there."""
    word = isinstance(validation, str) and validation.isidentifier() and validation != "last"
    if word and not Path(validation).exists():
        known = "'auto', 'last', a share of the groups, a number of folds, or a table"
        raise DataError(f"{option('validation', validation)} is none of {known}.", option="validation")


def _something_to_fit(draft: Blueprint, train: Groups) -> bool:
    """Whether there is something to fit to, of every column."""
    targets = np.ones(train.count, bool) if train.target is None else train.target
    if "value" not in draft.terms or train.value is None:
        return bool(targets.any())
    return bool((~np.isnan(train.value[targets])).any(0).all())


def own_parts(draft: Blueprint, validation: Any, seed: int, context: Context) -> list[Parts]:
    """What is trained on and what is held out of the table's own groups; empty where nothing is."""
    groups = draft.groups
    assert groups is not None
    if isinstance(validation, str) and validation == "last":
        return [last_groups(groups, SHARE)] if len(groups) > 1 else [rows_of_one(groups, SHARE, last=True)]
    if not isinstance(validation, int | float) or validation == 0:
        return []
    one = len(groups) == 1 and groups.lagged is None
    if isinstance(validation, int) and not isinstance(validation, bool) and validation > 1:
        if one and context == "past":
            return [rows_of_one(groups, 1 / validation, last=True)]
        return parts_in_turn(groups, validation, seed)
    if not 0 < validation < 1:
        known = "neither a fraction between 0 and 1 of the groups, nor a number of folds, from 2 on"
        raise DataError(f"{option('validation', validation)} is {known}.", option="validation")
    if one:
        return [rows_of_one(groups, float(validation), last=context == "past", seed=seed)]
    return [groups.split(float(validation), seed)]


def split(
    draft: Blueprint, validation: Any, seed: int, standardise: str | None, context: Context = "others"
) -> Blueprint:
    """The same with training and held-out groups. standardise: how, None where the schema knows it already."""
    groups, schema = draft.groups, draft.schema
    assert groups is not None
    parts = own_parts(draft, validation, seed, context)
    if len(parts) > 1:  # standardised the same way in every fold
        least = min((part[0] for part in parts), key=lambda train: train.count)
        ways = None if standardise is None else ways_to_standardise(draft, least, standardise)
        inner = [in_units(replace(draft, fold=k), *part, ways) for k, part in enumerate(parts)]
        return replace(in_units(draft, groups, None, ways), folds=tuple(inner), may_refit=True)
    held, notes = (parts[0][1] if parts else None), list[Note]()
    if not parts and not (validation is None or isinstance(validation, int | float)):
        _refuse_words(validation)
        held = schema.encode(validation, need=("value",) if "value" in draft.terms else (), sort=True)
        if draft.family is not None and held.value is not None:
            check_values(draft.family, held, schema.roles.of("value"))
        held, notes = _without_history(groups, held) if schema.roles.ordered else (held, [])
    train = parts[0][0] if parts else groups
    ways = None if standardise is None else ways_to_standardise(draft, train, standardise)
    return replace(in_units(draft, train, held, ways).noted(*notes), may_refit=bool(parts))


def _without_history(train: Groups, held: Groups) -> tuple[Groups, list[Note]]:
    """Rows of a validation table that training has too are no targets."""
    if train.max_length is not None or len(train) > MOST_NAMES:  # pieces; names that would take minutes to compare
        return held, []
    seen = history(train, held)
    target = np.ones(len(seen), bool) if held.every.target is None else held.every.target
    known = int((seen & target).sum())
    if not known:
        return held, []
    words = f"Of {int(target.sum()):,} rows to validate by, {known:,} are in the table that is fitted to: "
    words += "they are history."
    every = replace(held.every, target=target & ~seen)
    return replace(held, every=every), [Note("history", words, option="validation")]
