"""A pool of networks and companions: products of their probabilities, with powers that held-out groups like best."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest
import torch

from efattn import EFA, Training, load, split
from efattn.data import Table
from efattn.errors import DataError
from efattn.estimators import file_checks, pooling
from efattn.experiments import measuring
from efattn.inference.pool import Pool
from efattn.models import Model
from efattn.plots.items import mixture_shares
from efattn.simple import MarkovChain, Popularity

ITEMS = 24
ROLES = {"group": "user", "item": "product", "order": "at"}


def events(users: int = 90) -> pl.DataFrame:
    """Items of one third of the catalogue for each user, popular ones more often."""
    draw, rows = np.random.default_rng(0), []
    for user in range(users):
        mine = np.arange(user % 3, ITEMS, 3)
        liking = 1 / (1 + np.arange(len(mine)))
        kept = draw.choice(mine, 5, replace=False, p=liking / liking.sum())
        rows += [(user, at, f"p{x:02}") for at, x in enumerate(kept)]
    return pl.DataFrame(rows, ["user", "at", "product"], orient="row")


def fitted(**options) -> EFA:
    train, validation, _ = split(events(), group="user", order="at")
    model = EFA(context="past", terms="item", width=8, layers=1, training=Training(epochs=6, rate=0.01), **options)
    return model.fit(train, **ROLES, target="target", validation=validation, progress=False)


@pytest.fixture(scope="module")
def model() -> EFA:
    found = fitted(companions=[MarkovChain(), MarkovChain(last=2, followers=5), Popularity()])
    fit = found.fitted_
    powers = [0.5, 0.3, -0.2]
    several = zip(fit.companions.get("item", ()), powers, strict=False)
    beside = [one._replace(power=power, share=0.1 if power < 0 else 0.0) for one, power in several]
    found.fitted_ = replace(fit, powers={"item": 0.6}, companions={"item": tuple(beside)})
    assert beside
    return found


@pytest.fixture(scope="module")
def history() -> pl.DataFrame:
    return pl.DataFrame({"user": [7] * 3, "at": [0, 1, 2], "product": ["p00", "p06", "p03"]})


def likely(model: EFA, rows: pl.DataFrame) -> np.ndarray:
    return model.log_likelihood(rows)["item_log_likelihood"].to_numpy()


def literal(model: EFA, rows: pl.DataFrame) -> np.ndarray:
    """log p of each row's item, by the definition."""
    fit = model.fitted_
    groups = fit.schema.encode(Table.read(rows))
    (batch,) = groups.batches(1000, context="past")
    beside = fit.companions["item"]
    parts = [(model.model_["item"], fit.powers["item"]), *((one.model, one.power) for one in beside)]
    with torch.no_grad():
        pool = sum(power * part.outputs(batch).double().log_softmax(-1).clamp_min(-30) for part, power in parts)
        pool = pool.masked_fill(parts[0][0].outputs(batch).isneginf(), -torch.inf).softmax(-1)
        p = pool * (1 - sum(one.share for one in beside))
        p = p + sum(one.share * one.model.outputs(batch).double().softmax(-1) for one in beside)
    return p.gather(-1, batch.item[..., None])[0, :, 0].log().numpy()


def test_a_pool_is_the_product_of_its_parts_made_whole(model, history):
    assert likely(model, history) == pytest.approx(literal(model, history), rel=1e-6)


def test_items_of_a_pool_have_probabilities_that_sum_to_one(model, history):
    assert model.recommend(history, k=ITEMS)["probability"].sum() == pytest.approx(1, abs=1e-6)
    first = model.recommend(history, k=3)
    following = model.follow(history).recommend(k=3)
    assert first["product"].to_list() == following["product"].to_list()
    assert first["probability"].to_numpy() == pytest.approx(following["probability"].to_numpy(), rel=1e-5)


