"""The rows of docs/odd-inputs.md about single columns; test_data_odd_inputs walks them."""

import datetime
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from efattn import DataError, families
from efattn.data import Groups, Roles, Schema, Table

PAGE = Path(__file__).parents[1] / "docs" / "odd-inputs.md"
CASES: dict[str, Callable[[], None]] = {}

BASE: dict[str, Any] = {
    "user": ["u1", "u1", "u2", "u2", "u3"],
    "movie": [10, 20, 10, 30, 20],
    "rating": [1.0, 2.0, 3.0, 4.0, 5.0],
    "age": [30.0, 30.0, 40.0, 40.0, 50.0],
    "when": [3, 1, 2, 5, 4],
    "w": [1.0, 2.0, 1.0, 1.0, 1.0],
    "e": [1.0, 2.0, 1.0, 1.0, 1.0],
    "t": [True, True, False, True, True],
}
ROLES = Roles("user", "movie", "rating", attributes="age", order="when", exposure="e", weight="w", target="t")
DAYS = {"day": [1, 1, 2, 2, 3, 3], "city": list("abcabc")[:2] * 3, "temp": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]}
DAILY = Roles("day", "city", "temp", time="day")


def case(test: Callable[[], None]) -> Callable[[], None]:
    CASES[test.__name__.replace("_", "-")] = test
    return test


def fitted(roles: Roles = ROLES, base: Any = BASE, **changes: Any) -> Groups:
    options = {k: changes.pop(k) for k in ("lags", "max_length", "standardise") if k in changes}
    table = {**base, **changes}
    frame = pl.DataFrame(
        {k: v if isinstance(v, pl.Series) else pl.Series(k, v, strict=False) for k, v in table.items()}
    )
    return Schema.fit_encode(frame, roles, **options)[1]


def refused(*words: str, make: Callable[[], Any]) -> None:
    with pytest.raises(DataError) as found:
        make()
    for word in words:
        assert word in str(found.value), f"{word!r} is not in: {found.value}"


def refuses(
    column: str, entries: list[Any], *words: str, roles: Roles = ROLES, base: Any = BASE, **options: Any
) -> None:
    refused(repr(column), *words, make=lambda: fitted(roles, base, **{column: entries}, **options))


def noted(groups: Groups, *words: str) -> None:
    assert any(all(word in str(note) for word in words) for note in groups.notes), groups.notes


@case
def null_group() -> None:
    refuses("user", ["u1", None, "u2", "u2", "u3"], "row 1", "drop")
    refuses("user", [1.0, 1.0, float("nan"), 2.0, 2.0], "row 2", "drop")


@case
def null_item() -> None:
    groups = fitted(movie=[10, None, 10, 30, 20])
    assert groups.item is not None
    assert groups.item[list(groups.rows).index(1)] == 3
    noted(groups, "No item in 1 of 5 rows")
    both = fitted(Roles("user", ["movie", "age"], "rating"), age=[30, None, 40, 40, 50])
    assert both.item is not None
    assert both.item.tolist() == [0, 4, 1, 3, 2]


@case
def null_value() -> None:
    for gap in (None, float("nan")):
        groups = fitted(rating=[1.0, gap, 3.0, 4.0, 5.0])
        batch = next(groups.batches(100))
        assert batch.rows is not None
        assert batch.observed is not None
        assert not batch.observed[batch.rows == 1].any()
        assert batch.observed[(batch.rows >= 0) & (batch.rows != 1)].all()


@case
def null_attribute() -> None:
    for gap in (None, float("nan")):
        schema, groups = Schema.fit_encode({**BASE, "age": [30.0, 30.0, gap, 40.0, 50.0]}, ROLES)
        assert schema.attribute_names == ("age", "age is null")
        assert groups.attributes is not None
        back = groups.attributes[np.argsort(groups.rows)]
        assert back.tolist() == [[30, 0], [30, 0], [35, 1], [40, 0], [50, 0]]
        noted(groups, "'age'", "null in 1 of 5 rows", "median, 35")
    again = Schema.from_saved(json.loads(json.dumps(schema.to_json())), schema.arrays())
    assert again.fills == schema.fills == {"age": (35.0, True)}
    complete = Schema.fit(BASE, ROLES)
    assert complete.attribute_names == ("age",)
    later = complete.encode({**BASE, "age": [None, 30, 30, 40, 50]})
    assert later.attributes is not None
    middle = float(np.median(np.array(BASE["age"], float)))
    assert later.attributes[np.argsort(later.rows)].ravel().tolist() == [middle, 30, 30, 40, 50]
    noted(later, "'age'", "null in 1 of 5 rows", "none was null when the model was fitted")
    assert any(note.important for note in later.notes)
    refuses("age", [None, None, None, None, None], "row 0")


@case
def null_order() -> None:
    refuses("when", [3, 1, 2, None, 4], "row 3")
    refuses("when", [3.0, float("nan"), 2.0, 1.0, 4.0], "row 1")
    refuses("when", ["3", "nan", "2", "1", "4"], "row 1")


