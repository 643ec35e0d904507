"""A fitted model as one file.

    JSON: estimator, parameters, schema, families, history
    tensors: model.*, member.1.*, ..., schema.*, prior.<term>.*

Reading builds the network without memory of its own and takes the file's tensors only where names and shapes agree,
so that what a file claims about itself cannot cost more than the file is large.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from efattn import __version__, families, storage
from efattn.data import Schema
from efattn.errors import DataError, EfattnError, ModelFileError
from efattn.estimators.plan import whole
from efattn.families import Family, MultivariateGaussian, Product
from efattn.models import Model, Offset, Term
from efattn.models.offset import Alone
from efattn.training import Training

if TYPE_CHECKING:
    from efattn.estimators.base import GroupEstimator


def save(estimator: "GroupEstimator", path: str | Path) -> None:
    about = {
        "version": __version__,
        "estimator": type(estimator).__name__,
        "parameters": plain(estimator.get_params(deep=False)),
        "schema": estimator.schema_.to_json(),
        "family": None if estimator.family_ is None else families.to_json(estimator.family_),
        "support": estimator.support_,
        "terms": list(estimator.terms_),
        "longest": estimator.longest_,
        "history": estimator.history_,
        "notes": estimator.notes_,
        "sizes": estimator.sizes_,
    }
    if len(estimator.members_) > 1:
        about["members"] = len(estimator.members_)
    offsets = _offsets(estimator.model_)  # which the members share
    if offsets:
        about["prior"] = {name: offset.origin for name, (_, offset) in offsets.items()}
    for name, alone in estimator.beside_.items():
        offsets[name] = (estimator.model_.terms.index(name), alone.offset)
        about.setdefault("beside", {})[name] = {"share": alone.share, "origin": alone.offset.origin}
    tensors = {
        f"{_prefix(k)}{name}": x for k, model in enumerate(estimator.members_) for name, x in model.state_dict().items()
    }
    tensors |= {f"schema.{name}": torch.from_numpy(x) for name, x in estimator.schema_.arrays().items()}
    for number, offset in offsets.values():
        tensors |= {f"prior.{number}.{name}": x for name, x in offset.state_dict().items()}
    storage.write(path, "model", about, tensors)


def load(path: str | Path) -> Any:
    """A model that `save` wrote, ready to predict."""
    about, tensors = storage.read(path, "model")
    try:
        return _rebuilt(about, tensors)
    except (LookupError, TypeError, ValueError, AttributeError, RuntimeError, ArithmeticError, EfattnError) as error:
        reason = str(error).strip().split("\n")[0] or type(error).__name__
        reason = f"there is no {reason} in it" if isinstance(error, KeyError) else reason.rstrip(".")
        raise ModelFileError(f"{str(path)!r} is no usable model: {reason}. Save it again, or fit anew.") from error


def _rebuilt(about: dict[str, Any], tensors: Mapping[str, Tensor]) -> Any:
    from efattn import baselines
    from efattn.estimators import EFA, LatentFactor

    kinds = {kind.__name__: kind for kind in (EFA, LatentFactor, *baselines.BASELINES)}
    if about["estimator"] not in kinds:
        raise DataError(f"this efattn knows no {about['estimator']!r}. Install a newer one")
    family = None if about["family"] is None else families.from_json(about["family"])
    if family is not None and not isinstance(family, Product):
        raise DataError("the family of the value columns is a product")
    _check_sizes(about["parameters"], family, tensors)
    estimator: Any = kinds[about["estimator"]](**restored(about["parameters"]))
    schema = Schema.from_saved(about["schema"], _within(tensors, "schema."))
    _check_schema(schema, family, about)
    sizes = {"lags": 0, "max_length": None, "when": False, **estimator._sizes()}
    told = schema.when_kind is not None
    asked = told if sizes["when"] == "auto" else sizes["when"]
    if (sizes["lags"], sizes["max_length"], asked) != (schema.lags, schema.max_length, told):
        raise DataError("lags, max_length or gaps are not those of the columns")
    if told and (schema.when_kind not in ("instant", "number") or not schema.roles.of("order")):
        raise DataError("the order column is of no known kind")
    estimator._restore(schema, family, about)
    number = about.get("members", 1)
    named = {name.split(".")[1] for name in tensors if name.startswith("member.")}
    if not whole(number, 1) or number != 1 + len(named):
        raise DataError("it has other members than it says")
    models = tuple(_member(estimator, _within(tensors, _prefix(k))) for k in range(number))
    for name, origin in about.get("prior", {}).items():
        offset = _offset(models[0], estimator, name, origin, tensors)
        for model in models:
            _term(model, name).add(offset)
    for name, told in about.get("beside", {}).items():
        offset, share = _offset(models[0], estimator, name, told["origin"], tensors), told["share"]
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= 1:
            raise DataError("the share of its prior is none")
        term = _term(models[0], name)
        estimator.beside_[name] = Alone(offset, term.context, term.support, share).eval()
    estimator.members_ = models
    return estimator


def _member(estimator: "GroupEstimator", mine: Mapping[str, Tensor]) -> Model:
    with torch.device("meta"), _Uninitialised():
        model = estimator._empty_model()
    _fill(model, mine)
    return model.eval()


def _prefix(member: int) -> str:
    return f"member.{member}." if member else "model."


def _fill(module: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    for name, x in module.state_dict().items():
        if name not in tensors or tensors[name].shape != x.shape or tensors[name].dtype != x.dtype:
            raise DataError(f"its tensor {name!r} is missing or of another shape")
    module.load_state_dict(tensors, assign=True)


def _offset(model: Model, estimator: Any, name: str, origin: Any, tensors: Mapping[str, Tensor]) -> Offset:
    """The simple model of a term."""
    from efattn.estimators import prior

    term = _term(model, name)
    with torch.device("meta"), _Uninitialised():
        offset = prior.rebuilt(origin, estimator._empty_plan(), term.family, term.of_items)
    _fill(offset, _within(tensors, f"prior.{model.terms.index(name)}."))
    return offset.eval().requires_grad_(False)


def _term(model: Model, name: str) -> Term:
    found = model[name]
    if not isinstance(found, Term):
        raise DataError(f"its term {name!r} takes no prior")
    return found


def _offsets(model: Model) -> dict[str, tuple[int, Offset]]:
    """By term, its number and its simple model, where it has one."""
    found = {name: (number, getattr(model[name], "offset", None)) for number, name in enumerate(model.terms)}
    return {name: (number, offset) for name, (number, offset) in found.items() if isinstance(offset, Offset)}


class _Uninitialised(TorchFunctionMode):
    """Weights that the file has are not drawn first: to do so on no device at all, torch would load its compiler, which
    takes longer than all else."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__module__", None) == "torch.nn.init":
            return kwargs["tensor"] if kwargs and "tensor" in kwargs else args[0]
        return func(*args, **(kwargs or {}))


