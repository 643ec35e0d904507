"""Sizes that are left open follow from the table; what is said stays; efforts differ."""

from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import pytest
from small import QUICK, SIZES, efa, ratings
from small_training import same, weights

from efattn import EFA, DataError, Training, load
from efattn.estimators import sizing
from efattn.estimators.blueprint import Blueprint
from efattn.training import loop

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


def planned(rows, items, context="past"):
    """As far as sizes go."""
    network = {"item": sizing.chosen(EFA(context=context), "item", rows, items)._asdict()}
    schema, groups = SimpleNamespace(vocabulary=range(items)), SimpleNamespace(count=rows)
    return Blueprint(schema, None, "all", ("item",), 10, groups=groups, network=network)


def test_of_items_seen_seldom_the_best_effort_trains_one_network():
    assert EFA(effort="best")._members(planned(150_000, 12_000)) == 1
    assert EFA(effort="best", ensemble=2)._members(planned(150_000, 12_000)) == 2
    assert EFA(effort="best")._members(planned(500_000, 3_400)) == 3
    assert EFA(effort="best")._members(planned(500, 60)) == 3


def test_batches_are_large_where_the_next_of_many_items_has_rows_to_learn_from():
    assert planned(500_000, 3_400).in_large_batches == ["item"]
    for rows, items, context in ((150_000, 12_000, "past"), (500_000, 63, "past"), (500_000, 3_400, "others")):
        assert planned(rows, items, context).in_large_batches == []


def test_large_batches_take_fewer_steps_and_a_mean_of_weights_unless_said_otherwise():
    large, usual = Training().settled(large=True), Training().settled(large=False)
    assert (large.tokens, large.average, large.planned_steps) == (4096, 0.998, 3000)
    assert (usual.tokens, usual.average, usual.planned_steps) == (1024, 0.0, 12_000)
    said = Training(tokens=512, average=0.5, steps=70)
    assert said.settled(large=True) == said.settled(large=False) == said
    assert Training(steps=400).settled(large=True).steps == 100
    assert Training(tokens=512).settled(large=True).planned_steps == 12_000


def test_each_term_is_trained_in_batches_of_its_own(monkeypatch):
    monkeypatch.setattr(Blueprint, "in_large_batches", property(lambda self: ["item"]))
    taken, step = Counter(), loop._Term.step

    def counted(term, batch, *rest):
        taken[term.name, bool(term.options.average)] += 1
        step(term, batch, *rest)

    monkeypatch.setattr(loop._Term, "step", counted)
    table = ratings(users=600)
    EFA(width=8, training=Training(epochs=2, device="cpu"), companions=None, refit=False).fit(
        table, **ROLES, value="rating", validation=0.2
    )
    assert set(taken) == {("item", True), ("rating", False)}
    assert 0 < taken["item", True] < taken["rating", False] / 2


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
