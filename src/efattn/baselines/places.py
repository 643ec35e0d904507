"""Regressions per item, and what is known about places, as estimators."""

from typing import Any, Literal, final

from efattn import priors
from efattn.baselines.base import ValuePeer, check_number
from efattn.errors import DataError
from efattn.estimators.plan import Plan
from efattn.priors.base import FittedOnce


@final
class RidgePerItem(ValuePeer):
    """Each item's value regressed on the others' of its group (past: on the earlier ones) and on lagged ones, with a
    ridge penalty chosen per item on held-out groups; a missing value counts as its item's mean."""

    def __init__(self, family: Any = "gaussian", context: Literal["others", "past"] = "others", lags: int = 0) -> None:
        self.family = family
        self.context = context
        self.lags = lags

    def _prior(self, plan: Plan) -> FittedOnce:
        assert plan.family is not None
        return priors.RegressionPerItem(plan.family, plan.items, self.context, self.lags, penalty="ridge")


@final
class LassoPerItem(ValuePeer):
    """As RidgePerItem, with a lasso penalty."""

    def __init__(self, family: Any = "gaussian", context: Literal["others", "past"] = "others", lags: int = 0) -> None:
        self.family = family
        self.context = context
        self.lags = lags

    def _prior(self, plan: Plan) -> FittedOnce:
        assert plan.family is not None
        return priors.RegressionPerItem(plan.family, plan.items, self.context, self.lags, penalty="lasso")


@final
class InverseDistance(ValuePeer):
    """An item's mean plus the others' departures from theirs, weighted by distance to the power -p. power: p, None to
    choose it on held-out groups."""

    def __init__(
        self,
        family: Any = "gaussian",
        context: Literal["others", "past"] = "others",
        power: float | None = None,
    ) -> None:
        self.family = family
        self.context = context
        self.power = power

    def _check(self) -> None:
        super()._check()
        check_number(self, "power", 0)

    def _prior(self, plan: Plan) -> FittedOnce:
        assert plan.family is not None
        return priors.InverseDistance(plan.family, plan.items, self.context, power=self.power)


@final
class Kriging(ValuePeer):
    """A Gaussian process over places, and time with lags: item means and variances, and a fitted Matern correlation
    with a nugget. The GaussianConditional with weight 1."""

    def __init__(self, family: Any = "gaussian", context: Literal["others", "past"] = "others", lags: int = 0) -> None:
        self.family = family
        self.context = context
        self.lags = lags

    def _prior(self, plan: Plan) -> FittedOnce:
        assert plan.family is not None
        if not plan.schema.roles.of("attributes"):
            raise DataError("Kriging needs to know where items are: pass attributes=['latitude', 'longitude'].")
        return priors.GaussianConditional(plan.family, plan.items, self.context, self.lags, weight=1.0)


@final
class Persistence(ValuePeer):
    """What the same item had one time step earlier; needs time=... in fit."""

    lags = 1

    def __init__(self, family: Any = "gaussian", context: Literal["others", "past"] = "others") -> None:
        self.family = family
        self.context = context

    def _prior(self, plan: Plan) -> FittedOnce:
        assert plan.family is not None
        return priors.Persistence(plan.family, plan.items, self.context)
