"""One cell drawn from the mixture of all parts: an item, or the value columns of a row that are blank.

    k ~ s_k p_k(own columns that are there)          then the blank columns ~ p_k(blank | own)

Of a row of which nothing is there, k ~ s_k, so that only the part which is drawn has to be asked. Columns are
independent but for those of one multivariate Gaussian, of which the blank ones follow the rest.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from efattn.data import Batch
from efattn.errors import DataError, option
from efattn.families import Family, MultivariateGaussian, PerItem, Product
from efattn.inference import mixture
from efattn.inference.fitted import Part


def draw_item(parts: Sequence[Part], batch: Batch, column: int, name: str, generator: torch.Generator) -> Tensor:
    """(batch, 2): of the row in one column of each group, the item and its log-probability. name: of the items'
    column, for an error."""
    shares = torch.tensor([part.share for part in parts], dtype=torch.float64).expand(len(batch.exists), -1)
    found = shares.new_zeros(len(shares), 2)
    for number, rows in _by_part(shares, generator):
        slots = torch.full((len(rows), 1), column)
        one, there = [parts[number]._replace(share=1.0)], torch.ones_like(slots, dtype=torch.bool)
        first = 0
        for p in mixture.items_at(one, batch.select(rows), slots, there, name):
            if not (p.sum(-1) > 0).all():
                raise DataError(
                    "A group has every item already, and items never repeat: nothing is left to draw. Ask for a "
                    f"smaller {option('length')}.",
                    option="length",
                )
            item = torch.multinomial(p, 1, generator=generator)
            log = p.gather(1, item).log() - p.sum(-1, keepdim=True).log()
            found[rows[first : first + len(p)]] = torch.cat((item.double(), log), 1)
            first += len(p)
    return found


def _by_part(shares: Tensor, generator: torch.Generator) -> list[tuple[int, Tensor]]:
    """Each row to one part, by its shares (row, part); parts that get any, and their rows."""
    ends = shares.cumsum(1)
    uniform = torch.rand(len(shares), 1, generator=generator, dtype=torch.float64)
    which = (uniform * ends[:, -1:] >= ends[:, :-1]).sum(1)
    return [(int(k), (which == k).nonzero()[:, 0]) for k in which.unique()]


def draw_values(
    parts: Sequence[Part], batch: Batch, column: int, own: Tensor, item: Tensor | None, generator: torch.Generator
) -> Tensor:
    """(batch, columns), double: of the row in one column of each group. own: its values that are there, in the units
    of the batch, NaN where blank; item: (batch,), for kinds that hang on it."""
    family = parts[0].model.family
    assert isinstance(family, Product)
    slots = torch.full((len(batch.exists), 1), column)
    shares = torch.stack([_share(share, column, own) for share in mixture.shares(parts, batch)], 1)
    f = own.new_zeros(len(own), family.size)
    if len(parts) > 1 and not own.isnan().all():
        outputs = [part.outputs(batch, slots).double()[:, 0] for part in parts]
        logs = shares.log() + torch.stack([own_log_prob(family, one, own, item) for one in outputs], 1)
        for number, rows in _by_part((logs - logs.amax(1, keepdim=True)).exp(), generator):
            f[rows] = outputs[number][rows]
    else:
        for number, rows in _by_part(shares, generator):
            f[rows] = parts[number].outputs(batch.select(rows), slots[rows]).double()[:, 0]
    drawn = family.sample(f, generator)
    for part, at, columns in family.slices():
        if isinstance(part, MultivariateGaussian):
            drawn[:, columns] = _given_own(part, f[:, at], drawn[:, columns], own[:, columns])
    return torch.where(own.isnan(), drawn, own)


def _share(share: mixture.Share, column: int, own: Tensor) -> Tensor:
    """(batch,)"""
    return share[:, column, 0].double() if isinstance(share, Tensor) else own.new_full((len(own),), share)


def own_log_prob(family: Product, f: Tensor, own: Tensor, item: Tensor | None) -> Tensor:
    """(batch,): how probable the columns are that are there, 0 of none. own: (batch, columns), NaN where blank."""
    total = own.new_zeros(len(own))
    for part, at, columns in family.slices():
        y = own[:, columns]
        if part.partial:
            total = total + part.log_prob(f[:, at], y).double()
            continue
        there = ~y[:, 0].isnan()
        if isinstance(part, PerItem) and item is not None:
            there &= item < len(part.kinds)  # of an unknown item nobody knows the kind
        if there.any():
            total[there] += _log_prob(part, f[there, at], y[there, 0])
    return total


def _log_prob(part: Family, f: Tensor, y: Tensor) -> Tensor:
    return part.log_prob(f, y).double()


def precision(part: MultivariateGaussian, f: Tensor) -> Tensor:
    """(..., columns, columns)"""
    d = part.columns
    return -2 * part.natural(f)[..., d:].unflatten(-1, (d, d))


def patterns(own: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Rows that lack the same columns, and which of them are there."""
    there, which = (~own.isnan()).unique(dim=0, return_inverse=True)
    return [((which == k).nonzero()[:, 0], one) for k, one in enumerate(there)]


def _given_own(part: MultivariateGaussian, f: Tensor, drawn: Tensor, own: Tensor) -> Tensor:
    """A draw of all columns, moved so that its blank ones are a draw given the others: with the precision P it is
    y_blank - P_blank^-1 P_(blank, own) (own - y_own)."""
    moved = drawn.clone()
    for rows, there in patterns(own):
        if there.any() and not there.all():
            p, off = precision(part, f[rows])[:, ~there], own[rows][:, there] - drawn[rows][:, there]
            step = torch.linalg.solve(p[:, :, ~there], (p[:, :, there] @ off.unsqueeze(-1))).squeeze(-1)
            moved[rows.unsqueeze(1), (~there).nonzero()[:, 0]] = drawn[rows][:, ~there] - step
    return moved
