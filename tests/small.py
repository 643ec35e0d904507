"""Small tables and quick fits, for the tests of estimators, training and model files."""

import numpy as np
import polars as pl

from efattn import EFA, LatentFactor, Training

QUICK = Training(epochs=2, tokens=64, device="cpu")
SIZES = {"width": 8, "layers": 2, "heads": 2}


def efa(**parameters):
    return EFA(**{**SIZES, "training": QUICK, "companions": None, "refit": False, **parameters})


def latent(**parameters):
    return LatentFactor(**{"width": 4, "training": QUICK, **parameters})


def days(groups=200, seed=0):
    """Six places that go together, each day complete."""
    rng = np.random.default_rng(seed)
    level = rng.normal(size=(groups, 2)) @ np.array([[1.0, 1, 1, 0.5, 0, 0], [0, 0, 0.5, 1, 1, 1]])
    y = level + 0.3 * rng.normal(size=(groups, 6))
    return pl.DataFrame({"g": np.repeat(np.arange(groups), 6), "i": np.tile(np.arange(6), groups), "y": y.ravel()})


def ratings(seed=0, users=16, movies=8):
    """Distinct movies per user, in order of `at`, with columns for every family."""
    draw, rows = np.random.default_rng(seed), []
    for user in range(users):
        taste = draw.normal()
        for at, movie in enumerate(draw.permutation(movies)[: draw.integers(1, movies)]):
            real = 3 + taste + 0.3 * movie + draw.normal()
            rows.append(
                {
                    "user": f"u{user}",
                    "movie": f"m{movie}",
                    "at": at,
                    "rating": int(np.clip(round(real), 1, 5)),
                    "real": real,
                    "count": int(draw.poisson(np.exp(0.5 * taste + 1))),
                    "share": 1 / (1 + np.exp(-real + 3)),
                    "size": float(np.exp(taste + draw.normal())),
                    "liked": int(real > 3),
                    "hours": float(draw.uniform(0.5, 2)),
                    "x": float(movie) + draw.normal(),
                    "z": taste,
                }
            )
    return pl.DataFrame(rows)


def weather(seed=0, days=24, stations=5):
    """One group per day, the same stations, each day near the day before."""
    draw, rows, base = np.random.default_rng(seed), [], 0.0
    place = draw.uniform([30, -100], [45, -80], (stations, 2))
    for day in range(days):
        base = 0.8 * base + draw.normal()
        for station in range(stations):
            here = {"day": day, "station": station, "latitude": place[station, 0], "longitude": place[station, 1]}
            warm = 60 - here["latitude"] + 4 * base + draw.normal()
            rows.append({**here, "tmax": warm + 5 + draw.random(), "tmin": warm - 5 - draw.random()})
    return pl.DataFrame(rows)


def predictions(model, table, columns):
    """The named columns that predict added, as an array."""
    return np.column_stack([model.predict(table)[name].to_numpy() for name in columns])
