"""Laws of the exact conditionals: every fast path is the literal definition, and a target never sees itself."""

import copy
from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from efattn.network import Stack, Visibility, rank_one
from efattn.network import stack as stacks
from efattn.network.conditionals import copied, folded, formed, literal, two_streams
from efattn.network.stack import Inputs

WIDTH = 8
SMALL, SHORT = stacks.SMALL, stacks.SHORT


@pytest.fixture(autouse=True, scope="module")
def as_large_groups_are():
    """Every problem here is small enough for copies: let the stack choose as if it were not."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stacks, "SMALL", 0)
        patch.setattr(stacks, "SHORT", 0)
        yield


def problem(
    seed, context="others", *, lengths=(6, 1, 4, 2), lags=0, pairs=False, hidden=0.0, own=True, width=WIDTH, gaps=0
):
    """Content, masked forms and visibility of a ragged batch, in float64."""
    torch.manual_seed(seed)
    batch, length = len(lengths), max(lengths)
    exists = torch.arange(length + lags) < torch.tensor(lengths)[:, None]
    exists[:, length:] = torch.rand(batch, lags) < 0.7
    allowed = torch.rand(batch, length + lags, length + lags) < 0.6 if pairs else None
    gap = torch.randint(gaps, (batch, length + lags, length + lags)) if gaps else None
    visibility = Visibility.of(context, exists, length, pairs=allowed, own=own, gap=gap)
    visibility = visibility.without(torch.rand(exists.shape) < hidden)
    content = torch.randn(batch, length + lags, width, dtype=torch.float64, requires_grad=True)
    masked = torch.randn(batch, length, width, dtype=torch.float64, requires_grad=True)
    missing = (torch.rand(batch, length) < 0.2)[..., None]  # a missing value stands in the context as its masked form
    content = torch.cat((torch.where(missing, masked, content[:, :length]), content[:, length:]), 1)
    content, masked = content.detach().requires_grad_(), masked.detach().requires_grad_()
    return content, masked, visibility, exists[:, :length]


def values_and_gradients(stack, content, masked, visibility, real, path=None, seed=7):
    torch.manual_seed(seed)  # the same dropout for every path
    out = stack(content, masked, visibility, path=path)
    out = out[real]
    pull = torch.randn(out.shape, dtype=out.dtype, generator=torch.Generator().manual_seed(0))
    leaves = [content, masked, *stack.parameters()]
    grads = torch.autograd.grad((out * pull).sum(), leaves, allow_unused=True)
    return out, [torch.zeros_like(x) if g is None else g for x, g in zip(leaves, grads, strict=True)]


def assert_same(stack, content, masked, visibility, real, path=None, tolerance=1e-10):
    expected, expected_grads = values_and_gradients(stack, content, masked, visibility, real, literal)
    found, found_grads = values_and_gradients(stack, content, masked, visibility, real, path)
    assert (found - expected).abs().max() <= tolerance * expected.abs().max()
    largest = max(g.abs().max() for g in expected_grads)
    for a, b in zip(expected_grads, found_grads, strict=True):
        assert (a - b).abs().max() <= tolerance * largest
    return largest


def options(layers):
    return st.fixed_dictionaries(
        {
            "seed": st.integers(0, 2**20),
            "context": st.sampled_from(["past", "others"]),
            "layers": layers,
            "heads": st.sampled_from([1, 2, 4]),
            "size": st.sampled_from([None, 3]),
            "feed_forward": st.sampled_from([0, 12]),
            "norm": st.sampled_from([None, "pre", "post"]),
            "kind": st.sampled_from(["softmax", "linear"]),
            "scale": st.sampled_from(["head", "width"]),
            "average": st.booleans(),
            "own": st.booleans(),
            "residual": st.booleans(),
            "bias": st.booleans(),
            "lags": st.sampled_from([0, 3]),
            "pairs": st.booleans(),
            "hidden": st.sampled_from([0.0, 0.4]),
            "dropout": st.sampled_from([0.0, 0.3]),
            "lengths": st.lists(st.integers(1, 7), min_size=1, max_size=4),
            "memory": st.sampled_from([2**13, 2**28]),
            "gaps": st.sampled_from([0, 4]),
        }
    )


def check_drawn(drawn):
    keys = ("seed", "context", "lengths", "lags", "pairs", "hidden")
    average, gaps = drawn["average"] and drawn["kind"] == "linear", drawn["gaps"] * (drawn["kind"] == "softmax")
    data = problem(**{key: drawn[key] for key in keys}, own=drawn["own"], gaps=gaps)
    network = {key: value for key, value in drawn.items() if key not in keys} | {"average": average, "gaps": gaps}
    stack = with_gaps_at_work(Stack(WIDTH, **network).double())
    assert_same(stack, *data)
    assert_same(stack, *data, path=copied)


def with_gaps_at_work(stack, times=1.0):
    """They start at zero, where their part in the scores could not be seen."""
    for block in stack.layers:
        if block.attention.gaps is not None:
            torch.nn.init.normal_(block.attention.gaps, std=times)
    return stack


@settings(max_examples=150, deadline=None)
@given(options(st.sampled_from([1, 2])))
def test_fast_conditionals_equal_the_literal_form(drawn):
    check_drawn(drawn)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(options(st.sampled_from([2, 3, 4])))
def test_fast_conditionals_equal_the_literal_form_in_deep_stacks(drawn):
    check_drawn(drawn)


@pytest.mark.parametrize("layers", [2, 3, 4])
@pytest.mark.parametrize(("norm", "feed_forward"), [(None, 0), ("post", 12)])
def test_formed_copies_equal_the_literal_form(layers, norm, feed_forward):
    stack = Stack(WIDTH, layers, 2, norm=norm, feed_forward=feed_forward).double()
    assert assert_same(stack, *problem(3, lags=2), path=formed) > 0


def test_the_stack_chooses_the_cheapest_exact_path():
    def chosen(context, layers, **extra):
        content, masked, visibility, _ = problem(0, context)
        stack = Stack(WIDTH, layers, 2, **extra).double()
        called = []
        original = stack.choose
        stack.choose = lambda inputs: called.append(original(inputs)) or called[0]
        stack(content, masked, visibility)
        return called[0]

    assert chosen("past", 4, feed_forward=8, norm="pre") is two_streams
    assert chosen("others", 1, feed_forward=8, norm="post") is two_streams
    assert chosen("others", 2) is folded
    assert chosen("others", 2, kind="linear") is folded
    assert chosen("others", 2, feed_forward=8) is formed
    assert chosen("others", 2, norm="pre") is formed
    assert chosen("others", 3) is formed


def test_a_cpu_builds_the_copies_where_they_are_few_or_short(monkeypatch):
    monkeypatch.setattr(stacks, "SMALL", SMALL)
    monkeypatch.setattr(stacks, "SHORT", SHORT)
    for groups, length, expected in ((4, 15, copied), (500, 4, copied), (500, 15, folded)):
        content = torch.zeros(groups, length, 32)
        visibility = Visibility.of("others", torch.ones(groups, length, dtype=torch.bool), length)
        assert Stack(32).choose(Inputs(content, content, visibility, [None, None])) is expected


def test_a_gpu_builds_the_copies_where_they_are_few():
    """Measured on an H200: 3 ms against 10 for 26 groups of 40, 8.6 for 410 of them; 24 against 10 for 137 of 120."""
    for groups, expected in ((32, copied), (1024, folded)):
        content = torch.empty(groups, 50, 32, device="meta")
        visibility = Visibility.of("others", torch.ones(groups, 50, dtype=torch.bool, device="meta"), 50)
        assert Stack(32).choose(Inputs(content, content, visibility, [None, None])) is expected


SHARP = list(product(["past", "others"], [1, 2, 3], [(None, 0), ("pre", 12), ("post", 12)], [1, 10, 30]))


@pytest.mark.parametrize(("context", "layers", "shape", "times"), SHARP)
def test_sharp_attention_is_as_accurate_as_the_literal_form(context, layers, shape, times):
    for seed in range(3):
        gaps = 4 * (seed == 2)
        content, masked, visibility, real = problem(seed, context, lengths=(12, 7, 1), width=16, gaps=gaps)
        stack = Stack(16, layers, 2, norm=shape[0], feed_forward=shape[1], gaps=gaps).double()
        with_gaps_at_work(stack)
        with torch.no_grad():
            for weight in stack.parameters():
                weight.mul_(times if weight.dim() > 1 else 1)
        exact = stack(content, masked, visibility, path=literal)[real].detach()
        scale = exact.abs().max()
        for dtype, floor in ((torch.float32, 1e-6), (torch.float64, 1e-12)):
            same = copy.deepcopy(stack).to(dtype)
            x, y = content.detach().to(dtype).requires_grad_(), masked.detach().to(dtype)
            fast = same(x, y, visibility)[real]
            plain = same(x, y, visibility, path=literal)[real]
            error, allowed = (fast - exact).abs().max(), (plain - exact).abs().max()
            assert error <= 10 * torch.maximum(allowed, floor * scale)
            (fast / scale).square().sum().backward()
            for gradient in (x.grad, *(p.grad for p in same.parameters())):
                assert gradient.isfinite().all()


WAYS = [("past", literal, 3), ("past", two_streams, 3), ("others", literal, 3), ("others", two_streams, 1)]
WAYS += [("others", copied, 3), ("others", folded, 2), ("others", formed, 2), ("others", formed, 4)]


@pytest.mark.parametrize(("context", "path", "layers"), WAYS)
@pytest.mark.parametrize(("times", "gaps"), [(1, 0), (10, 0), (1, 3)])
def test_a_target_never_sees_itself(context, path, layers, times, gaps):
    content, masked, visibility, real = problem(5, context, lags=2, gaps=gaps)
    stack = with_gaps_at_work(Stack(WIDTH, layers, 2, gaps=gaps).double())
    with torch.no_grad():
        stack.blocks[0].attention.project.weight.mul_(times)
    out = stack(content, masked, visibility, path=path)
    seen = torch.zeros(*real.shape, content.shape[1], dtype=torch.float64)
    for group, i in real.nonzero().tolist():
        (gradient,) = torch.autograd.grad(out[group, i].square().sum(), content, retain_graph=True)
        seen[group, i] = gradient[group].abs().amax(-1)
        assert gradient[torch.arange(len(real)) != group].abs().max() == 0
    own = torch.diagonal(seen[..., : real.shape[1]], dim1=1, dim2=2)[real]
    if path in (literal, copied, two_streams):
        assert own.max() == 0
    else:
        assert own.max() <= 1e-12 * seen.max()
    assert seen.max() > 1e-3
    if context == "past":
        later = torch.ones_like(seen[..., : real.shape[1]]).triu(1).bool()
        assert seen[..., : real.shape[1]][later].max() == 0


@pytest.mark.parametrize(("layers", "norm"), [(1, None), (2, None), (2, "pre"), (3, "post")])
@pytest.mark.parametrize("context", ["past", "others"])
class TestNothingElseMatters:
    def test_padding_changes_nothing(self, context, layers, norm):
        content, masked, visibility, real = problem(1, context, lengths=(5, 3))
        stack = Stack(WIDTH, layers, 2, norm=norm, feed_forward=12 if norm else 0).double()
        out = stack(content, masked, visibility)
        noise = torch.randn_like(content[:, :4]) * 100
        wider = Visibility.of(context, torch.cat((visibility.seen, torch.zeros(2, 4, dtype=torch.bool)), 1), 9)
        padded = stack(torch.cat((content, noise), 1), torch.cat((masked, noise), 1), wider)[:, :5]
        assert (padded - out)[real].abs().max() <= 1e-12

    def test_batch_mates_change_nothing(self, context, layers, norm):
        content, masked, visibility, _ = problem(2, context, lengths=(5, 3, 6))
        stack = Stack(WIDTH, layers, 2, norm=norm, feed_forward=12 if norm else 0).double()
        out = stack(content, masked, visibility)
        alone = Visibility.of(context, visibility.seen[1:2, :3], 3)
        assert (stack(content[1:2, :3], masked[1:2, :3], alone) - out[1:2, :3]).abs().max() <= 1e-12

    def test_the_memory_setting_changes_nothing(self, context, layers, norm):
        data = problem(3, context, lengths=(9, 3))
        stack = Stack(WIDTH, layers, 2, norm=norm, feed_forward=12 if norm else 0).double()
        whole, whole_grads = values_and_gradients(stack, *data)
        stack.memory = 1
        pieces, pieces_grads = values_and_gradients(stack, *data)
        assert (whole - pieces).abs().max() <= 1e-12
        for a, b in zip(whole_grads, pieces_grads, strict=True):
            assert (a - b).abs().max() <= 1e-12 * max(1.0, a.abs().max())

    def test_some_targets_are_rows_of_all_targets(self, context, layers, norm):
        content, masked, visibility, _ = problem(4, context, lengths=(6, 6), lags=2, gaps=3)
        stack = Stack(WIDTH, layers, 2, norm=norm, feed_forward=12 if norm else 0, gaps=3).double()
        with_gaps_at_work(stack)
        whole = stack(content, masked, visibility)
        slots = torch.tensor([[4, 0, 3], [5, 2, 1]])
        index = slots[..., None].expand(-1, -1, WIDTH)
        some = stack(content, masked.gather(1, index), visibility.at(slots))
        assert (some - whole.gather(1, index)).abs().max() <= 1e-12


@pytest.mark.parametrize(("layers", "norm"), [(1, None), (2, None), (2, "pre"), (3, "post")])
def test_permuting_a_group_permutes_the_result(layers, norm):
    content, masked, visibility, _ = problem(6, lengths=(7,))
    stack = Stack(WIDTH, layers, 2, norm=norm).double()
    order = torch.randperm(7)
    out = stack(content, masked, visibility)
    assert (stack(content[:, order], masked[:, order], visibility) - out[:, order]).abs().max() <= 1e-12


@pytest.mark.parametrize(("kind", "gaps"), [("softmax", 0), ("softmax", 3), ("linear", 0)])
@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("context", ["past", "others"])
def test_attention_weights_are_those_of_the_literal_form(context, layers, kind, gaps):
    content, masked, visibility, real = problem(8, context, lags=2, gaps=gaps)
    stack = with_gaps_at_work(Stack(WIDTH, layers, 2, kind=kind, gaps=gaps).double())
    expected, found = [], []
    out = stack(content, masked, visibility, path=literal, weights=expected)
    assert torch.allclose(stack(content, masked, visibility, weights=found), out, atol=1e-10)
    assert len(found) == len(expected) == layers
    for a, b in zip(expected, found, strict=True):
        a, b = a.transpose(1, 2)[real], b.transpose(1, 2)[real]  # (target, head, context)
        assert torch.allclose(a, b, atol=1e-10)
        if kind == "softmax":
            assert torch.allclose(a.sum(-1), torch.ones_like(a.sum(-1)))


def test_looking_at_nothing_gives_the_zero_vector():
    content, masked, visibility, _ = problem(10, lengths=(1,), own=False)
    stack = Stack(WIDTH, 1, 1, own=False, residual=False, bias=False).double()
    assert stack(content, masked, visibility).abs().max() == 0


@pytest.mark.parametrize("shape", [{"norm": "post", "feed_forward": 64, "layers": 4}, {"norm": "pre", "layers": 2}])
def test_peak_memory_stays_under_the_setting(shape):
    from efattn.bench.measure import peak_bytes

    width, heads, length, batch, setting = 32, 2, 96, 2, 2**23
    content, masked = torch.randn(2, batch, length, width)
    visibility = Visibility.of("others", torch.ones(batch, length, dtype=torch.bool), length)
    beside = 4 * batch * (12 * heads**2 * length**2 + 100 * length * width)
    peaks = []
    for memory in (setting, 2**40):
        stack = Stack(width, heads=heads, memory=memory, **shape)
        peaks.append(peak_bytes(lambda stack=stack: stack(content, masked, visibility).square().mean().backward()))
    assert peaks[0] <= setting + beside
    assert peaks[1] > setting + beside


@pytest.mark.parametrize("context", ["others", "past"])
@pytest.mark.parametrize(("layers", "gaps"), [(1, 0), (2, 0), (2, 5), (3, 5)])
def test_some_targets_and_rows_at_a_time_are_all_at_once(monkeypatch, context, layers, gaps):
    given = problem(3, context, lags=2, pairs=True, hidden=0.2, gaps=gaps)
    stack = Stack(WIDTH, layers, dropout=0.3, gaps=gaps).double()
    expected, expected_grads = values_and_gradients(stack, *given)
    monkeypatch.setattr(stacks, "LONG", 4 * 8 * 26 * 3)
    monkeypatch.setattr(rank_one, "BLOCK", 4 * 2 * 8 * 3)
    assert stack.targets_at_once(Inputs(*given[:3], [])) < 6
    out, grads = values_and_gradients(stack, *given)
    torch.testing.assert_close(out, expected, rtol=1e-10, atol=1e-10)
    for mine, theirs in zip(grads, expected_grads, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-10, atol=1e-10)
    with torch.no_grad():
        torch.manual_seed(7)
        plain = stack(*given[:3])[given[3]]
    torch.testing.assert_close(plain, expected, rtol=1e-10, atol=1e-10)
