"""Exponential Family Attention: self-attention whose output is the natural parameter of an exponential family.

Importing the package is cheap: each name below loads its module when it is first used.
"""

import importlib
import os
import sys
from typing import Any

__version__ = "0.1.0"

if "torch" not in sys.modules and "OMP_WAIT_POLICY" not in os.environ:  # which are read once
    os.environ.setdefault("GOMP_SPINCOUNT", "500")  # threads that spin long while they wait stall beside other programs

_HOMES = {
    "EFA": "efattn.estimators",
    "EFAImputer": "efattn.estimators",
    "Comparison": "efattn.comparing",
    "compare": "efattn.comparing",
    "LatentFactor": "efattn.estimators",
    "SimpleModel": "efattn.estimators",
    "Training": "efattn.training_options",
    "load": "efattn.estimators",
    "report": "efattn.reporting",
    "from_wide": "efattn.data",
    "pool": "efattn.inference",
    "group_folds": "efattn.data",
    "read_baskets": "efattn.data",
    "read_file": "efattn.data",
    "split": "efattn.data",
    "TrainingError": "efattn.errors",
    "simple": "efattn.simple",
    "datasets": "efattn.datasets",
    "plots": "efattn.plots",
    "theory": "efattn.theory",
    "families": "efattn.families",
    "DataError": "efattn.errors",
    "EfattnError": "efattn.errors",
    "EfattnWarning": "efattn.errors",
    "ModelFileError": "efattn.errors",
}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'efattn' has no attribute {name!r}")
    module = importlib.import_module(_HOMES[name])
    return module if _HOMES[name] == f"efattn.{name}" else getattr(module, name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
