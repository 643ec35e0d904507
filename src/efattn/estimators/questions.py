"""What a fitted estimator is asked: a method a verb, each one call into `efattn.inference` with what a fit gave.

Where a method has member=, None is for the mixture of all members and companions.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from efattn import inference
from efattn.data import Table
from efattn.inference import AttentionWeights, Distribution, Distributions, Fitted
from efattn.inference.evaluate import LENGTHS
from efattn.inference.tables import tables_of


class Questions(ABC):
    fitted_: Fitted

    @abstractmethod
    def _fitted(self) -> Fitted:
        """An error where there is none yet."""

    def score(self, table: Any, y: None = None, *, member: int | None = None) -> float:
        """Total log score of the scored rows over their number, both weighted where rows have weights: nats per row, in
        the table's units. From the past it is the log-likelihood; from the others of a group it is a leave-one-out log
        score, which compares models on the same rows and is no likelihood."""
        return float(self.scores(table, member=member)["mean_log_likelihood"])

    def scores(self, table: Any, *, member: int | None = None) -> dict[str, Any]:
        """mean_log_likelihood, and per term; observations, how many rows are scored, and how many items are unknown;
        kind: "log-likelihood", or "leave-one-out log score" where rows are scored from the others of their group."""
        return inference.score(self._fitted(), tables_of(self._fitted(), table), member=member)

    def log_likelihood(self, table: Any, *, member: int | None = None) -> Any:
        """The table with one column <term>_log_likelihood per term: the pointwise log scores, each row given its
        context; null where a row is not scored."""
        (answer,) = inference.log_likelihood(self._fitted(), [Table.read(table)], member=member)
        return answer

    def joint_log_density(self, table: Any, *, orders: int = 8, seed: int = 0, member: int | None = None) -> Any:
        """How probable each group is as a whole: a frame with a line for each, by its name. Needs context="any" or
        "past". In one order that is the sum of its rows' conditionals, each given what stands before it; values are
        given all items. log_density is that of the mixture over `orders` orders, which follow from the seed, the sum
        over terms; for each term there are <term>_log_density, the mean and the standard deviation over orders
        (<term>_orders_mean, _orders_sd) and how many rows it is of (<term>_targets). Of items without an order column
        it is the probability of the set: all orders of the same items are counted. Rows that are context only (target
        false) are given, and weights do not count. In the past there is one order, that of the table."""
        (answer,) = inference.joint_log_density(
            self._fitted(), [Table.read(table)], orders=orders, seed=seed, member=member
        )
        return answer

    def to_arviz(self, table: Any, *, member: int | None = None) -> Any:
        """The pointwise log scores as ArviZ's data (pip install arviz): log_likelihood of each term, chain, draw and
        row, one chain of one draw, of the rows that are scored; observed_data beside it. Each row is scored from its
        context, never from itself: the scores are held out already, and their sum is what loo would estimate."""
        return inference.to_arviz(self._fitted(), Table.read(table), member=member)

    def predict(
        self,
        table: Any,
        interval: float | None = 0.9,
        *,
        quantiles: Sequence[float] = (),
        given: str | Sequence[str] | None = None,
        member: int | None = None,
    ) -> Any:
        """The table with <value>_mean, _sd, _lower and _upper beside it, each row from its context, never from
        itself; quantiles=[.1, .5, .9] gives _q10, _q50 and _q90 besides. Of ordinal values also the most probable level
        and the probability of each. A model of items alone gives the most probable item of each row as <item>_mode, and
        its probability; recommend gives more of them. No column is replaced: a new one whose name is taken gets an
        underscore. given: value columns of the row itself that are known, which inform the others of one multivariate
        family; of a wide table, the only columns that are looked at."""
        fitted, tables = self._fitted(), [Table.read(table)]
        (answer,) = inference.predict(fitted, tables, interval, quantiles=quantiles, given=given, member=member)
        return answer

    def predict_distribution(self, table: Any, *, member: int | None = None) -> Distribution | Distributions:
        """The law of each row's value given its context, exactly that of the mixture of all members and companions, in
        the table's units: mean, sd, median, quantiles(q), interval(level), cdf(x), pdf(x), pmf(x), log_pdf(x),
        probability(above=, below=, between=), sample(n, seed), and beside what happened log_score(y), crps(y), pit(y).
        [i], [a:b] and [mask] give those of some rows. Of several value columns one by name: laws["tmax"]."""
        (answer,) = inference.predict_distribution(self._fitted(), [Table.read(table)], member=member)
        return answer

    def impute(self, table: Any, draws: int = 0, *, seed: int = 0, interval: float | None = 0.9) -> Any:
        """The table with its nulls filled in by what is expected of each given all that is observed in its group (of a
        wide table, in its row), any number of them in one group; of words, of ordered categories and of yes or no by
        the most probable. <value>_sd, _lower and _upper stand beside, null where nothing was missing. draws=m: a list
        of m completed tables, drawn jointly within each group, whose estimates
        `efattn.pool` puts together. The same group gets the same answer whatever else is in the table."""
        (answer,) = inference.impute(self._fitted(), [Table.read(table)], draws=draws, seed=seed, interval=interval)
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
        diversity: float = 0.0,
        why: int = 0,
        member: int | None = None,
    ) -> Any:
        """The k most probable further items of each group (past: next; others: missing) with their probabilities: one
        row per group and rank. Without histories, those of an empty one. at: when that row comes, where the model looks
        at it (own_time): one time, one by group, or a column of the histories; by default the usual time after the last
        row. attributes: its own by column, one entry or one by group; by default those of the last row. among, exclude:
        give these items alone, or none of these: a list of names, a table that has the items' columns, or levels by
        column of item_features, as {"category": ["tea", "coffee"]}. at_least: only what is so probable. diversity: 0
        lists by probability, up to 1 items unlike each other, by maximal marginal relevance over their vectors. why:
        how many rows of the history to name that carried each, why_1 and by how much they raised its log odds.
        Probabilities stay those among all items."""
        fitted, tables = self._fitted(), None if histories is None else [Table.read(histories)]
        which: dict[str, Any] = {"among": among, "exclude": exclude, "at_least": at_least}
        which |= {"diversity": diversity, "why": why}
        (answer,) = inference.recommend(fitted, tables, k, at=at, attributes=attributes, **which, member=member)
        return answer

    def follow(self, history: Any = None) -> Any:
        """One history that grows, for a server: add(rows) appends to it, recommend(k) says what comes next, as
        recommend does of the whole of it. Keys and values of what was there are kept, so that one more row costs one
        row."""
        return inference.Following(self._fitted(), None if history is None else Table.read(history))

    def sample(
        self,
        groups: int | None = None,
        length: int | None = None,
        given: Any = None,
        seed: int = 0,
        *,
        burn_in: int | None = None,
        member: int | None = None,
    ) -> Any:
        """New groups, 5 unless said, items and values drawn jointly; or the groups of a table completed, `groups` times
        each (a column `draw` then tells them apart): rows that are given stay, their null values are drawn, null items
        too where the model has a term for them, and rows are added where it can. length: rows of each group; by default
        drawn from those of the fit. With past as context each cell is drawn from its conditional, in order: exactly the
        joint law; with any the same in an order that is drawn. With others cells are drawn one after the other, each
        given those before it, and then, burn_in times, by turns given all others (Gibbs), which by default is done for
        items alone; a note tells whether that was enough (split R-hat). Attributes are not drawn: give the rows. The
        seed decides everything."""
        rows = None if given is None else Table.read(given)
        return inference.sample(self._fitted(), groups, length, rows, seed=seed, burn_in=burn_in, member=member)

    def forecast(
        self,
        table: Any,
        steps: int = 5,
        draws: int = 200,
        seed: int = 0,
        interval: float = 0.9,
        *,
        paths: bool = False,
        burn_in: int | None = None,
        member: int | None = None,
    ) -> Any:
        """Of a model with lags: the rows that follow the last group of each series, steps of them, with the items and
        attributes of that group, a column step, and <value>_mean, _sd, _lower and _upper. Values in between are drawn,
        draws paths of them, so that intervals widen with each step as they should; paths=True gives all paths instead,
        told apart by a column draw. burn_in: sweeps over each group besides, values by turns given all others."""
        how: dict[str, Any] = {"draws": draws, "seed": seed, "interval": interval, "paths": paths}
        return inference.forecast(self._fitted(), Table.read(table), steps, **how, burn_in=burn_in, member=member)

    def where_next(
        self, table: Any, candidates: Any = None, *, draws: int = 20, seed: int = 0, member: int | None = None
    ) -> Any:
        """Which of the candidates to measure: rows without values, in groups of the table. They come back with those
        first whose measurement would lower the expected variance of the other candidates most, with <value>_sd, what is
        not known of each, and <value>_reduction, the fall of the others' summed variance, averaged over draws of what
        the measurement may give. Of a wide table the missing cells are candidates: row, column and reduction, the
        summed shares by which the variances of the row's other missing cells fall."""
        both = Table.read(table), None if candidates is None else Table.read(candidates)
        return inference.where_next(self._fitted(), *both, draws=draws, seed=seed, member=member)

    def evaluate(
        self,
        table: Any,
        k: int | Sequence[int] = LENGTHS,
        *,
        rows: str = "auto",
        target: str | None = None,
        seen: bool | None = None,
        member: int | None = None,
        metrics: str | Sequence[str] | None = None,
        by: str | None = None,
    ) -> Any:
        """How well rows are predicted, each from its context. Of items, ranked among the whole catalogue: recall, NDCG,
        MRR, coverage and novelty of lists of each length k, and whether their mass can be trusted; of values, log
        score, errors, and how often intervals hold them. Means have standard errors over groups; .table, .groups and
        .items are frames, .plot() a picture.

        rows: which are predicted: "target", those that a column marks; "last" of each group; "all"; or "auto", the
        target column's where there is one, else the last for a model of items from the past, else all. target: that
        column, by default the model's. seen: whether items of a row's context are ranked too; by default where the
        model lets items repeat. An item that the model does not know counts as missed. metrics: those that are shown,
        as ["crps", "ndcg"], by default all. by: "group" or "item", for that frame alone."""
        how: dict[str, Any] = {"rows": rows, "target": target, "seen": seen, "member": member}
        told = inference.evaluate(self._fitted(), tables_of(self._fitted(), table), k, **how)
        told = told if metrics is None else told.showing(metrics)
        return told if by is None else told.frame(by)

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

    def explain(
        self,
        table: Any,
        row: int | None = None,
        *,
        item: Any = None,
        term: str | None = None,
        member: int | None = None,
    ) -> Any:
        """Which rows of its context carried the prediction of one row: a frame with one line for each of them, the
        largest change first. row, its item and lag; attention, the mean over members, layers and heads; and what the
        row changed, exactly, by predicting again without it: <value>_natural, the natural parameter in the models' own
        units, and <value>_mean, with <value>_mean_without beside it. Of items: the log odds (<item>_natural) and the
        _probability.

        row: the number of the row that is explained, from 0. term="item" explains its item and not its value. item:
        one that recommend gives: what carried it for the group of that row, or for the one group of the table; of a
        wide table, the column whose cell of that row is explained by the others."""
        how: dict[str, Any] = {"item": item, "term": term, "member": member}
        return inference.explain(self._fitted(), Table.read(table), row, **how)

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
