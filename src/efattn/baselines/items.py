"""Popularity, Markov chain and additive logit, as estimators."""

from typing import Any, Literal, final

from efattn import priors
from efattn.baselines.base import Peer, check_number
from efattn.errors import DataError
from efattn.estimators.base import GroupEstimator
from efattn.estimators.plan import Plan
from efattn.models import Conditionals
from efattn.network import Context
from efattn.training import Training


@final
class Popularity(Peer):
    """How often each item is met. support: "distinct" rules out what the group has already."""

    terms = "item"

    def __init__(
        self,
        context: Literal["others", "past"] = "others",
        support: Literal["auto", "all", "distinct"] = "auto",
    ) -> None:
        self.context = context
        self.support = support

    def _terms(self, plan: Plan) -> dict[str, Conditionals]:
        return {"item": priors.Popularity(max(plan.items, 2), self.context, plan.distinct)}


@final
class MarkovChain(Peer):
    """Which item follows which. strength: how many rows the smoothing by popularity counts as, None to choose it on
    held-out groups."""

    terms = "item"
    context: Context = "past"

    def __init__(self, support: Literal["auto", "all", "distinct"] = "auto", strength: float | None = None) -> None:
        self.support = support
        self.strength = strength

    def _check(self) -> None:
        check_number(self, "strength", 1e-6)

    def _terms(self, plan: Plan) -> dict[str, Conditionals]:
        self._check()
        return {"item": priors.MarkovChain(max(plan.items, 2), plan.distinct, self.strength)}


@final
class AdditiveLogit(GroupEstimator):
    """softmax(b + s(n) sum over the context of M[x_j]), M of full rank, trained with early stopping.

    scale: "root" divides the sum by sqrt(n), "mean" by n, "sum" by nothing. The rest is as in EFA.
    """

    family: Any = "auto"
    terms: Any = "item"
    standardise: str = "none"

    def __init__(
        self,
        context: Literal["others", "past"] = "others",
        scale: Literal["sum", "mean", "root"] = "root",
        support: Literal["auto", "all", "distinct"] = "auto",
        seed: int = 0,
        training: Training | None = None,
    ) -> None:
        self.context = context
        self.scale = scale
        self.support = support
        self.seed = seed
        self.training = training

    def update(self, table: Any, **options: Any) -> Any:
        raise DataError("AdditiveLogit does not go on from an old fit: fit it again to all rows.")

    def _check(self) -> None:
        if self.scale not in ("sum", "mean", "root"):
            raise DataError(f"AdditiveLogit: scale is 'sum', 'mean' or 'root', not {self.scale!r}.")

    def _sizes(self) -> dict[str, Any]:
        return {}

    def _terms(self, plan: Plan) -> dict[str, Conditionals]:
        self._check()
        return {"item": priors.AdditiveItems(max(plan.items, 2), self.context, plan.distinct, self.scale)}
