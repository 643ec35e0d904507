"""The stack of attention layers, and the choice of the cheapest exact way through it.

    block:  x + attention(x), then x + feed_forward(x); layer normalisation before (pre), after (post) or nowhere

Dropout acts on the embeddings and on what a layer adds, with one mask per group and layer, shared by its positions
and copies: every path to the conditionals draws the same network, and the fast ones stay fast.

Content mixes positions: a row of layer two has looked at rows that had looked at the target, whence one copy for each
target. Isolated content goes through the same blocks looking at itself alone; only a target's row looks at others, in
every layer. That is another model, of which nothing has to be copied at any depth.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal, cast, final

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from efattn.network.attention import Attention, Kind, Scale
from efattn.network.embeddings import mlp
from efattn.network.visibility import Visibility

Norm = Literal["pre", "post"]
Content = Literal["mixing", "isolated"]
FEW = 3 * 2**23  # numbers in all copies, below which a GPU is done with them before it could launch anything smarter
SMALL, SHORT = 2**16, 7  # the same on a CPU; and positions, up to which copies are cheap however many groups there are
LONG = 2**28  # bytes that the targets of long groups may take at a time
Noise = tuple[Tensor, Tensor] | None  # factors (batch, 1, width) for what attention and feed-forward add


@dataclass(frozen=True)
class Inputs:
    """content (batch, context, width), masked (batch, target, width), who sees whom, the noise of each layer, and a
    list for the attention weights if they are asked for; and one for what several chunks of targets share."""

    content: Tensor
    masked: Tensor
    visibility: Visibility
    noise: list[Noise]
    weights: list[Tensor] | None = None
    kept: list[Any] | None = None  # of the first layer, for other targets of the same groups


@final
class Block(nn.Module):
    """One layer: attention, then (where feed_forward > 0) a feed-forward block of that width."""

    def __init__(
        self, width: int, heads: int, feed_forward: int, norm: Norm | None, residual: bool, **options: Any
    ) -> None:
        super().__init__()
        self.attention = Attention(width, heads, **options)
        self.residual, self.norm = residual, norm
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(1 + bool(feed_forward)) if norm)
        self.feed_forward = mlp((width, feed_forward, width)) if feed_forward else None

    @property
    def affine(self) -> bool:
        """Whether what the block does after its attention is affine, so that a later layer can be folded into it."""
        return self.feed_forward is None and self.norm is None

    def enter(self, x: Tensor) -> Tensor:
        return self.norms[0](x) if self.norm == "pre" else x

    def leave(self, x: Tensor, attended: Tensor, noise: Noise = None) -> Tensor:
        first, second = noise or (None, None)
        x = self._add(x, attended, first)
        if self.norm == "post":
            x = self.norms[0](x)
        if self.feed_forward is not None:
            x = self._add(x, self.feed_forward(self.norms[1](x) if self.norm == "pre" else x), second)
            if self.norm == "post":
                x = self.norms[1](x)
        return x

    def _add(self, x: Tensor, change: Tensor, noise: Tensor | None) -> Tensor:
        change = change if noise is None else change * noise
        return x + change if self.residual else change


@final
class Stack(nn.Module):
    """`layers` blocks. Called with content (batch, context, width) and the masked forms of the targets (batch, target,
    width), it gives row i of the sequence of target i after the last layer, (batch, target, width).

    size: of a head, by default width / heads. gaps: how many classes of time between positions attention knows.
    content: whether it looks at other content, "mixing", or at itself alone, "isolated".
    `memory` bounds, in bytes, what one chunk of targets may hold where the copies have to be formed.
    """

    def __init__(
        self,
        width: int,
        layers: int = 2,
        heads: int = 2,
        *,
        feed_forward: int = 0,
        norm: Norm | None = None,
        residual: bool = True,
        dropout: float = 0.0,
        kind: Kind = "softmax",
        scale: Scale = "head",
        own: bool = True,
        average: bool = False,
        bias: bool = True,
        size: int | None = None,
        gaps: int = 0,
        content: Content = "mixing",
        memory: int = 2**28,
    ) -> None:
        super().__init__()
        options: dict[str, Any] = {"kind": kind, "scale": scale, "own": own, "average": average, "bias": bias}
        options |= {"size": size, "gaps": gaps}
        self.blocks = nn.ModuleList(Block(width, heads, feed_forward, norm, residual, **options) for _ in range(layers))
        self.final = nn.LayerNorm(width) if norm == "pre" else nn.Identity()
        self.width, self.feed_forward, self.own, self.memory = width, feed_forward, own, memory
        self.dropout, self.isolated = dropout, content == "isolated"

    @property
    def layers(self) -> list[Block]:
        return cast(list[Block], list(self.blocks))

    def forward(
        self,
        content: Tensor,
        masked: Tensor,
        visibility: Visibility,
        *,
        path: "Path | None" = None,
        weights: list[Tensor] | None = None,
    ) -> Tensor:
        """`path` forces one of the functions of efattn.network.conditionals; a list given as `weights` receives one
        tensor (batch, head, target, context) per layer, each target's own slot standing for its masked form."""
        visibility = replace(visibility, isolated=self.isolated)
        noise: list[Noise] = [None] * len(self.blocks)
        if self.training and self.dropout:
            first, *rest = self.draw(content, 2 * len(self.blocks) + 1)
            noise = list(zip(rest[::2], rest[1::2], strict=True))
            content, masked = content * first, masked * first
        inputs = Inputs(content, masked, visibility, noise, weights)
        if path is not None or weights is not None:
            return self.final((path or self.choose(inputs))(self, inputs))
        return self.final(self.in_chunks(inputs))

    def in_chunks(self, inputs: Inputs) -> Tensor:
        """All targets at once where that takes little memory, else some at a time, and once more in the backward pass:
        a target's row knows nothing of the other targets."""
        total, step = inputs.masked.shape[1], self.targets_at_once(inputs)
        if total <= step:
            return self.choose(inputs)(self, inputs)
        step, kept = -(-total // -(-total // step)), list[Any]()  # of nearly equal size

        def chunk(start: int) -> Tensor:
            some = slice(start, start + step)
            here = inputs.visibility.at(inputs.visibility.slots[:, some])
            mine = replace(inputs, masked=inputs.masked[:, some], visibility=here, kept=kept)
            return self.choose(mine)(self, mine)

        starts = range(0, total, step)
        if not torch.is_grad_enabled():
            return torch.cat([chunk(start) for start in starts], 1)
        return torch.cat([checkpoint(chunk, s, use_reentrant=False, preserve_rng_state=False) for s in starts], 1)

    def targets_at_once(self, inputs: Inputs) -> int:
        """As many as take about LONG bytes, by what a target and a row of its group take on each path."""
        batch, size, _ = inputs.content.shape
        two_streams = inputs.visibility.causal or inputs.visibility.isolated or len(self.blocks) <= 1
        pair = 26 if two_streams else 64 * self.layers[0].attention.heads
        room = LONG if inputs.content.device.type == "cpu" else 16 * LONG
        return max(room // max(pair * batch * size, 1), 1)

    def draw(self, like: Tensor, number: int) -> list[Tensor]:
        keep = 1 - self.dropout
        return [torch.empty_like(like[:, :1]).bernoulli_(keep).div_(keep) for _ in range(number)]

    def choose(self, inputs: Inputs) -> "Path":
        """The cheapest exact path."""
        from efattn.network import conditionals

        if inputs.visibility.causal or inputs.visibility.isolated or len(self.blocks) == 1:
            return conditionals.two_streams
        copies, size = inputs.content[0].numel() * inputs.masked[..., 0].numel(), inputs.content.shape[1]
        elsewhere = inputs.content.device.type != "cpu"
        if copies <= FEW if elsewhere else inputs.weights is None and (copies <= SMALL or size <= SHORT):
            return conditionals.copied if inputs.weights is None else conditionals.literal
        if len(self.blocks) == 2 and self.layers[0].affine and inputs.weights is None:
            return conditionals.folded
        return conditionals.formed

    def ordinary(self, x: Tensor, visible: Tensor) -> Tensor:
        """One plain pass, nothing masked: x (batch, context, width), visible (batch, row or 1, column)."""
        for block in self.layers:
            h = block.enter(x)
            x = block.leave(x, block.attention(h, h, visible))
        return self.final(x)


Path = Callable[[Stack, Inputs], Tensor]
