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
from efattn.estimators import saving
from efattn.estimators.blueprint import Blueprint, mean_log_jacobian
from efattn.inference import Companion, Part, mixture
from efattn.models import Conditionals, Model
from efattn.network import Context
from efattn.simple import AdditiveLogit, DirectlyFitted, GaussianConditional, LinearModel, Recipe
from efattn.simple.base import TOKENS
from efattn.training import Fitting, Training

if TYPE_CHECKING:
    from efattn.estimators.progress import Stages

log = logging.getLogger("efattn")
CELLS, WORK = 300, 2e9  # items and lags, and their cubes over all groups, for a Gaussian to be tried unasked
ITEMS, LOGITS = 30_000, 4e9  # for an additive logit: items, and items times rows, which an epoch computes
EPOCHS = 100  # of a simple model that is trained as networks are
LEAST = 0.005  # of all targets: what explains fewer has no share
FEW, ROUNDS = 5, 2000  # groups that decide half of what many would


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


def recipes(asked: Any, blueprint: Blueprint, context: Context) -> list[Recipe]:
    """Those asked for; a DataError, before anything is trained, for one that cannot know what the table has."""
    if isinstance(asked, str):
        return _offers(blueprint)
    several = [] if asked is None else list(asked) if isinstance(asked, list | tuple) else [asked]
    for recipe in several:
        check_suits(recipe, blueprint)
        with saving.without_memory():
            recipe.build(blueprint.setting(recipe.models, context))
    return several


def fitted_companions(
    recipes: Sequence[Recipe],
    blueprint: Blueprint,
    context: Context,
    options: Training,
    seed: int,
    *,
    offers: bool,
    stages: "Stages | None" = None,
) -> dict[str, list[tuple[Recipe, Conditionals]]]:
    """By term. Those that were not asked for are offers, so that a table which one cannot be fitted to does without."""
    fitted: dict[str, list[tuple[Recipe, Conditionals]]] = {}
    for recipe in recipes:
        try:
            model = fitted_simple(recipe, blueprint, context, options, seed, stages)
        except (EfattnError, ArithmeticError, RuntimeError, ValueError) as error:
            if not offers:
                raise
            log.debug("No simple model beside the network: %s", error)
            continue
        fitted.setdefault(blueprint.term_name(recipe.models), []).append((recipe, model))
    return fitted


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
    fitting = Fitting(Model({kind: model}), blueprint.train, blueprint.held, _calm(options), seed)
    fitting.tick = None if stages is None else stages.tick
    fitting.run()
    if fitting.interrupted:
        raise KeyboardInterrupt
    return model.eval().requires_grad_(False)


def _calm(options: Training) -> Training:
    """A simple model is trained until it gets no better, and not for as long as a network may be."""
    epochs = None if options.epochs is None else min(options.epochs, EPOCHS)
    patience = "auto" if options.patience is None else options.patience
    return replace(options, jobs=1, draws=None, epochs=epochs, patience=patience)


def fitted_again(companion: Companion, whole: Blueprint, context: Context, stages: "Stages | None" = None) -> Companion:
    """To all groups, shrunk as much as before, with the same share. What is trained by steps stays as it is."""
    recipe, model = companion.recipe, companion.model
    if not isinstance(model, DirectlyFitted):
        return companion
    chosen = model.chosen_options()
    again = fitted_simple(replace(recipe, **chosen), whole, context, Training(), 0, stages)  # type: ignore[type-var]
    return companion._replace(model=again)


def check_suits(recipe: Recipe, blueprint: Blueprint) -> None:
    """A DataError where a simple model cannot know what the table has."""
    kind, roles = type(recipe).__name__, blueprint.schema.roles
    if recipe.models not in blueprint.terms:
        raise DataError(
            f"{kind} is a model of {recipe.models}s, and only the {blueprint.terms[0]} term is modelled. Choose "
            f"another, or other {option('terms')}.",
            option="companions",
        )
    if recipe.models == "value" and roles.exposure is not None and not recipe.exposure:
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
        if held is None or not float(scores[0][1].sum()):
            shares = [1 / (len(offers) + 1)] * len(offers)
            notes.append(Note("companions", f"Companions of {name!r} share equally: no held-out row to choose by."))
        else:
            table, weight = torch.stack([values for values, _ in scores], 1), scores[0][1]
            shares = best_shares(table, weight, len(held))[1:].tolist()
            units = mean_log_jacobian(blueprint, held) if name == blueprint.value_name else 0.0
            notes.append(_words(name, offers, shares, table + units, weight))
        kept = [Companion(recipe, model, share) for (recipe, model), share in zip(offers, shares, strict=True) if share]
        if kept:
            companions[name] = tuple(kept)
    return companions, notes


@torch.no_grad()
def best_shares(scores: Tensor, weight: Tensor, groups: int) -> Tensor:
    """(component,): maximises sum_i w_i log sum_k s_k exp(scores_ik) + a sum_k log s_k by expectation-maximisation,
    where a is 1 for no group and falls as groups grow: a few of them decide little, many decide. It is concave, so that
    this finds the best; a component that explains hardly any target gets nothing."""
    finite, parts, count = scores.clamp_min(-1e30), scores.shape[1], float(weight.sum())
    extra = FEW / (FEW + groups)
    share = torch.full((parts,), 1 / parts, dtype=torch.float64)
    for _ in range(ROUNDS):
        mine = (finite + share.clamp_min(1e-300).log()).softmax(1)
        new = (weight @ mine + extra) / (count + parts * extra)
        moved, share = float((new - share).abs().max()), new
        if moved < 1e-6:
            break
    share = torch.where(share * (count + parts * extra) < extra + LEAST * count, 0.0, share)
    return share / share.sum() if float(share.sum()) else torch.eye(parts, dtype=torch.float64)[0]


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
    """What is tried unasked, where there are groups to choose shares by: a linear model of values, a Gaussian over all
    items where it is quickly fitted, an additive logit of items."""
    if blueprint.held is None or not len(blueprint.held) or blueprint.train is None:
        return []
    offers: list[Recipe] = []
    items = blueprint.items
    if "item" in blueprint.terms and items <= ITEMS and float(items) * len(blueprint.train.rows) <= LOGITS:
        offers.append(AdditiveLogit())
    if "value" in blueprint.terms:
        offers.append(LinearModel())
        cells = blueprint.items * (blueprint.schema.lags + 1)
        if 1 < cells <= CELLS and float(cells) ** 3 * len(blueprint.train) <= WORK:
            offers.append(GaussianConditional())
    return offers
