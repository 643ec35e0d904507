"""Items that were never seen, at places that are known: how they go with all known items.

    x_u = m(u) + sd(u) (W_u . (x - mu) / sd + e_u),     W_u = R^-1 r_u,   e_u ~ N(0, r_uu - r_u' R^-1 r_u)

R and r are the fitted Matern correlations; mean and standard deviation are surfaces over places. With Sigma the
covariance of the known, Cov(x_u, x) = sd(u) W_u sd^-1 Sigma: positive definite whatever Sigma is, and simple kriging
where Sigma is the Matern's.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from efattn.simple.correlations import Matern, between, fit_units, geographic
from efattn.simple.surfaces import Spots, Surface, fit_surface


class Known(NamedTuple):
    """What is kept in a file: places (item, attribute), units (2, attribute), matern (6,), surfaces (2, 3): of mean and
    log sd; levels (2, item): what they are fitted to."""

    places: Tensor
    units: Tensor
    matern: Tensor
    surfaces: Tensor
    levels: Tensor

    @classmethod
    def empty(cls, items: int, attributes: int) -> "Known":
        sizes = ((items, attributes), (2, attributes), (6,), (2, 3), (2, items))
        return cls(*(torch.zeros(size, dtype=torch.float64) for size in sizes))

    @classmethod
    def fit(cls, places: Tensor, matern: Matern, mean: Tensor, sd: Tensor) -> "Known":
        units = fit_units(places)
        spots, levels = Spots(places, units), torch.stack([mean, sd.clamp_min(1e-12).log()])
        distance = between(places, places, units, geographic(places))
        found = [fit_surface(level, distance, spots.drift) for level in levels]
        told = torch.tensor([[f.signal, f.noise, f.length] for f in found], dtype=torch.float64)
        return cls(places, units, torch.tensor(list(matern), dtype=torch.float64), told, levels)

    @property
    def usable(self) -> bool:
        return bool(self.matern[0] > 0)

    def surface(self, which: int) -> Surface:
        return Surface(self.levels[which], *self.surfaces[which].tolist())


class Rows(NamedTuple):
    """Of a batch: number and lag of each cell, its place, whether it is a new one, and noise (batch, cell of all): what
    known cells share with nothing, 0 in groups that have no item twice."""

    cell: Tensor
    lag: Tensor
    places: Tensor
    new: Tensor
    noise: Tensor


class Joined(NamedTuple):
    """mean (batch, cell) and covariance (batch, cell, cell), with new places in both."""

    mean: Tensor
    covariance: Tensor


def joined(known: Known, sigma: Tensor, rows: Rows, mean: Tensor, k: Tensor) -> Joined:
    """mean, k: as they are for known items; sigma: (cell, cell) of all known cells."""
    columns = rows.new.any(0).nonzero()[:, 0]
    fresh, place, lag = rows.new[:, columns], rows.places[:, columns], rows.lag[:, columns].double()
    apart = (known.places != known.places[0]).any(0)  # what is the same for all known items is no place of a new one
    place = torch.where(fresh[..., None] & apart, place, known.places[0])
    law, items = Matern(*known.matern.tolist()), len(known.places)
    lags = len(sigma) // items
    all_lags = torch.arange(lags, dtype=torch.float64).repeat_interleave(items)
    told = (known.units, geographic(known.places))
    inner = between(known.places, known.places, *told)
    outer = between(place, known.places, *told)  # (batch, new, item)
    among = between(place, place, *told)
    sd = sigma.diagonal().sqrt()
    r = law.at(outer.repeat(1, 1, lags), (lag[..., None] - all_lags).abs())
    whole = law.correlation(inner, lags - 1)
    weights = torch.linalg.solve(whole, r.reshape(-1, len(sigma)).T).T.reshape(r.shape)
    same = torch.eye(len(columns), dtype=torch.float64)
    alike = law.at(among, (lag[..., None] - lag[:, None]).abs()) + law.nugget * same
    spots = Spots(known.places, known.units)
    here = (outer, among, Spots(place, known.units).drift)
    level, unsure = known.surface(0).at((inner, spots.drift), here)
    size = known.surface(1).at((inner, spots.drift), here)[0].exp()
    plain = weights / sd
    cross = size[..., None] * (plain @ sigma - plain * rows.noise[:, None])  # (batch, new, cell)
    own = (plain @ sigma @ plain.mT + alike - weights @ r.mT) * size[..., None] * size[:, None] + unsure
    return _placed(rows, columns, Joined(mean, k), Joined(level, own), cross)


def _placed(rows: Rows, columns: Tensor, old: Joined, new: Joined, cross: Tensor) -> Joined:
    fresh, known = rows.new[:, columns], ~rows.new
    index = rows.cell.clamp_max(cross.shape[-1] - 1)
    to_known = cross.gather(2, index[:, None].expand(-1, len(columns), -1))  # (batch, new, cell)
    to_known = torch.where(fresh[..., None] & known[:, None], to_known, 0.0)
    k, mean = old.covariance.clone(), old.mean.clone()
    k = torch.where(rows.new[:, :, None] | rows.new[:, None], 0.0, k)
    k[:, columns] += to_known
    k[:, :, columns] += to_known.mT
    both = fresh[:, :, None] & fresh[:, None]
    block = k[:, columns[:, None], columns]
    k[:, columns[:, None], columns] = torch.where(both, new.covariance, block)
    mean[:, columns] = torch.where(fresh, new.mean, mean[:, columns])
    return Joined(mean, k)
