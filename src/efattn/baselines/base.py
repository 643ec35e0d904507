"""Simple peers with the estimators' interface: fitted to the same tables, scored on the same rows.

fit:  roles -> schema and groups -> split by group -> standardise -> prior.fit(train, held)
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from efattn.data import Roles
from efattn.errors import DataError
from efattn.estimators import families as choosing
from efattn.estimators.base import GroupEstimator
from efattn.estimators.plan import Plan, whole
from efattn.models import Conditionals
from efattn.priors.base import FittedOnce
from efattn.training import Training


class Peer(GroupEstimator, ABC):
    """What has no options of its own is as in EFA. Rows can be weighted in scores; fits take every row alike."""

    family: Any = "gaussian"
    terms: Any = "value"
    support: str = "all"
    standardise: str = "global"
    seed: int = 0
    training: Training | None = None

    def fit(
        self,
        table: Any,
        y: None = None,
        *,
        group: str | Sequence[str] = (),
        item: str | Sequence[str] = (),
        value: str | Sequence[str] = (),
        attributes: str | Sequence[str] = (),
        order: str | None = None,
        time: str | None = None,
        series: str | Sequence[str] | None = None,
        exposure: str | None = None,
        weight: str | None = None,
        target: str | None = None,
        missing: Any = None,
        validation: Any = 0.2,
        **ignored: Any,
    ) -> Any:
        """Fit to a frame or a file. Roles name columns; validation: a share of the groups (with lags: of the times), a
        table, or None, to choose by how much is shrunk or smoothed. What concerns training by gradients
        (checkpoint, resume, callbacks, history, progress, planned) is accepted and has no effect."""
        extra = set(ignored) - {"checkpoint", "resume", "callbacks", "history", "progress", "planned"}
        if extra:
            raise TypeError(f"{type(self).__name__}.fit() got an unexpected keyword argument {min(extra)!r}")
        value = choosing.ordered(self.family, (value,) if isinstance(value, str) else tuple(value or ()))
        roles = Roles(group, item, value, attributes, order, time, series, exposure, weight, target, missing)
        if exposure is not None:
            raise DataError(f"{type(self).__name__} takes no exposure. Leave it out, or fit EFA.")
        plan = self._plan(table, roles, validation)
        model = self._build(plan, start=False)
        for name in model.terms:
            term = model[name]
            assert isinstance(term, FittedOnce)
            term.fit(plan.train, plan.held)
        model.eval()
        return self._take(plan, [model])

    def update(self, table: Any, **options: Any) -> Any:
        raise DataError(f"{type(self).__name__} does not go on from an old fit: fit it again to all rows.")

    def _sizes(self) -> dict[str, Any]:
        return {"lags": getattr(self, "lags", 0)}

    def _check(self) -> None:
        if not whole(getattr(self, "lags", 0), 0):
            raise DataError(f"{type(self).__name__}: lags must be a whole number >= 0, not {self._sizes()['lags']!r}.")


class ValuePeer(Peer, ABC):
    @abstractmethod
    def _prior(self, plan: Plan) -> FittedOnce:
        """Not fitted yet."""

    def _terms(self, plan: Plan) -> dict[str, Conditionals]:
        self._check()
        assert plan.family is not None
        return {plan.value_name: self._prior(plan)}


def check_number(owner: Any, name: str, low: float, high: float = float("inf")) -> None:
    """A number in this range, or None to have it chosen."""
    value = getattr(owner, name)
    if value is not None and (isinstance(value, bool | str) or not low <= value <= high):
        limits = f">= {low:g}" if high == float("inf") else f"from {low:g} to {high:g}"
        raise DataError(f"{type(owner).__name__}: {name} is a number {limits}, or None; found {value!r}.")
