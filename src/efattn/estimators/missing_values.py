"""Shares of the mixture where values are missing that a row might have seen, by holes in groups that were held out.

    held-out groups, a quarter, half and three quarters of the values gone   ->   scores of the rest   ->   shares

What is best from a whole context may be worse than others from half of one: a regression on every other item against a
covariance, which knows what to do without some. As the usual shares are often as good, those are what few groups draw
them to. Between these parts shares are drawn straight (inference/mixture.py).
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch

from efattn.data import Groups
from efattn.estimators.blueprint import Blueprint
from efattn.estimators.companions import Offer
from efattn.estimators.shares import SIMPLEST, best_shares, optimism, scored
from efattn.models import Model
from efattn.training import Record

RATES = (0.25, 0.5, 0.75)
ROWS = 20_000  # of groups that are looked at, about
Holes = list[tuple[tuple[float, float], ...]]


def chosen(
    parts: Sequence[Blueprint],
    networks: Sequence[Sequence[Model]],
    offers: Sequence[Mapping[str, Sequence[Offer]]],
    usual: Mapping[str, Sequence[float]],
    history: Sequence[Record] = (),
) -> dict[str, Holes]:
    """By term, of each companion pairs of the part that is missing and its share there; nothing where there is nothing
    to choose by. usual: shares of the groups as they are."""
    name = parts[0].value_name
    if "value" not in parts[0].terms or not usual.get(name):
        return {}
    recipes = [one.recipe for one in offers[0][name]]
    models = [[one.model for one in mine[name]] for mine in offers]
    simplest = next((k for k, recipe in enumerate(recipes, 1) if isinstance(recipe, SIMPLEST)), None)
    gone = _missing(parts)
    found = [(gone, list(usual[name]))] if gone else []
    whole = torch.tensor([max(1 - sum(usual[name]), 0.0), *usual[name]], dtype=torch.float64)
    for number, rate in enumerate(RATES):
        fewer = [
            part if part.held is None else replace(part, held=with_holes(part.held, rate, number)) for part in parts
        ]
        held = scored(fewer, name, networks, models) if gone < 1 else None
        if held is None:
            return {}
        held.values[:, 0] -= optimism(history, name)
        best = best_shares(held.values, held.weight, held.groups, simplest, whole)
        found.append((gone + (1 - gone) * rate, best[1:].tolist()))
    holes = [tuple((at, shares[k]) for at, shares in found) for k in range(len(recipes))]
    return {name: holes}


def with_holes(groups: Groups, rate: float, number: int = 0) -> Groups:
    """Some of the groups, with about that part of the values gone, of all columns of a row together."""
    order = np.random.default_rng(0).permutation(len(groups))
    some = order[: 1 + int(np.searchsorted(np.cumsum(groups.lengths[order]), ROWS))]
    every = groups.every
    assert every.value is not None
    drawn = np.random.default_rng([1, number]).random(len(every.value)) < rate
    value = np.where(drawn[:, None], np.nan, every.value)
    return replace(groups, every=replace(every, value=value)).subset(np.sort(some))


def _missing(parts: Sequence[Blueprint]) -> float:
    """The part of the values of held-out groups that are not there."""
    values = [part.held.value for part in parts if part.held is not None and part.held.value is not None]
    empty = [np.isnan(x).ravel() for x in values]
    return float(np.concatenate(empty).mean()) if empty else 1.0
