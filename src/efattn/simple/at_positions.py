"""A simple model of items where rows have none: the position of a row, which groups have in common, is its item.

    x_i = the number of row i's time, or of its rank in the group       (data/positions.py)

So a model has a level for each year of a panel, a Gaussian the covariance of every two visits.
"""

from dataclasses import replace
from typing import Any, final

from torch import Tensor

from efattn.data import Batch, Groups
from efattn.errors import DataError
from efattn.models import Conditionals
from efattn.simple.base import DirectlyFitted, Recipe, Setting, Tick


def at_positions(recipe: Recipe, setting: Setting) -> "AtPositions":
    """What a recipe builds, with positions as items."""
    if setting.items or setting.positions is None:
        raise DataError("Positions stand for items where rows have none, and groups have their order in common.")
    inner = recipe.build(replace(setting, items=len(setting.positions), positions=None))
    assert isinstance(inner, DirectlyFitted)
    return AtPositions(setting, inner)


def alike(models: Any, by_position: bool) -> list[Conditionals]:
    """Those of several models that are by position, or those that are not; of the first what is inside."""
    mine = [one for one in models if isinstance(one, AtPositions) == by_position]
    return [one.inner if isinstance(one, AtPositions) else one for one in mine]


@final
class AtPositions(DirectlyFitted):
    def __init__(self, setting: Setting, inner: DirectlyFitted) -> None:
        super().__init__(setting.family, setting.context)
        assert setting.positions is not None
        self.positions, self.inner, self.items, self.has_items = setting.positions, inner, 1, False

    def chosen_options(self) -> dict[str, Any]:
        return self.inner.chosen_options()

    def fit(self, groups: Groups, held: Groups | None = None, tick: Tick | None = None) -> None:
        self.inner.fit(self._placed(groups), None if held is None else self._placed(held), tick)

    def raw_outputs(self, batch: Batch, slots: Tensor) -> Tensor:
        if self.positions.kind == "time" and batch.when is None:
            raise DataError("This model was fitted with times, and the data have none.", option="order")
        return self.inner.raw_outputs(replace(batch, item=self.positions.in_batch(batch)), slots)

    def _placed(self, groups: Groups) -> Groups:
        return replace(groups, every=replace(groups.every, item=self.positions.in_groups(groups)))
