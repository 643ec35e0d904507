"""What is said of rows, as objects of other libraries, which need not be installed until they are asked for.

skpro    one distribution of a column per row: `skpro.distributions`, or their Mixture
ArviZ    log scores of rows as the group log_likelihood (chain, draw, row), beside what was observed
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

from efattn.data import Table
from efattn.errors import DataError
from efattn.families.base import Frozen, ScipyFamily
from efattn.inference.distribution import Distribution
from efattn.inference.fitted import Fitted
from efattn.inference.score import row_scores
from efattn.inference.tables import Tell, announce, encoded

Parameters = dict[str, np.ndarray]
# by the name of scipy's law: skpro's, and its parameters from scipy's shapes, its location and scale, and the units
LAWS: dict[str, tuple[str, Callable[..., Parameters]]] = {
    "norm": ("Normal", lambda loc, scale, c, s: {"mu": loc * s + c, "sigma": scale * s}),
    "t": ("TDistribution", lambda df, loc, scale, c, s: {"mu": loc * s + c, "sigma": scale * s, "df": df}),
    "gamma": ("Gamma", lambda a, loc, scale, c, s: {"alpha": a, "beta": 1 / (scale * s)}),
    "lognorm": ("LogNormal", lambda b, loc, scale, c, s: {"mu": np.log(scale * s), "sigma": b}),
    "expon": ("Exponential", lambda loc, scale, c, s: {"rate": 1 / (scale * s)}),
    "beta": ("Beta", lambda a, b, loc, scale, c, s: {"alpha": a, "beta": b}),
    "poisson": ("Poisson", lambda mu, loc, scale, c, s: {"mu": mu}),
    "nbinom": ("NegativeBinomial", lambda n, p, loc, scale, c, s: {"mu": n * (1 - p) / p, "alpha": n}),
    "binom": ("Binomial", lambda n, p, loc, scale, c, s: {"n": n, "p": p}),
}
ANYWHERE = ("norm", "t")  # may be shifted
PLACE = {"norm": 0, "t": 1}  # how many shapes come before location and scale, which stand without names


def to_skpro(law: Distribution) -> Any:
    """skpro's distribution of these rows: one column by the name of the value, rows from 0 on."""
    skpro = _library("skpro.distributions", "skpro")
    some = [(rows, laws) for rows, laws in law.laws if len(rows)]
    if len(some) != 1 or not isinstance(some[0][1].family, ScipyFamily):
        kinds = ", ".join(dict.fromkeys(type(laws.family).__name__ for _, laws in some))
        raise DataError(
            f"skpro has no distribution of {law.column!r} ({kinds}): ask for pdf, cdf, quantiles or sample."
        )
    rows, laws = some[0]
    family = laws.family
    assert isinstance(family, ScipyFamily)
    shares = laws.shares.numpy()
    kept = [k for k in range(shares.shape[1]) if shares[:, k].any()]
    if np.ptp(shares, axis=0).max(initial=0.0) > 1e-9:
        raise DataError(
            "skpro's mixtures have the same weights in all rows, and here rows have shares of their own (new items, or "
            "values missing): ask for rows that are alike, as law[mask]."
        )
    order = np.argsort(rows)
    parts = []
    for k in kept:
        name, told = _parameters(law, family.distribution(laws.outputs[k]), len(rows), rows)
        made = {key: x[order, None].tolist() for key, x in told.items()}
        parts.append((f"part {k}", getattr(skpro, name)(**made, columns=[law.column])))
    if len(parts) == 1:
        return parts[0][1]
    return skpro.Mixture(distributions=parts, weights=[float(shares[0, k]) for k in kept])


def _parameters(law: Distribution, scipy: Frozen, count: int, rows: np.ndarray) -> tuple[str, Parameters]:
    kind = getattr(scipy.law, "name", "")
    centre, scale = law.centre[rows], law.scale[rows]
    shapes, place = list(scipy.shapes), dict(scipy.place)
    if kind in PLACE and len(shapes) > PLACE[kind]:
        place |= dict(zip(("loc", "scale"), shapes[PLACE[kind] :], strict=False))
        shapes = shapes[: PLACE[kind]]
    loc, width = np.asarray(place.get("loc", 0.0)), np.asarray(place.get("scale", 1.0))
    counted = scipy.law.__class__.__module__ == "scipy.stats._discrete_distns" and (scale != 1).any()
    shifted = kind not in ANYWHERE and ((loc != 0).any() or (centre != 0).any() or counted)
    if kind not in LAWS or shifted:
        raise DataError(f"skpro has no {kind or 'such'} law of {law.column!r}: ask for pdf, cdf, quantiles or sample.")
    name, translate = LAWS[kind]
    told = translate(*map(np.asarray, shapes), loc, width, centre, scale)
    return name, {key: np.broadcast_to(np.asarray(x, np.float64), count) for key, x in told.items()}


def to_arviz(fitted: Fitted, table: Table, *, member: int | None = None, tell: Tell = announce) -> Any:
    """ArviZ's data with log_likelihood of each term (chain, draw, row), one chain of one draw, of the rows that are
    scored, and observed_data of value columns. Each score is of a row from its context, which it was not part of, so
    that their sum is what loo estimates."""
    arviz = _library("arviz", "arviz")
    if fitted.wide is not None:
        raise DataError("Of a wide table each column has scores of its own: take those of log_likelihood.")
    (asked,) = encoded(fitted, [table], tell, need=("value",) if "value" in fitted.terms else ())
    scores, seen = dict[str, np.ndarray](), dict[str, np.ndarray]()
    for name, rows in row_scores(fitted, asked.groups, len(asked.table), member).items():
        scores[name] = rows.values[rows.scored][None, None]
        every = asked.groups.every
        if name != "item" and every.value is not None and every.value.shape[1] == 1:
            values = np.empty(len(asked.table))
            values[every.row] = every.value[:, 0]
            seen[name] = values[rows.scored]
    groups = {"log_likelihood": scores, **({"observed_data": seen} if seen else {})}
    if int(str(arviz.__version__).split(".")[0]) >= 1:  # groups by name in one mapping, as keywords before
        return arviz.from_dict(groups)
    return arviz.from_dict(**groups)


def _library(module: str, package: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        raise DataError(f"This needs {package}, which is not installed: pip install {package}") from error
