"""Latent factor models, the paper's baseline, as an estimator."""

from typing import Any, final

from efattn.declared import explained
from efattn.errors import DataError
from efattn.estimators.base import GroupEstimator
from efattn.estimators.plan import Plan
from efattn.models import Conditionals, LatentItems, LatentPlaces, LatentValues
from efattn.options import LatentFactorOptions, check_model


@final
@explained
class LatentFactor(LatentFactorOptions, GroupEstimator):  # type: ignore[misc]
    """Of items: rho . mean of the context's alpha. Of values: rho of the item . mean of alpha times value. Without an
    item column, of places: h of the attributes . sum over the nearest of h times value."""

    def _check(self) -> None:
        check_model(self)

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
        attributes = len(plan.schema.roles.of("attributes"))
        if plan.items and not attributes:
            found[plan.value_name] = LatentValues(plan.items, self.width, plan.family, **options)
        elif attributes:
            sizes, nearest = (attributes, 4 * self.width, self.width), self.neighbours
            found[plan.value_name] = LatentPlaces(sizes, plan.family, neighbours=nearest, **options)
        else:
            raise DataError("A latent factor model of values needs an item column or attributes.")
        return found
