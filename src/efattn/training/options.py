"""Where a model is fitted: the device that the options of training ask for."""

import torch

from efattn.errors import DataError, named
from efattn.options import DROPS, FACTOR, Training

__all__ = ["DROPS", "FACTOR", "Training", "resolve_device"]


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
