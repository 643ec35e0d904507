"""One loop: what it maximises, when it stops, and what it tells."""

import json
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
import torch
from small import efa, latent, weather
from small_training import FULL, PLATEAU, ROLES, STEPS, TABLE, model, same, weights

from efattn import DataError, Training
from efattn.training import loop
from efattn.training.optimiser import Adam

# ---- early stopping, history, callbacks


def test_the_best_weights_of_each_term_are_restored():
    held = TABLE.filter(pl.col("user").is_in(["u1", "u2", "u3"]))
    rest = TABLE.filter(~pl.col("user").is_in(["u1", "u2", "u3"]))
    training = replace(STEPS, epochs=6, patience=None, rate=0.1)
    found = model(training=training, standardise="none", dropout=0.0).fit(rest, **ROLES, validation=held)
    for name, mean in found.scores(held)["terms"].items():
        records = [record for record in found.history_ if record["term"] == name]
        assert len(records) == 6
        assert records[-1]["best"] == max(record["validation"] for record in records)
        assert mean == pytest.approx(records[-1]["best"], rel=1e-4)


def test_patience_counts_epochs_without_a_better_score():
    found = model(training=replace(STEPS, epochs=50, rate=0.2, patience=2)).fit(TABLE, **ROLES)
    for name in ("item", "real"):
        scores = [record["validation"] for record in found.history_ if record["term"] == name]
        assert len(scores) < 50
        assert len(scores) - 1 - int(np.argmax(scores)) == 2


def test_on_a_plateau_the_rate_drops_and_training_goes_on_from_the_best_weights():
    found = model(training=replace(PLATEAU, epochs=30)).fit(TABLE, **ROLES)
    for name in ("item", "real"):
        records = [record for record in found.history_ if record["term"] == name]
        rates = [record["rate"] for record in records]
        assert rates == sorted(rates, reverse=True)
        assert rates[-1] < rates[0]
        assert records[-1]["best"] == max(record["validation"] for record in records)


def test_without_validation_all_epochs_run_and_the_last_weights_stay():
    found = model(training=replace(STEPS, patience=1)).fit(TABLE, **ROLES, validation=None)
    assert [record["epoch"] for record in found.history_] == [1, 2, 3, 4] * 2
    assert all(record["validation"] is None for record in found.history_)
    assert "nothing held out" in found.summary()


def test_a_running_mean_of_the_weights_is_what_is_validated_and_kept():
    held = TABLE.filter(pl.col("user").is_in(["u1", "u2", "u3"]))
    rest = TABLE.filter(~pl.col("user").is_in(["u1", "u2", "u3"]))
    training = replace(STEPS, epochs=6, patience=None, rate=0.1, average=0.95)
    found = model(training=training, standardise="none", dropout=0.0).fit(rest, **ROLES, validation=held)
    for name, mean in found.scores(held)["terms"].items():
        assert mean == pytest.approx([r for r in found.history_ if r["term"] == name][-1]["best"], rel=1e-4)
    plain = model(training=replace(training, average=0.0), standardise="none", dropout=0.0)
    others = plain.fit(rest, **ROLES, validation=held).history_
    assert [r["train"] for r in others] == [r["train"] for r in found.history_], "training itself goes on as it would"
    assert [r["validation"] for r in others] != [r["validation"] for r in found.history_]


def test_a_running_mean_is_the_mean(monkeypatch):
    """mean += share * (weights - mean) with a share of 1 - average, and of 9 / (9 + steps) at first."""
    seen = []
    honest = Adam.step

    def watched(self, *arguments, **options):
        found = honest(self, *arguments, **options)
        seen.append([p.detach().double().clone() for some, _ in self.parts for _, p in some])
        return found

    monkeypatch.setattr(Adam, "step", watched)
    training = replace(STEPS, epochs=20, average=0.8, rate=0.05)
    found = model(training=training, terms="item").fit(TABLE, **ROLES, validation=None)
    mean = seen[0]
    for step, now in enumerate(seen, 1):
        share = max(0.2, 9 / (9 + step))
        mean = [m + share * (w - m) for m, w in zip(mean, now, strict=True)]
    kept = [p for p in found.model_["item"].parameters() if p.requires_grad]
    order = [p for p in kept if p.dim() > 1] + [p for p in kept if p.dim() <= 1]
    assert len(seen) > 45, "long enough for the share to be 1 - average"
    for expected, p in zip(mean, order, strict=True):
        torch.testing.assert_close(p.double(), expected, rtol=1e-4, atol=1e-6)


