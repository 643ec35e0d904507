"""Roles, vocabularies and standardisers keep what they are given."""

import datetime
import json
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from efattn import DataError
from efattn.data import Names, Roles, Standardiser, Vocabulary
from efattn.data.keys import distinct

COLUMNS = st.sampled_from(
    [
        st.integers(-(2**63), 2**63 - 1),
        st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
        st.booleans(),
        st.dates(datetime.date(1, 1, 1), datetime.date(9999, 12, 31)),
        st.datetimes(datetime.datetime(1, 1, 2), datetime.datetime(9999, 12, 30)),
    ]
)


@st.composite
def keys(draw: st.DrawFn) -> list[list[Any]]:
    rows = draw(st.integers(1, 12))
    return [
        draw(st.lists(st.none() | draw(COLUMNS), min_size=rows, max_size=rows)) for _ in range(draw(st.integers(1, 3)))
    ]


def numbered(columns: list[list[Any]]) -> tuple[np.ndarray, Names]:
    return distinct([pl.Series(f"c{i}", c) for i, c in enumerate(columns)], "item", len(columns[0]))


@settings(max_examples=100, deadline=None)
@given(keys())
def test_names_come_back_exactly_and_null_is_unknown(columns: list[list[Any]]) -> None:
    number, names = numbered(columns)
    vocabulary = Vocabulary.of(names, [f"c{i}" for i in range(len(columns))])
    item = np.append(vocabulary.numbers(names), vocabulary.unknown)[number]
    for i, row in enumerate(zip(*columns, strict=True)):
        label = row[0] if len(row) == 1 else row
        if None in row:
            assert item[i] == vocabulary.unknown
        else:
            assert vocabulary.name(int(item[i])) == label
            assert vocabulary.number(label) == item[i]
    assert vocabulary.names == sorted(set(vocabulary.names))


@settings(max_examples=100, deadline=None)
@given(keys())
def test_a_vocabulary_survives_its_file(columns: list[list[Any]]) -> None:
    vocabulary = Vocabulary.of(numbered(columns)[1], [f"c{i}" for i in range(len(columns))])
    tensors = {name: torch.as_tensor(x) for name, x in vocabulary.arrays().items()}
    back = Vocabulary.from_saved(json.loads(json.dumps(vocabulary.to_json())), tensors)
    assert back.names == vocabulary.names
    assert [type(n) for n in back.names] == [type(n) for n in vocabulary.names]
    assert back.known.kinds == vocabulary.known.kinds


def test_shuffling_a_table_does_not_renumber_its_items() -> None:
    one, two = (Vocabulary.of(numbered([c])[1], ["c"]) for c in (["b", "a", "c"], ["c", "b", "a"]))
    assert one.names == two.names == ["a", "b", "c"]


def test_appended_items_leave_old_numbers_alone() -> None:
    old = Vocabulary.of(numbered([["m", "k"]])[1], ["c"])
    new = old.append(numbered([["z", "m", "a", None]])[1])
    assert new.names == ["k", "m", "a", "z"]
    assert new.append(numbered([["a"]])[1]) is new
    grown = Vocabulary.of(numbered([[1, 2]])[1], ["c"]).append(
        distinct([pl.Series([2**64 - 1, 2], dtype=pl.UInt64)], "item", 2)[1]
    )
    assert grown.names == [1, 2, 2**64 - 1]


def test_an_unknown_name_suggests_a_near_one() -> None:
    vocabulary = Vocabulary.of(numbered([["Organic Avocado", "Asparagus"]])[1], ["product"])
    with pytest.raises(DataError, match="Did you mean 'Organic Avocado'"):
        vocabulary.number("organic avocados")
    with pytest.raises(DataError, match="no item 3"):
        vocabulary.number(3)
    assert "Asparagus" in vocabulary
    assert 3 not in vocabulary


def test_a_million_names_are_two_small_tensors() -> None:
    names = numbered([[f"name {i}" for i in range(100_000)]])[1]
    arrays = names.arrays()
    assert sorted(arrays) == ["0.bytes", "0.offsets"]
    assert sum(x.nbytes for x in arrays.values()) < 25 * 100_000


def test_roles_survive_json() -> None:
    roles = Roles(
        "g",
        ["i", "j"],
        ["y", "z"],
        "a",
        order="o",
        time="t",
        series="s",
        exposure="e",
        weight="w",
        target="b",
        missing=[-1, "x"],
    )
    assert Roles.from_json(json.loads(json.dumps(roles.to_json()))) == roles
    assert Roles("g", "i").to_json() == {"group": ["g"], "item": ["i"]}
    assert roles.columns == ("g", "i", "j", "y", "z", "a", "s", "o", "t", "e", "w", "b")
    assert Roles("g", "i", order="row").columns == ("g", "i")


