"""Generated groups have the law of the model; what is given stays; the seed decides everything."""

import warnings
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
import torch
from shell import forked
from small import efa, ratings
from small_models import fitted

import efattn
from efattn import EfattnWarning, SimpleModel, families, inference, plots, simple
from efattn.data import Batch
from efattn.errors import DataError
from efattn.inference import drawing
from efattn.inference.cells import draw_values
from efattn.inference.convergence import convergence, split_r_hat
from efattn.inference.fitted import Part
from efattn.inference.lengths import drawn_lengths, length_counts
from efattn.models import Conditionals
from efattn.plots import style

quiet = pytest.mark.filterwarnings("ignore::efattn.EfattnWarning")


class Table:
    """Models of which everything is known."""

    @staticmethod
    def gaussian(groups=400, seed=0):
        covariance = np.array([[1.0, 0.7, -0.3], [0.7, 2.0, 0.0], [-0.3, 0.0, 0.5]])
        draws = np.random.default_rng(seed).normal(size=(groups, 3))
        draws = np.linalg.qr(draws - draws.mean(0))[0] * np.sqrt(groups - 1)  # so that it is the covariance
        draws = [1.0, 5.0, -2.0] + draws @ np.linalg.cholesky(covariance).T
        wide = pl.DataFrame(draws, schema=["a", "b", "c"]).with_row_index("day")
        return wide.unpivot(index="day", variable_name="item", value_name="y").sort("day"), covariance

    @staticmethod
    def chain(groups=300, seed=0):
        step, draw = np.array([[0.8, 0.1, 0.1], [0.1, 0.1, 0.8], [0.3, 0.6, 0.1]]), np.random.default_rng(seed)
        rows = []
        for group in range(groups):
            state = draw.integers(3)
            for at in range(draw.integers(4, 9)):
                rows.append({"user": group, "at": at, "item": "abc"[state]})
                state = draw.choice(3, p=step[state])
        return pl.DataFrame(rows), step


@pytest.fixture(scope="module")
def gaussian():
    table, covariance = Table.gaussian()
    model = SimpleModel(simple.GaussianConditional(), family="gaussian")
    return model.fit(table, group="day", item="item", value="y", validation=None), covariance


def wide(table):
    return table.pivot(on="item", index=table.columns[0], values="y").select("a", "b", "c").to_numpy()


def test_the_covariance_of_generated_groups_is_that_of_the_data(gaussian):
    model, covariance = gaussian
    drawn = wide(model.sample(400, seed=1, burn_in=10))
    np.testing.assert_allclose(np.cov(drawn.T), covariance, atol=0.35)
    np.testing.assert_allclose(drawn.mean(0), [1, 5, -2], atol=0.25)


def test_given_values_move_what_is_drawn_as_the_conditional_says(gaussian):
    model, covariance = gaussian
    given = pl.DataFrame({"day": [1, 1, 1], "item": ["a", "b", "c"], "y": [3.0, None, None]})
    drawn = wide(model.sample(300, given=given, burn_in=10))
    assert (drawn[:, 0] == 3.0).all()
    slope = covariance[1:, 0] / covariance[0, 0]
    np.testing.assert_allclose(drawn[:, 1:].mean(0), [5 + 2 * slope[0], -2 + 2 * slope[1]], atol=0.3)
    left = covariance[1:, 1:] - np.outer(slope, covariance[0, 1:])
    np.testing.assert_allclose(np.cov(drawn[:, 1:].T), left, atol=0.35)


def test_transitions_and_lengths_of_generated_chains_are_those_of_the_data():
    table, step = Table.chain()
    model = SimpleModel(simple.MarkovChain(), context="past").fit(table, group="user", item="item", order="at")
    drawn = model.sample(300, seed=2)
    found = np.zeros((3, 3))
    for _, one in drawn.group_by("user"):
        state = ["abc".index(x) for x in one.sort("at")["item"]]
        np.add.at(found, (state[:-1], state[1:]), 1)
    np.testing.assert_allclose(found / found.sum(1, keepdims=True), step, atol=0.08)
    lengths = drawn.group_by("user").len()["len"]
    assert set(lengths) <= set(range(4, 9))
    assert lengths.mean() == pytest.approx(table.group_by("user").len()["len"].mean(), abs=0.3)
    assert drawn["at"].to_list() == [
        k for n in drawn.group_by("user", maintain_order=True).len()["len"] for k in range(n)
    ]


# ---- laws of the engine


