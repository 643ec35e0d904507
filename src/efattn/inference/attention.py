"""What a prediction looks at, with labels."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import torch

from efattn.data import Groups, Table
from efattn.errors import DataError, named, option
from efattn.inference.fitted import Fitted, enough_memory
from efattn.inference.tables import Tell, announce, encoded
from efattn.models import Model, Term


@final
@dataclass(frozen=True)
class AttentionWeights:
    """weights (layer, head, target, context): each row sums to one (softmax). A target's own column stands for its
    masked form. targets, contexts: what each row and column is; lags: how many steps earlier each column was."""

    weights: np.ndarray
    targets: list[Any]
    contexts: list[Any]
    lags: list[int]

    def mean(self) -> np.ndarray:
        """(target, context), averaged over layers and heads."""
        return self.weights.mean((0, 1))

    def columns(self) -> dict[str, Any]:
        """As a long table: layer, head, target, context, lag, weight."""
        layer, head, target, context = (x.ravel() for x in np.indices(self.weights.shape))
        return {
            "layer": layer + 1,
            "head": head + 1,
            "target": [self.targets[i] for i in target],
            "context": [self.contexts[j] for j in context],
            "lag": [self.lags[j] for j in context],
            "weight": self.weights.ravel(),
        }


def attention(
    fitted: Fitted,
    table: Table,
    term: str | None = None,
    *,
    member: int = 0,
    choose: Callable[[Groups], np.ndarray] | None = None,
    tell: Tell = announce,
) -> AttentionWeights:
    """Of one group. choose: which of the table's groups, by number, where it has several."""
    (asked,) = encoded(fitted, [table], tell)
    groups = fitted.schema.standardise(asked.groups)
    return weights_of(fitted.member(member), term, groups if choose is None else groups.subset(choose(groups)))


@torch.no_grad()
def weights_of(model: Model, name: str | None, groups: Groups) -> AttentionWeights:
    """Of the one group there is, in the term of that name (the last one by default)."""
    if len(groups) != 1:
        raise DataError(
            f"Attention is shown for one group at a time; the table has {len(groups)}. Pass the rows of one.",
            option="group",
        )
    names = list(model.terms)
    if name is not None and name not in names:
        raise DataError(f"There is no term {name!r}; this model has {', '.join(map(repr, names))}.", option="term")
    term = model[name or names[-1]]
    term = getattr(term, "network", term)
    if not isinstance(term, Term):
        raise DataError("Only an EFA has attention: latent factors and simple models have none.", option="term")
    if len(groups.pieces) > 1:
        limit = option("max_length", groups.max_length)
        raise DataError(
            f"This group is longer than {limit} and would be cut; pass fewer of its rows.", option="max_length"
        )
    parameter = next(term.parameters())
    batch = groups.batch(np.array([0]), term.context, parameter.dtype).to(parameter.device)
    with enough_memory(batch):
        weights = term.attention(batch)[0].double().cpu().numpy()
    if not np.isfinite(weights).all():
        raise DataError(
            "The attention of this group is no finite number: the weights of this model, or something in the table, "
            f"are too large to compute with. Look for extreme values, or fit with a lower {named('rate')}.",
            option="rate",
        )
    length = batch.length
    if batch.item is not None and groups.vocabulary is not None:
        labels = [groups.vocabulary.name(int(i)) for i in batch.item[0]]
    else:
        labels = [int(row) for row in groups.rows] + ["lagged"] * (batch.exists.shape[1] - length)
    lags = [0] * len(labels) if batch.lag is None else batch.lag[0].tolist()
    return AttentionWeights(weights, labels[:length], labels, lags)
