"""The rows of docs/odd-inputs.md about attributes and huge numbers; test_data_odd_inputs walks them."""

import datetime
import json

import numpy as np
import pandas as pd
import polars as pl
from test_data_odd_columns import BASE, ROLES, case, fitted, noted, refused, refuses

from efattn.data import Roles, Schema


@case
def text_attribute() -> None:
    schema, groups = Schema.fit_encode({**BASE, "age": list("badab")}, ROLES)
    assert schema.attribute_names == ("age=a", "age=b", "age=d")
    assert groups.attributes is not None
    back = groups.attributes[np.argsort(groups.rows)]
    assert back.tolist() == [[0, 1, 0], [1, 0, 0], [0, 0, 1], [1, 0, 0], [0, 1, 0]]
    noted(groups, "'age'", "3 levels")
    again = Schema.from_saved(json.loads(json.dumps(schema.to_json())), schema.arrays())
    assert again.levels == schema.levels == {"age": ("a", "b", "d")}
    gap = fitted(age=["a", None, "b", "b", "b"])
    assert gap.attributes is not None
    assert gap.attributes[list(gap.rows).index(1)].tolist() == [0, 0]
    refused("'age'", "Convert it to text", make=lambda: schema.encode(BASE))


@case
def many_words() -> None:
    words = ["often"] * 50 + [f"w{k:03}" for k in range(100)]
    many = {name: entries * 30 for name, entries in BASE.items()} | {"age": words}
    many["when"] = [*range(50), *many["when"][50:]]  # rows that only a seldom word tells apart are no copies
    schema, groups = Schema.fit_encode(many, ROLES)
    assert len(schema.levels["age"]) == 30
    assert schema.levels["age"][:2] == ("often", "w000")
    noted(groups, "'age'", "101 different words", "30 most frequent")
    assert not [note for note in groups.notes if note.important]
    assert groups.attributes is not None
    assert groups.attributes[groups.rows == 149].sum() == 0
    assert not [note for note in schema.encode(many).notes if note.important]


@case
def date_attribute() -> None:
    days = [datetime.date(1970, 1, k) for k in (2, 3, 4, 5, 6)]
    for column in (days, [str(day) for day in days], [datetime.datetime(1970, 1, k) for k in (2, 3, 4, 5, 6)]):
        groups = fitted(age=column)
        assert groups.attributes is not None
        assert groups.attributes[np.argsort(groups.rows), 0].tolist() == [1, 2, 3, 4, 5]
        noted(groups, "'age'", "days since 1970")


@case
def unknown_level() -> None:
    schema = Schema.fit({**BASE, "age": list("badab")}, ROLES)
    groups = schema.encode({**BASE, "age": list("bzabz")})
    noted(groups, "'age'", "2 of 5", "'z' at row 1")
    assert groups.attributes is not None
    assert groups.attributes[list(groups.rows).index(1)].tolist() == [0, 0, 0]


@case
def ordered_categories() -> None:
    words, levels = ["lo", "hi", None, "mid", "lo"], ["lo", "mid", "hi"]
    frames = [
        pl.DataFrame({**BASE, "rating": pl.Series(words, dtype=pl.Enum(levels))}),
        pd.DataFrame({**BASE, "rating": pd.Categorical(words, levels, ordered=True)}),
    ]
    for frame in frames:
        schema, groups = Schema.fit_encode(frame, Roles("user", "movie", "rating", order="row"))
        assert groups.value is not None
        np.testing.assert_array_equal(groups.value[:, 0], [0, 2, np.nan, 1, 0])
        noted(groups, "'rating'", "0 for 'lo', 1 for 'mid', 2 for 'hi'")
        text = schema.encode({**BASE, "rating": ["hi", "lo", "lo", None, "mid"]})
        assert text.value is not None
        np.testing.assert_array_equal(text.value[:, 0], [2, 0, 0, np.nan, 1])
        refused("'rating'", "'top' at row 4", make=lambda s=schema: s.encode({**BASE, "rating": [*words[:4], "top"]}))


@case
def huge_value() -> None:
    refuses("rating", [1.0, 2.0, 9.97e36, 4.0, 5.0], "9.97e+36 at row 2", "missing=9.97e+36")
    for standardise in ("none", "global", "item"):
        schema = Schema.fit(BASE, ROLES, standardise=standardise)
        groups = schema.encode({**BASE, "rating": [1.0, 2.0, 3.0, 1e20, 5.0]})
        refused("'rating'", "1e+20 at row 3 (user 'u2')", make=lambda s=schema, g=groups: s.standardise(g))


@case
def huge_attribute() -> None:
    refuses("age", [1.0, 1e38, 3.0, 1.0, 5.0], "1e+38 at row 1")
    refuses("w", [1.0, 1e39, 3.0, 1.0, 5.0], "1e+39 at row 1")
    refuses("e", [1.0, 1e39, 3.0, 1.0, 5.0], "1e+39 at row 1")
    refuses("e", [1.0, 1e-50, 3.0, 1.0, 5.0], "1e-50 at row 1")


@case
def shuffled_table() -> None:
    one = fitted(Roles("user", "movie", "rating"))
    turned = {name: entries[::-1] for name, entries in BASE.items()}
    two = fitted(Roles("user", "movie", "rating"), base=turned)
    assert one.labels.tolist() == two.labels.tolist() == ["u1", "u2", "u3"]
    np.testing.assert_array_equal(one.value, two.value)
    assert two.rows.tolist() == [4, 3, 2, 1, 0]
