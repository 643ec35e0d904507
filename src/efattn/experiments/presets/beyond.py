"""Data the paper does not use: all of MovieLens 100K, and weather stations. Nothing is tuned."""

from typing import Any

import numpy as np
import polars as pl

from efattn import datasets, simple
from efattn.experiments.presets import notes
from efattn.experiments.presets.shared import Context, item_defaults, item_peers, peer, untuned, untuned_latent
from efattn.experiments.settings import CROSS_ENTROPY, MSE, Setting, Split, random_users, week

ITEMS: dict[str, Any] = {"group": "user", "item": "movie", "order": "timestamp"}
RATINGS: dict[str, Any] = {"group": "user", "item": "movie", "value": "rating"}
STATIONS: dict[str, Any] = {
    "group": "date",
    "item": "station",
    "attributes": ["latitude", "longitude"],
    "value": "tmean",
}
VALUES: dict[str, Any] = {"context": "others", "terms": "value"}


def users(seed: int) -> Split:
    """Movies that no training user rated are left out of the other parts. Ties in time stand as one draw has them: by
    id, as the table is sorted, the order within a tie would tell what comes next."""
    frame = datasets.movielens_100k()
    frame = frame.with_columns(draw=np.random.default_rng(0).random(len(frame))).sort("user", "timestamp", "draw")
    parts = random_users(frame.drop("draw"), seed)
    known = pl.col("movie").is_in(parts.train["movie"].unique().implode())
    return Split(parts.train, parts.validation.filter(known), parts.test.filter(known))


def years(seed: int) -> Split:
    frame, year = datasets.noaa_october(), pl.col("date").dt.year()
    return Split(frame.filter(year <= 1991), frame.filter(year == 1992), frame.filter(year >= 1993))


def _items(context: Context) -> Setting:
    question: dict[str, Any] = {"context": context, "terms": "item"}
    peers = item_peers(context, ("distinct",), times=True)
    entries = (*peers, untuned_latent(**question), *item_defaults(context, times=True))
    known: dict[str, Any] = {"moving": True, "notes": notes.MOVIES, "seconds": 500.0}
    return Setting("beyond", f"MovieLens items, {context}", users, ITEMS, CROSS_ENTROPY, entries, **known)


def _ratings() -> Setting:
    entries = (
        peer("item mean", simple.ItemMean()),
        peer("shrunk item and user mean", simple.ShrunkMean()),
        peer("ridge per item", simple.RidgePerItem()),
        peer("linear model", simple.LinearModel()),
        peer("low-rank Gaussian", simple.GaussianConditional()),
        untuned_latent(**VALUES),
        untuned(**VALUES),
    )
    known: dict[str, Any] = {"moving": True, "notes": (*notes.MOVIES, *notes.STARS), "seconds": 250.0}
    return Setting("beyond", "MovieLens ratings, others", users, RATINGS, MSE, entries, **known)


def _stations() -> Setting:
    entries = (
        peer("linear model", simple.LinearModel()),
        peer("ridge per station", simple.RidgePerItem()),
        peer("lasso per station", simple.LassoPerItem()),
        peer("Gaussian conditional", simple.GaussianConditional()),
        peer("kriging", simple.Kriging()),
        peer("inverse distance", simple.InverseDistance()),
        untuned_latent(**VALUES, neighbours=5, standardise="item"),
        untuned(**VALUES),
    )
    known: dict[str, Any] = {"notes": notes.STATIONS, "block": week, "seconds": 120.0}
    return Setting("beyond", "NOAA stations", years, STATIONS, MSE, entries, **known)


SETTINGS = (_items("past"), _items("others"), _ratings(), _stations())
