"""Features of items in a fit: what is known of them while networks are trained, and items known by nothing else."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from efattn.data import Schema, Vocabulary
from efattn.data.item_features import ItemFeatures
from efattn.errors import DataError, Note, named, option
from efattn.estimators import growing
from efattn.estimators.blueprint import Blueprint
from efattn.inference import Fitted

if TYPE_CHECKING:
    from efattn.estimators.base import GroupEstimator


class Known(NamedTuple):
    """features: of the items of the fit, and then of those that vocabulary has besides."""

    features: ItemFeatures
    vocabulary: Vocabulary
    notes: tuple[Note, ...]


def known(table: Any, schema: Schema, takes: bool) -> Known:
    """takes: whether the estimator looks at features."""
    if not takes:
        raise DataError(f"Features of items are for EFA: leave {named('item_features')} out.", option="item_features")
    if schema.vocabulary is None:
        said = f"{named('item_features')} belong to items, and none are named: pass {option('item')}."
        raise DataError(said, option="item_features")
    features, whole, notes = ItemFeatures.read(table, schema.vocabulary)
    return Known(features, whole, tuple(notes))


def with_new_items(estimator: "GroupEstimator", fitted: Fitted, more: Known) -> Fitted:
    """The same that knows the items besides, by their features alone."""
    if len(more.vocabulary) == len(fitted.vocabulary):
        return fitted
    schema = fitted.schema.with_vocabulary(more.vocabulary, more.features)
    blueprint = replace(Blueprint.of(fitted), schema=schema)
    models = [estimator._build(blueprint, start=False, member=k) for k in range(len(fitted.members))]
    for new, old in zip(models, fitted.members, strict=True):
        growing.grow(new, old)
        new.eval()
    return replace(
        fitted,
        schema=schema,
        members=tuple(models),
        companions=growing.beside(fitted.companions, models[0]),
    )
