"""EFAImputer: scikit-learn's own checks, all that apply to an imputer, and frames of mixed columns."""

import numpy as np
import pandas as pd
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from small import efa
from test_wide import TABLE, people

from efattn import EFAImputer, Training

ONCE = Training(epochs=1, device="cpu")
TINY = EFAImputer(efa(family="gaussian", width=4, layers=1, heads=1, training=ONCE))
# not run: check_array_api_input, which skips itself unless the process was started with SCIPY_ARRAY_API=1


@parametrize_with_checks([TINY])
def test_scikit_learns_checks(estimator, check):
    check(estimator)


def holes(rows=40, columns=3, seed=0):
    draw = np.random.default_rng(seed)
    x = draw.normal(size=(rows, 1)) + 0.5 * draw.normal(size=(rows, columns))
    x[draw.random(x.shape) < 0.2] = np.nan
    return x


def test_a_matrix_is_filled_and_what_was_there_stays():
    x = holes()
    filled = TINY.fit_transform(x)
    assert filled.shape == x.shape
    assert np.isfinite(filled).all()
    assert (filled[~np.isnan(x)] == x[~np.isnan(x)]).all()
    other = holes(seed=1)
    np.testing.assert_allclose(TINY.transform(other)[3:5], TINY.transform(other[3:5]), rtol=1e-5)
    np.testing.assert_allclose(TINY.model_.impute({f"x{k}": c for k, c in enumerate(x.T)})["x0"], filled[:, 0])


def test_an_empty_column_goes_as_with_the_imputers_of_scikit_learn():
    x = np.column_stack([holes(), np.full(40, np.nan)])
    imputer = EFAImputer(TINY.estimator).fit(x)
    assert imputer.transform(x).shape == (40, 3)
    assert imputer.get_feature_names_out().tolist() == ["x0", "x1", "x2"]


def test_frames_of_mixed_columns():
    frame = TABLE.drop("name").to_pandas()
    imputer = EFAImputer(efa(training=ONCE)).set_output(transform="pandas")
    filled = imputer.fit_transform(frame)
    assert list(filled.columns) == list(frame.columns) == list(imputer.get_feature_names_out())
    assert not filled.isna().any().any()
    there = frame["colour"].notna()
    assert (filled["colour"][there] == frame["colour"][there]).all()
    assert not pd.isna(imputer.transform(people(5, seed=3).drop("name").to_pandas())).any().any()
    with pytest.raises(ValueError, match="feature names"):
        imputer.transform(frame.rename(columns={"age": "years"}))


def test_it_stands_in_a_pipeline():
    pipeline = make_pipeline(EFAImputer(TINY.estimator), StandardScaler())
    assert np.isfinite(pipeline.fit_transform(holes())).all()
