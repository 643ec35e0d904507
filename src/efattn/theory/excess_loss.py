"""The excess loss of a fitted model (Theorem 2): its bound's term, the norm it needs, and the rate seen on data.

    L(fitted) - inf L  <=  O( B_y^2 sqrt( (43 L (L (3 M D^2 + 2 D D') + K' (K + tau)) iota + log(1/xi)) / F ) )
    iota = log(2 + max(B, R, 1/(2 B_y)))
    B >= max_l { max_m (|Q_m|, |K_m|) + sum_m |V_m| + |W_1| + |W_2| } + |G_1| + |G_2|      operator norms, V_m = W_O W_V

for the loss MSE/2, F groups, L layers of M heads on tokens of D numbers, feed-forward width D', places of tau numbers
embedded as G_2 relu(G_1 tau) of K numbers through K', |y| <= B_y, clipping at R. It holds up to a universal constant
and for clipped ReLU attention: for a softmax fit it is indicative. All is in the units the network sees.
"""

import math
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import torch
from torch import Tensor, nn

from efattn.errors import DataError
from efattn.estimators import EFA
from efattn.models import Term
from efattn.theory.reading import value_term


def bound_term(
    *,
    groups: int,
    layers: int,
    heads: int,
    width: int,
    feed_forward: int,
    hidden: int,
    output: int,
    attributes: int,
    norm: float,
    radius: float,
    largest_value: float,
    confidence: float = 0.95,
) -> float:
    """F, L, M, D, D', K', K, tau, B, R, B_y and 1 - xi, in this order."""
    iota = math.log(2 + max(norm, radius, 1 / (2 * largest_value)))
    size = 43 * layers * (layers * (3 * heads * width**2 + 2 * width * feed_forward) + hidden * (output + attributes))
    return largest_value**2 * math.sqrt((size * iota - math.log1p(-confidence)) / groups)


@final
@dataclass(frozen=True)
class LayerNorms:
    """Operator norms of one layer: a number per head of queries, keys and values, then the feed-forward block's two."""

    queries: tuple[float, ...]
    keys: tuple[float, ...]
    values: tuple[float, ...]
    feed_forward: tuple[float, ...]

    @property
    def total(self) -> float:
        return max(*self.queries, *self.keys) + sum(self.values) + sum(self.feed_forward)


@final
@dataclass(frozen=True)
class Norms:
    """attributes: |G_1|, |G_2|; beyond: maps that the theorem's model does not have, and its norm does not count."""

    layers: tuple[LayerNorms, ...]
    attributes: tuple[float, ...]
    beyond: dict[str, float]

    @property
    def total(self) -> float:
        return max(layer.total for layer in self.layers) + sum(self.attributes)


@torch.no_grad()
def norms(term: Term) -> Norms:
    """Of the matrices of a term; biases, layer norms and the attention's scale are not in the theorem's norm."""
    embedding = term.embedding
    places = () if embedding.attributes is None else _linear_norms(embedding.attributes.net)
    parts = {"value embedding": embedding.target, "mix": embedding.mix, "head": term.head.body}
    beyond = {}
    for name, part in parts.items():
        sizes = () if part is None else _linear_norms(part)
        if sizes:
            beyond[name] = sum(sizes)
    return Norms(tuple(_layer(block) for block in term.stack.layers), places, beyond)


@final
@dataclass(frozen=True)
class Bound:
    """The term of the bound and all that it is computed from: the arguments of bound_term, and the model's norms.
    marginal_loss: of predicting the mean, which needs no network and exceeds the best loss by no more than itself."""

    term: float
    sizes: dict[str, Any]
    norms: Norms
    marginal_loss: float

    @property
    def vacuous(self) -> bool:
        """Whether the bound promises less than predicting the mean does."""
        return self.term > self.marginal_loss

    def columns(self) -> dict[str, list[Any]]:
        """One row."""
        told = {**self.sizes, "term": self.term, "marginal_loss": self.marginal_loss, "vacuous": self.vacuous}
        return {name: [x] for name, x in told.items()}

    def __str__(self) -> str:
        return vacuity(self.term, self.marginal_loss)


