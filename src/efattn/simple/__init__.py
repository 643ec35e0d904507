"""Simple models, each written once: peers of EFA in their own right, and companions of its networks.

values   ItemMean, ShrunkMean, LinearModel, LinearTrees, TwoParts, GaussianConditional, RidgePerItem,
         LassoPerItem, InverseDistance, Kriging, Forest, Persistence
items    Popularity, LatePopularity, MarkovChain, ItemLogit, AdditiveLogit, EASE, ItemNeighbours

Each name is a recipe. `efattn.SimpleModel(recipe)` fits one to a table; `EFA(companions=recipe)` lets it predict
together with the networks.
"""

from difflib import get_close_matches

from efattn.errors import DataError
from efattn.simple.additive_logit import AdditiveLogit
from efattn.simple.base import DirectlyFitted, MeanAndVariance, Recipe, Setting
from efattn.simple.chains import MarkovChain
from efattn.simple.effects import ItemMean, ShrunkMean
from efattn.simple.forest import Forest
from efattn.simple.gaussian import GaussianConditional, Kriging
from efattn.simple.item_logit import ItemLogit
from efattn.simple.items import LatePopularity, Popularity
from efattn.simple.linear import InverseDistance, LassoPerItem, Persistence, RidgePerItem
from efattn.simple.linear_model import LinearModel
from efattn.simple.linear_trees import LinearTrees
from efattn.simple.neighbours import EASE, ItemNeighbours
from efattn.simple.two_parts import TwoParts

RECIPES: tuple[type[Recipe], ...] = (
    ItemMean,
    ShrunkMean,
    LinearModel,
    LinearTrees,
    TwoParts,
    GaussianConditional,
    RidgePerItem,
    LassoPerItem,
    InverseDistance,
    Kriging,
    Forest,
    Persistence,
    Popularity,
    LatePopularity,
    MarkovChain,
    ItemLogit,
    AdditiveLogit,
    EASE,
    ItemNeighbours,
)


def named(word: str) -> Recipe:
    """A simple model with its defaults, by its name: "ShrunkMean", "shrunk_mean" or "shrunk mean"."""
    plain = {recipe.__name__.lower(): recipe for recipe in RECIPES}
    key = str(word).lower().replace("_", "").replace("-", "").replace(" ", "")
    if key in plain:
        return plain[key]()
    near = get_close_matches(key, plain, n=1)
    known = ", ".join(recipe.__name__ for recipe in RECIPES)
    hint = f"Did you mean {plain[near[0]].__name__}?" if near else f"There are {known}."
    raise DataError(f"There is no simple model {word!r}. {hint}", option="companions")


__all__ = [*(recipe.__name__ for recipe in RECIPES), "RECIPES"]
__all__ += ["DirectlyFitted", "MeanAndVariance", "Recipe", "Setting", "named"]
