"""A model that `save` wrote, ready to be asked.

Reading builds the network without memory of its own and takes the file's tensors only where names and shapes agree,
so that what a file claims about itself cannot cost more than the file is large. All that a file says is checked here,
so that a model which loads can be asked anything.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from efattn import families, storage
from efattn.data import Schema
from efattn.errors import DataError, EfattnError, ModelFileError, Note
from efattn.estimators import file_checks, old_files
from efattn.estimators.base import GroupEstimator
from efattn.estimators.blueprint import Blueprint
from efattn.estimators.efa import EFA
from efattn.estimators.growing import grown
from efattn.estimators.latent_factor import LatentFactor
from efattn.estimators.saving import companion_prefix, prefix, without_memory
from efattn.estimators.simple_model import SimpleModel
from efattn.families import Categorical, Product
from efattn.inference import Companion, Fitted
from efattn.models import Conditionals, Model, Term
from efattn.simple.levels import Levels
from efattn.simple.linear import NEW_PLACES
from efattn.simple.new_places import Known
from efattn.training import Training

KINDS = {kind.__name__: kind for kind in (EFA, LatentFactor, SimpleModel)}
# tensors that older files do not have: of format 1; of scales of groups and residuals; of new places; of levels
LEVELS = tuple(f"levels_{name}" for name in Levels._fields)
RECENT = ("marginal_fit", "tails", "scaled", "sloped", "dispersed", "bends")
LATER = (*RECENT, *(f"known_{name}" for name in Known._fields), *NEW_PLACES, *LEVELS)
TOGETHER = "together_"  # likewise, of cells that are missing
VIEWS = {"views.logs": False, "views.unit": 1.0, "views.centre": 0.0, "views.scale": 1.0}  # of values as they are


def load(path: str | Path) -> Any:
    """A model that `save` wrote, ready to predict."""
    if not isinstance(path, str | Path):
        raise ModelFileError(f"A model is loaded from a file, such as 'model.efattn'; found {path!r}.")
    about, tensors = storage.read(path, "model")
    try:
        return _rebuilt(about, tensors)
    except (LookupError, TypeError, ValueError, AttributeError, RuntimeError, ArithmeticError, EfattnError) as error:
        reason = str(error).strip().split("\n")[0] or type(error).__name__
        reason = f"there is no {reason} in it" if isinstance(error, KeyError) else reason.rstrip(".")
        raise ModelFileError(f"{str(path)!r} is no usable model: {reason}. Save it again, or fit anew.") from error


def _rebuilt(about: dict[str, Any], tensors: Mapping[str, Tensor]) -> GroupEstimator:
    family = None if about["family"] is None else families.from_json(about["family"])
    if family is not None and not isinstance(family, Product):
        raise DataError("the family of the value columns is a product")
    file_checks.check_sizes(about["parameters"], family, tensors)
    kind, parameters = old_files.renewed(about["estimator"], restored(about["parameters"]))
    if kind not in KINDS:
        raise DataError(f"this efattn knows no {kind!r}. Install a newer one")
    estimator: GroupEstimator = KINDS[kind](**parameters)
    estimator._check()
    schema = Schema.from_saved(about["schema"], _within(tensors, "schema."))
    file_checks.check_schema(schema, family, about, estimator)
    network = file_checks.checked_network(about.get("network", {}), estimator, tensors)
    blueprint = Blueprint(
        schema, family, about["support"], tuple(about["terms"]), int(about["longest"]), network=network
    )
    number = about.get("members", 1)
    named = {name.split(".")[1] for name in tensors if name.startswith("member.")}
    if isinstance(number, bool) or not isinstance(number, int) or number != 1 + len(named):
        raise DataError("it has other members than it says")
    models = tuple(_member(estimator, blueprint, about, tensors, k) for k in range(number))
    file_checks.check_history(about, models[0].terms)
    layout = file_checks.wide(about.get("wide"), schema)
    estimator.fitted_ = Fitted(
        estimator=kind,
        parameters=estimator.get_params(deep=False),
        schema=schema,
        family=family,
        support=about["support"],
        terms=blueprint.terms,
        longest=blueprint.longest,
        members=models,
        companions=_companions(blueprint, models[0], about, tensors),
        history=tuple(about["history"]),
        notes=tuple(Note.from_json(note) for note in about["notes"]),
        sizes=about["sizes"],
        units=about.get("units", {}),
        network=network,
        frames=about.get("frames", "polars"),
        seen=file_checks.seen(tensors.get("seen.groups")),
        lengths=file_checks.lengths(tensors.get("lengths.groups")),
        calibration=file_checks.calibration(about.get("calibration", {}), schema, layout),
        wide=layout,
        held_out=file_checks.held_out(about.get("held_out", {}), models[0].terms),
        powers=file_checks.powers(about.get("powers", {}), models[0]),
        moves=file_checks.moves_of_networks(about.get("moves", {}), models[0]),
    )
    return estimator


def _member(
    estimator: GroupEstimator, blueprint: Blueprint, about: Mapping[str, Any], tensors: Mapping[str, Tensor], k: int
) -> Model:
    mine, priors = dict(_within(tensors, prefix(k))), about.get("prior", {})
    with without_memory():
        terms = estimator._terms(blueprint)
        for number, (name, term) in enumerate(list(terms.items())):
            old = {"peer": restored(priors[name]["peer"]), "items": priors[name]["items"]} if name in priors else None
            new = about.get("offsets", {}).get(name)
            if old is None and new is None:
                continue
            origin = old or {"peer": old_files.recipe_of(new["recipe"]), "items": new["items"]}
            if not isinstance(term, Term):
                raise DataError(f"its term {name!r} takes no prior")
            setting = blueprint.setting("item" if term.of_items else "value", term.context)
            terms[name] = old_files.WithOffset(term, old_files.in_other_units(origin, setting))
            if old is not None:
                here = f"parts.{number}."
                inside = {name_: mine.pop(name_) for name_ in list(mine) if name_.startswith(here)}
                mine |= {f"{here}network.{name_.removeprefix(here)}": x for name_, x in inside.items()}
                mine |= {f"{here}inside": mine[f"{here}network.inside"]}
                simple_tensors = old_files.renamed(tensors, f"prior.{number}.")
                mine |= {f"{here}simple.{name_}": x for name_, x in simple_tensors.items()}
                mine |= {f"{here}simple.inside": mine[f"{here}network.inside"]}
        model = Model(terms)
    fill(model, mine)
    return model.eval()


def _companions(
    blueprint: Blueprint,
    model: Model,
    about: Mapping[str, Any],
    tensors: Mapping[str, Tensor],
) -> dict[str, tuple[Companion, ...]]:
    companions: dict[str, tuple[Companion, ...]] = {}
    for name, told in about.get("beside", {}).items():
        term = model[name]
        setting = blueprint.setting("item" if term.of_items else "value", term.context)
        origin = {"peer": restored(told["origin"]["peer"]), "items": told["origin"]["items"]}
        mine = old_files.renamed(tensors, f"prior.{model.terms.index(name)}.")
        inside = {"inside": torch.as_tensor(term.get_buffer("inside"))}
        with without_memory():
            simple = old_files.in_other_units(origin, setting)
        fill(simple, mine | inside)
        companions[name] = (Companion(simple.recipe, _still(simple), file_checks.share(told["share"])),)
    for name, several in about.get("companions", {}).items():
        number, made = model.terms.index(name), list[Companion]()
        for k, told in enumerate(several):
            simple_model = _companion(blueprint, model[name], told, _within(tensors, companion_prefix(number, k)))
            new = told.get("new_share")  # older files have none
            new = None if new is None else file_checks.share(new)
            holes = file_checks.hole_shares(told.get("hole_shares", ()))
            power = file_checks.power(told.get("power", 0.0))
            moves = file_checks.moves(told.get("moves", ()))
            made.append(Companion(*simple_model, file_checks.share(told["share"]), new, holes, power, moves))
        file_checks.check_shares(made)
        companions[name] = tuple(made)
    return companions


def _companion(
    blueprint: Blueprint, term: Conditionals, told: Mapping[str, Any], tensors: Mapping[str, Tensor]
) -> tuple[Any, Conditionals]:
    recipe, items = old_files.recipe_of(told["recipe"]), told["items"]
    setting = blueprint.setting(recipe.models, term.context)
    if (recipe.models == "item") != term.of_items or isinstance(items, bool) or not isinstance(items, int):
        raise DataError("its companion is not of the same term")
    if not 0 <= items <= (max(setting.items, 2) if term.of_items else setting.items):
        raise DataError("its companion knows other items")
    family = Categorical(items) if term.of_items else setting.family
    known = replace(setting, family=family, items=items)
    with without_memory():
        if told.get("other_units"):
            simple: Conditionals = old_files.in_other_units({"peer": recipe, "items": items}, setting)
        else:
            simple = recipe.build(known)
    fill(simple, tensors)
    return recipe, grown(_still(simple), term.family)


def _still(model: Conditionals) -> Conditionals:
    return model.eval().requires_grad_(False)


def fill(module: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Take a file's tensors, where names and shapes agree."""
    mine = dict(tensors)
    for name, x in module.state_dict().items():
        if name not in mine and (name.endswith(LATER) or name.startswith(TOGETHER)):
            mine[name] = torch.zeros(x.shape, dtype=x.dtype)
        seen = next((as_is for end, as_is in VIEWS.items() if name.endswith(end)), None)
        if name not in mine and seen is not None:
            mine[name] = torch.full(x.shape, seen, dtype=x.dtype)
        if name not in mine or mine[name].shape != x.shape or mine[name].dtype != x.dtype:
            raise DataError(f"its tensor {name!r} is missing or of another shape")
    extra = sorted(mine.keys() - module.state_dict().keys())
    if extra:
        raise DataError(f"its tensor {extra[0]!r} belongs to nothing")
    module.load_state_dict(mine, assign=True)


def restored(saved: Any) -> Any:
    """What `plain` wrote."""
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
    if kind in ("recipe", "peer"):
        settings = {name: restored(x) for name, x in value["settings"].items()}
        return old_files.recipe_of({"kind": value["kind"], "settings": settings})
    if kind == "tuple":
        return tuple(restored(x) for x in value)
    return {restored(key): restored(x) for key, x in value}


def _within(tensors: Mapping[str, Tensor], start: str) -> dict[str, Tensor]:
    return {name.removeprefix(start): x for name, x in tensors.items() if name.startswith(start)}
