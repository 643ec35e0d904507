"""Data the paper does not use: parts are apart, ties tell nothing, and every model fits and is tested."""

import numpy as np
import polars as pl
import pytest
from shell import efattn

from efattn import datasets
from efattn.experiments import measuring, records
from efattn.experiments.presets import beyond
from efattn.experiments.presets.beyond import users, years
from efattn.experiments.settings import Split
from efattn.training import Training

QUICK = Training(epochs=2, patience=None, device="cpu")
EVERY = [pytest.param(s, e, id=f"{s.name}, {e.model}") for s in beyond.SETTINGS for e in s.entries]


@pytest.fixture
def movies(monkeypatch):
    """A small MovieLens: 80 users, 12 of 14 movies each, all at one of two times; a movie that one user has."""
    draw = np.random.default_rng(1)
    movie = np.sort([draw.permutation(14)[:12] + 1 for _ in range(80)], axis=1)
    movie[17, -1] = 99
    frame = pl.DataFrame(
        {
            "user": np.repeat(np.arange(80), 12),
            "movie": movie.ravel(),
            "title": movie.ravel().astype(str),
            "rating": draw.integers(1, 6, movie.size),
            "timestamp": np.tile(np.repeat([5, 9], 6), 80),
        }
    )
    monkeypatch.setattr(datasets, "movielens_100k", lambda: frame)
    return frame


def test_parts_of_users_are_apart_and_know_every_movie(movies):
    drawn = [users(seed) for seed in range(12)]
    for parts in drawn:
        sets = [set(part["user"]) for part in parts]
        assert sum(map(len, sets)) == len(set.union(*sets)) == 80
        assert set(parts.validation["movie"]) | set(parts.test["movie"]) <= set(parts.train["movie"])
    lost = [len(movies) - sum(map(len, parts)) for parts in drawn]
    assert set(lost) == {0, 1}, "a movie that no training user has is left out, and nothing else is"


def test_ties_are_in_an_order_that_tells_nothing_and_is_always_the_same(movies):
    train = users(0).train
    assert train.equals(users(0).train)
    steps = train.with_columns(step=pl.col("movie").diff().over("user", "timestamp")).drop_nulls()
    assert 0.4 < (steps["step"] > 0).mean() < 0.6, "not by movie"
    assert train.equals(train.sort("user", "timestamp", maintain_order=True)), "time goes first"


def test_stations_are_split_by_year():
    parts = years(0)
    assert [sorted(set(part["date"].dt.year())) for part in parts] == [[1990, 1991], [1992], [1993]]
    assert sum(map(len, parts)) == len(datasets.noaa_october())


@pytest.mark.parametrize(("setting", "entry"), EVERY)
def test_every_model_fits_and_is_tested_on_all_rows(setting, entry, movies):
    parts = setting.split(0)
    if setting.name == "NOAA stations":
        few = (pl.col("station") < 3856) & (pl.col("date").dt.day() < 16)
        parts = Split(*(part.filter(few) for part in parts))
        assert parts.train["station"].n_unique() > 5
    estimator = entry.make(0)
    if "training" in estimator.get_params():
        estimator.set_params(training=QUICK)
    estimator.fit(parts.train, **setting.roles, validation=parts.validation)
    found = measuring.tested(setting, estimator, parts.test)
    assert found["rows"] == measuring.counted(setting, parts.test).sum() > 0
    assert np.isfinite([found["value"], found["log_likelihood"]]).all()
    assert (entry.preset == "peer") == (not entry.model.startswith(("latent factors", "EFA")))
    assert entry.paper is None


@pytest.mark.slow
def test_without_movielens_the_stations_are_run(tmp_path):
    """No download gets through."""
    nowhere = {"EFATTN_DATA": "", "XDG_CACHE_HOME": str(tmp_path / "cache"), "https_proxy": "http://127.0.0.1:9"}
    folder = tmp_path / "results"
    few = (
        "--setting",
        "NOAA stations",
        "--setting",
        "MovieLens ratings, others",
        "--model",
        "kriging",
        "--model",
        "item mean",
    )
    words = ("reproduce", "beyond", "--preset", "peer", "--seeds", "1", *few, "-o", folder)
    done = efattn(*words, cwd=tmp_path, **nowhere)
    assert done.code == 2
    for part in ("'movielens-100k' is not on this machine", "$EFATTN_DATA is not set", "ml-100k.zip"):
        assert part in done.err
    assert {(r["setting"], r["model"]) for r in records.read(folder)} == {("NOAA stations", "kriging")}
    assert (folder / "summary.json").exists()
