"""Propositions 1 to 3, run: a latent factor model and its attention form on random ragged data, in float64.

    1    items     softmax( rho^T mean alpha )
    2    places    h(tau_i) . sum over the nearest of h(tau_j) y_j
    3    values    rho[x_i] . mean of alpha[x_j] y_j

Without an intercept these are the propositions themselves; with one, what the paper's code adds to them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import torch

from efattn.data import Batch
from efattn.families import Gaussian, Poisson
from efattn.models import LatentItems, LatentPlaces, LatentValues, as_attention
from efattn.models.latent_factor import LatentVectors
from efattn.network import Context
from efattn.theory.table import text

LENGTHS = (6, 1, 4, 2, 9, 12)
ITEMS, WIDTH, MISSING = 15, 4, 0.2
CONTEXTS: tuple[Context, ...] = ("past", "others")


@final
@dataclass(frozen=True)
class Difference:
    """The largest difference between the outputs f of the two forms, of which natural parameters are a function, and
    the largest f."""

    proposition: int
    model: str
    context: Context
    intercept: bool
    rows: int
    largest: float
    difference: float


@final
@dataclass(frozen=True)
class Propositions:
    differences: tuple[Difference, ...]

    @property
    def difference(self) -> float:
        """The largest of all."""
        return max(x.difference for x in self.differences)

    def columns(self) -> dict[str, list[Any]]:
        names = ("proposition", "model", "context", "intercept", "rows", "largest", "difference")
        return {name: [getattr(x, name) for x in self.differences] for name in names}

    def __str__(self) -> str:
        return text(self.columns())


def check_propositions(seeds: Sequence[int] = (0, 1, 2)) -> Propositions:
    """Each model in both contexts, without and with an intercept, over some draws of data and parameters."""
    differences = []
    for context in CONTEXTS:
        for intercept in (False, True):
            drawn = [list(_models(seed, context, intercept)) for seed in seeds]
            for cases in zip(*drawn, strict=True):
                number, name = cases[0][:2]
                measured = [_difference(model, batch) for _, _, model, batch in cases]
                rows, largest, difference = (np.array(x) for x in zip(*measured, strict=True))
                sizes = int(rows.sum()), float(largest.max()), float(difference.max())
                differences.append(Difference(number, name, context, intercept, *sizes))
    return Propositions(tuple(sorted(differences, key=lambda x: (x.intercept, x.proposition, x.model, x.context))))


def ragged(seed: int, *, counts: bool = False) -> Batch:
    """Groups of several lengths, a single row among them, with distinct items, places, and values of which some are
    missing."""
    draw, groups = np.random.default_rng(seed), []
    for length in LENGTHS:
        value = draw.poisson(2.0, length) + 1.0 if counts else draw.normal(size=length)
        value[draw.random(length) < MISSING] = np.nan
        places = np.column_stack([draw.uniform(25, 49, length), draw.uniform(-125, -67, length)])
        groups.append({"item": draw.permutation(ITEMS)[:length], "value": value, "attributes": places})
    return Batch.of(groups, torch.float64)


def _models(seed: int, context: Context, intercept: bool) -> Iterator[tuple[int, str, LatentVectors, Batch]]:
    how: dict[str, Any] = {"context": context, "intercept": intercept}
    sizes = (2, 16, WIDTH)
    plain, counts = ragged(seed), ragged(seed, counts=True)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        cases: list[tuple[int, str, LatentVectors, Batch]] = [
            (1, "items", LatentItems(ITEMS, WIDTH, **how), plain),
            (1, "items, distinct", LatentItems(ITEMS, WIDTH, support="distinct", **how), plain),
            (2, "places, all", LatentPlaces(sizes, Gaussian(1.0), **how), plain),
            (2, "places, 3 nearest", LatentPlaces(sizes, Gaussian(1.0), neighbours=3, **how), plain),
            (3, "values, Gaussian", LatentValues(ITEMS, WIDTH, Gaussian(1.0), **how), plain),
            (3, "values, Poisson", LatentValues(ITEMS, WIDTH, Poisson(shift=1), **how), counts),
            (3, "values, Poisson v2", LatentValues(ITEMS, WIDTH, Poisson(link="softplus"), **how), counts),
        ]
        for _, _, model, batch in cases:
            model.double().start(batch)
            for p in model.parameters():
                p.data.add_(0.3 * torch.randn_like(p))
    yield from cases


@torch.no_grad()
def _difference(model: LatentVectors, batch: Batch) -> tuple[int, float, float]:
    """Rows, the largest natural parameter, and the largest difference; an item ruled out must be so in both."""
    here = batch.exists[:, : batch.length]
    ours, theirs = model.outputs(batch)[here], as_attention(model).outputs(batch)[here]
    allowed = torch.isfinite(ours)
    if not torch.equal(allowed, torch.isfinite(theirs)):
        return len(ours), float("nan"), float("inf")
    return len(ours), float(ours[allowed].abs().max()), float((ours - theirs)[allowed].abs().max())
