"""Fitted once more to all groups: what was chosen on held-out ones stays, and so does what is told of them."""

from dataclasses import replace

import polars as pl
import pytest
import small_training
import torch
from shell import forked
from small import ratings
from small_training import PLATEAU, STEPS, TABLE, Stop, dying_at, model, same, weights, without_seconds

import efattn
from efattn import DataError, simple
from efattn.estimators.verdict import verdict
from efattn.training import Fitting, Replay, forget, left_in

COLUMNS = small_training.ROLES
ROLES = {**COLUMNS, "validation": 0.2}


def records(*epochs):
    """(rate, validation) of each."""
    return [{"rate": rate, "validation": score, "train": -9.0 + k} for k, (rate, score) in enumerate(epochs)]


def test_what_served_is_what_was_not_taken_back():
    history = records(
        (3, -5.0), (3, -4.0), (3, -4.5), (3, -4.2), (1, -3.9), (1, -3.8), (1, -4.0), (0.5, -3.7), (0.5, -3.9)
    )
    assert Replay.of(history, 10, goes_back=True).rates == (3, 3, 1, 1, 0.5)
    assert Replay.of(history, 10, goes_back=False).rates == (3, 3, 3, 3, 1, 1, 1, 0.5)
    assert Replay.of(records((3, None), (3, None)), 10, goes_back=True).rates == (3, 3)


def test_a_second_fit_has_as_many_steps_and_the_same_rates():
    replay = Replay((4.0, 2.0), batches=30)
    assert replay.epochs(40) == round(60 / 40)
    assert replay.epochs(1000) == 1
    assert [replay.rate(step, 10) for step in range(10)] == [4.0] * 5 + [2.0] * 5


def test_a_second_fit_is_to_fit_its_rows_nearly_as_well_as_the_first():
    history = records((3, -5.0), (3, -4.0), (3, -4.5))
    assert Replay.of(history, 10, goes_back=True).reached == pytest.approx(-9 + 0.9)


@pytest.mark.parametrize(("reached", "epochs"), [(-float("inf"), 2), (float("inf"), 4)])
def test_a_second_fit_goes_on_while_its_rows_are_less_likely(reached, epochs):
    """As where the first was best while it had just begun to learn; twice as long, at most."""
    told: list = []
    first = model().fit(TABLE, **ROLES, planned=told.append)
    term = first.model_.train()
    fitting = Fitting(term, told[0].train, None, replace(STEPS, patience=None))
    steps = len(told[0].train.plan(STEPS.cells, shuffle=0, epoch=0))
    fitting.replays = {name: Replay((0.01, 0.01), steps, reached) for name in term.terms}
    fitting.run()
    assert {name: sum(r["term"] == name for r in fitting.history) for name in term.terms} == dict.fromkeys(
        term.terms, epochs
    )


@pytest.mark.parametrize("ensemble", [1, 2])
def test_a_refitted_model_knows_all_groups_and_tells_of_the_first_fit(ensemble, tmp_path):
    options = {"training": PLATEAU, "companions": [simple.GaussianConditional(), simple.LinearModel()]}
    once = model(**options, ensemble=ensemble).fit(TABLE, **ROLES)
    again = model(**options, ensemble=ensemble, refit="auto").fit(TABLE, **ROLES)
    assert without_seconds(again.history_) == without_seconds(once.history_)
    assert not same(weights(again), weights(once))
    for one, two in zip(once.companions_["real"], again.companions_["real"], strict=True):
        assert one.share == two.share
        pairs = zip(one.model.state_dict().values(), two.model.state_dict().values(), strict=True)
        assert any(not torch.equal(x, y) for x, y in pairs)
    assert "Fitted once more to all groups" in again.summary()
    assert "Fitted once more" not in once.summary()
    again.save(tmp_path / "m.efattn")
    assert efattn.load(tmp_path / "m.efattn").score(TABLE) == pytest.approx(again.score(TABLE), rel=1e-6)


def test_the_verdict_is_of_the_first_fit():
    told = []
    once = model(training=PLATEAU).fit(TABLE, **ROLES)
    again = model(training=PLATEAU, refit=True).fit(TABLE, **ROLES, planned=told.append)
    mine = {name: scores["model"] for name, scores in verdict(again, told[0]).items()}
    assert mine == pytest.approx({name: scores["model"] for name, scores in verdict(once, told[0]).items()})


def test_only_groups_of_the_table_itself_are_taken_back():
    users = pl.col("user").is_in(["u1", "u2", "u3"])
    parts = TABLE.filter(~users), TABLE.filter(users)
    auto, once = (
        model(training=STEPS, refit=refit).fit(parts[0], **COLUMNS, validation=parts[1]) for refit in ("auto", False)
    )
    assert same(weights(auto), weights(once))
    with pytest.raises(DataError, match=r"refit=True fits to all of this table: pass validation=0\.2"):
        model(refit=True).fit(parts[0], **COLUMNS, validation=parts[1])
    whole = model(training=replace(STEPS, patience=None), refit=True).fit(TABLE, **COLUMNS, validation=None)
    assert "once more" not in whole.summary()


@pytest.mark.parametrize("ensemble", [1, 2])
def test_a_refit_that_is_resumed_is_the_same(tmp_path, monkeypatch, ensemble):
    make = {"training": replace(STEPS, epochs=2), "refit": "auto", "ensemble": ensemble}
    whole = model(**make).fit(TABLE, **ROLES)
    count = dying_at(monkeypatch, -1)
    model(**make).fit(TABLE, **ROLES, checkpoint=tmp_path)
    forget(tmp_path)
    assert not list(tmp_path.iterdir())
    for number in sorted({2, count[0] // 2 + 2, count[0]} if ensemble > 1 else {count[0] // 2, count[0] - 1, count[0]}):
        monkeypatch.undo()
        dying_at(monkeypatch, number)
        with pytest.raises(Stop):
            model(**make).fit(TABLE, **ROLES, checkpoint=tmp_path)
        monkeypatch.undo()
        assert left_in(tmp_path)
        resumed = model(**make).fit(TABLE, **ROLES, checkpoint=tmp_path, resume=True)
        assert same(weights(resumed), weights(whole)), number
        assert without_seconds(resumed.history_) == without_seconds(whole.history_)
        resumed.save(tmp_path / "m.efattn")
        assert [path.name for path in tmp_path.iterdir()] == ["m.efattn"]
        (tmp_path / "m.efattn").unlink()


def test_an_interrupt_of_the_second_fit_keeps_the_first():
    once = model(training=STEPS).fit(TABLE, **ROLES)
    number = [0]
    estimator = model(training=STEPS, refit=True)
    build = estimator._build

    def counted(*arguments, **options):
        number[0] += 1
        if number[0] == 2:
            raise KeyboardInterrupt
        return build(*arguments, **options)

    estimator._build = counted
    with pytest.raises(KeyboardInterrupt):
        estimator.fit(TABLE, **ROLES)
    assert same(weights(estimator), weights(once))


def test_the_shell_can_do_without(tmp_path):
    ratings().write_csv(tmp_path / "t.csv")
    words = ["fit", "t.csv", "--group", "user", "--item", "movie", "--value", "real", "--width", "8", "--no-compare"]
    words += ["--epochs", "2", "--device", "cpu", "--companions", "none", "-o"]
    forked(*words, "auto.efattn", cwd=tmp_path).good()
    forked(*words, "once.efattn", "--no-refit", cwd=tmp_path).good()
    told = {name: forked("summary", f"{name}.efattn", cwd=tmp_path).good().out for name in ("auto", "once")}
    assert "once more to all groups" in told["auto"]
    assert "once more" not in told["once"]
