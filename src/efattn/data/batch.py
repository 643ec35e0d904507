"""A padded batch of groups: what a model sees.

    columns 0 .. length-1       the observations of the current group, in order
    columns length .. context-1 lagged observations: always visible, never masked, never targets

Items are numbered 0 .. D-1, and D stands for an unknown item. Attributes are in the table's own units. A missing value
is 0 in `value` and false in `observed`. How each field is laid out stands in one table, `LAYOUT`, and all that makes or
changes a batch walks it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, final

import numpy as np
import torch
from torch import Tensor


@final
@dataclass(frozen=True)
class Cells:
    """How a field is laid out. over: "context" (batch, context), "current" (batch, length) or "group" (batch, any);
    dtype: None for real numbers, which have the batch's; fill: where no observation is; several: (..., columns)."""

    over: Literal["context", "current", "group"]
    dtype: torch.dtype | None = None
    fill: float = 0
    several: bool = False


LAYOUT = {
    "exists": Cells("context", torch.bool),
    "target": Cells("current", torch.bool),
    "item": Cells("context", torch.long),
    "value": Cells("context", several=True),
    "observed": Cells("context", torch.bool, several=True),
    "attributes": Cells("context", several=True),
    "position": Cells("context", torch.long),
    "lag": Cells("context", torch.long),
    "weight": Cells("current"),
    "exposure": Cells("context", fill=1),
    "noise": Cells("context"),
    "cut": Cells("group", torch.long, fill=-1),
    "rows": Cells("current", torch.long, fill=-1),
    "when": Cells("context", torch.float64),
    "hidden": Cells("context", torch.bool, several=True),
    "strange": Cells("context", torch.bool),
    "rank": Cells("current", torch.long),
}


