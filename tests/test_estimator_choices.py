"""Families, names and roles: what is chosen, what is allowed, and what is refused in words."""

import logging

import numpy as np
import polars as pl
import pytest
from sklearn.exceptions import NotFittedError
from small import efa, latent, weather
from small_models import BOTH, DAYS, PLACES, TABLE, WEATHER, fitted

import efattn
from efattn import DataError, families
from efattn.estimators.families import automatic, choose

# ---- families


DRAW = np.random.default_rng(0)
RULES = {
    "only 0 and 1": ([0, 1, 1, 0], families.Bernoulli()),
    "always 0": ([0, 0, 0], families.Bernoulli()),
    "a few levels": ([1, 2, 5, 3], families.Ordinal(5, 1)),
    "eleven levels": (range(11), families.Ordinal(11, 0)),
    "negative levels": ([-2, 0, 2], families.Ordinal(5, -2)),
    "even counts": (np.random.default_rng(0).poisson(20, 500), families.Poisson()),
    "uneven counts": ([0, 0, 1, 2, 60], families.NegativeBinomial()),
    "shares": ([0.2, 0.9, 0.5], families.Beta()),
    "skewed": ([0.1, 0.2, 1.0, 9.0], families.Gamma()),
    "positive": ([50.5, 51.5, 52.5], families.Gaussian()),
    "real": ([-1.5, 2.5], families.Gaussian()),
    "wide whole numbers": ([-500, 20, 300], families.Gaussian()),
    "a share of 0": ([0.0, 0.5, 0.9], families.ZeroOr()),
    "constant": ([7, 7, 7], families.Gaussian()),
    "nothing": ([np.nan], families.Gaussian()),
    "goals": (DRAW.poisson(1.4, 400), families.Poisson()),
    "answers from 0 to 4": (DRAW.choice(5, 400, p=[0.3, 0.1, 0.1, 0.2, 0.3]), families.Ordinal(5, 0)),
    "degrees": (DRAW.normal(55, 17, 900).round(), families.Gaussian()),
    "years": (DRAW.integers(1900, 2020, 300), families.Gaussian()),
    "incomes": (DRAW.lognormal(10, 0.6, 400).round(), families.LogNormal()),
    "with gaps": ([0, np.nan, 1], families.Bernoulli()),
}


@pytest.mark.parametrize("rule", RULES)
def test_automatic_families_follow_the_rules(rule):
    values, family = RULES[rule]
    assert automatic(np.array(list(values), float))[0] == family


def test_items_of_different_sizes_are_not_taken_for_skewness():
    item = np.repeat([0, 1, 2], 50)
    y = np.random.default_rng(0).normal(size=150) + np.array([10.0, 100.0, 400.0])[item]
    assert automatic(y).family == families.Gamma()
    choice = automatic(y, "y", item)
    assert choice.family == families.Gaussian()
    assert choice.why == "positive, symmetric within the values of each item"


def test_an_automatic_family_is_told(caplog):
    with caplog.at_level(logging.INFO, "efattn"):
        model = efa().fit(TABLE, **{**BOTH, "value": ["rating", "count"]})
    told = [str(note) for note in model.notes_ if note.kind == "family"]
    assert len(told) == 2
    assert "Family of 'rating': Ordinal(levels=5, low=1) (whole numbers from 1 to 5)" in told[0]
    assert told[0] in caplog.text
    assert told[0] in model.summary()
    assert model.family_.parts[0] == families.Ordinal(5, 1)


