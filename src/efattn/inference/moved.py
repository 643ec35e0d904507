"""The law of a model, moved and spread: what its residuals looked like where it had not seen the groups.

    f_1' = f_1 + step / e^(f_2 / 2)        where the second output is a log precision around the first
    f_2' = f_2 + narrower                  a log precision, shape or size: more of it is a narrower law

Several of these, each with a share, make any residual law: heavy tails, a skew, or narrower where a mixture is wide
because its parts disagree.
"""

from typing import Any, final

import torch
from torch import Tensor

from efattn.data import Batch
from efattn.families import Family, PerItem, Product
from efattn.inference.devices import on
from efattn.models import Conditionals

Move = tuple[float, float]  # step, narrower
Moves = tuple[tuple[float, float, float], ...]  # each with a part of the share


@final
class Once:
    """What a model says of a batch on its device, for those that ask one after the other."""

    def __init__(self, model: Conditionals, device: torch.device | str = "cpu") -> None:
        self.model, self.device = model, device
        self.last: tuple[Any, Tensor, Tensor] | None = None

    def outputs(self, batch: Batch, slots: Tensor) -> Tensor:
        held = [x for x in vars(batch).values() if isinstance(x, Tensor)]
        now = [(x, x._version) for x in held]
        last = self.last  # read once: another thread may put its own there
        if last is not None and _same(last[0], now) and torch.equal(last[1], slots):
            return last[2]
        found = on(self.model, self.device).raw_outputs(batch.to(self.device), slots.to(self.device)).cpu()
        self.last = (now, slots, found)
        return found


def _same(then: list[tuple[Tensor, int]], now: list[tuple[Tensor, int]]) -> bool:
    return len(then) == len(now) and all(a[0] is b[0] and a[1] == b[1] for a, b in zip(then, now, strict=True))


@final
class Moved(Conditionals):
    """step: in units of the law's own spread."""

    starts_by_item = False

    def __init__(self, once: Once, move: Move) -> None:
        super().__init__(once.model.family, once.model.context, once.model.support)
        self.once, self.move = once, move
        self.eval()

    @property
    def network(self) -> Conditionals:
        """What is moved."""
        return self.once.model

    def start(self, batch: Batch) -> None:
        """The model has what it takes."""

    def raw_outputs(self, batch: Batch, slots: Tensor) -> Tensor:
        f, (step, narrower) = self.once.outputs(batch, slots), self.move
        first = f[..., :1] + step * (-f[..., 1:2] / 2).exp() if step else f[..., :1]
        return torch.cat([first, f[..., 1:2] + narrower, f[..., 2:]], -1)


def may_spread(family: Family) -> bool:
    """Whether it is of one column, and its second output a dispersion."""
    one = _one(family)
    return one is not None and one.size > 1 and one.dispersions[1]


def may_step(family: Family) -> bool:
    one = _one(family)
    return one is not None and may_spread(family) and one.around_first


def _one(family: Family) -> Family | None:
    parts = family.parts if isinstance(family, Product) else (family,)
    return parts[0] if len(parts) == 1 and not isinstance(parts[0], PerItem) else None
