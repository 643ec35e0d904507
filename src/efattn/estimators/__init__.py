"""Estimators with scikit-learn's conventions: hyper-parameters in the constructor, column roles in fit."""

from efattn.estimators.efa import EFA
from efattn.estimators.imputer import EFAImputer
from efattn.estimators.latent_factor import LatentFactor
from efattn.estimators.loading import load
from efattn.estimators.simple_model import SimpleModel

__all__ = ["EFA", "EFAImputer", "LatentFactor", "SimpleModel", "load"]
