"""Held-out log-likelihood per target of a fitted model, beside two that are easily had.

    latent      a latent factor model, fitted quickly to the same training groups
    marginal    the one distribution that fits the training targets best, whatever the context

All three are scored on the same held-out targets, on the same support, in the table's units.
"""

from dataclasses import replace
from typing import Any, final

import numpy as np
from torch import Tensor

from efattn.data import Batch, Groups
from efattn.errors import DataError
from efattn.estimators.base import GroupEstimator
from efattn.estimators.latent_factor import LatentFactor
from efattn.estimators.plan import Plan, flat
from efattn.inference.mixture import mean_log_prob
from efattn.inference.rows import log_jacobian
from efattn.models import Conditionals, Model
from efattn.training import Fitting, Training

QUICK_STEPS = 1000


@final
class Marginal(Conditionals):
    """One f for every target."""

    f: Tensor

    def start(self, batch: Batch) -> None:
        self.f = self.marginal(batch)

    def raw_outputs(self, batch: Batch, slots: Tensor) -> Tensor:
        return self.f.float().expand(*slots.shape, -1)


def verdict(estimator: GroupEstimator, plan: Plan) -> dict[str, dict[str, float | None]]:
    """{term: {"model", "latent", "marginal"}}; nothing where no group was held out. latent is None where there is no
    latent factor model of such a term, or the estimator is one itself."""
    held, found = plan.held, dict[str, dict[str, float | None]]()
    if held is None:
        return found
    options = estimator.training or Training()
    for name in estimator.model_.terms:
        term = estimator.model_[name]
        marginal = Marginal(term.family, term.context, term.support)
        marginal.start(flat(plan.train))
        latent = None if isinstance(estimator, LatentFactor) else _latent(estimator, plan, term.of_items, options)
        mine = list(estimator._of_terms()[name])
        scored: dict[str, list[Conditionals]] = {"model": mine, "marginal": [marginal]}
        scored["latent"] = [] if latent is None else [latent]
        extra = _units(term, plan, held)
        means = {k: mean_log_prob(terms, held, options.tokens) if terms else None for k, terms in scored.items()}
        found[name] = {k: None if mean is None else mean + extra for k, mean in means.items()}
    return found


def _latent(estimator: GroupEstimator, plan: Plan, of_items: bool, options: Training) -> Conditionals | None:
    same: dict[str, Any] = {"context": estimator.context, "seed": estimator.seed}
    latent = LatentFactor(neighbours=getattr(estimator, "neighbours", None), **same)
    mine = replace(plan, terms=("item" if of_items else "value",))
    try:
        model: Model = latent._build(mine)
    except DataError:
        return None
    quick = replace(options, steps=min(options.steps, QUICK_STEPS))
    fitting = Fitting(model, plan.train, plan.held, quick, estimator.seed)
    fitting.run()
    if fitting.interrupted:
        raise KeyboardInterrupt
    return model[model.terms[0]]


def _units(term: Conditionals, plan: Plan, held: Groups) -> float:
    """The mean of log |dy'/dy| over the held-out targets."""
    if term.of_items or held.value is None or plan.schema.standardiser is None:
        return 0.0
    observed = ~np.isnan(held.value)
    weight = np.ones(len(observed)) if held.weight is None else held.weight
    weight = weight * (1.0 if held.target is None else held.target)
    slices = term.family.slices()  # type: ignore[union-attr]
    scored = np.stack([observed[:, columns].all(1) for _, _, columns in slices]).any(0)
    counted = weight * scored
    if not counted.sum():
        return 0.0
    return float(np.average(log_jacobian(term, plan.schema, observed), weights=counted))
