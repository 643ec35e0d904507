"""The paper's theorems and propositions as diagnostics: what they measure, and what must not move them."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from small import efa, latent, ratings, weather

from efattn import Training, families, theory
from efattn.errors import DataError
from efattn.models import Model, Term
from efattn.network import AttributeVectors, Embedding, Head, Identity, ReadOff, Stack
from efattn.theory import diversity as conditions
from efattn.theory import identifiability
from efattn.theory.excess_curve import small_efa
from efattn.theory.reading import Reading, read

QUICK = Training(epochs=4, tokens=256, rate=0.02, device="cpu")
BOTH = {"group": "user", "item": "movie", "value": "real"}
N, D, K = 200, 12, 5


@pytest.fixture
def draw():
    return np.random.default_rng(0)


@pytest.fixture(scope="module")
def fits():
    """Two seeds, fitted to the same table, and rows that neither saw."""
    table = ratings(users=60)
    models = [efa(seed=s, width=6, training=QUICK).fit(table, **BOTH, progress=False) for s in (0, 1)]
    return *models, ratings(1, users=30)


@pytest.fixture(scope="module")
def spatial():
    table = weather()
    model = efa(feed_forward=12, training=QUICK)
    return model.fit(table, group="day", attributes=["latitude", "longitude"], value="tmax", progress=False), table


class TestALinearMapIsFound:
    @pytest.mark.parametrize("intercept", [False, True])
    def test_between_two_parametrisations_of_one_softmax(self, draw, intercept):
        h, delta, a = draw.normal(size=(N, K)), draw.normal(size=(D, K)), draw.normal(size=(K, K))
        other_h, other_delta = h @ a.T, delta @ np.linalg.inv(a)
        assert np.allclose(h @ delta.T, other_h @ other_delta.T)  # the same logits
        for one, other in ((h, other_h), (delta, other_delta)):
            fit = theory.linear_map_fit(one, other, intercept)
            assert fit.r2 == pytest.approx(1, abs=1e-12)
            assert np.allclose(fit.correlations, 1)
            assert len(fit.correlations) == K

    def test_where_one_vector_is_added_to_every_item(self, draw):
        delta, shift = draw.normal(size=(D, K)), 3 * draw.normal(size=K)
        a = theory.linear_map_fit(delta + shift, delta)
        assert a.r2 == pytest.approx(1, abs=1e-12)
        assert theory.linear_map_fit(delta + shift, delta, intercept=False).r2 < 0.99

    def test_by_chance_only_between_what_has_nothing_to_do_with_each_other(self):
        draws = np.random.default_rng(1)
        found = [theory.linear_map_fit(*draws.normal(size=(2, N, K))).r2 for _ in range(50)]
        assert np.mean(found) == pytest.approx(K / (N - 1), abs=0.01)

    @pytest.mark.parametrize("intercept", [False, True])
    def test_whatever_the_basis(self, draw, intercept):
        a, b, any_map = draw.normal(size=(N, K)), draw.normal(size=(N, 3)), draw.normal(size=(3, 3))
        a[:, :2] += b[:, :2]
        turn = np.linalg.qr(draw.normal(size=(K, K)))[0]
        fit, other = (theory.linear_map_fit(*x, intercept) for x in ((a, b), (7 * a @ turn, b @ any_map)))
        assert fit.r2 == pytest.approx(other.r2, rel=1e-10)
        assert np.allclose(fit.correlations, other.correlations)
        stretched = theory.linear_map_fit(a @ draw.normal(size=(K, K)), b, intercept)
        assert np.allclose(fit.correlations, stretched.correlations)  # R^2 may change, these may not

    def test_as_least_squares_finds_it(self, draw):
        a, b = draw.normal(size=(N, K)), draw.normal(size=(N, 3))
        a[:, :3] += b
        x = np.column_stack([b, np.ones(N)])
        rest = a - x @ np.linalg.lstsq(x, a, rcond=None)[0]
        expected = 1 - (rest**2).sum() / ((a - a.mean(0)) ** 2).sum()
        assert theory.linear_map_fit(a, b).r2 == pytest.approx(expected, rel=1e-12)

    def test_nowhere_in_a_constant(self, draw):
        fit = theory.linear_map_fit(np.ones((N, 2)), draw.normal(size=(N, K)))
        assert math.isnan(fit.r2)
        assert math.isnan(fit.mean_correlation)

    def test_only_between_equally_many_rows(self):
        with pytest.raises(DataError, match="same rows; found 3 and 4"):
            theory.linear_map_fit(np.ones((3, 1)), np.ones((4, 1)))


class TestTwoFits:
    def test_are_compared_beside_controls(self, fits):
        found = theory.compare(*fits)
        columns = found.columns()
        assert list(zip(columns["term"], columns["quantity"], strict=True)) == [
            ("item", "context"),
            ("item", "items"),
            ("item", "natural parameter"),
            ("real", "natural parameter"),
            ("real", "features"),
        ]
        assert found["real", "features"].reason == "more features than values"
        assert all(0 <= x <= 1 for name in columns if name.startswith("r2") for x in columns[name])
        assert len(str(found).splitlines()) == 6
        value = found["real", "natural parameter"]
        assert value.fit.r2 > value.permuted.r2

    @pytest.mark.parametrize(("spans", "reason"), [((6, 6), "I and II hold"), ((6, 3), "I fails"), ((3, 6), "I fails")])
    def test_identify_embeddings_only_where_diversity_holds_in_both(self, fits, draw, monkeypatch, spans, reason):
        """Items that span the width of six, or do not."""
        model, _, table = fits
        real = read(model, "real", table)
        first, second = (item_reading(draw, real.row, span) for span in spans)
        given = iter([first, second, second])
        monkeypatch.setattr(identifiability, "read", lambda m, name, *_: next(given) if name == "item" else real)
        found = theory.compare(model, model, table)
        for quantity in ("context", "items"):
            assert found["item", quantity].identified == (reason == "I and II hold")
            assert found["item", quantity].reason == reason
        assert found["item", "natural parameter"].identified
        assert found["item", "natural parameter"].reason == "the likelihood knows it"

    @pytest.mark.parametrize(
        ("scale", "columns", "reason"), [(1, 1, "III holds"), (0, 1, "III fails"), (1, 2, "more features than values")]
    )
    def test_identify_features_that_are_diverse_and_not_too_many(self, fits, monkeypatch, scale, columns, reason):
        model, _, table = fits
        item, real = (read(model, name, table) for name in ("item", "real"))
        changed = replace(real, features=np.tile(scale * real.natural, columns))
        monkeypatch.setattr(identifiability, "read", lambda m, name, *_: item if name == "item" else changed)
        found = theory.compare(model, model, table)["real", "features"]
        assert (found.identified, found.reason) == (reason == "III holds", reason)

    def test_that_agree_no_better_than_with_an_untrained_network_say_so(self, fits, monkeypatch):
        model, other, table = fits
        assert theory.compare(model, model, table)["item", "context"].above_controls
        item, real = (read(model, name, table) for name in ("item", "real"))
        fresh = iter([item, read(other, "item", table), item])  # the control is the very same network
        monkeypatch.setattr(identifiability, "read", lambda m, name, *_: next(fresh) if name == "item" else real)
        found = theory.compare(model, other, table)
        assert not found["item", "context"].above_controls
        assert found.columns()["above_controls"][0] is False

    def test_of_one_model_agree_entirely(self, fits):
        columns = theory.compare(fits[0], fits[0], fits[2]).columns()
        assert np.allclose(columns["r2"], 1)
        assert np.allclose(columns["correlation"], 1)

    def test_that_differ_by_an_invertible_map_agree_entirely(self, fits, draw, monkeypatch):
        """Rows h -> h A, deltas -> delta A^-T + one vector: the same softmax."""
        model, _, table = fits
        reading = read(model, "item", table)
        a = draw.normal(size=(6, 6)) + 3 * np.eye(6)
        shift = draw.normal(size=6)
        moved = Reading(
            reading.row,
            reading.context @ a,
            reading.features,
            np.where(np.isfinite(reading.natural), reading.natural + (reading.context @ a @ shift)[:, None], -np.inf),
            reading.centre @ np.linalg.inv(a).T + shift,
            reading.biased,
        )
        given = iter([reading, moved, moved])
        real = iter([read(model, "real", table)] * 3)
        monkeypatch.setattr(identifiability, "read", lambda m, name, *_: next(given if name == "item" else real))
        assert np.allclose(theory.compare(model, model, table).columns()["r2"], 1)

    def test_have_the_intercept_that_their_head_has(self, fits):
        assert theory.compare(*fits)["item", "context"].intercept
        assert not read_without_bias(fits[0], fits[2]).biased

    def test_compare_only_what_the_softmax_sees(self, fits):
        """Where the width exceeds D - 1, context vectors are projected onto the differences of item vectors."""
        wide = efa(width=12, training=QUICK).fit(ratings(users=40), **BOTH, progress=False)
        found = theory.compare(wide, wide, fits[2])
        assert len(found["item", "context"].fit.correlations) == 7  # 8 movies
        assert found["item", "items"].permuted.r2 == pytest.approx(1)  # 8 vectors of 12 numbers say nothing

    def test_do_not_agree_for_popularity_alone(self, draw):
        """Logits that differ by what is the item's and what is the row's, on a ragged support, have nothing in
        common."""
        allowed = draw.random((N, D)) < 0.4
        context = draw.normal(size=(2, N, D))
        popularity, level = 50 * draw.normal(size=D), draw.normal(size=(N, 1))
        a, b = (np.where(allowed, x, -np.inf) for x in (context[0] + popularity + level, context[1] + popularity))
        assert identifiability._agreement(a, b).r2 < 0.02
        same = np.where(allowed, context[0] - 2 * popularity, -np.inf)
        assert identifiability._agreement(a, same).r2 == pytest.approx(1, abs=1e-9)

    @pytest.mark.parametrize(
        "values", [{"value": "count", "family": "negative_binomial"}, {"value": ["rating", "liked", "x"]}]
    )
    def test_are_compared_for_every_family(self, fits, values):
        family = values.get("family", "auto")
        model = efa(family=family, terms="value", training=QUICK)
        model.fit(ratings(), group="user", item="movie", value=values["value"], progress=False)
        found = theory.compare(model, model, fits[2])
        assert np.allclose(found.columns()["r2"], 1)

    def test_must_be_fits_of_the_same_thing(self, fits):
        past = efa(context="past", training=QUICK).fit(ratings(), **BOTH, order="at", progress=False)
        with pytest.raises(DataError, match="not the same"):
            theory.compare(fits[0], past, fits[2])
        with pytest.raises(DataError, match="fitted EFA, not LatentFactor"):
            theory.compare(latent(), fits[0], fits[2])
        alone = efa(training=QUICK, terms="value").fit(ratings(), group="user", value="count", progress=False)
        with pytest.raises(DataError, match="share no term"):
            theory.compare(fits[0], alone, fits[2])


def test_a_reading_is_what_the_model_computes(fits):
    model, _, table = fits
    item, real = (read(model, name, table) for name in ("item", "real"))
    bias = model.model_["item"].head.bias.detach().double().numpy()
    logits = item.context @ item.centre.T + bias
    allowed = np.isfinite(item.natural)
    assert np.allclose(logits[allowed], item.natural[allowed])
    assert np.array_equal(item.row, np.arange(len(table)))
    mean = model.predict(table)["real_mean"].to_numpy()
    assert np.allclose(real.natural[:, 0], mean[real.row], rtol=1e-4, atol=1e-4)
    last = model.model_["real"].head.body[-1].weight.detach().double().numpy()
    assert real.features.shape[1] == last.shape[1]


class TestDiversity:
    def test_of_generic_points_holds(self, draw):
        found = conditions.assess(draw.normal(size=(50, K)))
        assert (found.rank, found.size, found.points, found.holds) == (K, K, 50, True)
        assert 1 <= found.condition < 100

    def test_chooses_the_points_that_make_it_hold(self):
        """Nearly all points are the same; the few that are not are found."""
        points = np.tile(np.eye(3)[0], (100, 1))
        points[41], points[77] = np.eye(3)[1], np.eye(3)[2]
        found = conditions.assess(points)
        assert found.holds
        assert found.condition == pytest.approx(1)
        assert set(conditions.chosen(points)) >= {41, 77}

    @pytest.mark.parametrize("rank", [0, 1, 3])
    def test_fails_where_points_lie_in_a_subspace(self, draw, rank):
        found = conditions.assess(draw.normal(size=(50, rank)) @ draw.normal(size=(rank, K)))
        assert (found.rank, found.holds, found.condition) == (rank, False, math.inf)

    @pytest.mark.parametrize("items", [3, K, K + 1, 12])
    def test_of_pairs_needs_more_items_than_the_width(self, draw, items):
        found = conditions.pairs_of_items("item", reading_of(draw, items))
        assert found.rank == min(K, items - 1)
        assert found.holds == (items - 1 >= K)

    def test_of_pairs_does_not_see_a_vector_common_to_all_items(self, draw):
        reading = reading_of(draw, 12)
        before, after = (
            conditions.pairs_of_items("item", reading_of(draw, 12, centre=reading.centre + shift)) for shift in (0, 9)
        )
        assert before.condition == pytest.approx(after.condition)

    def test_of_distinct_support_is_over_allowed_items(self, draw):
        reading = reading_of(draw, 12)
        reading.natural[7, 3:] = -np.inf  # a context that allows three items
        found = conditions.pairs_of_items("item", reading)
        assert (found.rank, found.points, found.worst_of, found.share) == (2, 2, 2, 0.5)
        reading.natural[4:, 11] = -np.inf  # an item that four contexts allow
        found = conditions.contexts_of_items("item", reading)
        assert (found.size, found.points, found.rank, found.worst_of) == (K + 1, 4, 4, 12)

    def test_of_contexts_has_the_log_partition_and_a_bias(self, draw):
        reading = reading_of(draw, 12)
        rows = conditions.extended_contexts(reading.context, reading.natural, True)
        log_z = np.log(np.exp(reading.natural).sum(1))
        assert np.allclose(rows, np.column_stack([-log_z, reading.context, np.ones(N)]))
        assert conditions.extended_contexts(reading.context, reading.natural, False).shape == (N, K + 1)

    def test_is_measured_on_a_fitted_model(self, fits):
        found = theory.check_diversity(fits[0], fits[2]).columns()
        assert found["diversity"] == ["I", "II", "III"]
        assert found["size"] == [6, 8, 6]
        assert len(str(theory.check_diversity(fits[0], fits[2], rows=20)).splitlines()) == 4


class TestExcessLoss:
    def test_the_term_is_the_formula(self):
        sizes = {"layers": 2, "heads": 3, "width": 5, "feed_forward": 7, "hidden": 11, "output": 4, "attributes": 2}
        found = theory.bound_term(groups=1000, **sizes, norm=6.0, radius=4.0, largest_value=2.0, confidence=0.9)
        # 43 * 2 * (2 * (3*3*25 + 2*5*7) + 11 * (4 + 2)) = 86 * (2 * 295 + 66) = 56416; iota = log 8; xi = 0.1
        assert found == pytest.approx(4 * math.sqrt((56416 * math.log(8) + math.log(10)) / 1000), rel=1e-12)
        more = theory.bound_term(groups=4000, **sizes, norm=6.0, radius=4.0, largest_value=2.0, confidence=0.9)
        assert more == pytest.approx(found / 2)

    @pytest.mark.parametrize(("norm", "radius", "value"), [(9.0, 1.0, 1.0), (1.0, 9.0, 1.0), (1.0, 1.0, 1 / 18)])
    def test_the_term_takes_the_largest_of_norm_radius_and_inverse_value(self, norm, radius, value):
        sizes = dict.fromkeys(("layers", "heads", "width", "feed_forward", "hidden", "output", "attributes"), 1)
        found = theory.bound_term(groups=1, **sizes, norm=norm, radius=radius, largest_value=value, confidence=0.0)
        assert found == pytest.approx(value**2 * math.sqrt(43 * 7 * math.log(11)))

    def test_the_norm_is_that_of_the_theorem(self):
        """The theorem's own model: token (g(tau), y), the last entry read off."""
        torch.manual_seed(0)
        embedding = Embedding(Identity(), attributes=AttributeVectors((2, 6, 3)))
        stack = Stack(4, 2, 2, feed_forward=5)
        term = Term(embedding, stack, Head(ReadOff(1), (False,)), families.Gaussian(1.0))
        found = theory.norms(term)

        def size(x):
            return np.linalg.norm(x, 2)

        layers = []
        for block in stack.layers:
            project, output = (
                x.weight.detach().double().numpy() for x in (block.attention.project, block.attention.output)
            )
            q, k, v = np.split(project, 3)
            heads = [slice(0, 2), slice(2, 4)]
            first, second = (block.feed_forward[i].weight.detach().double().numpy() for i in (0, 2))
            layers.append(
                max(size(x[m]) for x in (q, k) for m in heads)
                + sum(size(output[:, m] @ v[m]) for m in heads)
                + size(first)
                + size(second)
            )
        g = [embedding.attributes.net[i].weight.detach().double().numpy() for i in (0, 2)]
        assert found.total == pytest.approx(max(layers) + sum(map(size, g)), rel=1e-12)
        assert [layer.total for layer in found.layers] == pytest.approx(layers, rel=1e-12)
        assert found.beyond == {}

    def test_a_known_matrix_has_its_known_norm(self):
        term = Term(Embedding(Identity(2)), Stack(2, 1, 1), Head(ReadOff(2), (False, False)), two_gaussians())
        attention = term.stack.layers[0].attention
        with torch.no_grad():
            attention.project.weight.copy_(torch.cat([torch.eye(2) * x for x in (2.0, 3.0, 5.0)]))
            attention.output.weight.copy_(torch.diag(torch.tensor([-1.0, 7.0])))
        assert theory.norms(term).total == pytest.approx(3 + 35)

    def test_the_bound_of_a_fitted_model_reads_its_sizes(self, spatial):
        model, table = spatial
        found = theory.bound(model, table)
        expected = {"groups": 24, "layers": 2, "heads": 2, "width": 8, "feed_forward": 12}
        assert expected.items() <= found.sizes.items()
        assert {"hidden": 16, "output": 4, "attributes": 2}.items() <= found.sizes.items()
        assert found.term == pytest.approx(theory.bound_term(**found.sizes))
        assert found.norms.total == found.sizes["norm"]
        assert set(found.norms.beyond) == {"value embedding", "mix", "head"}
        assert theory.bound(model, table, radius=1e6).term > found.term
        assert found.columns()["term"] == [found.term]
        values = model.schema_.standardise(model.schema_.encode(table)).value
        assert found.marginal_loss == pytest.approx(np.nanvar(values) / 2)

    @pytest.mark.parametrize(("term", "vacuous"), [(0.6, True), (0.4, False)])
    def test_a_bound_above_the_loss_of_predicting_the_mean_is_called_vacuous(self, spatial, term, vacuous):
        found = replace(theory.bound(*spatial), term=term, marginal_loss=0.5)
        assert found.columns()["vacuous"] == [found.vacuous] == [vacuous]
        assert str(found).startswith("The bound is vacuous") == vacuous
        assert "0.5, the loss of predicting the mean" in str(found)

    def test_the_bound_is_for_one_gaussian_column(self):
        model = efa(training=QUICK, terms="value").fit(ratings(), group="user", value="rating", progress=False)
        with pytest.raises(DataError, match="one Gaussian value column"):
            theory.bound(model, ratings())

    @pytest.mark.parametrize("slope", [-0.5, -1.0, 0.0])
    def test_the_slope_of_a_power_law_is_its_power(self, slope):
        groups = np.array([10, 100, 250, 1000])
        excess = 3 * groups**slope
        assert theory.log_log_slope(groups, excess) == pytest.approx(slope, abs=1e-12)
        both = np.column_stack([0.5 * excess, 1.5 * excess])
        assert theory.log_log_slope(groups, both) == pytest.approx(slope, abs=1e-12)


