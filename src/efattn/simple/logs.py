"""A Gaussian of logarithms, for positive numbers and counts that differ by factors.

    z = log(y - low + c)  ~  N(m, v)      c: 1 of counts, else 0
    E[y] = exp(m + v / 2) - c + low,      Var[y] = (exp(v) - 1) exp(2 m + v)

A few large values do not rule what goes together; the family makes its own outputs of these.
"""

from dataclasses import replace
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from efattn.data import Batch, Groups
from efattn.errors import DataError
from efattn.families import Family, Gaussian, Product
from efattn.models.scoring import at
from efattn.simple.base import DirectlyFitted, MeanAndVariance, Recipe, Setting, Tick

WIDEST = 20.0  # variance of a logarithm, beyond which nothing is said any more


def suits(family: Family) -> bool:
    """Whether values are one column of numbers from a lowest on without a highest, and none of them has an atom."""
    part = family.parts[0] if isinstance(family, Product) and len(family.parts) == 1 else None
    if part is None or not part.scalar or part.atoms or (isinstance(family, Product) and family.kinds):
        return False
    low, high = part.mean_bounds
    return np.isfinite(low) and np.isinf(high)


def of_logs(recipe: Recipe, setting: Setting) -> "InLogs":
    """What a recipe builds, of logarithms."""
    if not suits(setting.family):
        raise DataError("Logarithms are of one column of positive numbers or counts.", option="companions")
    inner = recipe.build(replace(setting, family=Product((Gaussian(),))))
    assert isinstance(inner, MeanAndVariance)
    return InLogs(setting, inner)


@final
class InLogs(DirectlyFitted):
    def __init__(self, setting: Setting, inner: MeanAndVariance) -> None:
        super().__init__(setting.family, setting.context)
        assert isinstance(self.family, Product)
        self.part, self.inner, self.items, self.has_items = self.family.parts[0], inner, inner.items, inner.has_items
        self.low, self.more = self.part.mean_bounds[0], 1.0 if self.part.discrete else 0.0
        self.register_buffer("marginal_fit", torch.zeros(self.part.size, dtype=torch.float64))

    def chosen_options(self) -> dict[str, Any]:
        return self.inner.chosen_options()

    def fit(self, groups: Groups, held: Groups | None = None, tick: Tick | None = None) -> None:
        value = groups.value
        assert value is not None
        kept = value[:, 0] if groups.target is None else value[groups.target, 0]
        if np.isnan(kept).all():
            raise DataError("There is no value to fit to.")
        self._set(marginal_fit=self.part.start(torch.tensor(kept)))
        self.inner.fit(self._logged(groups), None if held is None else self._logged(held), tick)

    def raw_outputs(self, batch: Batch, slots: Tensor) -> Tensor:
        assert batch.value is not None
        z, variance = self.inner.moments(replace(batch, value=self._log(batch.value.double())))
        start, variance = self.get_buffer("marginal_fit"), variance.clamp(1e-8, WIDEST)
        return at(self.part.from_log_moments(z, variance, start, self.more), slots)

    def _log(self, y: Tensor) -> Tensor:
        return (y - self.low + self.more).clamp_min(1e-30).log()

    def _logged(self, groups: Groups) -> Groups:
        every = groups.every
        assert every.value is not None
        return replace(groups, every=replace(every, value=self._log(torch.as_tensor(every.value)).numpy()))
