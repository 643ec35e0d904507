"""scikit-learn's conventions: its own checks where they need no (X, y) pair, the same laws on a table where they do."""

import inspect
import pickle
from dataclasses import FrozenInstanceError

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.utils import estimator_checks
from sklearn.utils.validation import check_is_fitted
from small import QUICK, SIZES, efa, latent, ratings

import efattn
from efattn import EFA, DataError, LatentFactor, Training, families, group_folds

TABLE = ratings().to_pandas()
ROLES = {"group": "user", "item": "movie", "value": "real"}
KINDS = [EFA, LatentFactor]
BOTH = pytest.mark.parametrize("make", [efa, latent], ids=["EFA", "LatentFactor"])

APPLY = (  # scikit-learn's checks that need no (X, y) pair
    "check_no_attributes_set_in_init", "check_estimator_cloneable",
    "check_estimator_repr", "check_estimator_tags_renamed", "check_valid_tag_types", "check_mixin_order",
    "check_get_params_invariance", "check_set_params", "check_do_not_raise_errors_in_init_or_set_params",
    "check_estimators_unfitted", "check_fit1d",
)  # fmt: skip
# The rest call fit(X, y) with a matrix of anonymous features. Here columns have roles that have to be named, so fit
# refuses ("Nothing to model: name an item column ..."), and what the check is about is tested below on a table:
NEED_A_MATRIX = {
    "check_parameters_default_constructible": "training has a frozen value as its default, which the check takes for "
    "one that changes: tested below",
    "check_fit_score_takes_y": "fit and score take y=None, for pipelines and searches: tested below",
    "check_estimators_overwrite_params": "tested below",
    "check_dont_overwrite_parameters": "tested below",
    "check_estimators_fit_returns_self": "tested below",
    "check_fit_idempotent": "tested below",
    "check_dict_unchanged": "tested below",
    "check_fit_check_is_fitted": "tested below",
    "check_estimators_pickle": "tested below",
    "check_methods_sample_order_invariance": "test_estimators: the order of the table is kept",
    "check_methods_subset_invariance": "test_estimators: one group alone gives the same as among others",
    "check_estimators_nan_inf": "a missing value is allowed; infinity is refused: test_data_odd_columns",
    "check_estimators_empty_data_messages": "test_data_odd_tables",
    "check_fit2d_1sample": "test_data_odd_tables: groups of one",
    "check_fit2d_1feature": "there are no features",
    "check_fit2d_predict1d": "there are no features",
    "check_n_features_in": "there are no features: a table to predict on may have more columns",
    "check_n_features_in_after_fitting": "there are no features",
    "check_positive_only_tag_during_fit": "the family decides: test_family_supports",
    "check_estimators_dtypes": "test_data_odd_columns",
    "check_dtype_object": "test_data_odd_columns",
    "check_complex_data": "a frame of named columns is no complex matrix",
    "check_readonly_memmap_input": "frames are never written to: tested below",
    "check_f_contiguous_array_estimator": "frames are read column by column",
    "check_array_api_input": "frames are no arrays",
    "check_pipeline_consistency": "roles go to fit as keywords",
    "check_estimator_sparse_tag": "no sparse matrices",
    "check_estimator_sparse_array": "no sparse matrices",
    "check_estimator_sparse_matrix": "no sparse matrices",
}


def generated(estimator):
    for one, check in estimator_checks.estimator_checks_generator(estimator, legacy=True):
        plain = check
        while hasattr(plain, "func"):
            plain = plain.func
        yield plain.__name__, one, check


@BOTH
def test_the_checks_that_need_no_matrix_pass(make):
    passed = set()
    for name, one, check in generated(make()):
        if name not in NEED_A_MATRIX:
            check(one)
            passed.add(name)
    assert passed >= set(APPLY)


@pytest.mark.parametrize("kind", KINDS)
def test_the_checks_pass_on_defaults(kind):
    for name, one, check in generated(kind()):
        if name == "check_no_attributes_set_in_init":
            check(one)


@pytest.mark.parametrize("kind", KINDS)
def test_defaults_never_change(kind):
    defaults = {name: one.default for name, one in inspect.signature(kind).parameters.items()}
    assert kind().get_params(deep=False) == defaults == clone(kind()).get_params(deep=False)
    for default in defaults.values():
        assert default is None or type(default) in (str, int, float, bool, Training)
    with pytest.raises(FrozenInstanceError):
        defaults["training"].rate = 1


@BOTH
def test_a_matrix_is_refused_in_words(make):
    with pytest.raises(DataError, match="Nothing to model: name an item column"):
        make().fit(np.zeros((5, 2)), np.zeros(5))


@pytest.mark.parametrize("kind", KINDS)
def test_the_constructor_only_keeps_what_it_is_given(kind):
    names = [name for name in inspect.signature(kind.__init__).parameters if name != "self"]
    odd = {name: object() for name in names}
    model = kind(**odd)
    assert vars(model) == odd
    assert model.get_params(deep=False) == odd


@BOTH
def test_a_clone_is_unfitted_and_fits_the_same(make):
    model = make(family=families.Gaussian(), training=QUICK).fit(TABLE, **ROLES)
    other = clone(model)
    assert other.get_params() == model.get_params()
    with pytest.raises(NotFittedError):
        other.score(TABLE)
    assert other.fit(TABLE, **ROLES).score(TABLE) == model.score(TABLE)


@BOTH
def test_set_params_changes_and_refuses_by_name(make):
    model = make().set_params(width=16, training=Training(epochs=1))
    assert model.get_params()["width"] == 16
    with pytest.raises(ValueError, match="Invalid parameter 'widht'"):
        model.set_params(widht=3)


