"""Groups of a table that was given when the server was started: something to begin with.

A model file holds no rows of those it was fitted to, so that what is shown has to be brought along.
"""

import json
from typing import Any, final

import numpy as np

from efattn.data import Table
from efattn.errors import EfattnError
from efattn.explorer.tables import columns_of
from efattn.inference import Fitted
from efattn.inference.tables import encoded

MOST = 2_000  # groups that can be chosen from
ROWS = 2_000  # of one group that is shown


@final
class Examples:
    """Of one model: its columns alone, group by group in the order of the table; with lags a group has its earlier
    groups with it. A group of a wide table is a row."""

    def __init__(self, fitted: Fitted, table: Table) -> None:
        import polars as pl

        names = [name for name in columns_of(fitted) if name in table.names]
        self._frame = pl.DataFrame([table.column(name) for name in names])
        self._wide = fitted.wide is not None
        (asked,) = encoded(fitted, [table], lambda note: None)
        self._groups = asked.groups
        self.count = min(len(self._frame) if self._wide else len(self._groups), MOST)

    @classmethod
    def of(cls, fitted: Fitted, table: Table) -> "Examples | None":
        """None where this is no table for this model."""
        try:
            return cls(fitted, table)
        except EfattnError:
            return None

    def __len__(self) -> int:
        return self.count

    def labels(self) -> list[str]:
        """A name for each group."""
        if self._wide:
            return [f"row {k + 1}" for k in range(self.count)]
        names = (self._groups.labels[k] for k in range(self.count))
        return [" ".join(map(str, name)) if isinstance(name, tuple) else str(name) for name in names]

    def group(self, number: int) -> dict[str, Any]:
        """Its rows, and behind them those of its earlier groups; own: how many are its own."""
        if self._wide:
            return {"rows": json.loads(self._frame[number : number + 1].write_json()), "own": 1}
        groups, numbers = self._groups, [number]
        if groups.lagged is not None:
            numbers += [int(k) for k in groups.lagged[number] if k >= 0]
        rows = [groups.every.row[groups.offsets[k] : groups.offsets[k + 1]][:ROWS] for k in numbers]
        return {"rows": json.loads(self._frame[np.concatenate(rows)].write_json()), "own": len(rows[0])}
