"""Which measurement would tell most about the others.

    reduction of c  =  sum over other candidates j of  Var[y_j]  -  mean over draws of y_c of Var[y_j | y_c]

Candidates are rows without values, in groups of rows that are known. A draw of what a candidate might turn out to be is
put in its place, and the others are predicted again. Of a wide table the missing cells are candidates, each for the
others of its row, whose variances count as shares of what they are now: columns have units of their own.
"""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from efattn.data import Groups, Table
from efattn.data.wide import VALUE
from efattn.errors import DataError, named
from efattn.families import Product
from efattn.inference import frames, mixture
from efattn.inference.blank_tables import as_polars, check_count
from efattn.inference.completing import Blank, How, completed
from efattn.inference.drawn_tables import check_seed, copies
from efattn.inference.fitted import Fitted
from efattn.inference.predict import in_units
from efattn.inference.score import put
from efattn.inference.tables import Tell, announce
from efattn.inference.wide import layout, plain, turned

if TYPE_CHECKING:
    import polars as pl


def where_next(
    fitted: Fitted,
    table: Table,
    candidates: Table | None = None,
    *,
    draws: int = 20,
    seed: int = 0,
    member: int | None = None,
    tell: Tell = announce,
) -> Any:
    """The candidates, those first whose measurement is worth most, with <value>_sd, what is not known of each now, and
    <value>_reduction, by how much the summed variance of the other candidates of its group is expected to fall. Of a
    wide table: row, its id, column and reduction of each missing cell."""
    import polars as pl

    draws, how = check_count("draws", draws), How(check_seed(seed), 1, member)
    fitted.parts_of("value", "tell where to measure next", member)
    if fitted.wide is not None:
        return table.same_kind(_cells(fitted, table, candidates, draws, how, tell))
    if candidates is None:
        raise DataError(f"Say what might be measured: {named('candidates')} are rows without values.")
    known, asked = as_polars(table), as_polars(candidates)
    if not len(asked):
        raise DataError("There are no candidates: give at least one row.")
    names = fitted.schema.roles.of("value")
    asked = asked.drop([name for name in names if name in asked.columns])
    told, many = copies(fitted, pl.concat([known, asked], how="diagonal_relaxed"), draws)
    groups = told.schema.encode(Table.read(many))
    fitted.check(groups, items=False)
    for note in fitted.schema.encode(table).notes:
        if note.important:
            tell(note)
    now, reduction = _reductions(told, groups, len(known), len(asked), draws, how)
    columns: dict[str, Any] = {}
    for c, name in enumerate(names):
        columns |= {f"{name}_sd": np.sqrt(now[:, c]), f"{name}_reduction": reduction[:, c]}
    made = asked.with_columns(pl.Series(n, x) for n, x in frames.renamed(columns, asked.columns).items())
    total = now.sum(0)
    worth = np.divide(reduction, total, out=np.zeros_like(reduction), where=total > 0).sum(1)
    return candidates.same_kind(made[np.argsort(-worth, kind="stable").tolist()])


def _cells(fitted: Fitted, table: Table, candidates: Table | None, draws: int, how: How, tell: Tell) -> "pl.DataFrame":
    """The missing cells of a wide table, by what measuring each tells of the others of its row."""
    import polars as pl

    if candidates is not None:
        raise DataError(f"Of a wide table the missing cells are candidates: leave {named('candidates')} out.")
    here = turned(fitted, table, tell)
    row, column = np.nonzero(np.isnan(here.codes))
    if not len(row):
        raise DataError("No cell is missing in this table: there is nothing left to measure.")
    long = as_polars(here.long)
    gone = long[VALUE].is_null()
    both = pl.concat([long.filter(~gone), long.filter(gone)])
    told, many = copies(plain(fitted), both, draws)
    known = len(long) - len(row)
    _, reduction = _reductions(told, told.schema.encode(Table.read(many)), known, len(row), draws, how, shares=True)
    columns: dict[str, Any] = {"row": row + table.first_row}
    if layout(fitted).id is not None:
        columns[str(layout(fitted).id)] = table.column(str(layout(fitted).id)).gather(row)
    columns |= {"column": np.array(layout(fitted).names)[column], "reduction": reduction[:, 0]}
    return pl.DataFrame(columns).sort("reduction", descending=True, maintain_order=True)


def _reductions(
    fitted: Fitted, groups: Groups, known: int, asked: int, draws: int, how: How, *, shares: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """(candidate, column) each: the variance now, and by how much measuring it lowers those of the others. shares: of
    what each of them is now."""
    rows = (known + asked) * np.arange(draws)[:, None] + known + np.arange(asked)  # (draw, candidate)
    of = np.empty(len(groups.every.row), np.int64)
    of[groups.every.row] = groups.group
    now = variances(fitted, groups, how.member)[rows[0]]
    reduction = np.zeros_like(now)
    for c in range(asked):
        blank = Blank(np.zeros(len(of), bool), np.zeros((len(of), now.shape[1]), bool))
        blank.value[rows[:, c]] = True
        drawn = completed(fitted, groups, blank, how)
        assert drawn.value is not None
        measured = replace(groups, every=replace(groups.every, value=drawn.value[groups.every.row]))
        after = variances(fitted, measured.subset(np.unique(of[rows[:, c]])), how.member)[rows].mean(0)
        others = (of[rows[0]] == of[rows[0, c]]) & (np.arange(asked) != c)
        fall = now[others] - after[others]
        reduction[c] = (fall / now[others] if shares else fall).sum(0)
    return now, reduction


@torch.no_grad()
def variances(fitted: Fitted, groups: Groups, member: int | None) -> np.ndarray:
    """(row of the table, column), in its units; NaN of rows outside these groups."""
    parts = fitted.parts_of("value", "predict", member)
    family = parts[0].model.family
    assert isinstance(family, Product)
    found = np.full((len(groups.every.row), family.columns), np.nan)
    for batch in fitted.batches(fitted.schema.standardise(groups), parts[0].model):
        members, shares = [part.outputs(batch).double() for part in parts], mixture.shares(parts, batch)
        spread = mixture.variance(family, members, shares).sqrt().numpy()
        item = None if batch.item is None else batch.item[:, : batch.length].numpy()
        plain = torch.from_numpy(in_units(fitted, spread, item, spread=True) ** 2)
        for c in range(family.columns):
            put(found[:, c], batch, plain[..., c])
    return found