def test_a_record_has_scores_seconds_and_the_rate(tmp_path):
    seen = []
    found = model().fit(TABLE, **ROLES, callbacks=[seen.append], history=tmp_path / "history.jsonl")
    assert seen == found.history_
    lines = (tmp_path / "history.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == found.history_
    for record in seen:
        assert record.keys() == {"term", "epoch", "epochs", "train", "validation", "best", "rate", "seconds"}
        assert record["seconds"] >= 0
        assert record["epochs"] == 4


def test_one_callback_needs_no_list():
    seen = []
    found = model().fit(TABLE, **ROLES, callbacks=seen.append)
    assert seen == found.history_


def test_a_history_that_cannot_be_written_is_refused_before_training(tmp_path):
    with pytest.raises(DataError, match="cannot be written to: No such file or directory"):
        model().fit(TABLE, **ROLES, history=tmp_path / "absent" / "history.jsonl", callbacks=[pytest.fail])


def test_training_says_nothing_on_stdout(capfd):
    model().fit(TABLE, **ROLES)
    out, err = capfd.readouterr()
    assert out == ""
    assert all(line.startswith("efattn: ") for line in err.splitlines())


def test_a_progress_bar_goes_to_stderr(capfd):
    model().fit(TABLE, **ROLES, progress=True)
    out, err = capfd.readouterr()
    assert out == ""
    assert "real" in err


# ---- the objective


def twice(table, users):
    more = table.filter(pl.col("user").is_in(users)).with_columns(pl.col("user") + " again")
    return pl.concat([table, more])


@pytest.mark.parametrize("make", [efa, latent], ids=["EFA", "LatentFactor"])
def test_a_weight_of_two_is_a_group_twice(make):
    options = {"family": "poisson", "training": FULL, **({"dropout": 0.0, "hide": 0.0} if make is efa else {})}
    roles = {"group": "user", "item": "movie", "value": "count", "validation": None}
    users = ["u0", "u3", "u4"]
    heavy = TABLE.with_columns(w=pl.when(pl.col("user").is_in(users)).then(2.0).otherwise(1.0))
    one = make(**options).fit(heavy, weight="w", **roles)
    two = make(**options).fit(twice(TABLE, users), **roles)
    assert [r["train"] for r in one.history_] == pytest.approx([r["train"] for r in two.history_], rel=1e-5)
    assert one.score(TABLE) == pytest.approx(two.score(TABLE), rel=1e-4)


def test_rows_of_weight_zero_do_not_count():
    light = TABLE.with_columns(w=pl.when(pl.col("at") == 0).then(0.0).otherwise(1.0))
    other = light.with_columns(t=pl.col("at") > 0)
    roles = {"group": "user", "item": "movie", "value": "count", "validation": None}
    one = efa(family="poisson", training=FULL, dropout=0.0).fit(light, weight="w", **roles)
    two = efa(family="poisson", training=FULL, dropout=0.0).fit(other, target="t", **roles)
    assert [r["train"] for r in one.history_] == pytest.approx([r["train"] for r in two.history_], rel=1e-6)


@pytest.mark.parametrize("roles", [{"weight": "w"}, {"target": "t"}], ids=["weight", "target"])
@pytest.mark.parametrize("family", ["poisson", "ordinal", "gaussian", "gamma"])
def test_nothing_to_learn_from_is_an_error(roles, family):
    nothing = TABLE.with_columns(w=pl.lit(0.0), t=pl.lit(False))
    with pytest.raises(DataError, match="nothing to fit"):
        efa(family=family, terms="value").fit(nothing, group="user", item="movie", value="rating", **roles)


def test_seeds_decide_everything():
    one, two, other = (weights(model(seed=seed).fit(TABLE, **ROLES)) for seed in (1, 1, 2))
    assert same(one, two)
    assert not same(one, other)


def test_the_random_state_of_the_caller_is_left_alone():
    torch.manual_seed(5)
    before = torch.get_rng_state()
    model().fit(TABLE, **ROLES)
    assert torch.equal(torch.get_rng_state(), before)


def test_the_caller_s_random_state_does_not_matter():
    torch.manual_seed(5)
    one = weights(model().fit(TABLE, **ROLES))
    torch.manual_seed(6)
    assert same(one, weights(model().fit(TABLE, **ROLES)))


def test_table_order_of_groups_with_one_batch_changes_only_rounding():
    options = {"training": FULL, "dropout": 0.0, "family": "poisson"}
    roles = {"group": "user", "item": "movie", "value": "count", "validation": None}
    one = efa(**options).fit(TABLE, **roles)
    two = efa(**options).fit(TABLE.reverse(), **roles)
    assert one.score(TABLE) == pytest.approx(two.score(TABLE), rel=1e-4)


def test_training_raises_the_likelihood():
    found = model(training=replace(STEPS, epochs=20, patience=None), dropout=0.0).fit(TABLE, **ROLES, validation=None)
    for name in ("item", "real"):
        train = [record["train"] for record in found.history_ if record["term"] == name]
        assert train[-1] > train[0] + 0.05


def test_draws_fit_the_same_objective():
    found = model(training=replace(FULL, draws=1, epochs=5), dropout=0.0).fit(TABLE, **ROLES)
    assert np.isfinite(found.score(TABLE))
    many = replace(FULL, draws=100, epochs=3)
    one = efa(training=many, dropout=0.0).fit(TABLE, **ROLES)
    two = efa(training=FULL, dropout=0.0).fit(TABLE, **ROLES)
    assert same(weights(one), weights(two)), "more draws than rows are all rows"


# ---- options


def test_the_rate_warms_up_and_decays():
    options = Training(rate=1.0, warmup=0.1, decay="cosine")
    rates = [options.rate_at(step, 100) for step in range(100)]
    assert rates[:10] == pytest.approx([0.1 * (i + 1) for i in range(10)])
    assert np.all(np.diff(rates[10:]) < 0)
    assert rates[55] == pytest.approx(0.5)
    assert 0 < rates[-1] < 0.001
    kept = replace(options, decay="none")
    assert {kept.rate_at(step, 100) for step in range(10, 100)} == {1.0}
    assert Training(rate=1.0, warmup=0.0).rate_at(0, 1) == 1.0
    assert Training(rate=1.0, warmup=1.0).rate_at(99, 100) == 1.0


def test_epochs_follow_from_steps():
    options = Training(steps=100)
    assert [options.epochs_for(n) for n in (1, 10, 50, 1000)] == [13, 10, 5, 5]
    assert [options.passes_for(n) for n in (1, 3, 8, 1000)] == [8, 3, 1, 1]
    assert Training(steps=10**6).epochs_for(1) == 250
    assert Training(epochs=3).epochs_for(1) == 3
    assert Training(epochs=3).passes_for(1) == 1, "who counts epochs counts passes"


def test_steps_are_those_of_torch():
    torch.manual_seed(0)
    start = [torch.randn(3, 4), torch.randn(5), torch.randn(2, 2)]
    for decay in (0.0, 0.1):
        mine, theirs = ([torch.nn.Parameter(x.clone()) for x in start] for _ in range(2))
        own, honest = Adam(mine, 0.1, decay), torch.optim.AdamW(theirs, 0.1, weight_decay=0.0, fused=True)
        if decay:
            parts = [{"params": [theirs[0], theirs[2]], "weight_decay": decay}, {"params": theirs[1:2]}]
            honest = torch.optim.AdamW(parts, 0.1, weight_decay=0.0, fused=True)
        for step in range(5):
            for several in (mine, theirs):
                for p, x in zip(several, start, strict=True):
                    p.grad = (x * (step - 2)).clone()
                several[2].grad = None if step < 2 else several[2].grad
            own.step()
            honest.step()
        assert all(torch.equal(a, b) for a, b in zip(mine, theirs, strict=True))


def test_optimisers_differ_by_decay_of_matrices_only():
    plain = replace(FULL, optimiser="adamw", weight_decay=0.0)
    roles = {"group": "user", "item": "movie", "validation": None}
    one = weights(efa(training=FULL, dropout=0.0).fit(TABLE, **roles))
    two = weights(efa(training=plain, dropout=0.0).fit(TABLE, **roles))
    heavy = replace(plain, weight_decay=0.5, epochs=1)
    light = replace(plain, epochs=1)
    three, four = (weights(efa(training=t, dropout=0.0).fit(TABLE, **roles)) for t in (heavy, light))
    for name, x in one.items():
        torch.testing.assert_close(two[name], x)
        if x.dim() < 2:
            torch.testing.assert_close(three[name], four[name])
    assert sum(float(x.norm()) for x in three.values() if x.dim() > 1) < sum(
        float(x.norm()) for x in four.values() if x.dim() > 1
    )


def test_clipping_bounds_the_gradient(monkeypatch):
    norms = []
    honest = loop.clip

    def watched(parameters, most):
        honest(parameters, most)
        norms.append(float(torch.nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])))

    monkeypatch.setattr(loop, "clip", watched)
    model(training=replace(STEPS, clip=1e-3)).fit(TABLE, **ROLES)
    assert norms
    assert max(norms) <= 1e-3 * (1 + 1e-4)
    norms.clear()
    model(training=replace(STEPS, clip=None)).fit(TABLE, **ROLES)
    assert not norms


