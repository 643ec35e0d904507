"""Honest peers for EFA: simple models, well regularised, with the estimators' interface, on any table.

values   ItemMean, ShrunkMean, GaussianConditional
items    Popularity, MarkovChain, AdditiveLogit
places   RidgePerItem, LassoPerItem, InverseDistance, Kriging, Persistence
"""

from efattn.baselines.items import AdditiveLogit, MarkovChain, Popularity
from efattn.baselines.places import InverseDistance, Kriging, LassoPerItem, Persistence, RidgePerItem
from efattn.baselines.values import GaussianConditional, ItemMean, ShrunkMean

BASELINES = (
    ItemMean,
    ShrunkMean,
    GaussianConditional,
    Popularity,
    MarkovChain,
    AdditiveLogit,
    RidgePerItem,
    LassoPerItem,
    InverseDistance,
    Kriging,
    Persistence,
)

__all__ = [
    "BASELINES",
    "AdditiveLogit",
    "GaussianConditional",
    "InverseDistance",
    "ItemMean",
    "Kriging",
    "LassoPerItem",
    "MarkovChain",
    "Persistence",
    "Popularity",
    "RidgePerItem",
    "ShrunkMean",
]
