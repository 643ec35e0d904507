"""Exponential family attention, as an estimator."""

from collections.abc import Sequence
from numbers import Real
from typing import Any, Literal, final

from torch import nn

from efattn.errors import DataError
from efattn.estimators import prior
from efattn.estimators.base import GroupEstimator
from efattn.estimators.members import MOST
from efattn.estimators.plan import Plan, whole
from efattn.families import Categorical
from efattn.models import Conditionals, Model, Term
from efattn.network import AttributeVectors, Embedding, Gaps, Head, ItemVectors, Stack, ValueMLP, perceptron
from efattn.training import Feed, Training

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
    training: how to optimise, efattn.Training(...). prior: a simple model fitted first: "gaussian" (of values),
    "additive" (of items), one of efattn.baselines; "auto" lets a Gaussian predict together with the networks, as much
    as held-out groups ask for, where it is quickly fitted; None for none. prior_use: "draws" from it are the share
    prior_weight of each step, "offset" lets the network give only what is added to it, "start" trains on draws first
    and on the data then, "member" gives it the share prior_weight of the predicted mixture; ("draws", "member") does
    both.
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
        prior: Any = "auto",
        prior_weight: float = 0.5,
        prior_use: Any = "draws",
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
        self.prior = prior
        self.prior_weight = prior_weight
        self.prior_use = prior_use

    def _sizes(self) -> dict[str, Any]:
        of_items = self.terms is None or "item" in self.terms
        asked = self.gaps if self.gaps != "auto" or of_items else False
        return {"lags": self.lags, "max_length": self.max_length, "when": asked}

    def _terms(self, plan: Plan) -> dict[str, Conditionals]:
        self._check()
        found: dict[str, Conditionals] = {}
        if "item" in plan.terms:
            found["item"] = self._item_term(plan)
        if "value" in plan.terms:
            found[plan.value_name] = self._value_term(plan)
        return found

    def _item_term(self, plan: Plan) -> Term:
        family = Categorical(max(plan.items, 2))
        positions = plan.longest if plan.schema.roles.ordered else 0
        embedding = Embedding(
            ItemVectors(family.size, self.width), lag=self._lag(), mix=self._mix(), positions=positions
        )
        head = Head(perceptron(self.width, (), family.size), family.shared)
        few = plan.train is not None and len(plan.train) < FEW
        gaps = self._gaps(plan)
        stack = self._stack(few, gaps=gaps is not None)
        return Term(embedding, stack, head, family, context=self.context, support=plan.distinct, gaps=gaps)

    def _value_term(self, plan: Plan) -> Term:
        assert plan.family is not None
        family, roles, half = plan.family, plan.schema.roles, max(self.width // 2, 1)
        attributes = len(plan.schema.attribute_names)
        embedding = Embedding(
            ValueMLP(family.columns, self.width, half),
            item=ItemVectors(plan.items, half) if plan.items else None,
            attributes=AttributeVectors((attributes, 2 * self.width, half)) if attributes else None,
            lag=self._lag(),
            mix=(self.width,),
            positions=plan.longest if roles.ordered else 0,
        )
        varying = sum(not fixed for fixed in family.shared)
        head = Head(perceptron(self.width, (self.width,), varying), family.shared)
        nearest, gaps = self.neighbours, self._gaps(plan) if self.gaps is True else None
        stack = self._stack(gaps=gaps is not None)
        return Term(embedding, stack, head, family, context=self.context, neighbours=nearest, gaps=gaps)

    def _gaps(self, plan: Plan) -> Gaps | None:
        if plan.schema.when_kind is None:
            return None
        gaps = Gaps()
        if plan.train is not None:
            gaps.fit(plan.train.times_between)
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

    def _feeds(self, plan: Plan, options: Training, tick: Any = None) -> dict[str, Feed]:
        return prior.feeds(self, plan, options, tick)

    def _settle(self, plan: Plan, models: Sequence[Model]) -> None:
        if self.prior == "auto":
            prior.settle(plan, models)

    def _check(self) -> None:
        prior.check(self)
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
