"""What comes next (past) or is missing (others): the item term's distribution of one more observation of each group."""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from numbers import Integral
from typing import Any

import numpy as np
import torch
from torch import Tensor

from efattn.data import Batch, Groups, Table
from efattn.errors import DataError, named
from efattn.inference import frames
from efattn.inference.fitted import Fitted, Part, batch_tokens
from efattn.inference.mixture import item_probabilities
from efattn.inference.tables import Tell, announce, encoded
from efattn.models import Conditionals
from efattn.network import Gaps


def recommend(
    fitted: Fitted,
    tables: Iterable[Table] | None = None,
    k: int = 10,
    *,
    member: int | None = None,
    tell: Tell = announce,
) -> Iterator[Any]:
    """The k most probable further items of each group with their probabilities: one row per group and rank, without
    what is impossible. Without tables, or of one without rows, those of an empty history."""
    parts = fitted.parts_of("item", "recommend", member)
    check_count(k)
    if tables is None:
        yield _ranked(fitted, None, {}, *first_items(parts, k, fitted.vocabulary.columns[0]))
        return
    for table, groups in encoded(fitted, tables, tell):
        if not len(table):
            yield _ranked(fitted, table, {}, *first_items(parts, k, fitted.vocabulary.columns[0]))
            continue
        number, item, probability = next_items(fitted, parts, fitted.schema.standardise(groups), k)
        names = frames.name_columns(groups.labels.take(number), groups.columns, item.shape[1])
        yield _ranked(fitted, table, names, item, probability)


def check_count(k: Any) -> None:
    if not isinstance(k, Integral) or isinstance(k, bool) or k < 1:
        raise DataError(f"{named('k')} is how many to give, a whole number >= 1; found {k!r}.", option="k")


@torch.no_grad()
def next_items(
    fitted: Fitted, parts: Sequence[Part], groups: Groups, k: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """group (n,), item (n, k), probability (n, k), the most probable first, for every group in its order. Of a group
    longer than max_length, the last piece is looked at."""
    best: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    term = parts[0].model
    for chosen in groups.plan(batch_tokens(term)):
        of = groups.pieces.group[chosen]
        last = groups.pieces.stop[chosen] == groups.offsets[of + 1]
        if not last.any():
            continue
        batch = groups.batch(chosen[last], term.context, fitted.dtype)
        p = item_probabilities(parts, partial(_one_more, batch=batch), fitted.vocabulary.columns[0])
        top = p.topk(min(k, p.shape[-1]), -1)
        best.append((of[last], top.indices.numpy(), top.values.numpy()))
    group, item, probability = (np.concatenate(columns) for columns in zip(*best, strict=True))
    by = np.argsort(group, kind="stable")
    return group[by], item[by], probability[by]


@torch.no_grad()
def first_items(parts: Sequence[Part], k: int, column: str = "item") -> tuple[np.ndarray, np.ndarray]:
    """item (1, k), probability (1, k): of a history that is empty."""
    batch = Batch.of([{"item": [parts[0].model.family.size], "lag": [0], "when": [0.0]}])
    p = item_probabilities(parts, lambda x: x.outputs(batch)[0, :1], column)
    best = p.topk(min(k, p.shape[-1]), -1)
    return best.indices.numpy(), best.values.numpy()


def _one_more(part: Part, batch: Batch) -> Tensor:
    """f (batch, size) of a position after the last of each group, whose own item nobody knows."""
    longer = batch.with_one_more(item=part.model.family.size, when=_soon(part.model, batch))
    return part.outputs(longer, torch.full((len(batch.exists), 1), batch.length))[:, 0]


def _soon(term: Conditionals, batch: Batch) -> Tensor | float:
    """(batch, 1): the usual time after the last row of each group, if anybody asks."""
    gaps: Gaps | None = getattr(term, "gaps", None)
    if batch.when is None or gaps is None:
        return 0.0
    here = torch.where(batch.exists, batch.when, -torch.inf)[:, : batch.length]
    return here.amax(1, keepdim=True) + gaps.get_buffer("usual").cpu()


def _ranked(
    fitted: Fitted, table: Table | None, groups: dict[str, Any], item: np.ndarray, probability: np.ndarray
) -> Any:
    """The groups' columns, rank, the item's columns and its probability, from (group, k) arrays."""
    import polars as pl

    rank = np.tile(np.arange(1, item.shape[1] + 1), len(item))
    names = frames.item_columns(fitted.vocabulary, item.ravel())
    taken = {*groups, *names}
    columns = {**groups, **frames.renamed({"rank": rank}, taken), **names}
    columns |= frames.renamed({"probability": probability.ravel()}, taken)
    made = pl.DataFrame(columns, strict=False).filter(pl.Series(probability.ravel() > 0))
    return frames.of_kind(made, fitted.frames) if table is None else table.same_kind(made)
