"""Laws of isolated content: the literal definition in one pass at any depth, and a target that never sees itself."""

import polars as pl
import pytest
import torch

from efattn import EFA, Training, load
from efattn.network import Stack, Visibility
from efattn.network.conditionals import copied, folded, formed, literal, two_streams

WIDTH, GAPS = 8, 4
SHAPES = [
    {},
    {"norm": "pre", "feed_forward": 12},
    {"norm": "post", "feed_forward": 12, "dropout": 0.3},
    {"kind": "linear", "average": True, "size": 3},
    {"own": False, "bias": False, "residual": False},
    {"gaps": GAPS},
]


def problem(seed, context, *, gaps=0, own=True, lengths=(6, 1, 4), lags=2, pairs=False):
    """A ragged batch with hidden positions, lags and missing cells, in float64."""
    torch.manual_seed(seed)
    batch, length = len(lengths), max(lengths)
    exists = torch.arange(length + lags) < torch.tensor(lengths)[:, None]
    exists[:, length:] = torch.rand(batch, lags) < 0.7
    shape = (batch, length + lags, length + lags)
    allowed = torch.rand(shape) < 0.6 if pairs else None
    gap = torch.randint(gaps, shape) if gaps else None
    visibility = Visibility.of(context, exists, length, pairs=allowed, own=own, gap=gap)
    visibility = visibility.without(torch.rand(exists.shape) < 0.2)
    content, masked = torch.randn(batch, length + lags, WIDTH), torch.randn(batch, length, WIDTH)
    missing = torch.rand(batch, length + lags, 1) < 0.2
    content = torch.where(missing, torch.cat((masked, content[:, length:]), 1), content)
    return content.double().requires_grad_(), masked.double().requires_grad_(), visibility, exists[:, :length]


def isolated(layers, **options):
    stack = Stack(WIDTH, layers, 2, content="isolated", **options).double()
    for block in stack.layers:
        if block.attention.gaps is not None:
            torch.nn.init.normal_(block.attention.gaps)
    return stack


def values_and_gradients(stack, content, masked, visibility, real, path=None):
    torch.manual_seed(7)  # the same dropout for every path
    out = stack(content, masked, visibility, path=path)[real]
    leaves = [content, masked, *stack.parameters()]
    found = torch.autograd.grad(out.sin().sum(), leaves, allow_unused=True)
    return [out, *(torch.zeros_like(x) if g is None else g for x, g in zip(leaves, found, strict=True))]


@pytest.mark.parametrize("context", ["past", "others"])
@pytest.mark.parametrize("options", SHAPES, ids=str)
@pytest.mark.parametrize("layers", [2, 3])
def test_one_pass_equals_the_literal_form(context, options, layers):
    stack, gaps, own = isolated(layers, **options), options.get("gaps", 0), options.get("own", True)
    data = problem(layers, context, gaps=gaps, own=own, pairs=layers == 3)
    expected = values_and_gradients(stack, *data, literal)
    paths = [two_streams, copied, formed] + [folded] * (layers == 2 and stack.layers[0].affine)
    for path in paths:
        found = values_and_gradients(stack, *data, path)
        for a, b in zip(expected, found, strict=True):
            assert (a - b).abs().max() <= 1e-10 * max(1.0, a.abs().max())


@pytest.mark.parametrize("context", ["past", "others"])
@pytest.mark.parametrize("layers", [3, 4])
@pytest.mark.parametrize("options", [SHAPES[1], SHAPES[-1]], ids=str)
def test_a_target_never_sees_itself(context, layers, options):
    stack = isolated(layers, **options)
    content, masked, visibility, real = problem(5, context, gaps=options.get("gaps", 0))
    out, seen = stack(content, masked, visibility), []
    for group, i in real.nonzero().tolist():
        (gradient,) = torch.autograd.grad(out[group, i].sin().sum(), content, retain_graph=True)
        assert gradient[group, i].abs().max() == 0
        assert gradient[torch.arange(len(real)) != group].abs().max() == 0
        if context == "past":
            assert (gradient[group, i : real.shape[1]] == 0).all()
        seen.append(gradient[group].abs().max())
    assert max(seen) > 1e-3


