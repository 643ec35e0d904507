"""Laws of networks and simple models as their residuals were in groups left out: narrower, wider, moved
(inference/moved.py).

What has a share worth speaking of may also say the same with another spread or place, and all of these get shares as
the parts of a mixture do. Each fifth of the held-out groups is scored by shares of the others: where that beats the
plain mixture by more than its standard error, it is taken.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from efattn.estimators.pooling import fifths, surely_better
from efattn.inference.moved import Move, Moved, Moves, Once, may_spread, may_step
from efattn.models import Conditionals

SPOKEN_OF = 0.1  # a share
LEAST, MOST = 20, 50_000  # groups that decide, and rows that are looked at
SPREADS: tuple[Move, ...] = ((0.0, 1.0), (0.0, -1.0), (0.0, -2.2))
STEPS: tuple[Move, ...] = ((-0.7, 0.7), (0.7, 0.7))
STAY: Move = (0.0, 0.0)


class Known(NamedTuple):
    """Of held-out targets: values (target, part), weight, group."""

    values: Tensor
    weight: Tensor
    group: Tensor


class Found(NamedTuple):
    """shares: of all parts; moves: of each part, each with the part of its share; score: per target, of groups that
    neither were chosen by."""

    shares: Tensor
    moves: list[Moves]
    score: float


Voices = Sequence[Conditionals]  # that speak as one, alike: the members of an ensemble, or a simple model
Scored = Callable[[Sequence[Sequence[Voices]]], Tensor]
Shares = Callable[[Tensor, Tensor, int], Tensor]


@torch.no_grad()
def chosen(
    known: Known, shares: Tensor, models: Sequence[Sequence[Voices]], scored: Scored, best: Shares, optimism: float
) -> Found | None:
    """models: of each part of the table, the networks, then each companion; known, shares: of these; scored: log scores
    (target, part) of some, moved, in their place; best: the shares of such a table; optimism: of the networks' scores.
    None where it stays as it is."""
    families = [voices[0].family for voices in models[0]]
    of = [k for k, share in enumerate(shares.tolist()) if share > SPOKEN_OF and may_spread(families[k])]
    if not of or len(known.group.unique()) < LEAST or len(known.values) > MOST:
        return None
    moves = [(k, move) for k in of for move in (*SPREADS, *(STEPS if may_step(families[k]) else ()))]
    once = [{k: [Once(voice) for voice in mine[k]] for k in of} for mine in models]
    moved = scored([[[Moved(voice, move) for voice in mine[k]] for k, move in moves] for mine in once])
    moved[:, [k == 0 for k, _ in moves]] -= optimism
    every = torch.cat([known.values, moved], 1).nan_to_num(-torch.inf)
    plain, other = (_by_other_groups(table, known, best) for table in (known.values, every))
    if not surely_better(other, plain, known.weight, known.group):
        return None
    found = best(every, known.weight, len(known.group.unique()))
    parts = known.values.shape[1]
    whole, laws = found[:parts].clone(), [[(*STAY, float(share))] for share in found[:parts]]
    for (k, move), share in zip(moves, found[parts:].tolist(), strict=True):
        whole[k] += share
        laws[k].append((*move, share))
    score = float(other @ known.weight / known.weight.sum())
    return Found(whole, [_of_one(one) for one in laws], score)


def _by_other_groups(table: Tensor, known: Known, best: Shares) -> Tensor:
    """(target,): log scores by shares of the groups in the other fifths."""
    found = torch.zeros(len(table), dtype=torch.float64)
    for rows in fifths(known.group):
        shares = best(table[~rows], known.weight[~rows], len(known.group[~rows].unique()))
        found[rows] = (table[rows] + shares.clamp_min(1e-300).log()).logsumexp(1)
    return found


def _of_one(law: list[tuple[float, float, float]]) -> Moves:
    """As parts of a whole; empty where it is the plain law alone."""
    total = sum(share for *_, share in law)
    there = [(step, narrower, share / total) for step, narrower, share in law if share]
    return tuple(there) if any((step, narrower) != STAY for step, narrower, _ in there) else ()
