"""What a fitted estimator expects of each row, as methods: numbers beside the table, and whole distributions."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from efattn import inference
from efattn.data import Table
from efattn.inference import Distribution, Distributions, Fitted


class Predicts(ABC):
    """What is expected of each row, from its context."""

    @abstractmethod
    def _fitted(self) -> Fitted:
        """What was fitted, or an error."""

    def predict(
        self,
        table: Any,
        interval: float | None = 0.9,
        *,
        quantiles: Sequence[float] = (),
        member: int | None = None,
    ) -> Any:
        """The table with <value>_mean, _sd, _lower and _upper beside it, each row from its context, never from
        itself; quantiles=[.1, .5, .9] gives _q10, _q50 and _q90 besides. Of ordinal values also the most probable level
        and the probability of each. A model of items alone gives the most probable item of each row as <item>_mode, and
        its probability; recommend gives more of them. No column is replaced: a new one whose name is taken gets an
        underscore."""
        tables = [Table.read(table)]
        (answer,) = inference.predict(self._fitted(), tables, interval, quantiles=quantiles, member=member)
        return answer

    def predict_distribution(self, table: Any, *, member: int | None = None) -> Distribution | Distributions:
        """The law of each row's value given its context, exactly that of the mixture of all members and companions, in
        the table's units: mean, sd, median, quantiles(q), interval(level), cdf(x), pdf(x), pmf(x), log_pdf(x),
        probability(above=, below=, between=), sample(n, seed), and beside what happened log_score(y), crps(y), pit(y).
        [i], [a:b] and [mask] give those of some rows. Of several value columns one by name: laws["tmax"]."""
        (answer,) = inference.predict_distribution(self._fitted(), [Table.read(table)], member=member)
        return answer