@torch.no_grad()
def grow(new: Model, old: Model) -> None:
    """Take over weights where shapes agree; where items were appended, the new ones start as the unknown item did. The
    prior stays as it is."""
    for name, (_, offset) in _offsets(old).items():
        term = new[name]
        assert isinstance(term, Term)
        term.add(Offset.like(offset, term.family))
    mine, theirs = new.state_dict(), old.state_dict()
    for name, x in mine.items():
        before = theirs[name]
        if x.dtype == torch.bool:  # which outputs are shared is a matter of the family
            continue
        if x.shape == before.shape:
            x.copy_(before)
            continue
        known = before.shape[0] - (2 if name.endswith("vectors.weight") else 0)
        if name.endswith("vectors.weight"):  # rows: items, unknown, MASK
            x[:known], x[known:-1], x[-1] = before[:known], before[known], before[-1]
        else:  # a row per item of a head: as an average item
            x[:known] = before
            x[known:] = before.mean(0)


def plain(value: Any) -> Any:
    """A constructor's parameter as JSON."""
    if isinstance(value, Family):
        return {"is": "family", "value": families.to_json(value)}
    if isinstance(value, Training):
        return {"is": "training", "value": value.to_json()}
    if _is_peer(value):
        settings = {name: plain(x) for name, x in value.get_params(deep=False).items()}
        return {"is": "peer", "value": {"kind": type(value).__name__, "settings": settings}}
    if isinstance(value, tuple):
        return {"is": "tuple", "value": [plain(x) for x in value]}
    if isinstance(value, Mapping):
        if all(isinstance(key, str) for key in value) and "is" not in value:
            return {key: plain(x) for key, x in value.items()}
        return {"is": "mapping", "value": [[plain(key), plain(x)] for key, x in value.items()]}
    if isinstance(value, list):
        return [plain(x) for x in value]
    if isinstance(value, np.generic):
        return value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise DataError(f"A parameter of this model cannot be saved: {value!r}.")


