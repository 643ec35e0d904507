"""Held-out log-likelihood per target of a fitted model, beside two that are easily had.

    latent      a latent factor model, fitted quickly to the same training groups
    marginal    the one distribution that fits the training targets best, whatever the context

All three are scored on the same held-out targets, on the same support, in the table's units.
"""

from dataclasses import replace
from typing import Any, final

from torch import Tensor

from efattn.data import Batch
from efattn.errors import DataError
from efattn.estimators.base import GroupEstimator
from efattn.estimators.blueprint import Blueprint, mean_log_jacobian
from efattn.estimators.latent_factor import LatentFactor
from efattn.inference import Part
from efattn.inference.mixture import mean_log_prob
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


def verdict(estimator: GroupEstimator, blueprint: Blueprint) -> dict[str, dict[str, float | None]]:
    """{term: {"model", "latent", "marginal"}}; nothing where no group was held out. latent is None where there is no
    latent factor model of such a term, or the estimator is one itself."""
    held, train, verdicts = blueprint.held, blueprint.train, dict[str, dict[str, float | None]]()
    if held is None or train is None:
        return verdicts
    options, fitted = estimator.training or Training(), estimator.first_fit_
    for name in fitted.names:
        parts = fitted.parts(name)
        term = parts[0].model
        marginal = Marginal(term.family, term.context, term.support)
        marginal.start(train.flat())
        latent = None if isinstance(estimator, LatentFactor) else _latent(estimator, blueprint, term.of_items, options)
        scored: dict[str, Any] = {"model": parts, "marginal": [Part(marginal, 1.0)]}
        scored["latent"] = [] if latent is None else [Part(latent, 1.0)]
        extra = 0.0 if term.of_items else mean_log_jacobian(blueprint, held)
        means = {k: mean_log_prob(parts, held, options.tokens) if parts else None for k, parts in scored.items()}
        verdicts[name] = {k: None if mean is None else mean + extra for k, mean in means.items()}
    return verdicts


def _latent(estimator: GroupEstimator, blueprint: Blueprint, of_items: bool, options: Training) -> Conditionals | None:
    same: dict[str, Any] = {"context": estimator.context, "seed": estimator.seed}
    latent = LatentFactor(neighbours=getattr(estimator, "neighbours", None), **same)
    mine = replace(blueprint, terms=("item" if of_items else "value",))
    try:
        model: Model = latent._build(mine)
    except DataError:
        return None
    assert blueprint.train is not None
    quick = replace(options, steps=min(options.steps, QUICK_STEPS))
    fitting = Fitting(model, blueprint.train, blueprint.held, quick, estimator.seed)
    fitting.run()
    if fitting.interrupted:
        raise KeyboardInterrupt
    return model[model.terms[0]]
