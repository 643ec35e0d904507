"""What columns of a row that are known say of its other ones.

    s_k -> s_k p_k(known) / sum_j s_j p_j(known)          p_k(y) -> p_k(y | known)

Parts of a mixture that expected what is known count for more. Columns of one multivariate Gaussian follow each other,
in closed form; columns with families of their own are independent within a part.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from efattn.data import Batch
from efattn.families import MultivariateGaussian, Product
from efattn.inference import mixture
from efattn.inference.cells import own_log_prob, patterns, precision


def informed(
    family: Product,
    members: Sequence[Tensor],
    shares: Sequence[mixture.Share],
    known: Tensor,
    item: Tensor | None = None,
) -> tuple[list[Tensor], list[mixture.Share]]:
    """The parts' outputs (row, size) and shares, given what is known (row, columns) in the units of the model, NaN of
    what is not. What is then said of a known column itself means nothing. item: (row,)"""
    if known.isnan().all():
        return list(members), list(shares)
    moved = [_given(family, f, known) for f in members]
    if len(members) == 1:
        return moved, list(shares)
    before = [torch.as_tensor(share, dtype=torch.float64).expand(len(known), 1) for share in shares]
    scores = torch.stack([own_log_prob(family, f, known, item) for f in members], 1)
    after = (torch.cat(before, 1).log() + scores).softmax(1)
    return moved, [after[:, k : k + 1] for k in range(len(members))]


def views(
    family: Product,
    batch: Batch,
    members: Sequence[Tensor],
    shares: Sequence[mixture.Share],
    names: Sequence[str],
    given: Sequence[str],
) -> Iterator[tuple[list[Tensor], list[mixture.Share], dict[str, int]]]:
    """Outputs (batch, length, size) and shares, and of which value columns, by place, they tell: of those that are not
    given given all that are, of each that is given the others."""
    places = {name: c for c, name in enumerate(names)}
    if not given:
        yield list(members), list(shares), places
        return
    assert batch.value is not None
    assert batch.observed is not None
    n = batch.length
    own = batch.value[:, :n].double().masked_fill(~batch.observed[:, :n], torch.nan).flatten(0, 1).cpu()
    item = None if batch.item is None else batch.item[:, :n].flatten().cpu()
    flat = [f.flatten(0, 1) for f in members]
    parted = [
        share.expand(*members[0].shape[:2], 1).flatten(0, 1) if isinstance(share, Tensor) else share for share in shares
    ]
    for told in ([name for name in names if name not in given], *([name] for name in given)):
        if told:
            hidden = [c for name, c in places.items() if name not in given or name in told]
            known = own.index_fill(1, torch.tensor(hidden), torch.nan)
            f, now = informed(family, flat, parted, known, item)
            shape = members[0].shape[:2]
            yield (
                [x.unflatten(0, shape) for x in f],
                [x.unflatten(0, shape) if isinstance(x, Tensor) else x for x in now],
                {name: places[name] for name in told},
            )


def _given(family: Product, f: Tensor, known: Tensor) -> Tensor:
    """With P the precision, blank columns b and known ones k:  m_b - P_bb^-1 P_bk (y_k - m_k),  covariance P_bb^-1"""
    moved = f.clone()
    for part, outputs, columns in family.slices():
        if not isinstance(part, MultivariateGaussian):
            continue
        for rows, there in patterns(known[:, columns]):
            if not there.any() or there.all():
                continue
            mine, y = f[rows][:, outputs], known[rows][:, columns]
            p, mean = precision(part, mine), part.mean(mine)
            covariance = torch.diag_embed(part.variance(mine))
            blank = (~there).nonzero()[:, 0]
            inner = torch.linalg.inv(p[:, ~there][:, :, ~there])
            off = (p[:, ~there][:, :, there] @ (y - mean)[:, there].unsqueeze(-1)).squeeze(-1)
            mean[:, ~there] -= (inner @ off.unsqueeze(-1)).squeeze(-1)
            covariance[:, blank[:, None], blank] = inner
            moved[rows[:, None], torch.arange(outputs.start, outputs.stop)] = part.from_law(mean, covariance)
    return moved
