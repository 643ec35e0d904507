"""Laws of terms and models: what is scored, on which support, from which context."""

import pytest
import torch
import torch.nn.functional as F
from drawing import ragged_batch

from efattn import families
from efattn.data import Batch
from efattn.errors import DataError
from efattn.models import LatentItems, Model, Term
from efattn.network import (
    AttributeVectors,
    Embedding,
    Head,
    Identity,
    ItemVectors,
    PerValue,
    ReadOff,
    Stack,
    Tied,
    ValueMLP,
    perceptron,
)

ITEMS = 12
CONTEXTS = ["past", "others"]


def item_term(context="others", support="all", tied=False, **options):
    torch.manual_seed(0)
    vectors = ItemVectors(ITEMS, 8)
    family = families.Categorical(ITEMS)
    body = Tied(vectors) if tied else perceptron(8, (), ITEMS)
    embedding = Embedding(vectors, positions=6)
    stack = Stack(8, 2, 2, **options)
    return Term(embedding, stack, Head(body, family.shared), family, context=context, support=support).double()


def value_term(context="others", family=None, value=None, hidden=(8,), **options):
    torch.manual_seed(0)
    family = families.Product((family or families.Gaussian(),))
    value = value or ValueMLP(family.columns, 8, 4)
    embedding = Embedding(value, item=ItemVectors(ITEMS, 8 - value.width), positions=6)
    head = Head(perceptron(8, hidden, sum(not s for s in family.shared)), family.shared)
    return Term(embedding, Stack(8, 2, 2, **options), head, family, context=context).double()


def place_term(context="others", lags=0, **options):
    torch.manual_seed(0)
    family = families.Gaussian("predicted")
    parts = {"attributes": AttributeVectors((2, 16, 6)), "lag": torch.nn.Embedding(lags + 1, 3) if lags else None}
    embedding = Embedding(ValueMLP(1, 8, 5), mix=(16, 8), **parts)
    head = Head(perceptron(8, (8, 4), 2), family.shared)
    stack = Stack(8, 2, 2, feed_forward=16, norm="post")
    return Term(embedding, stack, head, family, context=context, **options).double()


def rows(batch):
    return batch.exists[:, : batch.length]


EVERY = [(item_term, 0), (value_term, 0), (place_term, 0), (place_term, 2)]


@pytest.mark.parametrize(("make", "lags"), EVERY)
@pytest.mark.parametrize("context", CONTEXTS)
class TestEveryTerm:
    def make(self, make, context, lags):
        return make(context, lags=lags) if lags else make(context)

    def test_scores_finite_numbers_and_nothing_else(self, make, lags, context):
        batch = ragged_batch(0, lags=lags)
        term = self.make(make, context, lags)
        scores = term.log_prob(batch)
        assert scores.values.isfinite().all()
        assert (scores.values[~scores.scored] == 0).all()
        assert 0 < scores.scored.sum() <= rows(batch).sum()
        (-scores.mean()).backward()
        assert all(p.grad is not None and p.grad.isfinite().all() for p in term.parameters())

    def test_gives_a_group_alone_what_it_gives_it_among_others(self, make, lags, context):
        batch = ragged_batch(1, lags=lags, lengths=(6, 3))
        alone = ragged_batch(1, lags=lags, lengths=(6,))
        term = self.make(make, context, lags)
        found, expected = term.log_prob(batch).values[0], term.log_prob(alone).values[0]
        assert torch.allclose(found, expected, atol=1e-12)

    def test_starts_at_the_marginal_fit(self, make, lags, context):
        batch = ragged_batch(2, lags=lags)
        term = self.make(make, context, lags)
        term.start(batch)
        f = term.outputs(batch)[rows(batch)]
        if term.of_items:  # but for the random weights of its head
            f = f - F.linear(term.rows(batch)[rows(batch)], term.head.body[-1].weight)
            assert term.head.body[-1].weight.abs().min() > 0
        assert torch.allclose(f, term.marginal(batch).expand_as(f))

    def test_weighs_drawn_targets_so_that_the_sum_keeps_its_mean(self, make, lags, context):
        batch = ragged_batch(3, lags=lags)
        term = self.make(make, context, lags)
        scores = term.log_prob(batch)
        torch.manual_seed(5)
        with torch.no_grad():
            drawn = [term.log_prob(batch, draws=2) for _ in range(400)]
        sums = torch.stack([(s.values * s.weight * s.scored).sum() for s in drawn])
        assert all(s.values.shape[1] == 2 for s in drawn)
        assert abs(sums.mean() - scores.values.sum()) < 4 * sums.std() / len(sums) ** 0.5
        counts = torch.stack([(s.weight * s.scored).sum() for s in drawn])
        assert torch.allclose(counts, scores.scored.sum().to(counts.dtype))

    def test_shows_its_attention(self, make, lags, context):
        batch = ragged_batch(4, lags=lags)
        weights = self.make(make, context, lags).attention(batch)
        assert weights.shape == (5, 2, 2, batch.length, batch.exists.shape[1])
        mine = weights.permute(0, 3, 1, 2, 4)[rows(batch)]
        assert torch.allclose(mine.sum(-1), torch.ones_like(mine.sum(-1)))


