"""What a fitted estimator is asked: a method a verb, each one call into `efattn.inference` with what a fit gave.

Where a method has member=, None is for the mixture of all members and companions.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from efattn import inference
from efattn.data import Table
from efattn.inference import AttentionWeights, Distribution, Distributions, Evaluation, Fitted
from efattn.inference.evaluate import LENGTHS


class Questions(ABC):
    fitted_: Fitted

    @abstractmethod
    def _fitted(self) -> Fitted:
        """An error where there is none yet."""

    def score(self, table: Any, y: None = None, *, member: int | None = None) -> float:
        """Total log-likelihood of the scored rows over their number, both weighted where rows have weights: nats per
        row, in the table's units."""
        return float(self.scores(table, member=member)["mean_log_likelihood"])

    def scores(self, table: Any, *, member: int | None = None) -> dict[str, Any]:
        """mean_log_likelihood, and per term; observations, how many rows are scored, and how many items are unknown."""
        return inference.score(self._fitted(), [Table.read(table)], member=member)

    def log_likelihood(self, table: Any, *, member: int | None = None) -> Any:
        """The table with one column <term>_log_likelihood per term; null where a row is not scored."""
        (answer,) = inference.log_likelihood(self._fitted(), [Table.read(table)], member=member)
        return answer

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
        fitted, tables = self._fitted(), [Table.read(table)]
        (answer,) = inference.predict(fitted, tables, interval, quantiles=quantiles, member=member)
        return answer

    def predict_distribution(self, table: Any, *, member: int | None = None) -> Distribution | Distributions:
        """The law of each row's value given its context, exactly that of the mixture of all members and companions, in
        the table's units: mean, sd, median, quantiles(q), interval(level), cdf(x), pdf(x), pmf(x), log_pdf(x),
        probability(above=, below=, between=), sample(n, seed), and beside what happened log_score(y), crps(y), pit(y).
        [i], [a:b] and [mask] give those of some rows. Of several value columns one by name: laws["tmax"]."""
        (answer,) = inference.predict_distribution(self._fitted(), [Table.read(table)], member=member)
        return answer

    def calibrate(self, table: Any, *, seed: int = 0) -> Any:
        """Adjust intervals and quantiles by rows of groups that neither fit nor refit has seen, so that they hold what
        they promise; groups of the fit are refused. At which level of its own law a quantile is read off follows from
        where values of these groups lie in theirs, corrected for their number. Means, densities and scores stay. It is
        saved with the model; update and fit begin without it, and of one member nothing is adjusted."""
        self.fitted_ = inference.calibrate(self._fitted(), [Table.read(table)], seed=seed)
        return self

    def recommend(
        self,
        histories: Any = None,
        k: int = 10,
        *,
        at: Any = None,
        attributes: Any = None,
        among: Any = None,
        exclude: Any = None,
        at_least: float = 0.0,
        member: int | None = None,
    ) -> Any:
        """The k most probable further items of each group (past: next; others: missing) with their probabilities: one
        row per group and rank. Without histories, those of an empty one. at: when that row comes, where the model looks
        at it (own_time): one time, one by group, or a column of the histories; by default the usual time after the last
        row. attributes: its own by column, one entry or one by group; by default those of the last row. among, exclude:
        give these items alone, or none of these: a list of names, or a table that has the items' columns. at_least:
        only what is so probable. Probabilities stay those among all items."""
        fitted, tables = self._fitted(), None if histories is None else [Table.read(histories)]
        which: dict[str, Any] = {"among": among, "exclude": exclude, "at_least": at_least}
        (answer,) = inference.recommend(fitted, tables, k, at=at, attributes=attributes, **which, member=member)
        return answer

    def evaluate(
        self,
        table: Any,
        k: int | Sequence[int] = LENGTHS,
        *,
        rows: str = "auto",
        target: str | None = None,
        seen: bool | None = None,
        member: int | None = None,
    ) -> Evaluation:
        """How well rows are predicted, each from its context. Of items, ranked among the whole catalogue: recall, NDCG,
        MRR, coverage and novelty of lists of each length k, and whether their mass can be trusted; of values, log
        score, errors, and how often intervals hold them. Means have standard errors over groups; .table, .groups and
        .items are frames, .plot() a picture.

        rows: which are predicted: "target", those that a column marks; "last" of each group; "all"; or "auto", the
        target column's where there is one, else the last for a model of items from the past, else all. target: that
        column, by default the model's. seen: whether items of a row's context are ranked too; by default where the
        model lets items repeat. An item that the model does not know counts as missed."""
        how: dict[str, Any] = {"rows": rows, "target": target, "seen": seen, "member": member}
        return inference.evaluate(self._fitted(), [Table.read(table)], k, **how)

    def similar(self, item: Any, k: int = 10, *, member: int | None = None) -> Any:
        """The k items that go best with this one, and how well: how much the presence of each raises the other, or of
        values how far they rise together, by what the model predicts."""
        return inference.similar(self._fitted(), item, k, member=member)

    def embeddings(self, which: str = "item", *, member: int = 0) -> Any:
        """One row per item: its name, x and y (the plane of the first two principal components) and its vector v0, v1,
        ...: "item" (what it contributes as context) or "centre" (what it is predicted with). Vectors of different
        members are not comparable. Written to a Parquet file, viewers such as embedding-atlas open it."""
        return inference.embeddings(self._fitted(), which, member=member)

    def attention(self, table: Any, term: str | None = None, *, member: int = 0) -> AttentionWeights:
        """What each row of one group looks at: weights (layer, head, target, context) with labels."""
        return inference.attention(self._fitted(), Table.read(table), term, member=member)

    def summary(self) -> str:
        """Terms, families, sizes and fit, in words."""
        return inference.summary(self._fitted())

    def report(
        self,
        table: Any = None,
        path: str | Path = "report.html",
        *,
        rows: int = 20_000,
        seed: int = 0,
        title: str | None = None,
    ) -> Path:
        """Write one self-contained HTML page about this model and a table (`efattn.report`), best of groups that the
        fit has not seen: data, model, fit, scores beside simple models, calibration, attention, items, the best and
        worst predictions. rows: a larger table is looked at in part, whole groups drawn with this seed."""
        from efattn.reporting import report

        return report(self._fitted(), table, path, rows=rows, seed=seed, title=title)

    def _repr_html_(self) -> str:
        """A card in a notebook; of what is not fitted, scikit-learn's."""
        if "fitted_" not in vars(self):
            return super()._repr_html_()  # type: ignore[misc]
        from efattn.reporting import card

        return card(self.fitted_)

    def _repr_mimebundle_(self, **unused: Any) -> dict[str, str]:
        return {"text/plain": repr(self), "text/html": self._repr_html_()}
