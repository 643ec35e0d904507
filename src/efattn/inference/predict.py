"""What is expected of each row, from its context, never from itself, in the table's units.

values   <value>_mean, _sd, _lower, _upper; _q10, _q50, ... where these quantiles are asked for; of ordered levels also
         _mode, the most probable, and, of at most 50 levels, _p_<level>, the probability of each
items    <item>_mode and its probability, where there are no values
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from numbers import Real
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from efattn.data import Batch, Groups, Table
from efattn.errors import DataError, named
from efattn.families import Product
from efattn.inference import frames, mixture, wide
from efattn.inference.fitted import Fitted, Part
from efattn.inference.given import views
from efattn.inference.score import put, refuse_infinite
from efattn.inference.tables import Tell, announce, encoded
from efattn.models.scoring import every

MOST_LEVELS = 50  # that get a column each
NOTHING: Mapping[str, float] = MappingProxyType({})


def predict(
    fitted: Fitted,
    tables: Iterable[Table],
    interval: float | None = 0.9,
    *,
    quantiles: Sequence[float] = (),
    given: str | Sequence[str] | None = None,
    member: int | None = None,
    tell: Tell = announce,
) -> Iterator[Any]:
    """Each table with <value>_mean, _sd, _lower and _upper beside it, and _q10 of quantiles=[.1]; of a model of items
    alone, <item>_mode and its probability. A column of the user's is never replaced: underscores are put behind the new
    one's name. given: columns of the row itself that are known, of which each other one is told given these; of a wide
    table, where all are known by default, only these."""
    if interval is not None and (isinstance(interval, bool) or not isinstance(interval, Real) or not 0 < interval < 1):
        wanted = f"{named('interval')} is a probability between 0 and 1, or None"
        raise DataError(f"{wanted}; found {interval!r}.", option="interval")
    levels = checked_quantiles(quantiles)
    known = None if given is None else checked_given(fitted, given)
    if fitted.wide is not None:
        yield from _wide(fitted, tables, interval, levels, member, tell, known)
        return
    kind = "item" if fitted.terms == ("item",) else "value"
    parts = fitted.parts_of("value" if levels else kind, "predict quantiles" if levels else "predict", member)
    for table, groups in encoded(fitted, tables, tell, items=kind == "item"):
        if kind == "item":
            columns = most_probable(fitted, parts, groups, len(table))
        else:
            mine = fitted if member is None else replace(fitted, calibration={})  # which is of the mixture
            columns = expected(mine, parts, groups, len(table), interval, levels, known or ())
        yield frames.beside(table, columns)


def _wide(
    fitted: Fitted,
    tables: Iterable[Table],
    interval: float | None,
    levels: Mapping[str, float],
    member: int | None,
    tell: Tell,
    given: Sequence[str] | None,
) -> Iterator[Any]:
    """Of a wide table, each cell given the rest of its row, or these columns of it."""
    longs, last = wide.each(fitted, tables, tell, given)
    parts, mine = fitted.parts_of("value", "predict", member), wide.plain(fitted)
    mine = mine if member is None else replace(mine, calibration={})
    for long, groups in encoded(mine, longs, tell):
        columns = wide.told(fitted, expected(mine, parts, groups, len(long), interval, levels))
        yield frames.beside(last().table, columns)


def checked_given(fitted: Fitted, given: str | Sequence[str]) -> tuple[str, ...]:
    """Value columns, or columns of a wide table."""
    names = (given,) if isinstance(given, str) else tuple(given)
    there = fitted.schema.roles.of("value") if fitted.wide is None else fitted.wide.names
    unknown = [name for name in names if name not in there]
    if unknown:
        listed = ", ".join(map(repr, there[:12]))
        raise DataError(
            f"{named('given')} names value columns of this model, {listed}; found {unknown[0]!r}.", option="given"
        )
    return names


def checked_quantiles(quantiles: Sequence[float]) -> dict[str, float]:
    """By the end of their columns' names: q10 of .1, q2.5 of .025."""
    several: Any = [quantiles] if isinstance(quantiles, Real) else quantiles
    if not isinstance(several, Iterable) or isinstance(several, str | bytes):
        raise DataError(f"{named('quantiles')} are probabilities, as [.1, .5, .9]; found {quantiles!r}.")
    found = {}
    for p in several:
        if isinstance(p, bool) or not isinstance(p, Real) or not 0 < float(p) < 1:
            wanted = f"{named('quantiles')} are probabilities between 0 and 1"
            raise DataError(f"{wanted}; found {p!r}.", option="quantiles")
        found[f"q{100 * float(p):.12g}"] = float(p)
    return found


@torch.no_grad()
def most_probable(fitted: Fitted, parts: Sequence[Part], groups: Groups, rows: int) -> dict[str, Any]:
    """<item>_mode per key of the items, and its probability; null and 0 where every item is there already."""
    item, probability, vocabulary = np.zeros(rows, np.int64), np.full(rows, np.nan), fitted.vocabulary
    for batch in fitted.batches(groups, parts[0].model):
        there = batch.exists[:, : batch.length]
        best = [p.max(-1) for p in mixture.items_at(parts, batch, every(batch), there, vocabulary.columns[0])]
        if best:
            put(item, batch, _spread(there, torch.cat([x.indices for x in best])), there)
            put(probability, batch, _spread(there, torch.cat([x.values for x in best])), there)
    names = {
        f"{column}_mode": frames.nulls(x, probability > 0)
        for column, x in frames.item_columns(vocabulary, item).items()
    }
    return {**names, f"{'_'.join(vocabulary.columns)}_probability": probability}


