"""Laws of context="any": one pass of an order is what is asked one by one, and groups have a density."""

import itertools
import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from shell import QUICK as WORDS
from shell import forked
from small import efa, latent, ratings, weather
from small_training import STEPS, same, weights

import efattn
from efattn import DataError, simple
from efattn.data import Batch
from efattn.families import Bernoulli, Categorical, Gaussian, Product
from efattn.inference.joint import of_term
from efattn.models import Term, orders
from efattn.network import AttributeVectors, Embedding, Gaps, Head, ItemVectors, Stack, ValueMLP, perceptron
from efattn.network.conditionals import literal, two_streams

TABLE, WEATHER = ratings(users=12), weather(days=12)
BOTH = {"group": "user", "item": "movie", "value": "real"}
ANY = {"context": "any", "family": "gaussian"}
DAYS = {"group": "day", "item": "station", "value": "tmax", "time": "day"}
ITEMS = 7
HOME = Path(__file__).parent.parent


def value_term(family=None, *, gaps=False, neighbours=None, layers=3):
    torch.manual_seed(0)
    family = family or Product((Gaussian(),))
    parts = {"item": ItemVectors(ITEMS, 4), "attributes": AttributeVectors((2, 6, 4)), "lag": torch.nn.Embedding(2, 2)}
    embedding = Embedding(ValueMLP(1, 6, 4), **parts, mix=(8,), positions=6)
    stack = Stack(8, layers, 2, content="isolated", gaps=Gaps.size if gaps else 0, norm="pre", feed_forward=8)
    head = Head(perceptron(8, (8,), sum(not x for x in family.shared)), family.shared)
    how = {"context": "any", "neighbours": neighbours, "gaps": Gaps() if gaps else None}
    return with_noise(Term(embedding, stack, head, family, **how))


def item_term(support="all", layers=2):
    torch.manual_seed(0)
    family = Categorical(ITEMS)
    stack = Stack(8, layers, 2, content="isolated")
    head = Head(perceptron(8, (), ITEMS), family.shared)
    return with_noise(
        Term(Embedding(ItemVectors(ITEMS, 8), positions=6), stack, head, family, context="any", support=support)
    )


def with_noise(term):
    """Weights that start at zero, too, so that whatever is seen matters."""
    with torch.no_grad():
        for p in term.parameters():
            p.add_(0.3 * torch.randn_like(p))
    return term.double().eval()


def batch(values="real", seed=0):
    """Ragged groups with lags, a missing value, an unknown item and a row that is context only."""
    draw, groups = np.random.default_rng(seed), []
    for n, lagged in ((6, 2), (1, 0), (4, 1)):
        value = draw.normal(size=n + lagged) if values == "real" else draw.integers(0, 2, n + lagged).astype(float)
        groups.append(
            {
                "item": [*draw.permutation(ITEMS + 1)[:n], *draw.integers(0, ITEMS, lagged)],
                "value": value,
                "attributes": draw.uniform(0, 5, (n + lagged, 2)),
                "lag": [0] * n + [1] * lagged,
                "when": np.cumsum(draw.exponential(size=n + lagged)),
                "target": [True] * (n - 1) + [n == 1],
            }
        )
    groups[0]["value"][1] = np.nan
    return Batch.of(groups, torch.float64)


def up_to(one, group, rank, of_items):
    """What is known when the row at this rank is asked for: of the others later in the order no item, or no value."""
    later = one.rank[group] > rank
    some = one.select(torch.tensor([group])).replace(rank=None)
    later = torch.cat((later, torch.zeros(some.exists.shape[1] - some.length, dtype=torch.bool)))
    if of_items:
        return some.replace(exists=some.exists & ~later)
    return some.replace(observed=some.observed & ~later[None, :, None], value=some.value * ~later[None, :, None])


TERMS = {
    "values": value_term,
    "times between": lambda: value_term(gaps=True),
    "nearest places": lambda: value_term(neighbours=2),
    "one layer": lambda: value_term(layers=1),
    "items": item_term,
    "distinct items": lambda: item_term("distinct"),
}


@pytest.mark.parametrize("name", TERMS)
@torch.no_grad()
def test_all_conditionals_of_an_order_are_what_is_asked_one_by_one(name):
    term, one = TERMS[name](), orders.stated(batch(), 0)
    together = term.log_prob(one)
    assert int(together.scored.sum()) > 6
    for group, column in together.scored.nonzero().tolist():
        alone = term.log_prob(up_to(one, group, one.rank[group, column], term.of_items))
        assert abs(alone.values[0, column] - together.values[group, column]) < 1e-11


