"""The multinomial logit of items: its features, who sees whom, its best answer, and as a model of its own."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
import torch
from small import efa

from efattn import DataError, SimpleModel, load, simple
from efattn.data import Batch, Roles, Schema
from efattn.estimators import companions
from efattn.families import Categorical
from efattn.simple import Setting
from efattn.simple.item_logit import COUNTS, Rows

ITEMS = 6
SETTING = Setting(Categorical(ITEMS), ITEMS)
CASES = {
    "baskets": {},
    "distinct": {"support": "distinct"},
    "ordered": {"ordered": True},
    "attributes": {"ordered": True, "attributes": 3, "own_attributes": (True, False, True)},
}
EVERY = pytest.mark.parametrize("case", CASES)
BOTH = pytest.mark.parametrize("context", ["others", "past"])


def drawn(case, context):
    """A model with random weights, and ragged groups with unknown items, the second one padded."""
    torch.manual_seed(0)
    model = simple.ItemLogit().build(replace(SETTING, context=context, **CASES[case]))
    for name in ("bias", "slope", "centre"):
        model.get_buffer(name).normal_()
    rng = np.random.default_rng(0)
    groups = []
    for n in (6, 3, 1):
        item = rng.permutation(ITEMS)[:n].tolist() if case == "distinct" else rng.integers(0, ITEMS, n).tolist()
        item[-1] = ITEMS  # unknown
        groups.append({"item": item, "attributes": rng.normal(size=(n, 3))})
    return model, Batch.of(groups, torch.float64), groups


def literal(model, group, i):
    """f of row i of one group, by the definition."""
    item, n = group["item"], len(group["item"])
    context = [j for j in range(n) if (j < i if model.context == "past" else j != i)]
    z = [float(any(item[j] == x for j in context)) for x in range(ITEMS)]
    if model.repeats:
        z += [sum(item[j] == x for j in context) / (len(context) + 1) for x in range(ITEMS)]
    if model.ordered:
        z += [float(i > 0 and item[i - 1] == x) for x in range(ITEMS)]
        z += [] if model.context == "past" else [float(i + 1 < n and item[i + 1] == x) for x in range(ITEMS)]
    classes = [k if k < 4 else 4 + int(np.log2(k / 4)) for k in (len(context),)]
    z += [float(classes[0] == k) for k in range(COUNTS)]
    x = group["attributes"][i, list(model.shown)] if model.shown else []
    z += ((x - model.get_buffer("centre").numpy()) / model.get_buffer("spread").numpy()).tolist() if model.shown else []
    return model.get_buffer("bias") + torch.tensor(z, dtype=torch.float64) @ model.get_buffer("slope")


@EVERY
@BOTH
def test_the_logits_are_those_of_the_definition(case, context):
    model, batch, groups = drawn(case, context)
    slots = torch.arange(batch.length).expand(len(groups), -1)
    f = model.raw_outputs(batch, slots)
    for g, group in enumerate(groups):
        for i in range(len(group["item"])):
            torch.testing.assert_close(f[g, i], literal(model, group, i))


@EVERY
@BOTH
def test_a_target_never_sees_itself_nor_in_the_past_what_comes_later(case, context):
    model, batch, _ = drawn(case, context)
    before = model.described(batch)
    for i in range(batch.length):
        item = batch.item.clone()
        item[:, i] = (item[:, i] + 1) % (ITEMS + 1)
        after = model.described(replace(batch, item=item))
        assert torch.equal(before[:, i], after[:, i])
        if context == "past":
            assert torch.equal(before[:, : i + 1], after[:, : i + 1])


def sequences(users=120, seed=0):
    """The next item is mostly the one after the last; what was there twice comes again."""
    draw = np.random.default_rng(seed)
    rows = []
    for user in range(users):
        last = int(draw.integers(ITEMS))
        for at in range(int(draw.integers(3, 9))):
            last = (last + 1) % ITEMS if draw.random() < 0.6 else int(draw.integers(ITEMS))
            rows.append({"user": user, "at": at, "item": f"i{last}"})
    return pl.DataFrame(rows)


ROLES = {"group": "user", "item": "item", "order": "at"}


def test_it_chooses_its_penalty_and_is_kept_in_a_file(tmp_path):
    train, test = sequences(), sequences(seed=1)
    model = SimpleModel(simple.ItemLogit(), context="past").fit(train, **ROLES, progress=False)
    popular = SimpleModel(simple.Popularity(), context="past").fit(train, **ROLES, progress=False)
    assert model.score(test) > popular.score(test) + 0.3
    (penalty,) = model.model_["item"].chosen_options().values()
    assert penalty in simple.item_logit.PENALTIES
    model.save(tmp_path / "m.efattn")
    assert load(tmp_path / "m.efattn").score(test) == model.score(test)


def test_it_is_fitted_to_its_best():
    groups = Schema.fit_encode(sequences(), Roles("user", "item", order="at"))[1]
    setting = replace(SETTING, ordered=True, context="past")
    model = simple.ItemLogit(penalty=3.0).build(setting)
    model.fit(groups)
    rows: Rows = model._rows(groups)
    c = torch.cat([model.get_buffer("bias")[None], model.get_buffer("slope")]).requires_grad_()
    popular = (torch.bincount(rows.item, minlength=ITEMS) + 0.5).double().log()
    popular = popular - popular.logsumexp(0)
    drawn_to = ((c[0] - popular) ** 2).sum() / 2 + 3.0 / 2 * (c[1:] ** 2).sum()
    (gradient,) = torch.autograd.grad(drawn_to - model._log_prob(c, rows).sum(), c)
    assert gradient.abs().max() < 0.02


def test_many_items_are_refused_and_not_offered(monkeypatch):
    with pytest.raises(DataError, match="AdditiveLogit takes more"):
        simple.ItemLogit().build(Setting(Categorical(300), 300))
    asked = []
    efa(context="past").fit(sequences(40), **ROLES, progress=False, planned=asked.append)
    assert "ItemLogit" in [type(one).__name__ for one in companions._offers(asked[0], "past")]
    monkeypatch.setattr(companions, "CATEGORIES", 3)
    assert "ItemLogit" not in [type(one).__name__ for one in companions._offers(asked[0], "past")]
