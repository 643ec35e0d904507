"""What comes next, what goes together, where items stand.

recommend   the item term's distribution of one more observation: after the history (past) or beside it (others)
similar     companions: delta_a . beta_b + beta_a . delta_b, high where each makes the other likely; or, without an item
            term, the cosine of the items' vectors

Probabilities of several members of an ensemble are averaged; vectors are those of one.
"""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from efattn.data import Batch, Groups
from efattn.errors import DataError
from efattn.inference.mixture import average, shares
from efattn.inference.rows import batch_size, batches, put
from efattn.models import Conditionals, LatentItems, LatentValues, Model, Term
from efattn.network import ItemVectors, Tied


@torch.no_grad()
def next_items(terms: Sequence[Conditionals], groups: Groups, k: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """group (n,), item (n, k), probability (n, k), the most probable first, for every group in its order. Of a group
    longer than max_length, the last piece is looked at."""
    found: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    for chosen in groups.plan(batch_size(terms[0])):
        of = groups.pieces.group[chosen]
        last = groups.pieces.stop[chosen] == groups.offsets[of + 1]
        if not last.any():
            continue
        batch = groups.batch(chosen[last], terms[0].context)
        p = average((term.family.mean(_one_more(term, batch)) for term in terms), shares(terms))
        best = p.nan_to_num(0.0).topk(min(k, p.shape[-1]), -1)  # NaN: every item is there already
        found.append((of[last], best.indices.numpy(), best.values.numpy()))
    group, item, probability = (np.concatenate(parts) for parts in zip(*found, strict=True))
    by = np.argsort(group, kind="stable")
    return group[by], item[by], probability[by]


@torch.no_grad()
def first_items(terms: Sequence[Conditionals], k: int) -> tuple[np.ndarray, np.ndarray]:
    """item (k,), probability (k,): of a history that is empty."""
    batch = Batch.of([{"item": [terms[0].family.size], "lag": [0], "when": [0.0]}])
    p = average((term.family.mean(term.outputs(batch))[0, 0] for term in terms), shares(terms))
    best = p.topk(min(k, len(p)))
    return best.indices.numpy(), best.values.numpy()


@torch.no_grad()
def modes(terms: Sequence[Conditionals], groups: Groups, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """item (row,), probability (row,): the most probable item of every row, given its context."""
    item, probability = np.zeros(rows, np.int64), np.full(rows, np.nan)
    if terms[0].support == "distinct":
        groups.check_distinct()
    for batch in batches(groups, terms[0]):
        best = average((term.family.mean(term.outputs(batch)) for term in terms), shares(terms)).max(-1)
        put(item, batch, best.indices)
        put(probability, batch, best.values)
    return item, probability


def _one_more(term: Conditionals, batch: Batch) -> Tensor:
    """f (batch, size) of a position after the last of each group."""
    assert batch.item is not None
    assert batch.position is not None
    n = batch.length

    def wider(x: Tensor | None, fill: Any) -> Tensor | None:
        if x is None:
            return None
        column = x.new_full((len(x), 1, *x.shape[2:]), 0)
        column[:] = fill
        return torch.cat((x[:, :n], column, x[:, n:]), 1)

    count = batch.exists[:, :n].sum(1)
    position = wider(batch.position, 0)
    assert position is not None
    position[:, n] = count
    changes = {"item": wider(batch.item, term.family.size), "exists": wider(batch.exists, True), "position": position}
    changes |= {"value": wider(batch.value, 0), "observed": wider(batch.observed, False), "lag": wider(batch.lag, 0)}
    changes |= {"attributes": wider(batch.attributes, 0), "target": wider(batch.target, False)}
    changes["when"] = wider(batch.when, _soon(term, batch))
    longer = batch.replace(length=n + 1, weight=None, exposure=None, **changes)
    return term.outputs(longer, torch.full((len(count), 1), n))[:, 0]


def _soon(term: Conditionals, batch: Batch) -> Tensor | float:
    """(batch, 1): the usual time after the last row of each group, if anybody asks."""
    if batch.when is None or not isinstance(term, Term) or term.gaps is None:
        return 0.0
    here = torch.where(batch.exists, batch.when, -torch.inf)[:, : batch.length]
    return here.amax(1, keepdim=True) + term.gaps.get_buffer("usual")


def item_vectors(model: Model, which: Literal["context", "centre"] = "context") -> Tensor | None:
    """(item, width): "context", what an item contributes as context; "centre", what it is predicted with."""
    for name in model.terms:
        term = model[name]
        if which == "centre":
            found = _centre(term)
        elif isinstance(term, Term):
            part = term.embedding.target if term.of_items else term.embedding.item
            found = part.vectors.weight[: part.items] if isinstance(part, ItemVectors) else None
        elif isinstance(term, LatentItems):
            found = term.context_vectors.vectors.weight[: term.family.size]
        elif isinstance(term, LatentValues):
            found = term.vectors.vectors.weight[: term.vectors.items].chunk(2, -1)[1]
        else:
            found = None
        if found is not None:
            return found.detach()
    return None


def _centre(term: Conditionals) -> Tensor | None:
    if isinstance(term, LatentItems):
        return term.centre_vectors
    if isinstance(term, LatentValues):
        return term.vectors.vectors.weight[: term.vectors.items].chunk(2, -1)[0]
    if not isinstance(term, Term) or not term.of_items:
        return None
    body = term.head.body
    if isinstance(body, Tied):
        return body.vectors.vectors.weight[: body.vectors.items]
    last = body[-1] if isinstance(body, torch.nn.Sequential) and len(body) == 1 else None
    return last.weight if isinstance(last, torch.nn.Linear) else None


def closeness(model: Model, item: int) -> np.ndarray:
    """(item,): how well each item goes with this one; minus infinity for itself."""
    context, centre = item_vectors(model), item_vectors(model, "centre")
    if context is None:
        raise DataError("This model has no item vectors: it was fitted without an item column.")
    if centre is not None and centre.shape == context.shape:
        score = context @ centre[item] + centre @ context[item]
    else:
        score = torch.cosine_similarity(context, context[item : item + 1])
    found = score.double().numpy().copy()
    found[item] = -np.inf
    return found
