"""A simple fitted model as a prior: draws, offsets, starts, and what is chosen among them."""

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
import torch
from shell import forked
from sklearn.base import clone
from small import SIZES, efa, ratings, weather
from small_training import ROLES, STEPS, Stop, same, weights, without_seconds

import efattn
from efattn import EFA, DataError, ModelFileError, Training, baselines, families, storage
from efattn.data import Roles, Schema
from efattn.estimators import prior as priors
from efattn.priors import AdditiveItems, draw_items
from efattn.training import Step
from efattn.training import checkpoint as checkpoints

RATINGS, WEATHER = ratings(users=24), weather()
ITEMS = {"group": "user", "item": "movie"}
DAYS = {"group": "day", "item": "station", "value": "tmax", "time": "day"}
CALM = Training(epochs=2, tokens=64, device="cpu", rate=1e-3)
USES = ("draws", "offset", "start")
COLUMNS = {
    "real": "gaussian", "rating": "ordinal", "count": "poisson", "liked": "bernoulli", "size": "gamma", "share": "beta",
}  # fmt: skip


def planned(model, table=RATINGS, **roles):
    """What the model is fitted with: the plan, and what each term is trained on."""
    plans = []
    model.fit(table, **roles, planned=plans.append)
    return plans[0], priors.feeds(model, plans[0], CALM)


def parts(plan, feed, term, number=0, epoch=0, seed=0, phase=0):
    pieces = plan.train.plan(64)[number]
    return pieces, feed.batches(pieces, term, Step(seed, epoch, number, phase))


# ---- draws


@pytest.mark.parametrize(("column", "family"), COLUMNS.items())
def test_drawn_values_keep_the_cells_the_support_and_the_range(column, family):
    model = efa(prior="gaussian", terms="value", family=family, training=CALM)
    holes = RATINGS.with_columns(pl.when(pl.int_range(pl.len()) % 7 > 0).then(column).alias(column))
    plan, feeds = planned(model, holes, **ITEMS, value=column, order="at")
    term, (low, high) = model.model_[column], (np.nanmin(plan.train.value), np.nanmax(plan.train.value))
    for number in range(2):
        _, ((w, real), (v, drawn)) = parts(plan, feeds[column], term, number)
        assert (w, v) == (0.5, 0.5)
        for field in ("exists", "item", "observed", "position", "target", "rows"):
            assert torch.equal(getattr(real, field), getattr(drawn, field)), field
        seen = drawn.value[drawn.observed]
        assert not torch.equal(drawn.value, real.value)
        assert not drawn.value[~drawn.observed].any()
        plan.family.check(seen.numpy()[:, None], (column,))
        if family != "gaussian":
            assert low <= seen.min() <= seen.max() <= high
    assert np.isfinite(model.score(RATINGS))


@pytest.mark.parametrize("context", ["past", "others"])
def test_drawn_items_keep_the_cells_and_never_repeat(context):
    model = efa(prior="additive", context=context, training=CALM)
    plan, feeds = planned(model, **ITEMS, order="at")
    _, ((_, real), (_, drawn)) = parts(plan, feeds["item"], model.model_["item"])
    assert torch.equal(real.exists, drawn.exists)
    assert not torch.equal(real.item, drawn.item)
    for items, there in zip(drawn.item, drawn.exists, strict=True):
        known = items[there][items[there] < plan.items].tolist()
        assert len(set(known)) == len(known)
    assert model.model_["item"].log_prob(drawn).values.isfinite().all()


@pytest.mark.parametrize("context", ["past", "others"])
@pytest.mark.parametrize(("support", "scale", "max_length"), [("all", "root", None), ("distinct", "mean", 3)])
def test_the_quick_draw_of_items_is_the_plain_one(context, support, scale, max_length):
    table = RATINGS if support == "distinct" else pl.concat([RATINGS, RATINGS.head(20)])
    groups = Schema.fit_encode(table, Roles(group="user", item="movie", order="row"), max_length=max_length)[1]
    term = AdditiveItems(8, context, support, scale)
    torch.nn.init.normal_(term.matrix, generator=torch.Generator().manual_seed(0))
    batch = groups.batch(np.arange(10), context)
    one, two = (torch.Generator().manual_seed(1) for _ in range(2))
    assert torch.equal(term.draw(batch, one, 2).item, draw_items(term, batch, two, 2).item)


