"""Propositions 1 to 3: every latent factor model is an exponential family attention model with particular parameters.

All have one layer, one head, W_O = I, no biases, feed-forward or norm, and a target that does not look at its own slot.

            content                        attention                        W_Q, W_K             W_V
    items   alpha[x]                       softmax                          0, 0                 I
    values  (rho[x], alpha[x], y)          linear, averaged over context    to rho, to alpha     diag(0,..,0,1)
    places  (h(tau), y)                    linear                           diag(1,..,1,0)       diag(0,..,0,1)

The head is rho for items and reads off the last entry for the others.
An intercept vector m adds rho . m or h(tau) . m, which the head reads off a residual connection (items: its bias).
"""

import copy

import torch
from torch import Tensor, nn

from efattn.models.latent_factor import LatentItems, LatentPlaces, LatentValues, LatentVectors
from efattn.models.term import Term
from efattn.network import Embedding, Head, Identity, ReadOff, Stack
from efattn.network.attention import Kind


@torch.no_grad()
def as_attention(model: LatentVectors) -> Term:
    """The attention model with the same natural parameters."""
    if isinstance(model, LatentItems):
        return _items(model)
    if isinstance(model, LatentValues):
        return _values(model)
    if isinstance(model, LatentPlaces):
        return _places(model)
    raise TypeError(f"as_attention takes LatentItems, LatentValues or LatentPlaces, not {type(model).__name__}")


def _items(model: LatentItems) -> Term:
    width, rho = model.width, model.centre_vectors
    stack = _stack(width, rho, value=torch.eye(width))
    body = _linear(rho)
    head = Head(body, model.family.shared, bias=model.intercept is not None).to(rho)
    if head.bias is not None and model.intercept is not None:
        head.bias.copy_(rho @ model.intercept)
    embedding = Embedding(copy.deepcopy(model.context_vectors))
    return Term(embedding, stack, head, model.family, context=model.context, support=model.support)


def _values(model: LatentValues) -> Term:
    k, like = model.width, model.vectors.vectors.weight
    query, key = torch.zeros(2, 2 * k + 1, 2 * k + 1)
    query[:k, :k] = key[:k, k : 2 * k] = torch.eye(k)
    stack = _stack(2 * k + 1, like, query, key, _last(2 * k + 1), average=True, residual=model.intercept is not None)
    embedding = Embedding(Identity(), item=copy.deepcopy(model.vectors)).to(like)
    return Term(embedding, stack, _head(model, stack), model.family, context=model.context, missing="hidden")


def _places(model: LatentPlaces) -> Term:
    k, like = model.width, next(model.vectors.parameters())
    block = torch.eye(k + 1) - _last(k + 1)
    stack = _stack(k + 1, like, block, block, _last(k + 1), residual=model.intercept is not None)
    embedding = Embedding(Identity(), attributes=copy.deepcopy(model.vectors)).to(like)
    head, nearest = _head(model, stack), model.neighbours
    return Term(embedding, stack, head, model.family, context=model.context, neighbours=nearest, missing="hidden")


def _stack(
    width: int,
    like: Tensor,
    query: Tensor | None = None,
    key: Tensor | None = None,
    value: Tensor | None = None,
    *,
    average: bool = False,
    residual: bool = False,
) -> Stack:
    """One layer with the given matrices; without queries and keys, softmax attention with equal weights."""
    kind: Kind = "softmax" if query is None else "linear"
    stack = Stack(width, 1, 1, kind=kind, own=False, bias=False, average=average, residual=residual).to(like)
    attention = stack.layers[0].attention
    zero = torch.zeros(width, width)
    attention.project.weight.copy_(torch.cat([zero if x is None else x for x in (query, key, value)]))
    attention.output.weight.copy_(torch.eye(width))
    return stack


def _head(model: LatentVectors, stack: Stack) -> Head:
    """scale * z_last, and the intercept through the residual's first block."""
    scale = 1 / stack.layers[0].attention.factor
    body: nn.Module = ReadOff(1, scale)
    if model.intercept is not None:
        weight = model.intercept.new_zeros(1, stack.width)
        weight[0, : model.width], weight[0, -1] = model.intercept, scale
        body = _linear(weight)
    head = Head(body, model.family.shared, bias=False)
    if head.bias is not None and model.head.bias is not None:
        head.bias = nn.Parameter(model.head.bias.clone())
    return head


def _linear(weight: Tensor) -> nn.Linear:
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=False).to(weight)
    layer.weight.copy_(weight)
    return layer


def _last(width: int) -> Tensor:
    """diag(0, .., 0, 1)"""
    out = torch.zeros(width, width)
    out[-1, -1] = 1
    return out
