"""Item vectors that are tied, and how sure of themselves networks of them are."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch

import efattn
from efattn import EFA, Training
from efattn.data import Table
from efattn.network import Head, ItemVectors, Tied
from efattn.training import held_out

ITEMS, WIDTH = 7, 4


def table(users: int = 60, seed: int = 0) -> pl.DataFrame:
    """Items at random: a network that learns users by heart is soon too sure of itself."""
    draw = np.random.default_rng(seed)
    rows = [(u, int(i), s) for u in range(users) for s, i in enumerate(draw.permutation(20)[:6])]
    return pl.DataFrame(rows, schema=["user", "item", "step"], orient="row")


def fitted(**options: object) -> EFA:
    quick = Training(epochs=12, rate=0.03, device="cpu", patience=None)
    model = EFA(
        context="past", terms="item", tied=True, width=8, dropout=0.0, companions=None, training=quick, **options
    )
    return model.fit(table(), group="user", item="item", order="step", validation=0.3, progress=False)


def head() -> Head:
    torch.manual_seed(0)
    made = Head(Tied(ItemVectors(ITEMS, WIDTH).double()), [False] * ITEMS, calibrated=True).double()
    made.start(torch.randn(ITEMS).double(), silent=False)
    return made.double()


def test_a_tied_head_has_no_vectors_of_its_own():
    assert set(head().state_dict()) == {"bias", "marginal", "sharpness"}


def test_sharpness_draws_to_the_marginal_fit_alike_in_both_forms():
    made, h = head().eval(), torch.randn(5, WIDTH).double()
    plain = made(h)
    made.sharpness.fill_(0.4)
    torch.testing.assert_close(made(h), 0.4 * plain + 0.6 * made.marginal)
    torch.testing.assert_close(made.logits(h).formed(), made(h))
    made.sharpness.fill_(0.0)
    torch.testing.assert_close(made(h), made.marginal.expand(5, -1))


def test_training_does_not_see_it():
    made, h = head().train(), torch.randn(5, WIDTH).double()
    plain = made(h)
    made.sharpness.fill_(0.4)
    torch.testing.assert_close(made(h), plain)
    torch.testing.assert_close(made.logits(h).formed(), plain)


def test_a_network_is_as_sure_of_itself_as_held_out_groups_ask_for(tmp_path: Path):
    model = fitted(refit=False)
    term = model.fitted_.members[0]["item"]
    chosen = float(term.sharpness)
    assert chosen < 1, "what is drawn at random leaves nothing to be sure of"
    model.save(tmp_path / "m.efattn")
    loaded = efattn.load(tmp_path / "m.efattn")
    assert loaded.score(table()) == model.score(table())
    sure = model.score(table(seed=1))
    term.sharpness.fill_(1.0)
    assert model.score(table(seed=1)) < sure, "new users are like those held out"


def test_a_second_fit_keeps_it():
    model = fitted(refit=True)
    first, second = model.first_fits_[0].members[0]["item"], model.fitted_.members[0]["item"]
    assert first is not second
    torch.testing.assert_close(first.sharpness, second.sharpness)


@pytest.mark.parametrize(("items", "rows", "tied"), [(12_000, 200_000, True), (1_700, 100_000, False), (50, 60, False)])
def test_vectors_are_tied_where_each_item_is_seen_seldom(items: int, rows: int, tied: bool):
    from efattn.estimators import sizing

    assert sizing.chosen(EFA(), "item", rows, items).tied == tied
    assert sizing.chosen(EFA(tied=not tied), "item", rows, items).tied != tied
    assert not sizing.chosen(EFA(tied=True), "value", rows, items).tied


def test_of_many_held_out_groups_some_say_how_sure_and_all_say_how_good(monkeypatch):
    model = fitted(refit=False)
    term = model.fitted_.members[0]["item"]
    groups = model.fitted_.schema.encode(Table.read(table(seed=1)))
    monkeypatch.setattr(held_out, "SMALL", groups.count // 3)
    few = held_out.HeldOut(groups, term, 40, torch.device("cpu"))
    looked = list[int]()
    monkeypatch.setattr(
        held_out, "log_prob_sums", lambda term, batches, device: (looked.append(len(list(batches))) or -1.0, 1.0)
    )
    few.score()
    assert looked[-1] > 2 * looked[0] > 0
    assert set(looked[:-1]) == {looked[0]}
