"""Held-out log-likelihood per target of a fitted model, beside what is easily had.

    network     the networks alone, without companions
    latent      a latent factor model, fitted quickly to the same training groups
    marginal    each item's own distribution, whatever the context; of items, how often each is met

All are scored on the same held-out targets, on the same support, in the table's units. Where each group is held out
once, by what was fitted to the other folds.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, final

import torch
from torch import Tensor

from efattn.data import Batch
from efattn.errors import DataError, EfattnError
from efattn.estimators.base import GroupEstimator
from efattn.estimators.blueprint import Blueprint
from efattn.estimators.companions import check_suits, fitted_simple
from efattn.estimators.latent_factor import LatentFactor
from efattn.estimators.looking import mean_log_jacobian
from efattn.inference import Fitted, Part
from efattn.inference.mixture import log_probs
from efattn.models import Conditionals, Model
from efattn.network import without_orders
from efattn.simple import ItemMean, Popularity, Recipe
from efattn.training import Fitting, Training

QUICK_STEPS = 1000
Means = dict[str, float | None]


@final
class Marginal(Conditionals):
    """One f for every target."""

    f: Tensor

    def start(self, batch: Batch) -> None:
        self.f = self.marginal(batch)

    def raw_outputs(self, batch: Batch, slots: Tensor) -> Tensor:
        return self.f.float().expand(*slots.shape, -1)


def verdict(estimator: GroupEstimator, blueprint: Blueprint) -> dict[str, Means]:
    """{term: {"model", "network", "latent", "marginal"}}; nothing where no group was held out. network is None where
    there is nothing beside it, latent where there is no latent factor model of such a term, or the estimator is one."""
    pairs = list(zip(blueprint.light().parts, estimator.first_fits_, strict=False))
    if any(part.held is None for part, _ in pairs):
        return {}
    names = estimator.fitted_.names
    return {name: _means([_scores(estimator, part, first, name) for part, first in pairs]) for name in names}


def _means(parts: Sequence[dict[str, tuple[float, float] | None]]) -> Means:
    """Of sums and weights; of what one part lacks, nothing."""
    means: Means = {}
    for kind in parts[0]:
        sums = [part[kind] for part in parts]
        known = [pair for pair in sums if pair is not None]
        weight = sum(weight for _, weight in known)
        means[kind] = sum(total for total, _ in known) / weight if len(known) == len(sums) and weight else None
    return means


def _scores(
    estimator: GroupEstimator, part: Blueprint, first: Fitted, name: str
) -> dict[str, tuple[float, float] | None]:
    """Sum and weight of the log-likelihoods of held-out targets."""
    options, held, parts = estimator.training or Training(), part.held, first.parts(name)
    assert held is not None
    term = parts[0].model
    latent = None if isinstance(estimator, LatentFactor) else _latent(estimator, part, term.of_items, options)
    alone = first.networks_alone().parts(name) if first.companions.get(name) else ()
    scored: dict[str, Sequence[Part]] = {"model": parts, "network": alone}
    scored["latent"] = [] if latent is None else [Part(latent, 1.0)]
    scored["marginal"] = [Part(_marginal(estimator, part, term), 1.0)]
    extra = 0.0 if term.of_items else mean_log_jacobian(part, held)
    sums: dict[str, tuple[float, float] | None] = {}
    for kind, several in scored.items():
        values, weight, _ = log_probs(several, held, options.cells) if several else (torch.zeros(0),) * 3
        sums[kind] = (float((values + extra) @ weight), float(weight.sum())) if several else None
    return sums


def _marginal(estimator: GroupEstimator, part: Blueprint, term: Conditionals) -> Conditionals:
    """By item where that can be, else one of all."""
    recipe: Recipe = Popularity() if term.of_items else ItemMean()
    try:
        check_suits(recipe, part)
        return fitted_simple(recipe, part, estimator.context, Training(), 0)
    except EfattnError:  # several columns, or an exposure
        pooled = Marginal(term.family, without_orders(term.context), term.support)
        assert part.train is not None
        pooled.start(part.train.flat())
        return pooled


def _latent(estimator: GroupEstimator, blueprint: Blueprint, of_items: bool, options: Training) -> Conditionals | None:
    same: dict[str, Any] = {"context": without_orders(estimator.context), "seed": estimator.seed}
    latent = LatentFactor(neighbours=getattr(estimator, "neighbours", None), **same)
    mine = replace(blueprint, terms=("item" if of_items else "value",))
    try:
        model: Model = latent._build(mine)
    except DataError:
        return None
    assert blueprint.train is not None
    quick = replace(options, steps=min(options.planned_steps, QUICK_STEPS))
    fitting = Fitting(model, blueprint.train, blueprint.held, quick, estimator.seed)
    fitting.run()
    if fitting.interrupted:
        raise KeyboardInterrupt
    return model[model.terms[0]]
