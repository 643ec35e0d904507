"""Shares of a mixture, by log scores of groups that no part of it was fitted to.

    s = argmax  sum_i w_i log sum_k s_k p_k(y_i)  +  sum_k a_k log s_k

Each target is scored by networks and companions that were fitted without its group: to the training groups where a
share was held out, to the other folds where each group is held out once. a draws shares together where groups are few.
The simplest part, each item's own distribution, keeps at least what one target in favour of it would give: it is wide
where all others may be far off, and one row far off can cost more than a thousand good ones gain. A network that was
stopped by its own fold is judged as if the other folds had stopped it. Items may be pooled instead (pooling.py):
then the simplest part alone has a share beside the pool.
"""

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from efattn.data import Groups
from efattn.errors import FAILURES, Note, option
from efattn.estimators import pooling, residuals
from efattn.estimators.blueprint import Blueprint
from efattn.estimators.companions import Offer
from efattn.estimators.looking import mean_log_jacobian
from efattn.inference import Part, mixture
from efattn.inference.fitted import batch_tokens
from efattn.models import Conditionals, Model, Term
from efattn.simple import ItemMean, Popularity, Recipe
from efattn.training import Record

log = logging.getLogger("efattn")
LEAST = 0.005  # of all targets: what explains fewer has no share
FEW, ROUNDS = 5, 2000  # groups that decide half of what many would
TOGETHER = "together"  # the name of the mixture among scores
SIMPLEST, MOST, WORTH = (ItemMean, Popularity), 0.01, 0.001  # at most and at least what the simplest gets unasked


class Held(NamedTuple):
    """Log scores of held-out targets in the table's units: values (target, part), the networks' first; weight, group
    (target,)."""

    values: Tensor
    weight: Tensor
    group: Tensor

    @property
    def groups(self) -> int:
        return len(self.group.unique())

    def mean(self, shares: Tensor) -> float:
        """Per target, of the mixture."""
        together = (self.values + shares.clamp_min(1e-300).log()).logsumexp(1)
        return float(together @ self.weight / self.weight.sum().clamp_min(1e-300))


def scored(
    parts: Sequence[Blueprint],
    name: str,
    networks: Sequence[Sequence[Model]],
    offers: Sequence[Sequence[Conditionals]],
) -> Held | None:
    """Of one term, over all parts; None where nothing held out is scored. Without networks, of the offers alone."""
    return _scored(parts, name, [_voices(name, *both) for both in zip(networks, offers, strict=True)])


def _scored(parts: Sequence[Blueprint], name: str, each: Sequence[Sequence[residuals.Voices]]) -> Held | None:
    found = [
        _scored_in(part, name, mine)
        for part, mine in zip(parts, each, strict=True)
        if part.held is not None and len(part.held)
    ]
    tables = [one for one in found if one is not None]
    if not tables or not sum(float(one.weight.sum()) for one in tables):
        return None
    return Held(*(torch.cat(columns) for columns in zip(*tables, strict=True)))


def _voices(name: str, networks: Sequence[Model], offers: Sequence[Conditionals]) -> list[list[Conditionals]]:
    """The networks, which speak as one, if there are any, and each simple model."""
    return [*([[model[name] for model in networks]] if networks else []), *([model] for model in offers)]


def _scored_in(part: Blueprint, name: str, each: Sequence[residuals.Voices]) -> Held | None:
    """None where nothing can score what it held out."""
    held = part.held
    assert held is not None
    columns = [[Part(model, 1 / len(voices)) for model in voices] for voices in each]
    scores = [_tried(parts, held) for parts in columns]
    units = mean_log_jacobian(part, held) if name == part.value_name else 0.0
    first = next((one for one in scores if one is not None), None)
    if first is None:
        return None
    values = [torch.full_like(first.values, -torch.inf) if one is None else one.values for one in scores]
    return Held(torch.stack(values, 1) + units, first.weight, _group(held, first.row))


def _tried(parts: Sequence[Part], held: Groups) -> mixture.Targets | None:
    """None where a simple model cannot cope: what cannot score what is held out has no share."""
    try:
        return mixture.log_probs(parts, held, batch_tokens(parts[0].model))
    except FAILURES as error:
        if isinstance(parts[0].model, Term):
            raise
        log.warning("%s cannot score what is held out: %s", type(parts[0].model).__name__, error)
        return None


