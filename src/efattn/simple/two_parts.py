"""Whether there is anything, and how much: two models, for families in which 0 has a probability of its own.

    logit P(y_i > 0) = s_i       a linear model with trees of whether y > 0, in a context of the same
    p(y_i | y_i > 0)             the same of the amounts, in a context of amounts

One location tells both in other models: who spends more spends more often. Here each has its own.
"""

from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
from torch import Tensor

from efattn.data import Batch, Groups
from efattn.errors import DataError, option
from efattn.families import Bernoulli, Family, Product, ZeroOr
from efattn.models import Conditionals
from efattn.simple.base import DirectlyFitted, Recipe, Setting, Tick
from efattn.simple.linear_model import LinearModel
from efattn.simple.linear_trees import LinearTrees


@final
@dataclass(frozen=True)
class TwoParts(Recipe):
    """A model of whether there is anything and one of the amounts, for the family zero_or. trees: of each, 0 for linear
    models alone; seconds: that both may look for their penalties; by_position: with the place in the group as item;
    some, amount: penalties of each, as of LinearModel; spread: of the amounts."""

    trees: int = 60
    seconds: float = 20.0
    by_position: bool = False
    some: tuple[float, ...] | None = None
    amount: tuple[float, ...] | None = None
    spread: tuple[float, ...] | None = None
    models = "value"
    times = True

    def build(self, setting: Setting) -> Conditionals:
        self.check_number("trees", 0)
        family = law(setting.family)
        if family is None:
            raise DataError(
                f"TwoParts is for a law of nothing or an amount: choose {option('family', 'zero_or')}.", option="family"
            )
        how: dict[str, Any] = {"seconds": self.seconds / 2, "by_position": self.by_position}
        recipe: Recipe = LinearTrees(self.trees, **how) if self.trees else LinearModel(**how)
        some = replace(recipe, penalty=self.some)  # type: ignore[type-var]
        amount = replace(recipe, penalty=self.amount, spread=self.spread)  # type: ignore[type-var]
        both = ((some, Bernoulli()), (amount, family.base))
        return Both(setting, family, *(one.build(replace(setting, family=Product((of,)))) for one, of in both))


def law(family: Family) -> ZeroOr | None:
    """Of one column, if it has two parts."""
    one = family.parts[0] if isinstance(family, Product) and len(family.parts) == 1 else family
    return one if isinstance(one, ZeroOr) else None


@final
class Both(DirectlyFitted):
    def __init__(self, setting: Setting, family: ZeroOr, some: Conditionals, amount: Conditionals) -> None:
        super().__init__(setting.family, setting.context)
        self.law, self.some, self.amount = family, some, amount
        self.items, self.has_items = max(setting.items, 1), setting.items > 0

    def chosen_options(self) -> dict[str, Any]:
        assert isinstance(self.some, DirectlyFitted)
        assert isinstance(self.amount, DirectlyFitted)
        some, amount = self.some.chosen_options(), self.amount.chosen_options()
        return {"some": some["penalty"], "amount": amount["penalty"], "spread": amount["spread"]}

    def fit(self, groups: Groups, held: Groups | None = None, tick: Tick | None = None) -> None:
        for inner, of in ((self.some, _some), (self.amount, _amount)):
            assert isinstance(inner, DirectlyFitted)
            inner.fit(of(groups), None if held is None else of(held), tick)

    def raw_outputs(self, batch: Batch, slots: Tensor) -> Tensor:
        assert batch.value is not None
        assert batch.observed is not None
        there = batch.value > 0
        some = replace(batch, value=there.to(batch.value.dtype))
        amount = replace(batch, value=batch.value * there, observed=batch.observed & there)
        f = self.amount.raw_outputs(amount, slots)
        return self.law.of_parts(self.some.raw_outputs(some, slots)[..., 0].to(f), f)


def _some(groups: Groups) -> Groups:
    value = groups.every.value
    assert value is not None
    return _with(groups, np.where(np.isnan(value), np.nan, value > 0))


def _amount(groups: Groups) -> Groups:
    value = groups.every.value
    assert value is not None
    return _with(groups, np.where(value > 0, value, np.nan))


def _with(groups: Groups, value: np.ndarray) -> Groups:
    return replace(groups, every=replace(groups.every, value=value))