def test_lagged_cells_are_drawn_together_with_the_current_ones():
    model = efa(prior="gaussian", terms="value", lags=1, training=CALM)
    plan, feeds = planned(model, WEATHER, **DAYS)
    _, ((_, real), (_, drawn)) = parts(plan, feeds["tmax"], model.model_["tmax"])
    assert torch.equal(real.lag, drawn.lag)
    there = real.observed[..., 0] & (real.lag > 0)
    assert (real.value[..., 0] != drawn.value[..., 0])[there].all()


@pytest.mark.parametrize("prior", ["gaussian", "additive"])
def test_a_step_always_sees_the_same_draws_and_another_step_others(prior):
    model = efa(prior=prior, training=CALM)
    plan, feeds = planned(model, **ITEMS, value="real", order="at")
    ((name, feed),) = feeds.items()
    what = "item" if prior == "additive" else "value"

    def drawn(**step):
        return getattr(parts(plan, feed, model.model_[name], **step)[1][1][1], what)

    first = drawn()
    for other in ({"epoch": 1}, {"seed": 1}):
        assert not torch.equal(drawn(**other), first)
    assert torch.equal(drawn(), first)


def test_a_weight_of_zero_is_no_prior_and_a_start_ends_on_the_data():
    roles = {**ITEMS, "value": "real"}
    none = efa(terms="value", training=CALM).fit(RATINGS, **roles)
    zero = efa(terms="value", training=CALM, prior="gaussian", prior_weight=0).fit(RATINGS, **roles)
    assert same(weights(none), weights(zero))
    plan, feeds = planned(efa(terms="value", training=CALM, prior="gaussian", prior_use="start"), **roles)
    for phase, alike in ((0, False), (1, True)):
        pieces, ((share, batch),) = parts(plan, feeds["real"], none.model_["real"], phase=phase)
        assert share == 1
        assert torch.equal(batch.value, plan.train.batch(pieces).value) == alike


# ---- offsets


@pytest.mark.parametrize("context", ["past", "others"])
@pytest.mark.parametrize("lags", [0, 1])
def test_a_target_never_sees_itself_with_an_offset(context, lags):
    model = efa(prior="gaussian", prior_use="offset", terms="value", lags=lags, context=context, training=CALM)
    model.fit(WEATHER, **DAYS, order="row")
    before = model.predict(WEATHER)
    changed = WEATHER.with_columns(tmax=pl.when(pl.int_range(pl.len()) == 62).then(99.0).otherwise("tmax"))
    after = model.predict(changed)
    for what in ("mean", "sd"):
        one, two = before[f"tmax_{what}"].to_numpy(), after[f"tmax_{what}"].to_numpy()
        assert one[62] == two[62]
        assert np.array_equal(one[:60], two[:60])
    assert after["tmax_mean"][63] != before["tmax_mean"][63]


@pytest.mark.parametrize(
    ("peer", "value", "family"),
    [
        ("gaussian", "real", "gaussian"), ("gaussian", "count", "poisson"),
        ("gaussian", "rating", families.Poisson(shift=1, link="softplus")), ("gaussian", "liked", "bernoulli"),
        (baselines.ShrunkMean(), "real", families.Gaussian("predicted")), ("additive", None, "auto"),
        (baselines.RidgePerItem(), "real", families.Gaussian(0.5)),
    ],
)  # fmt: skip
def test_training_begins_exactly_at_the_prior(peer, value, family):
    still = replace(CALM, rate=1e-12, weight_decay=0.0)
    roles = ITEMS | ({} if value is None else {"value": value})
    terms = "item" if value is None else "value"
    model = efa(prior=peer, prior_use="offset", terms=terms, family=family, training=still, dropout=0.0)
    model.fit(RATINGS, **roles)
    if value is None:
        alone = baselines.AdditiveLogit(training=still)
    else:
        kind = baselines.GaussianConditional if peer == "gaussian" else type(peer)
        alone = kind(family=family).set_params()
        alone.standardise = model.schema_.standardiser.methods[0]
    alone.fit(RATINGS, **roles)
    assert model.score(RATINGS) == pytest.approx(alone.score(RATINGS), abs=1e-5)