@case
def null_time() -> None:
    refuses("hour", [1, 1, None, 2, 3, 3], "row 2", roles=Roles("day", "city", "temp", time="hour"), base=DAYS, lags=1)


@case
def null_series() -> None:
    roles = Roles("day", "city", "temp", time="day", series="region")
    refuses("region", ["n", "n", "n", "n", None, "n"], "row 4", roles=roles, base=DAYS, lags=1)


@case
def null_exposure() -> None:
    refuses("e", [1, 1, 1, 1, None], "row 4")


@case
def null_weight() -> None:
    refuses("w", [None, 1, 1, 1, 1], "row 0")


@case
def null_target() -> None:
    refuses("t", [True, None, True, True, False], "row 1")


@case
def infinite_value() -> None:
    refuses("rating", [1.0, 2.0, 3.0, float("-inf"), 5.0], "row 3", "null")


@case
def infinite_attribute() -> None:
    for column in ("age", "w", "e"):
        refuses(column, [1.0, float("inf"), 3.0, 1.0, 5.0], "row 1")


@case
def infinite_order() -> None:
    assert fitted(when=[float("inf"), 1.0, 2.0, float("-inf"), 4.0]).rows.tolist() == [1, 0, 3, 2, 4]


@case
def infinite_time() -> None:
    roles = Roles("day", "city", "temp", time="hour")
    refuses("hour", [1.0, 1.0, float("inf"), float("inf"), 3.0, 3.0], "row 2", roles=roles, base=DAYS, lags=1)


@case
def infinite_group() -> None:
    for column in ("user", "movie"):
        refuses(column, [1.0, 1.0, float("inf"), 2.0, 2.0], "row 2")


@case
def missing_code() -> None:
    groups = fitted(
        Roles("user", "movie", "rating", attributes="age", missing=-1), rating=[-1, 2, 3, 4, 5], age=[-1] * 5
    )
    assert groups.value is not None
    assert groups.attributes is not None
    assert np.isnan(groups.value[:, 0]).tolist() == [True, False, False, False, False]
    assert (groups.attributes == -1).all()


@case
def missing_word() -> None:
    groups = fitted(Roles("user", "movie", "rating", missing=["?"]), rating=["1", "NA", " n/a", "?", "2.5"])
    assert groups.value is not None
    np.testing.assert_array_equal(groups.value[:, 0], [1, np.nan, np.nan, np.nan, 2.5])


@case
def all_missing() -> None:
    refuses("rating", [None] * 5, "value")
    groups = Schema.fit(BASE, ROLES).encode({**BASE, "rating": [None] * 5})
    assert groups.value is not None
    assert np.isnan(groups.value).all()


@case
def unknown_item() -> None:
    groups = Schema.fit(BASE, ROLES).encode({**BASE, "movie": [10, 20, 10, 99, 98]})
    assert groups.item is not None
    assert sorted(groups.item.tolist()) == [0, 0, 1, 3, 3]
    noted(groups, "2 of 5", "movie 99 at row 3")


@case
def unknown_item_type() -> None:
    refused(
        "'movie'", "text", "whole numbers",
        make=lambda: Schema.fit(BASE, ROLES).encode({**BASE, "movie": list("abcde")}),
    )  # fmt: skip


@case
def new_items_on_update() -> None:
    schema = Schema.fit(BASE, ROLES, standardise="item").with_new_items({"movie": [99, 5, 20]})
    assert schema.vocabulary is not None
    assert schema.vocabulary.names == [10, 20, 30, 5, 99]
    assert schema.standardiser is not None
    assert schema.standardiser.item_centre is not None
    assert len(schema.standardiser.item_centre) == 6


@case
def ties() -> None:
    groups = fitted(when=[1, 1, 2, 1, 1])
    assert groups.rows.tolist() == [0, 1, 3, 2, 4]
    assert groups.ties == 1
    noted(groups, "Ties", "'when'", "1 of 5")


@case
def row_order() -> None:
    for order in ("row", None):
        assert fitted(Roles("user", "movie", order=order)).rows.tolist() == [0, 1, 2, 3, 4]


@case
def group_of_one() -> None:
    groups = fitted()
    assert groups.lengths.tolist() == [2, 2, 1]
    noted(groups, "one row", "1 of 3")


@case
def scattered_group() -> None:
    groups = fitted(Roles("user", "movie", "rating"), user=["a", "b", "a", "b", "a"])
    assert groups.rows.tolist() == [0, 2, 4, 1, 3]
    batch = next(groups.batches(100))
    assert batch.rows is not None
    assert batch.value is not None
    back = np.empty(5)
    back[batch.rows[batch.exists]] = batch.value[batch.exists][:, 0]
    assert back.tolist() == BASE["rating"]


@case
def no_group() -> None:
    assert fitted(Roles(item="movie")).lengths.tolist() == [5]


@case
def empty_table() -> None:
    empty = pl.DataFrame(BASE).clear()
    refused("no rows", make=lambda: Schema.fit(empty, ROLES))
    groups = Schema.fit(BASE, ROLES).encode(empty)
    assert (len(groups), list(groups.batches(10)), groups.rows.tolist()) == (0, [], [])
    assert len(Schema.fit(DAYS, DAILY, lags=1).encode(pl.DataFrame(DAYS).clear())) == 0


