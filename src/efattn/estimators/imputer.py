"""EFA as scikit-learn's imputer: a wide table in, the same without holes out.

fit        a row is a group, a column an item with a family of its own (`fit_wide`)
transform  each missing cell is what is expected of it given all that its row has; of words the most probable
"""

from typing import Any, final

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.utils.validation import check_is_fitted, validate_data

from efattn.data import Table, Wide
from efattn.estimators.efa import EFA
from efattn.estimators.wide import least_squares


@final
class EFAImputer(TransformerMixin, BaseEstimator):
    """Fill in what is missing in a matrix of numbers or in a frame of mixed columns.

    estimator: an unfitted EFA, or None for EFA(effort=effort, seed=seed) in which counts and measures have normal laws,
    whose means are those of least squares; effort: "quick", "normal" or "best". A column that is empty when it is
    fitted is left out of what comes out, as scikit-learn's own imputers do. model_ is the fitted EFA, which gives
    intervals and several draws (`model_.impute`)."""

    def __init__(self, estimator: Any = None, *, effort: Any = "normal", seed: int = 0) -> None:
        self.estimator = estimator
        self.effort = effort
        self.seed = seed

    def fit(self, X: Any, y: Any = None) -> "EFAImputer":
        """X: (row, column), NaN or null where missing. y is not looked at."""
        table = self._table(X, reset=True)
        empty = [name for name in table.names if _empty(table, name)]
        model = self._default(table, empty) if self.estimator is None else clone(self.estimator)
        self.model_ = model.fit_wide(table, exclude=empty, progress=False)
        self.kept_ = np.array([name not in empty for name in table.names])
        return self

    def _default(self, table: Table, empty: list[str]) -> EFA:
        """Errors of imputed numbers count by their squares, so that counts and measures have normal laws."""
        layout, _ = Wide.fit(table, exclude=empty)
        family: Any = least_squares(layout, layout.codes(table)) or "auto"
        return EFA(family=family, effort=self.effort, seed=self.seed)

    def transform(self, X: Any) -> np.ndarray:
        """(row, column): floats, or objects where a column holds words."""
        check_is_fitted(self)
        table = self._table(X, reset=False)
        filled = Table.read(self.model_.impute(table, interval=None))
        columns = [filled.column(name) for name, kept in zip(table.names, self.kept_, strict=True) if kept]
        words = any(not (column.dtype.is_numeric() or column.dtype.is_nested()) for column in columns)
        made = [_plain(column, words) for column in columns]
        return np.column_stack(made) if made else np.zeros((len(table), 0))

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Names of the columns that come out: those that went in, but for the empty ones."""
        check_is_fitted(self)
        from sklearn.utils.validation import _check_feature_names_in

        return np.asarray(_check_feature_names_in(self, input_features), dtype=object)[self.kept_]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        return tags

    def _table(self, X: Any, *, reset: bool) -> Table:
        """Frames with names as they are; all else as a matrix of numbers."""
        names = getattr(X, "columns", None)
        if names is not None and hasattr(X, "dtypes") and all(isinstance(name, str) for name in names):
            validate_data(self, X, skip_check_array=True, reset=reset)
            return Table.read(X)
        X = validate_data(self, X, dtype=np.float64, ensure_all_finite="allow-nan", reset=reset)
        return Table.read({f"x{k}": column for k, column in enumerate(X.T)})


def _empty(table: Table, name: str) -> bool:
    column = table.column(name)
    return bool(column.null_count() == len(column) or (column.dtype.is_float() and column.is_nan().all()))


def _plain(column: Any, words: bool) -> np.ndarray:
    if words:
        return np.array(column.to_list(), dtype=object)
    import polars as pl

    entries: np.ndarray = column.cast(pl.Float64).to_numpy()
    return entries