@pytest.mark.parametrize("context", ["past", "others"])
def test_one_layer_is_the_mixing_model(context):
    data = problem(3, context)
    one = isolated(1, norm="pre", feed_forward=12)
    other = Stack(WIDTH, 1, 2, norm="pre", feed_forward=12).double()
    other.load_state_dict(one.state_dict())
    for a, b in zip(values_and_gradients(one, *data), values_and_gradients(other, *data), strict=True):
        assert torch.equal(a, b)


def test_two_layers_are_another_model_with_the_same_weights():
    data = problem(3, "others")
    one, other = isolated(2), Stack(WIDTH, 2, 2).double()
    other.load_state_dict(one.state_dict())
    assert (values_and_gradients(one, *data)[0] - values_and_gradients(other, *data)[0]).abs().max() > 1e-3


def test_the_stack_takes_one_pass_whatever_its_depth():
    content, masked, visibility, _ = problem(0, "others")
    for layers in (2, 5):
        stack, called = isolated(layers, feed_forward=12), []
        choose = stack.choose
        stack.choose = lambda inputs, choose=choose, called=called: called.append(choose(inputs)) or called[0]
        stack(content, masked, visibility)
        assert called == [two_streams]


@pytest.mark.parametrize("context", ["past", "others"])
def test_padding_and_batch_mates_change_nothing(context):
    stack = isolated(3, norm="pre", feed_forward=12)
    content, masked, visibility, _ = problem(1, context, lengths=(5, 3), lags=0)
    out, noise = stack(content, masked, visibility), torch.randn(2, 4, WIDTH).double() * 100
    wider = Visibility.of(context, torch.cat((visibility.seen, torch.zeros(2, 4, dtype=torch.bool)), 1), 9)
    padded = stack(torch.cat((content, noise), 1), torch.cat((masked, noise), 1), wider)
    assert (padded[0, :5] - out[0]).abs().max() <= 1e-12
    alone = Visibility.of(context, visibility.seen[1:, :3], 3)
    assert (stack(content[1:, :3], masked[1:, :3], alone) - out[1:, :3]).abs().max() <= 1e-12


@pytest.mark.parametrize("context", ["past", "others"])
def test_weights_that_are_shown_are_those_of_the_literal_form(context):
    stack, expected, found = isolated(3, gaps=GAPS), [], []
    content, masked, visibility, real = problem(8, context, gaps=GAPS)
    stack(content, masked, visibility, path=literal, weights=expected)
    stack(content, masked, visibility, weights=found)
    for a, b in zip(expected, found, strict=True):
        assert torch.allclose(a.transpose(1, 2)[real], b.transpose(1, 2)[real], atol=1e-10)


def test_an_estimator_is_fitted_kept_and_asked_with_it(tmp_path):
    torch.manual_seed(0)
    x = torch.randn(30, 1) + torch.randn(30, 5)
    table = pl.DataFrame({"day": [i // 5 for i in range(150)], "place": [i % 5 for i in range(150)]})
    table = table.with_columns(t=pl.Series(x.flatten().tolist()))
    training = Training(epochs=2, patience=None)
    model = EFA(content="isolated", layers=3, width=8, family="gaussian", companions=None, refit=False)
    model.set_params(training=training)
    model.fit(table, group="day", item="place", value="t", validation=0.2, progress=False)
    assert model.get_params()["content"] == "isolated"
    assert model.members_[0]["t"].stack.isolated
    model.save(tmp_path / "m.efattn")
    again = load(tmp_path / "m.efattn")
    assert again.content == "isolated"
    assert again.score(table) == model.score(table)
    changed = table.with_columns(t=pl.when(pl.col("place") == 2).then(9.0).otherwise("t"))
    mine = pl.col("place") == 2
    before, after = (model.predict(one).filter(mine)["t_mean"] for one in (table, changed))
    assert (before - after).abs().max() < 1e-5


def test_the_benchmark_measures_both_kinds():
    from efattn.bench import content

    works = content.works("feed-forward", 2, 20)
    assert set(works) == {"mixing", "isolated"}
    for work in works.values():
        work()
