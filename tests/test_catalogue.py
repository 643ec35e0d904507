"""Laws of many items: blocks of logits give what the whole array gives, for every model of items."""

import numpy as np
import polars as pl
import pytest
import torch
from drawing import ragged_batch
from polars.testing import assert_frame_equal
from small import efa, ratings
from test_additive_logit import CASES, drawn
from test_terms import ITEMS, item_term

from efattn import Training, simple
from efattn.bench import catalogue as bench
from efattn.bench.measure import peak_bytes
from efattn.data import Batch
from efattn.estimators.growing import Grown
from efattn.families import Categorical
from efattn.inference import mixture
from efattn.models import LatentItems, scoring
from efattn.models.scoring import draw, every
from efattn.network import Added, Logits, catalogue
from efattn.simple import Setting

CONTEXTS = pytest.mark.parametrize("context", ["past", "others"])
SUPPORTS = pytest.mark.parametrize("support", ["all", "distinct"])


@pytest.fixture
def blocks(monkeypatch):
    """Blocks of a few items, however few rows there are."""
    monkeypatch.setattr(scoring, "SMALL", 0)
    monkeypatch.setattr(catalogue, "CACHE", 1)
    monkeypatch.setattr(catalogue, "LEAST", 5)


def logits(dtype=torch.float64, rows=7, items=23, width=4, bias=True):
    """With amounts at single items, some of them twice; the second row has nothing left among the first twelve."""
    torch.manual_seed(0)
    target = torch.cat([torch.tensor([3, 20]), torch.randint(items, (rows - 2,))])
    row, item = torch.randint(rows, (60,)), torch.randint(items, (60,)).sort().values
    out = torch.tensor([(1, d) for d in range(12)] + [(r, d) for r, d in [(0, 14), (4, 15), (6, 22)] if target[r] != d])
    parts = [torch.randn(rows, width), torch.randn(items, width), torch.randn(items), torch.randn(60)]
    h, v, b, amount = (x.to(dtype).requires_grad_() for x in parts)
    never = torch.full((len(out),), -torch.inf, dtype=dtype)
    added = (Added(row, item, amount), Added(out[:, 0], out[:, 1], never))
    return Logits(h, v, b if bias else None, added), target, (h, v, b, amount) if bias else (h, v, amount)


def gradients(values, parts):
    weight = torch.linspace(-0.5, 2, len(values), dtype=values.dtype)
    return torch.autograd.grad((values * weight).sum(), parts, retain_graph=True)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("dtype", "error"), [(torch.float64, 1e-13), (torch.float32, 1e-5)])
def test_blocks_equal_the_literal_form_in_values_and_gradients(blocks, dtype, error, bias):
    f, target, parts = logits(dtype, bias=bias)
    found, expected = f.log_prob(target), catalogue.literal(f, target)
    assert expected.isfinite().all()
    assert torch.allclose(found, expected, rtol=error, atol=error)
    for mine, theirs in zip(gradients(found, parts), gradients(expected, parts), strict=True):
        assert theirs.abs().max() > 0.1
        assert torch.allclose(mine, theirs, rtol=error, atol=error)


def test_a_second_backward_pass_gives_what_the_first_gave(blocks):
    f, target, parts = logits()
    found = f.log_prob(target)
    for mine, theirs in zip(gradients(found, parts), gradients(found, parts), strict=True):
        assert torch.equal(mine, theirs)


def test_gradients_are_those_of_finite_differences(blocks):
    f, target, parts = logits(width=2)
    added = f.added

    def values(h, v, b, amount):
        return Logits(h, v, b, (added[0]._replace(amount=amount), added[1])).log_prob(target)

    assert torch.autograd.gradcheck(values, parts)


def test_what_is_not_finite_stays_so(blocks):
    f, target, (h, *_) = logits()
    with torch.no_grad():
        h[2] = torch.nan
    assert f.log_prob(target).isfinite().tolist() == [True, True, False, True, True, True, True]


