"""Linear identifiability (Theorem 1): fits with the same conditionals have embeddings equal up to an invertible map.

    H' = A H (+ a where the head has biases),     delta' = B delta + b,     eta' = eta

Measured by regressing one fit's embeddings on the other's:

    R^2 = 1 - |H' - A H|^2 / |H'|^2      (lengths about the mean where there is an intercept)

and by canonical correlations, each beside two controls: an untrained network of the same make in place of the other
fit, and the other fit with its rows permuted, which is what chance gives for so many columns.

A fit that agrees no better than a control says nothing, whatever its R^2 is.

What is identified: H and delta of an item term where diversity I and II hold in both fits, and the features of a value
term where III does and there are no more of them than natural parameters. Natural parameters are what the likelihood
knows, and need no theorem. What lies across all differences of deltas changes no softmax: where width > D - 1, so that
I must fail, H is projected onto their span, and described only.
"""

from dataclasses import dataclass
from typing import Any, final

import numpy as np

from efattn.errors import DataError
from efattn.estimators import EFA
from efattn.theory.diversity import of_reading
from efattn.theory.reading import Reading, read, terms, untrained
from efattn.theory.table import text

TOLERANCE = 1e-9  # of the largest singular value, below which a direction is none
Verdict = tuple[bool, str]  # identified or not, and why
KNOWN: Verdict = (True, "the likelihood knows it")
TOO_MANY: Verdict = (False, "more features than values")


@final
@dataclass(frozen=True)
class LinearFit:
    """How well a is a linear map of b: R^2 of the regression, and the canonical correlations of the two, largest
    first."""

    r2: float
    correlations: np.ndarray

    @property
    def mean_correlation(self) -> float:
        return float(self.correlations.mean()) if len(self.correlations) else float("nan")


def linear_map_fit(a: np.ndarray, b: np.ndarray, intercept: bool = True) -> LinearFit:
    """a (n, p) regressed on b (n, q). R^2 does not change with invertible maps of b, nor with rotations and one scale
    of a; canonical correlations change with no invertible map of either. Chance gives about q / n."""
    a, b = (np.asarray(x, float).reshape(len(x), -1) for x in (a, b))
    if len(a) != len(b):
        raise DataError(f"Both must have the same rows; found {len(a)} and {len(b)}.")
    if intercept:
        a, b = a - a.mean(0), b - b.mean(0)
    mine, theirs = _basis(a), _basis(b)
    total = float((a**2).sum())
    r2 = float(((theirs.T @ a) ** 2).sum()) / total if mine.shape[1] else float("nan")
    return LinearFit(r2, np.linalg.svd(mine.T @ theirs, compute_uv=False).clip(0.0, 1.0))


@final
@dataclass(frozen=True)
class Comparison:
    """One quantity of one term in two fits, over n rows (or items). reason: why it is identified, or why not."""

    term: str
    quantity: str
    identified: bool
    reason: str
    intercept: bool
    n: int
    fit: LinearFit
    untrained: LinearFit
    permuted: LinearFit

    @property
    def above_controls(self) -> bool:
        """Whether the fits agree better than one of them does with an untrained network, and better than by chance."""
        return bool(self.fit.r2 > max(self.untrained.r2, self.permuted.r2) + TOLERANCE)


@final
@dataclass(frozen=True)
class Identifiability:
    comparisons: tuple[Comparison, ...]

    def __getitem__(self, key: tuple[str, str]) -> Comparison:
        """By term and quantity."""
        return next(x for x in self.comparisons if (x.term, x.quantity) == key)

    def columns(self) -> dict[str, list[Any]]:
        rows = self.comparisons
        return {
            "term": [x.term for x in rows],
            "quantity": [x.quantity for x in rows],
            "identified": [x.identified for x in rows],
            "reason": [x.reason for x in rows],
            "intercept": [x.intercept for x in rows],
            "n": [x.n for x in rows],
            "dimensions": [len(x.fit.correlations) for x in rows],
            "r2": [x.fit.r2 for x in rows],
            "r2_untrained": [x.untrained.r2 for x in rows],
            "r2_permuted": [x.permuted.r2 for x in rows],
            "above_controls": [x.above_controls for x in rows],
            "correlation": [x.fit.mean_correlation for x in rows],
            "correlation_untrained": [x.untrained.mean_correlation for x in rows],
            "correlation_permuted": [x.permuted.mean_correlation for x in rows],
        }

    def __str__(self) -> str:
        return text(self.columns())


def compare(model_a: EFA, model_b: EFA, table: Any, seed: int = 0) -> Identifiability:
    """Two fitted EFAs on the same held-out rows: the first's embeddings regressed on the second's. seed: of the
    controls."""
    mine, theirs = terms(model_a), terms(model_b)
    shared = [name for name in mine if name in theirs]
    if not shared:
        raise DataError(f"The models share no term: {', '.join(mine)} and {', '.join(theirs)}.")
    if model_a.context != model_b.context:
        raise DataError("One model looks at the past, the other at all others: their conditionals are not the same.")
    fresh, draw = untrained(model_b, seed), np.random.default_rng(seed)
    comparisons: list[Comparison] = []
    for name in shared:
        a, b, c = read(model_a, name, table), read(model_b, name, table), read(model_b, name, table, fresh)
        row = np.intersect1d(a.row, b.row)
        of_term = (a.at(row), b.at(row), c.at(row))
        diverse = _diverse(name, a, b)
        if mine[name].of_items:
            comparisons += _items(name, *of_term, _common(model_a, model_b), diverse, draw)
        else:
            comparisons += _values(name, *of_term, diverse, draw)
    return Identifiability(tuple(comparisons))


