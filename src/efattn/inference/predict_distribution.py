"""A law for each row and value column, from the row's context, never from itself: what `predict` tells, whole."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import final

import numpy as np
import torch
from torch import Tensor

from efattn.data import Groups, Table
from efattn.families import Family, PerItem, Product
from efattn.inference import mixture
from efattn.inference.calibration import Calibration
from efattn.inference.distribution import Distribution
from efattn.inference.fitted import Fitted, Part
from efattn.inference.laws import Laws
from efattn.inference.score import refuse_infinite
from efattn.inference.tables import Tell, announce, encoded

NONE: Mapping[str, Calibration] = MappingProxyType({})


@final
class Distributions(Mapping[str, Distribution]):
    """Of several value columns, each by its name. A column's law is its own: of columns that vary together, the
    marginal one."""

    def __init__(self, columns: Mapping[str, Distribution]) -> None:
        self._columns = dict(columns)

    def __getitem__(self, name: str) -> Distribution:
        return self._columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def __repr__(self) -> str:
        return "\n".join(map(repr, self._columns.values()))


def predict_distribution(
    fitted: Fitted, tables: Iterable[Table], *, member: int | None = None, tell: Tell = announce
) -> Iterator[Distribution | Distributions]:
    """Of each table: a `Distribution`, of several value columns, or of a wide table, one for each by its name."""
    parts = fitted.parts_of("value", "give distributions of values", member)
    parts = tuple(part for part in parts if part.ever)
    for table, groups in encoded(fitted, tables, tell, items=False):
        calibration = fitted.calibration if member is None else NONE
        laws = distributions(fitted, parts, groups, len(table), calibration)
        if fitted.wide is not None:
            (law,), columns, laws = laws.values(), fitted.wide.columns, {}
            for c, column in enumerate(columns):
                own = calibration.get(column.name, law.calibration)
                one = replace(law[c :: len(columns)], column=column.name, words=column.levels, calibration=own)
                laws[column.name] = one
            yield Distributions(laws)
        else:
            yield next(iter(laws.values())) if len(laws) == 1 else Distributions(laws)


def columns_of(fitted: Fitted, name: str, law: Distribution) -> Iterator[tuple[str, np.ndarray]]:
    """The rows (row,) of a law that are of one column: of a wide table's values each column by its name."""
    if fitted.wide is None or law.item is None:
        yield name, np.ones(len(law), bool)
        return
    for column in fitted.wide.names:
        yield column, law.item == fitted.vocabulary.find(column)


@torch.no_grad()
def distributions(
    fitted: Fitted,
    parts: Sequence[Part],
    groups: Groups,
    rows: int,
    calibration: Mapping[str, Calibration] = NONE,
) -> dict[str, Distribution]:
    """For each value column. groups: in the table's units; rows: of the table."""
    family, schema, every = parts[0].model.family, fitted.schema, groups.every
    assert isinstance(family, Product)
    outputs = [torch.full((rows, family.size), torch.nan, dtype=torch.float64) for _ in parts]
    shares = torch.ones(rows, len(parts), dtype=torch.float64)
    for batch in fitted.batches(schema.standardise(groups), parts[0].model):
        assert batch.rows is not None
        kept = batch.rows >= 0
        row = batch.rows[kept]
        for k, (part, share) in enumerate(zip(parts, mixture.shares(parts, batch), strict=True)):
            outputs[k][row] = part.outputs(batch).double()[kept]
            shares[row, k] = share[kept].squeeze(-1) if isinstance(share, Tensor) else share
    item = None if every.item is None else _by_row(every.item, every.row, rows)
    group = _by_row(np.repeat(np.arange(len(groups.offsets) - 1), np.diff(groups.offsets)), every.row, rows)
    centre, scale = _units(fitted, item, rows, family.columns)
    found = {}
    for c, name in enumerate(schema.roles.of("value")):
        observed, scored = _observed(family, groups, item, c, rows)
        laws = tuple(_laws([family.column(f, c) for f in outputs], shares))
        units = np.ascontiguousarray(centre[:, c]), np.ascontiguousarray(scale[:, c])
        law = Distribution(name, laws, *units, observed, scored, group, item, schema.vocabulary)
        found[name] = replace(law, calibration=calibration.get(name))
        refuse_infinite(found[name].mean + found[name].sd, np.ones(rows, bool), groups, f"prediction of {name!r}", name)
    return found


def _laws(columns: Sequence[tuple[Family, Tensor]], shares: Tensor) -> Iterator[tuple[np.ndarray, Laws]]:
    """Rows by the family that they have."""
    family, first = columns[0]
    for index, law, place in family.laws(first):
        if len(index):
            outputs = tuple(f[index][:, place] for _, f in columns)
            yield index.numpy(), Laws(law, outputs, shares[index])


def _units(fitted: Fitted, item: np.ndarray | None, rows: int, columns: int) -> tuple[np.ndarray, np.ndarray]:
    """centre and scale, (row, column)."""
    standardiser = fitted.schema.standardiser
    if standardiser is None:
        return np.zeros((rows, columns)), np.ones((rows, columns))
    nothing, one = np.zeros((rows, columns)), np.ones((rows, columns))
    return standardiser.undo(nothing, item), standardiser.undo_scale(one, item)


def _observed(
    family: Product, groups: Groups, item: np.ndarray | None, column: int, rows: int
) -> tuple[np.ndarray, np.ndarray]:
    """The table's own values, and which of them are scored: those that are there, are targets, have a weight, and whose
    kind is known."""
    every = groups.every
    value = np.full(rows, np.nan)
    if every.value is not None:
        value[every.row] = every.value[:, column]
    scored = ~np.isnan(value)
    if every.target is not None:
        scored[every.row] &= every.target.astype(bool)
    if every.weight is not None:
        scored[every.row] &= every.weight > 0
    part = next(part for part, _, where in family.slices() if column < where.stop)
    if isinstance(part, PerItem) and item is not None:
        scored &= item < len(part.kinds)
    return value, scored


def _by_row(entries: np.ndarray, row: np.ndarray, rows: int) -> np.ndarray:
    """In the order of the table."""
    found = np.zeros(rows, entries.dtype)
    found[row] = entries
    return found
