"""The rows of all groups on a device, from which batches are gathered there.

    once     every row -> the device          each batch     which row stands in which cell -> the device -> its fields

Only the index of a batch travels, and no thread is needed to build batches ahead: one that builds them in Python takes
turns with the one that launches kernels, and a GPU waits for both.
"""

from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from efattn.data import batches
from efattn.data.batch import LAYOUT, Batch
from efattn.data.groups import Groups
from efattn.data.sampling import many

SHARE = 0.25  # of the free memory of a GPU, which rows may take


@final
class Resident:
    def __init__(self, groups: Groups, device: torch.device, dtype: torch.dtype = torch.float32) -> None:
        self.groups, self.device = groups, device
        self.columns: dict[str, Tensor] = {}
        for name, column in groups.every.by_field().items():
            if column is not None:
                self.columns[name] = torch.as_tensor(np.asarray(column)).to(LAYOUT[name].dtype or dtype).to(device)

    @staticmethod
    def fits(groups: Groups, device: torch.device) -> bool:
        """Whether there is room for it; of what is not a GPU, that is not known."""
        if device.type != "cuda" or many(groups):
            return False
        columns = [column for column in groups.every.by_field().values() if column is not None]
        return sum(8 * column.size for column in columns) < SHARE * torch.cuda.mem_get_info(device)[0]

    def batch(self, pieces: np.ndarray, context: Any = "others") -> Batch:
        """As `Groups.batch`, there."""
        placed = batches.placed(self.groups, np.asarray(pieces, np.int64), context)
        index = self._there(placed.rows)
        nowhere, at, made = index < 0, index.clamp_min(0), dict[str, Any]()
        for name, column in self.columns.items():
            cells = LAYOUT[name]
            width = None if cells.over == "context" else placed.length
            entries, empty = column[at[:, :width]], nowhere[:, :width]
            entries = entries[..., None] if cells.several and entries.dim() == 2 else entries
            made[name] = entries.masked_fill(empty[..., None] if entries.dim() == 3 else empty, cells.fill)
        exists, value = ~nowhere, made.get("value")
        if value is not None:
            made |= {"value": value.nan_to_num(0.0), "observed": ~value.isnan() & exists[..., None]}
        position = torch.arange(index.shape[1], device=self.device).clamp_max(max(placed.length - 1, 0))
        ready = {"exists": exists, "target": exists[:, : placed.length], "position": position.expand(index.shape)}
        moved = {"lag": placed.lag, "cut": placed.cut}
        made |= {name: self._there(x) for name, x in moved.items() if x is not None}
        return Batch(length=placed.length, **(ready | made))

    def _there(self, x: np.ndarray) -> Tensor:
        here = torch.as_tensor(x)
        return (here.pin_memory() if self.device.type == "cuda" else here).to(self.device, non_blocking=True)
