"""What several models say together.

    p(y) = sum_k s_k p_k(y)          E[y] = sum_k s_k m_k          Var[y] = sum_k s_k (v_k + (m_k - E[y])^2)

The models' f (each (..., size)) come in, numbers of the mixture go out; of one model, exactly its own. Where a row's
item was never seen, shares may be others: a model that knows every item well may know nothing of a new one. So they
may where values are missing that a row might have seen.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from efattn.data import Batch, Groups
from efattn.errors import DataError, named
from efattn.families import Family, Product
from efattn.families.supports import NEAR
from efattn.inference.fitted import Part
from efattn.models import Scores

CLOSE = 2.0**-40  # of a root, relative to its size
FAR, LEAST = 100.0, float(np.finfo(float).tiny)  # times as far from 0; what a search by logarithms begins at
CELLS = 2**21  # probabilities at a time; more would be fresh memory again and again
ROOM = 2**25  # the same on a GPU
Share = float | Tensor  # of one part: of all rows, or (..., 1) of each


def shares(parts: Sequence[Part], batch: Batch) -> list[Share]:
    """Of each part, in the current rows of a batch."""
    found: list[Share] = [part.share for part in parts]
    if batch.observed is not None and any(part.holes for part in parts):
        gone = missing(batch, parts[0].model.context)
        found = [_between(((0.0, part.share), *part.holes), gone) if part.holes else part.share for part in parts]
    if batch.item is None or all(part.new is None for part in parts):
        return found
    strange = (batch.item[:, : batch.length, None] >= parts[0].items).cpu()
    news = [share if part.new is None else part.new for part, share in zip(parts, found, strict=True)]
    both = [(torch.as_tensor(x, dtype=torch.float64) for x in pair) for pair in zip(found, news, strict=True)]
    return [torch.where(strange, new, known) for known, new in both]


def missing(batch: Batch, context: str) -> Tensor:
    """(batch, length, 1): the part of the values that each current row may see and that are not there, 0 of none."""
    assert batch.observed is not None
    there, n = batch.exists.double().cpu(), batch.length
    gone = there * (1 - batch.observed.double().mean(-1).cpu())
    if context == "past":
        whole, lost = (x[:, n:].sum(1, keepdim=True) + x[:, :n].cumsum(1) - x[:, :n] for x in (there, gone))
    else:
        whole, lost = (x.sum(1, keepdim=True) - x[:, :n] for x in (there, gone))
    return (lost / whole.clamp_min(1)).clamp(0, 1)[..., None]


def _between(known: Sequence[tuple[float, float]], at: Tensor) -> Tensor:
    """Shares known at some parts missing, drawn straight between them."""
    x, y = torch.tensor(known, dtype=torch.float64).T.contiguous()
    right = torch.searchsorted(x, at.contiguous()).clamp(1, len(x) - 1)
    weight = ((at - x[right - 1]) / (x[right] - x[right - 1])).clamp(0, 1)
    return torch.lerp(y[right - 1], y[right], weight)


def log_prob(parts: Sequence[Part], batch: Batch) -> Scores:
    """Of each target, in double precision: a mixture of what is scored together, so of all its columns at once."""
    scores = [part.log_prob(batch) for part in parts]
    if len(parts) == 1:
        return scores[0]._replace(values=scores[0].values.double())
    logs = [torch.as_tensor(share, dtype=torch.float64).log() for share in shares(parts, batch)]
    mine = [x.values.double()[..., None] + log for x, log in zip(scores, logs, strict=True)]
    values = torch.stack(mine).logsumexp(0)[..., 0]
    return scores[0]._replace(values=torch.where(scores[0].scored, values, 0.0))


class Targets(NamedTuple):
    """Of all scored targets (target,): log-probability, weight and row of the table."""

    values: Tensor
    weight: Tensor
    row: Tensor


@torch.no_grad()
def log_probs(parts: Sequence[Part], data: Groups, tokens: int) -> Targets:
    columns: tuple[list[Tensor], ...] = ([torch.zeros(0)], [torch.zeros(0)], [torch.zeros(0, dtype=torch.long)])
    for batch in data.batches(tokens, context=parts[0].model.context):
        scores = log_prob(parts, batch)
        assert batch.rows is not None
        for column, x in zip(columns, (scores.values, scores.weight, batch.rows[:, : batch.length]), strict=True):
            column.append(x[scores.scored])
    values, weight, row = (torch.cat(column) for column in columns)
    return Targets(values.double(), weight.double(), row)


def average(members: Iterable[Tensor], parts: Sequence[Share]) -> Tensor:
    """Of probabilities or means; one at a time in memory."""
    total = torch.zeros((), dtype=torch.float64)
    for x, part in zip(members, parts, strict=True):
        total = total + x.double() * part
    return total


def item_probabilities(parts: Sequence[Part], outputs: Callable[[Part], Tensor], column: str) -> Tensor:
    """(..., item), from outputs(part) of each; all 0 where no item is possible, because every one is there already.
    column: of the items, for an error."""
    return _of_items(parts, (outputs(part) for part in parts), column).cpu()


def items_at(
    parts: Sequence[Part], batch: Batch, slots: Tensor, chosen: Tensor, column: str, *, there: bool = False
) -> Iterator[Tensor]:
    """The same of the chosen targets (batch, target) in the columns `slots`, (row, item), some rows at a time: never
    more than CELLS numbers, or one row. there: left on the device that computed them."""
    room = CELLS if _device(parts).type == "cpu" else ROOM
    most = max(room // parts[0].model.family.size, 1)
    for members in zip(*(part.item_outputs(batch, slots, chosen, most) for part in parts), strict=True):
        p = _of_items(parts, members, column)
        yield p if there else p.cpu()


def _device(parts: Sequence[Part]) -> torch.device:
    """Where the mixture is: on the GPU if any of its parts is."""
    devices = [torch.device(one.device) for part in parts for one in part.inside]
    return next((device for device in devices if device.type != "cpu"), devices[0])


def _of_items(parts: Sequence[Part], members: Iterable[Tensor], column: str) -> Tensor:
    device = _device(parts)
    found = (_possible(x, f.to(device)) for x, f in zip(parts, members, strict=True))
    p = average(found, [x.share for x in parts])
    if not p.isfinite().all():
        raise DataError(
            f"The probabilities of column {column!r} are no finite numbers: the weights of this model, or something in "
            f"the table, are too large to compute with. Look for extreme values, or fit with a lower {named('rate')}.",
            column=column,
            option="rate",
        )
    return p


def _possible(part: Part, f: Tensor) -> Tensor:
    return part.model.family.mean(f).masked_fill(f.isneginf().all(-1, keepdim=True), 0.0)


def mean(family: Product, members: Sequence[Tensor], parts: Sequence[Share]) -> Tensor:
    return average((family.mean(f) for f in members), parts)


def variance(family: Product, members: Sequence[Tensor], parts: Sequence[Share]) -> Tensor:
    """Within the members and between them."""
    middle = mean(family, members, parts)
    return average((family.variance(f) + (family.mean(f) - middle) ** 2 for f in members), parts)


def cdf(family: Family, members: Sequence[Tensor], parts: Sequence[Share], y: Tensor) -> Tensor:
    return average((family.cdf(f, y) for f in members), parts)


def quantile(family: Product, members: Sequence[Tensor], parts: Sequence[Share], p: float | Tensor) -> Tensor:
    """The smallest y with cdf >= p, of each column on its own: exact of whole numbers, to rounding of others. It lies
    between the members' own quantiles. p: one, or one for each row and column (..., columns)."""
    own = torch.stack([family.quantile(f, p) for f in members])
    low, high = own.amin(0), own.amax(0)
    apart, quantiles = low < high, high.clone()
    for c in range(family.columns):
        rows = apart[..., c]
        if rows.any():
            columns, mine = [family.column(f[rows], c) for f in members], [_at(part, rows) for part in parts]
            ends, found = (low[..., c][rows], high[..., c][rows]), quantiles[..., c][rows]
            for index, law, outputs in columns[0][0].laws(columns[0][1]):
                if len(index):
                    laws, some = [(law, f[index][:, outputs]) for _, f in columns], [_at(part, index) for part in mine]
                    level = p[..., c][rows][index] if isinstance(p, Tensor) else p
                    search = _first_whole if law.discrete else _root
                    excess = partial(_excess, laws, some, level)
                    found[index] = _on_atoms(law, excess, search(excess, *(end[index] for end in ends)))
            quantiles[..., c][rows] = found
    return quantiles


