"""A padded batch of groups: what a model sees.

    columns 0 .. length-1       the observations of the current group, in order
    columns length .. context-1 lagged observations: always visible, never masked, never targets

Items are numbered 0 .. D-1, and D stands for an unknown item. Attributes are in the table's own units. A missing value
is 0 in `value` and false in `observed`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Batch:
    """exists, item, lag, position: (batch, context); when, the time of each position in double precision: (batch,
    context); value, observed: (batch, context, columns); attributes: (batch, context, attributes); target, weight,
    exposure: (batch, length); cut: (batch, any), items of a group beyond the longest length, -1 for none, which count
    for distinct support; rows: (batch, length), the table's row, -1 for padding."""

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
    cut: Tensor | None = None
    rows: Tensor | None = None
    when: Tensor | None = None

    @classmethod
    def of(cls, groups: Sequence[Mapping[str, Any]], dtype: torch.dtype = torch.float32) -> "Batch":
        """Pad groups given as mappings from a field's name to a sequence over the group's observations.

        `item` and `lag` hold whole numbers, `value` and `attributes` one number or one row of numbers per observation
        (NaN: missing), `weight`, `exposure` and `when` numbers, `target` truth values. Where `lag` is given, current
        observations come first. Positions count the observations of the group.
        """
        here = [_length(g) for g in groups]
        lagged = [_count(g) - n for g, n in zip(groups, here, strict=True)]
        length, context = max(here, default=0), max(here, default=0) + max(lagged, default=0)
        columns = [[*range(n), *range(length, length + m)] for n, m in zip(here, lagged, strict=True)]

        def pad(name: str, kind: torch.dtype, fill: float = 0, width: int = context) -> Tensor | None:
            if not groups or name not in groups[0]:
                return None
            rows = [
                torch.as_tensor(g[name], dtype=kind)[: None if width == context else n]
                for g, n in zip(groups, here, strict=True)
            ]
            out = torch.full((len(groups), width, *rows[0].shape[1:]), fill, dtype=kind)
            for row, values, where in zip(out, rows, columns, strict=True):
                row[where[: len(values)]] = values
            return out

        exists = torch.zeros(len(groups), context, dtype=torch.bool)
        for row, where in zip(exists, columns, strict=True):
            row[where] = True
        value, attributes = pad("value", dtype), pad("attributes", dtype)
        value = value[..., None] if value is not None and value.dim() == 2 else value
        observed = None if value is None else ~value.isnan() & exists[..., None]
        target = pad("target", torch.bool, width=length)
        return cls(
            length=length,
            exists=exists,
            target=exists[:, :length] if target is None else target & exists[:, :length],
            item=pad("item", torch.long),
            value=None if value is None else value.nan_to_num(0.0),
            observed=observed,
            attributes=attributes[..., None] if attributes is not None and attributes.dim() == 2 else attributes,
            position=torch.arange(context).expand(len(groups), context).clamp_max(max(length - 1, 0)),
            lag=pad("lag", torch.long),
            weight=pad("weight", dtype, width=length),
            exposure=pad("exposure", dtype, 1.0, width=length),
            when=pad("when", torch.float64),
        )

    def replace(self, **changes: Any) -> "Batch":
        return replace(self, **changes)

    def select(self, groups: Tensor) -> "Batch":
        """Some of its groups, by number or by truth values."""
        kept: dict[str, Any] = {}
        for field in fields(self):
            x = getattr(self, field.name)
            kept[field.name] = x[groups] if isinstance(x, Tensor) else x
        return replace(self, **kept)

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> "Batch":
        """Moved; `dtype` for the real-valued fields only, but for times, which need all their digits."""
        moved: dict[str, Any] = {}
        for field in fields(self):
            x = getattr(self, field.name)
            if isinstance(x, Tensor):
                real = x.is_floating_point() and field.name != "when"
                moved[field.name] = x.to(device=device, dtype=dtype if real else None)
        return replace(self, **moved)


def _count(group: Mapping[str, Any]) -> int:
    return len(next(iter(group.values())))


def _length(group: Mapping[str, Any]) -> int:
    return _count(group) if "lag" not in group else int((torch.as_tensor(group["lag"]) == 0).sum())
