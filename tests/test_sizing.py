"""Sizes that are left open follow from the table; what is said stays; efforts differ."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from small import QUICK, SIZES, efa, ratings
from small_training import same, weights

from efattn import EFA, DataError, Training, load
from efattn.estimators import sizing

TABLE = ratings()
ROLES = {"group": "user", "item": "movie"}


@pytest.mark.parametrize(
    ("kind", "rows", "items", "width", "dropout"),
    [
        ("item", 5_000, 50, 32, 0.3),
        ("item", 24_000, 169, 32, 0.3),
        ("item", 55_000, 1_682, 64, 0.3),
        ("item", 200_000, 63, 32, 0.1),
        ("item", 1_000_000, 3_700, 128, 0.1),
        ("value", 5_000, 50, 32, 0.1),
        ("value", 1_000_000, 3_700, 64, 0.1),
    ],
)
def test_sizes_grow_with_rows_and_items(kind, rows, items, width, dropout):
    sizes = sizing.chosen(EFA(), kind, rows, items)
    assert (sizes.width, sizes.dropout) == (width, dropout)
    assert sizes.width % sizes.heads == 0


@pytest.mark.parametrize(
    ("rows", "items", "width", "dropout", "layers", "block"),
    [
        (15_000, 400, 32, 0.3, 2, 0),
        (98_000, 1_680, 128, 0.4, 2, 256),
        (500_000, 3_400, 128, 0.2, 2, 256),
        (20_000_000, 3_400, 128, 0.1, 2, 256),
        (500_000, 63, 32, 0.1, 2, 0),
        (150_000, 12_000, 128, 0.6, 1, 0),
    ],
)
def test_the_next_of_many_items_has_wide_vectors_that_are_held_back(rows, items, width, dropout, layers, block):
    sizes = sizing.chosen(EFA(context="past"), "item", rows, items)
    assert (sizes.width, sizes.dropout, sizes.layers, sizes.feed_forward) == (width, dropout, layers, block)
    assert sizes.norm == ("pre" if block else None)
    assert sizes.tied == sizes.previous == (width == 128)


def test_what_is_said_stays():
    said = EFA(width=20, heads=5, layers=1, feed_forward=7, norm="post", dropout=0.0, tied=False)
    for rows in (100, 10**6):
        assert sizing.chosen(said, "item", rows, 5000) == (20, 5, 1, 7, "post", 0.0, False, False)
    assert sizing.chosen(EFA(heads=3), "item", 100, 10).width == 33
    assert sizing.chosen(EFA(width=9), "item", 100, 10).heads == 1
    assert not list(sizing.others(said, sizing.chosen(said, "item", 100, 10)))


@pytest.mark.parametrize(("context", "kind", "items", "shown"), [
    ("past", "item", 12_000, True),
    ("past", "item", 1_000, True),
    ("past", "item", 300, False),
    ("past", "value", 1_000, True),
    ("others", "item", 12_000, False),
    ("others", "value", 0, False),
])  # fmt: skip
def test_values_and_many_items_are_shown_the_row_before(context, kind, items, shown):
    assert sizing.chosen(EFA(context=context), kind, 150_000, items).previous == shown


def test_of_tied_vectors_the_best_effort_trains_one_network():
    blueprint = SimpleNamespace(network={"item": sizing.chosen(EFA(), "item", 150_000, 12_000)._asdict()})
    assert EFA(effort="best")._members(blueprint) == 1
    assert EFA(effort="best", ensemble=2)._members(blueprint) == 2


def test_of_many_rows_of_many_items_the_best_effort_tries_deeper_networks():
    estimator = EFA(effort="best")
    tried = list(sizing.others(estimator, sizing.chosen(estimator, "item", 500_000, 3500)))
    assert any(one.layers == 4 and one.feed_forward and one.norm == "pre" for one in tried)
    assert all(one.layers <= 2 for one in sizing.others(estimator, sizing.chosen(estimator, "item", 5000, 50)))


def test_a_file_knows_the_sizes_that_were_chosen(tmp_path):
    model = efa(**dict.fromkeys(SIZES, "auto")).fit(TABLE, **ROLES)
    assert model.fitted_.network["item"]["width"] == 32
    model.save(tmp_path / "m.efattn")
    again = load(tmp_path / "m.efattn")
    assert again.get_params()["width"] == "auto"
    assert same(weights(model), weights(again))
    assert again.score(TABLE) == model.score(TABLE)


def test_quick_takes_fewer_steps_and_one_split():
    quick = EFA(effort="quick", training=replace(QUICK, epochs=None, patience=None))
    assert quick._options().planned_steps == Training().planned_steps // 4
    model = EFA(effort="quick", training=QUICK, companions=None).fit(TABLE, **ROLES)
    assert len(model.members_) == 1
    assert not any(note.kind == "refit" for note in model.notes_)
    assert EFA(effort="quick", training=Training(steps=7))._options().steps == 7


def test_best_tries_other_sizes_and_trains_an_ensemble():
    model = EFA(effort="best", width=8, training=QUICK, companions=None).fit(TABLE, **ROLES, validation=0.2)
    assert len(model.members_) == 3
    assert model.model_["item"].stack.width == 8
    (told,) = [str(note) for note in model.notes_ if note.kind == "sizes"]
    assert "width=8" in told


def test_an_effort_that_is_none_is_refused():
    with pytest.raises(DataError, match="effort"):
        EFA(effort="huge").fit(TABLE, **ROLES)
