"""A simple model with the estimators' interface: fitted to the same tables, scored on the same rows."""

from typing import Any, final

from efattn.declared import explained
from efattn.errors import DataError, named
from efattn.estimators import companions
from efattn.estimators.base import GroupEstimator
from efattn.estimators.blueprint import Blueprint
from efattn.estimators.fitting import Course
from efattn.estimators.progress import Stages
from efattn.models import Conditionals, Model
from efattn.options import SimpleModelOptions, check_model
from efattn.simple import Recipe
from efattn.training_options import Training


@final
@explained
class SimpleModel(SimpleModelOptions, GroupEstimator):
    """One of efattn.simple, fitted to a table. Fits take every row alike, whatever its weight; scores do not."""

    @property
    def terms(self) -> Any:
        """What it models."""
        return self.model.models

    def update(self, table: Any, **options: Any) -> Any:
        kind = type(self.model).__name__
        raise DataError(f"{kind} does not go on from an old fit: fit it again to all rows.", option="model")

    def _check(self) -> None:
        check_model(self)
        if not isinstance(self.model, Recipe):
            wanted = f"{named('model')} is one of efattn.simple, such as simple.ShrunkMean()"
            raise DataError(f"SimpleModel: {wanted}; found {self.model!r}.", option="model")

    def _schema_options(self) -> dict[str, Any]:
        reads = getattr(self.model, "times", False) or getattr(self.model, "by_position", False)
        return {"lags": self.lags, "when": "auto" if reads else False}

    def _terms(self, blueprint: Blueprint) -> dict[str, Conditionals]:
        kind = self.model.models
        return {blueprint.term_name(kind): self.model.build(blueprint.setting(kind, self.context))}

    def _fit(self, blueprint: Blueprint, stages: Stages, course: Course) -> Any:
        """Checkpoints and callbacks have no effect."""
        options, name = self.training or Training(), blueprint.term_name(self.model.models)
        if not (self.refit and blueprint.may_refit):
            simple = companions.fitted_simple(self.model, blueprint, self.context, options, self.seed, stages)
            return self._take(blueprint, [Model({name: simple})])
        how: dict[str, Any] = {"options": options, "seed": self.seed, "stages": stages}
        first: list[dict[str, list[companions.Offer]]] = [{}]
        list(companions.fitted_offers(first, [self.model], [blueprint], self.context, offers=False, **how))
        alone = companions.Shares({name: [1.0]})
        again = companions.fitted_to_all(first, alone, blueprint.whole(), self.context, **how)
        return self._take(blueprint, [Model({name: again[name][0].model})])