def _excess(
    columns: Sequence[tuple[Family, Tensor]], parts: Sequence[Share], p: Share, y: Tensor, rows: Tensor
) -> Tensor:
    """cdf - p at y, (any,), of as many rows of the members' outputs."""
    mine = [_at(part, rows) for part in parts]
    return average((family.cdf(f[rows], y)[:, None] for family, f in columns), mine)[:, 0] - _at(p, rows)


def _at(share: Share, rows: Tensor) -> Share:
    return share[rows] if isinstance(share, Tensor) else share


Excess = Callable[[Tensor, Tensor], Tensor]


def _on_atoms(law: Family, excess: Excess, found: Tensor) -> Tensor:
    """Where cdf jumps over p, the value at which it does. Just below it, cdf lies below p."""
    rows = torch.arange(len(found))
    for atom in law.atoms:
        there = torch.full_like(found, atom)
        before = torch.nextafter(there, torch.tensor(-torch.inf, dtype=there.dtype)) - 2 * NEAR * abs(atom)
        found = torch.where((excess(there, rows) >= 0) & (excess(before, rows) < 0), there, found)
    return found


def _first_whole(excess: Excess, low: Tensor, high: Tensor) -> Tensor:
    """The first whole number at which it is not negative, which lies from low to high."""
    for _ in range(64):  # halves
        rows = (low < high).nonzero().squeeze(-1)
        if not len(rows):
            break
        y = ((low[rows] + high[rows]) / 2).floor()
        reached = excess(y, rows) >= 0
        low[rows], high[rows] = torch.where(reached, low[rows], y + 1), torch.where(reached, y, high[rows])
    return high


def _root(excess: Excess, low: Tensor, high: Tensor) -> Tensor:
    """Where it is 0, which is between low and high, or within rounding of one of them. Ends of which one is many times
    the other are searched by their logarithms: halving would take hundreds of steps."""
    from scipy.optimize.elementwise import find_root

    far = ((low >= 0) & (low < high / FAR)).numpy()

    def plain(t: np.ndarray, rows: np.ndarray) -> np.ndarray:
        return np.where(far[rows], np.exp(np.where(far[rows], t, 0.0)), t)

    def at(t: np.ndarray, which: np.ndarray) -> np.ndarray:
        rows = which.astype(np.int64)
        return excess(torch.from_numpy(plain(t, rows)), torch.from_numpy(rows)).numpy()

    rows = np.arange(len(low))
    first, last = (np.where(far, np.log(np.maximum(np.where(far, x, 1.0), LEAST)), x) for x in (low, high))
    root = find_root(at, (first, last), args=(rows,), tolerances={"xrtol": CLOSE})
    found = np.where(root.success, plain(root.x, rows), np.where(at(first, rows) >= 0, low, high))
    return torch.from_numpy(found)