@case
def missing_column() -> None:
    refused("'film'", "item", "'rating'", make=lambda: fitted(Roles("user", "film")))


@case
def misspelt_column() -> None:
    refused("'Ratng'", "Did you mean 'rating'?", make=lambda: fitted(Roles("user", "movie", "Ratng")))


@case
def misspelt_value_at_prediction() -> None:
    table = {k if k != "rating" else "Rating": v for k, v in BASE.items()}
    noted(Schema.fit(BASE, ROLES).encode(table), "'rating'", "Did you mean 'Rating'?")
    refused("'rating'", "Did you mean 'Rating'?", make=lambda: Schema.fit(BASE, ROLES).encode(table, need=("value",)))


@case
def no_value_at_prediction() -> None:
    table = {k: v for k, v in BASE.items() if k not in ("rating", "w", "t")}
    groups = Schema.fit(BASE, ROLES).encode(table)
    assert groups.value is not None
    assert np.isnan(groups.value).all()
    assert groups.weight is None
    assert groups.target is None


@case
def extra_column() -> None:
    table = Table.read(pd.DataFrame({**BASE, "odd": [object()] * 5}))
    Schema.fit(table, ROLES)
    assert list(table.with_columns({"rating_mean": np.zeros(5)})) == [*BASE, "odd", "rating_mean"]


@case
def text_value() -> None:
    refuses("rating", ["1", "2", "good", "4", "5"], "'good' at row 2", "missing='good'")
    refuses("rating", ["male", "male", "female", "4", None], "'male' at row 0", "'male', 'female'", "item='rating'")
    with pytest.raises(DataError) as error:
        fitted(rating=["male", "male", "female", "other", None])
    assert "missing=" not in str(error.value)


@case
def two_words() -> None:
    groups = fitted(rating=["yes", "no", "yes", "n/a", None])
    assert groups.value is not None
    assert np.sort(groups.value[:, 0]).tolist()[:3] == [0, 1, 1]
    assert np.isnan(groups.value[:, 0]).sum() == 2
    noted(groups, "'rating'", "0 for 'no', 1 for 'yes'")
    refuses("rating", ["yes", "no", "yes", "maybe", None], "'yes' at row 0", "item='rating'")


@case
def number_as_text() -> None:
    groups = fitted(rating=["1", " 2.5", "3e1", "4", None], age=list("12345"))
    assert groups.value is not None
    assert sorted(groups.value[:, 0].tolist())[:4] == [1, 2.5, 4, 30]
    noted(groups, "'rating'", "as text")
    noted(groups, "'age'", "as text")


@case
def decimal_comma_text() -> None:
    groups = fitted(Roles("user", "movie", "rating"), rating=["1,5", "2", "3,25", "-4,0", "1,234"])
    assert groups.value is not None
    assert groups.value[:, 0].tolist() == [1.5, 2.0, 3.25, -4.0, 1.234]
    noted(groups, "'rating'", "decimal commas")


@case
def thousands_text() -> None:
    refuses("rating", ["1", "2,345", "3", "4", "5"], "'2,345' at row 1")


@case
def date_as_text() -> None:
    groups = fitted(when=["2024-12-31", "2024-02-01", "2024-03-01", "2023-01-01", "2020-01-01"])
    assert groups.rows.tolist() == [1, 0, 3, 2, 4]
    noted(groups, "'when'", "dates as text")
    days = fitted(DAILY, DAYS, day=[f"2024-01-0{d}" for d in DAYS["day"]], lags=1)
    noted(days, "1 day")


@case
def ambiguous_date() -> None:
    refuses("when", ["01/02/2024"] * 5, "'01/02/2024' at row 0", "2024-12-31")


@case
def text_order() -> None:
    refuses("when", ["first", "2", "3", "4", "5"], "'first' at row 0")
    assert fitted(when=["10", "9", "1", "2", "3"]).rows.tolist() == [1, 0, 2, 3, 4]


@case
def date_value() -> None:
    refuses("rating", [datetime.date(2024, 1, 1)] * 5, "dates", "row 0")


@case
def boolean_value() -> None:
    for entries in ([True, False, None, True, True], ["True", "false", None, "TRUE", "true"]):
        groups = fitted(Roles("user", "movie", "rating"), rating=entries)
        assert groups.value is not None
        np.testing.assert_array_equal(groups.value[:, 0], [1, 0, np.nan, 1, 1])


@case
def target_number() -> None:
    groups = fitted(t=[1, 0, 1, 1, 0])
    assert groups.target is not None
    assert groups.target[np.argsort(groups.rows)].tolist() == [True, False, True, True, False]
    refuses("t", [1, 0, 2, 1, 0], "row 2")


@case
def outside_support() -> None:
    groups = fitted(rating=[1, 2, 3, -1, 5])
    assert groups.value is not None
    value = groups.value[:, 0]
    refused(
        "'rating'", "row 3 (user 'u2')", "missing=-1",
        make=lambda: families.Poisson().support.check("Poisson", value, "rating", groups.label),
    )  # fmt: skip
