"""Estimators with scikit-learn's conventions: hyper-parameters in the constructor, column roles in fit."""

from efattn.estimators.efa import EFA
from efattn.estimators.latent_factor import LatentFactor
from efattn.estimators.saving import load

__all__ = ["EFA", "LatentFactor", "load"]