class Walk(Conditionals):
    """y_i ~ N(0.9 y_(i-1), 1), with nothing else to it."""

    def __init__(self):
        super().__init__(families.Gaussian(variance=1.0), "past")

    def raw_outputs(self, batch, slots):
        y = torch.where(batch.observed, batch.value, 0.0)[:, : batch.length]
        before = torch.cat((torch.zeros_like(y[:, :1]), y[:, :-1]), 1)
        return 0.9 * before.gather(1, slots[..., None])

    def start(self, batch):
        pass


def test_a_blank_before_given_values_is_drawn_given_them():
    """The middle of a random walk, whose law given both ends is known."""
    number, given = 4000, [1.0, np.nan, 3.0, np.nan]
    batch = Batch.of([{"value": given}] * number, torch.float64)
    blank = ~batch.observed[:, :4]
    drawn = drawing.values([Part(Walk(), 1.0)], batch, blank, torch.Generator().manual_seed(0), 20)
    y = drawn.cells[..., 0]
    assert (y[:, [0, 2]] == torch.tensor([1.0, 3.0], dtype=torch.float64)).all()
    assert float(y[:, 1].mean()) == pytest.approx((0.9 + 0.9 * 3) / (1 + 0.81), abs=0.06)
    assert float(y[:, 1].std()) == pytest.approx(1 / np.sqrt(1.81), abs=0.04)
    assert float(y[:, 3].mean()) == pytest.approx(2.7, abs=0.08)
    assert float(y[:, 3].std()) == pytest.approx(1.0, abs=0.05)


class Fixed(Conditionals):
    """The same f for every row."""

    def __init__(self, family, f):
        super().__init__(family, "others")
        self.f = torch.tensor(f)

    def raw_outputs(self, batch, slots):
        return self.f.expand(*slots.shape, -1).float()

    def start(self, batch):
        pass


def test_a_mixture_is_drawn_by_shares_and_told_apart_by_columns_that_are_there():
    family = families.Product((families.Gaussian(variance=0.01), families.Gaussian(variance=0.01)))
    parts = [Part(Fixed(family, [0.0, 0.0]), 0.3), Part(Fixed(family, [5.0, 5.0]), 0.7)]
    batch = Batch.of([{"value": [[np.nan, np.nan]]}] * 3000)
    draw = torch.Generator().manual_seed(0)
    nothing = torch.full((3000, 2), torch.nan, dtype=torch.float64)
    both = draw_values(parts, batch, 0, nothing, None, draw)
    assert float((both[:, 0] > 2.5).double().mean()) == pytest.approx(0.7, abs=0.03)
    assert ((both[:, 0] > 2.5) == (both[:, 1] > 2.5)).all()  # of one part, not column by column
    own = nothing.clone()
    own[:, 0] = 0.05
    told = draw_values(parts, batch, 0, own, None, draw)
    assert (told[:, 0] == 0.05).all()
    assert (told[:, 1] < 1).all()


def test_blank_columns_of_a_gaussian_vector_follow_those_that_are_there():
    y = torch.from_numpy(np.random.default_rng(0).multivariate_normal([0, 1], [[1, 0.8], [0.8, 1]], 5000))
    family = families.MultivariateGaussian(columns=2)
    part = Part(Fixed(families.Product((family,)), family.start(y).tolist()), 1.0)
    own = torch.full((4000, 2), torch.nan, dtype=torch.float64)
    own[:, 1] = 3.0
    batch = Batch.of([{"value": [[np.nan, np.nan]]}] * 4000)
    drawn = draw_values([part], batch, 0, own, None, torch.Generator().manual_seed(1))[:, 0]
    assert float(drawn.mean()) == pytest.approx(1.6, abs=0.06)
    assert float(drawn.std()) == pytest.approx(0.6, abs=0.04)


def test_lengths_are_drawn_from_the_histogram_given_what_is_there():
    counts = length_counts(np.array([2, 2, 2, 5, 7]))
    assert counts.tolist() == [[2, 3], [5, 1], [7, 1]]
    assert length_counts(np.array([3, 5]), counts).tolist() == [[2, 3], [3, 1], [5, 2], [7, 1]]
    random = np.random.default_rng(0)
    drawn = drawn_lengths(counts, np.zeros(4000, int), random)
    assert [np.mean(drawn == n) for n in (2, 5, 7)] == pytest.approx([0.6, 0.2, 0.2], abs=0.03)
    assert set(drawn_lengths(counts, np.full(50, 3), random)) == {5, 7}
    assert drawn_lengths(counts, np.array([9]), random).tolist() == [9]


