"""What a model file says about itself has to hold together: each check is a DataError that says what does not."""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, get_args

import numpy as np
import torch
from torch import Tensor

from efattn.data import Roles, Schema, Wide
from efattn.data.standardiser import Method, Standardiser
from efattn.data.wide import GROUP, ITEM, VALUE
from efattn.errors import DataError, Note
from efattn.estimators.base import GroupEstimator
from efattn.families import Product
from efattn.inference import Calibration, Companion
from efattn.inference.moved import Moves, may_spread, may_step
from efattn.models import Model

TIMES = ("instant", "number")
KINDS = ("text", "integer", "unsigned", "number", "boolean", "date", "datetime", "null")  # of names
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


def checked_network(
    network: Any, estimator: GroupEstimator, tensors: Mapping[str, Tensor]
) -> dict[str, dict[str, Any]]:
    """The sizes of a network by kind of term, each an option that the estimator takes."""
    if not isinstance(network, dict) or not set(network) <= {"item", "value"}:
        raise DataError("the sizes of its network are of no term")
    for sizes in network.values():
        if not isinstance(sizes, dict) or not set(sizes) <= set(estimator.get_params(deep=False)):
            raise DataError("the sizes of its network are no options")
        check_sizes(sizes, None, tensors)
        sized: GroupEstimator = type(estimator)(**{**estimator.get_params(deep=False), **sizes})
        sized._check()
        if "auto" in sizes.values():
            raise DataError("the sizes of its network are left open")
    return network


def check_schema(schema: Schema, family: Product | None, about: Mapping[str, Any], estimator: GroupEstimator) -> None:
    """That its parts belong together."""
    values, items, fitted = schema.roles.of("value"), schema.vocabulary, schema.standardiser
    sizes = () if items is None else {len(column) for column in items.known.columns}
    wrong = items is not None and (items.columns != schema.roles.of("item") or len(sizes) != 1)
    wrong |= items is not None and len(items.known.kinds) != len(items.columns)
    wrong |= family is not None and family.columns != len(values)
    wrong |= not about["terms"] or len(set(about["terms"])) != len(about["terms"])
    wrong |= not set(about["terms"]) <= {"item", "value"} or about["support"] not in ("all", "distinct")
    wrong |= ("item" in about["terms"] and items is None) or ("value" in about["terms"] and family is None)
    wrong |= estimator.context == "past" and not schema.roles.ordered
    wrong |= not _count(about["longest"], 1)
    at = schema.positions
    wrong |= at is not None and (items is not None or not schema.roles.ordered or bool(schema.lags))
    wrong |= at is not None and at.kind == "time" and schema.when_kind is None
    wrong |= fitted is not None and not _is_of(fitted, family, len(values), 0 if items is None else len(items))
    known = schema.features
    wrong |= known is not None and (items is None or len(known) != len(items) or not 0 < known.trained <= len(known))
    if wrong:
        raise DataError("its columns, items and values do not belong together")
    _check_columns(schema)
    sizes_ = {"lags": 0, "max_length": None, "when": False, **estimator._schema_options()}
    told = schema.when_kind is not None
    asked = told if sizes_["when"] == "auto" else sizes_["when"]
    if (sizes_["lags"], sizes_["max_length"], asked) != (schema.lags, schema.max_length, told):
        raise DataError("lags, max_length or gaps are not those of the columns")
    _check_own(schema)
    if told and (schema.when_kind not in TIMES or not schema.roles.of("order")):
        raise DataError("the order column is of no known kind")


def _check_own(schema: Schema) -> None:
    """What a row shows of itself."""
    own, size = schema.own_attributes, len(schema.attribute_names)
    right = own is None or (len(own) == size and all(isinstance(one, bool) for one in own))
    right &= isinstance(schema.own_time, bool) and isinstance(schema.exposed, bool)
    if not right or (schema.exposed and schema.roles.exposure is None):
        raise DataError("what a row shows of itself is none of its columns")


