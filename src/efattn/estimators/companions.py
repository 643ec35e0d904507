"""Companions: simple models that predict together with the networks.

    p(y) = (1 - sum_k s_k) p_networks(y) + sum_k s_k p_k(y),     s by scores of held-out groups (shares.py)

They are fitted to the training groups, or without each fold in turn, and once more to all groups when all is chosen. A
network is never trained against them: a mixture lives on difference.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from statistics import median_low
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from efattn.data import Groups
from efattn.errors import FAILURES, DataError, named, option
from efattn.estimators import levels, members, saving
from efattn.estimators.blueprint import Blueprint
from efattn.inference import Companion
from efattn.inference.moved import Moves
from efattn.models import Conditionals, Model
from efattn.network import Context
from efattn.simple import (
    EASE,
    AdditiveLogit,
    DirectlyFitted,
    Forest,
    GaussianConditional,
    ItemLogit,
    ItemMean,
    ItemNeighbours,
    Kriging,
    LatePopularity,
    LinearModel,
    LinearTrees,
    MarkovChain,
    Popularity,
    Recipe,
    TwoParts,
)
from efattn.simple.logs import suits
from efattn.simple.low_rank import RANK
from efattn.simple.two_parts import law
from efattn.training import Fitting, Replay, Training

if TYPE_CHECKING:
    from efattn.estimators.progress import Stages

log = logging.getLogger("efattn")
CELLS, WORK = 300, 2e9  # items and lags, and their cubes over all groups, for every pair to have a covariance unasked
ROWS, SPARSE = 2_000_000, 4  # for factors: rows at most; beside every pair, items for each that a group has
PLACES, LEAST_ROWS, LONGEST = 8, 4, 1000  # for kriging: attributes, and rows of a usual and of the longest group
ITEMS, LOGITS, MOST = 30_000, 2e9, 10.0  # for an additive logit: items; items times rows, which an epoch computes, in
# the seconds that it usually has; times as many, at most
CATEGORIES, CASES = 100, 50_000  # for a multinomial logit: items, and rows
STATES, FOLLOWERS = 2000, 64  # items with a table of all pairs; of each, followers beyond
LAST = 5  # rows that the Markov chain of many items looks back at
TREES, GROUPS, THERE = 60, 30, 0.25  # for a forest: items at most, groups and the part of all cells at least
BRANCHES = 100  # rows, for trees of what a linear model leaves
OF_LOGS = (GaussianConditional, Forest, Kriging)  # also offered as models of logarithms
BY_POSITION = (LinearModel, LinearTrees, TwoParts, GaussianConditional, Forest)  # and with positions as items
MANY = 500  # items, from which on a low rank need not hold who goes with whom
EPOCHS = 100  # of a simple model that is trained as networks are


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
    if isinstance(asked, str) and context == "any":
        return []  # each row given all others, they have no part in a joint density
    if isinstance(asked, str):
        return _offers(blueprint, context)
    several = [] if asked is None else list(asked) if isinstance(asked, list | tuple) else [asked]
    for recipe in several:
        check_suits(recipe, blueprint)
        with saving.without_memory():
            recipe.build(blueprint.setting(recipe.models, context))
    return several


class Offer(NamedTuple):
    """A simple model that was fitted to a part of the table; replay: the steps that served, of one trained by them."""

    recipe: Recipe
    model: Conditionals
    replay: Replay | None = None


def fitted_offers(
    fitted: Sequence[dict[str, list[Offer]]],
    recipes: Sequence[Recipe],
    parts: Sequence[Blueprint],
    context: Context,
    options: Training,
    seed: int,
    *,
    offers: bool,
    stages: "Stages | None" = None,
) -> Iterator[None]:
    """One fit after the other; `fitted` has them at the end, of each part, by term. Those that were not asked for are
    offers, so that a table which one cannot be fitted to does without; so do all parts where one does."""
    for recipe in recipes:
        models = list[Offer]()
        try:
            mine = _shared_time(recipe, len(parts)) if offers else recipe
            for part, some in zip(parts, fitted, strict=True):
                before = [one.model for one in some.get(part.term_name(recipe.models), ())]
                own = mine.taking_over(before) if offers else mine
                models.append(_fitted(own, part, context, options, seed, stages)._replace(recipe=recipe))
                yield
        except FAILURES as error:
            if not offers:
                raise
            log.debug("No simple model beside the network: %s", error)
            continue
        for some, one in zip(fitted, models, strict=True):
            some.setdefault(parts[0].term_name(recipe.models), []).append(one)


def _shared_time(recipe: Recipe, parts: int) -> Recipe:
    """All parts together take the time that one may."""
    seconds = getattr(recipe, "seconds", None)
    return recipe if seconds is None else replace(recipe, seconds=seconds / parts)  # type: ignore[type-var]


def fitted_simple(
    recipe: Recipe,
    blueprint: Blueprint,
    context: Context,
    options: Training,
    seed: int,
    stages: "Stages | None" = None,
) -> Conditionals:
    """A simple model, fitted to the training groups."""
    return _fitted(recipe, blueprint, context, options, seed, stages).model


def _fitted(
    recipe: Recipe,
    blueprint: Blueprint,
    context: Context,
    options: Training,
    seed: int,
    stages: "Stages | None" = None,
    served: Replay | None = None,
) -> Offer:
    """served: the steps of an earlier fit to go through once more. A fold chooses by its own groups how much to shrink:
    those held out are to judge it."""
    check_suits(recipe, blueprint)
    model, train = recipe.build(blueprint.setting(recipe.models, context)), members.groups_of(blueprint)
    kind = recipe.label
    if isinstance(model, DirectlyFitted):
        tick = None if stages is None else lambda done, of: stages.tick(kind, done, of, fold=blueprint.fold)
        model.fit(train, blueprint.held if blueprint.fold is None else None, tick)
        levels.learn(recipe, model, blueprint.setting(recipe.models, context), train)
        return Offer(recipe, model.eval().requires_grad_(False))
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model.start(train.flat())
    calm = _calm(options)
    fitting = Fitting(Model({kind: model}), train, blueprint.held, calm, seed)
    fitting.replays = {} if served is None else {kind: served}
    fitting.tick = None if stages is None else partial(stages.tick, fold=blueprint.fold)
    fitting.run()
    if fitting.interrupted:
        raise KeyboardInterrupt
    replay = members.replay(fitting.history, members.epoch_steps(blueprint, calm, seed), calm)
    return Offer(recipe, model.eval().requires_grad_(False), replay)


def _calm(options: Training) -> Training:
    """A simple model is trained until it gets no better, and not for as long as a network may be."""
    epochs = None if options.epochs is None else min(options.epochs, EPOCHS)
    patience = "auto" if options.patience is None else options.patience
    return replace(options, jobs=1, draws=None, epochs=epochs, patience=patience)


class Shares(NamedTuple):
    """Of companions, by term. new: where an item was never seen, if they are others; holes: of each companion, pairs of
    the part of the context that is missing and its share there; powers, moves: of the networks and of each, in a pool
    and as laws are moved and spread (residuals.py)."""

    usual: Mapping[str, Sequence[float]]
    new: Mapping[str, Sequence[float]] = {}
    holes: Mapping[str, Sequence[tuple[tuple[float, float], ...]]] = {}
    powers: Mapping[str, Sequence[float]] = {}
    moves: Mapping[str, Sequence[Moves]] = {}

    def of(self, name: str, k: int) -> tuple[Any, ...]:
        """Of one companion of a term: share, new, holes, power, moves."""
        new = self.new[name][k] if name in self.new else None
        power = self.powers[name][k + 1] if name in self.powers else 0.0
        holes = self.holes[name][k] if name in self.holes else ()
        moves = self.moves[name][k + 1] if name in self.moves else ()
        return self.usual[name][k], new, holes, power, moves

    def ever(self, name: str, k: int) -> bool:
        """Whether it has any."""
        share, new, holes, power, _ = self.of(name, k)
        return bool(share or new or power or any(part for _, part in holes))


def beside(offers: Mapping[str, Sequence[Offer]], shares: Shares) -> dict[str, Any]:
    """By term, those that have a share."""
    several = {
        name: tuple(
            Companion(one.recipe, one.model, *shares.of(name, k)) for k, one in enumerate(mine) if shares.ever(name, k)
        )
        for name, mine in offers.items()
    }
    return {name: mine for name, mine in several.items() if mine}


def fitted_to_all(
    parts: Sequence[Mapping[str, Sequence[Offer]]],
    shares: Shares,
    whole: Blueprint,
    context: Context,
    options: Training,
    seed: int,
    stages: "Stages | None" = None,
) -> dict[str, Any]:
    """Those that have a share, fitted to all groups."""
    fitted = dict[str, list[Offer]]()
    for name, offers in parts[0].items():
        for k, one in enumerate(offers):
            if shares.ever(name, k):
                try:
                    one = fitted_again([mine[name][k] for mine in parts], whole, context, options, seed, stages)
                except FAILURES as error:
                    log.warning("%s cannot be fitted to all groups, and stays as it is: %s", one.recipe.label, error)
            fitted.setdefault(name, []).append(one)
    return beside(fitted, shares)


def fitted_again(
    several: Sequence[Offer],
    whole: Blueprint,
    context: Context,
    options: Training,
    seed: int,
    stages: "Stages | None",
) -> Offer:
    """Fitted once more, with what the middle one of several fits has chosen; or it chooses again, where that depends on
    how many groups there are and each of a few was held out in turn. Its recipe stays as asked for."""
    recipe, served = several[0].recipe, None
    models = [one.model for one in several if isinstance(one.model, DirectlyFitted)]
    if models and recipe.by_size and len(several) > 1:
        mine = _shared_time(recipe, len(several))
    elif models:
        each = [model.chosen_options() for model in models]
        middle = {name: _middle([chosen[name] for chosen in each]) for name in each[0]}
        mine = replace(recipe, **middle)  # type: ignore[type-var]
    else:
        steps = [one.replay for one in several if one.replay is not None]
        mine, served = recipe, sorted(steps, key=lambda x: len(x.rates) * x.batches)[(len(steps) - 1) // 2]
    return _fitted(mine, whole, context, options, seed, stages, served)._replace(recipe=recipe)


def _middle(values: Sequence[Any]) -> Any:
    """Of what parts have chosen; of several numbers, of each on its own."""
    flat = all(isinstance(one, tuple) and all(isinstance(x, float) for x in one) for one in values)
    if flat and len({len(one) for one in values}) == 1:
        return tuple(median_low(column) for column in zip(*values, strict=True))
    return median_low(values)


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
    if recipe.models == "value" and roles.noise is not None and not recipe.noise:
        raise DataError(f"{kind} takes no noise: leave {kind} or {option('noise')} out.", option="noise")


def _offers(blueprint: Blueprint, context: Context = "others") -> list[Recipe]:
    """What is tried unasked, where there are groups to choose shares by: a linear model of values, the same with trees
    of what it leaves, a Gaussian over items or places where it is quickly fitted, trees of what it leaves where groups
    are like rows of a wide table, both also of logarithms where values differ by factors; an additive logit of items,
    of few a multinomial one and an autoencoder, of many their neighbours, and, where they follow each other, Markov
    chains; each item's own distribution, against surprises."""
    if blueprint.held is None or not len(blueprint.held) or blueprint.train is None:
        return []
    offers: list[Recipe] = []
    items = blueprint.items
    if "item" in blueprint.terms:
        large = items * blueprint.train.count / LOGITS
        if items <= ITEMS and large <= MOST:
            offers.append(AdditiveLogit(seconds=AdditiveLogit.seconds * max(large, 1.0)))
            offers += [ItemLogit()] if items <= CATEGORIES and blueprint.train.count <= CASES else []
            offers += [EASE()] if items <= STATES else []
            offers += [ItemNeighbours()] if items >= MANY else []
        if items <= ITEMS and context == "past":
            offers.append(MarkovChain() if items <= STATES else MarkovChain(followers=FOLLOWERS))
            if items >= MANY:
                offers.append(MarkovChain(last=LAST, followers=FOLLOWERS))
            offers.append(LatePopularity())
        offers.append(Popularity())
    if "value" in blueprint.terms:
        offers += _linear(blueprint)
        likely = _over_items(blueprint.train, items, blueprint.schema.lags + 1, context)
        likely += _by_position(blueprint, context)
        offers += likely
        if blueprint.family is not None and suits(blueprint.family):
            offers += [replace(one, logs=True) for one in likely if isinstance(one, OF_LOGS)]
        offers.append(ItemMean())
    return offers


