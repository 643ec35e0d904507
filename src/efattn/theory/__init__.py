"""The paper's theorems and propositions, run on data and on fitted models."""

from efattn.theory.diversity import Diversity, DiversityMatrix, check_diversity
from efattn.theory.excess_curve import Excess, Field, excess_experiment
from efattn.theory.excess_loss import Bound, LayerNorms, Norms, bound, bound_term, log_log_slope, norms, vacuity
from efattn.theory.identifiability import Comparison, Identifiability, LinearFit, compare, linear_map_fit
from efattn.theory.propositions import Difference, Propositions, check_propositions

__all__ = [
    "Bound",
    "Comparison",
    "Difference",
    "Diversity",
    "DiversityMatrix",
    "Excess",
    "Field",
    "Identifiability",
    "LayerNorms",
    "LinearFit",
    "Norms",
    "Propositions",
    "bound",
    "bound_term",
    "check_diversity",
    "check_propositions",
    "compare",
    "excess_experiment",
    "linear_map_fit",
    "log_log_slope",
    "norms",
    "vacuity",
]