def test_an_ordinal_offset_has_the_mean_of_the_prior():
    still = replace(CALM, rate=1e-12, weight_decay=0.0)
    model = efa(prior="gaussian", prior_use="offset", terms="value", family="ordinal", training=still)
    found = model.fit(RATINGS, **ITEMS, value="rating").predict(RATINGS)["rating_mean"].to_numpy()
    alone = baselines.GaussianConditional()
    alone.standardise = "none"
    mean = alone.fit(RATINGS, **ITEMS, value="rating").predict(RATINGS)["rating_mean"].to_numpy()
    inside = (mean > 1.2) & (mean < 4.8)
    np.testing.assert_allclose(found[inside], mean[inside], atol=0.01)


@pytest.mark.parametrize("rate", [1e-3, 3.0])
def test_an_offset_is_never_worse_than_its_prior_on_the_groups_held_out(rate):
    wild = replace(CALM, rate=rate, epochs=3)
    model = efa(prior="gaussian", prior_use="offset", terms="value", training=wild)
    plans = []
    model.fit(RATINGS, **ITEMS, value="real", planned=plans.append)
    alone = baselines.GaussianConditional()
    alone.standardise = "item"
    alone.fit(RATINGS, **ITEMS, value="real")
    held = RATINGS[np.sort(plans[0].held.rows)]
    assert model.score(held) >= alone.score(held) - 1e-5
    if rate > 1:
        assert "before training: the prior alone" in model.summary()


@pytest.mark.parametrize("lags", [0, 1])
def test_the_offsets_of_training_groups_come_from_fits_without_them(lags):
    """A row's own value is then in neither its context nor the fit."""
    parameters = {"terms": "value", "lags": lags, "training": CALM, "standardise": "none"}
    model = efa(prior=baselines.GaussianConditional(weight=0.5, lags=lags), prior_use="offset", **parameters)
    _, feeds = planned(model, WEATHER, **DAYS)
    row = int(feeds["tmax"].data.rows[20])
    changed = WEATHER.with_columns(tmax=pl.when(pl.int_range(pl.len()) == row).then(99.0).otherwise("tmax"))
    found = []
    for table in (WEATHER, changed):
        plan, feeds = planned(model, table, **DAYS)
        offsets = np.full((len(table), 2), np.nan)
        for pieces in plan.train.plan(64):
            ((_, batch),) = feeds["tmax"].batches(pieces, model.model_["tmax"], Step(0, 0, 0, 0))
            offsets[batch.rows.numpy()] = batch.offset.numpy()
        found.append(offsets)
    one, two = found
    assert np.array_equal(one[row], two[row])
    assert not np.array_equal(one[row + 1], two[row + 1])
    whole = feeds["tmax"].offset.prior.mean[0]
    assert all(offset.prior.mean[0] != whole for offset in feeds["tmax"].fitted.offsets)


# ---- going on, files, parameters


@pytest.mark.parametrize(("prior", "use"), [("gaussian", use) for use in USES] + [("additive", "draws")])
def test_resumed_training_with_a_prior_equals_uninterrupted_training(tmp_path, monkeypatch, prior, use):
    def model():
        return efa(prior=prior, prior_use=use, training=replace(STEPS, epochs=3), dropout=0.2)

    table = ratings()
    whole = model().fit(table, **ROLES)
    write, count = checkpoints.Checkpoint.write, [0]

    def counted(self, *arguments):
        write(self, *arguments)
        count[0] += 1
        if count[0] in (2, 9):
            raise Stop

    monkeypatch.setattr(checkpoints.Checkpoint, "write", counted)
    for _ in range(2):
        with pytest.raises(Stop):
            model().fit(table, **ROLES, checkpoint=tmp_path, resume=True)
    resumed = model().fit(table, **ROLES, checkpoint=tmp_path, resume=True)
    assert same(weights(resumed), weights(whole))
    assert without_seconds(resumed.history_) == without_seconds(whole.history_)


PRIORS = {
    "gaussian": ("gaussian", {"value": "real"}),
    "ordinal": ("gaussian", {"value": "rating"}),
    "additive": ("additive", {}),
    "peer": (baselines.ShrunkMean(), {"value": "real"}),
    "fitted": (baselines.GaussianConditional().fit(RATINGS, **ITEMS, value="real"), {"value": "real"}),
}
ELSEWHERE = "import sys, json, efattn; print(json.dumps([efattn.load(p).score('table.csv') for p in sys.argv[1:]]))"


