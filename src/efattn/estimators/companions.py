"""Companions: simple models that predict together with the networks.

    p(y) = (1 - sum_k s_k) p_networks(y) + sum_k s_k p_k(y),     s = argmax of the held-out log-likelihood

They are fitted once, to the training groups; how much each is shrunk, and its share of the mixture, is what held-out
groups like best. A network is never trained against them: a mixture lives on difference.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from efattn.errors import DataError, EfattnError, Note, named, option
from efattn.estimators.blueprint import Blueprint
from efattn.inference import Companion, Part, mixture
from efattn.models import Conditionals, Model
from efattn.network import Context
from efattn.simple import DirectlyFitted, GaussianConditional, Recipe
from efattn.simple.base import TOKENS
from efattn.training import Fitting, Training

if TYPE_CHECKING:
    from efattn.estimators.progress import Stages

log = logging.getLogger("efattn")
CELLS, WORK = 300, 2e9  # items and lags, and their cubes over all groups, for a simple model to be tried unasked
LEAST = 0.005  # a smaller share is none
ROUNDS = 300


def check(asked: Any) -> None:
    """A DataError for companions that cannot be."""
    if asked is None or (isinstance(asked, str) and asked == "auto"):
        return
    several = asked if isinstance(asked, list | tuple) else [asked]
    for one in several:
        if not isinstance(one, Recipe):
            raise DataError(
                f"{named('companions')} is 'auto', None, a simple model such as efattn.simple.ShrunkMean(), or several "
                f"in a list; found {one!r}.",
                option="companions",
            )


def fitted_companions(
    asked: Any, blueprint: Blueprint, context: Context, options: Training, seed: int, stages: "Stages | None" = None
) -> dict[str, list[tuple[Recipe, Conditionals]]]:
    """By term, those asked for. With "auto" they are no more than an offer, so that a table which one cannot be fitted
    to has none."""
    auto = isinstance(asked, str)
    recipes = (
        _offers(blueprint) if auto else [] if asked is None else asked if isinstance(asked, list | tuple) else [asked]
    )
    found: dict[str, list[tuple[Recipe, Conditionals]]] = {}
    for recipe in recipes:
        try:
            model = fitted_simple(recipe, blueprint, context, options, seed, stages)
        except (EfattnError, ArithmeticError, RuntimeError, ValueError) as error:
            if not auto:
                raise
            log.debug("No simple model beside the network: %s", error)
            continue
        found.setdefault(blueprint.term_name(recipe.models), []).append((recipe, model))
    return found


def fitted_simple(
    recipe: Recipe,
    blueprint: Blueprint,
    context: Context,
    options: Training,
    seed: int,
    stages: "Stages | None" = None,
) -> Conditionals:
    """A simple model, fitted to the training groups."""
    check_suits(recipe, blueprint)
    model = recipe.build(blueprint.setting(recipe.models, context))
    assert blueprint.train is not None
    kind = type(recipe).__name__
    tick = None if stages is None else lambda done, of: stages.tick(kind, done, of)
    if isinstance(model, DirectlyFitted):
        model.fit(blueprint.train, blueprint.held, tick)
        return model.eval().requires_grad_(False)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model.start(blueprint.train.flat())
    fitting = Fitting(Model({kind: model}), blueprint.train, blueprint.held, replace(options, jobs=1), seed)
    fitting.tick = None if stages is None else stages.tick
    fitting.run()
    if fitting.interrupted:
        raise KeyboardInterrupt
    return model.eval().requires_grad_(False)


def check_suits(recipe: Recipe, blueprint: Blueprint) -> None:
    """A DataError where a simple model cannot know what the table has."""
    kind, roles = type(recipe).__name__, blueprint.schema.roles
    if recipe.models not in blueprint.terms:
        raise DataError(
            f"{kind} is a model of {recipe.models}s, and only the {blueprint.terms[0]} term is modelled. Choose "
            f"another, or other {option('terms')}.",
            option="companions",
        )
    if recipe.models == "value" and roles.exposure is not None:
        raise DataError(f"{kind} takes no exposure: leave {kind} or {option('exposure')} out.", option="exposure")


def with_shares(
    blueprint: Blueprint, models: Sequence[Model], proposed: Mapping[str, Sequence[tuple[Recipe, Conditionals]]]
) -> tuple[dict[str, tuple[Companion, ...]], list[Note]]:
    """What share of the mixture each gets, and that in words."""
    companions, notes = dict[str, tuple[Companion, ...]](), list[Note]()
    for name, offers in proposed.items():
        networks = [Part(model[name], 1 / len(models)) for model in models]
        columns = [networks, *([Part(model, 1.0)] for _, model in offers)]
        held = blueprint.held if blueprint.held is not None and len(blueprint.held) else None
        scores = [] if held is None else [mixture.log_probs(parts, held, TOKENS) for parts in columns]
        if not scores or not float(scores[0][1].sum()):
            shares = [1 / (len(offers) + 1)] * len(offers)
            notes.append(Note("companions", f"Companions of {name!r} share equally: no held-out row to choose by."))
        else:
            table, weight = torch.stack([values for values, _ in scores], 1), scores[0][1]
            shares = best_shares(table, weight)[1:].tolist()
            notes.append(_words(name, offers, shares, table, weight))
        kept = [Companion(recipe, model, share) for (recipe, model), share in zip(offers, shares, strict=True) if share]
        if kept:
            companions[name] = tuple(kept)
    return companions, notes


@torch.no_grad()
def best_shares(scores: Tensor, weight: Tensor) -> Tensor:
    """(component,): maximises sum_i w_i log sum_k s_k exp(scores_ik), by expectation-maximisation; concave, so that it
    finds the best. Small shares are none."""
    finite = scores.clamp_min(-1e30)
    share = torch.full((scores.shape[1],), 1 / scores.shape[1], dtype=torch.float64)
    for _ in range(ROUNDS):
        mine = (finite + share.clamp_min(1e-300).log()).softmax(1)
        new = weight @ mine / weight.sum().clamp_min(1e-300)
        if float((new - share).abs().max()) < 1e-5:
            break
        share = new
    share = torch.where(share < LEAST, 0.0, share)
    return share / share.sum()


def _words(
    name: str, offers: Sequence[tuple[Recipe, Any]], shares: Sequence[float], scores: Tensor, weight: Tensor
) -> Note:
    all_shares = torch.tensor([1 - sum(shares), *shares], dtype=torch.float64)
    together = (scores + all_shares.clamp_min(1e-300).log()).logsumexp(1)
    alone, both = (float(x @ weight / weight.sum().clamp_min(1e-300)) for x in (scores[:, 0], together))
    told = f"log-likelihood per held-out target: networks alone {alone:.4f}"
    parts = [f"{type(recipe).__name__} {share:.0%}" for (recipe, _), share in zip(offers, shares, strict=True) if share]
    if not parts:
        return Note("companions", f"A simple model beside the network of {name!r} does not help ({told}).")
    words = (
        f"Shares of the mixture of {name!r}: {', '.join(parts)}, the rest the network's ({told}, together {both:.4f})"
    )
    return Note("companions", f"{words}; {option('companions', None)} is the network alone.", option="companions")


def _offers(blueprint: Blueprint) -> list[Recipe]:
    """A Gaussian beside the networks, where it is quickly fitted and there are groups to choose its share by."""
    cells = blueprint.items * (blueprint.schema.lags + 1)
    groups = 0 if blueprint.train is None else len(blueprint.train)
    small = 1 < cells <= CELLS and float(cells) ** 3 * groups <= WORK
    held = blueprint.held is not None and len(blueprint.held) > 0
    return [GaussianConditional()] if "value" in blueprint.terms and held and small else []