@pytest.mark.parametrize(
    "options",
    [
        {"epochs": 0}, {"epochs": 1.5}, {"epochs": True}, {"steps": 0}, {"tokens": 0}, {"draws": 0}, {"patience": 0},
        {"rate": 0.0}, {"rate": float("nan")}, {"rate": float("inf")}, {"rate": "fast"}, {"clip": -1.0},
        {"clip": float("inf")}, {"warmup": 2.0}, {"warmup": None}, {"weight_decay": -1.0},
        {"weight_decay": float("nan")}, {"checkpoint_seconds": -1.0}, {"optimiser": "sgd"}, {"decay": "linear"},
        {"precision": "half"}, {"average": 1.0}, {"average": -0.1}, {"average": None},
    ],
    ids=str,
)  # fmt: skip
def test_options_that_cannot_be_are_refused_by_name(options):
    with pytest.raises(DataError, match=next(iter(options))):
        Training(**options)


def test_options_survive_json():
    options = Training(epochs=np.int64(3), rate=1e-4, clip=None, device="cpu", draws=7)
    assert Training.from_json(json.loads(json.dumps(options.to_json()))) == options
    with pytest.raises(DataError, match="epochs"):
        Training.from_json({"epochen": 3})


@pytest.mark.parametrize("device", ["cuda:77", "tpu", "", "meta", 3.5])
def test_a_device_that_is_not_there_is_named(device):
    with pytest.raises(DataError, match="device"):
        model(training=replace(STEPS, device=device)).fit(TABLE, **ROLES)