@pytest.mark.parametrize("name", ["values", "times between", "items"])
def test_one_pass_equals_the_literal_form(name):
    term, one = TERMS[name](), orders.stated(batch(), 1)
    real = one.exists[:, : one.length]
    found = [term.raw_outputs(one, torch.arange(6).expand(3, 6), path=path)[real] for path in (two_streams, literal)]
    gradients = [torch.autograd.grad(x.sin().sum(), [*term.stack.parameters()], allow_unused=True) for x in found]
    assert (found[0] - found[1]).abs().max() < 1e-11
    for a, b in zip(*gradients, strict=True):
        assert (a is None and b is None) or (a - b).abs().max() < 1e-10


@pytest.mark.parametrize("name", ["values", "times between", "nearest places"])
def test_a_target_sees_neither_itself_nor_what_stands_later(name):
    term, one = TERMS[name](), orders.stated(batch(), 2)
    value = one.value.clone().requires_grad_()
    out, looked = term.outputs(one.replace(value=value)), 0
    for group, column in one.target.nonzero().tolist():
        (gradient,) = torch.autograd.grad(out[group, column].sin().sum(), value, retain_graph=True)
        hidden = one.rank[group] >= one.rank[group, column]
        assert (gradient[group, : one.length][hidden] == 0).all()
        assert (gradient[torch.arange(3) != group] == 0).all()
        looked += int((gradient[group] != 0).sum())
    assert looked > 10


@torch.no_grad()
def test_what_is_said_depends_on_the_set_that_stands_before_and_on_no_order():
    term, one = value_term(), batch()
    rank = torch.arange(6).expand(3, 6).clone()
    first = term.log_prob(one.replace(rank=rank)).values[:, 4:]
    rank[:, :4] = torch.tensor([2, 0, 3, 1])
    assert (term.log_prob(one.replace(rank=rank)).values[:, 4:] - first).abs().max() < 1e-12


@torch.no_grad()
def test_without_an_order_each_row_is_given_all_others():
    term, one = value_term(), batch()
    alone = term.log_prob(one).values
    for column in range(one.length):
        rank = torch.tensor([(i - column - 1) % 6 for i in range(6)])  # this one last
        last = term.log_prob(one.replace(rank=rank.expand(3, 6))).values[:, column]
        assert (alone[:, column] - last).abs().max() < 1e-12


@torch.no_grad()
def test_probabilities_of_all_values_of_a_group_add_up_to_one_in_every_order():
    term, one = value_term(Product((Bernoulli(),))), batch("yes or no")
    for number in range(3):
        total = 0.0
        for y in itertools.product((0.0, 1.0), repeat=4):
            value = one.value.clone()
            value[2, :4, 0] = torch.tensor(y)
            filled = one.replace(value=value, target=one.exists[:, : one.length])
            total += float(term.log_prob(orders.stated(filled, number)).values[2].sum().exp())
        assert abs(total - 1) < 1e-12


def test_orders_have_each_rank_once_and_context_before_targets_before_padding():
    one = batch()
    for ordered in (*orders.fixed([one]), orders.stated(one, 3)):
        assert (ordered.rank.sort(1).values == torch.arange(6)).all()
        kind = torch.where(one.exists[:, : one.length], one.target.long(), 2)
        sorted_kinds = kind.gather(1, ordered.rank.argsort(1))
        assert (sorted_kinds.diff() >= 0).all()
    some = one.select(torch.tensor([1, 2])).first(4)
    assert torch.equal(orders.stated(some, 3).rank[1], orders.stated(batch().first(4), 3).rank[2])


# ---- fits


@pytest.fixture(scope="module")
def model():
    return efa(**ANY).fit(TABLE, **BOTH)


@pytest.fixture(scope="module")
def days():
    return efa(**ANY, lags=1, terms="value").fit(WEATHER, **DAYS)


def chained(model, table, value, rank):
    """log p of one group, its rows asked one after the other by predict_distribution."""
    total, there = 0.0, np.zeros(len(table), bool)
    for row in np.argsort(rank):
        asked = table.with_columns(pl.when(pl.Series(there)).then(value).alias(value))
        total += float(model.predict_distribution(asked).log_score(table[value].to_numpy())[row])
        there[row] = True
    return total


def test_a_joint_density_is_what_rows_asked_one_after_the_other_add_up_to(model):
    told = model.joint_log_density(TABLE, orders=1)
    for group in ("u1", "u4"):
        table = TABLE.filter(user=group).sort("movie", "real")
        rank = np.random.default_rng([0, 0]).random(len(table))
        found = told.filter(user=group)["real_log_density"][0]
        assert found == pytest.approx(chained(model, table, "real", rank), rel=1e-5, abs=1e-5)