def test_a_saved_model_predicts_the_same_in_a_new_process(tmp_path):
    RATINGS.write_csv(tmp_path / "table.csv")
    want = []
    for name, (prior, roles) in PRIORS.items():
        model = efa(prior=prior, prior_use="offset", training=CALM).fit(RATINGS, **ITEMS, **roles)
        model.save(tmp_path / f"{name}.efattn")
        want.append(model.score(RATINGS))
        assert "prior." in "".join(storage.read(tmp_path / f"{name}.efattn", "model")[1])
    names = [f"{name}.efattn" for name in PRIORS]
    found = subprocess.run(
        [sys.executable, "-c", ELSEWHERE, *names], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    np.testing.assert_allclose(json.loads(found.stdout), want, rtol=1e-6)


def test_draws_leave_nothing_in_the_file(tmp_path):
    model = efa(prior="gaussian", training=CALM, terms="value").fit(RATINGS, **ITEMS, value="real")
    model.save(tmp_path / "m.efattn")
    about, tensors = storage.read(tmp_path / "m.efattn", "model")
    assert "prior" not in about
    assert not [name for name in tensors if name.startswith("prior.")]


def cut(about, tensors):
    tensors["prior.0.prior.covariance"] = tensors["prior.0.prior.covariance"][:-1]


LIES = {
    "cut": cut,
    "gone": lambda about, tensors: tensors.pop("prior.0.prior.mean"),
    "extra": lambda about, tensors: tensors.update({"prior.0.more": torch.zeros(1)}),
    "no peer": lambda about, tensors: about["prior"]["real"].update(peer="gaussian"),
    "another kind": lambda about, tensors: about["prior"]["real"]["peer"]["value"].update(kind="EFA"),
    "of items": lambda about, tensors: about["prior"]["real"]["peer"]["value"].update(kind="Popularity", settings={}),
    "endless lags": lambda about, tensors: about["prior"]["real"]["peer"]["value"]["settings"].update(lags=10**12),
    "too many items": lambda about, tensors: about["prior"]["real"].update(items=10**9),
    "items in words": lambda about, tensors: about["prior"]["real"].update(items="many"),
    "no such term": lambda about, tensors: about.update(prior={"x": about["prior"]["real"]}),
    "a list": lambda about, tensors: about.update(prior=[1]),
}


@pytest.fixture(scope="module")
def honest(tmp_path_factory):
    path = tmp_path_factory.mktemp("honest") / "m.efattn"
    model = efa(prior="gaussian", prior_use="offset", training=CALM, terms="value")
    model.fit(RATINGS, **ITEMS, value="real").save(path)
    return path


@pytest.mark.parametrize("lie", LIES)
def test_a_file_that_lies_about_its_prior_is_refused(tmp_path, honest, lie):
    about, tensors = storage.read(honest, "model")
    about, tensors = {k: x for k, x in about.items() if k not in ("format", "kind")}, dict(tensors)
    LIES[lie](about, tensors)
    storage.write(tmp_path / "m.efattn", "model", about, tensors)
    with pytest.raises(ModelFileError, match=r"m\.efattn"):
        efattn.load(tmp_path / "m.efattn")


@pytest.mark.parametrize(("prior", "roles"), [("gaussian", {"value": "real"}), ("additive", {})])
def test_an_update_keeps_the_prior_and_takes_new_items(tmp_path, prior, roles):
    model = efa(prior=prior, prior_use="offset", training=CALM).fit(RATINGS, **ITEMS, **roles)
    name = model.model_.terms[-1]
    before = model.model_[name].offset.prior
    more = ratings(seed=5, users=12, movies=11)
    model.update(more)
    assert model.model_[name].offset.prior is before
    model.save(tmp_path / "m.efattn")
    assert efattn.load(tmp_path / "m.efattn").score(more) == pytest.approx(model.score(more), rel=1e-6)


def test_clones_have_the_prior_unfitted_and_parameters_reach_into_it():
    prior = baselines.GaussianConditional().fit(RATINGS, **ITEMS, value="real")
    model = EFA(prior=prior, prior_use="offset")
    copy = clone(model)
    assert isinstance(copy.prior, baselines.GaussianConditional)
    assert not hasattr(copy.prior, "model_")
    assert copy.set_params(prior__weight=0.3).prior.weight == 0.3


@pytest.mark.parametrize("use", ["draws", "offset"])
def test_a_fitted_prior_is_taken_as_it_is_whatever_its_units(use):
    prior = baselines.GaussianConditional().fit(RATINGS, **ITEMS, value="real")  # centred at one mean, not by item
    still = replace(CALM, rate=1e-12, weight_decay=0.0)
    model = efa(prior=prior, prior_use=use, terms="value", training=still, standardise="item")
    plan, feeds = planned(model, **ITEMS, value="real")
    if use == "offset":
        assert model.score(RATINGS) == pytest.approx(prior.score(RATINGS), abs=1e-5)
        assert feeds["real"].fitted is None
        return
    batches = [parts(plan, feeds["real"], model.model_["real"], epoch=e)[1] for e in range(60)]
    drawn = torch.cat([drawn.value[drawn.observed] for _, (_, drawn) in batches])
    assert drawn.mean().abs() < 0.3
    assert 0.7 < drawn.std() < 1.4


# ---- what is chosen, and what cannot be


def test_a_named_prior_goes_to_the_term_it_fits_and_the_summary_says_so():
    for prior, term in (("gaussian", "real"), ("additive", "item")):
        model = efa(prior=prior, prior_use="offset", training=CALM).fit(RATINGS, **ITEMS, value="real")
        assert [name for name in model.model_.terms if model.model_[name].offset is not None] == [term]
        assert f"Prior of '{term}'" in model.summary()


OTHER = ratings(users=24, movies=9)
FITTED = baselines.GaussianConditional().fit(OTHER, **ITEMS, value="real")
MISTAKES = {
    "no such prior": ({"prior": "bayes"}, {}, "prior is 'auto'"),
    "a class": ({"prior": baselines.ShrunkMean}, {}, "prior is 'auto'"),
    "weight": ({"prior": "gaussian", "prior_weight": 1.5}, {}, "prior_weight is a share"),
    "weight in words": ({"prior": "gaussian", "prior_weight": "half"}, {}, "prior_weight is a share"),
    "use": ({"prior": "gaussian", "prior_use": "magic"}, {}, "prior_use is 'draws'"),
    "no item term": ({"prior": "additive"}, {}, "prior of items, and only the value term"),
    "context": ({"prior": baselines.ShrunkMean(context="past")}, {}, "context='past'"),
    "lags": ({"prior": baselines.GaussianConditional(lags=2)}, {}, "2 time steps back, the model 0"),
    "no draws": ({"prior": baselines.RidgePerItem()}, {}, "Use prior_use='offset'"),
    "no offset": ({"prior": "gaussian", "prior_use": "offset", "family": "gamma"}, {"value": "size"}, "='draws'"),
    "columns": ({"prior": "gaussian"}, {"value": ["real", "size"]}, "one value column"),
    "exposure": ({"prior": "gaussian", "family": "poisson"}, {"value": "count", "exposure": "hours"}, "no exposure"),
    "no items": ({"prior": "gaussian"}, {"item": ()}, r"pass item=..., or prior=baselines.ShrunkMean"),
    "other items": ({"prior": FITTED}, {}, "knows other items"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_what_cannot_be_says_what_to_do(mistake):
    parameters, roles, words = MISTAKES[mistake]
    model = efa(**{"terms": "value", "training": CALM, **parameters})
    with pytest.raises(DataError, match=words):
        model.fit(RATINGS, **{**ITEMS, "value": "real", **roles})
    assert not hasattr(model, "model_")


def test_the_command_line_takes_a_prior(tmp_path):
    RATINGS.write_csv(tmp_path / "t.csv")
    sizes = [x for name, n in SIZES.items() for x in (f"--{name}", str(n))]
    more = ["--prior", "gaussian", "--prior-use", "offset", "--prior-weight", "0.3", "--epochs", "1", *sizes]
    out = tmp_path / "m.efattn"
    roles = ["--group", "user", "--item", "movie", "--value", "real", "--terms", "value", "--no-compare"]
    assert forked("fit", "t.csv", *roles, *more, "-o", out.name, cwd=tmp_path).code == 0
    assert efattn.load(out).get_params()["prior_weight"] == 0.3
