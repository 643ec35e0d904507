"""Models: terms of exponential family attention, their sum, latent factor models, and how the second are the first."""

from efattn.models import orders
from efattn.models.holes import Holes
from efattn.models.latent_factor import LatentItems, LatentPlaces, LatentValues
from efattn.models.model import Model
from efattn.models.reductions import as_attention
from efattn.models.scoring import Conditionals, Scores
from efattn.models.term import Term

__all__ = [
    "Conditionals",
    "Holes",
    "LatentItems",
    "LatentPlaces",
    "LatentValues",
    "Model",
    "Scores",
    "Term",
    "as_attention",
    "orders",
]