def vacuity(term: float, marginal_loss: float) -> str:
    """What the bound's term promises, in words."""
    if term <= marginal_loss:
        return f"The bound's term {term:.4g} is below {marginal_loss:.4g}, the loss of predicting the mean."
    return (
        f"The bound is vacuous: its term {term:.4g} is larger than {marginal_loss:.4g}, the loss of predicting the "
        "mean, and promises nothing."
    )


@torch.no_grad()
def bound(model: EFA, table: Any, confidence: float = 0.95, radius: float | None = None) -> Bound:
    """Of the value term of an EFA fitted to this table. radius: where tokens would be clipped; by default the longest
    vector among the places, the embeddings and the rows the head reads, so that nothing is."""
    term = value_term(model)
    if not term.family.squared_loss:
        raise DataError(f"Theorem 2 is about one Gaussian value column; this model has {term.family!r}.")
    groups = model.schema_.standardise(model.schema_.encode(table))
    term_norms, largest, longest = norms(term), 0.0, 0.0
    for batch in model.fitted_.batches(groups, term):
        if batch.value is not None and batch.observed is not None:
            largest = max(largest, float((batch.value * batch.observed).abs().max()))
        content, masked = term.embed(batch)
        here = batch.exists[:, : batch.length]
        longest = max(
            longest, _longest(content[batch.exists]), _longest(masked[here]), _longest(term.rows(batch)[here])
        )
        if term.embedding.attributes is not None and batch.attributes is not None:
            longest = max(longest, _longest(_standardised(term, batch.attributes)[batch.exists]))
    sizes: dict[str, Any] = {
        "groups": len(groups),
        **_sizes(term),
        "norm": term_norms.total,
        "radius": longest if radius is None else radius,
        "largest_value": largest,
        "confidence": confidence,
    }
    assert groups.value is not None
    return Bound(bound_term(**sizes), sizes, term_norms, marginal_loss=float(np.nanvar(groups.value)) / 2)


def log_log_slope(groups: Any, excess: Any) -> float:
    """The slope of log excess against log F by least squares. excess: (F,), or (F, seed), averaged over seeds first."""
    mean = np.asarray(excess, float).reshape(len(groups), -1).mean(1)
    return float(np.polyfit(np.log(np.asarray(groups, float)), np.log(mean), 1)[0])


def _sizes(term: Term) -> dict[str, int]:
    stack, places = term.stack, term.embedding.attributes
    linear = [] if places is None else [x for x in places.net if isinstance(x, nn.Linear)]
    return {
        "layers": len(stack.layers),
        "heads": stack.layers[0].attention.heads,
        "width": stack.width,
        "feed_forward": stack.feed_forward,
        "hidden": linear[0].out_features if linear else 0,
        "output": linear[-1].out_features if linear else 0,
        "attributes": linear[0].in_features if linear else 0,
    }


def _layer(block: Any) -> LayerNorms:
    attention = block.attention
    query, key, value = (attention.matrix(which)[0].double() for which in range(3))  # (head, size, width)
    output = attention.output.weight.double().unflatten(1, (attention.heads, attention.size)).transpose(0, 1)
    inside = () if block.feed_forward is None else _linear_norms(block.feed_forward)
    return LayerNorms(_norms(query), _norms(key), _norms(output @ value), inside)


def _linear_norms(part: nn.Module) -> tuple[float, ...]:
    return tuple(_norms(x.weight[None])[0] for x in part.modules() if isinstance(x, nn.Linear))


def _norms(matrices: Tensor) -> tuple[float, ...]:
    """(any, rows, columns) -> the largest singular value of each."""
    return tuple(torch.linalg.matrix_norm(matrices.double(), 2).tolist())


def _longest(x: Tensor) -> float:
    return float(x.norm(dim=-1).max()) if x.numel() else 0.0


def _standardised(term: Term, attributes: Tensor) -> Tensor:
    vectors = term.embedding.attributes
    assert vectors is not None
    return (attributes - vectors.get_buffer("centre")) / vectors.get_buffer("scale")
