"""Features of items: a second table that tells what items are, of new ones too."""

import json
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
import torch
from typer.testing import CliRunner

import efattn
from efattn import EFA, SimpleModel, simple
from efattn.cli import app
from efattn.data import Names, Vocabulary
from efattn.data.batch import Batch
from efattn.data.item_features import FAR, ItemFeatures
from efattn.errors import DataError
from efattn.network import FeaturedItems, FeatureMap, Features, Head, ItemVectors, perceptron
from efattn.network.catalogue import literal
from efattn.training import Training

KINDS = 3
QUICK = {"context": "past", "terms": "item", "companions": None, "refit": False, "width": 8, "effort": "quick"}
LONGER = Training(epochs=30, tokens=64, rate=0.01, device="cpu")
ROLES = {"group": "user", "item": "item", "order": "at", "progress": False}


def table(seed: int = 0, items: int = 18, users: int = 60) -> pl.DataFrame:
    """Users stay within one kind of item."""
    draw = np.random.default_rng(seed)
    rows = []
    for user in range(users):
        mine = np.arange(user % KINDS, items, KINDS)
        rows += [(user, at, int(x)) for at, x in enumerate(draw.permutation(mine)[:4])]
    return pl.DataFrame(rows, ["user", "at", "item"], orient="row")


def features(items: int = 24) -> pl.DataFrame:
    number = np.arange(items)
    return pl.DataFrame({"item": number, "kind": [f"kind {x % KINDS}" for x in number], "price": number * 7 % 5 / 10})


def vocabulary(*names: str) -> Vocabulary:
    return Vocabulary(Names(("text",), (np.array(names, object),)), ["item"])


@pytest.fixture(scope="module")
def model() -> EFA:
    return EFA(**QUICK, seed=1, training=LONGER).fit(table(), **ROLES, item_features=features())


def test_items_never_seen_are_recommended_from_their_features(model):
    history = pl.DataFrame({"user": [0, 0], "at": [0, 1], "item": [1, 4]})
    told = model.recommend(history, k=24)
    new = told.filter(pl.col("item") >= 18)
    assert len(new) == 6
    best = new.sort("rank")["item"].to_list()[:2]
    assert {x % KINDS for x in best} == {1}, "those of the history's kind come first"
    assert told["probability"].sum() == pytest.approx(1, abs=1e-6)


def test_a_new_item_in_the_history_tells_by_its_features(model):
    told = {}
    for kind in range(KINDS):
        history = pl.DataFrame({"user": [0, 0], "at": [0, 1], "item": [18 + kind, 21 + kind]})
        given = model.recommend(history, k=24).filter(pl.col("item") < 18)
        mass = given.group_by(pl.col("item") % KINDS).agg(pl.col("probability").sum()).sort("item")
        told[kind] = mass["probability"].to_numpy().argmax()
    assert told == {kind: kind for kind in range(KINDS)}


def test_a_model_with_features_is_the_same_from_its_file(model, tmp_path):
    model.save(tmp_path / "m.efattn")
    again = efattn.load(tmp_path / "m.efattn")
    assert again.score(table()) == model.score(table())
    assert again.recommend(table(), k=5).equals(model.recommend(table(), k=5))
    known = again.schema_.features
    assert known.trained == 18
    assert known.columns == model.schema_.features.columns
    assert "Items are known by kind, price too (3 levels; 6 items by these alone)." in again.summary()


def test_the_order_of_the_features_table_changes_nothing(model):
    shuffled = features().sample(fraction=1, shuffle=True, seed=3)
    other = EFA(**QUICK, seed=1, training=LONGER).fit(table(), **ROLES, item_features=shuffled)
    assert other.score(table()) == model.score(table())


def tensors(items: int, draw: torch.Generator) -> Features:
    length = torch.randint(0, 4, (items,), generator=draw)
    offsets = torch.cat([torch.zeros(1, dtype=torch.long), length.cumsum(0)])
    level = torch.randint(0, 6, (int(offsets[-1]),), generator=draw)
    amount = torch.rand(len(level), generator=draw, dtype=torch.float64)
    return Features(6, offsets, level, amount, torch.randn(items, 2, generator=draw, dtype=torch.float64))


