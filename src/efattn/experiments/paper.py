"""The paper's networks, to the letter, as estimators.

    items     32-dim vectors and positions; 2 layers of 2 heads of 16, residual; linear head without bias
    values    32-dim item and value vectors side by side, positions; the same layers; head 32 ReLU -> 1
    places    g and value embedding 128 ReLU -> 32, together 64 ReLU -> 32; layers with feed-forward 64 and norm after;
              head 128 -> 16 -> 1

They differ from `EFA`, whose defaults do better, in sizes and in what stands between the parts.
"""

from typing import Any, Literal, final

import numpy as np
from torch import nn

from efattn.estimators.base import GroupEstimator
from efattn.estimators.blueprint import Blueprint
from efattn.families import Categorical
from efattn.models import Conditionals, Term
from efattn.network import AttributeVectors, Embedding, Head, ItemVectors, PerValue, Stack, ValueMLP, perceptron
from efattn.network.embeddings import ValueVectors
from efattn.training import Training

WIDTH = 32


@final
class PaperEFA(GroupEstimator):
    """per_value: a learned vector per distinct value instead of an MLP of it. The rest is as in EFA."""

    def __init__(
        self,
        family: Any = "auto",
        context: Literal["others", "past"] = "others",
        terms: Any = None,
        layers: int = 2,
        lags: int = 0,
        per_value: bool = False,
        support: Literal["auto", "all", "distinct"] = "all",
        standardise: Literal["auto", "global", "item", "none"] = "none",
        seed: int = 0,
        training: Training | None = None,
    ) -> None:
        self.family = family
        self.context = context
        self.terms = terms
        self.layers = layers
        self.lags = lags
        self.per_value = per_value
        self.support = support
        self.standardise = standardise
        self.seed = seed
        self.training = training

    def _check(self) -> None:
        """Made by presets only."""

    def _schema_options(self) -> dict[str, Any]:
        return {"lags": self.lags}

    def _terms(self, blueprint: Blueprint) -> dict[str, Conditionals]:
        if "item" in blueprint.terms:
            return {"item": self._items(blueprint)}
        attributes = len(blueprint.schema.attribute_names)
        return {blueprint.value_name: self._places(blueprint, attributes) if attributes else self._values(blueprint)}

    def _items(self, blueprint: Blueprint) -> Term:
        family = Categorical(blueprint.items)
        embedding = Embedding(ItemVectors(blueprint.items, WIDTH), positions=self._positions(blueprint))
        head = Head(perceptron(WIDTH, (), blueprint.items), family.shared, bias=False)
        stack = Stack(WIDTH, self.layers, 2, size=16)
        return Term(embedding, stack, head, family, context=self.context, support=blueprint.support)

    def _values(self, blueprint: Blueprint) -> Term:
        assert blueprint.train is not None
        assert blueprint.train.value is not None
        known = np.unique(blueprint.train.value[~np.isnan(blueprint.train.value)])
        value: ValueVectors = PerValue([known.tolist()], WIDTH) if self.per_value else ValueMLP(1, 2 * WIDTH, WIDTH)
        embedding = Embedding(value, item=ItemVectors(blueprint.items, WIDTH), positions=self._positions(blueprint))
        head = Head(perceptron(2 * WIDTH, (WIDTH,), 1), blueprint.inside_family.shared)
        return Term(
            embedding, Stack(2 * WIDTH, self.layers, 2, size=16), head, blueprint.inside_family, context=self.context
        )

    def _places(self, blueprint: Blueprint, attributes: int) -> Term:
        embedding = Embedding(
            ValueMLP(1, 4 * WIDTH, WIDTH),
            attributes=AttributeVectors((attributes, 4 * WIDTH, WIDTH)),
            lag=nn.Embedding(self.lags + 1, WIDTH) if self.lags else None,
            mix=(2 * WIDTH, WIDTH),
        )
        stack = Stack(WIDTH, self.layers, 2, feed_forward=2 * WIDTH, norm="post", size=16)
        head = Head(perceptron(WIDTH, (4 * WIDTH, WIDTH // 2), 1), blueprint.inside_family.shared)
        return Term(embedding, stack, head, blueprint.inside_family, context=self.context)

    def _positions(self, blueprint: Blueprint) -> int:
        return blueprint.longest if blueprint.schema.roles.ordered else 0
