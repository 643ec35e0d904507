"""MovieLens 100K, whole and in the paper's two filtered versions."""

from typing import TYPE_CHECKING

from efattn.datasets.origins import Origin

if TYPE_CHECKING:
    import polars as pl

MOST_RATED = 50


def movielens_100k(*, download: bool = True) -> "pl.DataFrame":
    """100,000 ratings of 1,682 movies by 943 users of movielens.umn.edu, September 1997 to April 1998.

    Size: 100,000 rows, sorted by user, timestamp and movie. Nothing is missing.

        user         Int64   1 to 943, each with at least 20 ratings
        movie        Int64   1 to 1682
        title        String  of the movie; 18 titles belong to two movies each, so that `movie` is the item
        rating       Int64   1 to 5
        timestamp    Int64   seconds since 1970; three ratings in four share theirs with another one by the user

        user  movie  title                       rating  timestamp
        1     168    Monty Python and the Ho...  5       874965478
        1     172    Empire Strikes Back, Th...  5       874965478
        1     165    Jean de Florette (1986)     5       874965518

    Source: GroupLens Research, University of Minnesota, https://grouplens.org/datasets/movielens/100k/ . F. M. Harper
    and J. A. Konstan (2015), The MovieLens Datasets: History and Context, ACM TiiS 5(4), 19.
    Licence: research use with acknowledgement; no redistribution, no commercial use without permission. The archive
    (5 MB) is downloaded into the cache when the set is nowhere on the machine, unless download=False.

        EFA(family="ordinal", context="others").fit(
            movielens_100k(), group="user", item="movie", value="rating", order="timestamp")
    """
    import polars as pl

    files = ORIGIN.read(download=download)
    names = ["user", "movie", "rating", "timestamp"]
    ratings = pl.read_csv(files["u.data"], separator="\t", has_header=False, new_columns=names)
    lines = files["u.item"].decode("latin-1").splitlines()
    titles = [line.split("|")[:2] for line in lines if line]
    movies = pl.DataFrame({"movie": [int(m) for m, _ in titles], "title": [t for _, t in titles]})
    return (
        ratings.join(movies, on="movie", how="left")
        .select("user", "movie", "title", "rating", "timestamp")
        .sort("user", "timestamp", "movie")
    )


def movielens_sequences(seed: int = 0, *, download: bool = True) -> "pl.DataFrame":
    """The paper's movie sequences: which of 50 movies a user rates next.

    From `movielens_100k`, in this order: (1) the 50 movies with the most ratings (of the two that tie for the last
    place, movie 28 and not 191: the smaller id gives the paper's counts); (2) users with two or more ratings per
    distinct timestamp are dropped, because their order is not known; (3) of the movies with one timestamp, one is kept
    at random. The draw moves which movies are kept, never how many.

    Size: 13,757 rows, 902 users, 50 movies (sparsity 69.50 %), sorted by user and timestamp, no ties. The columns are
    those of `movielens_100k`.

        user  movie  title                       rating  timestamp
        1     172    Empire Strikes Back, Th...  5       874965478
        1     127    Godfather, The (1972)       5       874965706
        1     117    Rock, The (1996)            3       874965739

        EFA(context="past", terms="item").fit(
            movielens_sequences(), group="user", item="movie", order="timestamp")
    """
    return _filtered(movielens_100k(download=download), seed)


def movielens_ratings(seed: int = 0, *, download: bool = True) -> "pl.DataFrame":
    """The paper's ratings: 1, 2 or 3 for each of 50 movies.

    From `movielens_100k`, in this order: (1) only ratings of 3, 4 and 5, less 2; (2) to (4) the three steps of
    `movielens_sequences`, so that the 50 movies are those with the most of these ratings (the tie for the last place
    is between movies 276 and 357; the smaller id is kept); (5) the eight users left with one rating are dropped.

    Size: 12,465 rows, 893 users, 50 movies (sparsity 72.08 %), sorted by user and timestamp, no ties. The columns are
    those of `movielens_100k`; `rating` is 1, 2 or 3.

        user  movie  title                       rating  timestamp
        1     172    Empire Strikes Back, Th...  3       874965478
        1     127    Godfather, The (1972)       3       874965706
        1     117    Rock, The (1996)            1       874965739

        EFA(family=families.Poisson(shift=1), context="others", terms="value").fit(
            movielens_ratings(), group="user", item="movie", value="rating", order="timestamp")
    """
    import polars as pl

    high = movielens_100k(download=download).filter(pl.col("rating") >= 3).with_columns(pl.col("rating") - 2)
    return _filtered(high, seed).filter(pl.len().over("user") > 1)


def _filtered(ratings: "pl.DataFrame", seed: int) -> "pl.DataFrame":
    """The most rated movies, users whose order is known, one movie per timestamp."""
    import numpy as np
    import polars as pl

    most = ratings.group_by("movie").len().sort("len", "movie", descending=[True, False]).head(MOST_RATED)
    rows = ratings.join(most, on="movie", how="semi").sort("user", "timestamp", "movie")
    rows = rows.filter((pl.len() / pl.col("timestamp").n_unique()).over("user") < 2)
    rows = rows.with_columns(draw=np.random.default_rng(seed).random(len(rows)))
    return rows.filter((pl.col("draw") == pl.col("draw").min()).over("user", "timestamp")).drop("draw")


ORIGIN = Origin(
    name="movielens-100k",
    files={"u.data": "6e47046882bad158b0efbb84cd5cb987", "u.item": "c9e7f390115d79079537301d5204f3f7"},
    source="GroupLens, https://grouplens.org/datasets/movielens/100k/",
    licence="research use with acknowledgement, no redistribution",
    advice="Unpack https://files.grouplens.org/datasets/movielens/ml-100k.zip .",
    archive="https://files.grouplens.org/datasets/movielens/ml-100k.zip",
    inside="ml-100k/",
)
