"""A term of an exponential family attention model: the conditionals of one kind of target.

    embedding -> stack -> head -> f -> family -> log p(target_i | context of i)

Items, ratings and temperatures are this one class with other parts. An item term has a Categorical family and never
looks at values; a value term looks at items, attributes and the other values.
"""

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Literal, final

import torch
import torch.nn.functional as F
from torch import Tensor

from efattn.data.batch import Batch
from efattn.errors import DataError, named
from efattn.families import Family
from efattn.models.distances import nearest
from efattn.models.holes import Holes
from efattn.models.scoring import Conditionals, ItemSupport, at
from efattn.network import Context, Embedding, Gaps, Head, ItemVectors, ItemViews, Logits, Stack, Visibility
from efattn.network.orders import in_order
from efattn.network.stack import Path

# of terms by their identity: the rows of targets that are known already, while groups grow (growing.py)
rows_ready: ContextVar[Mapping[int, Callable[[Batch], Tensor]]] = ContextVar("rows_ready", default={})  # noqa: B039


@final
class Term(Conditionals):
    """neighbours: look only at so many nearest places (the first two attributes are latitude and longitude).
    missing="hidden": a position without values is no context at all, instead of being seen in its masked form. gaps:
    what tells the stack, if it asks, how much time lies between two positions. own_time: whether a target shows its own
    time; if not, it takes that of the row before. views: how it sees values, if not as they are."""

    def __init__(
        self,
        embedding: Embedding,
        stack: Stack,
        head: Head,
        family: Family,
        *,
        context: Context = "others",
        support: ItemSupport = "all",
        neighbours: int | None = None,
        missing: Literal["masked", "hidden"] = "masked",
        gaps: Gaps | None = None,
        own_time: bool = True,
        holes: Holes | None = None,
        views: ItemViews | None = None,
    ) -> None:
        super().__init__(family, context, support)
        if embedding.width != stack.width:
            raise ValueError(f"the embedding is {embedding.width} wide, the stack {stack.width}")
        if head.size != family.size:
            raise ValueError(f"the head gives {head.size} numbers, {family!r} asks for {family.size}")
        if self.of_items != isinstance(embedding.target, ItemVectors):
            raise ValueError("ItemVectors as the target go with families.Categorical, ValueVectors with the others")
        if context == "any" and not (stack.isolated and own_time):
            raise ValueError("in any order content is isolated, and a target shows its own time")
        if embedding.previous and context != "past":
            raise ValueError("a target shows the row before it where it sees all that came earlier: in the past")
        self.embedding, self.stack, self.head = embedding, stack, head
        self.neighbours, self.missing, self.gaps, self.own_time = neighbours, missing, gaps, own_time
        self.holes, self.views = holes, views

    @property
    def sharpness(self) -> Tensor | None:
        return self.head.sharpness

    def raw_outputs(
        self, batch: Batch, slots: Tensor, path: Path | None = None, weights: list[Tensor] | None = None
    ) -> Tensor:
        f: Tensor = self.head(self.rows(batch, slots, path, weights))
        return f

    def raw_logits(self, batch: Batch, slots: Tensor, chosen: Tensor) -> Logits | None:
        return self.head.logits(self.rows(batch, slots)[chosen])

    def rows(
        self, batch: Batch, slots: Tensor | None = None, path: Path | None = None, weights: list[Tensor] | None = None
    ) -> Tensor:
        """The context embedding of each target, (batch, target, width): what the head reads."""
        ready = rows_ready.get().get(id(self))
        if ready is not None:
            return ready(batch)
        content, masked = self.embed(batch)
        visibility = self.visibility(batch)
        if visibility.seen.shape[1] > content.shape[1]:
            content = torch.cat((content, masked), 1)
        if slots is not None and not _every(slots, visibility.slots):
            visibility, masked = visibility.at(slots), at(masked, slots)
        return self.stack(content, masked, visibility, path=path, weights=weights)

    def embed(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Content (batch, context, width) and masked forms (batch, length, width)."""
        if self.embedding.own is not None and batch.attributes is None:
            raise DataError("This model was fitted with attributes, and the data have none.", option="attributes")
        item = self._shown_item(batch)
        return self.embedding(
            batch.length,
            item=item,
            value=batch.value if self.views is None or batch.value is None else self.views(batch.value, item),
            observed=shown(batch),
            attributes=batch.attributes,
            lag=batch.lag,
            position=batch.position,
            exposure=batch.exposure if batch.noise is None else batch.noise,
            named=batch.item,
            seen=self.looked_at(batch) if self.embedding.previous else None,
        )

    def looked_at(self, batch: Batch) -> Tensor:
        """(batch, context): the positions that can be looked at at all."""
        exists = batch.exists
        if self.of_items and batch.hidden is not None:
            exists = exists & ~batch.hidden[..., 0]
        seen = shown(batch)
        if self.missing == "hidden" and not self.of_items and seen is not None:
            exists = exists & seen.any(-1)
        return exists

    def visibility(self, batch: Batch) -> Visibility:
        exists = self.looked_at(batch)
        pairs = None
        if self.neighbours is not None:
            if batch.attributes is None or batch.attributes.shape[-1] < 2:
                wanted = "latitude and longitude, in degrees, as the first two attributes"
                raise DataError(f"{named('neighbours')} needs {wanted}.", option="neighbours")
            candidates = Visibility.of(self.context, exists, batch.length, own=False).content()
            candidates = candidates & (torch.arange(exists.shape[1], device=exists.device) < batch.length)
            pairs = nearest(batch.attributes[..., :2], candidates, self.neighbours)
        gap = hidden = None
        if self.gaps is not None:
            when = self._when(batch)
            gap = self.gaps(when)
            hidden = None if self.own_time else self.gaps.without_own(when, batch.exists, batch.length, self.context)
        own = self.stack.own
        if batch.rank is not None:
            blanks = not self.of_items and self.missing == "masked"
            return in_order(batch.rank, exists, blanks=blanks, pairs=pairs, own=own, gap=gap)
        return Visibility.of(self.context, exists, batch.length, pairs=pairs, own=own, gap=gap, hidden=hidden)

    def _shown_item(self, batch: Batch) -> Tensor | None:
        vectors = self.embedding.target if self.of_items else self.embedding.item
        if batch.item is None or batch.strange is None or not isinstance(vectors, ItemVectors):
            return batch.item
        return batch.item.masked_fill(batch.strange, vectors.items)

    @staticmethod
    def _when(batch: Batch) -> Tensor:
        if batch.when is None:
            raise DataError("This model looks at the time between rows: the order column has to be there.")
        return batch.when

    def attention(self, batch: Batch) -> Tensor:
        """Weights (batch, layer, head, target, context); a target's own column stands for its masked form."""
        weights: list[Tensor] = []
        self.rows(batch, weights=weights)
        return torch.stack(weights, 1)

    @torch.no_grad()
    def start(self, batch: Batch) -> None:
        self.head.start(self.marginal(batch), silent=not self.of_items)
        if self.embedding.attributes is not None and batch.attributes is not None:
            self.embedding.attributes.fit(batch.attributes[batch.exists])
        if self.embedding.own is not None and batch.attributes is not None:
            self.embedding.own.fit(batch.attributes[batch.exists])
        known, there = batch.exposure if batch.noise is None else batch.noise, batch.exists
        if self.embedding.rates is not None and batch.value is not None and known is not None:
            assert batch.observed is not None
            self.embedding.rates.fit(batch.value[there], batch.observed[there], known[there])
        if self.views is not None and batch.value is not None and batch.observed is not None:
            counts = None if batch.weight is None else F.pad(batch.weight, (0, there.shape[1] - batch.length))
            self.views.fit(batch.value, batch.observed, batch.item, counts)


def _every(slots: Tensor, all_: Tensor) -> bool:
    """Whether these are the columns of all current positions. Comparing numbers would wait for a GPU; there, one row of
    as many columns for all groups is what `every` makes."""
    if slots.shape != all_.shape:
        return False
    return torch.equal(slots, all_) if slots.device.type == "cpu" else slots.stride() == all_.stride()


def shown(batch: Batch) -> Tensor | None:
    """(batch, context, column): which values the context has."""
    return batch.observed if batch.observed is None or batch.hidden is None else batch.observed & ~batch.hidden
