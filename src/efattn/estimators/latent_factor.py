"""Latent factor models, the paper's baseline, as an estimator."""

from typing import Any, final

from efattn.declared import explained
from efattn.errors import DataError, option
from efattn.estimators.base import GroupEstimator
from efattn.estimators.blueprint import Blueprint
from efattn.models import Conditionals, LatentItems, LatentPlaces, LatentValues
from efattn.options import LatentFactorOptions, check_model


@final
@explained
class LatentFactor(LatentFactorOptions, GroupEstimator):
    """Of items: rho . mean of the context's alpha. Of values: rho of the item . mean of alpha times value. Without an
    item column, of places: h of the attributes . sum over the nearest of h times value."""

    def _check(self) -> None:
        check_model(self)

    def _schema_options(self) -> dict[str, Any]:
        return {}

    def _terms(self, blueprint: Blueprint) -> dict[str, Conditionals]:
        terms: dict[str, Conditionals] = {}
        options: dict[str, Any] = {"context": self.context, "intercept": self.intercept}
        if "item" in blueprint.terms:
            terms["item"] = LatentItems(max(blueprint.items, 2), self.width, support=blueprint.support, **options)
        if "value" not in blueprint.terms:
            return terms
        if blueprint.inside_family.columns > 1:
            raise DataError("A latent factor model has one value column; EFA takes several.", option="value")
        attributes = len(blueprint.schema.attribute_names)
        if blueprint.items and not attributes:
            terms[blueprint.value_name] = LatentValues(blueprint.items, self.width, blueprint.inside_family, **options)
        elif attributes:
            sizes, nearest = (attributes, 4 * self.width, self.width), self.neighbours
            terms[blueprint.value_name] = LatentPlaces(sizes, blueprint.inside_family, neighbours=nearest, **options)
        else:
            wanted = f"pass {option('item')} or {option('attributes')}"
            raise DataError(
                f"A latent factor model of values needs an item column or attributes: {wanted}.", option="item"
            )
        return terms