def test_vectors_are_the_product_of_features_and_map():
    draw = torch.Generator().manual_seed(0)
    known = tensors(7, draw)
    mapped = FeatureMap(known, 5).double()
    for weights in (mapped.levels, mapped.numbers):
        torch.nn.init.normal_(weights)
    whole = torch.zeros(7, 6, dtype=torch.float64)
    for i in range(7):
        for k in range(int(known.offsets[i]), int(known.offsets[i + 1])):
            whole[i, known.level[k]] += known.amount[k]
    expected = whole @ mapped.levels + known.numbers @ mapped.numbers
    assert torch.allclose(mapped(), expected)
    with torch.no_grad():
        assert torch.allclose(mapped(), expected)
        mapped.levels.mul_(2.0)
        assert torch.allclose(mapped(), whole @ mapped.levels + known.numbers @ mapped.numbers)


def test_the_catalogue_s_fast_path_equals_the_literal_form_with_features():
    draw = torch.Generator().manual_seed(1)
    body = FeaturedItems(5, 40, tensors(40, draw)).double()
    head = Head(body, [False] * 40).double()
    for x in (*body.parameters(), head.bias):
        torch.nn.init.normal_(x)
    rows = torch.randn(9, 5, dtype=torch.float64, requires_grad=True)
    target = torch.randint(0, 40, (9,), generator=draw)
    head.eval()
    logits = head.logits(rows)
    assert torch.allclose(head(rows), logits.formed())
    found, wanted = logits.log_prob(target), literal(logits, target)
    assert torch.allclose(found, wanted)
    for x in (rows, body.own.weight, body.map.levels, body.map.numbers, head.bias):
        one, two = (torch.autograd.grad(y.sum(), x, retain_graph=True)[0] for y in (found, wanted))
        assert torch.allclose(one, two)


def test_maps_start_at_the_model_without_features():
    known = tensors(7, torch.Generator().manual_seed(2))
    with_, without = ItemVectors(7, 4, features=FeatureMap(known, 4)), ItemVectors(7, 4)
    without.vectors.load_state_dict(with_.vectors.state_dict())
    item = torch.arange(9)
    assert torch.equal(with_(item), without(item))
    body, plain = FeaturedItems(4, 7, known).eval(), perceptron(4, (), 7)
    plain[-1].weight.data.copy_(body.own.weight)
    bias, rows = torch.randn(7), torch.randn(3, 4)
    heads = [Head(one, [False] * 7).eval() for one in (body, plain)]
    for head in heads:
        head.start(bias, silent=False)
    assert torch.allclose(heads[0](rows), heads[1](rows))


def test_an_item_taken_for_unknown_keeps_its_features():
    known = tensors(7, torch.Generator().manual_seed(2))
    vectors = ItemVectors(7, 4, features=FeatureMap(known, 4).double()).double()
    torch.nn.init.normal_(vectors.features.levels)
    item = torch.tensor([[2, 3]])
    strange = vectors(torch.tensor([[7, 3]]), item)
    assert torch.allclose(strange[0, 0], vectors.vectors.weight[7] + vectors.features()[2])
    assert torch.allclose(strange[0, 1], vectors(item)[0, 1])
    assert torch.equal(vectors(torch.tensor([7, 8])), vectors.vectors.weight[7:9])


def test_a_target_never_sees_its_own_features(model):
    term = model.model_["item"]
    batch = Batch.of([{"item": [0, 3, 6, 9], "when": [0.0, 1.0, 2.0, 3.0]}])
    other = Batch.of([{"item": [0, 3, 7, 9], "when": [0.0, 1.0, 2.0, 3.0]}])
    one, two = (term.raw_outputs(b, torch.tensor([[0, 1, 2]])) for b in (batch, other))
    assert torch.equal(one, two)


# ---- what is read