def variants(positions: bool) -> list[Recipe]:
    """Recipes that are offered in other ways than plainly; positions: whether groups have them in common."""
    placed: list[Recipe] = [kind(by_position=True) for kind in BY_POSITION] if positions else []
    logs: list[Recipe] = [kind(logs=True) for kind in OF_LOGS]
    return logs + placed + [replace(one, logs=True) for one in placed if isinstance(one, OF_LOGS)]


def _over_items(train: Groups, items: int, times: int, context: Context) -> list[Recipe]:
    """Gaussians, and trees of what one leaves."""
    trees: list[Recipe] = [Forest()] if context == "others" and tabular(train, items) else []
    return _gaussians(train, items, times) + trees


def _linear(blueprint: Blueprint) -> list[Recipe]:
    assert blueprint.train is not None
    if blueprint.train.count < BRANCHES:
        return [LinearModel()]
    parts = blueprint.family is not None and law(blueprint.family) is not None
    return [LinearModel(), TwoParts() if parts else LinearTrees()]


def _by_position(blueprint: Blueprint, context: Context) -> list[Recipe]:
    """With positions as items, where groups have them in common."""
    positions, train = blueprint.schema.positions, blueprint.train
    if positions is None or train is None:
        return []
    placed = replace(train, every=replace(train.every, item=positions.in_groups(train)))
    several = _linear(blueprint) + _over_items(placed, len(positions), 1, context)
    return [replace(one, by_position=True) for one in several if isinstance(one, BY_POSITION)]


