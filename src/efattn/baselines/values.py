"""Means, shrunk means, and one Gaussian over all items, as estimators."""

from typing import Any, Literal, final

from efattn import priors
from efattn.baselines.base import ValuePeer, check_number
from efattn.estimators.plan import Plan
from efattn.priors.base import FittedOnce


@final
class ItemMean(ValuePeer):
    """The mean and the variance of each item's values. family: "gaussian", "poisson", "bernoulli" or such a family.
    context: changes nothing but what is asked of the table."""

    def __init__(self, family: Any = "gaussian", context: Literal["others", "past"] = "others") -> None:
        self.family = family
        self.context = context

    def _prior(self, plan: Plan) -> FittedOnce:
        assert plan.family is not None
        return priors.ItemMean(plan.family, plan.items, self.context)


@final
class ShrunkMean(ValuePeer):
    """Item and group effects, shrunk by empirical Bayes; a row's group effect comes from its context only."""

    def __init__(self, family: Any = "gaussian", context: Literal["others", "past"] = "others") -> None:
        self.family = family
        self.context = context

    def _prior(self, plan: Plan) -> FittedOnce:
        assert plan.family is not None
        return priors.ShrunkMean(plan.family, plan.items, self.context)


@final
class GaussianConditional(ValuePeer):
    """One Gaussian over all items, by EM on incomplete groups; each row conditioned on the others, or the earlier ones.

    weight: of the simple covariance that the sample's is drawn to, from above 0 to 1, None to choose it on held-out
    groups. places: whether that is a Matern covariance of the attributes' distances (great-circle for latitude and
    longitude), else the same correlation for all pairs. lags: earlier time steps that are seen.
    """

    def __init__(
        self,
        family: Any = "gaussian",
        context: Literal["others", "past"] = "others",
        weight: float | None = None,
        places: bool = True,
        lags: int = 0,
    ) -> None:
        self.family = family
        self.context = context
        self.weight = weight
        self.places = places
        self.lags = lags

    def _check(self) -> None:
        super()._check()
        check_number(self, "weight", 1e-6, 1)

    def _prior(self, plan: Plan) -> FittedOnce:
        assert plan.family is not None
        return priors.GaussianConditional(
            plan.family, plan.items, self.context, self.lags, weight=self.weight, places=self.places
        )
