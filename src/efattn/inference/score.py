"""How probable rows are.

    log p(y) = log p'(y') + log |dy'/dy|,      y' = (y - centre) / scale

Each row is scored from its context, never from itself, by the mixture of all members and companions. From the past
these conditionals multiply to the probability of a group, so that their sum is its log-likelihood. From the others they
do not: their sum is a leave-one-out log score (a pseudo-likelihood), with which models compare on the same rows, and no
likelihood. A row counts as much as its weight says, as in training.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from efattn.data import Batch, Groups, Schema, Table
from efattn.errors import DataError
from efattn.families import Product
from efattn.inference import frames, mixture, wide
from efattn.inference.fitted import Fitted, batch_tokens
from efattn.inference.tables import Asked, Tell, announce, encoded
from efattn.models import Conditionals


class Rows(NamedTuple):
    """Of one term: log-likelihoods (row,) and which rows are scored."""

    values: np.ndarray
    scored: np.ndarray


def score(
    fitted: Fitted, tables: Iterable[Table], *, member: int | None = None, tell: Tell = announce
) -> dict[str, Any]:
    """mean_log_likelihood: the weighted total over the scored rows by their weight, and per term; observations, how
    many rows are scored, and how many items are unknown; kind: "log-likelihood", or "leave-one-out log score" where
    rows are scored from the others of their group."""
    observations, scored, unknown, weighed = 0, 0, 0, 0.0
    sums, weights = dict.fromkeys(fitted.names, 0.0), dict.fromkeys(fitted.names, 0.0)
    for asked, terms in _each(fitted, tables, member, tell):
        weight, any_ = row_weights(asked), np.zeros(len(asked.table), bool)
        for name, rows in terms.items():
            sums[name] += float((rows.values * weight)[rows.scored].sum())
            weights[name] += float(weight[rows.scored].sum())
            any_ |= rows.scored
        observations, scored, weighed = observations + len(any_), scored + int(any_.sum()), weighed + weight[any_].sum()
        unknown += unknown_items(asked.groups)
    if not scored:
        raise DataError("No row of this table can be scored: every target is missing, unknown or of weight 0.")
    means = {name: sums[name] / weights[name] if weights[name] else None for name in sums}
    counts = {"observations": observations, "scored": scored, "unknown": unknown}
    kind = "log-likelihood" if fitted.context == "past" else "leave-one-out log score"
    return {"mean_log_likelihood": sum(sums.values()) / float(weighed), "terms": means, **counts, "kind": kind}


def log_likelihood(
    fitted: Fitted, tables: Iterable[Table], *, member: int | None = None, tell: Tell = announce
) -> Iterator[Any]:
    """Each table with one column <term>_log_likelihood per term, of a wide one with one per column; null where a row is
    not scored, or a cell."""
    if fitted.wide is not None:
        longs, last = wide.each(fitted, tables, tell)
        for _, terms in _each(wide.plain(fitted), longs, member, tell):
            (rows,) = terms.values()
            shape = (-1, len(fitted.wide))
            scores = (x.reshape(shape).T for x in rows)
            columns = {
                f"{name}_log_likelihood": frames.nulls(*one)
                for name, *one in zip(fitted.wide.names, *scores, strict=True)
            }
            yield frames.beside(last().table, columns)
        return
    for asked, terms in _each(fitted, tables, member, tell):
        columns = {f"{name}_log_likelihood": frames.nulls(*rows) for name, rows in terms.items()}
        yield frames.beside(asked.table, columns)


def _each(
    fitted: Fitted, tables: Iterable[Table], member: int | None, tell: Tell
) -> Iterator[tuple[Asked, dict[str, Rows]]]:
    need = ("value",) if "value" in fitted.terms else ()
    for asked in encoded(fitted, tables, tell, need=need):
        yield asked, row_scores(fitted, asked.groups, len(asked.table), member)


def row_scores(fitted: Fitted, groups: Groups, rows: int, member: int | None = None) -> dict[str, Rows]:
    """For each term. groups: in the table's units; rows: of the table."""
    return {name: term_scores(fitted, name, groups, rows, member) for name in fitted.names}


@torch.no_grad()
def term_scores(
    fitted: Fitted,
    name: str,
    groups: Groups,
    rows: int,
    member: int | None = None,
    order: Callable[[Batch], Batch] | None = None,
) -> Rows:
    """Of one term, by its name. order: in which groups are gone through, each row given what stands before it."""
    inside, weight, parts = fitted.schema.standardise(groups), groups.every.weight, fitted.parts(name, member)
    term, values, scored = parts[0].model, np.zeros(rows), np.zeros(rows, bool)
    batches = fitted.batches(inside, term)
    if order is not None:  # of what is cut into pieces, these come one after the other
        batches = map(order, inside.batches(batch_tokens(term), context="past", dtype=fitted.dtype))
    for batch in batches:
        here = mixture.log_prob(parts, batch)
        put(values, batch, here.values, here.scored)
        put(scored, batch, here.scored)
    if not term.of_items and groups.every.value is not None:
        values[groups.every.row] += log_jacobian(term, fitted.schema, ~np.isnan(groups.every.value), groups.every.item)
    if weight is not None:
        scored[groups.every.row] &= weight > 0
    column = fitted.schema.roles.of("item" if term.of_items else "value")[0]
    refuse_infinite(values, scored, groups, f"log-likelihood of {name!r}", column)
    return Rows(values, scored)


def refuse_infinite(values: np.ndarray, expected: np.ndarray, groups: Groups, what: str, column: str) -> None:
    """Neither NaN nor infinity ever stands for a row, scored or not."""
    bad = np.flatnonzero(~np.isfinite(values) & expected)
    if bad.size:
        row = int(bad[0])
        at = int(np.flatnonzero(groups.every.row == row)[0])
        where = groups.label(at) if groups.chosen is None else f"row {groups.first_row + row}"
        raise DataError(
            f"The {what} is no finite number at {where}, column {column!r}, and in {bad.size} rows altogether: "
            "something in its group is too large for this model. Look for extreme values, or a fill value that means "
            "missing.",
            column=column,
            row=groups.first_row + row,
        )


def row_weights(asked: Asked) -> np.ndarray:
    """(row,), in the table's order."""
    weight, every = np.ones(len(asked.table)), asked.groups.every
    if every.weight is not None:
        weight[every.row] = every.weight
    return weight


def unknown_items(groups: Groups) -> int:
    if groups.item is None or groups.vocabulary is None:
        return 0
    return int((groups.item == groups.vocabulary.unknown).sum())


def log_jacobian(term: Conditionals, schema: Schema, observed: np.ndarray, item: np.ndarray | None) -> np.ndarray:
    """(row,): of the columns that are scored."""
    if schema.standardiser is None:
        return np.zeros(len(observed))
    assert isinstance(term.family, Product)
    whole = np.zeros_like(observed)
    for part, _, columns in term.family.slices():
        whole[:, columns] = observed[:, columns] & (part.partial | observed[:, columns].all(1, keepdims=True))
    return schema.standardiser.log_jacobian(whole, item)


def put(out: np.ndarray, batch: Batch, values: Tensor, where: Tensor | None = None) -> None:
    """Values (batch, length) to the table's rows they belong to."""
    assert batch.rows is not None
    kept = batch.rows >= 0 if where is None else (batch.rows >= 0) & where
    out[batch.rows[kept].numpy()] = values[kept].numpy()
