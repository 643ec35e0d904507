"""Who may look at whom where a group is gone through in some order, each target from what stands earlier in it.

    columns   content of the group | content at lags | blanks, the masked forms of the group
    target i  looks at the content of j where rank_j < rank_i, at all lags, and at the blank of j where rank_j > rank_i

Content is isolated, and so are blanks: none has looked at anything but itself. What target i sees is then a function of
the set that stands before it, whatever its order, and all targets of an order are one pass.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from efattn.network.visibility import Visibility


def in_order(
    rank: Tensor,
    exists: Tensor,
    *,
    blanks: bool,
    pairs: Tensor | None = None,
    own: bool = True,
    gap: Tensor | None = None,
) -> Visibility:
    """rank (batch, length), each once in a group, or -1 where there is no order and all see all; exists (batch,
    context); pairs and gap (batch, context, context). blanks: whether what stands later is there in its masked form, in
    `length` further columns, or not at all."""
    length, size = rank.shape[1], exists.shape[1]
    rank = F.pad(rank, (0, size - length), value=-1)
    allowed = (rank[:, None] < rank[..., None]) | (rank[..., None] < 0)  # (batch, row, column)
    allowed = allowed if pairs is None else allowed & pairs
    if blanks:
        later = rank[:, None, :length] > rank[..., None]
        later = later if pairs is None else later & pairs[..., :length]
        allowed = F.pad(torch.cat((allowed, later), 2), (0, 0, 0, length))
        exists = torch.cat((exists, exists[:, :length]), 1)
        gap = None if gap is None else _repeated(gap, length)
    eye = torch.eye(exists.shape[1], dtype=torch.bool, device=exists.device)
    allowed = allowed | eye if own else allowed & ~eye
    slots = torch.arange(length, device=exists.device).expand(len(exists), length)
    return Visibility(exists, slots, allowed, own, leading=True, gap=gap)


def _repeated(gap: Tensor, length: int) -> Tensor:
    """With the first rows and columns once more at the end."""
    gap = torch.cat((gap, gap[:, :length]), 1)
    return torch.cat((gap, gap[..., :length]), 2)