def _is_of(fitted: Standardiser, family: Product | None, columns: int, items: int) -> bool:
    """A standardiser of so many columns: what is not standardised is at most counted from its family's origin."""
    methods, centre, scale, by_item = fitted.methods, fitted.centre, fitted.scale, fitted.item_centre
    if not centre.shape == scale.shape == (len(methods),) == (columns,) or not set(methods) <= set(get_args(Method)):
        return False
    if bool({"item", "item_spread"} & set(methods)) != (by_item is not None):
        return False
    if ("item_spread" in methods) != (fitted.item_scale is not None):
        return False
    for x in (by_item, fitted.item_scale):
        if x is not None and (x.shape != (items + 1, columns) or not np.isfinite(x).all()):
            return False
    if fitted.item_scale is not None and (fitted.item_scale <= 0).any():
        return False
    plain = np.array([method == "none" for method in methods], bool)
    origins = np.zeros(columns) if family is None else np.array(family.origins)
    there = np.isfinite(centre) & np.isfinite(scale) & (scale > 0)
    return bool((there & (~plain | ((scale == 1) & ((centre == 0) | (centre == origins))))).all())


def _check_columns(schema: Schema) -> None:
    """Times, and the words of columns."""
    if schema.lags and (not _number(schema.step) or schema.step <= 0 or schema.time_kind not in TIMES):  # type: ignore[operator]
        raise DataError("its time step is none")
    named = {*schema.roles.of("value"), *schema.roles.of("attributes")}
    for name, words in schema.levels.items():
        if name not in named or not all(isinstance(word, str) for word in words) or len(set(words)) != len(words):
            raise DataError(f"the words of its column {name!r} are none")
    for name, fill in schema.fills.items():
        if name not in schema.roles.of("attributes") or name in schema.levels or not np.isfinite(fill.number):
            raise DataError(f"what stands for nulls of its column {name!r} is none")
    for kind in () if schema.vocabulary is None else schema.vocabulary.known.kinds:
        if not isinstance(kind, str) or not (kind in KINDS or kind.startswith("datetime[")):
            raise DataError("its items are of no known kind")


def check_history(about: Mapping[str, Any], terms: Sequence[str]) -> None:
    """What `summary` tells."""
    history, notes, sizes, units = about["history"], about["notes"], about["sizes"], about.get("units", {})
    if not isinstance(history, list) or not all(_is_record(record, terms) for record in history):
        raise DataError("its history is none of its terms'")
    if not isinstance(notes, list) or not all(_is_note(note) for note in notes):
        raise DataError("its notes are no sentences")
    if not isinstance(sizes, dict) or set(sizes) != {"rows", "groups"} or not all(_count(x, 0) for x in sizes.values()):
        raise DataError("its sizes are no numbers of rows and groups")
    if not isinstance(units, dict) or not set(units) <= set(terms) or not all(_number(x) for x in units.values()):
        raise DataError("its units are none of its terms'")
    if not isinstance(about.get("frames", "polars"), str):
        raise DataError("its kind of frame is none")


def seen(tensor: Tensor | None) -> np.ndarray | None:
    """Fingerprints of groups; older files have none."""
    if tensor is None:
        return None
    if tensor.dtype != torch.int64 or tensor.dim() != 1:
        raise DataError("the groups that it has seen are none")
    return tensor.numpy()


def lengths(tensor: Tensor | None) -> np.ndarray | None:
    """How long its groups were, and how many were so long; older files do not say."""
    if tensor is None:
        return None
    if tensor.dtype != torch.int64 or tensor.dim() != 2 or tensor.shape[1] != 2 or not len(tensor):
        raise DataError("the lengths of its groups are none")
    found: np.ndarray = tensor.numpy()
    if (found < 1).any() or (found > LONGEST).any() or (np.diff(found[:, 0]) <= 0).any():
        raise DataError("the lengths of its groups are none")
    return found


def calibration(saved: Any, schema: Schema, layout: Wide | None) -> dict[str, Calibration]:
    """By value column, or by column of a wide table: knots from 0 to 1, rising."""
    known = {*schema.roles.of("value"), *(() if layout is None else layout.names)}
    if not isinstance(saved, dict) or not set(saved) <= known:
        raise DataError("its calibration is of none of its columns")
    found = {name: Calibration.from_json(one) for name, one in saved.items()}
    for one in found.values():
        ends = [(x[0], x[-1]) == (0, 1) and (np.diff(x) > 0).all() for x in (one.own, one.adjusted) if x.ndim == 1]
        if ends != [True, True] or one.own.shape != one.adjusted.shape:
            raise DataError("its calibration does not rise from 0 to 1")
        if not _count(one.rows, 1) or not _count(one.groups, 1):
            raise DataError("its calibration is by no rows")
    return found


def wide(saved: Any, schema: Schema) -> Wide | None:
    """How a wide table is laid out, whose columns are the items; older files have none."""
    if saved is None:
        return None
    found, items = Wide.from_json(saved), schema.vocabulary
    if items is None or [items.name(k) for k in range(len(items))] != sorted(found.names) or schema.lags:
        raise DataError("its wide columns are not its items")
    if schema.roles != Roles(group=GROUP, item=ITEM, value=VALUE):
        raise DataError("its wide columns are not those of its roles")
    return found