def test_a_repr_shows_what_is_not_default():
    assert repr(EFA(width=8, family="poisson")) == "EFA(family='poisson', width=8)"
    assert repr(EFA()) == "EFA()"
    assert repr(LatentFactor(intercept=True)) == "LatentFactor(intercept=True)"


@BOTH
def test_fit_returns_self_and_leaves_parameters_alone(make):
    model = make()
    before = dict(vars(model))
    assert model.fit(TABLE, None, **ROLES) is model
    assert {name: vars(model)[name] for name in before} == before
    added = set(vars(model)) - set(before)
    assert all(name.endswith("_") or name.startswith("_") for name in added), added
    check_is_fitted(model)


@BOTH
def test_fitting_twice_is_fitting_once(make):
    once = make().fit(TABLE, **ROLES)
    first = once.score(TABLE)
    assert once.fit(TABLE, **ROLES).score(TABLE) == first
    history = len(once.history_)
    once.fit(TABLE, **ROLES)
    assert len(once.history_) == history


@BOTH
def test_asking_changes_nothing(make):
    model = make().fit(TABLE, **ROLES)

    def kept():  # all but the weights, compared below, and the schema, which remembers names that it looked up
        return pickle.dumps({k: v for k, v in vars(model.fitted_).items() if k not in ("members", "schema")})

    before = kept()
    weights = {name: x.clone() for name, x in model.model_.state_dict().items()}
    frame = TABLE.copy()
    model.predict(TABLE), model.score(TABLE, None), model.recommend(TABLE), model.summary()
    assert kept() == before
    assert all((x == weights[name]).all() for name, x in model.model_.state_dict().items())
    pd.testing.assert_frame_equal(TABLE, frame)


@BOTH
def test_a_pickled_model_predicts_the_same(make):
    model = make().fit(TABLE, **ROLES)
    again = pickle.loads(pickle.dumps(model))
    pd.testing.assert_frame_equal(again.predict(TABLE), model.predict(TABLE))


@BOTH
def test_a_grid_search_by_groups(make):
    grid = {"width": [4, 8], "seed": np.arange(2)}
    folds = group_folds(TABLE, group="user", folds=2)
    search = GridSearchCV(make(), grid, cv=folds).fit(TABLE, **ROLES)
    assert search.best_params_["width"] in (4, 8)
    scores = search.cv_results_["mean_test_score"]
    assert np.isfinite(scores).all()
    assert search.best_score_ == scores.max()
    assert search.best_estimator_.score(TABLE) == pytest.approx(search.score(TABLE))
    assert "real_mean" in search.predict(TABLE).columns


def test_a_grid_over_families_and_training():
    family = ["gaussian", families.Gaussian("predicted")]
    grid = {"family": family, "training": [QUICK, Training(epochs=1, device="cpu")]}
    search = GridSearchCV(efa(), grid, cv=group_folds(TABLE, "user", folds=2)).fit(TABLE, **ROLES)
    assert len(search.cv_results_["params"]) == 4


@BOTH
def test_a_grid_over_single_options_of_training(make):
    rates = [0.001, 0.01]
    grid = {"training__rate": rates, "training__epochs": [1, 2]}
    search = GridSearchCV(make(training=QUICK), grid, cv=group_folds(TABLE, "user", folds=2)).fit(TABLE, **ROLES)
    assert len(set(search.cv_results_["mean_test_score"])) == 4
    assert search.best_estimator_.training == Training(**{**QUICK.get_params(), **_inner(search.best_params_)})
    assert Training(epochs=2, tokens=64, device="cpu") == QUICK


def _inner(found):
    return {name.removeprefix("training__"): x for name, x in found.items()}


@pytest.mark.parametrize("kind", KINDS)
def test_training_is_a_nested_value(kind):
    model, default = kind(), Training()
    assert model.training == default
    assert model.get_params()["training__rate"] == default.rate
    other = clone(kind(training=Training(rate=1))).set_params(training__epochs=3, width=4)
    assert (other.training, other.width) == (Training(rate=1, epochs=3), 4)
    assert kind().training == default
    assert kind(training=None).set_params(training__rate=1).training == Training(rate=1)
    assert clone(kind(training=None)).training is None
    with pytest.raises(ValueError, match="Invalid parameter 'rat' for Training"):
        model.set_params(training__rat=1)
    with pytest.raises(DataError, match="rate must be a number > 0"):
        model.set_params(training__rate=-1)
    assert clone(default) == default
    assert pickle.loads(pickle.dumps(default)) == default


def test_cross_validation_of_a_polars_frame():
    table = ratings()
    scores = cross_val_score(efa(), table, cv=group_folds(table, "user", folds=2), params=ROLES)
    assert np.isfinite(scores).all()


def test_folds_score_what_a_fit_by_hand_scores():
    folds = group_folds(TABLE, "user", folds=2)
    by_hand = [efa().fit(TABLE.iloc[train], **ROLES).score(TABLE.iloc[test]) for train, test in folds]
    assert cross_val_score(efa(), TABLE, cv=folds, params=ROLES) == pytest.approx(by_hand)


def test_numpy_numbers_are_numbers():
    numbers = {name: np.int64(size) for name, size in SIZES.items()} | {"seed": np.int64(1), "dropout": np.float64(0.1)}
    model = EFA(**numbers, companions=None, refit=False, training=QUICK).fit(TABLE, **ROLES)
    assert model.score(TABLE) == efa(seed=1, dropout=0.1).fit(TABLE, **ROLES).score(TABLE)


def test_the_public_names_are_there():
    assert {"EFA", "LatentFactor", "Training", "load", "group_folds", "from_wide"} <= set(efattn.__all__)