def test_levels_numbers_lists_and_several_rows_of_an_item():
    known, whole, notes = ItemFeatures.read(
        pl.DataFrame(
            {
                "item": ["a", "b", "c", "new"],
                "words": ["x", "x", None, "y"],
                "size": [1.0, None, 3.0, 9.0],
                "tags": [["p", "q"], ["p"], [], ["q"]],
                "vector": [[1.0, 2.0], [0.0, 0.0], None, [1.0, 1.0]],
            }
        ),
        vocabulary("a", "b", "c"),
    )
    assert whole.names == ["a", "b", "c", "new"]
    words, size, tags, vector = known.columns
    assert words.levels == ("x",), "y is of no item of the fit, and of one alone"
    assert (size.gap, size.numbers, vector.numbers) == (True, 1, 2)
    assert tags.levels == ("p", "q")
    assert known.amount[known.offsets[0] : known.offsets[1]] == pytest.approx([1, 0.5**0.5, 0.5**0.5])
    assert known.numbers[:3, 0] == pytest.approx([-1, 0, 1])
    assert known.numbers[3, 0] == FAR
    assert [note.kind for note in notes] == ["new items"]
    assert known.having("tags", ["q"]).tolist() == [True, False, False, True]
    rows = pl.DataFrame({"item": ["a", "a", "b"], "category": [1, 2, 1]})
    several, _, said = ItemFeatures.read(rows, vocabulary("a", "b", "c"))
    assert several.columns[0].levels == ("1",)
    assert [note.kind for note in said] == ["several entries", "no features"]
    assert "1 item of 3 (the first: item 'c')" in str(said[1])


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"item": ["a", "a"], "size": [1.5, 2.5]}, r"Column 'size' .* has 1.5 and 2.5 for item 'a'"),
        ({"item": ["a", None], "size": [1.5, 2.5]}, r"column 'item' is null at row 1"),
        ({"item": ["z", "y"], "size": [1.5, 2.5]}, r"None of the items"),
        ({"item": ["a", "b"]}, r"no column besides 'item'"),
        ({"item": ["a", "b"], "v": [[1.0], [1.0, 2.0]]}, r"a list of 2 numbers for item 'b', and of 1 before"),
        ({"item": ["a", "a"], "v": [[1.0], [2.0]]}, r"several lists for item 'a'"),
        ({"item": ["a", "b"], "size": [1.5, np.inf]}, r"'size' .* is infinite for item 'b'"),
        ({"thing": ["a", "b"], "size": [1.5, 2.0]}, r"There is no column 'item'"),
        ({"item": [], "size": []}, r"has no rows"),
    ],
)
def test_what_is_odd_is_named_by_column_and_item(columns, words):
    with pytest.raises(DataError, match=words):
        ItemFeatures.read(pl.DataFrame(columns), vocabulary("a", "b"))


def test_only_attention_takes_features():
    with pytest.raises(DataError, match="for EFA"):
        SimpleModel(simple.Popularity(), context="past").fit(table(), **ROLES, item_features=features())


def test_a_file_whose_features_are_of_other_items_is_refused(model, tmp_path):
    fitted = model.fitted_
    broken = replace(fitted, schema=replace(fitted.schema, features=fitted.schema.features.some(np.arange(20))))
    efattn.estimators.saving.save(broken, tmp_path / "m.efattn")
    with pytest.raises(efattn.ModelFileError, match="do not belong together"):
        efattn.load(tmp_path / "m.efattn")


def test_the_shell_fits_as_python_does(tmp_path):
    table(users=20).write_csv(tmp_path / "t.csv")
    features().write_csv(tmp_path / "f.csv")
    words = ["fit", str(tmp_path / "t.csv"), "--item-features", str(tmp_path / "f.csv"), "--group", "user"]
    words += [
        "--item",
        "item",
        "--order",
        "at",
        "--context",
        "past",
        "--terms",
        "item",
        "--epochs",
        "1",
        "--width",
        "8",
    ]
    words += [
        "--companions",
        "none",
        "--no-refit",
        "--effort",
        "quick",
        "--no-compare",
        "-o",
        str(tmp_path / "m.efattn"),
    ]
    found = CliRunner().invoke(app, [*words, "--json"])
    assert found.exit_code == 0, found.output
    json.loads(found.stdout)
    shell = efattn.load(tmp_path / "m.efattn")
    here = EFA(**QUICK, training=Training(epochs=1)).fit(tmp_path / "t.csv", **ROLES, item_features=tmp_path / "f.csv")
    assert shell.recommend(k=24).equals(here.recommend(k=24))