@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("make", [value_term, place_term])
def test_a_prediction_does_not_depend_on_its_own_value(make, context):
    batch = ragged_batch(6, missing=0)
    term = make(context)
    f = term.outputs(batch)
    for i in range(batch.length):
        changed, blank = batch.value.clone(), batch.observed.clone()
        changed[:, i] += 100
        blank[:, i] = False
        here = rows(batch)[:, i]
        found = term.outputs(batch.replace(value=changed))[here, i]
        missing = term.outputs(batch.replace(observed=blank))[here, i]
        assert torch.allclose(found, f[here, i], rtol=1e-9)
        assert torch.allclose(missing, f[here, i], rtol=1e-9)
    assert (f - term.outputs(batch.replace(value=batch.value + 1)))[rows(batch)].abs().max() > 1e-6


def test_a_missing_value_is_seen_in_its_masked_form():
    batch = ragged_batch(7, missing=0)
    term = value_term()
    content, masked = term.embed(batch.replace(observed=torch.zeros_like(batch.observed)))
    assert torch.equal(content, masked)


def test_items_never_depend_on_values():
    batch = ragged_batch(8)
    term = item_term()
    assert torch.equal(term.outputs(batch), term.outputs(batch.replace(value=batch.value + 1)))


def test_past_sees_nothing_later():
    batch = ragged_batch(9, missing=0, lengths=(6, 6))
    for term in (item_term("past"), value_term("past")):
        f = term.outputs(batch)
        item, value = batch.item.clone(), batch.value.clone()
        item[:, 4:] = (item[:, 4:] + 1) % ITEMS
        value[:, 4:] += 10
        changed = term.outputs(batch.replace(item=item, value=value))
        assert torch.equal(f[:, :4], changed[:, :4])
        assert not torch.equal(f[:, 5], changed[:, 5])


def test_unknown_items_and_missing_values_are_context_but_never_scored():
    batch = Batch.of([{"item": [3, ITEMS, 5], "value": [1.0, 2.0, float("nan")]}], torch.float64)
    assert item_term().log_prob(batch).scored.tolist() == [[True, False, True]]
    assert value_term().log_prob(batch).scored.tolist() == [[True, True, False]]
    known = batch.replace(item=torch.tensor([[3, 4, 5]]))
    assert not torch.allclose(item_term().outputs(batch)[0, 0], item_term().outputs(known)[0, 0])


def test_rows_that_are_context_only_are_not_scored():
    batch = Batch.of([{"item": [3, 4, 5], "value": [1.0, 2.0, 3.0], "target": [True, False, True]}], torch.float64)
    for term in (item_term(), value_term()):
        assert term.log_prob(batch).scored.tolist() == [[True, False, True]]