def share(given: Any) -> float:
    if not _number(given) or not 0 <= given <= 1:
        raise DataError("the share of its companion is none")
    return float(given)


def hole_shares(given: Any) -> tuple[tuple[float, float], ...]:
    """Pairs of the part that is missing, which grows, and a share; older files have none."""
    pairs = tuple(tuple(share(x) for x in pair) for pair in given)
    if any(len(pair) != 2 or not pair[0] for pair in pairs):
        raise DataError("the share of its companion is none")
    if any(not left[0] < right[0] for left, right in pairwise(pairs)):
        raise DataError("the shares of its companion are in no order")
    return pairs  # type: ignore[return-value]


def power(given: Any) -> float:
    """In a pool; older files have none."""
    if not _number(given):
        raise DataError("the power of a part of its pool is none")
    return float(given)


def moves(given: Any) -> Moves:
    """How a law is moved and spread, and parts of its share; older files have none."""
    several = tuple(tuple(move) for move in given)
    if any(len(move) != 3 or not all(_number(x) for x in move) for move in several):
        raise DataError("how a law is moved is none")
    if several and not (abs(sum(part for *_, part in several) - 1) < 1e-6 and min(part for *_, part in several) >= 0):
        raise DataError("the parts of a law are not the whole")
    return several


def moves_of_networks(told: Any, model: Model) -> dict[str, Moves]:
    """By term of values whose law has a spread; older files have none."""
    if not isinstance(told, dict) or not all(name in model.terms and may_spread(model[name].family) for name in told):
        raise DataError("a law that is moved is of no term with a spread")
    found = {name: moves(given) for name, given in told.items()}
    for name, several in found.items():
        if any(step for step, *_ in several) and not may_step(model[name].family):
            raise DataError("a law is moved that has no place")
    return found


def powers(told: Any, model: Model) -> dict[str, float]:
    """By term of items, that of the networks in its pool."""
    if not isinstance(told, dict) or not all(name in model.terms and model[name].of_items for name in told):
        raise DataError("its pool is of no term of items")
    return {name: power(x) for name, x in told.items()}


def check_shares(several: Sequence[Companion]) -> None:
    """Of one term."""
    wholes = [sum(one.share for one in several), sum(one.new or 0.0 for one in several)]
    if len({tuple(part for part, _ in one.holes) for one in several}) > 1:
        raise DataError("the shares of its companions are of other parts missing")
    wholes += [sum(share for _, share in each) for each in zip(*(one.holes for one in several), strict=True)]
    if max(wholes) > 1 + 1e-9:
        raise DataError("the shares of its companions are more than the whole")


def _is_record(record: Any, terms: Sequence[str]) -> bool:
    if not isinstance(record, dict) or record.get("term") not in terms:
        return False
    if not all(_count(record.get(name), 1) for name in ("epoch", "epochs")):
        return False
    if not all(_number(record.get(name)) for name in ("train", "seconds")):
        return False
    if not all(name in record and (record[name] is None or _number(record[name])) for name in ("validation", "best")):
        return False
    if record.get("rate") is not None and not _number(record["rate"]):
        return False
    return _count(record.get("member", 0), 0)


def _is_note(note: Any) -> bool:
    try:
        made = Note.from_json(note)
    except TypeError:
        return False
    said = isinstance(made.text, str) and isinstance(made.kind, str) and isinstance(made.important, bool)
    row = made.row is None or (isinstance(made.row, int) and not isinstance(made.row, bool))
    return said and row and all(isinstance(x, str | None) for x in (made.column, made.option))


def _number(x: Any) -> bool:
    return isinstance(x, int | float) and not isinstance(x, bool) and math.isfinite(x)


def _count(x: Any, low: int) -> bool:
    return isinstance(x, int) and not isinstance(x, bool) and low <= x <= LONGEST


def held_out(told: Any, terms: Sequence[str]) -> dict[str, dict[str, float]]:
    """By term, finite numbers by name."""
    whole = isinstance(told, dict) and set(told) <= set(terms)
    for scores in told.values() if whole else ():
        whole &= isinstance(scores, dict) and all(_number(x) for x in scores.values())
    if not whole:
        raise DataError("its scores of held-out groups are of no term")
    return {name: {kind: float(x) for kind, x in scores.items()} for name, scores in told.items()}
