"""Laws of what training hides: it is as if it were missing, for all targets of a group alike."""

import numpy as np
import polars as pl
import pytest
import torch
from drawing import ragged_batch
from test_terms import CONTEXTS, ITEMS, item_term, place_term, rows, value_term

import efattn
from efattn import EFA, Training
from efattn.data import Batch
from efattn.models import Holes
from efattn.network.conditionals import copied, folded, formed, literal, two_streams

TERMS = [(item_term, 0), (value_term, 0), (place_term, 2)]


def holed(batch, rate=0.9, unknown=0.5, **more):
    """The first draw that has holes of both kinds, if both are asked for."""
    for seed in range(100):
        torch.manual_seed(seed)
        drawn = Holes(rate, unknown, **more)(batch)
        if drawn.hidden[drawn.exists].any() and (drawn.strange is None or drawn.strange[drawn.exists].any()):
            return drawn
    raise AssertionError("nothing is ever hidden")


@pytest.mark.parametrize(("make", "lags"), TERMS)
@pytest.mark.parametrize("context", CONTEXTS)
def test_every_path_gives_the_same_with_holes(make, lags, context):
    batch = holed(ragged_batch(0, lags=lags, missing=0.2))
    term = make(context, lags=lags) if lags else make(context)
    slots = torch.arange(batch.length).expand(len(batch.exists), -1)
    pull = torch.randn(*slots.shape, term.family.size, dtype=torch.float64)
    pull = pull * rows(batch)[..., None]
    paths = (
        [two_streams] if context == "past" else [copied, formed, folded] if make is not place_term else [copied, formed]
    )
    found = []
    for path in (literal, None, *paths):
        f = term.raw_outputs(batch, slots, path)
        found.append(
            (f[rows(batch)], torch.autograd.grad((f * pull).sum(), list(term.parameters()), allow_unused=True))
        )
    for f, gradients in found[1:]:
        torch.testing.assert_close(f, found[0][0], rtol=1e-9, atol=1e-10)
        for a, b in zip(gradients, found[0][1], strict=True):
            assert (a is None) == (b is None)
            if a is not None:
                torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("make", [value_term, place_term])
@pytest.mark.parametrize("context", CONTEXTS)
def test_a_hidden_value_is_seen_as_a_missing_one_is(make, context):
    batch = holed(ragged_batch(1, missing=0.2), unknown=0.0)
    term = make(context)
    missing = batch.replace(hidden=None, observed=batch.observed & ~batch.hidden)
    assert torch.equal(term.outputs(batch), term.outputs(missing))
    assert torch.equal(term.log_prob(batch).scored, term.log_prob(batch.replace(hidden=None)).scored)


@pytest.mark.parametrize("make", [value_term, place_term])
@pytest.mark.parametrize("context", CONTEXTS)
def test_no_target_sees_itself_or_what_is_hidden(make, context):
    batch = holed(ragged_batch(2, missing=0))
    value = batch.value.clone().requires_grad_()
    f = make(context).outputs(batch.replace(value=value))
    for i in range(batch.length):
        (seen,) = torch.autograd.grad(f[rows(batch)[:, i], i].square().sum(), value, retain_graph=True)
        assert seen[:, i].abs().max() <= 1e-12
        assert seen[batch.hidden].abs().max() == 0


def test_hidden_items_are_no_context_and_strange_ones_are_unknown():
    batch = ragged_batch(4, lengths=(6, 6))
    hidden = torch.zeros(2, 6, 1, dtype=torch.bool)
    hidden[:, 2] = True
    term = item_term()
    other = batch.item.clone()
    other[:, 2] = (other[:, 2] + 1) % ITEMS
    f = term.outputs(batch.replace(hidden=hidden))
    assert torch.allclose(
        f[:, [0, 1, 3, 4, 5]], term.outputs(batch.replace(hidden=hidden, item=other))[:, [0, 1, 3, 4, 5]]
    )
    assert term.log_prob(batch.replace(hidden=hidden)).scored.all()
    unknown = batch.item.masked_fill(hidden[..., 0], ITEMS)
    assert torch.equal(term.outputs(batch.replace(strange=hidden[..., 0])), term.outputs(batch.replace(item=unknown)))
    assert term.log_prob(batch.replace(strange=hidden[..., 0])).scored.all()


def test_half_of_the_groups_are_whole_and_shares_are_drawn_evenly():
    batch = Batch.of([{"item": list(range(40)), "value": [0.0] * 40}] * 4000)
    drawn = holed(batch, rate=0.8, unknown=0.4)
    for field, most in ((drawn.hidden[..., 0], 0.8), (drawn.strange, 0.4)):
        share = field.double().mean(1)
        assert abs((share == 0).double().mean() - 0.5) < 0.1
        assert abs(share.mean() - most / 4) < 0.02
        assert share.max() > most / 2


def test_an_item_is_strange_at_all_its_places_in_a_group():
    item = torch.arange(20).repeat(3)
    batch = Batch.of([{"item": item.tolist(), "value": [0.0] * 60}] * 200)
    strange = holed(batch).strange.reshape(200, 3, 20)
    assert (strange == strange[:, :1]).all()
    assert (strange.any(-1) & ~strange.all(-1)).any()