class TestDistinctSupport:
    def test_is_a_distribution_on_the_items_that_are_left(self):
        batch = ragged_batch(10, lengths=(6, 1, 4))
        for context in CONTEXTS:
            term = item_term(context, "distinct")
            p = term.family.mean(term.outputs(batch))
            assert torch.allclose(p[rows(batch)].sum(-1), torch.ones(11, dtype=p.dtype))
            for g, i in rows(batch).nonzero().tolist():
                group = batch.item[g][batch.exists[g]].tolist()
                taken = group[:i] if context == "past" else group[:i] + group[i + 1 :]
                assert (p[g, i, taken] == 0).all()
                left = [x for x in range(ITEMS) if x not in taken]
                assert (p[g, i, left] > 0).all()
                assert group[i] in left

    def test_costs_probability_to_nothing_that_happens(self):
        batch = ragged_batch(11)
        everywhere, distinct = item_term().log_prob(batch), item_term(support="distinct").log_prob(batch)
        assert (distinct.values >= everywhere.values).all()
        assert (distinct.values > everywhere.values).any()

    def test_counts_items_hidden_in_training(self):
        batch = ragged_batch(12, lengths=(8,))
        term = item_term(support="distinct")
        holed = batch.replace(hidden=torch.arange(8)[None, :, None] % 2 == 0)
        assert torch.equal(term.outputs(batch) == -torch.inf, term.outputs(holed) == -torch.inf)

    @pytest.mark.parametrize("context", CONTEXTS)
    def test_counts_items_cut_off_by_the_longest_length(self, context):
        batch = Batch.of([{"item": [1, 2]}], torch.float64).replace(cut=torch.tensor([[7, -1]]))
        p = item_term(context, "distinct").outputs(batch)[0]
        assert (p[:, 7] == -torch.inf).all()
        assert (p[:, 0] > -torch.inf).all()

    def test_does_not_count_lagged_items(self):
        batch = Batch.of([{"item": [1, 2, 5], "lag": [0, 0, 1]}], torch.float64)
        assert (item_term(support="distinct").outputs(batch)[0, :, 5] > -torch.inf).all()

    def test_refuses_repeated_items_but_not_unknown_ones(self):
        with pytest.raises(DataError, match="never repeat"):
            item_term(support="distinct").log_prob(Batch.of([{"item": [1, 2, 1]}], torch.float64))
        scores = item_term(support="distinct").log_prob(Batch.of([{"item": [ITEMS, 2, ITEMS]}], torch.float64))
        assert scores.scored.tolist() == [[False, True, False]]

    def test_has_finite_gradients(self):
        term = item_term("past", "distinct")
        term.log_prob(ragged_batch(13)).mean().backward()
        assert all(p.grad.isfinite().all() for p in term.parameters())


def test_tied_heads_use_the_vectors_of_the_embedding():
    term = item_term(tied=True)
    assert len([n for n, _ in term.named_parameters() if "vectors" in n]) == 1
    term.log_prob(ragged_batch(14)).mean().backward()


@pytest.mark.parametrize("value", [Identity(), PerValue([[1.0, 2.0, 3.0]], 4), ValueMLP(1, 8, 4)], ids=type)
def test_every_value_embedding_masks_what_it_should(value):
    value = value.double()
    y = torch.tensor([[1.0], [3.0], [2.0]], dtype=torch.float64)
    seen = torch.tensor([[True], [True], [False]])
    out = value(y, seen)
    assert torch.equal(out[2], value.masked())
    assert not torch.equal(out[0], out[1])
    assert torch.equal(value(y + torch.tensor([[0.0], [0.0], [9.0]]), seen), out)


def test_a_value_between_known_ones_gets_the_vector_of_the_nearest():
    value = PerValue([[1.0, 2.0, 5.0]], 4)
    seen = torch.ones(4, 1, dtype=torch.bool)
    out = value(torch.tensor([[1.0], [5.0], [0.2], [9.0]]), seen)
    assert torch.equal(out[0], out[2])
    assert torch.equal(out[1], out[3])