def test_products_of_less_precision_are_close_and_the_rest_is_precise(blocks):
    f, target, parts = logits(torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        found = f.log_prob(target)
    expected = catalogue.literal(f, target)
    assert found.dtype == torch.float32
    assert torch.allclose(found, expected, atol=0.1)
    for mine, theirs in zip(gradients(found, parts), gradients(expected, parts), strict=True):
        assert mine.dtype == torch.float32
        assert torch.allclose(mine, theirs, atol=0.05 * float(theirs.abs().max()))


def test_nothing_to_score_is_no_trouble(blocks):
    f, target, (_, v, _, _) = logits()
    none = f._replace(rows=f.rows[:0], added=())
    none.log_prob(target[:0]).sum().backward()
    assert (v.grad == 0).all()


def test_pieces_of_rows_are_formed_as_the_whole_is():
    f, *_ = logits()
    assert torch.allclose(torch.cat([some.formed() for some in f.split(3)]), f.formed())


def test_blocks_hold_a_small_part_of_the_whole_array():
    torch.manual_seed(0)
    rows, vectors, target = torch.randn(256, 4), 0.1 * torch.randn(60_000, 4), torch.randint(60_000, (256,))
    f = Logits(rows.requires_grad_(), vectors.requires_grad_())
    whole, mine = (
        peak_bytes(lambda one=one: one(target).sum().backward())
        for one in (lambda y: catalogue.literal(f, y), f.log_prob)
    )
    assert mine < whole / 12


# ---- models


def latent_items(context, support):
    torch.manual_seed(0)
    return LatentItems(ITEMS, 4, context=context, support=support, intercept=True).double()


def popularity(context, support):
    model = simple.Popularity().build(Setting(Categorical(ITEMS), ITEMS, context=context, support=support))
    model._set(log_share=torch.randn(ITEMS))
    return model.double()


def tied_term(context, support):
    return item_term(context, support, tied=True)


def grown(context, support):
    torch.manual_seed(0)
    inner = simple.AdditiveLogit(rank=8).build(Setting(Categorical(ITEMS), ITEMS, context=context, support=support))
    for parameter in inner.parameters():
        torch.nn.init.normal_(parameter)
    return Grown(inner.double(), Categorical(ITEMS + 3))


MODELS = pytest.mark.parametrize("make", [item_term, tied_term, latent_items, popularity, grown])


def ragged(support):
    """Padded, with an unknown item, two that were cut off and one that does not count as a target."""
    batch = ragged_batch(3, repeat=support == "all", items=ITEMS - 2)
    item = batch.item.clone()
    item[0, 1] = ITEMS + 3
    target = batch.target.clone()
    target[0, 2] = False
    cut = torch.full((len(item), 2), -1)
    cut[[0, 4], [0, 1]] = torch.tensor([ITEMS - 1, ITEMS - 2])
    return batch.replace(item=item.clamp_max(ITEMS + 3), target=target, cut=cut)


def known(batch, model):
    """Unknown items by the number that the model has for them."""
    return batch.replace(item=batch.item.clamp_max(model.family.size))


def same(found, expected, parts):
    assert torch.allclose(found, expected, atol=1e-12)
    if parts:
        both = (torch.autograd.grad(x.sum(), parts, allow_unused=True) for x in (found, expected))
        for mine, theirs in zip(*both, strict=True):
            assert (mine is None and theirs is None) or torch.allclose(mine, theirs, atol=1e-10)


@MODELS
@SUPPORTS
@CONTEXTS
def test_logits_of_chosen_targets_are_the_outputs_there(make, support, context):
    model = make(context, support)
    batch = known(ragged(support), model)
    chosen = model.targets(batch)
    found = model.logits(batch, every(batch), chosen).formed()
    assert torch.allclose(found, model.outputs(batch)[chosen], atol=1e-12)


@MODELS
@SUPPORTS
@CONTEXTS
@pytest.mark.parametrize("draws", [None, 2])
def test_log_probabilities_in_blocks_are_those_of_the_outputs(blocks, make, support, context, draws):
    model = make(context, support)
    batch = known(ragged(support), model)
    torch.manual_seed(7)
    slots = every(batch) if draws is None else draw(model.targets(batch), draws)[0]
    torch.manual_seed(7)
    scores = model.log_prob(batch, draws)
    f, item = model.outputs(batch, slots)[scores.scored], batch.item[:, : batch.length].gather(1, slots)[scores.scored]
    expected = model.family.log_prob(f, item)
    same(scores.values[scores.scored], expected, [p for p in model.parameters() if p.requires_grad])
    assert (scores.values[~scores.scored] == 0).all()


@CONTEXTS
@pytest.mark.parametrize("case", CASES)
def test_an_additive_logit_in_blocks_is_one_of_its_outputs(blocks, case, context):
    model, batch, _ = drawn(case, context)
    parts = list(model.requires_grad_(True).parameters())
    scores = model.log_prob(batch)
    f, item = model.outputs(batch)[scores.scored], batch.item[:, : batch.length][scores.scored]
    same(scores.values[scores.scored], model.family.log_prob(f, item), parts)


def test_new_items_are_as_an_average_one_also_where_items_come_again():
    model, batch, _ = drawn("lags", "past")
    wider = Grown(model, Categorical(model.family.size + 2))
    chosen = model.targets(batch)
    assert torch.allclose(
        wider.raw_logits(batch, every(batch), chosen).formed(), wider.raw_outputs(batch, every(batch))[chosen]
    )


@CONTEXTS
def test_a_target_never_sees_itself_in_blocks(blocks, context):
    """What all others have as log-probabilities does depend on an item, its own distribution does not."""
    batch = Batch.of([{"item": [1, 2, 3, 4]}], torch.float64)
    term = item_term(context)
    other = batch.replace(item=torch.tensor([[1, 9, 3, 4]]))
    second = torch.zeros_like(batch.target).index_fill(1, torch.tensor([1]), True)
    mine, theirs = (term.logits(x, every(x), second).log_prob(torch.tensor([5])) for x in (batch, other))
    assert torch.equal(mine, theirs)
    assert not torch.equal(term.log_prob(batch).values[:, 2:], term.log_prob(other).values[:, 2:])


# ---- fits and verbs


def test_a_fit_in_blocks_is_one_with_whole_arrays(monkeypatch):
    draw = np.random.default_rng(0)
    item = np.concatenate([draw.permutation(3000)[:30] for _ in range(60)])
    table = pl.DataFrame({"user": np.repeat(np.arange(60), 30), "movie": item, "at": np.tile(np.arange(30), 60)})
    scores = []
    for small in (0, 2**30):
        monkeypatch.setattr(scoring, "SMALL", small)
        training = Training(epochs=2, device="cpu")
        model = efa(terms="item", context="past", companions=None, refit=False, training=training)
        model.fit(table, group="user", item="movie", order="at", progress=False)
        last = model.history_[-1]
        scores.append((last["train"], last["validation"], model.score(table)))
    assert model.support_ == "distinct"
    assert np.allclose(*scores, rtol=1e-5)


@pytest.mark.parametrize("options", [{}, {"context": "past", "ensemble": 2}, {"max_length": 3}])
def test_verbs_in_pieces_say_what_they_say_at_once(monkeypatch, options):
    training = Training(epochs=1, device="cpu")
    model = efa(terms="item", companions=None, refit=False, training=training, **options)
    table = ratings()
    model.fit(table, group="user", item="movie", order="at", validation=None, progress=False)
    at_once = model.recommend(table, k=3), model.predict(table)
    monkeypatch.setattr(mixture, "CELLS", 1)
    for whole, piecewise in zip(at_once, (model.recommend(table, k=3), model.predict(table)), strict=True):
        assert_frame_equal(whole, piecewise)


def test_no_verb_holds_an_array_of_users_by_items(monkeypatch):
    items = 1200
    table = pl.DataFrame({"user": np.arange(items) // 3, "movie": np.random.default_rng(0).permutation(items)})
    model = efa(terms="item", width=4, training=Training(epochs=1, device="cpu"))
    model.fit(table, group="user", item="movie", validation=None, progress=False)
    monkeypatch.setattr(mixture, "CELLS", 2**14)
    monkeypatch.setattr(scoring, "SMALL", 0)
    monkeypatch.setattr(catalogue, "CACHE", 2**14)
    whole = 4 * items * items  # a number for each row and item
    for ask in (model.score, model.log_likelihood, model.predict, model.evaluate, lambda x: model.recommend(x, k=3)):
        assert peak_bytes(lambda ask=ask: ask(table)) < whole / 3


def test_the_benchmark_compares_a_loss_with_itself():
    found = bench.difference(bench.term(300), bench.drawn(300, 64))
    assert found["loss"] < 1e-5
    assert found["gradients"] < 1e-5