def _diverse(name: str, a: Reading, b: Reading) -> Verdict:
    """Whether every diversity condition of a term holds in both fits, and which."""
    matrices = [*of_reading(name, a), *of_reading(name, b)]
    failing = [x for x in matrices if not x.holds]
    names = list(dict.fromkeys(x.condition_name for x in failing or matrices))
    verb = "fail" if failing else "hold"
    return not failing, f"{' and '.join(names)} {verb if len(names) > 1 else verb + 's'}"


def _items(
    name: str,
    a: Reading,
    b: Reading,
    c: Reading,
    common: tuple[np.ndarray, np.ndarray],
    diverse: Verdict,
    draw: np.random.Generator,
) -> list[Comparison]:
    here, there = common
    assert a.centre is not None
    assert b.centre is not None
    assert c.centre is not None
    h = tuple(_identified(x.context, x.centre) for x in (a, b, c) if x.centre is not None)
    delta = a.centre[here], b.centre[there], c.centre[there]
    logits = a.natural[:, here], b.natural[:, there], c.natural[:, there]
    others = (logits[1], logits[2], logits[1][draw.permutation(len(a.row))])
    return [
        _compared(name, "context", diverse, a.biased or b.biased, h, draw),
        _compared(name, "items", diverse, True, delta, draw),
        Comparison(name, "natural parameter", *KNOWN, False, len(a.row), *(_agreement(logits[0], x) for x in others)),
    ]


def _values(
    name: str, a: Reading, b: Reading, c: Reading, diverse: Verdict, draw: np.random.Generator
) -> list[Comparison]:
    natural = tuple(_unit_columns(x.natural) for x in (a, b, c))
    features = tuple(x.features for x in (a, b, c))
    too_many = TOO_MANY if a.features.shape[1] > a.natural.shape[1] else None
    return [
        _compared(name, "natural parameter", KNOWN, True, natural, draw),
        _compared(name, "features", too_many or diverse, a.biased or b.biased, features, draw),
    ]


def _compared(
    term: str,
    quantity: str,
    verdict: Verdict,
    intercept: bool,
    arrays: tuple[np.ndarray, ...],
    draw: np.random.Generator,
) -> Comparison:
    """arrays: of the one fit, of the other, and of the untrained network."""
    a, b, fresh = arrays
    fits = (linear_map_fit(a, x, intercept) for x in (b, fresh, b[draw.permutation(len(b))]))
    return Comparison(term, quantity, *verdict, intercept, len(a), *fits)


def _agreement(a: np.ndarray, b: np.ndarray) -> LinearFit:
    """Of two sets of logits (row, item) on the items that both allow, as one long column: what moves with the
    context."""
    allowed = np.isfinite(a) & np.isfinite(b)
    return linear_map_fit(_centred(a, allowed)[allowed], _centred(b, allowed)[allowed], intercept=False)


def _centred(logits: np.ndarray, allowed: np.ndarray) -> np.ndarray:
    """Less a number per row, which no softmax sees, and one per item, its popularity: by least squares, since not every
    item is allowed in every row."""
    x, w, n = np.where(allowed, logits, 0.0), allowed.astype(float), allowed.sum(1).clip(1)
    left = np.diag(w.sum(0)) - w.T @ (w / n[:, None])
    popularity = np.linalg.lstsq(left, x.sum(0) - w.T @ (x.sum(1) / n), rcond=None)[0]
    x = np.where(allowed, x - popularity, 0.0)
    return np.where(allowed, x - (x.sum(1) / n)[:, None], 0.0)


def _identified(context: np.ndarray, centre: np.ndarray) -> np.ndarray:
    """Context vectors in the span of the differences of centre vectors: (n, min(width, D - 1)) in general."""
    return context @ _basis((centre - centre.mean(0)).T)


def _unit_columns(x: np.ndarray) -> np.ndarray:
    """Columns in units of their spread, without constant ones."""
    spread = x.std(0)
    moves = spread > TOLERANCE * (1 + np.abs(x.mean(0)))
    return x[:, moves] / spread[moves]


def _basis(x: np.ndarray) -> np.ndarray:
    """Orthonormal columns that span those of x."""
    u, s, _ = np.linalg.svd(x, full_matrices=False)
    return u[:, s > TOLERANCE * s.max(initial=0.0)]


def _common(a: EFA, b: EFA) -> tuple[np.ndarray, np.ndarray]:
    """The numbers, in either model, of the items both know."""
    assert a.schema_.vocabulary is not None
    assert b.schema_.vocabulary is not None
    where = {key: i for i, key in enumerate(b.schema_.vocabulary.known.keys())}
    pairs = [(i, where[key]) for i, key in enumerate(a.schema_.vocabulary.known.keys()) if key in where]
    if len(pairs) < 2:
        raise DataError("The models know fewer than two items in common: fit both to the same kind of table.")
    here, there = np.array(pairs).T
    return here, there
