"""Latent factor models, the paper's baseline, as an estimator."""

from typing import Any, Literal, final

from efattn.errors import DataError
from efattn.estimators.base import GroupEstimator
from efattn.estimators.plan import Plan, whole
from efattn.models import Conditionals, LatentItems, LatentPlaces, LatentValues
from efattn.training import Training


@final
class LatentFactor(GroupEstimator):
    """items: rho . mean of the context's alpha. Values: rho of the item . mean of alpha times value. Without an item
    column, places: h of the attributes . sum over the nearest of h times value.

    width: of the vectors. intercept: add a learned vector to the context's. neighbours: how many nearest places, by
    latitude and longitude as the first two attributes; None for all. The rest is as in EFA.
    """

    def __init__(
        self,
        family: Any = "auto",
        context: Literal["others", "past"] = "others",
        terms: Any = None,
        width: int = 32,
        intercept: bool = False,
        neighbours: int | None = None,
        support: Literal["auto", "all", "distinct"] = "auto",
        standardise: Literal["auto", "global", "item", "none"] = "auto",
        seed: int = 0,
        training: Training | None = None,
    ) -> None:
        self.family = family
        self.context = context
        self.terms = terms
        self.width = width
        self.intercept = intercept
        self.neighbours = neighbours
        self.support = support
        self.standardise = standardise
        self.seed = seed
        self.training = training

    def _check(self) -> None:
        for name in ("width", "neighbours"):
            value = getattr(self, name)
            if (value is not None or name == "width") and not whole(value, 1):
                raise DataError(f"LatentFactor: {name} must be a whole number >= 1, not {value!r}.")

    def _sizes(self) -> dict[str, Any]:
        return {}

    def _terms(self, plan: Plan) -> dict[str, Conditionals]:
        self._check()
        found: dict[str, Conditionals] = {}
        options: dict[str, Any] = {"context": self.context, "intercept": self.intercept}
        if "item" in plan.terms:
            found["item"] = LatentItems(max(plan.items, 2), self.width, support=plan.distinct, **options)
        if "value" not in plan.terms:
            return found
        assert plan.family is not None
        if plan.family.columns > 1:
            raise DataError("A latent factor model has one value column; EFA takes several.")
        attributes = len(plan.schema.attribute_names)
        if plan.items and not attributes:
            found[plan.value_name] = LatentValues(plan.items, self.width, plan.family, **options)
        elif attributes:
            sizes, nearest = (attributes, 4 * self.width, self.width), self.neighbours
            found[plan.value_name] = LatentPlaces(sizes, plan.family, neighbours=nearest, **options)
        else:
            raise DataError("A latent factor model of values needs an item column or attributes.")
        return found
