"""Distances between places.

haversine(a, b) = 2 asin sqrt( sin^2(dlat / 2) + cos(lat_a) cos(lat_b) sin^2(dlon / 2) )        in earth radii
"""

import torch
from torch import Tensor


def haversine(a: Tensor, b: Tensor) -> Tensor:
    """Great-circle distance between places (..., 2) given as latitude and longitude in degrees, in earth radii."""
    (lat_a, lon_a), (lat_b, lon_b) = torch.deg2rad(a).unbind(-1), torch.deg2rad(b).unbind(-1)
    half = ((lat_a - lat_b) / 2).sin() ** 2 + lat_a.cos() * lat_b.cos() * ((lon_a - lon_b) / 2).sin() ** 2
    return 2 * half.clamp(0, 1).sqrt().asin()


def nearest(places: Tensor, candidates: Tensor, k: int) -> Tensor:
    """The k nearest candidates of each place: places (batch, context, 2), candidates and result (batch, row, column).

    Of equally near ones the first in the table wins; fewer than k candidates are all taken.
    """
    here = places.device.type == "cpu"  # elsewhere looking would mean waiting
    alike = here and bool((places == places[:1]).all() & (candidates == candidates[:1]).all())
    some, which = (places[:1], candidates[:1]) if alike else (places, candidates)  # the same stations every day
    distance = haversine(some[:, :, None], some[:, None]).masked_fill(~which, torch.inf)
    rank = distance.argsort(stable=True, dim=-1).argsort(-1)
    return ((rank < k) & which).expand(candidates.shape)
