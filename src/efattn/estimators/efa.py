"""Exponential family attention, as an estimator."""

from dataclasses import replace
from typing import Any, final

import numpy as np
import torch
from torch import nn

from efattn.declared import explained
from efattn.errors import DataError, Note, option
from efattn.estimators import companions, sizing
from efattn.estimators.base import GroupEstimator
from efattn.estimators.blueprint import Blueprint
from efattn.estimators.progress import Stages
from efattn.estimators.sizing import Sizes
from efattn.families import Bernoulli, Categorical, Family, PerItem, Product
from efattn.models import Conditionals, Holes, Term
from efattn.network import (
    AttributeVectors,
    Embedding,
    FeaturedItems,
    FeatureMap,
    Features,
    Gaps,
    Head,
    ItemVectors,
    ItemViews,
    Noises,
    OwnAttributes,
    Rates,
    Stack,
    Tied,
    ValueMLP,
    perceptron,
)
from efattn.options import EFAOptions, check_model
from efattn.training import Training, teams
from efattn.training_options import STEPS

MOST = 0.9  # of the values of a group are hidden in training, at most
STRANGE = 0.3  # of that share, at most so much of the items is strange
NEW = 0.3  # of the items of a group are strange where items have features, at most
ENOUGH = 100  # rows for each unit of width, with which values are hidden and spreads may differ
QUICK, BEST, MEMBERS = 4, 2, 3  # times fewer steps, times more, members: by effort

ALONE = Note(
    "no companions",
    "In any order networks predict alone: simple models beside them know each row given others, and no joint density.",
    option="companions",
)


