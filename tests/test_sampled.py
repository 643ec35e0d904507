"""Laws of items drawn to stand for all others: right on average, exact where all are drawn, and only in training."""

import polars as pl
import pytest
import torch

from efattn import EFA, Training
from efattn.data import Batch
from efattn.families import Categorical
from efattn.models import Term
from efattn.network import Candidates, Embedding, Head, ItemVectors, Logits, Stack, perceptron, sampled
from efattn.training.optimiser import Adam, clip
from efattn.training_options import DRAWN, EXACT, SLOW_DRAWN, SLOW_EXACT

ITEMS, WIDTH, ROWS = 40, 6, 12


def counts(items=ITEMS):
    return torch.arange(items) ** 2


def problem(seed=0):
    """Logits of some rows with items ruled out, and their targets."""
    torch.manual_seed(seed)
    rows, bias = torch.randn(ROWS, WIDTH).double().requires_grad_(), torch.randn(ITEMS).double().requires_grad_()
    vectors = (torch.randn(ITEMS, WIDTH).double() / 2).requires_grad_()
    return Logits(rows, vectors, bias), torch.randint(ITEMS, (ROWS,))


def loss_and_gradients(logits, target, drawn=None):
    found = (logits.log_prob(target) if drawn is None else sampled.log_prob(logits, target, drawn)).mean()
    grads = torch.autograd.grad(found, logits[:3])
    return [found.detach(), *(g.to_dense() if g.is_sparse else g for g in grads)]


def term(support="distinct", context="past"):
    torch.manual_seed(1)
    family = Categorical(ITEMS)
    head = Head(perceptron(WIDTH, (), ITEMS), family.shared)
    stack = Stack(WIDTH, 2, 2)
    return Term(Embedding(ItemVectors(ITEMS, WIDTH)), stack, head, family, context=context, support=support).double()


def batch(groups=5, length=6):
    item = torch.stack([torch.randperm(ITEMS)[:length] for _ in range(groups)])
    there = torch.arange(length) < torch.randint(2, length + 1, (groups, 1))
    return Batch(length, there, there, item)


def gradients(model, data):
    model.zero_grad(set_to_none=True)
    loss = model.log_prob(data).mean()
    loss.backward()
    dense = [p.grad.to_dense() if p.grad.is_sparse else p.grad for p in model.parameters()]
    return loss.detach(), dense, [p.grad.is_sparse for p in model.parameters()]


@pytest.mark.parametrize("context", ["past", "others"])
@pytest.mark.parametrize("support", ["all", "distinct"])
def test_with_all_items_drawn_it_is_the_exact_loss(context, support):
    model, data = term(support, context), batch()
    exact, expected, _ = gradients(model, data)
    model.draw_candidates(Candidates(counts(), ITEMS))
    loss, found, sparse = gradients(model, data)
    assert abs(loss - exact) < 1e-12
    assert any(sparse)
    for a, b in zip(expected, found, strict=True):
        assert (a - b).abs().max() < 1e-10


def test_held_out_groups_are_scored_exactly():
    model, data = term().eval(), batch()
    exact = model.log_prob(data).values
    model.draw_candidates(Candidates(counts(), 4))
    assert torch.equal(model.log_prob(data).values, exact)
    model.train()
    assert not torch.equal(model.log_prob(data).values, exact)
    model.draw_candidates(None)
    assert torch.equal(model.log_prob(data).values, exact)


def test_each_item_is_drawn_as_often_as_it_is_said_to_be():
    torch.manual_seed(0)
    candidates, times = Candidates(counts(), 15), 4000
    assert abs(float(candidates.probability.sum()) - 15) < 1e-9
    assert candidates.probability.max() <= 1
    assert candidates.probability.min() >= 0.3 * 15 / ITEMS
    seen = torch.zeros(ITEMS)
    for _ in range(times):
        drawn = candidates.draw()
        assert len(drawn.items) == 15
        seen[drawn.items] += 1
    assert (seen / times - candidates.probability).abs().max() < 0.03


def test_the_sum_over_all_items_is_right_on_average():
    torch.manual_seed(0)
    (logits, target), candidates, times = problem(), Candidates(counts(), 15), 600
    f = logits.formed().detach()
    mine = f.gather(1, target[:, None])[:, 0]
    with torch.no_grad():
        total = torch.stack([(mine - sampled.log_prob(logits, target, candidates.draw())).exp() for _ in range(times)])
    assert ((total.mean(0) - f.exp().sum(1)).abs() < 5 * total.std(0) / times**0.5).all()


