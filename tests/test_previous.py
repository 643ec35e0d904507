"""The row before, shown to its target: only what the target may see, the same on every path, and only in the past."""

import polars as pl
import pytest
import torch
from drawing import ragged_batch
from small import efa, ratings

from efattn import families, load
from efattn.errors import DataError
from efattn.models import Holes, Term
from efattn.network import Embedding, Head, ItemVectors, Stack, ValueMLP, conditionals, perceptron

ITEMS = 12
ROLES = {"group": "user", "item": "movie", "order": "at"}


def term(kind, previous=True, **options):
    torch.manual_seed(0)
    family = families.Categorical(ITEMS) if kind == "item" else families.Product((families.Gaussian(),))
    if kind == "item":
        embedding = Embedding(ItemVectors(ITEMS, 8), positions=6, previous=previous)
    else:
        embedding = Embedding(ValueMLP(1, 8, 4), item=ItemVectors(ITEMS, 4), mix=(8,), positions=6, previous=previous)
    head = Head(perceptron(8, (), sum(not one for one in family.shared)), family.shared)
    return Term(embedding, Stack(8, 2, 2, **options), head, family, context="past").double()


@pytest.mark.parametrize("kind", ["item", "value"])
def test_a_target_sees_the_row_before_and_neither_itself_nor_later_ones(kind):
    """Each number that a row shows, moved: only later targets move."""
    batch, model = ragged_batch(1, missing=0, lengths=(6, 6)), term(kind)
    f = model.outputs(batch)
    for i in range(6):
        item, value = batch.item.clone(), batch.value.clone()
        item[:, i], value[:, i] = (item[:, i] + 1) % ITEMS, value[:, i] + 1
        changed = model.outputs(batch.replace(item=item) if kind == "item" else batch.replace(value=value))
        moved = (changed - f).abs().amax((0, 2))
        assert (moved[: i + 1] == 0).all()
        assert (moved[i + 1 :] > 1e-6).all()


@pytest.mark.parametrize("kind", ["item", "value"])
@pytest.mark.parametrize("options", [{}, {"feed_forward": 8, "norm": "pre"}], ids=str)
def test_two_streams_give_the_literal_rows_and_gradients(kind, options):
    model, batch, found = term(kind, **options), ragged_batch(2), []
    for path in (conditionals.literal, conditionals.two_streams):
        model.zero_grad()
        rows = model.rows(batch, path=path)[batch.exists[:, : batch.length]]
        rows.square().sum().backward()
        found.append((rows, *(p.grad.clone() for p in model.embedding.parameters())))
    assert all(torch.allclose(x, y, atol=1e-10) for x, y in zip(*found, strict=True))


@pytest.mark.parametrize("kind", ["item", "value"])
def test_a_target_shows_nothing_of_a_row_that_is_hidden(kind):
    batch, model = ragged_batch(3, missing=0, lengths=(6, 6)), term(kind)
    hidden = torch.zeros(*batch.exists.shape, 1, dtype=torch.bool)
    hidden[:, 2] = True
    item, value = batch.item.clone(), batch.value.clone()
    item[:, 2], value[:, 2] = (item[:, 2] + 1) % ITEMS, value[:, 2] + 1
    one = model.embed(batch.replace(hidden=hidden))[1]
    two = model.embed(batch.replace(hidden=hidden, **({"item": item} if kind == "item" else {"value": value})))[1]
    assert torch.equal(one, two)
    assert not torch.equal(one, model.embed(batch)[1])
    assert torch.equal(one[:, 0], term(kind, previous=False).embed(batch)[1][:, 0])  # nothing before the first


def test_holes_reach_the_row_before():
    batch = ragged_batch(4, missing=0, lengths=(9,) * 8)
    torch.manual_seed(1)
    holed = Holes(0.9)(batch)
    gone = holed.hidden[:, :-1, 0]
    masked, plain = term("item").embed(holed)[1], term("item", previous=False).embed(holed)[1]
    assert gone.any()
    assert ((masked - plain)[:, 1:].abs().amax(-1) == 0).equal(gone)


def test_only_in_the_past(tmp_path):
    with pytest.raises(DataError, match="previous=True is for context='past'"):
        efa(previous=True).fit(ratings(), **ROLES)
    assert not efa(terms="value").fit(ratings(), **ROLES, value="real").fitted_.network["value"]["previous"]
    assert efa(terms="value", context="past").fit(ratings(), **ROLES, value="real").fitted_.network["value"]["previous"]
    for told in (False, True):
        model = efa(terms="item", context="past", previous=told).fit(ratings(), **ROLES)
        model.save(tmp_path / f"{told}.efattn")
        again = load(tmp_path / f"{told}.efattn")
        assert model.fitted_.network["item"]["previous"] == again.fitted_.network["item"]["previous"] == told
        assert again.score(ratings(1)) == model.score(ratings(1))


def test_what_follows_what_is_learnt_at_once():
    """The next item is the last one's successor in a fixed circle: one layer without gaps has to know the last."""
    rows = [(u, at, (7 * u + 5 * at) % 11) for u in range(60) for at in range(6)]
    table = pl.DataFrame(rows, ["user", "at", "movie"], orient="row")
    options = {"terms": "item", "context": "past", "layers": 1, "width": 16, "support": "all", "dropout": 0.0}
    scores = [efa(**options, previous=told).fit(table, **ROLES).score(table) for told in (False, True)]
    assert scores[1] > scores[0]
