"""What the defaults were to reach, written down as numbers; whether they do is computed from records (page/aims.py).

most     the mean test loss over seeds, at most
cover    of intervals of 90 %, from and to
ahead    of the best peer under the same protocol, by more than two standard errors
"""

from typing import NamedTuple

from efattn.experiments.settings import REFITTED, TRAIN, Protocol


class Aim(NamedTuple):
    """setting: its title; model: with the library's defaults; before: whether `most` is what an earlier state had."""

    setting: str
    protocol: Protocol
    most: float | None = None
    cover: tuple[float, float] | None = None
    ahead: bool = False
    model: str = "EFA"
    before: bool = False


KNOWN = "EFA, own time known"
MISSING = {10: 8.55, 30: 10.05, 50: 11.35}  # of cells in %, and mean squared errors over three masks
AIMS = (
    Aim("beyond, MovieLens ratings, others", TRAIN, 0.820),
    Aim("beyond, MovieLens items, others", TRAIN, 4.60),
    Aim("beyond, MovieLens items, past", TRAIN, 5.40, model=KNOWN),
    Aim("beyond, NOAA stations", TRAIN, 2.95),
    Aim("beyond, NOAA stations", REFITTED, 2.85),
    Aim("beyond, NOAA, new stations", REFITTED, 3.9),
    Aim("beyond, NOAA, new stations", REFITTED, cover=(0.88, 0.92)),
    Aim("cities, no lag", TRAIN, 7.6),
    Aim("cities, one day of lag", TRAIN, 6.65),
    Aim("cities, two days of lag", TRAIN, 6.7),
    Aim("cities, no lag", REFITTED, 7.3),
    Aim("cities, one day of lag", REFITTED, 6.4),
    Aim("cities, two days of lag", REFITTED, 6.5),
    *(Aim(f"beyond, US cities, {rate} % missing", TRAIN, most) for rate, most in MISSING.items()),
    *(Aim(f"beyond, US cities, {rate} % missing", TRAIN, cover=(0.89, 0.91)) for rate in MISSING),
    *(Aim(f"beyond, US cities, {rate} % missing", TRAIN, ahead=True) for rate in MISSING),
    Aim("recommending, Beauty", TRAIN, 0.950),  # 1 - NDCG@10
    Aim("ratings, v1, others", REFITTED, 0.9410),
    Aim("ratings, v1, past", REFITTED, 0.9500),
    Aim("sequences, past", TRAIN, 3.060, model=KNOWN, before=True),
    Aim("sequences, others", TRAIN, 2.511, before=True),
    Aim("instacart, past", TRAIN, 3.671, before=True),
    Aim("instacart, others", TRAIN, 3.354, before=True),
)