def test_gradients_are_nearly_right_on_average_and_the_more_so_the_more_are_drawn():
    torch.manual_seed(0)
    logits, target = problem()
    _, *exact = loss_and_gradients(logits, target)
    away = []
    for number in (8, 30):
        candidates, total = Candidates(counts(), number), [torch.zeros_like(x) for x in exact]
        for _ in range(200):
            for mean, one in zip(total, loss_and_gradients(logits, target, candidates.draw())[1:], strict=True):
                mean += one / 200
        away.append(max(float((a - b).norm() / a.norm()) for a, b in zip(exact, total, strict=True)))
    assert away[1] < 0.06
    assert away[1] < away[0] < 0.5


def test_what_is_ruled_out_counts_for_nothing():
    model, data = term("distinct", "others"), batch()
    model.draw_candidates(Candidates(counts(), ITEMS - 1))
    there = data.item[0][data.exists[0]]
    with torch.no_grad():
        model.head.bias[there[1:]] += 100
    assert model.log_prob(data).values[0, 0] > -20


def test_rows_that_are_all_touched_take_the_steps_of_adam():
    torch.manual_seed(0)
    start, one = torch.randn(7, 3), torch.nn.Parameter(torch.empty(7, 3))
    other = torch.nn.Parameter(start.clone())
    one.data.copy_(start)
    optimisers = [Adam([one], 0.01, 0.1), Adam([other], 0.01, 0.1)]
    for _ in range(5):
        g = torch.randn(7, 3) * 3
        one.grad, other.grad = g.clone(), g.to_sparse(1)
        for p, optimiser in zip((one, other), optimisers, strict=True):
            clip([p], 1.0)
            optimiser.step()
    assert (one - other).abs().max() < 1e-6


def test_rows_that_nobody_looked_up_stay():
    p = torch.nn.Parameter(torch.ones(5, 2))
    optimiser = Adam([p], 0.1, 0.1)
    for _ in range(2):
        p.grad = None
        torch.nn.functional.embedding(torch.tensor([1, 3, 3]), p, sparse=True).sum().backward()
        optimiser.step()
    moved = (p != 1).any(1)
    assert moved.tolist() == [False, True, False, True, False]
    assert optimiser.moments[0].steps.tolist() == [0, 2, 0, 2, 0]
    before = p.detach().clone()
    optimiser.step(torch.ones(()))  # stopped: nothing changes
    assert torch.equal(p, before)
    assert optimiser.moments[0].steps.tolist() == [0, 2, 0, 2, 0]


def test_few_items_are_all_scored_unless_asked_otherwise():
    assert Training().candidates_for(EXACT) is None
    assert Training().candidates_for(EXACT + 1) == DRAWN
    assert Training().candidates_for(SLOW_EXACT, cpu=True) is None
    assert Training().candidates_for(SLOW_EXACT + 1, cpu=True) == SLOW_DRAWN
    assert Training().candidates_for(EXACT + 1, cpu=True) == DRAWN
    assert Training(candidates=None).candidates_for(SLOW_EXACT + 1, cpu=True) is None
    assert Training(candidates=None).candidates_for(10**7) is None
    assert Training(candidates=100).candidates_for(1000) == 100
    assert Training(candidates=100).candidates_for(100) is None


def test_a_fit_with_candidates_learns_what_comes_next():
    first = torch.randint(30, (120, 1), generator=torch.Generator().manual_seed(0))
    item = (first + torch.arange(6)) % 30  # each item is followed by the next
    user = torch.arange(120).repeat_interleave(6)
    table = pl.DataFrame({"user": user.tolist(), "item": item.flatten().tolist(), "at": list(range(720))})
    training = Training(epochs=12, patience=None, tokens=256, rate=0.02, candidates=10)
    model = EFA(context="past", width=16, dropout=0, companions=None, refit=False, gaps=False, training=training)
    model.fit(table, group="user", item="item", order="at", validation=0.2, progress=False)
    assert model.score(table) > -2 > torch.tensor(1 / 30).log() + 1
    assert model.members_[0]["item"].candidates is None
    assert "10 drawn for each step" in next(note.text for note in model.notes_ if note.kind == "candidates")
