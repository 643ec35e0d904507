"""From observations to vectors: each position's content, and its masked form.

    content_j = mix( known parts of j, target part of j ) + p_j          masked_i = mix( known parts of i, MASK ) + p_i
    previous:                                                            masked_i = mix( known parts of i, MASK + target
                                                                                         part of i - 1 ) + p_i

What is known of a position (its item where values are the target, its attributes, its lag) stands in both; only the
target gives way to a learned MASK vector. A missing value is embedded as MASK, so its content is its masked form.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from efattn.network.straight import bends, bent_again, straight

if TYPE_CHECKING:
    from efattn.network.item_features import FeatureMap
    from efattn.network.known import Noises, OwnAttributes, Rates

LEVELS = 20.0  # the mean of an item's values, where they are seen by their logarithm
SMALL = 10.0  # counts up to it are seen as they are


def mlp(sizes: Sequence[int], *, bias: bool = True) -> nn.Sequential:
    """Linear layers of the given sizes with ReLU between them."""
    layers: list[nn.Module] = []
    for before, after in pairwise(sizes):
        layers += [nn.Linear(before, after, bias=bias), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


@final
class ItemVectors(nn.Module):
    """One vector per item, one for an unknown item, and one for MASK: rows 0 .. D-1, D and D+1. Several tables side
    by side give an item several vectors (the paper's centre and context embeddings). features: what is added by what
    is known of an item; sparse: gradients are of the rows that were looked up, and of no others."""

    sparse = False

    def __init__(self, items: int, width: int, tables: int = 1, features: "FeatureMap | None" = None) -> None:
        super().__init__()
        self.items, self.width, self.features = items, width * tables, features
        self.vectors = nn.Embedding(items + 2, self.width)
        if features is not None:  # each becomes what features do not say
            self.begin_short()

    def begin_short(self) -> None:
        """With vectors of length 1, about: where inner products of them are scores."""
        nn.init.normal_(self.vectors.weight, std=self.width**-0.5)

    def forward(self, item: Tensor, named: Tensor | None = None) -> Tensor:
        """named: whose features they have, where `item` takes some for unknown."""
        own = F.embedding(item, self.vectors.weight, sparse=self.sparse)
        if self.features is None:
            return own
        of = item if named is None else named
        known = F.embedding(of.clamp_max(self.items - 1), self.features())
        return own + known * (of < self.items)[..., None]

    def table(self) -> Tensor:
        """(item, width): of all items."""
        own = self.vectors.weight[: self.items]
        return own if self.features is None else own + self.features()

    def masked(self) -> Tensor:
        if not self.sparse:
            return self.vectors.weight[self.items + 1]
        return self(torch.tensor(self.items + 1, device=self.vectors.weight.device))

    @torch.no_grad()
    def begin(self, levels: Tensor | None = None) -> None:
        """Let all items start as the unknown one, so that each becomes what its own rows ask for beyond what else is
        known of it; but for these numbers, (items + 1, any), as far as there is room: levels that were taken from the
        values of known items, which are all that a new one's value can be told from."""
        self.vectors.weight.zero_()
        if levels is not None:
            room = min(levels.shape[1], self.width)
            self.vectors.weight[: len(levels), :room] = levels[:, :room].to(self.vectors.weight)


class ValueVectors(nn.Module):
    """What every embedding of values does: value, observed (..., columns) -> (..., width), and its MASK vector."""

    width: int

    def forward(self, value: Tensor, observed: Tensor) -> Tensor:
        raise TypeError("ValueVectors is abstract: use Identity, PerValue or ValueMLP")

    def masked(self) -> Tensor:
        raise TypeError("ValueVectors is abstract: use Identity, PerValue or ValueMLP")


@final
class Identity(ValueVectors):
    """The values themselves, 0 for MASK."""

    def __init__(self, columns: int = 1) -> None:
        super().__init__()
        self.width = columns
        self.register_buffer("zeros", torch.zeros(columns))

    def forward(self, value: Tensor, observed: Tensor) -> Tensor:
        return value * observed

    def masked(self) -> Tensor:
        return self.get_buffer("zeros")


@final
class PerValue(ValueVectors):
    """A learned vector per distinct value of each column, summed over columns; another value gets its neighbour's."""

    def __init__(self, values: Sequence[Iterable[float]], width: int) -> None:
        super().__init__()
        self.width = width
        for column, known in enumerate(values):
            self.register_buffer(f"values_{column}", torch.tensor(sorted(set(known)), dtype=torch.float64))
        self.tables = nn.ModuleList(
            nn.Embedding(len(set(known)) + 1, width) for known in values
        )  # the last row is MASK

    def forward(self, value: Tensor, observed: Tensor) -> Tensor:
        out = []
        for column, table in enumerate(self.tables):
            known = self.get_buffer(f"values_{column}")
            between = (known[1:] + known[:-1]) / 2
            index = torch.bucketize(value[..., column].to(known.dtype).contiguous(), between)
            out.append(table(torch.where(observed[..., column], index, len(known))))
        return torch.stack(out).sum(0)

    def masked(self) -> Tensor:
        return torch.stack([table.weight[-1] for table in self.tables if isinstance(table, nn.Embedding)]).sum(0)


@final
class ValueMLP(ValueVectors):
    """An MLP of the values, and a learned vector for MASK. Of several columns, it is also told which are observed."""

    def __init__(self, columns: int, hidden: int, width: int) -> None:
        super().__init__()
        self.width = width
        self.net = mlp((columns if columns == 1 else 2 * columns, hidden, width))
        self.mask = nn.Parameter(torch.empty(width))
        nn.init.normal_(self.mask, std=width**-0.5)

    def forward(self, value: Tensor, observed: Tensor) -> Tensor:
        x = value * observed
        x = x if x.shape[-1] == 1 else torch.cat((x, observed.to(x.dtype)), -1)
        return torch.where(observed.any(-1, keepdim=True), self.net(x), self.mask)

    def masked(self) -> Tensor:
        return self.mask


@final
class ItemViews(nn.Module):
    """Values as a network sees them where items differ in kind, or units are the table's: in units of each item's own
    spread, or of that of their logarithm. logs (items + 1, columns): of which items, the last unknown; one row where
    there are no items. counts: by column, whether it may be left as it is, because all its counts are small."""

    def __init__(self, logs: Sequence[Sequence[bool]], counts: Sequence[bool] = ()) -> None:
        super().__init__()
        self.counts = tuple(counts)
        self.register_buffer("logs", torch.tensor(logs))
        self.register_buffer("unit", torch.ones(len(logs), len(logs[0])))
        self.register_buffer("centre", torch.zeros(len(logs), len(logs[0])))
        self.register_buffer("scale", torch.ones(len(logs), len(logs[0])))

    def forward(self, value: Tensor, item: Tensor | None) -> Tensor:
        row = self._row(value, item)
        return (self._plain(value, row) - self.get_buffer("centre")[row]) / self.get_buffer("scale")[row]

    @torch.no_grad()
    def fit(self, value: Tensor, observed: Tensor, item: Tensor | None, weight: Tensor | None = None) -> None:
        """value, observed (..., columns), item, weight (...,): means and spreads; of no values, those of all. A row
        of weight 0 is still seen, and counts once."""
        row, once = self._row(value, item), torch.ones_like(value[..., 0])
        weight = once if weight is None else torch.where(weight > 0, weight, once)
        for c in range(value.shape[-1]):
            there = observed[..., c]
            y, mine, counts = value[there][:, c].double(), row[there], weight[there].double()
            if not len(y):
                continue
            if self.counts and self.counts[c] and float(y.max()) <= SMALL:
                self.get_buffer("logs")[:, c] = False
                continue
            level = self._moments(y, mine, counts)[0]
            self.get_buffer("unit")[:, c] = torch.where(level > 0, level / LEVELS, 1.0)
            mean, spread = self._moments(self._plain(value, row)[there][:, c].double(), mine, counts)
            self.get_buffer("centre")[:, c] = mean
            self.get_buffer("scale")[:, c] = torch.where(spread > 1e-6 * (1 + mean.abs()), spread, 1.0)

    def _moments(self, x: Tensor, row: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation by row, (items + 1,)."""
        rows, middle = len(self.get_buffer("logs")), x @ weight / weight.sum()
        count = torch.bincount(row, weight, rows)
        mean = torch.bincount(row, x * weight, rows) / count.clamp_min(1e-300)
        spread = (torch.bincount(row, weight * (x - mean[row]) ** 2, rows) / count.clamp_min(1e-300)).sqrt()
        whole = ((x - middle) ** 2 @ weight / weight.sum()).sqrt()
        return torch.where(count > 0, mean, middle), torch.where(count > 1, spread, whole)

    def _row(self, value: Tensor, item: Tensor | None) -> Tensor:
        last = len(self.get_buffer("logs")) - 1
        if item is None or not last:
            return torch.zeros(value.shape[:-1], dtype=torch.long, device=value.device)
        return item.clamp_max(last)

    def _plain(self, value: Tensor, row: Tensor) -> Tensor:
        """log(1 + y) does not mind zeros, and is log y of what is large: all but a small share of the item's mean."""
        return torch.where(
            self.get_buffer("logs")[row], (value.clamp_min(0) / self.get_buffer("unit")[row]).log1p(), value
        )


@final
class AttributeVectors(nn.Module):
    """An MLP of the attributes, which it standardises by what `fit` saw. Places never seen before are as good as
    any."""

    def __init__(self, sizes: Sequence[int]) -> None:
        super().__init__()
        self.width = sizes[-1]
        self.net = mlp(sizes)
        self.register_buffer("centre", torch.zeros(sizes[0]))
        self.register_buffer("scale", torch.ones(sizes[0]))
        self.register_buffer("bends", torch.zeros(sizes[0], 2))

    def fit(self, attributes: Tensor) -> None:
        """attributes (any, attributes): take their means and standard deviations, made straight, as the units of the
        MLP."""
        self.get_buffer("bends").copy_(bends(attributes))
        x = straight(attributes, self.get_buffer("bends"))
        self.get_buffer("centre").copy_(x.mean(0))
        spread = x.std(0, correction=0)
        self.get_buffer("scale").copy_(torch.where(spread > 0, spread, 1.0))

    def usual(self) -> Tensor:
        """(attributes,): their means, of those made straight."""
        return bent_again(self.get_buffer("centre").double(), self.get_buffer("bends")).cpu()

    def forward(self, attributes: Tensor) -> Tensor:
        x = straight(attributes, self.get_buffer("bends"))
        return self.net((x - self.get_buffer("centre")) / self.get_buffer("scale"))


@final
class Embedding(nn.Module):
    """Content (batch, context, width) and masked forms (batch, length, width) of one term.

    target: ItemVectors (an item term) or ValueVectors (a value term); known: what else is concatenated, in this
    order: item, attributes, lag, log exposure. `mix` (sizes without the first) puts an MLP behind the concatenation.
    Positions from `positions` on share the last vector. rates: turns values and exposures into rates, or values and
    noise into what they tell, and what is known of a row; own: adds to content what all attributes say, to a masked
    form what those say that a target may show. previous: a masked form shows what stood in the row before, where a
    target sees all that came earlier: attention need not look for it.
    """

    def __init__(
        self,
        target: ItemVectors | ValueVectors,
        *,
        item: ItemVectors | None = None,
        attributes: AttributeVectors | None = None,
        lag: nn.Embedding | None = None,
        mix: Sequence[int] = (),
        positions: int = 0,
        rates: "Rates | Noises | None" = None,
        own: "OwnAttributes | None" = None,
        previous: bool = False,
    ) -> None:
        super().__init__()
        self.target, self.item, self.attributes, self.lag = target, item, attributes, lag
        self.rates, self.own, self.previous = rates, own, previous
        joined = target.width + sum(part.width for part in (item, attributes) if part is not None)
        joined += (0 if lag is None else lag.embedding_dim) + (0 if rates is None else rates.width)
        self.mix = mlp((joined, *mix)) if mix else None
        self.width = mix[-1] if mix else joined
        self.positions = nn.Embedding(positions, self.width) if positions else None
        if self.positions is not None:
            nn.init.normal_(self.positions.weight, std=0.1)  # a long group has many, and each is seen seldom

    def forward(
        self,
        length: int,
        *,
        item: Tensor | None = None,
        value: Tensor | None = None,
        observed: Tensor | None = None,
        attributes: Tensor | None = None,
        lag: Tensor | None = None,
        position: Tensor | None = None,
        exposure: Tensor | None = None,
        named: Tensor | None = None,
        seen: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """All (batch, context, ...), of which the first `length` positions can be targets. named: whose features items
        have, where some of `item` are taken for unknown; seen: which positions can be looked at, all unless said."""
        known = [] if self.item is None else [self.item(item, named)]
        known += [part(x) for part, x in ((self.attributes, attributes), (self.lag, lag)) if part is not None]
        if self.rates is not None and value is not None and observed is not None:
            value, exposed = self.rates(value, self.rates.usual(value) if exposure is None else exposure)
            known.append(exposed)
        shown = self.target(item, named) if isinstance(self.target, ItemVectors) else self.target(value, observed)
        hidden = self.target.masked().to(shown.dtype).expand(shown.shape[0], length, -1)
        if self.previous:
            told = None if observed is None or isinstance(self.target, ItemVectors) else observed.any(-1)
            hidden = hidden + _row_before(shown, length, [x for x in (told, seen) if x is not None])
        content, masked = torch.cat((*known, shown), -1), torch.cat((*(x[:, :length] for x in known), hidden), -1)
        if self.mix is not None:
            content, masked = self.mix(content), self.mix(masked)
        if self.own is not None:
            whole, mine = self.own(attributes)
            content, masked = content + whole, masked + mine[:, :length]
        if self.positions is not None and position is not None:
            place = F.embedding(position.clamp_max(self.positions.num_embeddings - 1), self.positions.weight)
            content, masked = content + place, masked + place[:, :length]
        return content, masked


def _row_before(x: Tensor, length: int, told: Sequence[Tensor]) -> Tensor:
    """(batch, length, width): of each position what the one before has; nothing of rows that are not told, nor before
    the first."""
    for some in told:
        x = x * some[..., None]
    return F.pad(x[:, : max(length - 1, 0)], (0, 0, min(length, 1), 0))
