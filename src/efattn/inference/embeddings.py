"""Where items stand: their vectors, and these in a plane.

    (x - mean)' (x - mean) = v diag(s) v'      (x - mean) v: the first two columns are x and y, with (s_1 + s_2) / sum s
                                               of the spread

Written to a Parquet file, the frame is what viewers of embeddings take: names, vectors, and x and y to draw at.
"""

from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from efattn.errors import DataError
from efattn.inference import frames
from efattn.inference.fitted import Fitted
from efattn.models import Conditionals, LatentItems, LatentValues, Model, Term
from efattn.network import FeaturedItems, ItemVectors, Tied


def embeddings(fitted: Fitted, which: str = "item", *, member: int = 0, kind: str | None = None) -> Any:
    """One row per item: its name, x and y (`plane`), and its vector v0, v1, ...: "item", as context, or "centre", what
    it is predicted with."""
    vocabulary, vectors = fitted.vocabulary, _vectors(fitted, which, member)
    columns = frames.item_columns(vocabulary, np.arange(len(vocabulary)))
    numbers = dict(zip("xy", principal(vectors).at.T, strict=True))
    numbers |= {f"v{c}": x for c, x in enumerate(vectors.T)}
    return frames.frame(columns | frames.renamed(numbers, columns), kind or fitted.frames)


class Plane(NamedTuple):
    """at (item, 2); share: of the spread that the plane shows."""

    at: np.ndarray
    share: float


def plane(fitted: Fitted, which: str = "item", *, member: int = 0) -> Plane:
    """Item vectors in the plane of their first two principal components."""
    return principal(_vectors(fitted, which, member))


def principal(vectors: np.ndarray) -> Plane:
    """vectors (item, width). Each component points to where its largest entry is positive, so that a plane does not
    depend on the linear algebra at hand."""
    x = vectors.astype(np.float64)
    x -= x.mean(0)
    squares, v = np.linalg.eigh(x.T @ x)  # (width, width): items may be millions
    at = np.pad(x @ v[:, :-3:-1], ((0, 0), (0, max(2 - len(squares), 0))))
    most = at[np.abs(at).argmax(0), [0, 1]]
    whole = float(squares.sum())
    return Plane(at * np.where(most < 0, -1.0, 1.0), float(squares[-2:].sum()) / whole if whole > 0 else 1.0)


def _vectors(fitted: Fitted, which: str, member: int) -> np.ndarray:
    if which not in ("item", "centre"):
        raise DataError(f"embeddings are of 'item' or 'centre'; found {which!r}.", option="which")
    fitted.vocabulary  # noqa: B018  a DataError where there is none
    vectors = item_vectors(fitted.member(member), "context" if which == "item" else "centre")
    if vectors is None:
        raise DataError(f"This model has no {which} vectors: it has no item term.", option="which")
    return vectors.cpu().numpy()


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
        return part.table() if isinstance(part, ItemVectors) else None
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
        return body.centre
    if isinstance(body, FeaturedItems) and term.head.bias is not None:
        return body.candidates(term.head.bias)[0]
    last = body[-1] if isinstance(body, torch.nn.Sequential) and len(body) == 1 else None
    return last.weight if isinstance(last, torch.nn.Linear) else None
