"""October temperatures of 44 cities: each from the others of its day, and from the days before."""

from functools import partial
from typing import Any

import polars as pl

from efattn import datasets, families, simple
from efattn.experiments.presets import notes
from efattn.experiments.presets.shared import adam, best, latent, papers, peer, untuned
from efattn.experiments.settings import MSE, Entry, Setting, Split, week

PLACES = {"item": ["city", "state"], "attributes": ["latitude", "longitude"], "value": "temperature"}
ROLES: dict[str, Any] = {"group": "date", **PLACES}
LAGGED = {**ROLES, "time": "date", "target": "october"}
NEIGHBOURS = (1, 2, 3, 4, 5, 10, 15, 20, 25, 30, 35, 40)
QUESTION: dict[str, Any] = {"family": "gaussian", "context": "others", "terms": "value"}
BEST: dict[str, Any] = {"ensemble": 2, "companions": simple.GaussianConditional()}
LAYERS = {1: 17.135, 2: 11.522, 4: 11.224}
DAYS = {1: 9.248, 2: 10.420}
FULL = adam(2000, None, rate=1e-3, tokens=1_000_000)
BATCHES = {1: adam(200, None, rate=1e-3, tokens=264), 2: adam(200, None, rate=1e-3, tokens=396)}  # three days of 44


def split(seed: int, lags: int = 0) -> Split:
    frame = datasets.us_cities("paper").with_columns(october=pl.col("date").dt.month() == 10)
    if not lags:
        frame = frame.filter("october")
    year = pl.col("date").dt.year()
    return Split(frame.filter(year <= 2012), frame.filter(year.is_between(2013, 2016)), frame.filter(year >= 2017))


def by_city(estimator: Any, parts: Split) -> dict[str, Any]:
    """Mean squared error and place of each city, the place as exactly as a map of a continent shows it."""
    predicted = estimator.predict(parts.test, interval=None).filter("october")
    error = (pl.col("temperature_mean") - pl.col("temperature")) ** 2
    table = predicted.group_by("city", "state", "latitude", "longitude", maintain_order=True).agg(error=error.mean())
    kept = table.select("city", pl.col("latitude", "longitude").round(3), pl.col("error").round(4))
    return {"cities": kept.to_dict(as_series=False)}


def _peers(lags: int) -> tuple[Entry, ...]:
    peers = [
        peer("linear model", simple.LinearModel(), lags=lags),
        peer("ridge per city", simple.RidgePerItem(), lags=lags),
        peer("lasso per city", simple.LassoPerItem(), lags=lags),
        peer("Gaussian conditional", simple.GaussianConditional(), lags=lags),
        peer("kriging", simple.Kriging(), lags=lags),
    ]
    if not lags:
        return (*peers, peer("inverse distance", simple.InverseDistance()))
    return (*peers, peer("persistence", simple.Persistence(), lags=1)) if lags == 1 else tuple(peers)


def _no_lag() -> Setting:
    known: dict[str, Any] = {"family": families.Gaussian(variance=1.0), "context": "others", "terms": "value"}
    places: list[Entry] = []
    for k in NEIGHBOURS:
        number = 22.685 if k == 5 else None
        places += [latent(f"latent factors, k={k}", number, FULL, **known, neighbours=k)]
        places += [latent(f"latent factors, k={k}, intercept", None, FULL, **known, neighbours=k, intercept=True)]
    efa = [papers(f"EFA, layers={n}", number, FULL, **known, layers=n) for n, number in LAYERS.items()]
    entries = (*_peers(0), *places, *efa, untuned(**QUESTION), best(**QUESTION, **BEST))
    return Setting(
        "cities", "no lag", split, ROLES, MSE, entries, aim=7.9, look=by_city, notes=notes.CITIES, block=week
    )


def _lag(lags: int) -> Setting:
    known: dict[str, Any] = {"family": families.Gaussian(variance=1.0), "context": "others", "terms": "value"}
    efa = papers("EFA, layers=4", DAYS[lags], BATCHES[lags], **known, layers=4, lags=lags)
    question = {**QUESTION, "lags": lags}
    entries = (*_peers(lags), efa, untuned(**question), best(**question, **BEST))
    name = "one day of lag" if lags == 1 else "two days of lag"
    told: dict[str, Any] = {"aim": 6.8 if lags == 1 else None, "look": by_city, "notes": notes.LAGS, "block": week}
    return Setting("cities", name, partial(split, lags=lags), LAGGED, MSE, entries, **told)


SETTINGS = (_no_lag(), _lag(1), _lag(2))