def test_families_by_name_object_list_and_mapping():
    y, columns = np.array([[1.0, 2, 3], [4, 5, 9]]), ("a", "b", "c")

    def parts(spec):
        return choose(y, columns, spec)[0].parts

    gaussian, poisson = families.Gaussian(), families.Poisson()
    assert parts("gaussian") == (gaussian,) * 3
    assert parts("Negative Binomial") == (families.NegativeBinomial(),) * 3
    assert parts(poisson) == (poisson,) * 3
    assert parts(["gaussian", poisson, "gamma"]) == (gaussian, poisson, families.Gamma())
    assert parts("multivariate_gaussian") == (families.MultivariateGaussian(3),)
    assert parts("Multivariate Gaussian") == (families.MultivariateGaussian(3),)
    assert parts(families.MultivariateGaussian(2, "predicted")) == (families.MultivariateGaussian(3, "predicted"),)
    pair = {("c", "a"): families.MultivariateGaussian(), "b": "poisson"}
    assert parts(pair) == (families.MultivariateGaussian(2), poisson)
    assert parts({"b": "poisson"})[0] == poisson
    assert parts(families.Product((poisson, families.MultivariateGaussian(2))))[1] == families.MultivariateGaussian(2)
    assert parts("ordinal") == (families.Ordinal(4, 1), families.Ordinal(4, 2), families.Ordinal(7, 3))


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("poison", "Did you mean 'poisson'"),
        (["gaussian"], "1 entries for the 2 value columns"),
        ({"other": "gaussian"}, "'other'"),
        ({("real", "count"): "gaussian"}, "is a family of one column"),
        ({("real", "count"): "auto"}, "is a family of one column"),
        (7, "family is a name"),
        ("categorical", "a category is an item"),
        (families.Product((families.Poisson(),)), "covers 1 columns"),
        (families.Categorical(3), "categor"),
        ([None, "gaussian"], "None"),
        ("poisson", "Poisson values must be whole numbers >= 0; column 'real' has"),
    ],
)
def test_a_family_that_does_not_fit_is_refused(spec, words):
    with pytest.raises(DataError, match=words):
        efa(family=spec).fit(TABLE, **{**BOTH, "value": ["real", "count"]})


def test_columns_of_one_family_may_stand_apart():
    """A tuple key puts its columns side by side; predictions carry the right names all the same."""
    family = {("real", "x"): families.MultivariateGaussian(2), "count": "poisson"}
    model = efa(family=family).fit(TABLE, **{**BOTH, "value": ["real", "count", "x"]})
    found = model.predict(TABLE)
    for name in ("real", "count", "x"):
        spread = TABLE[name].std()
        assert abs(found[f"{name}_mean"].mean() - TABLE[name].mean()) < spread


def test_ordinal_predictions_have_mode_and_probabilities():
    model, table, _ = fitted("ordinal")
    found = model.predict(table)
    p = found.select([f"rating_p_{level}" for level in range(1, 6)]).to_numpy()
    np.testing.assert_allclose(p.sum(1), 1, atol=1e-6)
    np.testing.assert_array_equal(found["rating_mode"].to_numpy(), p.argmax(1) + 1)
    np.testing.assert_allclose(found["rating_mean"].to_numpy(), p @ np.arange(1, 6), atol=1e-6)


# ---- names and roles


@pytest.mark.parametrize(
    "name", ["a.b", "the value", "terms", "training", "values", "items", "type", "keys", "item", "forward", "ä\n\"'"]
)
def test_any_name_is_good_for_a_value_column(name, tmp_path):
    table = TABLE.rename({"real": name})
    model = efa().fit(table, group="user", item="movie", value=name)
    assert f"{name}_mean" in model.predict(table).columns
    scored = model.log_likelihood(table)
    assert len([column for column in scored.columns if column.endswith("_log_likelihood")]) == 2
    model.save(tmp_path / "x")
    assert efattn.load(tmp_path / "x").score(table) == model.score(table)
    assert len(model.model_.terms) == 2


@pytest.mark.parametrize("name", ["rank", "probability", "user.id"])
def test_any_name_is_good_for_groups_and_items(name):
    one = efa().fit(TABLE.rename({"user": name}), group=name, item="movie")
    two = efa().fit(TABLE.rename({"movie": name}), group="user", item=name)
    for model, table in ((one, TABLE.rename({"user": name})), (two, TABLE.rename({"movie": name}))):
        found = model.recommend(table, k=2)
        assert found.width == 4
        assert len(found) > 0