def test_chains_that_have_not_mixed_are_told():
    random = np.random.default_rng(0)
    good = random.normal(size=(20, 40, 2))
    kind = np.zeros(20, int)
    assert split_r_hat(good, kind)[0].max() < 1.05
    apart = good + np.arange(20)[:, None, None]
    assert split_r_hat(apart, kind)[0].min() > 2
    assert split_r_hat(apart, np.arange(20))[0].max() < 1.1  # each its own law
    assert not convergence([("values", good, kind)]).important
    assert not convergence([("values", apart, kind)]).important  # slow, but where they were at first
    note = convergence([("values", apart + np.linspace(-5, 0, 40)[:, None], kind)])
    assert note.important
    assert "burn_in=156" in str(note)
    assert convergence([("values", good[:, :4], kind)]) is None


class Greedy(Conditionals):
    """Each value follows the sum of the others: no joint law has such conditionals."""

    def __init__(self):
        super().__init__(families.Gaussian(variance=1.0), "others")

    def raw_outputs(self, batch, slots):
        y = torch.where(batch.observed, batch.value, 0.0)[:, : batch.length]
        return y.sum(1, keepdim=True) - y.gather(1, slots[..., None])

    def start(self, batch):
        pass


def test_sweeps_that_run_away_are_given_up():
    batch = Batch.of([{"value": [np.nan] * 5}] * 6)
    drawn = drawing.values([Part(Greedy(), 1.0)], batch, ~batch.observed, torch.Generator().manual_seed(0), 50)
    assert drawn.ran_away
    assert float(drawn.cells.abs().max()) < 100


# ---- of fitted models


def holes(name, rows=16):
    model, table, roles = fitted(name)
    value = [roles["value"]] if isinstance(roles["value"], str) else roles["value"]
    some = pl.int_range(pl.len()) % 4 == 1
    return model, table.head(rows).with_columns(pl.when(~some).then(c).alias(c) for c in value), value


@quiet
@pytest.mark.parametrize("name", ["past", "places", "lags", "pieces"])
def test_given_rows_stay_and_the_seed_decides_the_rest(name):
    model, table, value = holes(name)
    one, same, other = (model.sample(given=table, seed=seed, burn_in=2) for seed in (1, 1, 2))
    assert one.equals(same)
    assert not one.equals(other)
    key = [c for c in table.columns if c not in value]
    kept = one.join(table.select(key), on=key, how="semi", nulls_equal=True)
    assert len(kept) == len(table)
    for c in value:
        there = table[c].is_not_null().to_numpy()
        assert kept[c].filter(there).equals(table[c].filter(there))
        assert kept[c].null_count() == 0
        assert one[c].null_count() == 0
    assert np.isfinite(model.log_likelihood(one)[:, -1].drop_nulls().to_numpy()).all()


@quiet
@pytest.mark.parametrize("name", ["past", "ordinal", "alone"])
def test_new_groups_are_tables_that_the_model_knows(name):
    model, table, roles = fitted(name)
    drawn = model.sample(3, burn_in=2)
    assert drawn[roles["group"]].unique().sort().to_list() == [1, 2, 3]
    assert set(drawn.columns) <= set(table.columns)
    assert drawn.null_count().sum_horizontal().item() == 0
    assert np.isfinite(model.score(drawn))
    if name == "ordinal":
        assert set(drawn["rating"]) <= set(range(1, 6))
        assert drawn["rating"].dtype == pl.Int64
    assert len(model.sample(2, length=5, burn_in=1)) == 10


def test_items_of_distinct_support_never_repeat():
    table = ratings()
    model = efa(support="distinct", context="past").fit(table, group="user", item="movie", order="at")
    drawn = model.sample(20, length=8)
    assert drawn.group_by("user").agg(pl.col("movie").n_unique())["movie"].to_list() == [8] * 20
    with pytest.raises(DataError, match="length=8 is the most"):
        model.sample(1, length=9)
    kept = model.sample(given=table.filter(pl.col("user") == "u0"), length=8, groups=2)
    assert kept["draw"].to_list() == [1] * 8 + [2] * 8
    assert kept.group_by("draw").agg(pl.col("movie").n_unique())["movie"].to_list() == [8, 8]