def test_what_is_recommended_is_what_is_scored(model, history):
    listed = model.recommend(history, k=1)
    name, p = listed["product"][0], listed["probability"][0]
    longer = pl.concat([history, pl.DataFrame({"user": [7], "at": [3], "product": [name]})])
    assert likely(model, longer)[-1] == pytest.approx(np.log(p), rel=1e-5)


def test_a_file_keeps_the_pool(model, history, tmp_path):
    model.save(tmp_path / "m.efattn")
    again = load(tmp_path / "m.efattn")
    assert again.fitted_.powers == model.fitted_.powers
    assert likely(again, history) == pytest.approx(likely(model, history), rel=1e-6)
    for wrong in ({"value": 1.0}, {"item": float("nan")}, [1.0]):
        with pytest.raises(DataError):
            file_checks.powers(wrong, model.model_)


def test_the_network_alone_is_asked_as_ever(model, history):
    alone = replace(model.fitted_, companions={})
    (part,) = alone.parts("item")
    assert not isinstance(part.model, Pool)
    assert isinstance(model.fitted_.parts("item")[0].model, Pool)
    assert len(model.fitted_.parts("item", member=0)) == 1


def test_every_verb_takes_a_pool(model, history):
    assert len(model.sample(2, 4, seed=0)) == 8
    assert "attention" in model.explain(history, row=2).columns
    assert model.evaluate(history).mean("log_score") == pytest.approx(likely(model, history)[-1], rel=1e-5)
    assert "pool" in model.summary()
    assert len(model.similar("p00")) > 0


def test_a_pool_of_one_part_with_power_one_is_that_part(model, history):
    fit = model.fitted_
    beside = tuple(one._replace(power=0.0, share=0.0) for one in fit.companions["item"])
    same = replace(fit, powers={"item": 1.0}, companions={"item": beside})
    alone = replace(fit, companions={})
    batch = next(iter(fit.schema.encode(Table.read(history)).batches(1000, context="past")))
    mine, theirs = (one.parts("item")[0].log_prob(batch).values.detach() for one in (same, alone))
    assert mine.numpy() == pytest.approx(theirs.double().numpy(), rel=1e-5)


def known(rows: int = 400, items: int = 12, powers: tuple[float, ...] = (0.7, 0.5, -0.4)) -> pooling.Known:
    """Items drawn from a pool."""
    made = torch.Generator().manual_seed(1)
    logs = [torch.randn(rows, items, generator=made).mul(1.5).log_softmax(1) for _ in powers]
    p = sum(power * x for power, x in zip(powers, logs, strict=True)).softmax(1)
    item = torch.multinomial(p, 1, generator=made)[:, 0]
    ones = torch.ones(rows, dtype=torch.float64)
    return pooling.Known(logs, torch.zeros(rows, items, dtype=torch.bool), item, ones, torch.arange(rows))


def test_powers_are_where_no_small_change_is_better():
    data, near = known(), torch.tensor([0.4, 0.3, 0.3], dtype=torch.float64)
    best = pooling.powers(data, near)

    def target(a: torch.Tensor) -> float:
        return float(pooling.scored(data, a) @ data.weight) - pooling._penalty(a, near)

    for k in range(3):
        for change in (-0.02, 0.02):
            moved = best.clone()
            moved[k] += change
            assert target(moved) < target(best)


def test_powers_of_items_drawn_from_a_pool_are_found():
    best = pooling.powers(known(6000), torch.zeros(3, dtype=torch.float64))
    assert best.numpy() == pytest.approx([0.7, 0.5, -0.4], abs=0.05)


def decided(monkeypatch, data: pooling.Known, shares: tuple[float, ...]) -> pooling.Pooled | None:
    monkeypatch.setattr(pooling, "_known", lambda *unused: data)
    part, term = SimpleNamespace(items=1000, held=None), {"item": SimpleNamespace(of_items=True)}
    return pooling.chosen([part], "item", [[term]], [{"item": ["one", "two"]}], torch.tensor(shares).double())