def test_predictions_never_take_the_place_of_a_column_with_a_role():
    table = TABLE.rename({"count": "real_mean"})
    model = efa().fit(table, **{**BOTH, "value": ["real", "real_mean"]})
    found = model.predict(table)
    assert found["real_mean"].to_list() == table["real_mean"].to_list()
    assert found["real_mean_"].is_finite().all()
    assert model.predict(found)["real_mean_"].to_list() == found["real_mean_"].to_list()


def test_one_item_only_is_left_out_with_a_note():
    same = TABLE.with_columns(movie=pl.lit("m"))
    model = efa().fit(same, **BOTH)
    assert model.terms_ == ("value",)
    assert any("only one item" in str(note) for note in model.notes_)
    assert np.isfinite(model.score(same))
    for parameters, roles in (({"terms": "item"}, BOTH), ({}, {"group": "user", "item": "movie"})):
        with pytest.raises(DataError, match="only one item"):
            efa(**parameters).fit(same, **roles)


def test_items_that_are_always_the_same_set_are_told():
    model = efa().fit(WEATHER, **DAYS)
    assert any("Every group has every item" in str(note) for note in model.notes_)
    assert not any("Every group has every item" in str(note) for note in efa().fit(TABLE, **BOTH).notes_)


def test_order_by_row_is_table_order():
    table = TABLE.sort("user", "at", maintain_order=True)
    one = efa(context="past").fit(table, **BOTH, order="row")
    two = efa(context="past").fit(table, **BOTH, order="at")
    assert one.score(table) == two.score(table)


def test_items_of_few_rows_get_more_dropout():
    def chosen(**options):
        model = efa(**options).fit(TABLE, **BOTH).model_
        return [model[name].stack.dropout for name in model.terms]

    assert chosen(dropout="auto") == [0.3, 0.1]
    assert chosen(dropout=0.2) == [0.2, 0.2]


def test_series_have_their_own_lags():
    two = pl.concat([WEATHER.with_columns(year=1), weather(1).with_columns(year=2)])
    model = efa(lags=2, terms="value").fit(
        two, group=["year", "day"], item="station", value="tmax", time="day", series="year"
    )
    assert np.isfinite(model.score(two))
    assert "Sees 2 earlier time steps" in model.summary()


def test_a_validation_table_decides_about_distinct_items():
    again = pl.concat([TABLE.head(5), TABLE.head(5)])
    assert efa().fit(TABLE, **BOTH, validation=again).support_ == "all"
    with pytest.raises(DataError, match="there again"):
        efa(support="distinct").fit(TABLE, **BOTH, validation=again)


