"""Adam with decoupled decay of weights, by torch's fused kernel.

    m <- .9 m + .1 g,    v <- .999 v + .001 g^2
    w <- (1 - rate decay) w - rate m / (1 - .9^t) / (sqrt(v / (1 - .999^t)) + 1e-8)

The same numbers as torch.optim.AdamW(fused=True), without the compiler that every optimiser of torch.optim loads first:
two seconds, which a fit to a small table has better use for.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, final

import torch
from torch import Tensor, nn

BETAS, EPSILON = (0.9, 0.999), 1e-8


class Moments(NamedTuple):
    """Of one parameter: means of gradients and of their squares, and how many steps they are of."""

    mean: Tensor
    square: Tensor
    steps: Tensor


@final
class Adam:
    """Matrices decay, biases and norms do not. rate: of the next step. moments: by the parameter's number; none where
    it had no gradient yet."""

    def __init__(self, parameters: Sequence[nn.Parameter], rate: float, decay: float = 0.0) -> None:
        self.rate, self.moments = rate, dict[int, Moments]()
        numbered = list(enumerate(parameters))
        matrices = [(number, p) for number, p in numbered if p.dim() > 1]
        rest = [(number, p) for number, p in numbered if p.dim() <= 1]
        self.parts = [(matrices, decay), (rest, 0.0)] if decay else [(numbered, 0.0)]

    def forget(self) -> None:
        self.moments.clear()

    @torch.no_grad()
    def step(self, stopped: Tensor | None = None) -> None:
        """stopped: 1 where nothing is to change, else 0, wherever the weights are."""
        for numbered, decay in self.parts:
            some = [(p, p.grad, *self._moments(number, p)) for number, p in numbered if p.grad is not None]
            if not some:
                continue
            weights, gradients, mean, square, steps = map(list, zip(*some, strict=True))
            torch._foreach_add_(steps, 1)
            torch._fused_adamw_(
                weights,
                gradients,
                mean,
                square,
                [],
                steps,
                lr=self.rate,
                beta1=BETAS[0],
                beta2=BETAS[1],
                weight_decay=decay,
                eps=EPSILON,
                amsgrad=False,
                maximize=False,
                found_inf=stopped,
            )

    def tensors(self) -> dict[str, Tensor]:
        """All that the next step depends on, by name."""
        named = ((f"optimiser.{number}", mine._asdict()) for number, mine in self.moments.items())
        return {f"{whose}.{name}": x for whose, mine in named for name, x in mine.items()}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        for numbered, _ in self.parts:
            for number, p in numbered:
                names = [f"optimiser.{number}.{name}" for name in Moments._fields]
                if names[0] in tensors:
                    self.moments[number] = Moments(*(tensors[name].clone().to(p.device) for name in names))

    def _moments(self, number: int, p: nn.Parameter) -> Moments:
        if number not in self.moments:
            steps = torch.zeros((), dtype=torch.float32, device=p.device)
            self.moments[number] = Moments(torch.zeros_like(p), torch.zeros_like(p), steps)
        return self.moments[number]
