"""A number that every item has, carried to places without one: kriging with drift.

    v(x) = drift(x) + w(x) + e,     w ~ s M(d / l),   e ~ g,     drift: a constant and a slope in each attribute

The drift has a wide Gaussian prior, so that this is universal kriging. s, g and l maximise the likelihood of the items'
numbers under weak priors, as items may be few.
"""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from efattn.simple.correlations import matern

MOST = 300  # items that the likelihood is of, about
WIDE = 100.0  # the drift's variance, times that of the numbers


class Spots(NamedTuple):
    """Places as distances and drifts need them: places (..., attribute), units (2, attribute): centre and spread."""

    places: Tensor
    units: Tensor

    @property
    def drift(self) -> Tensor:
        z = (self.places - self.units[0]) / self.units[1]
        return torch.cat([torch.ones_like(z[..., :1]), z], -1)


class Surface(NamedTuple):
    """own: v of the items; signal: s; noise: g; length: l."""

    own: Tensor
    signal: float
    noise: float
    length: float

    def covariance(self, distance: Tensor, one: Tensor, other: Tensor) -> Tensor:
        """Without e; one, other: drifts (..., n, 1 + attribute)."""
        wide = WIDE * float(self.own.var(correction=0) + 1e-12)
        return wide * (one @ other.mT) + self.signal * matern(distance / self.length, 0.5)

    def at(self, known: tuple[Tensor, Tensor], new: tuple[Tensor, Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """Mean (..., new) and covariance (..., new, new) at new places, the same place's e being one. known: distances
        between items, and their drifts; new: distances to items (..., new, item), among themselves, and drifts."""
        centre = self.own.mean()
        inner = self.covariance(*known, known[1]) + self.noise * torch.eye(len(self.own), dtype=torch.float64)
        cross = self.covariance(new[0], new[2], known[1])
        weights = torch.cholesky_solve(cross.reshape(-1, len(self.own)).T, torch.linalg.cholesky(inner)).T
        weights = weights.reshape(cross.shape)
        among = self.covariance(new[1], new[2], new[2]) + self.noise * (new[1] < 1e-9)
        return centre + weights @ (self.own - centre), among - weights @ cross.mT


def fit_surface(own: Tensor, distance: Tensor, drift: Tensor) -> Surface:
    from scipy.optimize import minimize

    step = max(1, len(own) // MOST)
    whole, own, distance, drift = own, own[::step], distance[::step, ::step], drift[::step]
    apart = distance[distance > 0]
    usual, level = float(apart.median()) if len(apart) else 1.0, float(own.var(correction=0)) + 1e-12
    rest, eye = own - own.mean(), torch.eye(len(own), dtype=torch.float64)

    def named(theta: np.ndarray) -> Surface:
        s, g, length = np.exp(np.clip(theta, -12, 6))
        return Surface(whole, float(s * level), float(g * level) + 1e-9 * level, float(length * usual))

    def misfit(theta: np.ndarray) -> float:
        found = named(theta)
        k = found.covariance(distance, drift, drift) + found.noise * eye
        factor, failed = torch.linalg.cholesky_ex(k)
        if failed:
            return 1e10
        spread = torch.cholesky_solve(rest[:, None], factor)[:, 0] @ rest
        prior = float((((theta - start) / 2) ** 2).sum() / 2)
        return float(factor.diagonal().log().sum() + spread / 2) + prior

    start = np.array([-1.0, -2.0, -1.0])
    return named(
        minimize(misfit, start, method="Nelder-Mead", options={"maxiter": 200, "xatol": 0.02, "fatol": 1e-3}).x
    )
