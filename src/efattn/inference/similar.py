"""What goes together, and where items stand.

    similar     delta_a . beta_b + beta_a . delta_b, high where each makes the other likely; or, without an item term,
                the cosine of the items' vectors

Vectors of different members are not comparable, so that both are of one.
"""

from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from efattn.errors import DataError
from efattn.inference import frames
from efattn.inference.fitted import Fitted
from efattn.inference.recommend import check_count
from efattn.models import Conditionals, LatentItems, LatentValues, Model, Term
from efattn.network import ItemVectors, Tied


def similar(fitted: Fitted, item: Any, k: int = 10, *, member: int = 0, kind: str | None = None) -> Any:
    """The k items that go best with this one, and how well, to one member. kind: of the frame."""
    check_count(k)
    score = closeness(fitted.member(member), fitted.vocabulary.number(item))
    best = np.argsort(-score, kind="stable")[: min(k, len(score) - 1)]
    columns = frames.item_columns(fitted.vocabulary, best)
    return frames.frame(columns | frames.renamed({"score": score[best]}, columns), kind or fitted.frames)


def embeddings(fitted: Fitted, which: str = "item", *, member: int = 0, kind: str | None = None) -> Any:
    """One row per item with its vector: "item", as context, or "centre", what it is predicted with."""
    vocabulary = fitted.vocabulary
    if which not in ("item", "centre"):
        raise DataError(f"embeddings are of 'item' or 'centre'; found {which!r}.", option="which")
    vectors = item_vectors(fitted.member(member), "context" if which == "item" else "centre")
    if vectors is None:
        raise DataError(f"This model has no {which} vectors: it has no item term.", option="which")
    columns = frames.item_columns(vocabulary, np.arange(len(vocabulary)))
    numbers = {f"v{c}": x for c, x in enumerate(vectors.T.cpu().numpy())}
    return frames.frame(columns | frames.renamed(numbers, columns), kind or fitted.frames)


def item_vectors(model: Model, which: Literal["context", "centre"] = "context") -> Tensor | None:
    """(item, width): "context", what an item contributes as context; "centre", what it is predicted with."""
    for name in model.terms:
        term = model[name]
        vectors = _centre(term) if which == "centre" else _context(term)
        if vectors is not None:
            return vectors.detach()
    return None


def _context(term: Conditionals) -> Tensor | None:
    if isinstance(term, Term):
        part = term.embedding.target if term.of_items else term.embedding.item
        return part.vectors.weight[: part.items] if isinstance(part, ItemVectors) else None
    if isinstance(term, LatentItems):
        return term.context_vectors.vectors.weight[: term.family.size]
    if isinstance(term, LatentValues):
        return term.vectors.vectors.weight[: term.vectors.items].chunk(2, -1)[1]
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
        raise DataError("This model has no item vectors: it was fitted without an item column.", option="item")
    if centre is not None and centre.shape == context.shape:
        score = context @ centre[item] + centre @ context[item]
    else:
        score = torch.cosine_similarity(context, context[item : item + 1])
    scores = score.cpu().double().numpy().copy()
    scores[item] = -np.inf
    return scores
