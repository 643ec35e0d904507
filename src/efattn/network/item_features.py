"""Features of items as vectors, by a linear map: of all items at once, so that a step forms them once.

    context     v_x = own_x + F_x W           own_x of the unknown item where x was never seen, or is taken for unknown
    candidate   f(x) = (own_x + F_x U) . h + b_x + F_x u        own_x = 0, b_x = level, where x was never seen

Maps start at zero: training begins at the model without features. While training, some of the candidates are
known by features alone, drawn anew at every step, so that these serve where there is nothing else.
"""

from typing import NamedTuple, final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

STRANGE = 0.3  # of the candidates are known by features alone, at a step


class Features(NamedTuple):
    """F in two parts: levels of each item (offsets (item + 1,), level, amount (any,)), and numbers (item, number).
    levels: how many there are in all."""

    levels: int
    offsets: Tensor
    level: Tensor
    amount: Tensor
    numbers: Tensor


@final
class FeatureMap(nn.Module):
    """F W (item, width). F is no weight: it is not in the state, and whoever builds the module gives it."""

    def __init__(self, features: Features, width: int) -> None:
        super().__init__()
        self.levels = nn.Parameter(torch.zeros(features.levels, width))
        self.numbers = nn.Parameter(torch.zeros(features.numbers.shape[1], width))
        for name in ("offsets", "level", "amount"):
            self.register_buffer(f"of_{name}", getattr(features, name), persistent=False)
        self.register_buffer("of_numbers", features.numbers, persistent=False)
        self._last: tuple[object, Tensor] | None = None

    def forward(self) -> Tensor:
        if torch.is_grad_enabled():
            return self._formed()
        now = (self.levels._version, self.numbers._version, self.levels.data_ptr(), self.levels.device)
        if self._last is None or self._last[0] != now:  # questions ask for it again and again
            self._last = now, self._formed()
        return self._last[1]

    def train(self, mode: bool = True) -> "FeatureMap":
        self._last = None
        return super().train(mode)

    def _formed(self) -> Tensor:
        offsets, amount, like = self.get_buffer("of_offsets"), self.get_buffer("of_amount"), self.levels
        table = self.get_buffer("of_numbers").to(like.dtype) @ self.numbers
        if not len(amount):
            return table
        bag = F.embedding_bag(
            self.get_buffer("of_level"),
            like,
            offsets,
            mode="sum",
            per_sample_weights=amount.to(like.dtype),
            include_last_offset=True,
        )
        return table + bag


@final
class FeaturedItems(nn.Module):
    """The candidates of a head: vectors of their own, and what features add to them and to the head's bias."""

    def __init__(self, width: int, outputs: int, features: Features, strange: float = STRANGE) -> None:
        super().__init__()
        self.own = nn.Linear(width, outputs, bias=False)
        self.map = FeatureMap(features, width + 1)  # the last column is the bias'
        self.level = nn.Parameter(torch.zeros(()))
        self.strange = strange

    def candidates(self, bias: Tensor) -> tuple[Tensor, Tensor]:
        """Vectors (item, width) and biases (item,)."""
        own, more = self.own.weight, self.map()
        if self.training and self.strange:
            alone = torch.rand(len(own), device=own.device) < self.strange
            own, bias = own.masked_fill(alone[:, None], 0.0), torch.where(alone, self.level, bias)
        return own + more[:, :-1], bias + more[:, -1]

    @torch.no_grad()
    def start(self, bias: Tensor) -> None:
        self.level.copy_(bias.mean())

    @torch.no_grad()
    def begin(self, bias: Tensor, known: int) -> None:
        """Let the items from `known` on be known by their features alone."""
        self.own.weight[known:] = 0.0
        bias[known:] = self.level