@pytest.mark.parametrize(
    ("parameters", "roles", "words"),
    [
        ({"context": "past"}, BOTH, "context='past' needs"),
        ({"context": "future"}, BOTH, "context must be 'others', 'past' or 'any'"),
        ({"width": 9}, BOTH, "width=9 is not a multiple of heads=2"),
        ({"layers": 0}, BOTH, "layers must be a whole number from 1 to 256"),
        ({"heads": 1.5}, BOTH, "heads must be a whole number"),
        ({"dropout": 1.0}, BOTH, "dropout must be a number from 0 to below 1"),
        ({"dropout": "much"}, BOTH, "dropout must be a number from 0 to below 1"),
        ({"norm": "layer"}, BOTH, "norm must be 'auto', 'pre', 'post' or None"),
        ({"terms": "rating"}, BOTH, "terms are 'item', 'value' or both"),
        ({"terms": "value"}, {"group": "user", "item": "movie"}, "there is no value column to model"),
        ({"terms": ()}, BOTH, "leaves nothing to model"),
        ({"support": "some"}, BOTH, "support must be 'auto', 'all' or 'distinct'"),
        ({"standardise": "both"}, BOTH, "standardise must be"),
        ({"standardise": "item"}, {"group": "user", "value": "real"}, "needs an item column"),
        ({"seed": -1}, BOTH, "seed must be a whole number from 0"),
        ({"seed": None}, BOTH, "seed must be a whole number from 0"),
        ({"training": {"epochs": 3}}, BOTH, "training is an efattn.Training"),
        ({"neighbours": 0}, BOTH, "neighbours must be"),
        ({"neighbours": 3}, {"group": "user", "value": "real"}, "latitude and longitude"),
        ({"lags": 1}, BOTH, "pass time="),
        ({"max_length": 0}, BOTH, "max_length must be a whole number >= 1 or None"),
        ({}, {"group": "user"}, "Nothing to model"),
        ({}, {"group": "usr", "item": "movie"}, "Did you mean 'user'"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_in_words(parameters, roles, words):
    with pytest.raises(DataError, match=words):
        efa(**parameters).fit(TABLE, **roles)


@pytest.mark.parametrize(
    ("parameters", "roles", "words"),
    [
        ({"width": 0}, BOTH, "width must be"),
        ({"neighbours": 1.5}, PLACES, "neighbours must be"),
        ({}, {**BOTH, "value": ["real", "count"]}, "one value column"),
        ({}, {"group": "user", "value": "real"}, "needs an item column or attributes"),
        ({"family": families.Gaussian(variance="predicted")}, BOTH, "one number per row"),
    ],
)
def test_what_a_latent_factor_model_cannot_be_is_refused_in_words(parameters, roles, words):
    with pytest.raises(DataError, match=words):
        latent(**parameters).fit(TABLE if "user" in roles.values() else WEATHER, **roles)


@pytest.mark.parametrize("interval", [0, 1, -0.5, 90, float("nan"), "0.9"])
def test_an_interval_is_a_probability(interval):
    with pytest.raises(DataError, match="interval is a probability"):
        fitted("others")[0].predict(TABLE, interval=interval)


@pytest.mark.parametrize("k", [0, -1, 2.5, None, "3", True])
def test_k_is_a_count(k):
    model = fitted("others")[0]
    for verb in (lambda: model.recommend(TABLE, k=k), lambda: model.recommend(k=k), lambda: model.similar("m1", k=k)):
        with pytest.raises(DataError, match="k is how many"):
            verb()


@pytest.mark.parametrize("make", [efa, latent], ids=["EFA", "LatentFactor"])
def test_nothing_works_before_fit(make, tmp_path):
    model = make()
    verbs = [model.score, model.scores, model.log_likelihood, model.predict, model.recommend, model.update]
    verbs += [model.similar, model.attention, model.save]
    for verb in verbs:
        with pytest.raises(NotFittedError, match="not fitted yet"):
            verb(tmp_path / "x")
    for verb in (model.summary, model.embeddings):
        with pytest.raises(NotFittedError, match="not fitted yet"):
            verb()


def test_a_model_without_a_term_says_what_it_cannot_do():
    with pytest.raises(DataError, match="no item term, so it cannot recommend"):
        fitted("lags")[0].recommend(WEATHER)


def test_a_table_without_the_value_column_can_be_predicted():
    model, table, _ = fitted("others")
    found = model.predict(table.drop("real"))
    assert found["real_mean"].is_finite().all()
    with pytest.raises(DataError, match=r"no column 'movie' \(role item\)"):
        model.predict(table.drop("movie"))


def test_an_empty_table_is_predicted_as_an_empty_table():
    model, table, _ = fitted("others")
    assert len(model.predict(table.clear())) == 0
    assert "real_mean" in model.predict(table.clear()).columns
    with pytest.raises(DataError, match="No row"):
        model.score(table.clear())


def test_where_two_families_are_plausible_groups_left_out_decide():
    rng = np.random.default_rng(0)
    size = np.exp(rng.normal(size=(60, 1)))
    frame = {"g": np.repeat(np.arange(60), 4), "i": np.tile(np.arange(4), 60)}
    skewed = pl.DataFrame({**frame, "y": (size * rng.gamma(0.7, 1.0, (60, 4))).ravel()})
    even = pl.DataFrame({**frame, "y": (50 + rng.normal(size=(60, 1)) + rng.normal(size=(60, 4))).ravel()})
    for table, name in ((skewed, "gamma"), (even, "gaussian")):
        model = efa(terms="value").fit(table, group="g", item="i", value="y")
        assert model.family_.parts[0].name == name
        (note,) = (note for note in model.notes_ if note.kind == "family")
        assert "groups left out have" in str(note)