class TestTheExperiment:
    def test_knows_the_best_predictor(self):
        field = theory.Field.of(5)
        y = field.draw(200_000, 1)
        best = field.best(y)
        assert ((y - best) ** 2).mean() / 2 == pytest.approx(field.floor, rel=0.01)
        assert (best**2).mean() / 2 == pytest.approx(field.without_context, rel=0.02)
        for i in range(5):  # it is the regression on the others
            others = np.delete(y, i, 1)
            assert np.allclose(others @ np.linalg.lstsq(others, y[:, i], rcond=None)[0], best[:, i], atol=0.05)

    def test_draws_the_same_groups_first(self):
        field = theory.Field.of(3)
        assert np.array_equal(field.draw(10, 4)[:6], field.draw(6, 4))

    def test_sees_excess_loss_fall_with_more_groups(self):
        model = small_efa().set_params(training=Training(steps=120, tokens=512, rate=0.02, device="cpu"))
        found = theory.excess_experiment((16, 128), (0,), model=model, field=theory.Field.of(5), test=200)
        assert found.excess.shape == found.norm.shape == found.term.shape == (2, 1)
        assert found.excess[1, 0] < found.excess[0, 0]
        assert found.excess[1, 0] < found.without_context / 2
        assert found.slope < 0
        assert found.columns()["groups"] == [16, 128]
        assert len(str(found).splitlines()) == 3


