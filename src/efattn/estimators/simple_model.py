"""A simple model with the estimators' interface: fitted to the same tables, scored on the same rows."""

from typing import Any, Literal, final

from efattn.errors import DataError, option
from efattn.estimators import companions
from efattn.estimators.base import GroupEstimator, whole
from efattn.estimators.blueprint import Blueprint
from efattn.estimators.progress import Stages
from efattn.models import Conditionals, Model
from efattn.simple import Recipe
from efattn.training import Training


@final
class SimpleModel(GroupEstimator):
    """model: one of efattn.simple, such as simple.ShrunkMean(). lags: earlier time steps that are seen. training: of those
    that are trained, such as simple.AdditiveLogit. The rest is as in EFA; fits take every row alike, whatever its weight.
    """

    def __init__(
        self,
        model: Any,
        family: Any = "auto",
        context: Literal["others", "past"] = "others",
        lags: int = 0,
        support: Literal["auto", "all", "distinct"] = "auto",
        standardise: Literal["auto", "global", "item", "none"] = "global",
        seed: int = 0,
        training: Training | None = None,
    ) -> None:
        self.model = model
        self.family = family
        self.context = context
        self.lags = lags
        self.support = support
        self.standardise = standardise
        self.seed = seed
        self.training = training

    @property
    def terms(self) -> Any:  # type: ignore[override]
        """What it models."""
        return self.model.models

    def update(self, table: Any, **options: Any) -> Any:
        raise DataError(f"{type(self.model).__name__} does not go on from an old fit: fit it again to all rows.")

    def _check(self) -> None:
        if not isinstance(self.model, Recipe):
            wanted = f"{option('model')} is one of efattn.simple, such as simple.ShrunkMean()"
            raise DataError(f"SimpleModel: {wanted}; found {self.model!r}.", option="model")
        if not whole(self.lags, 0):
            raise DataError(f"SimpleModel: lags must be a whole number >= 0, not {self.lags!r}.", option="lags")

    def _sizes(self) -> dict[str, Any]:
        return {"lags": self.lags}

    def _terms(self, blueprint: Blueprint) -> dict[str, Conditionals]:
        return {
            blueprint.term_name(self.model.models): self.model.build(blueprint.setting(self.model.models, self.context))
        }

    def _fit(self, blueprint: Blueprint, stages: Stages, **unused: Any) -> Any:
        """What concerns checkpoints and callbacks has no effect."""
        options = self.training or Training()
        simple = companions.fitted_simple(self.model, blueprint, self.context, options, self.seed, stages)
        return self._take(blueprint, [Model({blueprint.term_name(self.model.models): simple})])
