"""From a target's row to the numbers its family asks for.

    f = bias + ( read-off: scale * the last entries of h | linear: W h | tied: item vectors . h | mlp(h) )

Outputs that the family marks as shared (a learned variance, a cut-point) are bias only, or vary around it by a body of
their own, which reads h and does not shape it. `start` puts the marginal fit into the bias and silences the rest, so
that training begins where a model without context ends; a head with an output for each of many items keeps its small
random weights.

    calibrated: f <- s f + (1 - s) m,     m the marginal fit, s the sharpness that held-out groups ask for

Of a large catalogue of which each item is seen seldom, a network ranks better and better long after it has become too
sure of itself: it is trained as it is (s = 1), and asked with the s under which held-out groups are most probable.
"""

from collections.abc import Sequence
from typing import final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from efattn.network.catalogue import Logits
from efattn.network.embeddings import ItemVectors, mlp
from efattn.network.item_features import FeaturedItems


@final
class ReadOff(nn.Module):
    """The last `outputs` entries, times a constant."""

    def __init__(self, outputs: int, scale: float = 1.0) -> None:
        super().__init__()
        self.outputs, self.scale = outputs, scale

    def forward(self, h: Tensor) -> Tensor:
        return h[..., -self.outputs :] * self.scale


@final
class Tied(nn.Module):
    """Inner products with the vectors of the items that the embedding uses, whose part they stay."""

    def __init__(self, vectors: ItemVectors) -> None:
        super().__init__()
        self._vectors = (vectors,)  # no module of this one: a state has them once

    @property
    def vectors(self) -> ItemVectors:
        return self._vectors[0]

    @property
    def centre(self) -> Tensor:
        """(item, width)"""
        return self.vectors.table()

    def forward(self, h: Tensor) -> Tensor:
        return F.linear(h, self.centre)


def perceptron(width: int, hidden: Sequence[int], outputs: int) -> nn.Sequential:
    """hidden = (): one linear map. The bias of the last layer is the head's."""
    body = mlp((width, *hidden)) if hidden else nn.Sequential()
    return nn.Sequential(*body, *([nn.ReLU()] if hidden else []), nn.Linear((width, *hidden)[-1], outputs, bias=False))


@final
class Head(nn.Module):
    """`body` gives the outputs that vary from row to row; shared (size,) says which do not, and around (size,) which of
    those `beside` moves. Without `bias`, only those that do not vary have one. calibrated: as above.

    `beside` sees rows that its gradients do not reach: rows that serve the mean tell of the item and of how much was
    seen, and shaping them for a variance as well, of which a row says little, costs the mean.
    """

    def __init__(
        self,
        body: nn.Module,
        shared: Sequence[bool],
        *,
        bias: bool = True,
        beside: nn.Module | None = None,
        around: Sequence[bool] = (),
        calibrated: bool = False,
    ) -> None:
        super().__init__()
        self.body, self.beside, self.size = body, beside, len(shared)
        self.bias = nn.Parameter(torch.zeros(self.size)) if bias or any(shared) else None
        self.varying: Tensor | None
        self.moving: Tensor | None
        self.biased: Tensor | None
        varying = torch.tensor([i for i, fixed in enumerate(shared) if not fixed]) if any(shared) else None
        self.register_buffer("varying", varying)
        moving = None if beside is None else torch.tensor([i for i, moves in enumerate(around) if moves])
        self.register_buffer("moving", moving)
        self.register_buffer("biased", None if bias else torch.tensor(shared))
        self.marginal: Tensor | None
        self.sharpness: Tensor | None
        self.register_buffer("marginal", torch.zeros(self.size) if calibrated else None)
        self.register_buffer("sharpness", torch.ones(()) if calibrated else None)

    def forward(self, h: Tensor) -> Tensor:
        """(..., width) -> (..., size)"""
        f = self._plain(h)
        if self.training or self.sharpness is None or self.marginal is None:
            return f
        return torch.lerp(self.marginal.to(f.dtype).expand_as(f), f, self.sharpness.to(f.dtype))

    def _plain(self, h: Tensor) -> Tensor:
        if isinstance(self.body, FeaturedItems) and self.bias is not None:
            return F.linear(h, *self.body.candidates(self.bias))
        x = self.body(h)
        if self.varying is not None:
            x = x.new_zeros(*x.shape[:-1], self.size).index_copy(-1, self.varying, x)
        if self.beside is not None and self.moving is not None:
            x = x.index_copy(-1, self.moving, self.beside(h.detach()))
        if self.bias is None:
            return x
        return x + (self.bias if self.biased is None else self.bias * self.biased)

    def logits(self, h: Tensor) -> Logits | None:
        """f of h (row, width) before it is formed; None where f is no product of rows and vectors."""
        plain = self._plain_logits(h)
        if plain is None or self.training or self.sharpness is None or self.marginal is None:
            return plain
        s, m = self.sharpness.to(h.dtype), self.marginal.to(h.dtype)
        bias = torch.zeros_like(m) if plain.bias is None else plain.bias
        return plain._replace(rows=s * plain.rows, bias=torch.lerp(m, bias, s))

    def _plain_logits(self, h: Tensor) -> Logits | None:
        if self.varying is not None or self.beside is not None or (self.bias is not None and self.biased is not None):
            return None
        if isinstance(self.body, FeaturedItems) and self.bias is not None:
            return Logits(h, *self.body.candidates(self.bias))
        if isinstance(self.body, Tied):
            return Logits(h, self.body.centre, self.bias)
        last = self.body[-1] if isinstance(self.body, nn.Sequential) else None
        if not isinstance(last, nn.Linear) or not isinstance(self.body, nn.Sequential):
            return None
        return Logits(self.body[:-1](h), last.weight, self.bias)

    @torch.no_grad()
    def start(self, f: Tensor, *, silent: bool = True) -> None:
        """Give f (size,) for every row, as far as there is a bias for it; unless silent, but for the random weights.

        From zero weights the first gradients of all items' outputs point the same few ways, the layers below turn
        towards those, and many items share too few directions from then on.
        """
        if self.bias is None:
            return
        self.bias.copy_(f if self.biased is None else f * self.biased)
        if self.marginal is not None:
            self.marginal.copy_(f)
        if isinstance(self.body, FeaturedItems):
            self.body.start(self.bias)
        for part in (self.body, self.beside):
            last = part[-1] if isinstance(part, nn.Sequential) else None
            if silent and self.biased is None and isinstance(last, nn.Linear):
                last.weight.zero_()
