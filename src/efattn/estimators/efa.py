"""Exponential family attention, as an estimator."""

from typing import Any, final

from torch import nn

from efattn.declared import explained
from efattn.estimators import companions
from efattn.estimators.base import GroupEstimator
from efattn.estimators.blueprint import Blueprint
from efattn.families import Categorical, Family, LogNormal, PerItem, Product
from efattn.models import Conditionals, Term
from efattn.network import AttributeVectors, Embedding, Gaps, Head, ItemVectors, ItemViews, Stack, ValueMLP, perceptron
from efattn.options import EFAOptions, check_model

FEW = 2000  # groups, below which an item term needs more dropout


@final
@explained
class EFA(EFAOptions, GroupEstimator):
    """A probabilistic model of grouped observations: each given the others of its group, or what came earlier."""

    def _schema_options(self) -> dict[str, Any]:
        of_items = self.terms is None or "item" in self.terms
        asked = self.gaps if self.gaps != "auto" or of_items else False
        return {"lags": self.lags, "max_length": self.max_length, "when": asked}

    def _terms(self, blueprint: Blueprint) -> dict[str, Conditionals]:
        terms: dict[str, Conditionals] = {}
        if "item" in blueprint.terms:
            terms["item"] = self._item_term(blueprint)
        if "value" in blueprint.terms:
            terms[blueprint.value_name] = self._value_term(blueprint)
        return terms

    def _item_term(self, blueprint: Blueprint) -> Term:
        family = Categorical(max(blueprint.items, 2))
        positions = blueprint.longest if blueprint.schema.roles.ordered else 0
        embedding = Embedding(
            ItemVectors(family.size, self.width), lag=self._lag(), mix=self._mix(), positions=positions
        )
        head = Head(perceptron(self.width, (), family.size), family.shared)
        few = blueprint.train is not None and len(blueprint.train) < FEW
        gaps = self._gaps(blueprint)
        stack = self._stack(few, gaps=gaps is not None)
        return Term(embedding, stack, head, family, context=self.context, support=blueprint.support, gaps=gaps)

    def _value_term(self, blueprint: Blueprint) -> Term:
        family, roles, half = blueprint.inside_family, blueprint.schema.roles, max(self.width // 2, 1)
        attributes = len(blueprint.schema.attribute_names)
        embedding = Embedding(
            ValueMLP(family.columns, self.width, half),
            item=ItemVectors(blueprint.items, half) if blueprint.items else None,
            attributes=AttributeVectors((attributes, 2 * self.width, half)) if attributes else None,
            lag=self._lag(),
            mix=(self.width,),
            positions=blueprint.longest if roles.ordered else 0,
        )
        varying = sum(not fixed for fixed in family.shared)
        head = Head(perceptron(self.width, (self.width,), varying), family.shared)
        nearest, gaps = self.neighbours, self._gaps(blueprint) if self.gaps is True else None
        stack = self._stack(gaps=gaps is not None)
        more = {"neighbours": nearest, "gaps": gaps, "views": _views(family)}
        return Term(embedding, stack, head, family, context=self.context, **more)  # type: ignore[arg-type]

    def _gaps(self, blueprint: Blueprint) -> Gaps | None:
        if blueprint.schema.when_kind is None:
            return None
        gaps = Gaps()
        if blueprint.train is not None:
            gaps.fit(blueprint.train.times_between)
        return gaps

    def _stack(self, few: bool = False, gaps: bool = False) -> Stack:
        """few: items in few groups, which overfit first."""
        return Stack(
            self.width,
            self.layers,
            self.heads,
            feed_forward=self.feed_forward,
            norm=self.norm,
            dropout=(0.3 if few else 0.1) if self.dropout == "auto" else self.dropout,
            context_dropout=self.context_dropout,
            gaps=Gaps.size if gaps else 0,
        )

    def _lag(self) -> nn.Embedding | None:
        return nn.Embedding(self.lags + 1, max(self.width // 4, 1)) if self.lags else None

    def _mix(self) -> tuple[int, ...]:
        return (self.width,) if self.lags else ()

    def _check(self) -> None:
        check_model(self)
        companions.check(self.companions)


def _views(family: Product) -> ItemViews | None:
    """Of values that are of several kinds, or of several orders of magnitude."""
    if not any(isinstance(part, PerItem | LogNormal) for part in family.parts):
        return None
    rows = max((len(part.table) for part in family.parts if isinstance(part, PerItem)), default=1)
    columns = []
    for part in family.parts:
        if isinstance(part, PerItem):
            logs = [_by_magnitude(part.parts[kind]) for kind in part.table]
            columns.append(logs + logs[-1:] * (rows - len(logs)))
        else:
            columns += [[isinstance(part, LogNormal)] * rows] * part.columns
    return ItemViews(list(zip(*columns, strict=True)))


def _by_magnitude(part: Family) -> bool:
    """Counts and positive numbers."""
    return part.mean_bounds[0] >= 0 and part.mean_bounds[1] == float("inf")
