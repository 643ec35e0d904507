"""What a model file says about itself has to hold together: each check is a DataError that says what does not."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from efattn.data import Schema
from efattn.errors import DataError, Note
from efattn.estimators.base import GroupEstimator
from efattn.families import Product

LONGEST = 2**40  # rows or groups, more than any table has


def check_sizes(parameters: Any, family: Product | None, tensors: Mapping[str, Tensor]) -> None:
    """No size can honestly exceed what the file holds."""
    most = max((x.numel() for x in tensors.values()), default=0)
    for name in ("layers", "heads", "width", "feed_forward", "lags"):
        size, limit = parameters.get(name), len(tensors) if name == "layers" else most
        if isinstance(size, int) and size > limit:
            raise DataError(f"{name}={size} does not fit its tensors")
    for part in () if family is None else family.parts:
        if part.numbers > 2 * most + 64:
            raise DataError(f"{part!r} does not fit its tensors")


def check_schema(schema: Schema, family: Product | None, about: Mapping[str, Any], estimator: GroupEstimator) -> None:
    """That its parts belong together."""
    values, items, fitted = schema.roles.of("value"), schema.vocabulary, schema.standardiser
    sizes = () if items is None else {len(column) for column in items.known.columns}
    wrong = items is not None and (items.columns != schema.roles.of("item") or len(sizes) != 1)
    wrong |= family is not None and family.columns != len(values)
    wrong |= not about["terms"] or len(set(about["terms"])) != len(about["terms"])
    wrong |= not set(about["terms"]) <= {"item", "value"} or about["support"] not in ("all", "distinct")
    wrong |= ("item" in about["terms"] and items is None) or ("value" in about["terms"] and family is None)
    wrong |= estimator.context == "past" and not schema.roles.ordered
    wrong |= not _count(about["longest"], 1)
    if fitted is not None:
        wrong |= not len(fitted.methods) == len(fitted.centre) == len(fitted.scale) == len(values)
        wrong |= not bool((fitted.scale > 0).all())
        by_item, known = fitted.item_centre, 0 if items is None else len(items)
        wrong |= ("item" in fitted.methods) != (by_item is not None)
        wrong |= by_item is not None and by_item.shape != (known + 1, len(values))
    if wrong:
        raise DataError("its columns, items and values do not belong together")
    sizes_ = {"lags": 0, "max_length": None, "when": False, **estimator._schema_options()}
    told = schema.when_kind is not None
    asked = told if sizes_["when"] == "auto" else sizes_["when"]
    if (sizes_["lags"], sizes_["max_length"], asked) != (schema.lags, schema.max_length, told):
        raise DataError("lags, max_length or gaps are not those of the columns")
    if told and (schema.when_kind not in ("instant", "number") or not schema.roles.of("order")):
        raise DataError("the order column is of no known kind")


def check_history(about: Mapping[str, Any], terms: Sequence[str], members: int) -> None:
    """What `summary` tells."""
    history, notes, sizes, units = about["history"], about["notes"], about["sizes"], about.get("units", {})
    if not isinstance(history, list) or not all(_is_record(record, terms, members) for record in history):
        raise DataError("its history is none of its terms'")
    if not isinstance(notes, list) or not all(_is_note(note) for note in notes):
        raise DataError("its notes are no sentences")
    if not isinstance(sizes, dict) or set(sizes) != {"rows", "groups"} or not all(_count(x, 0) for x in sizes.values()):
        raise DataError("its sizes are no numbers of rows and groups")
    if not isinstance(units, dict) or not set(units) <= set(terms) or not all(_number(x) for x in units.values()):
        raise DataError("its units are none of its terms'")
    if not isinstance(about.get("frames", "polars"), str):
        raise DataError("its kind of frame is none")


def share(given: Any) -> float:
    if not _number(given) or not 0 <= given <= 1:
        raise DataError("the share of its companion is none")
    return float(given)


def _is_record(record: Any, terms: Sequence[str], members: int) -> bool:
    if not isinstance(record, dict) or record.get("term") not in terms:
        return False
    if not all(_count(record.get(name), 1) for name in ("epoch", "epochs")):
        return False
    if not all(_number(record.get(name)) for name in ("train", "seconds")):
        return False
    if not all(record.get(name) is None or _number(record[name]) for name in ("validation", "best", "rate")):
        return False
    return _count(record.get("member", 0), 0)


def _is_note(note: Any) -> bool:
    try:
        made = Note.from_json(note)
    except TypeError:
        return False
    return all(isinstance(x, str | None) for x in (made.text, made.kind, made.column, made.option))


def _number(x: Any) -> bool:
    return isinstance(x, int | float) and not isinstance(x, bool) and math.isfinite(x)


def _count(x: Any, low: int) -> bool:
    return isinstance(x, int) and not isinstance(x, bool) and low <= x <= LONGEST