def test_lags_hold_out_the_last_times():
    table = weather()
    roles = {"group": "day", "item": "station", "value": "tmax", "time": "day"}
    found = efa(lags=1, terms="value").fit(table, **roles, validation=0.25)
    assert all(np.isfinite(record["validation"]) for record in found.history_)


@pytest.mark.parametrize("validation", [1.0, -0.5, 1, True])
def test_a_share_to_hold_out_lies_between_0_and_1(validation):
    with pytest.raises(DataError, match="fraction between 0 and 1"):
        efa().fit(TABLE, group="user", item="movie", validation=validation)


# ---- how long


def test_training_that_still_improves_goes_on_to_twice_its_epochs():
    slow = Training(steps=40, tokens=10_000, rate=1e-4, warmup=0.0, device="cpu")
    found = model(training=slow, terms="value", dropout=0.0, hide=0.0).fit(TABLE, **ROLES)
    assert [record["epoch"] for record in found.history_] == list(range(1, 11)), "of eight steps each"
    asked = model(training=replace(slow, epochs=10), terms="value").fit(TABLE, **ROLES)
    assert len(asked.history_) == 10


def test_the_time_for_training_is_a_limit(monkeypatch):
    now = iter(range(10**6))
    monkeypatch.setattr("efattn.training.loop.time.monotonic", lambda: float(next(now)))
    found = model(training=replace(STEPS, epochs=500, patience=None, seconds=60.0)).fit(TABLE, **ROLES)
    for name in ("item", "real"):
        records = [record for record in found.history_ if record["term"] == name]
        assert 1 <= len(records) < 20
        assert sum(record["seconds"] for record in records) >= 30
        assert records[-1]["best"] is not None


def test_a_fit_to_few_rows_runs_on_one_thread_and_leaves_the_others_alone():
    seen, before = [], torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        model().fit(TABLE, **ROLES, callbacks=lambda record: seen.append(torch.get_num_threads()))
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert set(seen) == {1}