def of_offers(parts: Sequence[Blueprint], offers: Sequence[Mapping[str, Sequence[Offer]]]) -> list[dict[str, float]]:
    """Of each part, by term: per held-out target, of its simple models in the shares that all parts together ask for,
    in the units that networks see."""
    found: list[dict[str, float]] = [{} for _ in parts]
    for name in offers[0]:
        models = [[one.model for one in mine[name]] for mine in offers]
        tables = [scored([part], name, [[]], [mine]) for part, mine in zip(parts, models, strict=True)]
        every = [one for one in tables if one is not None]
        if not every:
            continue
        known = Held(*(torch.cat(columns) for columns in zip(*every, strict=True)))
        best = best_shares(known.values, known.weight, known.groups)
        for part, mine, score in zip(parts, tables, found, strict=True):
            if mine is not None and part.held is not None:
                units = mean_log_jacobian(part, part.held) if name == part.value_name else 0.0
                score[name] = mine.mean(best) - units
    return found


def _group(held: Groups, row: Tensor) -> Tensor:
    """The group of each row of the table; of one group alone, which rows are held out of, each row is one."""
    if len(held.offsets) == 2:
        return row
    of = np.zeros(int(held.rows.max(initial=0)) + 1, np.int64)
    of[held.rows] = np.repeat(held.numbers, held.lengths)
    return torch.as_tensor(of)[row]


@torch.no_grad()
def best_shares(
    values: Tensor, weight: Tensor, groups: int, simplest: int | None = None, usual: Tensor | None = None
) -> Tensor:
    """(part,): maximises sum_i w_i log sum_k s_k exp(values_ik) + sum_k a_k log s_k by expectation-maximisation, where
    a is 1 for no group and falls as groups grow: a few of them decide little, many decide. It is concave, so that this
    finds the best; a part that explains hardly any target gets nothing, unless it is the simplest one. usual: shares
    that these are drawn to, as by the targets of FEW groups more."""
    finite, parts, count = values.clamp_min(-1e30), values.shape[1], float(weight.sum())
    extra = torch.full((parts,), FEW / (FEW + groups), dtype=torch.float64)
    if usual is not None:
        extra = FEW / (FEW + groups) * count * usual.clamp_min(WORTH)
    if simplest is not None:
        extra[simplest] = max(float(extra[simplest]), min(count / max(len(values), 1), MOST * count))
    share = torch.full((parts,), 1 / parts, dtype=torch.float64)
    p = (finite - finite.amax(1, keepdim=True)).exp()
    for _ in range(ROUNDS):
        new = (share * ((weight / (p @ share).clamp_min(1e-300)) @ p) + extra) / (count + extra.sum())
        moved, share = float((new - share).abs().max()), new
        if moved < 1e-6:
            break
    little = share * (count + extra.sum()) < extra + LEAST * count
    if simplest is not None:
        little[simplest] = share[simplest] < WORTH
    share = torch.where(little, 0.0, share)
    return share / share.sum() if float(share.sum()) else torch.eye(parts, dtype=torch.float64)[0]


def optimism(history: Sequence[Record], name: str) -> float:
    """How much of a network's score on its own fold comes from having been stopped there: of each fold, its best score
    less that at the epoch which the other folds like best; the median of these. 0 where there are no folds."""
    curves = dict[int, list[float]]()
    for record in history:
        if record["term"] == name and "fold" in record and record["validation"] is not None:
            curves.setdefault(record["member"], []).append(record["validation"])
    if len(curves) < 3:
        return 0.0
    longest = max(map(len, curves.values()))
    table = np.array([curve + curve[-1:] * (longest - len(curve)) for curve in curves.values()])
    others = (table.sum(0) - table).argmax(1)  # (network,): the epoch that all others like best
    return float(np.median(table.max(1) - table[np.arange(len(table)), others]))


