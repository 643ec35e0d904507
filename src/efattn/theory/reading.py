"""What the theorems speak of, read off a fitted model in float64, one row per scored row of a table.

item term     context H, centre delta (item, width), natural parameters H delta^T + bias
value term    context H, features (what the head's last linear map reads), natural parameters in the table's units
"""

import copy
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from efattn.data import Batch, Schema
from efattn.errors import DataError
from efattn.estimators import EFA
from efattn.inference.embeddings import item_vectors
from efattn.models import Model, Term
from efattn.network import Head, ReadOff


@dataclass(frozen=True)
class Reading:
    """row (n,): of the table, ascending; context (n, width); features (n, d_j); natural (n, any), minus infinity for an
    item that the support rules out; centre (item, width), of an item term only; biased: whether the head adds a bias
    to what varies."""

    row: np.ndarray
    context: np.ndarray
    features: np.ndarray
    natural: np.ndarray
    centre: np.ndarray | None
    biased: bool

    def at(self, row: np.ndarray) -> "Reading":
        """The given rows of the table, all of which it has."""
        i = np.searchsorted(self.row, row)
        return Reading(row, self.context[i], self.features[i], self.natural[i], self.centre, self.biased)


def terms(model: EFA) -> dict[str, Term]:
    """The terms of a fitted EFA by name."""
    if not isinstance(model, EFA):
        raise DataError(f"The theorems are about attention: pass a fitted EFA, not {type(model).__name__}.")
    check_is_fitted(model)
    return {name: cast(Term, model.model_[name]) for name in model.model_.terms}


def value_term(model: EFA) -> Term:
    value_terms = [term for term in terms(model).values() if not term.of_items]
    if not value_terms:
        raise DataError("This model has no value term: fit with value=... and terms including 'value'.")
    return value_terms[0]


def untrained(model: EFA, seed: int = 0) -> Model:
    """A network of the same make with other random weights, which keeps the units of its attributes."""
    fresh = model.untrained(seed)
    for mine, theirs in zip(fresh.buffers(), model.model_.buffers(), strict=True):
        mine.copy_(theirs)
    return fresh.eval()


@torch.no_grad()
def read(model: EFA, name: str, table: Any, network: Model | None = None) -> Reading:
    """Of the term of that name, or of the same term of another network in its place."""
    network = network or model.model_
    term = copy.deepcopy(cast(Term, network[name])).double().eval()
    groups = model.schema_.standardise(model.schema_.encode(table))
    row, context, features, natural = [], [], [], []
    for batch in model.fitted_.batches(groups, term):
        batch = batch.to(dtype=torch.float64)
        assert batch.rows is not None
        h, scored = term.rows(batch), term.targets(batch) & (batch.rows >= 0)
        outputs = term.outputs(batch) if term.of_items else natural_parameters(term, model.schema_, batch)
        row.append(batch.rows[scored])
        context.append(h[scored])
        features.append(head_features(term.head, h[scored]))
        natural.append(outputs[scored])
    if not row:
        raise DataError("No row of this table can be scored: every target is missing or unknown.")
    by = torch.cat(row).argsort()
    centre = item_vectors(Model({name: term}), "centre") if term.of_items else None
    return Reading(
        row=torch.cat(row)[by].numpy(),
        context=torch.cat(context)[by].numpy(),
        features=torch.cat(features)[by].numpy(),
        natural=torch.cat(natural)[by].numpy(),
        centre=None if centre is None else centre.numpy(),
        biased=biased(term.head),
    )


def biased(head: Head) -> bool:
    """Whether outputs that vary have a bias; those that do not vary have nothing else."""
    return head.bias is not None and head.biased is None


def head_features(head: Head, h: Tensor) -> Tensor:
    """What the last linear map of the head reads: K_theta2 in the paper's Assumption on J = K^T L."""
    body = head.body
    if isinstance(body, nn.Sequential) and isinstance(body[-1], nn.Linear):
        return body[:-1](h)
    return h[..., -body.outputs :] if isinstance(body, ReadOff) else h


def natural_parameters(term: Term, schema: Schema, batch: Batch) -> Tensor:
    """(batch, target, any), as each family identifies them. Standardised columns have units of each fit's own, so that
    their families are told the mean in the table's."""
    f = term.outputs(batch)
    mean = term.family.mean(f)
    if schema.standardiser is not None:
        item = None if batch.item is None else batch.item[:, : batch.length].numpy()
        mean = torch.as_tensor(schema.standardiser.undo(mean.numpy(), item))
    return term.family.identified(f, mean)