def test_items_drawn_from_a_pool_are_pooled_and_those_of_a_mixture_are_not(monkeypatch):
    found = decided(monkeypatch, known(1000), (0.4, 0.3, 0.3))
    assert found is not None
    assert found.powers == pytest.approx([0.7, 0.5, -0.4], abs=0.15)
    assert 0 < found.beside(2) < 0.05
    assert found.mean(2, found.beside(2)) == pytest.approx(float(found.values.mean()), abs=0.02)
    data, made = known(1000), torch.Generator().manual_seed(2)
    p = sum(share * x.exp() for share, x in zip((0.4, 0.3, 0.3), data.logs, strict=True))
    mixed = data._replace(item=torch.multinomial(p, 1, generator=made)[:, 0])
    assert decided(monkeypatch, mixed, (0.4, 0.3, 0.3)) is None


def test_a_fit_keeps_what_its_pool_is_of(monkeypatch):
    @torch.no_grad()
    def forced(parts, name, networks, offers, shares):
        data = pooling._known(parts[0], [networks[0][0][name]], offers[0][name], 10**6)
        alone = data.of_items()
        return pooling.Pooled([0.5, 0.4, -0.1], alone[:, 0], data.weight, alone, 90)

    monkeypatch.setattr(pooling, "chosen", forced)
    found = fitted(companions=[MarkovChain(), Popularity()])
    assert found.fitted_.powers == {"item": 0.5}
    chain, popular = found.companions_["item"]
    assert (chain.power, chain.share, popular.power) == (0.4, 0.0, -0.1)
    assert popular.share > 0
    assert any("Powers in the pool" in str(note) for note in found.notes_)
    assert not fitted(companions=None).fitted_.powers


def test_a_member_of_a_model_that_is_no_term_of_items_has_no_pool():
    with pytest.raises(DataError, match="no term of items"):
        file_checks.powers({"rating": 0.5}, Model({}))


def test_a_record_names_the_pool_and_its_powers(model):
    assert measuring._powers(0.6, model.companions_["item"])["network"] == 0.6
    assert next(iter(mixture_shares(model.fitted_, "item"))) == "pool"


def test_a_row_that_is_scored_alone_is_scored_as_beside_the_others(model, history):
    batch = next(iter(model.fitted_.schema.encode(Table.read(history)).batches(1000, context="past")))
    only = batch.replace(target=torch.tensor([[False, False, True]]))
    for part in model.fitted_.parts("item"):
        for one in (part, *part.inside):
            alone, all_ = (one.log_prob(x).values.detach() for x in (only, batch))
            assert alone[0, 2].item() == pytest.approx(all_[0, 2].item(), rel=1e-6)
            assert not alone[0, :2].any()
    none = model.fitted_.companions["item"][0].model.log_prob(batch.replace(target=torch.zeros(1, 3, dtype=torch.bool)))
    assert not none.values.any()


def test_powers_of_some_targets_go_one_step_to_those_of_all(monkeypatch):
    found = list[torch.Tensor]()
    real = pooling.chosen

    def seen(parts, name, networks, offers, shares):
        all_ = pooling.powers(pooling._known(parts[0], [networks[0][0][name]], offers[0][name], 10**6), shares)
        few = all_ + torch.tensor([0.05, -0.05, 0.05])
        found.extend((all_, few, pooling._by_more(parts, name, networks, offers, shares, few)))
        return real(parts, name, networks, offers, shares)

    monkeypatch.setattr(pooling, "chosen", torch.no_grad()(seen))
    fitted(companions=[MarkovChain(), Popularity()])
    all_, few, after = found
    assert float((after - all_).norm()) < 0.2 * float((few - all_).norm())


def test_every_group_is_in_one_fifth_whole():
    group = torch.tensor([7, 7, 3, 9, 12, 12, 4, 30, 3, 2])
    parts = torch.stack(pooling.fifths(group))
    assert parts.sum(0).tolist() == [1] * len(group)
    for name in group.unique():
        assert len(parts[:, group == name].int().argmax(0).unique()) == 1
    assert parts.any(1).all()