def chosen(
    parts: Sequence[Blueprint],
    networks: Sequence[Sequence[Model]],
    offers: Sequence[Mapping[str, Sequence[Offer]]],
    history: Sequence[Record] = (),
) -> tuple[dict[str, list[float]], dict[str, list[float]], dict[str, Any], list[Note], dict[str, dict[str, float]]]:
    """By term, the share of each companion; the powers of its pool, if it has one; how laws are moved and spread; that
    in words; and log scores per held-out target, of all together, of the networks and of each simple model alone.
    offers: of each part, by term; history: of the networks."""
    shares, notes, scores = dict[str, list[float]](), list[Note](), dict[str, dict[str, float]]()
    powers, moves = dict[str, list[float]](), dict[str, Any]()
    for name, first in offers[0].items():
        held = scored(parts, name, networks, [[one.model for one in mine[name]] for mine in offers])
        recipes = [one.recipe for one in first]
        if held is None:
            shares[name] = [1 / (len(recipes) + 1)] * len(recipes)
            notes.append(Note("companions", f"Companions of {name!r} share equally: no held-out row to choose by."))
            continue
        simplest = next((k for k, recipe in enumerate(recipes, 1) if isinstance(recipe, SIMPLEST)), None)
        known, flattered = held.values.clone(), optimism(history, name)
        known[:, 0] -= flattered
        best = best_shares(known, held.weight, held.groups, simplest)
        shares[name], together = best[1:].tolist(), held.mean(best)
        pool = pooling.chosen(parts, name, networks, offers, best)
        law = None
        if pool is None:
            mine = [[one.model for one in several[name]] for several in offers]
            voices = [_voices(name, *both) for both in zip(networks, mine, strict=True)]
            law = _residuals(parts, name, voices, held._replace(values=known), best, simplest, flattered)
        if law is not None:
            best, moves[name], together = law.shares, law.moves, law.score
            shares[name] = best[1:].tolist()
        if pool is None:
            notes.append(_words(name, recipes, best, held, together))
        else:
            powers[name], beside = pool.powers, pool.beside(simplest)
            shares[name] = [beside if k == simplest else 0.0 for k in range(1, len(best))]
            together = pool.mean(simplest, beside)
            notes.append(_pooled_words(name, recipes, pool.powers, held, best, together))
        alone = [held.mean(one) for one in torch.eye(len(best), dtype=torch.float64)]
        scores[name] = _named([TOGETHER, "network", *(type(one).__name__ for one in recipes)], [together, *alone])
    return shares, powers, moves, notes, scores


def _residuals(
    parts: Sequence[Blueprint],
    name: str,
    each: Sequence[Sequence[residuals.Voices]],
    held: Held,
    best: Tensor,
    simplest: int | None,
    flattered: float,
) -> residuals.Found | None:
    """How laws are moved and spread."""

    def of_others(models: Sequence[Sequence[residuals.Voices]]) -> Tensor:
        found = _scored(parts, name, models)
        assert found is not None
        return found.values

    how = partial(best_shares, simplest=simplest)
    return residuals.chosen(residuals.Known(*held), best, each, of_others, how, flattered)


def _named(kinds: Sequence[str], scores: Sequence[float]) -> dict[str, float]:
    """Of two of one kind, the better one; what is not finite is left out."""
    found = dict[str, float]()
    for kind, x in zip(kinds, scores, strict=True):
        if np.isfinite(x):
            found[kind] = max(x, found.get(kind, x))
    return found


def _pooled_words(
    name: str, recipes: Sequence[Recipe], powers: Sequence[float], held: Held, shares: Tensor, together: float
) -> Note:
    kinds = ["the network", *(recipe.label for recipe in recipes)]
    parts = ", ".join(f"{kind} {power:.2f}" for kind, power in zip(kinds, powers, strict=True))
    words = f"Powers in the pool of {name!r}: {parts} (log-likelihood per held-out target: networks alone "
    words += f"{held.mean(torch.eye(len(shares), dtype=torch.float64)[0]):.4f}, as a mixture {held.mean(shares):.4f}, "
    words += f"pooled {together:.4f}); {option('companions', None)} is the network alone."
    return Note("companions", words, option="companions")


def _words(name: str, recipes: Sequence[Recipe], shares: Tensor, held: Held, together: float) -> Note:
    alone = [held.mean(one) for one in torch.eye(len(shares), dtype=torch.float64)]
    best = max(range(1, len(alone)), key=lambda k: alone[k])
    told = f"log-likelihood per held-out target: networks alone {alone[0]:.4f}, "
    told += f"{type(recipes[best - 1]).__name__} alone {alone[best]:.4f}"
    several = zip(recipes, shares[1:].tolist(), strict=True)
    parts = [f"{recipe.label} {share:.0%}" for recipe, share in several if share]
    if not parts or float(shares[0]) >= 1 - MOST:
        return Note("companions", f"A simple model beside the network of {name!r} does not help ({told}).")
    words = f"Shares of the mixture of {name!r}: {', '.join(parts)}, the network {float(shares[0]):.0%} "
    words += f"({told}, together {together:.4f})"
    top = int(shares.argmax())
    if top and float(shares[top]) > 0.5:
        words += f". Most of it is a simple model, {type(recipes[top - 1]).__name__}"
    return Note("companions", f"{words}; {option('companions', None)} is the network alone.", option="companions")