def test_reading_off_needs_no_parameters():
    family = families.Product((families.Gaussian(1.0),))
    embedding = Embedding(Identity(), item=ItemVectors(ITEMS, 7))
    term = Term(embedding, Stack(8, 1, 1), Head(ReadOff(1, 2.0), family.shared, bias=False), family).double()
    assert not list(term.head.parameters())
    batch = ragged_batch(15)
    assert torch.equal(term.outputs(batch), 2 * term.rows(batch)[..., -1:])


def test_new_places_work_as_well_as_old_ones():
    batch = ragged_batch(16, missing=0)
    term = place_term()
    term.start(batch)
    shifted = batch.replace(attributes=batch.attributes + torch.tensor([3.0, -7.0], dtype=torch.float64))
    assert term.log_prob(shifted).values.isfinite().all()


def test_neighbours_narrow_the_context_to_the_nearest_places():
    batch = ragged_batch(17, missing=0, lengths=(8,))
    weights = place_term(neighbours=2).attention(batch)[0, 0, 0]
    assert ((weights > 0).sum(-1) == 3).all()  # two neighbours and itself


def test_exposure_scales_the_rate():
    term = value_term(family=families.Poisson())
    batch = ragged_batch(18, counts=True)
    e = torch.rand(batch.target.shape, dtype=torch.float64) + 0.5
    f, exposed = term.outputs(batch), term.outputs(batch.replace(exposure=e))
    assert torch.allclose(exposed, f + e.log()[..., None])
    term.start(batch.replace(exposure=torch.full_like(e, 3.0)))
    start = term.family.mean(term.marginal(batch))
    assert torch.allclose(term.family.mean(term.outputs(batch))[0, 0] * 3, start, rtol=1e-6)
    with pytest.raises(DataError, match="no exposure"):
        value_term().outputs(batch.replace(exposure=e))


def test_several_columns_are_scored_where_they_are_observed():
    family = families.Product((families.Gaussian(), families.MultivariateGaussian(2)))
    torch.manual_seed(0)
    embedding = Embedding(ValueMLP(3, 8, 8))
    head = Head(perceptron(8, (), sum(not s for s in family.shared)), family.shared)
    term = Term(embedding, Stack(8, 2, 2), head, family).double()
    nan = float("nan")
    value = [[1.0, 2.0, 3.0], [nan, 1.0, 2.0], [1.0, nan, 3.0], [nan, nan, 1.0]]
    batch = Batch.of([{"value": value}], torch.float64)
    scores = term.log_prob(batch)
    assert scores.scored.tolist() == [[True, True, True, True]]
    f = term.outputs(batch)[0]
    parts = family.log_probs(f, torch.tensor(value, dtype=torch.float64).nan_to_num(0))
    one, last = family.column(f, 2)  # of two columns that vary together, where the first is missing
    alone = one.log_prob(last, torch.tensor([0.0, 0.0, 3.0, 1.0], dtype=torch.float64))
    expected = torch.stack([parts[0].sum(), parts[1, 1], parts[2, 0] + alone[2], alone[3]])
    assert torch.allclose(scores.values[0], expected)


def test_a_model_is_the_sum_of_its_terms():
    batch = ragged_batch(19)
    model = Model({"item": item_term(), "rating": value_term()})
    scores = model.log_prob(batch)
    assert list(scores) == ["item", "rating"]
    assert torch.allclose(model.total(batch), scores["item"].values.sum(1) + scores["rating"].values.sum(1))


def test_a_missing_column_is_an_error_that_names_it():
    batch = ragged_batch(20)
    with pytest.raises(DataError, match="item"):
        item_term().log_prob(batch.replace(item=None))
    with pytest.raises(DataError, match="value"):
        value_term().log_prob(batch.replace(value=None, observed=None))
    with pytest.raises(DataError, match="item"):
        LatentItems(ITEMS, 4).log_prob(batch.replace(item=None))