@dataclass(frozen=True)
class Batch:
    """As LAYOUT has them. when: the time of each position in double precision; cut: items of a group beyond the longest
    length, -1 for none, which count for distinct support; rows: the table's row, -1 for padding. Of training alone:
    hidden, what is scored but not shown to others; strange, items that are shown as the unknown one. rank: where each
    position stands in the order in which its group is gone through, each number once, or -1 in a group without one."""

    length: int
    exists: Tensor
    target: Tensor
    item: Tensor | None = None
    value: Tensor | None = None
    observed: Tensor | None = None
    attributes: Tensor | None = None
    position: Tensor | None = None
    lag: Tensor | None = None
    weight: Tensor | None = None
    exposure: Tensor | None = None
    noise: Tensor | None = None
    cut: Tensor | None = None
    rows: Tensor | None = None
    when: Tensor | None = None
    hidden: Tensor | None = None
    strange: Tensor | None = None
    rank: Tensor | None = None

    @classmethod
    def gather(
        cls,
        columns: Mapping[str, np.ndarray | None],
        index: np.ndarray,
        length: int,
        dtype: torch.dtype = torch.float32,
        **made: Tensor | None,
    ) -> "Batch":
        """From rows to cells. columns: by field, an entry per row, NaN for a missing value; index: (batch, context),
        the row in each cell, -1 for none; length: how many columns are current; made: fields that are ready."""
        exists = index >= 0
        at = np.where(exists, index, 0)
        for name, cells in LAYOUT.items():
            column = columns.get(name)
            if column is None:
                continue
            width = None if cells.over == "context" else length
            entries = column[at[:, :width]]
            entries[~exists[:, :width]] = cells.fill
            entries = entries[..., None] if cells.several and entries.ndim == 2 else entries
            made[name] = torch.as_tensor(entries).to(cells.dtype or dtype)
        there, value = torch.as_tensor(exists), made.get("value")
        if value is not None:
            made |= {"value": value.nan_to_num(0.0), "observed": ~value.isnan() & there[..., None]}
        position = torch.arange(index.shape[1]).expand(index.shape).clamp_max(max(length - 1, 0))
        ready: dict[str, Any] = {"exists": there, "target": there[:, :length], "position": position}
        return cls(length=length, **(ready | made))

    @classmethod
    def of(cls, groups: Sequence[Mapping[str, Any]], dtype: torch.dtype = torch.float32) -> "Batch":
        """Pad groups given as mappings from a field's name to a sequence over the group's observations.

        `item` and `lag` hold whole numbers, `value` and `attributes` one number or one row of numbers per observation
        (NaN: missing), `weight`, `exposure`, `noise` and `when` numbers, `target` truth values. Where `lag` is given,
        current observations come first. Positions count the observations of the group.
        """
        current, count = [_length(g) for g in groups], [_count(g) for g in groups]
        length = max(current, default=0)
        context = length + max((m - n for n, m in zip(current, count, strict=True)), default=0)
        index, start = np.full((len(groups), context), -1, np.int64), 0
        for row, n, m in zip(index, current, count, strict=True):
            row[:n] = np.arange(start, start + n)
            row[length : length + m - n] = np.arange(start + n, start + m)
            start += m
        names = [name for name in LAYOUT if groups and name in groups[0]]
        columns = {
            n: np.concatenate([_rows(g[n], n, m, dtype) for g, m in zip(groups, count, strict=True)]) for n in names
        }
        return cls.gather(columns, index, length, dtype)

    def replace(self, **changes: Any) -> "Batch":
        return replace(self, **changes)

    def select(self, groups: Tensor) -> "Batch":
        """Some of its groups, by number or by truth values."""
        present = ((name, getattr(self, name)) for name in LAYOUT)
        return replace(self, **{name: x[groups] for name, x in present if x is not None})

    def first(self, count: int) -> "Batch":
        """Only so many of the current positions, the first ones, and all that are lagged."""
        kept: dict[str, Any] = {}
        for name, cells in LAYOUT.items():
            x = getattr(self, name)
            if x is not None and cells.over != "group":
                kept[name] = torch.cat((x[:, :count], x[:, self.length :]), 1)
        return replace(self, length=min(count, self.length), **kept)

    def to(
        self, device: torch.device | str | None = None, dtype: torch.dtype | None = None, *, ahead: bool = False
    ) -> "Batch":
        """Moved; `dtype` for the real-valued fields only, but for times, which need all their digits. ahead: to a GPU
        it is only under way, and what is computed there next waits for it."""
        moved: dict[str, Any] = {}
        ahead = ahead and device is not None and torch.device(device).type == "cuda"
        for name, cells in LAYOUT.items():
            x = getattr(self, name)
            if x is not None:
                x = x.pin_memory() if ahead and x.device.type == "cpu" else x
                moved[name] = x.to(device=device, dtype=dtype if cells.dtype is None else None, non_blocking=ahead)
        return replace(self, **moved)

    def with_one_more(self, **given: Any) -> "Batch":
        """One more position after the last of each group, in the column after the current ones. given: what stands
        there, by field, one for all groups or (batch, 1, ...); what is not given is as in padding, but it exists."""
        n = self.length
        given = {"exists": True, "position": self.exists[:, :n].sum(1, keepdim=True)} | given
        wider: dict[str, Any] = {}
        for name, cells in LAYOUT.items():
            x = getattr(self, name)
            if x is not None and cells.over != "group":
                column = x.new_full((len(x), 1, *x.shape[2:]), cells.fill)
                column[:] = given.get(name, cells.fill)
                wider[name] = torch.cat((x[:, :n], column, x[:, n:]), 1)
        return replace(self, length=n + 1, **wider)


def _count(group: Mapping[str, Any]) -> int:
    return len(next(iter(group.values())))


def _length(group: Mapping[str, Any]) -> int:
    return _count(group) if "lag" not in group else int((torch.as_tensor(group["lag"]) == 0).sum())


def _rows(entries: Any, name: str, count: int, dtype: torch.dtype) -> np.ndarray:
    """One entry per row of a group; those of current positions may stop before the lags."""
    given: np.ndarray = torch.as_tensor(entries, dtype=LAYOUT[name].dtype or dtype).numpy()
    if len(given) == count:
        return given
    rest = np.full((count - len(given), *given.shape[1:]), LAYOUT[name].fill, given.dtype)
    return np.concatenate((given, rest))