def test_the_density_of_a_group_is_that_of_the_mixture_over_orders(model):
    groups = model.schema_.encode(TABLE, sort=True)
    told = model.joint_log_density(TABLE, orders=5, seed=3)
    assert told["user"].to_list() == sorted(set(TABLE["user"]))
    total = np.zeros(len(told))
    for name in ("item", "real"):
        joint = of_term(model.fitted_, name, groups, len(TABLE), 5, 3)
        each = joint.by_order + joint.same
        mixture = torch.from_numpy(each).logsumexp(0).numpy() - np.log(5)
        assert np.allclose(told[f"{name}_log_density"], mixture)
        assert np.allclose(told[f"{name}_orders_mean"], each.mean(0))
        assert np.allclose(told[f"{name}_orders_sd"], each.std(0, ddof=1))
        assert (told[f"{name}_log_density"] >= told[f"{name}_orders_mean"] - 1e-9).all()
        total += mixture
    assert np.allclose(told["log_density"], total)
    shuffled = TABLE.sample(fraction=1, shuffle=True, seed=1)
    assert model.joint_log_density(shuffled, orders=5, seed=3).equals(told)


def test_probabilities_of_all_sets_of_two_items_add_up_to_one(model):
    movies = sorted(set(TABLE["movie"]))
    sets = [(f"g{k}", movie) for k, pair in enumerate(itertools.combinations(movies, 2)) for movie in pair]
    table = pl.DataFrame(sets, schema=["user", "movie"], orient="row").with_columns(real=pl.lit(None, pl.Float64))
    first = [np.random.default_rng([0, k]).random(2).argmin() for k in range(20)]
    seed = next(
        s
        for s in range(20)
        if np.random.default_rng([s, 0]).random(2).argmin() != np.random.default_rng([s, 1]).random(2).argmin()
    )
    assert 0 < sum(first) < 20
    told = model.joint_log_density(table, orders=2, seed=seed)
    assert np.exp(told["item_log_density"]).sum() == pytest.approx(1, abs=1e-5)


def test_rows_that_are_context_only_are_given():
    table = TABLE.with_columns(asked=pl.int_range(pl.len()).over("user") > 0)
    model = efa(**ANY, terms="value").fit(table, **BOTH, target="asked")
    one = table.filter(user="u4").sort("movie", "real")
    told = model.joint_log_density(one, orders=2, seed=1)
    assert told["real_targets"][0] == len(one) - 1
    rank = np.random.default_rng([1, 0]).random(len(one)) - ~one["asked"].to_numpy()
    of = of_term(model.fitted_, "real", model.schema_.encode(one, sort=True), len(one), 1, 1).by_order[0, 0]
    given = float(
        model.predict_distribution(one.with_columns(real=pl.lit(None, pl.Float64))).log_score(one["real"].to_numpy())[
            int(np.argmin(rank))
        ]
    )
    assert of + given == pytest.approx(chained(model, one, "real", rank), rel=1e-5, abs=1e-5)


def test_lags_are_given_too(days):
    day = WEATHER.filter(pl.col("day").is_in([3, 4]))
    found = days.joint_log_density(day, orders=1).filter(day=4)["tmax_log_density"][0]
    other = day.with_columns(tmax=pl.when(pl.col("day") == 3).then(pl.col("tmax") + 5).otherwise("tmax"))
    assert days.joint_log_density(other, orders=1).filter(day=4)["tmax_log_density"][0] != found
    today = day.filter(day=4).sort("station")
    total, rank = 0.0, np.random.default_rng([0, 0]).random(len(today))
    for place in np.argsort(rank):
        known = np.isin(day["station"], today["station"].to_numpy()[rank < rank[place]]) | (day["day"] == 3).to_numpy()
        asked = day.with_columns(pl.when(pl.Series(known)).then("tmax").alias("tmax"))
        row = int(np.flatnonzero((day["day"] == 4) & (day["station"] == today["station"][int(place)]))[0])
        total += float(days.predict_distribution(asked).log_score(day["tmax"].to_numpy())[row])
    assert found == pytest.approx(total, rel=1e-5)


def test_all_that_a_model_is_asked_works_in_any_order(model, tmp_path):
    holes = TABLE.with_columns(pl.when(pl.int_range(pl.len()) % 4 > 0).then("real").alias("real"))
    assert model.scores(TABLE)["kind"] == "leave-one-out log score"
    assert model.impute(holes)["real"].null_count() == 0
    assert len(model.impute(holes, draws=2)) == 2
    assert model.sample(groups=2, length=4, seed=1).equals(model.sample(groups=2, length=4, seed=1))
    assert len(model.recommend(TABLE, 2)) > 0
    assert model.attention(TABLE.filter(user="u4")).weights.ndim == 4
    assert "any part of its group, in any order" in model.summary()
    model.save(tmp_path / "m.efattn")
    again = efattn.load(tmp_path / "m.efattn")
    assert again.predict(TABLE).equals(model.predict(TABLE))
    assert again.joint_log_density(TABLE).equals(model.joint_log_density(TABLE))