@pytest.mark.parametrize(
    "bad",
    [
        {"item": 3},
        {"item": ["i", 3]},
        {"item": "i", "order": ["a", "b"]},
        {"item": "i", "missing": True},
        {"item": "i", "series": "s"},
    ],
)
def test_a_role_that_is_no_column_is_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(DataError):
        Roles("g", **bad)


@pytest.fixture
def sample() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    item = rng.integers(0, 5, 400)
    value = np.stack((10 * item + rng.normal(size=400), rng.gamma(2, size=400), 100 + 3 * rng.normal(size=400)), 1)
    value[rng.random(value.shape) < 0.1] = np.nan
    return value, item


def test_a_standardiser_undoes_what_it_does(sample: tuple[np.ndarray, np.ndarray]) -> None:
    value, item = sample
    fitted = Standardiser.fit(value, ("item", "none", "global"), item, 5)
    y = fitted.apply(value, item)
    np.testing.assert_allclose(fitted.undo(y, item), value, rtol=1e-12)
    np.testing.assert_array_equal(y[:, 1], value[:, 1])
    np.testing.assert_allclose(np.nanmean(y, 0)[[0, 2]], 0, atol=1e-2)
    np.testing.assert_allclose(np.nanstd(y, 0)[[0, 2]], 1, atol=1e-2)
    np.testing.assert_allclose(
        fitted.undo_scale(np.nanstd(y, 0)), [np.nanstd(value[:, 0] - 10 * item), *np.nanstd(value[:, 1:], 0)], rtol=0.02
    )


def test_the_jacobian_turns_the_density_of_y_prime_into_that_of_y(sample: tuple[np.ndarray, np.ndarray]) -> None:
    value, item = sample
    fitted = Standardiser.fit(value, ("item", "none", "global"), item, 5)
    step, observed = 1e-6, ~np.isnan(value)
    slope = (fitted.apply(value + step, item) - fitted.apply(value, item)) / step  # dy'/dy, column by column
    np.testing.assert_allclose(fitted.log_jacobian(observed), np.where(observed, np.log(slope), 0).sum(1), atol=1e-6)


def test_rare_items_are_centred_near_the_overall_mean_and_unknown_ones_at_it() -> None:
    rng = np.random.default_rng(1)
    item = np.concatenate((np.repeat(np.arange(20), 50), [20]))
    means = rng.normal(size=21)
    value = (means[item] + 3 * rng.normal(size=len(item)))[:, None]
    value[-1] = 30.0
    fitted = Standardiser.fit(value, ("item",), item, 21)
    assert fitted.item_centre is not None
    centre, overall = fitted.item_centre[:, 0], value.mean()
    assert abs(centre[20] - overall) < 0.3 * abs(30 - overall)
    common = np.array([value[item == i].mean() for i in range(20)])
    assert (np.abs(centre[:20] - overall) <= np.abs(common - overall) + 1e-12).all()
    assert centre[21] == overall
    assert (np.corrcoef(centre[:20], common)[0, 1]) > 0.999


def test_a_constant_column_has_scale_one() -> None:
    fitted = Standardiser.fit(np.full((9, 2), 1e6), ("global", "item"), np.arange(9) % 3, 3)
    assert fitted.scale.tolist() == [1, 1]
    assert (fitted.apply(np.full((9, 2), 1e6), np.arange(9) % 3) == 0).all()


def test_a_standardiser_survives_its_file_and_new_items(sample: tuple[np.ndarray, np.ndarray]) -> None:
    value, item = sample
    fitted = Standardiser.fit(value, ("item", "none", "global"), item, 5)
    back = Standardiser.from_saved(json.loads(json.dumps(fitted.to_json())), fitted.arrays())
    np.testing.assert_array_equal(back.apply(value, item), fitted.apply(value, item))
    more = fitted.extended(8)
    np.testing.assert_array_equal(more.apply(value, item), fitted.apply(value, item))
    np.testing.assert_array_equal(more.apply(value, item * 0 + 6), fitted.apply(value, item * 0 + 5))
    only = fitted.select([2])
    np.testing.assert_array_equal(only.apply(value[:, [2]], item), fitted.apply(value, item)[:, [2]])
