"""What the options of training ask for: the device, and what draws candidates."""

import numpy as np
import torch

from efattn.data import Groups
from efattn.errors import DataError, named
from efattn.models import Conditionals
from efattn.network import Candidates
from efattn.training_options import DROPS, FACTOR, Training

__all__ = ["DROPS", "FACTOR", "Training", "candidates", "resolve_device"]


def resolve_device(options: Training) -> torch.device:
    if options.device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(options.device)
        torch.zeros(1, device=device).tolist()
    except (RuntimeError, AssertionError, TypeError) as error:  # whatever torch says of it
        raise DataError(
            f"{named('device')} {options.device!r} is not there: {str(error).splitlines()[0]}", option="device"
        ) from error
    return device


def candidates(term: Conditionals, data: Groups, options: Training, seed: int) -> Candidates | None:
    """What draws items to stand for all others, where there are so many that it should; by how often they come."""
    size, device = term.family.size, term.get_buffer("inside").device
    number = options.candidates_for(size, cpu=device.type == "cpu") if term.of_items else None
    if number is None or data.item is None:
        return None
    counts = torch.as_tensor(np.bincount(data.item, minlength=size)[:size])
    return Candidates(counts.to(device), number, seed)
