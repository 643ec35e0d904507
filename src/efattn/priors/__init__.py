"""Simple fitted models: peers in their own right, and priors for EFA.

Each is a model like any other, with `fit(groups, held)` in place of training. Of values: mean and variance of each row
(`predictive`); some draw new values (`draw`); `draw_items` draws
items from any model of them.
"""

from efattn.priors.effects import ItemMean, ShrunkMean
from efattn.priors.gaussian import GaussianConditional
from efattn.priors.items import AdditiveItems, MarkovChain, Popularity, draw_items
from efattn.priors.linear import InverseDistance, Persistence, RegressionPerItem

__all__ = [
    "AdditiveItems",
    "GaussianConditional",
    "InverseDistance",
    "ItemMean",
    "MarkovChain",
    "Persistence",
    "Popularity",
    "RegressionPerItem",
    "ShrunkMean",
    "draw_items",
]