@final
@explained
class EFA(EFAOptions, GroupEstimator):
    """A probabilistic model of grouped observations: each given the others of its group, or what came earlier."""

    _takes_features = True

    def _schema_options(self) -> dict[str, Any]:
        return {"lags": self.lags, "max_length": self.max_length, "when": self.gaps}

    def _terms(self, blueprint: Blueprint) -> dict[str, Conditionals]:
        terms: dict[str, Conditionals] = {}
        if "item" in blueprint.terms:
            terms["item"] = self._item_term(blueprint, self._sizes("item", blueprint))
        if "value" in blueprint.terms:
            terms[blueprint.value_name] = self._value_term(blueprint, self._sizes("value", blueprint))
        return terms

    def _sizes(self, kind: str, blueprint: Blueprint) -> Sizes:
        known = blueprint.network.get(kind)
        if known is None:  # a file of before sizes were kept
            return sizing.chosen(self, kind, 0, 0)._replace(previous=False)
        return Sizes(**known)

    def _network(self, blueprint: Blueprint, options: Training, stages: Stages) -> Blueprint:
        blueprint = blueprint.noted(*sizing.drawn(blueprint, options))
        if self.context == "any" and self.companions is not None:
            blueprint = blueprint.noted(ALONE)
        if self.effort != "best":
            return blueprint.with_network(sizing.plain(sizing.by_rule(self, blueprint)))
        sizes, notes = teams.told("sizes", lambda: sizing.searched(self, blueprint, options, stages))
        return blueprint.with_network(sizing.plain(sizes)).noted(*notes)

    def _options(self) -> Training:
        options = self.training or Training()
        if options.steps is not None or self.effort == "normal":
            return options
        steps = STEPS // QUICK if self.effort == "quick" else STEPS * BEST
        return replace(options, steps=steps)

    def _members(self, blueprint: Blueprint) -> int:
        """Of a large catalogue whose items are seen seldom a member takes most of a fit, and beside a pool of simple
        models a second tells little: one, there."""
        usual = 1 if self.effort != "best" or (blueprint.tied and blueprint.items_are_seldom) else MEMBERS
        return usual if self.ensemble == "auto" else int(self.ensemble)

    def _gives_up(self, options: Training) -> bool:
        asked = self.training is not None and (self.training.steps is not None or options.epochs is not None)
        return self.companions == "auto" and self.effort != "best" and not asked and options.patience == "auto"

    @property
    def _refits(self) -> bool:
        return bool(self.refit) and not (self.refit == "auto" and self.effort == "quick")

    def _item_term(self, blueprint: Blueprint, sizes: Sizes) -> Term:
        family = Categorical(max(blueprint.items, 2))
        positions = blueprint.longest if blueprint.schema.roles.ordered else 0
        own, features = blueprint.schema.own_attributes, _features(blueprint)
        parts = ItemVectors(family.size, sizes.width, features=_mapped(features, sizes.width))
        added = OwnAttributes(own, 2 * sizes.width, sizes.width) if own else None
        embedding = Embedding(
            parts,
            lag=self._lag(sizes),
            mix=self._mix(sizes),
            positions=positions,
            own=added,
            previous=sizes.previous,
        )
        if features is not None:
            head = Head(FeaturedItems(sizes.width, family.size, features), family.shared)
        else:
            body = Tied(parts) if sizes.tied else perceptron(sizes.width, (), family.size)
            head = Head(body, family.shared, calibrated=sizes.tied)
        if sizes.tied:
            parts.begin_short()
        gaps = self._gaps(blueprint)
        stack = self._stack(sizes, gaps=gaps is not None)
        return Term(
            embedding,
            stack,
            head,
            family,
            context=self.context,
            support=blueprint.support,
            gaps=gaps,
            own_time=blueprint.schema.own_time,
            holes=self._holes(0.0) if features is None else self._holes(0.0, blueprint),
        )

    def _value_term(self, blueprint: Blueprint, sizes: Sizes) -> Term:
        family, roles, half = blueprint.inside_family, blueprint.schema.roles, max(sizes.width // 2, 1)
        attributes = len(blueprint.schema.attribute_names)
        holes = self._holes(0.0 if self._few_rows(blueprint, sizes) else MOST, blueprint)
        features = _mapped(_features(blueprint), half)
        items = ItemVectors(blueprint.items, half, features=features) if blueprint.items else None
        if items is not None:
            items.begin(None if holes is None or holes.shift is None else torch.as_tensor(holes.shift))
        embedding = Embedding(
            ValueMLP(family.columns, sizes.width, half),
            item=items,
            attributes=AttributeVectors((attributes, 2 * sizes.width, half)) if attributes else None,
            lag=self._lag(sizes),
            mix=(sizes.width,),
            positions=blueprint.longest if roles.ordered else 0,
            rates=Rates(blueprint.counted) if blueprint.schema.exposed else Noises() if roles.noise else None,
            previous=sizes.previous,
        )
        head = self._head(family, sizes, self._few_rows(blueprint, sizes))
        nearest, gaps = self.neighbours, self._gaps(blueprint) if self.gaps is True else None
        stack = self._stack(sizes, gaps=gaps is not None)
        return Term(
            embedding,
            stack,
            head,
            family,
            context=self.context,
            neighbours=nearest,
            gaps=gaps,
            own_time=blueprint.schema.own_time,
            holes=holes,
            views=None if blueprint.schema.exposed else _views(family),  # of counts with an exposure, rates are seen
        )

    def _head(self, family: Product, sizes: Sizes, few: bool) -> Head:
        """What the family shares varies from row to row, unless it is not to: of few rows it stays where it starts."""
        free, vary = sum(not fixed for fixed in family.shared), sum(family.dispersions)
        beside = perceptron(sizes.width, (sizes.width,), vary) if vary and self.dispersion != "shared" else None
        if beside is not None and few and self.dispersion == "auto":
            beside.requires_grad_(False)
        body = perceptron(sizes.width, (sizes.width,), free)
        return Head(body, family.shared, beside=beside, around=family.dispersions)

    def _few_rows(self, blueprint: Blueprint, sizes: Sizes) -> bool:
        """Too few to tell one row's spread from another's, or to spare any."""
        return blueprint.train is not None and blueprint.train.count < ENOUGH * sizes.width

    def _holes(self, auto: float, blueprint: Blueprint | None = None) -> Holes | None:
        rate = auto if self.hide == "auto" else self.hide
        fitted = None if blueprint is None else blueprint.schema.standardiser
        alike = fitted is None or fitted.item_scale is None  # items of units of their own: none stands for another
        shift = None if fitted is None else fitted.to_unknown()
        hidden = 0.0 if self.context == "any" and self.hide == "auto" else rate  # an order hides parts of its own
        described = blueprint is not None and blueprint.schema.features is not None
        strange = max(STRANGE * rate, NEW if described else 0.0) * alike  # features have to do for new items
        return Holes(hidden, strange, shift) if rate or strange else None

    def _gaps(self, blueprint: Blueprint) -> Gaps | None:
        if blueprint.schema.when_kind is None:
            return None
        gaps = Gaps()
        if blueprint.train is not None:
            gaps.fit(blueprint.train.times_between)
        return gaps

    def _stack(self, sizes: Sizes, gaps: bool = False) -> Stack:
        return Stack(
            sizes.width,
            sizes.layers,
            sizes.heads,
            feed_forward=sizes.feed_forward,
            norm=sizes.norm,
            dropout=sizes.dropout,
            gaps=Gaps.size if gaps else 0,
            content="isolated" if self.context == "any" else self.content,
        )

    def _lag(self, sizes: Sizes) -> nn.Embedding | None:
        return nn.Embedding(self.lags + 1, max(sizes.width // 4, 1)) if self.lags else None

    def _mix(self, sizes: Sizes) -> tuple[int, ...]:
        return (sizes.width,) if self.lags else ()

    def _check(self) -> None:
        check_model(self)
        companions.check(self.companions)
        if self.context == "any":
            self._check_any()

    def _check_any(self) -> None:
        """A DataError for what there is in no order, or not in every."""
        if self.companions is not None and self.companions != "auto":
            raise DataError(
                f"Simple models know each row given others, and no orders: with {option('context', 'any')} networks "
                f"are alone. Pass {option('companions', None)}.",
                option="companions",
            )
        if self.own_time == "hidden":
            raise DataError(
                f"A row whose own time is hidden takes that of the row before, which may be still to come in an order: "
                f"with {option('context', 'any')} pass {option('own_time', 'known')}.",
                option="own_time",
            )


def _features(blueprint: Blueprint) -> Features | None:
    """Of items, as tensors on the CPU."""
    known = blueprint.schema.features
    if known is None:
        return None
    offsets, level, amount = known.offsets.astype(np.int64), known.level.astype(np.int64), known.amount
    arrays = (np.array(x) for x in (offsets, level, amount.astype(np.float32), known.numbers.astype(np.float32)))
    return Features(known.levels, *map(torch.from_numpy, arrays))


def _mapped(features: Features | None, width: int) -> FeatureMap | None:
    return None if features is None else FeatureMap(features, width)


def _views(family: Product) -> ItemViews | None:
    """Of values that are of several kinds, or in units that a table happens to have."""
    if not any(isinstance(part, PerItem) or _measures(part.underlying) for part in family.parts):
        return None
    rows = max((len(part.table) for part in family.parts if isinstance(part, PerItem)), default=1)
    columns, counts = list[list[bool]](), list[bool]()
    for part in family.parts:
        if isinstance(part, PerItem):
            logs = [_by_magnitude(part.parts[kind]) for kind in part.table]
            columns.append(logs + logs[-1:] * (rows - len(logs)))
        else:
            columns += [[_by_magnitude(part.underlying)] * rows] * part.columns
        counts += [part.discrete and not isinstance(part, PerItem)] * part.columns
    return ItemViews(list(zip(*columns, strict=True)), counts)


def _measures(part: Family) -> bool:
    """Numbers from 0 on that are no levels: any of them may be vast or tiny, and no standardiser has seen them."""
    return part.scalar and part.mean_bounds[0] >= 0 and not part.level_names and not isinstance(part, Bernoulli)


def _by_magnitude(part: Family) -> bool:
    """Counts and positive numbers."""
    return part.mean_bounds[0] >= 0 and part.mean_bounds[1] == float("inf")
