"""Adam with decoupled decay of weights, by torch's fused kernel.

    m <- .9 m + .1 g,    v <- .999 v + .001 g^2
    w <- (1 - rate decay) w - rate m / (1 - .9^t) / (sqrt(v / (1 - .999^t)) + 1e-8)

The same numbers as torch.optim.AdamW(fused=True), without the compiler that every optimiser of torch.optim loads first:
two seconds, which a fit to a small table has better use for.

Where a gradient is sparse, only its rows take the step, each counting its own: a row that nobody looked up keeps its
moments and its weights, which would otherwise go on by what they remember.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, final

import torch
from torch import Tensor, nn

BETAS, EPSILON = (0.9, 0.999), 1e-8


class Moments(NamedTuple):
    """Of one parameter: means of gradients and of their squares, and how many steps they are of: (), or (row,)."""

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
            there = [(number, p, p.grad) for number, p in numbered if p.grad is not None]
            for number, p, grad in there:
                if grad.is_sparse:
                    self._step_rows(p, grad.coalesce(), self._moments(number, p, len(p)), decay, stopped)
            some = [(p, grad, *self._moments(number, p)) for number, p, grad in there if not grad.is_sparse]
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
            if stopped is not None:
                torch._foreach_sub_(steps, [stopped] * len(steps))

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

    def _step_rows(self, p: nn.Parameter, grad: Tensor, moments: Moments, decay: float, stopped: Tensor | None) -> None:
        rows, g = grad.indices()[0], grad.values()
        mean = moments.mean[rows].lerp_(g, 1 - BETAS[0])
        square = moments.square[rows].mul_(BETAS[1]).addcmul_(g, g, value=1 - BETAS[1])
        steps = moments.steps[rows] + 1
        first, second = ((1 - beta ** steps.unsqueeze(1).double()).to(g.dtype) for beta in BETAS)
        change = (mean / first).div_((square / second).sqrt_().add_(EPSILON))
        weights = p[rows].mul_(1 - self.rate * decay).sub_(change, alpha=self.rate)
        for whole, new in zip((*moments, p), (mean, square, steps, weights), strict=True):
            whole[rows] = new if stopped is None else torch.where(stopped > 0, whole[rows], new)

    def _moments(self, number: int, p: nn.Parameter, *shape: int) -> Moments:
        """shape: of the number of steps."""
        if number not in self.moments:
            steps = torch.zeros(shape, dtype=torch.float32, device=p.device)
            self.moments[number] = Moments(torch.zeros_like(p), torch.zeros_like(p), steps)
        return self.moments[number]


@torch.no_grad()
def clip(parameters: Sequence[nn.Parameter], most: float) -> None:
    """Scale all gradients so that their norm together is at most this."""
    for p in parameters:
        if p.grad is not None and p.grad.is_sparse:
            p.grad = p.grad.coalesce()
    there = [p.grad for p in parameters if p.grad is not None]
    if not there:
        return
    values = [g.values() if g.is_sparse else g for g in there]
    norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(values)))
    torch._foreach_mul_(values, (most / (norm + 1e-6)).clamp_max(1.0))
