"""Exponential family attention, as an estimator."""

from numbers import Real
from typing import Any, Literal, final

from torch import nn

from efattn.errors import DataError
from efattn.estimators import companions
from efattn.estimators.base import GroupEstimator, whole
from efattn.estimators.blueprint import Blueprint
from efattn.estimators.members import MOST
from efattn.families import Categorical
from efattn.models import Conditionals, Term
from efattn.network import AttributeVectors, Embedding, Gaps, Head, ItemVectors, Stack, ValueMLP, perceptron
from efattn.training import Training

FEW = 2000  # groups, below which an item term needs more dropout


@final
class EFA(GroupEstimator):
    """A probabilistic model of grouped observations: each given the others of its group, or what came earlier.

    family: of the value columns: "auto", a name, a family, a list or a mapping from columns. context: "others"
    (everything but the row itself) or "past" (what came earlier; needs order in fit). terms: what is modelled:
    "item", "value" or both; by default every target named in fit. layers, heads, width: of the attention network.
    feed_forward: width of a block behind each layer, 0 for none. norm: "pre", "post" or None. dropout: of
    embeddings and layer outputs, "auto" for 0.1, and 0.3 of an item term with fewer than 2,000 training groups.
    context_dropout: share of the context hidden while training. support: "distinct" rules out items that are in the
    group already, "auto" does if none repeats in training. standardise: real values "global", by "item", "none", or
    "auto". lags: earlier time steps that are seen. neighbours: look only at the so many nearest places. max_length: cut
    longer groups. gaps: let attention know how much time lies between two rows, by the order column; "auto" does for
    items where that column holds times or numbers at uneven steps, True for values too. ensemble: how many members,
    whose mixture predicts; they differ in their start values and in the order of batches. seed: of everything random.
    training: how to optimise, efattn.Training(...). companions: simple models of efattn.simple that predict together with
    the networks, one or several, as much as held-out groups ask for; "auto" for a Gaussian where it is quickly fitted;
    None for the networks alone.
    """

    def __init__(
        self,
        family: Any = "auto",
        context: Literal["others", "past"] = "others",
        terms: Any = None,
        layers: int = 2,
        heads: int = 2,
        width: int = 32,
        feed_forward: int = 0,
        norm: Literal["pre", "post"] | None = None,
        dropout: float | Literal["auto"] = "auto",
        context_dropout: float = 0.0,
        support: Literal["auto", "all", "distinct"] = "auto",
        standardise: Literal["auto", "global", "item", "none"] = "auto",
        lags: int = 0,
        neighbours: int | None = None,
        max_length: int | None = None,
        gaps: bool | Literal["auto"] = "auto",
        ensemble: int = 1,
        seed: int = 0,
        training: Training | None = None,
        companions: Any = "auto",
    ) -> None:
        self.family = family
        self.context = context
        self.terms = terms
        self.layers = layers
        self.heads = heads
        self.width = width
        self.feed_forward = feed_forward
        self.norm = norm
        self.dropout = dropout
        self.context_dropout = context_dropout
        self.support = support
        self.standardise = standardise
        self.lags = lags
        self.neighbours = neighbours
        self.max_length = max_length
        self.gaps = gaps
        self.ensemble = ensemble
        self.seed = seed
        self.training = training
        self.companions = companions

    def _sizes(self) -> dict[str, Any]:
        of_items = self.terms is None or "item" in self.terms
        asked = self.gaps if self.gaps != "auto" or of_items else False
        return {"lags": self.lags, "max_length": self.max_length, "clock": asked}

    def _terms(self, blueprint: Blueprint) -> dict[str, Conditionals]:
        found: dict[str, Conditionals] = {}
        if "item" in blueprint.terms:
            found["item"] = self._item_term(blueprint)
        if "value" in blueprint.terms:
            found[blueprint.value_name] = self._value_term(blueprint)
        return found

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
        attributes = len(roles.of("attributes"))
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
        return Term(embedding, stack, head, family, context=self.context, neighbours=nearest, gaps=gaps)

    def _gaps(self, blueprint: Blueprint) -> Gaps | None:
        if blueprint.schema.clock is None:
            return None
        gaps = Gaps()
        if blueprint.train is not None:
            gaps.fit(blueprint.train.steps)
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
        companions.check(self.companions)
        for name, low in (("layers", 1), ("heads", 1), ("width", 1), ("feed_forward", 0), ("lags", 0)):
            value = getattr(self, name)
            if not whole(value, low):
                raise DataError(f"EFA: {name} must be a whole number >= {low}, not {value!r}.")
        if self.width % self.heads:
            raise DataError(f"EFA: width={self.width} is not a multiple of heads={self.heads}. Choose one that is.")
        if self.neighbours is not None and not whole(self.neighbours, 1):
            raise DataError(f"EFA: neighbours must be a whole number >= 1 or None, not {self.neighbours!r}.")
        if not whole(self.ensemble, 1) or self.ensemble > MOST:
            raise DataError(f"EFA: ensemble must be a whole number from 1 to {MOST}, not {self.ensemble!r}.")
        for name in ("dropout", "context_dropout"):
            if name == "dropout" and self.dropout == "auto":
                continue
            if not isinstance(getattr(self, name), Real) or not 0 <= getattr(self, name) < 1:
                raise DataError(f"EFA: {name} is a share from 0 to below 1, not {getattr(self, name)!r}.")
        if self.gaps not in (True, False, "auto"):
            raise DataError(f"EFA: gaps is True, False or 'auto', not {self.gaps!r}.")
        if self.norm not in ("pre", "post", None):
            raise DataError(f"EFA: norm is 'pre', 'post' or None, not {self.norm!r}.")
