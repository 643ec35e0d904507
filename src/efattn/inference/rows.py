"""Log-likelihoods and predictions of the rows of a table, in the table's order and units.

    log p(y) = log p'(y') + log |dy'/dy|,      y' = (y - centre) / scale

Each row is predicted from its context, never from itself. Of several members of an ensemble it is their mixture.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from efattn.data import Batch, Groups, Schema
from efattn.families import Ordinal, Product
from efattn.inference import mixture
from efattn.models import Conditionals

TOKENS = 16_384


def batches(groups: Groups, term: Conditionals) -> Iterator[Batch]:
    yield from groups.batches(batch_size(term), context=term.context)


def batch_size(term: Conditionals) -> int:
    """As many tokens as the outputs allow: a vocabulary of a million items makes batches small."""
    return max(256, min(TOKENS, 2**26 // term.family.size))


@torch.no_grad()
def log_likelihoods(
    members: Mapping[str, Sequence[Conditionals]], schema: Schema, groups: Groups, rows: int
) -> dict[str, np.ndarray]:
    """For each term (row,), NaN where a row is not scored. groups: in the table's units; rows: of the table."""
    observed = None if groups.every.value is None else ~np.isnan(groups.every.value)
    inside = schema.standardise(groups)
    found = {}
    for name, terms in members.items():
        term, out = terms[0], np.full(rows, np.nan)
        for batch in batches(inside, term):
            scores = mixture.log_prob(terms, batch)
            put(out, batch, scores.values, scores.scored)
        if not term.of_items and observed is not None and schema.standardiser is not None:
            out[groups.every.row] += log_jacobian(term, schema, observed)
        found[name] = out
    return found


def log_jacobian(term: Conditionals, schema: Schema, observed: np.ndarray) -> np.ndarray:
    """(row,): of the columns that are scored, which are those of the parts observed whole."""
    assert isinstance(term.family, Product)
    assert schema.standardiser is not None
    whole = np.zeros_like(observed)
    for _, _, columns in term.family.slices():
        whole[:, columns] = observed[:, columns].all(1, keepdims=True)
    return schema.standardiser.log_jacobian(whole)


@torch.no_grad()
def predictions(
    terms: Sequence[Conditionals], schema: Schema, groups: Groups, rows: int, interval: float | None
) -> dict[str, np.ndarray]:
    """For each value column its _mean and _sd, with an interval its _lower and _upper, of an ordinal one also its
    _mode and the probability of each level."""
    family = terms[0].family
    assert isinstance(family, Product)
    names, parts = schema.roles.of("value"), mixture.shares(terms)
    columns = {f"{name}_{what}": np.full(rows, np.nan) for name in names for what in ("mean", "sd")}
    if interval is not None:
        columns |= {f"{name}_{what}": np.full(rows, np.nan) for name in names for what in ("lower", "upper")}
    for batch in batches(schema.standardise(groups), terms[0]):
        members = [term.outputs(batch).double() for term in terms]
        item = None if batch.item is None else batch.item[:, : batch.length].numpy()
        found = {"mean": mixture.mean(family, members, parts), "sd": mixture.variance(family, members, parts).sqrt()}
        if interval is not None:
            found["lower"] = mixture.quantile(family, members, parts, (1 - interval) / 2)
            found["upper"] = mixture.quantile(family, members, parts, (1 + interval) / 2)
        for what, values in found.items():
            plain = _in_units(schema, values.numpy(), item, spread=what == "sd")
            for c, name in enumerate(names):
                put(columns[f"{name}_{what}"], batch, torch.from_numpy(np.ascontiguousarray(plain[..., c])))
        _put_levels(columns, batch, members, parts, family, names, rows)
    return columns


def _put_levels(
    columns: dict[str, np.ndarray],
    batch: Batch,
    members: Sequence[Tensor],
    parts: Sequence[float],
    family: Product,
    names: tuple[str, ...],
    rows: int,
) -> None:
    for part, outputs, where in family.slices():
        if isinstance(part, Ordinal):
            name = names[where.start]
            p = mixture.average((part.probabilities(f[..., outputs]) for f in members), parts)
            levels = range(part.low, part.low + part.levels)
            columns.setdefault(f"{name}_mode", np.full(rows, np.nan))
            put(columns[f"{name}_mode"], batch, p.argmax(-1).double() + part.low)
            for k, level in enumerate(levels):
                columns.setdefault(f"{name}_p_{level}", np.full(rows, np.nan))
                put(columns[f"{name}_p_{level}"], batch, p[..., k])


def _in_units(schema: Schema, values: np.ndarray, item: np.ndarray | None, *, spread: bool) -> np.ndarray:
    if schema.standardiser is None:
        return values
    return schema.standardiser.undo_scale(values) if spread else schema.standardiser.undo(values, item)


def put(out: np.ndarray, batch: Batch, values: Tensor, where: Tensor | None = None) -> None:
    """Values (batch, length) to the table's rows they belong to."""
    assert batch.rows is not None
    kept = batch.rows >= 0 if where is None else (batch.rows >= 0) & where
    out[batch.rows[kept].numpy()] = values[kept].numpy()
