"""Draws of all missing cells of a group together: multiple imputation.

Cell by cell, each from its law given what is observed and what was drawn before it, while the rest is missing: a draw
of a joint law. (Gibbs sweeps, each cell again given all others, need not have one: conditionals that were fitted one by
one are not those of one law, and sweeps over them can run away.) From the past, it is the law of values given earlier
ones.

Random numbers belong to a group: they follow from the seed, its name and what it holds, so that the same group is
completed in the same way whatever surrounds it. Lags are context, whose own missing cells stay missing.
"""

import hashlib
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from efattn.data import Batch, Groups
from efattn.families import Product
from efattn.inference import holes
from efattn.inference.fitted import TOKENS, Fitted, Part
from efattn.inference.holes import Said, Slots
from efattn.inference.predict import in_units
from efattn.models.scoring import at

EDGE = 2.0**-40  # of levels at which a law is read off: its ends may be infinite


@torch.no_grad()
def drawn(fitted: Fitted, parts: Sequence[Part], groups: Groups, rows: int, draws: int, seed: int) -> np.ndarray:
    """(draw, row, column) in the table's units; NaN where a cell is observed. groups: in the table's units."""
    family, part = parts[0].model.family, holes.with_holes(groups)
    assert isinstance(family, Product)
    parts = [one for one in parts if one.share or one.new]
    out = np.full((draws, rows, family.columns), np.nan)
    place = np.full(rows, -1)
    place[groups.every.row] = np.arange(len(groups.every.row))
    for batch in fitted.batches(fitted.schema.standardise(part), parts[0].model):
        where = holes.slots(batch)
        assert batch.rows is not None
        if not where.there.any():
            continue
        keys = [_key(groups, place[row[row >= 0].numpy()]) for row in batch.rows]
        together = max(TOKENS // max(batch.exists.numel(), 1), 1)
        for first in range(0, draws, together):
            some = range(first, min(first + together, draws))
            value, item, row = _draws_of(family, parts, batch, where, keys, some, seed)
            for k, draw in enumerate(some):
                out[draw, row] = in_units(fitted, value[k], item, spread=False)
    out[:, ~holes.missing(groups, rows)] = np.nan
    return out


def _key(groups: Groups, at: np.ndarray) -> bytes:
    """Of a group, or a piece of one: its name, and what it holds."""
    every, digest = groups.every, hashlib.blake2b(digest_size=16)
    number = int(np.searchsorted(groups.offsets, at[0], "right")) - 1
    digest.update(repr(groups.labels[number] if groups.columns else None).encode())
    assert every.value is not None
    digest.update(np.where(np.isnan(every.value[at]), np.nan, every.value[at]).tobytes())
    return digest.digest()


def _draws_of(
    family: Product, parts: Sequence[Part], batch: Batch, where: Slots, keys: Sequence[bytes], draws: range, seed: int
) -> tuple[np.ndarray, np.ndarray | None, np.ndarray]:
    """(draw, row, column) as a model sees them, and items and rows (row,): all groups of a batch at once."""
    groups, most = len(where.place), where.place.shape[1]
    again = torch.arange(groups).repeat(len(draws))
    batch = batch.select(again)
    place, there = where.place[again], where.there[again]
    random = torch.zeros(len(again), most, 1 + family.columns, dtype=torch.float64)
    for k, (draw, group) in enumerate((draw, group) for draw in draws for group in range(groups)):
        count = int(where.there[group].sum())
        levels = torch.from_numpy(_uniform(keys[group], seed, draw, (count, 1 + family.columns)))
        random[k, :count] = levels.clamp(EDGE, 1 - EDGE)
    assert batch.value is not None
    assert batch.observed is not None
    open_, batch = ~batch.observed, batch.replace(value=batch.value.clone(), observed=batch.observed.clone())
    for t in range(most):
        mine = there[:, t].nonzero().squeeze(-1)
        if len(mine):
            _step(family, parts, batch, open_, mine, place[mine, t], random[mine, t])
    assert batch.value is not None
    found = at(batch.value[:, : batch.length].double(), place)[there]
    value = found.reshape(len(draws), -1, family.columns).numpy()
    first = batch.select(torch.arange(groups))
    assert first.rows is not None
    item = None if first.item is None else at(first.item[:, : first.length], where.place)[where.there].numpy()
    return value, item, at(first.rows, where.place)[where.there].numpy()


def _uniform(key: bytes, seed: int, draw: int, shape: tuple[int, ...]) -> np.ndarray:
    words = np.frombuffer(key, np.uint32).tolist()
    return np.random.default_rng([seed, draw, *words]).random(shape)


def _step(
    family: Product, parts: Sequence[Part], batch: Batch, open_: Tensor, mine: Tensor, place: Tensor, random: Tensor
) -> None:
    """One cell of each of these groups. random: (group, 1 + column), for the mixture's part and for values."""
    here = batch.select(mine)
    every = Slots(place[:, None], torch.ones(len(mine), 1, dtype=torch.bool))
    one: Said = holes.said(parts, here, every, ~open_[mine])
    f = torch.stack(one.outputs)  # (part, group, size)
    shares = [torch.as_tensor(share, dtype=torch.float64).expand(len(mine), 1) for share in one.shares]
    ends = torch.cat(shares, 1).cumsum(1)
    which = (ends < random[:, :1] * ends[:, -1:]).sum(1).clamp_max(len(one.outputs) - 1)
    value = _read_off(family, f[which, torch.arange(len(mine))], random[:, 1:])
    assert batch.value is not None
    assert batch.observed is not None
    kept = open_[mine, place]  # columns of this row that are missing
    batch.value[mine, place] = torch.where(kept, value.to(batch.value.dtype), batch.value[mine, place])
    batch.observed[mine, place] |= kept


def _read_off(family: Product, f: Tensor, p: Tensor) -> Tensor:
    """(group, column): values at these levels; columns that vary together are drawn together."""
    value = family.quantile(f, p)
    for part, outputs, columns in family.slices():
        if part.columns > 1:
            for k, row in enumerate(f):
                generator = torch.Generator().manual_seed(int(float(p[k, columns.start]) * 2**52))
                value[k, columns] = part.sample(row[outputs], generator).double()
    return value
