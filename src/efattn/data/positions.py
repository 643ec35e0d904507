"""Positions that groups have in common, where rows are ordered and have no items: times, or ranks in the group.

    the years of a panel, the hours of a day, the visits of a study

What is usual at each of them can be learnt as it is of an item: a level of its own, what earlier ones say of it, how
far values spread. Numbers are 0 .. n-1, and n stands for a position that was not known when the model was fitted.
"""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from efattn.data.batch import Batch
from efattn.data.groups import Groups

MOST = 200  # positions
GROUPS, USUALLY = 4, 8  # that have each of them, at least, and on average
COVER, FULL = 0.8, 0.25  # of all rows, those that stand at one of them; of all groups, those that have one, on average


class Positions(NamedTuple):
    """known: in ascending order, as times of the order column or as ranks from 0 on."""

    kind: Literal["time", "rank"]
    known: tuple[float, ...]

    def __len__(self) -> int:
        return len(self.known)

    @classmethod
    def of(cls, groups: Groups) -> "Positions | None":
        """Times where groups have these in common, else ranks; None where they have neither."""
        for kind, at in (("time", groups.when), ("rank", ranks(groups))):
            if at is None or not len(at):
                continue
            pairs = np.unique(np.stack([at, groups.group.astype(np.float64)]), axis=1)[0]  # twice in a group is once
            found, times = np.unique(pairs, return_counts=True)
            known, times = found[times >= GROUPS], times[times >= GROUPS]
            common = 1 < len(known) <= MOST and times.mean() >= max(USUALLY, FULL * len(groups))
            if common and np.isin(at, known).mean() >= COVER:
                return cls("time" if kind == "time" else "rank", tuple(known.tolist()))
        return None

    def in_groups(self, groups: Groups) -> np.ndarray:
        """The number of each row of all groups, those of no part included."""
        whole = groups if groups.chosen is None else Groups(groups.every, groups.offsets, groups.labels)
        return self.numbers(torch.as_tensor(ranks(whole) if self.kind == "rank" else whole.when)).numpy()

    def in_batch(self, batch: Batch) -> Tensor:
        """(batch, context)"""
        if self.kind == "rank":
            return self.numbers(torch.arange(batch.exists.shape[1], dtype=torch.float64)).expand(batch.exists.shape)
        assert batch.when is not None
        return self.numbers(batch.when)

    def numbers(self, at: Tensor) -> Tensor:
        known = torch.tensor(self.known, dtype=torch.float64, device=at.device)
        number = torch.searchsorted(known, at.double().contiguous()).clamp_max(len(known) - 1)
        return torch.where(known[number] == at, number, len(known))

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "known": list(self.known)}

    @classmethod
    def from_json(cls, saved: Mapping[str, Any]) -> "Positions":
        known = tuple(float(x) for x in saved["known"])
        if not 1 < len(known) <= MOST or not all(a < b for a, b in pairwise(known)):
            raise ValueError(f"positions are 2 to {MOST} numbers in ascending order")
        return cls("time" if saved["kind"] == "time" else "rank", known)


def ranks(groups: Groups) -> np.ndarray:
    """Of each row in its group, from 0 on."""
    first = np.repeat(np.cumsum(groups.lengths) - groups.lengths, groups.lengths)
    return (np.arange(len(first)) - first).astype(np.float64)