def test_cells_of_wide_tables_and_of_groups_in_pieces_have_densities():
    wide = pl.DataFrame({"a": [1.0, 2.5, 3.0, None] * 5, "b": [2.0, 4.5, 6.1, 8.0] * 5, "c": [1, 0, 1, 0] * 5})
    told = efa(context="any").fit_wide(wide).joint_log_density(wide, orders=2)
    assert told.columns[:4] == ["a", "b", "c", "log_density"]
    assert told["log_density"].is_finite().all()
    pieces = efa(context="any", max_length=3, terms="item").fit(TABLE, group="user", item="movie")
    assert (
        pieces.joint_log_density(TABLE)["item_targets"].to_list()
        == TABLE.group_by("user").len().sort("user")["len"].to_list()
    )


def test_resumed_training_equals_uninterrupted_training(tmp_path):
    def interrupt(record):
        if record["epoch"] == 1:
            raise KeyboardInterrupt

    how = {**BOTH, "checkpoint": tmp_path}
    make = {"context": "any", "family": "gaussian", "training": STEPS, "terms": "value"}
    efa(**make).fit(TABLE, **how, callbacks=[interrupt])
    resumed, whole = efa(**make).fit(TABLE, **how, resume=True), efa(**make).fit(TABLE, **BOTH)
    assert same(weights(resumed), weights(whole))
    assert [x["validation"] for x in resumed.history_] == [x["validation"] for x in whole.history_]


def test_the_past_is_one_order_and_others_are_none():
    past = efa(context="past", family="gaussian").fit(TABLE, **BOTH, order="at")
    told = past.joint_log_density(TABLE)
    rows = past.log_likelihood(TABLE).group_by("user").agg(pl.col("real_log_likelihood").sum()).sort("user")
    assert np.allclose(told["real_log_density"], rows["real_log_likelihood"])
    assert (told["real_orders_sd"] == 0).all()
    with pytest.raises(DataError, match=r"no joint law.*context='any'"):
        efa(family="gaussian").fit(TABLE, **BOTH).joint_log_density(TABLE)


def test_what_cannot_be_is_said_with_the_remedy(model):
    with pytest.raises(DataError, match="companions=None"):
        efa(**ANY, companions=simple.ItemMean()).fit(TABLE, **BOTH)
    with pytest.raises(DataError, match="own_time='known'"):
        efa(context="any", own_time="hidden").fit(TABLE, **BOTH)
    with pytest.raises(DataError, match="context"):
        latent(context="any").fit(TABLE, **BOTH)
    with pytest.raises(DataError, match="orders is a whole number >= 1"):
        model.joint_log_density(TABLE, orders=0)
    told = efa(**ANY, companions="auto").fit(TABLE, **BOTH)
    assert "no companions" in [note.kind for note in told.notes_]
    assert not any(told.companions_.values())


def test_python_and_the_shell_say_the_same(tmp_path):
    TABLE.write_parquet(tmp_path / "t.parquet")
    roles = [
        "--group",
        "user",
        "--item",
        "movie",
        "--value",
        "real",
        "--family",
        "gaussian",
        "--context",
        "any",
        "-o",
        "m.efattn",
    ]
    forked("fit", "t.parquet", *roles, *WORDS, "-o", "m.efattn", cwd=tmp_path).good()
    forked("joint", "m.efattn", "t.parquet", "--orders", 3, "--seed", 2, "-o", "out.parquet", cwd=tmp_path).good()
    mine = efattn.load(tmp_path / "m.efattn").joint_log_density(TABLE, orders=3, seed=2)
    assert pl.read_parquet(tmp_path / "out.parquet").equals(mine)


def test_what_the_page_tells_is_what_was_measured():
    from efattn.bench import orders as bench
    from efattn.experiments import any_order

    page = (HOME / "docs/any-order.md").read_text()
    assert any_order.table(json.loads((HOME / "results/any_order.json").read_text())["records"]) in page
    assert bench.table(json.loads((HOME / "benchmarks/results/orders.json").read_text())["records"]) in page
    found = bench.record(2, 5, 1)
    assert found["difference"] < 1e-4


def test_the_experiment_asks_the_same_of_items_and_values():
    from efattn.experiments import any_order

    for model, value in ((efa(**ANY, terms="value"), "real"), (efa(context="any", terms="item"), None)):
        model.fit(TABLE, **({} if value is None else {"value": value}), group="user", item="movie")
        if value is None:
            assert any_order.items_asked(model, TABLE, "user", 0.0) == pytest.approx(model.score(TABLE))
            assert any_order.items_asked(model, TABLE, "user", 0.7) < 0
        else:
            score, error = any_order.values_asked(model, TABLE, value, 0.0)
            assert score == pytest.approx(model.score(TABLE))
            assert error > 0
