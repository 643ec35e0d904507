"""The diversity conditions of Theorem 1, on data: are the three matrices invertible, and how nearly are they not?

    I     L = [delta_A - delta_B]     K pairs of items                       needs K <= D - 1
    II    M = [-log Z(h); h]          K + 1 contexts (with a bias row [1],   K + 2)
    III   N = [features]              d_j contexts, of what the value head's last linear map reads

The theorem asks that such points exist, so they are chosen: greedily, by QR with pivoting. Where the support is
distinct, pairs must be allowed in the context they are compared in, and contexts must allow the item they are compared
on: I is then the worst over contexts, II the worst over items.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
from scipy.linalg import qr

from efattn.estimators import EFA
from efattn.theory.reading import Reading, read, terms
from efattn.theory.table import text


@final
@dataclass(frozen=True)
class DiversityMatrix:
    """size: of the square matrix; points: how many there were to choose from; condition: infinite where the rank falls
    short; worst_of: how many such matrices were looked at, of which this is the worst; share: of them that are
    invertible."""

    term: str
    condition_name: str
    size: int
    points: int
    rank: int
    condition: float
    worst_of: int = 1
    share: float = 1.0

    @property
    def holds(self) -> bool:
        return self.rank == self.size


@final
@dataclass(frozen=True)
class Diversity:
    matrices: tuple[DiversityMatrix, ...]

    def columns(self) -> dict[str, list[Any]]:
        rows = self.matrices
        return {
            "term": [x.term for x in rows],
            "diversity": [x.condition_name for x in rows],
            "size": [x.size for x in rows],
            "points": [x.points for x in rows],
            "rank": [x.rank for x in rows],
            "condition": [x.condition for x in rows],
            "worst_of": [x.worst_of for x in rows],
            "share": [x.share for x in rows],
            "holds": [x.holds for x in rows],
        }

    def __str__(self) -> str:
        return text(self.columns())


def check_diversity(model: EFA, table: Any, rows: int = 4000, contexts: int = 200) -> Diversity:
    """Of a fitted EFA on the rows of a table, of which `rows` are looked at, evenly spaced. contexts: how many of them
    condition I is checked in where the support is distinct."""
    matrices: list[DiversityMatrix] = []
    for name in terms(model):
        matrices += of_reading(name, read(model, name, table), rows, contexts)
    return Diversity(tuple(matrices))


def of_reading(name: str, reading: Reading, rows: int = 4000, contexts: int = 200) -> tuple[DiversityMatrix, ...]:
    """I and II of an item term, III of a value term."""
    reading = reading.at(_spaced(reading.row, rows))
    if reading.centre is None:
        return (assess(reading.features, term=name, condition_name="III"),)
    return pairs_of_items(name, reading, contexts), contexts_of_items(name, reading)


def pairs_of_items(name: str, reading: Reading, contexts: int = 200) -> DiversityMatrix:
    """Condition I. Pairs share one of their items, the one nearest to the mean: all differences are differences of
    those."""
    assert reading.centre is not None
    centre, allowed = reading.centre, np.isfinite(reading.natural)
    if allowed.all():
        return assess(_differences(centre), term=name, condition_name="I")
    sets = np.unique(allowed[_spaced(np.arange(len(allowed)), contexts)], axis=0)
    return _worst(assess(_differences(centre[mine]), term=name, condition_name="I") for mine in sets)


def contexts_of_items(name: str, reading: Reading) -> DiversityMatrix:
    """Condition II."""
    candidates = extended_contexts(reading.context, reading.natural, reading.biased)
    allowed = np.isfinite(reading.natural)
    if allowed.all():
        return assess(candidates, term=name, condition_name="II")
    return _worst(assess(candidates[mine], term=name, condition_name="II") for mine in allowed.T)


def extended_contexts(context: np.ndarray, logits: np.ndarray, biased: bool) -> np.ndarray:
    """Rows (-log Z, h) or, where log p = h . delta_x + b_x - log Z has a bias, (-log Z, h, 1)."""
    columns = [-np.logaddexp.reduce(logits, axis=1)[:, None], context]
    return np.hstack([*columns, np.ones((len(context), 1))] if biased else columns)


def assess(candidates: np.ndarray, *, term: str = "", condition_name: str = "") -> DiversityMatrix:
    """The matrix of as many of the candidates (point, size) as it has columns, chosen to be far from singular."""
    points, size = candidates.shape
    s = np.zeros(1)
    if points and size:
        s = np.linalg.svd(candidates[chosen(candidates)], compute_uv=False)
    rank = int((s > s.max() * size * np.finfo(float).eps).sum())
    condition = float(s[0] / s[-1]) if rank == size else float("inf")
    return DiversityMatrix(term, condition_name, size, points, rank, condition, share=float(rank == size))


def chosen(candidates: np.ndarray) -> np.ndarray:
    """Which rows of the candidates (point, size): each the farthest from the span of those before it."""
    order = qr(candidates.T, mode="r", pivoting=True)[1]
    return np.asarray(order[: candidates.shape[1]])


def _differences(centre: np.ndarray) -> np.ndarray:
    """(item - 1, width)"""
    if not len(centre):
        return centre
    base = int(((centre - centre.mean(0)) ** 2).sum(1).argmin())
    return np.delete(centre - centre[base], base, axis=0)


def _worst(matrices: Iterable[DiversityMatrix]) -> DiversityMatrix:
    every = list(matrices)
    worst = min(every, key=lambda x: (x.rank, -x.condition))
    return replace(worst, worst_of=len(every), share=float(np.mean([x.holds for x in every])))


def _spaced(x: np.ndarray, number: int) -> np.ndarray:
    return x if len(x) <= number else x[np.linspace(0, len(x) - 1, number).astype(int)]