def test_values_of_a_strange_item_are_in_the_units_of_an_unknown_one():
    """As the table has them: centre + scale * value is the same under either item's centre."""
    batch = Batch.of([{"item": [0, 1, 2], "value": [1.0, 2.0, 3.0]}] * 300)
    shift = np.array([[10.0], [20.0], [30.0], [0.0]])
    drawn = holed(batch, shift=shift)
    added = (drawn.value - batch.value)[..., 0]
    assert torch.equal(added, torch.tensor([10.0, 20.0, 30.0]) * drawn.strange)


def test_single_cells_are_hidden_and_whole_rows_are():
    drawn = holed(Batch.of([{"value": [[0.0, 0.0, 0.0]] * 30}] * 200), rate=0.9).hidden
    mixed = (drawn.any(-1) & ~drawn.all(-1)).any(1)
    assert mixed.any()
    assert (drawn.any((1, 2)) & ~mixed).any()


# ---- in fits


QUICK = Training(epochs=30, tokens=256, rate=0.01, patience=None, device="cpu")


def field(days=60, places=12, seed=0):
    """A smooth field over places, another every day, each place with a level that its attributes tell."""
    draw = np.random.default_rng(seed)
    x = np.linspace(-1, 1, places)
    waves = draw.normal(size=(days, 2))
    value = 10 * x + waves[:, :1] * 3 + 2 * waves[:, 1:] * x + draw.normal(size=(days, places)) * 0.2
    day, place = np.indices((days, places)).reshape(2, -1)
    return pl.DataFrame({"day": day, "place": [f"p{k}" for k in place], "x": x[place], "y": value.ravel()})


ROLES = {"group": "day", "item": "place", "attributes": "x", "value": "y"}


def fitted(table, **options):
    options = {"width": 16, "hide": 0.9, "dispersion": "predicted", **options}
    model = EFA(family="gaussian", terms="value", companions=None, refit=False, training=QUICK, **options)
    return model.fit(table, **ROLES, validation=0.2)


def error(model, table, here):
    told = model.predict(table, interval=None)
    return float(((told["y_mean"] - table["y"]) ** 2).to_numpy()[here].mean())


def test_a_place_never_seen_is_predicted_about_as_well_as_the_others():
    table, new = field(), "p5"
    model = fitted(table.filter((pl.col("place") != new) & (pl.col("day") < 45)))
    later = table.filter(pl.col("day") >= 45)
    here = (later["place"] == new).to_numpy()
    assert error(model, later, here) < 0.1 * float(later["y"].var())
    assert error(model, later, ~here) < 0.1 * float(later["y"].var())


def test_the_mask_and_the_unknown_item_are_trained_on_complete_rows():
    """The mask as context, whose gradient no target gives in whose own slot it stands: with one slot as the target."""
    batch = holed(ragged_batch(5, missing=0, lengths=(9, 9, 9, 9)))
    for shown, moves in ((batch, True), (batch.replace(hidden=None, strange=None), False)):
        term = value_term(value=None)
        content, _ = term.embed(shown)
        content.square().sum().backward()
        mask, unknown = term.embedding.target.mask, term.embedding.item.vectors.weight
        assert (mask.grad is not None and bool(mask.grad.any())) == moves
        assert bool(unknown.grad[ITEMS].any()) == moves


# ---- dispersion that knows what was seen


def varied(context="others", **options):
    from efattn import families
    from efattn.network import Head, perceptron

    term = value_term(context, family=families.Ordinal(levels=4))
    body, beside, family = perceptron(8, (8,), 1), perceptron(8, (8,), 2), term.family
    term.head = Head(body, family.shared, beside=beside, around=family.dispersions).double()
    return term


def test_a_varying_dispersion_starts_at_the_shared_one_and_leaves_the_rows_alone():
    batch = ragged_batch(6)
    batch = batch.replace(value=batch.value.round().clamp(0, 3))
    term = varied()
    term.start(batch)
    f = term.outputs(batch)[rows(batch)]
    assert torch.allclose(f, term.marginal(batch).expand_as(f))
    torch.nn.init.normal_(term.head.beside[-1].weight)
    assert (term.outputs(batch)[rows(batch)][:, 2:].std(0) > 0).all()
    term.outputs(batch)[..., 1:].sum().backward()
    assert all(p.grad is None or not p.grad.any() for p in term.stack.parameters())
    assert all(p.grad.any() for p in term.head.beside.parameters())


def test_a_dispersion_is_larger_where_less_was_seen():
    model, table = fitted(field(days=80, places=8)), field(days=30, places=8, seed=1)
    few = table.with_columns(y=pl.when(pl.col("place") == "p0").then("y"))
    sd = [float(model.predict(t).filter(pl.col("place") != "p0")["y_sd"].mean()) for t in (table, few)]
    assert sd[1] > sd[0]


def test_few_rows_are_all_shown_and_have_one_dispersion(tmp_path):
    table = field(days=20)
    small, asked = (fitted(table, hide="auto", dispersion=how, width=8) for how in ("auto", "predicted"))
    assert small.model_["y"].holes is None
    assert small.predict(table)["y_sd"].std() < 1e-6
    assert asked.predict(table)["y_sd"].std() > 1e-3
    for model in (small, asked):
        model.save(tmp_path / "model.efattn")
        again = efattn.load(tmp_path / "model.efattn")
        assert again.predict(table).equals(model.predict(table))
