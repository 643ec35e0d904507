"""Simple models, each written once: peers of EFA in their own right, and companions of its networks.

values   ItemMean, ShrunkMean, GaussianConditional, RidgePerItem, LassoPerItem, InverseDistance, Kriging, Persistence
items    Popularity, MarkovChain, AdditiveLogit

Each name is a recipe. `efattn.SimpleModel(recipe)` fits one to a table; `EFA(companions=recipe)` lets it predict together
with the networks.
"""

from efattn.simple.base import DirectlyFitted, MeanAndVariance, Recipe, Setting
from efattn.simple.effects import ItemMean, ShrunkMean
from efattn.simple.gaussian import GaussianConditional, Kriging
from efattn.simple.items import AdditiveLogit, MarkovChain, Popularity
from efattn.simple.linear import InverseDistance, LassoPerItem, Persistence, RidgePerItem

RECIPES: tuple[type[Recipe], ...] = (
    ItemMean,
    ShrunkMean,
    GaussianConditional,
    RidgePerItem,
    LassoPerItem,
    InverseDistance,
    Kriging,
    Persistence,
    Popularity,
    MarkovChain,
    AdditiveLogit,
)

__all__ = [*(recipe.__name__ for recipe in RECIPES), "RECIPES"]
__all__ += ["DirectlyFitted", "MeanAndVariance", "Recipe", "Setting"]
