"""Latent factor models, the paper's baseline.

    items     f_i = rho^T mean_{j in context} alpha[x_j]
    values    f_i = rho[x_i] . (1/n_i) sum_j alpha[x_j] y_j          over the n_i context positions with observed values
    places    f_i = h(tau_i) . sum_{j in the k nearest} h(tau_j) y_j

An empty context gives f = 0. intercept=True adds one learned vector to the context's, as the paper's code does. They
know the current group only: lagged positions are ignored. Each is an attention model with particular parameters:
reductions.py.
"""

from abc import abstractmethod
from collections.abc import Sequence
from typing import final

import torch
from torch import Tensor, nn

from efattn.data.batch import Batch
from efattn.errors import DataError
from efattn.families import Categorical, Family
from efattn.models.distances import nearest
from efattn.models.scoring import Conditionals, ItemSupport, at
from efattn.network import AttributeVectors, Context, Head, ItemVectors, Logits, Visibility


class LatentVectors(Conditionals):
    """A vector per target times a vector per context."""

    def __init__(self, family: Family, width: int, context: Context, support: ItemSupport, intercept: bool) -> None:
        super().__init__(family, context, support)
        shared = self.family.shared
        if not self.of_items and sum(not fixed for fixed in shared) != 1:
            raise DataError(
                f"A latent factor model gives one number per row; {family!r} asks for more.", option="family"
            )
        self.width = width
        self.intercept = nn.Parameter(torch.zeros(width)) if intercept else None
        self.head = Head(nn.Identity(), shared, bias=False)

    @abstractmethod
    def products(self, batch: Batch) -> Tensor:
        """(batch, length, varying outputs)"""

    @final
    def raw_outputs(self, batch: Batch, slots: Tensor) -> Tensor:
        return at(self.head(self.products(batch)), slots)

    @torch.no_grad()
    @final
    def start(self, batch: Batch) -> None:
        """There is no free location to start from, only the shared outputs."""
        self.head.start(self.marginal(batch))
        for part in self.modules():
            if isinstance(part, AttributeVectors) and batch.attributes is not None:
                part.fit(batch.attributes[batch.exists])

    @final
    def looked_at(self, batch: Batch, *, observed: bool) -> Tensor:
        """(batch, length, length): the context of each position, without itself."""
        here = slice(0, batch.length)
        exists = batch.exists[:, here]
        if observed and batch.observed is not None:
            exists = exists & batch.observed[:, here].any(-1)
        return Visibility.of(self.context, exists, batch.length, own=False).content()

    @final
    def around(self, context: Tensor) -> Tensor:
        return context if self.intercept is None else context + self.intercept


@final
class LatentItems(LatentVectors):
    def __init__(
        self,
        items: int,
        width: int,
        *,
        context: Context = "others",
        support: ItemSupport = "all",
        intercept: bool = False,
    ) -> None:
        super().__init__(Categorical(items), width, context, support, intercept)
        self.context_vectors, self.centre_vectors = ItemVectors(items, width), nn.Parameter(torch.empty(items, width))
        _start_small(self.context_vectors.vectors.weight, self.centre_vectors)

    def products(self, batch: Batch) -> Tensor:
        return self.contexts(batch) @ self.centre_vectors.mT

    def raw_logits(self, batch: Batch, slots: Tensor, chosen: Tensor) -> Logits:
        return Logits(at(self.contexts(batch), slots)[chosen], self.centre_vectors)

    def contexts(self, batch: Batch) -> Tensor:
        """(batch, length, width)"""
        if batch.item is None:
            raise DataError("LatentItems needs an item column.")
        seen = self.looked_at(batch, observed=False)
        return self.around(_mean(seen, self.context_vectors(batch.item[:, : batch.length])))


@final
class LatentValues(LatentVectors):
    def __init__(
        self, items: int, width: int, family: Family, *, context: Context = "others", intercept: bool = False
    ) -> None:
        super().__init__(family, width, context, "all", intercept)
        self.vectors = ItemVectors(items, width, tables=2)  # rho and alpha side by side
        _start_small(self.vectors.vectors.weight)

    def products(self, batch: Batch) -> Tensor:
        if batch.item is None or batch.value is None:
            raise DataError("LatentValues needs an item column and a value column.")
        here = slice(0, batch.length)
        rho, alpha = self.vectors(batch.item[:, here]).chunk(2, -1)
        context = self.around(_mean(self.looked_at(batch, observed=True), alpha * batch.value[:, here]))
        return (rho * context).sum(-1, keepdim=True)


@final
class LatentPlaces(LatentVectors):
    """sizes: of the MLP h, attributes first; neighbours: how many nearest places, latitude and longitude being the
    first two attributes; None for all."""

    def __init__(
        self,
        sizes: Sequence[int],
        family: Family,
        *,
        neighbours: int | None = None,
        context: Context = "others",
        intercept: bool = False,
    ) -> None:
        super().__init__(family, sizes[-1], context, "all", intercept)
        self.vectors, self.sizes, self.neighbours = AttributeVectors(sizes), tuple(sizes), neighbours

    def products(self, batch: Batch) -> Tensor:
        if batch.attributes is None or batch.value is None:
            raise DataError("LatentPlaces needs attributes and a value column.")
        here = slice(0, batch.length)
        places, seen = batch.attributes[:, here], self.looked_at(batch, observed=True)
        if self.neighbours is not None:
            seen = nearest(places[..., :2], seen, self.neighbours)
        h = self.vectors(places)
        context = self.around(seen.to(h.dtype) @ (h * batch.value[:, here]))
        return (h * context).sum(-1, keepdim=True)


def _start_small(*vectors: Tensor) -> None:
    """Products of standard normal vectors would start as sharp guesses, which a count's rate cannot recover from."""
    for x in vectors:
        nn.init.normal_(x, std=0.1)


def _mean(seen: Tensor, x: Tensor) -> Tensor:
    """Of x (batch, column, width) over what each row sees (batch, row, column); 0 over nothing."""
    return seen.to(x.dtype) @ x / seen.sum(-1, keepdim=True).clamp_min(1)