def test_every_latent_factor_model_equals_its_attention_form():
    found = theory.check_propositions(seeds=(0, 1))
    columns = found.columns()
    assert found.difference < 1e-10
    assert min(columns["largest"]) > 0.1  # something was compared
    cases = set(zip(columns["proposition"], columns["context"], columns["intercept"], strict=True))
    assert cases == {(p, c, i) for p in (1, 2, 3) for c in ("past", "others") for i in (False, True)}
    assert len(str(found).splitlines()) == 1 + len(columns["model"])


def reading_of(draw, items, centre=None):
    context = draw.normal(size=(N, K))
    centre = draw.normal(size=(items, K)) if centre is None else centre
    return Reading(np.arange(N), context, context, context @ centre.T, centre, False)


def item_reading(draw, row, span):
    """Random vectors of eight items, which span so many of six dimensions."""
    context = draw.normal(size=(len(row), 6))
    centre = draw.normal(size=(8, span)) @ draw.normal(size=(span, 6))
    return Reading(row, context, context, context @ centre.T, centre, False)


def read_without_bias(model, table):
    """The same model with a head that has none."""
    term = model.model_["item"]
    head = Head(term.head.body, term.family.shared, bias=False)
    plain = Term(term.embedding, term.stack, head, term.family, context=term.context, support=term.support)
    return read(model, "item", table, Model({"item": plain}))


def two_gaussians():
    return families.Product((families.Gaussian(1.0), families.Gaussian(1.0)))
