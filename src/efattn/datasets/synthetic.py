"""The paper's synthetic ratings, in which order is everything.

Every user rates the same five movies in a random order. A rating is N(mean, 1) with mean 3, except

    movie 2            1 if movie 1 came earlier, else 5
    movies 3 and 4     1 for the later one where one directly follows the other
    movie 5            5 if it comes last

The mean is known from the order alone, so no model can have a smaller mean squared error than the noise: `floor`.
"""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Ratings:
    """movie (users, 5) from 1 to 5 in the order they were rated, rating (users, 5), and the mean each was drawn
    with."""

    movie: np.ndarray
    rating: np.ndarray
    mean: np.ndarray

    def __getitem__(self, users: slice) -> "Ratings":
        return Ratings(self.movie[users], self.rating[users], self.mean[users])

    @property
    def floor(self) -> float:
        """The mean squared error of the model that drew the data."""
        return float(np.mean((self.rating - self.mean) ** 2))


def ratings(users: int = 10_000, seed: int = 42) -> Ratings:
    """The paper's data with its seed: the first 7,500 users train, the last 2,500 test."""
    draw = np.random.RandomState(seed)
    movie = np.empty((users, 5), int)
    noise = np.empty((users, 5))
    for user in range(users):
        movie[user] = draw.permutation(5) + 1
        noise[user] = draw.normal(size=5)
    mean = means(movie)
    return Ratings(movie, mean + noise, mean)


def means(movie: np.ndarray) -> np.ndarray:
    """(users, 5) movies in order -> the mean of each rating."""
    mean = np.full(movie.shape, 3.0)
    place = movie.argsort(1)  # (users, 5): when each movie was rated
    for user_places, row, value in (
        (place[:, 1], slice(None), np.where(place[:, 0] < place[:, 1], 1.0, 5.0)),
        (place[:, 3], place[:, 3] == place[:, 2] + 1, 1.0),
        (place[:, 2], place[:, 2] == place[:, 3] + 1, 1.0),
        (place[:, 4], place[:, 4] == 4, 5.0),
    ):
        users = np.arange(len(movie))[row]
        mean[users, user_places[row]] = value[users] if isinstance(value, np.ndarray) else value
    return mean
