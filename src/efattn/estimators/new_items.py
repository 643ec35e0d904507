"""Shares of the mixture where a row's item was never seen, by log scores of items that were left out.

    held-out groups, a fifth of the items unknown   ->   scores of their rows alone   ->   shares (shares.py)

What knows every item well may know nothing of a new one, and the other way round: a regression of each item on the
others against kriging. Where no attribute belongs to an item, it is enough to hide which one it is. Where one does, as
latitude does to a station, all that was fitted has seen it with that item's values; companions are then fitted once
more without the rows of these items, as strongly penalised as before, and networks, which would have to be trained
again, have no part in what is said of new items.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from efattn.data import Groups
from efattn.data.new_items import as_if_unknown, in_table_units, schema_without, some_items, tells_items, without_items
from efattn.errors import FAILURES, Note
from efattn.estimators import companions
from efattn.estimators.blueprint import Blueprint
from efattn.estimators.companions import Offer
from efattn.estimators.shares import SIMPLEST, Held, best_shares, scored
from efattn.models import Conditionals, Model
from efattn.network import Context
from efattn.training import Training

if TYPE_CHECKING:
    from efattn.estimators.progress import Stages

LEAST, SHARE = 10, 0.2  # items, and how many of them are left out
ROWS = 20_000  # of groups that are looked at, about


def chosen(
    parts: Sequence[Blueprint],
    networks: Sequence[Sequence[Model]],
    offers: Sequence[Mapping[str, Sequence[Offer]]],
    context: Context,
    options: Training,
    seed: int,
    stages: "Stages | None" = None,
) -> tuple[dict[str, list[float]], list[Note]]:
    """By term, the share of each companion in rows of new items, and that in words; nothing where it cannot be known:
    of items as targets, of few items, of a family that depends on the item."""
    name, first = parts[0].value_name, parts[0]
    if "value" not in first.terms or name not in offers[0] or first.items < LEAST or first.inside_family.kinds:
        return {}, []
    able = [
        k for k, part in enumerate(parts) if part.held is not None and part.train is not None and len(part.train) > 1
    ]
    out = {k: some_items(first.items, SHARE, k, seed) for k in able}
    told = any(tells_items(_train(parts[k])) for k in able)
    mine = {k: (_reduced if told else _hidden)(parts[k], out[k]) for k in able}
    beside = {k: [one.model for one in offers[k][name]] for k in able}
    if told:
        again = (offers, name, context, options, seed, stages)
        beside = {k: fitted for k in able if (fitted := _fitted_again(mine[k], *again)) is not None}
    used = list(beside)
    asked = [[] if told else networks[k] for k in used]
    held = scored([mine[k] for k in used], name, asked, [beside[k] for k in used])
    if held is None:
        return {}, []
    recipes = [one.recipe for one in offers[0][name]]
    start = 0 if told else 1
    simplest = next((k for k, recipe in enumerate(recipes, start) if isinstance(recipe, SIMPLEST)), None)
    left_out = int(np.any([out[k] for k in used], 0).sum())
    best = best_shares(held.values, held.weight, min(held.groups, left_out), simplest)
    shares = torch.cat([torch.zeros(1, dtype=best.dtype), best]) if told else best
    kinds = [recipe.label for recipe in recipes]
    return {name: shares[1:].tolist()}, [_words(name, ["the network", *kinds], shares.tolist(), held, best)]


def _train(part: Blueprint) -> Groups:
    assert part.train is not None
    return part.train


def _held(part: Blueprint, items: np.ndarray) -> Groups:
    """Groups that were held out, in the table's units, with these items unknown and all that is asked about."""
    assert part.held is not None
    made = as_if_unknown(in_table_units(part.schema, part.held), items)
    order = np.random.default_rng(0).permutation(len(made))
    return made.subset(np.sort(order[: 1 + int(np.searchsorted(np.cumsum(made.lengths[order]), ROWS))]))


def _hidden(part: Blueprint, items: np.ndarray) -> Blueprint:
    return replace(part, held=part.schema.standardise(_held(part, items)))


def _reduced(part: Blueprint, items: np.ndarray) -> Blueprint:
    """Without the rows of these items in what is fitted to."""
    schema = schema_without(part.schema, items)
    train = without_items(in_table_units(part.schema, _train(part)), items)
    held = without_items(_held(part, items), items, kept=True)
    return replace(part, schema=schema, train=schema.standardise(train), held=schema.standardise(held), groups=None)


def _fitted_again(
    part: Blueprint,
    offers: Sequence[Mapping[str, Sequence[Offer]]],
    name: str,
    context: Context,
    options: Training,
    seed: int,
    stages: "Stages | None",
) -> list[Conditionals] | None:
    alone, models = replace(part, held=None), []
    try:
        for k in range(len(offers[0][name])):
            several = [mine[name][k] for mine in offers]
            models.append(companions.fitted_again(several, alone, context, options, seed, stages).model)
    except FAILURES:  # too little is left
        return None
    return models


def _words(name: str, kinds: Sequence[str], shares: Sequence[float], held: Held, best: torch.Tensor) -> Note:
    parts = [f"{kind} {share:.0%}" for kind, share in zip(kinds, shares, strict=True) if share >= 0.005]
    told = f"log-likelihood {held.mean(best):.4f} per row of items left out"
    return Note("companions", f"Shares of {name!r} where an item was never seen: {', '.join(parts)} ({told}).")
