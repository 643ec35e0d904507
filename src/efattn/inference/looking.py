"""What a prediction looks at."""

from dataclasses import dataclass
from typing import Any, final

import numpy as np
import torch

from efattn.data import Groups
from efattn.errors import DataError
from efattn.models import Model, Term


@final
@dataclass(frozen=True)
class Attention:
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


@torch.no_grad()
def attention(model: Model, name: str | None, groups: Groups) -> Attention:
    """Of the one group there is, in the term of that name (the last one by default)."""
    if len(groups) != 1:
        raise DataError(
            f"Attention is shown for one group at a time; the table has {len(groups)}. Pass the rows of one."
        )
    names = list(model.terms)
    if name is not None and name not in names:
        raise DataError(f"There is no term {name!r}; this model has {', '.join(map(repr, names))}.")
    term = model[name or names[-1]]
    if not isinstance(term, Term):
        raise DataError("A latent factor model has no attention; fit an EFA.")
    if len(groups.pieces) > 1:
        raise DataError("This group is longer than max_length and would be cut; pass fewer of its rows.")
    batch = groups.batch(np.array([0]), term.context)
    weights = term.attention(batch)[0].double().numpy()
    length = batch.length
    if batch.item is not None and groups.vocabulary is not None:
        labels = [groups.vocabulary.name(int(i)) for i in batch.item[0]]
    else:
        labels = [int(row) for row in groups.rows] + ["lagged"] * (batch.exists.shape[1] - length)
    lags = [0] * len(labels) if batch.lag is None else batch.lag[0].tolist()
    return Attention(weights, labels[:length], labels, lags)
