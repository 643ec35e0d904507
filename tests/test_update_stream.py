"""Updates that follow a stream: new items are learnt, old ones do not drift."""

import numpy as np
import polars as pl
import pytest
import torch
from typer.testing import CliRunner

import efattn
from efattn import EFA
from efattn.cli import app
from efattn.errors import DataError
from efattn.estimators.updating import _surely_best
from efattn.training import Training

ROLES = {"group": "user", "item": "item", "order": "at", "progress": False}
ITEMS, OLD = 24, 18


def events(first: int, users: int, items: int, seed: int) -> pl.DataFrame:
    """Users walk through old items by steps of three, through new ones by steps of one."""
    draw, rows = np.random.default_rng(seed), []
    for user in range(first, first + users):
        x = int(draw.integers(items))
        for at in range(5):
            rows.append((user, at, x))
            x = (x + 3) % OLD if x < OLD else OLD + (x - OLD + 1) % (ITEMS - OLD)
    return pl.DataFrame(rows, ["user", "at", "item"], orient="row")


@pytest.fixture(scope="module")
def stream():
    """Before, a day, and the day after it; and a model of what was before."""
    before, day, after = events(0, 150, OLD, 0), events(1000, 50, ITEMS, 1), events(2000, 80, ITEMS, 2)
    options = {"context": "past", "terms": "item", "companions": None, "refit": False, "width": 8}
    training = Training(epochs=40, tokens=128, rate=0.01, device="cpu")
    model = EFA(**options, training=training, seed=0).fit(before, **ROLES)
    return model, before, day, after


def old_score(model: EFA, table: pl.DataFrame) -> float:
    """Of rows of old items whose context has old items alone."""
    strange = table.filter(pl.col("item") >= OLD)["user"].unique().implode()
    return model.score(table.filter(~pl.col("user").is_in(strange)))


def test_new_items_are_learnt_and_old_ones_do_not_drift(stream):
    model, before, day, after = stream
    was, known = old_score(model, after), model.score(before)
    weights = {name: x.clone() for name, x in model.model_.state_dict().items()}
    model.update(day, progress=False)
    assert model.schema_.vocabulary.names == list(range(ITEMS))
    likely = model.log_likelihood(after).filter(pl.col("item") >= OLD)["item_log_likelihood"]
    assert float(likely.mean()) > -np.log(ITEMS) + 1, "they are learnt"
    lost = np.log(ITEMS / OLD) / 5  # of first rows, what the new ones take of all others' probability
    assert old_score(model, after) > was - lost - 0.12
    assert model.score(before) > known - lost - 0.12
    assert set(weights) == set(model.model_.state_dict())
    assert any(note.kind == "update" for note in model.notes_)


def test_items_that_a_day_lacks_stay_as_they_were(stream):
    model, before, _, _ = stream
    fresh = EFA(**{**model.get_params(deep=False), "training": Training(epochs=3, tokens=128, device="cpu")})
    fresh.fit(before, **ROLES)
    few = before.filter((pl.col("item") < 6).all().over("user") | (pl.col("user") < 12))
    few = few.filter(pl.col("item") < 9).with_columns(user=pl.col("user") + 5000)
    old = {name: x.clone() for name, x in fresh.model_.state_dict().items()}
    fresh.update(few, validation=None, training=Training(epochs=5, tokens=64, rate=0.01, device="cpu"), progress=False)
    now, moved = fresh.model_.state_dict(), 0
    lacking = [x for x in range(OLD) if x not in few["item"].unique().to_list()]
    assert lacking
    for name, x in now.items():
        if name.endswith(("vectors.weight", "head.bias", "head.body.0.weight")):
            assert torch.equal(x[lacking], old[name][lacking]), name
            moved += int(not torch.equal(x[:6], old[name][:6]))
    assert moved


def test_rows_that_are_no_targets_are_history_alone(stream):
    model, _, day, _ = stream
    marked = day.with_columns(new=pl.col("at") >= 3)
    fresh = EFA(**{**model.get_params(deep=False), "training": Training(epochs=2, device="cpu")})
    fresh.fit(day, **ROLES)
    fresh.update(marked, target="new", progress=False)
    assert fresh.schema_.roles.target is None
    with pytest.raises(DataError, match="There is no column 'soon'"):
        fresh.update(day, target="soon")


def test_old_weights_stay_unless_held_out_groups_are_surely_predicted_better():
    draw = np.random.default_rng(0)
    noise = draw.normal(size=(5, 100))
    assert _surely_best(0.001 * np.arange(5)[:, None] + noise) in range(5)
    level = np.zeros((5, 100))
    level[1:] = noise[1:] - noise[1:].mean(1, keepdims=True) + 0.01
    assert _surely_best(level) == 0
    level[3] += 1.0
    assert _surely_best(level) == 3


def test_features_of_new_items_come_with_an_update():
    draw = np.random.default_rng(0)
    rows = [(u, at, int(x)) for u in range(60) for at, x in enumerate(draw.permutation(np.arange(u % 2, 12, 2))[:4])]
    table = pl.DataFrame(rows, ["user", "at", "item"], orient="row")
    known = pl.DataFrame({"item": range(12), "kind": ["even", "odd"] * 6})
    options = {"context": "past", "terms": "item", "companions": None, "refit": False, "width": 8}
    model = EFA(**options, training=Training(epochs=3, tokens=64, rate=0.01, device="cpu"))
    model.fit(table, **ROLES, item_features=known)
    more = pl.DataFrame({"item": [12, 13], "kind": ["even", "odd"]})
    model.update(table, item_features=more, progress=False)
    assert len(model.schema_.vocabulary) == len(model.schema_.features) == 14
    assert model.schema_.features.having("kind", ["odd"]).tolist() == [False, True] * 7
    plain = EFA(**options, training=Training(epochs=1, device="cpu")).fit(table, **ROLES)
    with pytest.raises(DataError, match="fitted without features"):
        plain.update(table, item_features=more)


def test_the_shell_updates_as_python_does(stream, tmp_path):
    _, before, day, _ = stream
    options = {"context": "past", "terms": "item", "companions": None, "refit": False, "width": 8}
    model = EFA(**options, training=Training(epochs=2, device="cpu")).fit(before, **ROLES)
    model.save(tmp_path / "m.efattn")
    marked = day.with_columns(new=pl.col("at") >= 2)
    marked.write_csv(tmp_path / "day.csv")
    words = ["update", str(tmp_path / "m.efattn"), str(tmp_path / "day.csv"), "--target", "new", "--epochs", "3"]
    found = CliRunner().invoke(app, [*words, "-o", str(tmp_path / "n.efattn")])
    assert found.exit_code == 0, found.output
    model.update(marked, target="new", training=Training(epochs=3, rate=1e-3, device="cpu"), progress=False)
    assert efattn.load(tmp_path / "n.efattn").score(day) == pytest.approx(model.score(day), rel=1e-6)
