"""Weather with gaps: stations that were never seen, and cities of which cells are missing.

Each row that is predicted stands in a copy of its day of its own, where the others that are predicted are absent (new
stations) or have no value (missing cells): it is predicted from what remains of its day, and from nothing else.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import polars as pl

from efattn import datasets, simple
from efattn.experiments.presets import cities, notes
from efattn.experiments.presets.beyond import STATIONS, VALUES
from efattn.experiments.presets.shared import peer, untuned
from efattn.experiments.settings import MSE, Setting, Split, week

FOLDS, IN_A_FOLD = 10, 11
RATES = (0.1, 0.3, 0.5)


def new_stations(fold: int) -> Split:
    """Stations sorted by number and drawn once, eleven a fold: neither in training nor in validation, of which the
    other 99 are."""
    frame, new = _stations_with_new(fold)
    train, validation = (frame.filter(year, ~new) for year in (pl.col("year") <= 1991, pl.col("year") == 1992))
    return Split(train, validation, new_stations_in(fold, 1993))


def new_stations_in(fold: int, year: int) -> pl.DataFrame:
    """Each of the new ones of a day with all known ones."""
    frame, new = _stations_with_new(fold)
    rows = frame.filter(pl.col("year") == year)
    return one_at_a_time(rows, rows.select(new).to_series().to_numpy(), drop=True)


def _stations_with_new(fold: int) -> tuple[pl.DataFrame, pl.Expr]:
    frame = datasets.noaa_october().with_columns(day=pl.col("date").dt.to_string(), year=pl.col("date").dt.year())
    stations = frame["station"].unique().sort().to_numpy()
    drawn = stations[np.random.default_rng(0).permutation(len(stations))][fold * IN_A_FOLD : (fold + 1) * IN_A_FOLD]
    return frame.with_columns(date="day", scored=True), pl.col("station").is_in(pl.Series(drawn).implode())


def missing_cells(seed: int, rate: float) -> Split:
    """Cells of test days drawn once for each seed, days and cities in the order of the file."""
    parts = cities.split(seed)
    train, validation = (part.with_columns(day="date", scored=True) for part in parts[:2])
    return Split(train, validation, _with_gaps(parts.test, seed, rate))


def missing_in_validation(seed: int, rate: float) -> pl.DataFrame:
    return _with_gaps(cities.split(seed).validation, seed, rate)


def _with_gaps(part: pl.DataFrame, seed: int, rate: float) -> pl.DataFrame:
    places, days = part.select("city", "state").n_unique(), part["date"].n_unique()
    gone = (np.random.default_rng(seed).random((days, places)) < rate).ravel()  # the file is sorted by day
    named = part.with_columns(day="date", date=pl.col("date").dt.to_string())
    return one_at_a_time(named, gone, value="temperature")


def one_at_a_time(
    part: pl.DataFrame, asked: np.ndarray, *, value: str | None = None, drop: bool = False
) -> pl.DataFrame:
    """For each row asked about a copy of its day, a group of its own, in which `scored` marks it. The others asked
    about are dropped, or have no value. part: sorted by day."""
    copies = list(_copies(part.with_columns(asked=asked), drop, value))
    return pl.concat(copies).drop("asked")


def _copies(part: pl.DataFrame, drop: bool, value: str | None) -> Iterator[pl.DataFrame]:
    for (day,), rows in part.group_by("date", maintain_order=True):
        for k in np.flatnonzero(rows["asked"].to_numpy()):
            mine = np.arange(len(rows)) == k
            copy = rows.with_columns(scored=pl.Series(mine), date=pl.lit(f"{day}/{k}"))
            others = pl.col("asked") & ~pl.col("scored")
            if drop:
                copy = copy.filter(~others)
            if value is not None:
                copy = copy.with_columns(pl.when(others).then(None).otherwise(pl.col(value)).alias(value))
            yield copy


def _stations() -> Setting:
    entries = (
        peer("Gaussian conditional", simple.GaussianConditional()),
        peer("kriging", simple.Kriging()),
        peer("kriging without item", simple.Kriging(), without=("item",)),
        peer("inverse distance", simple.InverseDistance()),
        untuned(**VALUES),
        untuned("EFA, without item", without=("item",), **VALUES),
    )
    known: dict[str, Any] = {"moving": True, "splits": FOLDS, "scored": "scored", "cluster": "day", "seconds": 150.0}
    known |= {"block": week, "check": partial(new_stations_in, year=1992)}
    name = "NOAA, new stations"
    return Setting("beyond", name, new_stations, STATIONS, MSE, entries, notes=notes.NEW_STATIONS, **known)


def _cities(rate: float) -> Setting:
    base = cities.SETTINGS[0]
    entries = tuple(entry for entry in base.entries if entry.preset in ("peer", "defaults"))
    known: dict[str, Any] = {"moving": True, "scored": "scored", "cluster": "day", "fits_of": base.title}
    known |= {"block": week, "check": partial(missing_in_validation, rate=rate)}
    split: Callable[[int], Split] = partial(missing_cells, rate=rate)
    name = f"US cities, {100 * rate:.0f} % missing"
    return Setting("beyond", name, split, base.roles, MSE, entries, notes=notes.MISSING_CELLS, **known)


SETTINGS: tuple[Setting, ...] = (_stations(), *map(_cities, RATES))