def _spread(there: Tensor, x: Tensor) -> Tensor:
    """(batch, length), from the entries that are there."""
    return x.new_zeros(there.shape).masked_scatter(there, x)


@torch.no_grad()
def expected(
    fitted: Fitted,
    parts: Sequence[Part],
    groups: Groups,
    rows: int,
    interval: float | None,
    quantiles: Mapping[str, float] = NOTHING,
    given: Sequence[str] = (),
) -> dict[str, np.ndarray]:
    """For each value column its _mean and _sd, with an interval its _lower and _upper, quantiles by their names, of
    levels also the _mode and, where they are few, the probability of each. given: value columns of the row itself that
    are known, of which each column is told given all but itself."""
    family, schema = parts[0].model.family, fitted.schema
    assert isinstance(family, Product)
    names = schema.roles.of("value")
    ends = {} if interval is None else {"lower": (1 - interval) / 2, "upper": (1 + interval) / 2}
    ends |= quantiles
    kinds = ("mean", "sd", *ends)
    columns = {f"{name}_{kind}": np.full(rows, np.nan) for name in names for kind in kinds}
    means = set(columns)
    for batch in fitted.batches(schema.standardise(groups), parts[0].model):
        members, shares = [part.outputs(batch).double() for part in parts], mixture.shares(parts, batch)
        item = None if batch.item is None else batch.item[:, : batch.length].numpy()
        for f, parted, some in views(family, batch, members, shares, names, given):
            answers = {"mean": mixture.mean(family, f, parted), "sd": mixture.variance(family, f, parted).sqrt()}
            for kind, p in ends.items():
                answers[kind] = mixture.quantile(family, f, parted, adjusted(fitted, names, p, answers["mean"], item))
            for kind, values in answers.items():
                plain = in_units(fitted, values.numpy(), item, spread=kind == "sd")
                for name, c in some.items():
                    put(columns[f"{name}_{kind}"], batch, torch.from_numpy(np.ascontiguousarray(plain[..., c])))
            _put_levels(fitted, columns, batch, f, parted, rows, some)
    for name, column in columns.items():
        told = np.ones(rows, bool) if name in means else ~np.isnan(column)  # of some items alone there are levels
        refuse_infinite(column, told, groups, f"prediction {name!r}", names[0])
    return columns


def adjusted(fitted: Fitted, names: Sequence[str], p: float, like: Tensor, item: np.ndarray | None) -> float | Tensor:
    """The level at which a quantile is read off: p itself, or of each column (..., columns) where it is calibrated; of
    columns of a wide table, which are items (...,), of each of these."""
    if not fitted.calibration:
        return p
    if item is not None and not set(fitted.calibration) <= set(names):
        levels = np.full(len(fitted.vocabulary) + 1, p)
        for name, one in fitted.calibration.items():
            levels[fitted.vocabulary.number(name)] = one.level(p)
        return torch.from_numpy(levels[np.minimum(item, len(levels) - 1)])[..., None].expand_as(like)
    found = [fitted.calibration[name].level(p) if name in fitted.calibration else p for name in names]
    return torch.tensor(found, dtype=torch.float64).expand_as(like)


def _put_levels(
    fitted: Fitted,
    columns: dict[str, np.ndarray],
    batch: Batch,
    members: Sequence[Tensor],
    shares: Sequence[mixture.Share],
    rows: int,
    some: Mapping[str, int],
) -> None:
    """some: of which value columns."""
    assert fitted.family is not None
    names = fitted.schema.roles.of("value")
    for part, place, where in fitted.family.slices():
        name, mine = names[where.start], [f[..., place] for f in members]
        if name not in some:
            continue
        for index, law, outputs in part.laws(mine[0]):
            levels = law.level_names
            if not levels:
                continue
            here = torch.zeros(mine[0][..., 0].numel(), dtype=torch.bool)
            here[index] = True
            here = here.reshape(mine[0].shape[:-1])
            p = mixture.average((law.probabilities(f[..., outputs]) for f in mine), shares)
            columns.setdefault(f"{name}_mode", np.full(rows, np.nan))
            put(columns[f"{name}_mode"], batch, torch.as_tensor(levels, dtype=torch.float64)[p.argmax(-1)], here)
            for k, level in enumerate(levels if len(levels) <= MOST_LEVELS else ()):
                columns.setdefault(f"{name}_p_{level}", np.full(rows, np.nan))
                put(columns[f"{name}_p_{level}"], batch, p[..., k], here)


def in_units(fitted: Fitted, values: np.ndarray, item: np.ndarray | None, *, spread: bool) -> np.ndarray:
    standardiser = fitted.schema.standardiser
    if standardiser is None:
        return values
    return standardiser.undo_scale(values, item) if spread else standardiser.undo(values, item)