def tabular(train: Groups, items: int) -> bool:
    """Whether groups are like rows of a wide table: few items, most of them in every group, none twice."""
    if train.item is None or train.lagged is not None or not 1 < items <= TREES or len(train) < GROUPS:
        return False
    cells = np.unique(train.group * np.int64(items + 1) + train.item)
    return len(cells) == len(train.item) >= THERE * len(train) * items


def _gaussians(train: Groups, items: int, times: int) -> list[Recipe]:
    """A Gaussian over items, with a number for each pair where that is quick, with factors where it is not or where a
    group has few of the items; without items, kriging of rows that have places."""
    cells = items * times
    pairs = 1 < cells <= CELLS and float(cells) ** 3 * len(train) <= WORK
    sparse = cells > SPARSE * np.mean(train.lengths) * times or not pairs
    if cells > 1:
        factors = [GaussianConditional(rank=RANK)] if sparse and train.count * times <= ROWS else []
        return [GaussianConditional(), *factors] if pairs else [*factors]
    x, lengths = train.attributes, train.lengths * times
    if x is None or not 0 < x.shape[1] <= PLACES or np.median(lengths) < LEAST_ROWS:
        return []
    quick = lengths.max() <= LONGEST and float((lengths.astype(float) ** 3).sum()) <= 10 * WORK
    starts = np.repeat(np.cumsum(train.lengths) - train.lengths, train.lengths)
    return [Kriging()] if quick and bool((x != x[starts]).any()) else []
