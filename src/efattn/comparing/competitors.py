"""Who competes: EFA, latent factors, and every simple model that the table suits.

    recipe.build(setting)  a model: it competes      a DataError: it is out, and its words are the reason

All have the same context, terms, support, lags and seed, and in each fold the family that was chosen for EFA on the
training groups. What chooses its own penalties within its training groups gets them all; what is stopped by groups held
out holds a fifth of them out, and is fitted once more to all where it can be.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

from efattn import simple
from efattn.declared import described
from efattn.errors import DataError, named, option
from efattn.estimators import EFA, LatentFactor, SimpleModel, companions, saving
from efattn.estimators.base import GroupEstimator
from efattn.estimators.blueprint import Blueprint
from efattn.network import without_orders
from efattn.options import EFAOptions, LatentFactorOptions, SimpleModelOptions
from efattn.simple import DirectlyFitted, Recipe

PEERS = "peers"  # in a list of models: latent factors and every simple model
SHARED = ("context", "support", "own_time", "own_attributes", "seed", "training")  # options that all have alike
SHARE = 0.2  # of the training groups, held out where training has to be stopped
MOST_NUMBERS = 1_000_000  # in a simple model that nobody asked for by name


@final
@dataclass(frozen=True)
class Competitor:
    """estimator: not fitted; validation: what its fit holds out, auto as fit has it."""

    name: str
    estimator: GroupEstimator
    validation: float | str | None = "auto"

    def with_family(self, family: Any) -> GroupEstimator:
        """One of its own for a fold."""
        estimator = type(self.estimator)(**self.estimator.get_params(deep=False))
        return estimator if family is None else estimator.set_params(family=family)


def reference(models: Sequence[Any] | None, options: dict[str, Any]) -> EFA:
    """The EFA that all others are compared with."""
    given = [one for one in models or () if isinstance(one, EFA)]
    if given and options:
        name = next(iter(options))
        raise DataError(f"{option(name)} is given beside an EFA of your own: set it there.", option=name)
    for name in options:
        if name not in described(EFAOptions):
            raise DataError(f"There is no option {name!r} of EFA. There are {', '.join(described(EFAOptions))}.")
    return given[0] if given else EFA(**options)


def check(models: Sequence[Any] | None) -> None:
    """A DataError for what is no model, before anything is computed."""
    for one in [] if models is None else _sequence(models):
        if not isinstance(one, str):
            _name(one)
        elif one.lower() not in (PEERS, "efa"):
            _word(one)


def competitors(
    models: Sequence[Any] | None, efa: EFA, blueprint: Blueprint
) -> tuple[list[Competitor], dict[str, str]]:
    """Those that compete, EFA first, and of the others why they do not."""
    chosen, out, seen = list[Competitor](), dict[str, str](), set[str]()
    for one, asked in _listed(models, efa, blueprint):
        name = _name(one)
        while name in seen:
            name += "'"
        seen.add(name)
        try:
            chosen.append(_competitor(name, one, efa, blueprint, asked))
        except DataError as error:
            if isinstance(one, EFA):
                raise
            out[name] = str(error)
    return chosen, out


def _listed(models: Sequence[Any] | None, efa: EFA, blueprint: Blueprint) -> list[tuple[Any, bool]]:
    """Each model as an estimator or a recipe, EFA first, and whether it was asked for by itself."""
    listed: list[tuple[Any, bool]] = [(efa, True)]
    for one in [PEERS] if models is None else _sequence(models):
        if isinstance(one, str) and one.lower() == PEERS:
            terms, suited = blueprint.terms, list[Recipe]()
            suited += [recipe() for recipe in simple.RECIPES if recipe.models in terms]
            suited += [
                one for one in companions.variants(blueprint.schema.positions is not None) if one.models in terms
            ]
            listed += [(LatentFactor, False), *((recipe, False) for recipe in suited)]
        elif isinstance(one, str):
            listed += [] if one.lower() == "efa" else [(_word(one), True)]
        elif one is not efa:
            listed.append((one, True))
    return listed


def _sequence(models: Any) -> list[Any]:
    return list(models) if isinstance(models, list | tuple) else [models]


def _word(word: str) -> Any:
    if word.lower().replace("_", "").replace("-", "").replace(" ", "") == "latentfactor":
        return LatentFactor
    try:
        return simple.named(word)
    except DataError as error:
        raise DataError(f"{error.text} Besides: EFA, LatentFactor, {PEERS}.", option="models") from None


def _name(one: Any) -> str:
    """As short as it is clear."""
    if one is LatentFactor:
        return "LatentFactor"
    recipe = one.model if isinstance(one, SimpleModel) else one
    if isinstance(recipe, Recipe):
        usual = [type(recipe)(), *companions.variants(positions=True)]
        return recipe.label if recipe in usual else repr(recipe)
    if isinstance(one, GroupEstimator):
        return type(one).__name__
    raise DataError(
        f"{named('models')} are an EFA, LatentFactor or SimpleModel, one of efattn.simple, or the name of one; found "
        f"{one!r}.",
        option="models",
    )


def _same(efa: EFA, options: type, *more: str) -> dict[str, Any]:
    """What all have as EFA has it."""
    known = described(options)
    same = {name: getattr(efa, name) for name in (*SHARED, *more) if name in known}
    return same | {"context": without_orders(efa.context)}


def _competitor(name: str, one: Any, efa: EFA, blueprint: Blueprint, asked: bool) -> Competitor:
    if isinstance(one, EFA):
        return Competitor(name, one)
    if one is LatentFactor:
        one = LatentFactor(refit="auto", **_same(efa, LatentFactorOptions, "terms", "neighbours"))
    if isinstance(one, LatentFactor):
        if efa.lags:
            raise DataError(f"A latent factor model sees no lags: leave it or {option('lags')} out.", option="lags")
        with saving.without_memory():
            one._terms(blueprint)
        return Competitor(name, one)
    estimator = (
        one if isinstance(one, SimpleModel) else SimpleModel(one, refit=True, **_same(efa, SimpleModelOptions, "lags"))
    )
    companions.check_suits(estimator.model, blueprint)
    with saving.without_memory():
        model = estimator.model.build(blueprint.setting(estimator.model.models, efa.context))
    numbers = sum(x.numel() for x in (*model.buffers(), *model.parameters()))
    if numbers > MOST_NUMBERS and not asked:
        raise DataError(f"It has {numbers:,} numbers, which takes long: name it in {named('models')} to have it.")
    return Competitor(name, estimator, None if isinstance(model, DirectlyFitted) else SHARE)
