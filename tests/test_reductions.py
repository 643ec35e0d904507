"""Propositions 1 to 3: a latent factor model equals its attention form."""

import pytest
import torch
from drawing import ragged_batch

from efattn import families
from efattn.data import Batch
from efattn.models import LatentItems, LatentPlaces, LatentValues, as_attention

CONTEXTS = ("past", "others")
VALUES = (
    families.Gaussian(1.0),
    families.Gaussian("learned"),
    families.Poisson(shift=1),
    families.Poisson(link="softplus"),
)


def same_outputs(model: torch.nn.Module, batch: Batch) -> None:
    with torch.no_grad():
        expected, found = model.outputs(batch), as_attention(model).outputs(batch)
    here = batch.exists[:, : batch.length]
    assert torch.allclose(found[here], expected[here], rtol=1e-10, atol=1e-10)
    assert expected[here].abs().max() > 0.1  # something was compared


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("context", CONTEXTS)
class TestALatentFactorModelEqualsItsAttentionForm:
    def test_for_items(self, context, intercept, seed):
        batch = ragged_batch(seed, items=9, repeat=True)
        torch.manual_seed(seed)
        model = LatentItems(9, 4, context=context, intercept=intercept).double()
        _stir(model)
        same_outputs(model, batch)

    def test_for_items_of_distinct_support(self, context, intercept, seed):
        batch = ragged_batch(seed, items=9)
        torch.manual_seed(seed)
        model = LatentItems(9, 4, context=context, intercept=intercept, support="distinct").double()
        _stir(model)
        same_outputs(model, batch)

    @pytest.mark.parametrize("family", VALUES, ids=repr)
    def test_for_values(self, context, intercept, seed, family):
        batch = ragged_batch(seed, items=9, repeat=True)
        torch.manual_seed(seed)
        model = LatentValues(9, 4, family, context=context, intercept=intercept).double()
        _stir(model)
        same_outputs(model, batch)

    @pytest.mark.parametrize("neighbours", [None, 1, 3])
    def test_for_places(self, context, intercept, seed, neighbours):
        batch = ragged_batch(seed)
        torch.manual_seed(seed)
        options = {"context": context, "intercept": intercept, "neighbours": neighbours}
        model = LatentPlaces((2, 16, 4), families.Gaussian(1.0), **options).double()
        model.start(batch)
        _stir(model)
        same_outputs(model, batch)


@pytest.mark.parametrize("context", CONTEXTS)
def test_an_empty_context_gives_zero(context):
    batch = ragged_batch(0, lengths=(1, 1))
    model = LatentValues(9, 4, families.Poisson(), context=context).double()
    assert model.outputs(batch).abs().max() == 0
    assert as_attention(model).outputs(batch).abs().max() == 0


def test_the_attention_form_is_scored_like_the_factor_model():
    batch = ragged_batch(1, items=9)
    model = LatentValues(9, 4, families.Gaussian("learned"), context="past").double()
    model.start(batch)
    _stir(model)
    expected, found = model.log_prob(batch), as_attention(model).log_prob(batch)
    assert torch.equal(expected.scored, found.scored)
    assert torch.allclose(expected.values, found.values, rtol=1e-10)
    assert torch.isfinite(expected.mean())


def _stir(model: torch.nn.Module) -> None:
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn_like(p) * 0.3)