def _is_peer(value: Any) -> bool:
    from efattn import baselines

    return isinstance(value, baselines.BASELINES)


def restored(saved: Any) -> Any:
    if isinstance(saved, list):
        return [restored(x) for x in saved]
    if not isinstance(saved, dict):
        return saved
    if "is" not in saved:
        return {key: restored(x) for key, x in saved.items()}
    kind, value = saved["is"], saved["value"]
    if kind == "family":
        return families.from_json(value)
    if kind == "training":
        return Training.from_json(value)
    if kind == "peer":
        from efattn import baselines

        kinds = {peer.__name__: peer for peer in baselines.BASELINES}
        return kinds[value["kind"]](**{name: restored(x) for name, x in value["settings"].items()})
    if kind == "tuple":
        return tuple(restored(x) for x in value)
    return {restored(key): restored(x) for key, x in value}


def _check_sizes(parameters: Any, family: Product | None, tensors: Mapping[str, Tensor]) -> None:
    """No size can honestly exceed what the file holds."""
    most = max((x.numel() for x in tensors.values()), default=0)
    for name in ("layers", "heads", "width", "feed_forward", "lags"):
        size, limit = parameters.get(name), len(tensors) if name == "layers" else most
        if isinstance(size, int) and size > limit:
            raise DataError(f"{name}={size} does not fit its tensors")
    for part in () if family is None else family.parts:
        size = part.columns**2 if isinstance(part, MultivariateGaussian) else getattr(part, "levels", 0)
        if size > 2 * most:
            raise DataError(f"{part!r} does not fit its tensors")


def _check_schema(schema: Schema, family: Product | None, about: dict[str, Any]) -> None:
    """That its parts belong together."""
    values, items, fitted = schema.roles.of("value"), schema.vocabulary, schema.standardiser
    sizes = () if items is None else {len(column) for column in items.known.columns}
    wrong = items is not None and (items.columns != schema.roles.of("item") or len(sizes) != 1)
    wrong |= family is not None and family.columns != len(values)
    wrong |= not set(about["terms"]) <= {"item", "value"} or about["support"] not in ("all", "distinct")
    wrong |= ("item" in about["terms"] and items is None) or ("value" in about["terms"] and family is None)
    if fitted is not None:
        wrong |= not len(fitted.methods) == len(fitted.centre) == len(fitted.scale) == len(values)
        wrong |= not bool((fitted.scale > 0).all())
        by_item, known = fitted.item_centre, 0 if items is None else len(items)
        wrong |= ("item" in fitted.methods) != (by_item is not None)
        wrong |= by_item is not None and by_item.shape != (known + 1, len(values))
    if wrong:
        raise DataError("its columns, items and values do not belong together")


def _within(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): x for name, x in tensors.items() if name.startswith(prefix)}
