"""What a row whose item is predicted shows of itself: what helps, and never what gives the item away."""

import numpy as np
import polars as pl
import pytest
from small import efa

from efattn import DataError, Training, load
from efattn.data import Roles, Schema
from efattn.data.own import decide

BRANDS = 4
PRICES = [f"price_{k}" for k in range(BRANDS)]


def purchases(households=150, seed=0, strength=2.0):
    """A multinomial logit: each brand has its price of the day, cheaper ones are bought more."""
    draw = np.random.default_rng(seed)
    rows = households * 6
    price = 2 + np.arange(BRANDS) * 0.1 + 0.5 * draw.standard_normal((rows, BRANDS))
    choice = (-strength * price + draw.gumbel(size=(rows, BRANDS))).argmax(1)
    table = pl.DataFrame({"household": np.repeat(np.arange(households), 6), "brand": [f"b{k}" for k in choice]})
    table = table.with_columns([pl.Series(name, price[:, k]) for k, name in enumerate(PRICES)])
    return table.with_columns(
        paid=pl.Series(price[np.arange(rows), choice]),
        code=pl.Series((choice * 7 + 3) % 5),
        first=pl.Series(np.array(["x", "y"])[choice // 2]),
        size=pl.Series(choice + draw.normal(0, 0.3, rows)),
        income=pl.Series(np.repeat(draw.random(households), 6)),
        noise=pl.Series(draw.random(rows)),
    )


def shown(table, *names):
    schema, groups = Schema.fit_encode(table, Roles("household", "brand", (), names))
    flags, _ = decide(groups, schema.attribute_columns, "auto")
    return {name for name, own in zip(schema.attribute_columns, flags, strict=True) if own}


# ---- what is decided


def test_prices_of_all_brands_incomes_and_noise_are_shown():
    wanted = {*PRICES, "income", "noise"}
    assert shown(purchases(), *wanted) == wanted


@pytest.mark.parametrize("name", ["code", "first", "size", "brand_again"])
def test_what_the_item_is_is_hidden(name):
    table = purchases().with_columns(brand_again=pl.col("brand"))
    assert shown(table, name, "noise") == {"noise"}


def test_the_price_paid_is_hidden_beside_the_prices():
    """Alone it tells little; together with the others it is one of them, and the item says which."""
    assert shown(purchases(), *PRICES, "paid", "income") == {*PRICES, "income"}


def test_two_columns_that_tell_the_item_together_are_not_both_shown():
    draw = np.random.default_rng(1)
    table = purchases()
    one = draw.integers(0, BRANDS, len(table))
    number = table["brand"].str.slice(1).cast(pl.Int64).to_numpy()
    table = table.with_columns(one=pl.Series(one), two=pl.Series((number - one) % BRANDS))
    assert len(shown(table, "one", "two")) < 2
    assert shown(table, "one") == {"one"}
    assert len(shown(table.with_columns(pl.col("one", "two").cast(pl.String) + "x"), "one", "two")) < 2


def test_a_column_of_groups_is_shown_even_where_items_stay_within_a_group():
    table = pl.DataFrame({"household": np.repeat(np.arange(30), 4), "brand": np.arange(120) // 2})
    table = table.with_columns(town=pl.Series(np.repeat(np.random.default_rng(0).random(30), 4)))
    assert shown(table, "town") == {"town"}


def test_the_total_of_a_basket_is_hidden_beside_what_it_is_the_total_of():
    table = purchases().with_columns(total=pl.col("paid").sum().over("household"), rows=pl.len().over("household"))
    assert shown(table, "total", "paid") <= {"paid"}
    assert shown(table, "income", "paid") >= {"income"}


def test_where_items_never_come_twice_nothing_of_a_row_is_shown():
    table = pl.DataFrame({"household": np.repeat(np.arange(30), 4), "brand": np.arange(120)})
    table = table.with_columns(noise=pl.Series(np.random.default_rng(0).random(120)))
    assert shown(table, "noise") == set()


def test_a_chance_agreement_within_few_groups_proves_nothing():
    table = pl.DataFrame(
        {"household": [0, 0, *range(1, 41)], "brand": [*"ab", *"ab" * 20], "kind": [0, 0, *[0, 1] * 20]}
    )
    assert shown(table, "kind") == set()


def test_many_items_are_told_by_their_attributes_too():
    draw = np.random.default_rng(0)
    item = draw.integers(0, 800, 6000)
    of_item = draw.random(800)
    table = pl.DataFrame(
        {"household": np.arange(6000) // 10, "brand": item, "weight": of_item[item], "hour": draw.random(6000)}
    )
    assert shown(table, "weight", "hour") == {"hour"}


# ---- what models do with it

TRAINING = Training(epochs=20, tokens=512, rate=0.01, device="cpu")
ROLES = {"group": "household", "item": "brand"}


@pytest.fixture(scope="module")
def models():
    table = purchases()
    told = efa(training=TRAINING, dropout=0.0).fit(table, **ROLES, attributes=[*PRICES, "paid", "first"])
    return told, efa(training=TRAINING, dropout=0.0).fit(table, **ROLES)


def test_prices_help_to_predict_what_is_bought(models):
    told, silent = models
    test = purchases(100, seed=1)
    assert told.score(test) > silent.score(test) + 0.15
    assert "'paid'" in str(next(note for note in told.notes_ if note.kind == "own attributes"))


def test_a_shown_attribute_that_is_shuffled_costs_and_a_hidden_one_of_the_target_changes_nothing(models):
    told, _ = models
    test = purchases(100, seed=1)
    shuffled = test.with_columns(pl.col(*PRICES).shuffle(seed=0))
    assert told.score(shuffled) < told.score(test) - 0.1
    mine = told.log_likelihood(test)["item_log_likelihood"].to_numpy()
    place = pl.int_range(pl.len()).over("household")
    for k in range(6):
        hidden = test.with_columns(
            paid=pl.when(place == k).then(pl.col("paid") + 5).otherwise(pl.col("paid")),
            first=pl.when(place == k).then(pl.lit("x")).otherwise(pl.col("first")),
        )
        changed = told.log_likelihood(hidden)["item_log_likelihood"].to_numpy()
        assert np.allclose(changed[k::6], mine[k::6], atol=1e-6)
    assert not np.allclose(changed, mine, atol=1e-6)  # but the others of its group see it


def test_the_next_row_has_the_attributes_that_are_said_or_those_of_the_last(models, tmp_path):
    told, _ = models
    test = purchases(3, seed=1)
    last = test.group_by("household", maintain_order=True).last()
    usual = told.recommend(test, k=4)
    by_group = {name: dict(last.select("household", name).iter_rows()) for name in PRICES}
    assert told.recommend(test, k=4, attributes=by_group).equals(usual)
    cheap = told.recommend(test, k=1, attributes={"price_2": -1.0, "price_0": 3, "price_1": 3, "price_3": 3})
    assert cheap["brand"].to_list() == ["b2"] * 3
    assert told.recommend(k=1, attributes={"price_2": -1.0})["brand"].to_list() == ["b2"]
    with pytest.raises(DataError, match="does not look at an attribute 'paid'"):
        told.recommend(test, attributes={"paid": 3})
    told.save(tmp_path / "m.efattn")
    assert load(tmp_path / "m.efattn").recommend(test, k=4).equals(usual)


@pytest.mark.parametrize(("asked", "flags"), [("known", (True, True)), ("hidden", (False, False))])
def test_who_knows_better_says_so(asked, flags):
    model = efa(own_attributes=asked).fit(purchases(10), **ROLES, attributes=["paid", "noise"])
    assert model.schema_.own_attributes == flags


def test_a_column_of_groups_tells_their_values():
    draw = np.random.default_rng(0)
    level = np.repeat(draw.standard_normal(80), 2)
    table = pl.DataFrame({"day": np.repeat(np.arange(80), 2), "level": level, "y": level + draw.normal(0, 0.1, 160)})
    table = table.with_columns(kind=pl.when(pl.col("level") > 0).then(pl.lit("high")).otherwise(pl.lit("low")))
    model = efa(training=TRAINING).fit(table, group="day", value="y", attributes=["level", "kind"])
    single = table.unique("day")  # nothing but the group's columns to go by
    assert np.corrcoef(model.predict(single)["y_mean"], single["level"])[0, 1] > 0.9
