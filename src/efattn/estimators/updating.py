"""A fitted model that follows a stream: new rows in, new items appended, old ones kept where they were.

    w(share) = w_old + share (w_new - w_old)           share in 0, 1/4, 1/2, 3/4, 1

What belongs to new items is learnt first, while all else stays; then networks go on training on the new rows. How far
old weights move is chosen by groups of these rows that were held out: not at all, unless they are surely predicted
better (by more than a standard error over groups), and then where they are best. Weights that belong to old items of
which the table has none stay what they were: that they do not come in a day says little, and the others would push them
down. New items keep what was learnt of them.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from efattn.data import Groups, Schema, Table
from efattn.data.fingerprints import seen_by
from efattn.errors import DataError, Note, option
from efattn.estimators import growing, members
from efattn.estimators.blueprint import Blueprint
from efattn.estimators.holding_out import split
from efattn.estimators.progress import Stages
from efattn.inference import Fitted
from efattn.inference.lengths import length_counts
from efattn.models import Conditionals, Model
from efattn.training import Record, Training, threads

if TYPE_CHECKING:
    from efattn.estimators.base import GroupEstimator

SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
TOKENS = 4096
SLOWER = 3  # than a fit
HEADS = ("head.bias", "head.body.0.weight", "head.body.own.weight", "centre_vectors", "bias")  # a row an item


def update(
    estimator: "GroupEstimator",
    before: Fitted,
    table: Any,
    *,
    validation: Any,
    training: Training | None,
    target: str | None,
    item_features: Any,
    callbacks: Sequence[Callable[[Record], object]],
    progress: bool | None,
) -> None:
    """The estimator has it then; its companions are as they were."""
    source = Table.read(table)
    source = source if before.wide is None else before.wide.long(source)
    if not len(source):
        raise DataError("The table has no rows: there is nothing to learn from.")
    schema = _schema(before, source, item_features)
    asked = schema if target is None else replace(schema, roles=replace(schema.roles, target=target))
    need = (*(["value"] if "value" in before.terms else []), *(["target"] if target is not None else []))
    groups = asked.encode(source, need=need, sort=True)
    before.check(groups)
    draft = replace(Blueprint.of(before), schema=schema, groups=groups)
    blueprint = split(replace(draft, notes=tuple(groups.notes)), validation, estimator.seed, None)
    models = [estimator._build(blueprint, start=False, member=k) for k in range(len(before.members))]
    for new, old in zip(models, before.members, strict=True):
        growing.grow(new, old)
    first = estimator.training or Training()
    calm = training or replace(first, rate=first.rate / SLOWER)
    with Stages(progress) as stages, threads.suited_to(groups.count):
        each = [blueprint] * len(models)
        if _new_items_alone(models, each, before, training or first, estimator.seed, stages):
            trained, notes = members.Trained(tuple(models), list(before.history), True), list[Note]()
        else:
            began, history = [_weights(model) for model in models], before.history
            trained = members.train(models, each, calm, estimator.seed, stages, callbacks=callbacks, before=history)
            words = [settled(model, was, blueprint, before) for model, was in zip(trained.models, began, strict=True)]
            notes = [note for note in dict.fromkeys(words) if note is not None]
        for note in notes:
            stages.say(str(note))
    beside = growing.beside(before.companions, models[0])
    taken = estimator._take(blueprint.noted(*notes), *trained, companions=beside).fitted_
    known = None if before.seen is None else np.union1d(before.seen, seen_by(groups, blueprint.held))
    known_lengths = length_counts(groups.lengths, before.lengths)
    estimator.fitted_ = replace(taken, seen=known, lengths=known_lengths, powers=before.powers, moves=before.moves)


def _schema(before: Fitted, source: Table, item_features: Any) -> Schema:
    """With the items that are new in either table."""
    schema = before.schema
    if item_features is not None:
        if schema.features is None or schema.vocabulary is None:
            said = f"This model was fitted without features of items: leave {option('item_features')} out."
            raise DataError(said, option="item_features")
        known, vocabulary = schema.features.of(item_features, schema.vocabulary)
        schema = schema.with_vocabulary(vocabulary, known)
    schema = schema.with_new_items(source)
    if schema.features is None:
        return schema
    return replace(schema, features=replace(schema.features, trained=len(schema.features)))


def _new_items_alone(
    models: Sequence[Model], each: Sequence[Blueprint], before: Fitted, options: Training, seed: int, stages: Stages
) -> bool:
    """Where items are new, what belongs to them is learnt first, while all that was known stays. Gives whether that was
    interrupted."""
    came = _came(each[0], each[0].items) if each[0].items else np.zeros(0, bool)
    if not came[before.schema.trained_items :].any():
        return False
    began = [_weights(model) for model in models]
    rows = [_item_rows(model, each[0], before.schema.trained_items)[1] for model in models]
    open_ = [{name for name, p in model.named_parameters() if p.requires_grad} for model in models]
    for model, new in zip(models, rows, strict=True):
        for name, p in model.named_parameters():
            p.requires_grad_(name in new and name in open_[0])
    interrupted = members.train(models, each, options, seed, stages, before=()).interrupted
    for model, new, was, could in zip(models, rows, began, open_, strict=True):
        model.load_state_dict(
            was | {name: torch.where(new[name], x, was[name]) for name, x in _weights(model).items() if name in new}
        )
        for name, p in model.named_parameters():
            p.requires_grad_(name in could)
    return interrupted


def _weights(model: Model) -> dict[str, Tensor]:
    return {name: x.detach().clone() for name, x in model.state_dict().items()}


@torch.no_grad()
def settled(model: Model, began: dict[str, Tensor], blueprint: Blueprint, before: Fitted) -> Note | None:
    """Move the networks back as far as held-out groups ask for; began: the weights before they were trained."""
    now = _weights(model)
    stays, new = _item_rows(model, blueprint, before.schema.trained_items)
    now |= {name: torch.where(rows, began[name], now[name]) for name, rows in stays.items()}

    def at(share: float) -> None:
        mixed = {}
        for name, x in now.items():
            old = began[name]
            between = old + share * (x - old) if x.is_floating_point() else x
            mixed[name] = torch.where(new[name], x, between) if name in new else between
        model.load_state_dict(mixed)

    if blueprint.held is None or not len(blueprint.held):
        at(1.0)
        return None
    scores = []
    for share in SHARES:
        at(share)
        scores.append(_by_group(model, blueprint.held))
    chosen = _surely_best(np.array(scores))
    at(SHARES[chosen])
    gain = float(np.mean(scores[chosen]) - np.mean(scores[0]))
    said = f"Old weights moved {SHARES[chosen]:.0%} of the way that the new rows asked for"
    return Note("update", f"{said} ({gain:+.4f} per held-out group).")


def _came(blueprint: Blueprint, items: int) -> np.ndarray:
    """(item,): those that the new rows have."""
    groups = blueprint.groups
    assert groups is not None
    if groups.every.item is None:
        return np.ones(items, bool)
    return np.bincount(np.minimum(groups.every.item, items), minlength=items + 1)[:items] > 0


def _item_rows(model: Model, blueprint: Blueprint, known: int) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """By weight that has a row for each item: which rows stay as they were, and which keep all that was learnt."""
    items = blueprint.items
    came, there = torch.as_tensor(_came(blueprint, items)), torch.arange(items)
    stays, new = dict[str, Tensor](), dict[str, Tensor]()
    for number, term in enumerate(model.terms):
        for name, x in model[term].state_dict().items():
            heads = name in HEADS and model[term].of_items and len(x) == items
            if heads or (name.endswith("vectors.weight") and len(x) == items + 2):
                rows = torch.zeros(2, len(x), dtype=torch.bool)
                rows[0, :items], rows[1, :items] = ~came, came & (there >= known)
                shape = (-1, *[1] * (x.dim() - 1))
                stays[f"parts.{number}.{name}"], new[f"parts.{number}.{name}"] = (row.reshape(shape) for row in rows)
    return stays, new


def _by_group(model: Model, held: Groups) -> np.ndarray:
    """(group,): the sum of its targets' log-probabilities, of all terms."""
    total = sum((_term_by_group(model[name], held) for name in model.terms), np.zeros(len(held.offsets) - 1))
    return total[np.unique(held.pieces.group)]


def _term_by_group(term: Conditionals, held: Groups) -> np.ndarray:
    found, term = np.zeros(len(held.offsets) - 1), term.eval()
    for chosen in held.plan(TOKENS):
        batch = held.batch(chosen, term.context)
        scores = term.log_prob(batch)
        each = (scores.values.double() * scores.weight).sum(1).numpy()
        np.add.at(found, held.pieces.group[chosen], each)
    return found


def _surely_best(scores: np.ndarray) -> int:
    """Of (share, group): the best, if it is better than the first by more than a standard error, else the first."""
    best = int(scores.mean(1).argmax())
    gain = scores[best] - scores[0]
    error = gain.std(ddof=1) / len(gain) ** 0.5 if len(gain) > 1 else np.inf
    return best if gain.mean() > error else 0
