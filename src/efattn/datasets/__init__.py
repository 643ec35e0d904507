"""Data sets, as tidy polars frames ready for `fit`.

Importing this package is cheap: polars loads with the first set. `DATASETS` says of each what it is, and where it was
found or how to get it; `origins` says how it is looked for.
"""

from typing import TYPE_CHECKING

from efattn.datasets import amazon, groceries, movielens, weather
from efattn.datasets.amazon import amazon_beauty, amazon_beauty_categories
from efattn.datasets.groceries import instacart
from efattn.datasets.movielens import movielens_100k, movielens_ratings, movielens_sequences
from efattn.datasets.origins import DataSet
from efattn.datasets.small_tables import ORIGINS, airquality, county_murders, epil, grunfeld, house_votes, strangers
from efattn.datasets.weather import noaa_october, us_cities

if TYPE_CHECKING:
    import polars as pl

__all__ = [
    "DATASETS",
    "DataSet",
    "airquality",
    "amazon_beauty",
    "amazon_beauty_categories",
    "county_murders",
    "epil",
    "grunfeld",
    "house_votes",
    "instacart",
    "movielens_100k",
    "movielens_ratings",
    "movielens_sequences",
    "noaa_october",
    "strangers",
    "synthetic_ratings",
    "us_cities",
]


def synthetic_ratings(users: int = 10_000, seed: int = 42) -> "pl.DataFrame":
    """The paper's synthetic ratings of five movies, in which order is everything: `synthetic.ratings` as a frame.

    Size: 5 rows per user, sorted by user and position. Users 1 to 7,500 train in the paper, the last 2,500 test; on
    these the mean squared error of the model that drew the data, which no other can beat, is 1.0226.

        user        Int64    1, 2, ...
        movie       Int64    1 to 5, each once per user
        rating      Float64  N(mean, 1)
        position    Int64    1 to 5, when the user rated it
        mean        Float64  what the rating was drawn around: 1, 3 or 5. For checking, not for fitting

        user  movie  rating    position  mean
        1     2      5.473861  1         5.0
        1     5      4.36845   2         3.0
        1     3      2.083173  3         3.0

    Source: drawn when asked for, with NumPy's legacy generator, which gives the same numbers everywhere.

        EFA(family="gaussian", context="past", terms="value").fit(
            synthetic_ratings(), group="user", item="movie", value="rating", order="position")
    """
    import numpy as np
    import polars as pl

    from efattn.datasets import synthetic
    from efattn.errors import DataError

    if users < 1:
        raise DataError(f"users must be at least 1, not {users}.")
    drawn = synthetic.ratings(users, seed)
    return pl.DataFrame(
        {
            "user": np.repeat(np.arange(1, users + 1), 5),
            "movie": drawn.movie.ravel(),
            "rating": drawn.rating.ravel(),
            "position": np.tile(np.arange(1, 6), users),
            "mean": drawn.mean.ravel(),
        }
    )


DATASETS: tuple[DataSet, ...] = (
    DataSet(
        "synthetic", synthetic_ratings, "50,000 ratings of 5 movies whose order decides, drawn by a known rule", None
    ),
    DataSet("movielens-100k", movielens_100k, "100,000 ratings of 1,682 movies by 943 users", movielens.ORIGIN),
    DataSet(
        "movielens-sequences", movielens_sequences, "the paper's: 902 users, 50 movies, in order", movielens.ORIGIN
    ),
    DataSet(
        "movielens-ratings", movielens_ratings, "the paper's: ratings 1 to 3, 893 users, 50 movies", movielens.ORIGIN
    ),
    DataSet("instacart", instacart, "24,781 baskets of 63 groceries, and 1,433 to test", groceries.ORIGIN),
    DataSet("us-cities", us_cities, "daily temperatures of 47 cities, 13 Octobers", weather.CITIES),
    DataSet("amazon-beauty", amazon_beauty, "198,502 reviews of 12,101 products by 22,363 users", amazon.ORIGIN),
    DataSet("house-votes", house_votes, "votes of 427 members of Congress on 16 bills", ORIGINS["house-votes"]),
    DataSet("grunfeld", grunfeld, "investments of 10 firms in 20 years", ORIGINS["grunfeld"]),
    DataSet("epil", epil, "seizures of 59 patients in 4 periods", ORIGINS["epil"]),
    DataSet("airquality", airquality, "four measurements of New York's air on 153 days", ORIGINS["airquality"]),
    DataSet("county-murders", county_murders, "murders in 2,197 counties in 17 years", ORIGINS["county-murders"]),
    DataSet("noaa-october", noaa_october, "daily temperatures of 110 stations, 4 Octobers", weather.NOAA),
)
