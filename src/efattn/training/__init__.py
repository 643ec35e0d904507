"""One training loop: optimiser, schedule, early stopping, history, checkpoints and exact resume."""

from efattn.training.checkpoint import Checkpoint, forget, left_in
from efattn.training.loop import Fitting, Record, mean_log_prob
from efattn.training.options import Training, resolve_device

__all__ = [
    "Checkpoint",
    "Fitting",
    "Record",
    "Training",
    "forget",
    "left_in",
    "mean_log_prob",
    "resolve_device",
]