@quiet
def test_python_and_the_shell_draw_the_same(tmp_path):
    model, table, _ = holes("past")
    table.write_parquet(tmp_path / "t.parquet")
    model.save(tmp_path / "m.efattn")
    words = ("--given", "t.parquet", "--seed", 3, "--burn-in", 2, "--groups", 2)
    forked("sample", "m.efattn", *words, "-o", "o.parquet", cwd=tmp_path).good()
    assert pl.read_parquet(tmp_path / "o.parquet").equals(model.sample(2, given=table, seed=3, burn_in=2))
    answer = forked("sample", "m.efattn", "--groups", 2, "--length", 3, cwd=tmp_path).good()
    assert answer.out == model.sample(2, 3).write_csv()


def test_a_loaded_model_draws_the_same_and_an_older_one_asks_for_lengths(tmp_path):
    model = fitted("past")[0]
    model.save(tmp_path / "m.efattn")
    loaded = efattn.load(tmp_path / "m.efattn")
    assert loaded.sample(2).equals(model.sample(2))
    old = replace(model.fitted_, lengths=None)
    with pytest.raises(DataError, match="older version"):
        inference.sample(old, 2)
    assert len(inference.sample(old, 2, 3)) == 6


@pytest.mark.parametrize(
    ("name", "asked", "words"),
    [
        ("places", {}, "attributes, 'latitude', 'longitude', which it does not draw"),
        ("lags", {}, "has to follow some"),
        ("past", {"groups": 0}, "groups is a whole number >= 1"),
        ("past", {"seed": -1}, "seed is a whole number from 0"),
        ("past", {"given": {"user": [], "movie": [], "at": []}}, "no rows"),
    ],
)
def test_what_cannot_be_drawn_is_said(name, asked, words):
    with pytest.raises(DataError, match=words):
        fitted(name)[0].sample(**asked)


def test_an_item_that_is_to_be_drawn_comes_after_what_is_known():
    table = pl.DataFrame({"user": ["a", "a"], "movie": [None, "m1"], "at": [0, 1], "real": [None, 2.0]})
    with pytest.raises(DataError, match="come after all that is known"):
        fitted("past")[0].sample(given=table)


def test_rows_with_nothing_missing_come_back_with_a_word():
    model, table, _ = fitted("places")
    with pytest.warns(EfattnWarning, match="nothing to draw"):
        assert model.sample(given=table.head(5)).equals(table.head(5))


@quiet
def test_groups_of_a_fixed_set_of_items_have_each_item_once(gaussian):
    drawn = gaussian[0].sample(2)
    assert drawn["item"].to_list() == ["a", "b", "c"] * 2
    with pytest.raises(DataError, match="has no length of its own"):
        gaussian[0].sample(2, length=2)


@quiet
def test_pandas_in_pandas_out():
    model, table, _ = holes("past")
    drawn = model.sample(given=table.to_pandas(), burn_in=1)
    assert type(drawn).__module__.startswith("pandas")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert pl.from_pandas(drawn)["real"].equals(model.sample(given=table, burn_in=1)["real"])


@quiet
def test_rows_of_a_wide_table_are_drawn_as_its_columns_are():
    draw = np.random.default_rng(0)
    x = draw.normal(size=80)
    names = np.array(["low", "middle", "high"])[np.digitize(x + 0.3 * draw.normal(size=80), [-0.5, 0.5])]
    table = pl.DataFrame({"x": x, "n": draw.poisson(np.exp(x)), "level": names, "yes": x + draw.normal(size=80) > 0})
    model = efa().fit_wide(table)
    drawn = model.sample(4, burn_in=2)
    assert drawn.columns == table.columns
    assert drawn.schema == table.schema
    assert set(drawn["level"]) <= set(names)
    holes = table.head(6).with_columns(
        level=pl.when(pl.col("x") < 0).then("level"), x=pl.when(pl.col("x") > 0).then("x")
    )
    one, two = model.sample(2, given=holes, burn_in=2).partition_by("draw", include_key=False)
    for made in (one, two):
        assert made.null_count().sum_horizontal().item() == 0
        assert made["n"].equals(holes["n"])
        assert made["x"].filter(holes["x"].is_not_null()).equals(holes["x"].drop_nulls())
    assert not one.equals(two)


@quiet
@pytest.mark.parametrize(
    ("name", "titles"),
    [
        ("past", ["How long groups are", "Items", "One item directly after another", "Values of real"]),
        ("alone", ["How long groups are", "Values of real", "Values of count", "How alike rows of a group are"]),
    ],
)
def test_a_picture_compares_real_and_generated_groups(name, titles):
    model, table, _ = fitted(name)
    drawn = plots.generated(model, table, model.sample(3))
    assert [axes.get_title(loc="left") for axes in drawn] == titles
    assert style.as_png(drawn.figure, 40).startswith(b"\x89PNG")
