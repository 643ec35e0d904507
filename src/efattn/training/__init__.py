"""One training loop: optimiser, schedule, early stopping, history, checkpoints and exact resume."""

from efattn.training.checkpoint import Checkpoint, forget, left_in
from efattn.training.held_out import mean_log_prob
from efattn.training.loop import Fitting, Record
from efattn.training.options import Training, resolve_device
from efattn.training.replay import Replay
from efattn.training.teams import together

__all__ = [
    "Checkpoint",
    "Fitting",
    "Record",
    "Replay",
    "Training",
    "forget",
    "left_in",
    "mean_log_prob",
    "resolve_device",
    "together",
]
