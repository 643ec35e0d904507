"""Exponential families and their relatives.

    log p(y | eta) = <eta, t(y)> - A(eta) + log h(y),     eta = eta(f),   f from the head of a network

A new family is one class in one file and one line in FAMILIES.
"""

from dataclasses import MISSING, fields
from difflib import get_close_matches
from numbers import Integral, Real
from typing import Any

from efattn.errors import DataError
from efattn.families.base import ExponentialFamily, Family
from efattn.families.bernoulli import Bernoulli
from efattn.families.beta import Beta
from efattn.families.binomial import Binomial
from efattn.families.categorical import Categorical
from efattn.families.exponential import Exponential
from efattn.families.gamma import Gamma
from efattn.families.gaussian import Gaussian
from efattn.families.multivariate_gaussian import MultivariateGaussian
from efattn.families.negative_binomial import NegativeBinomial
from efattn.families.ordinal import Ordinal
from efattn.families.poisson import Poisson
from efattn.families.product import Product

FAMILIES: tuple[type[Family], ...] = (
    Categorical,
    Bernoulli,
    Binomial,
    Poisson,
    Gaussian,
    MultivariateGaussian,
    Gamma,
    Exponential,
    Beta,
    NegativeBinomial,
    Ordinal,
    Product,
)

__all__ = [*(family.__name__ for family in FAMILIES), "FAMILIES", "ExponentialFamily", "Family"]
__all__ += ["from_json", "named", "to_json"]


def named(spec: str | Family, /, **options: Any) -> Family:
    """A family by its name, named("poisson", shift=1); a family itself is given back."""
    if isinstance(spec, Family):
        if options:
            raise DataError(f"{spec!r} is a family already: write {', '.join(options)} into its constructor.")
        return spec
    family = _class_named(spec)
    arguments = {_argument(f): f.default is MISSING for f in fields(family) if f.init}  # type: ignore[arg-type]
    for option in options:
        if option not in arguments:
            choice = f"it has {', '.join(arguments)}" if arguments else "it has none"
            raise DataError(f"Family {family.name!r} has no parameter {option!r}: {choice}.")
    missing = [name for name, needed in arguments.items() if needed and name not in options]
    if missing:
        raise DataError(f"Family {family.name!r} needs {missing[0]}: families.{family.__name__}({missing[0]}=...).")
    return family(**options)


def to_json(family: Family) -> dict[str, Any]:
    """{"name": ..., and its parameters}, for from_json."""
    values = {_argument(f): getattr(family, f.name) for f in fields(family) if f.init}  # type: ignore[arg-type]
    return {"name": family.name, **{name: _plain(value) for name, value in values.items()}}


def from_json(saved: Any) -> Family:
    """The family that to_json wrote; a DataError for anything else."""
    if not isinstance(saved, dict) or not all(isinstance(key, str) for key in saved) or "name" not in saved:
        raise DataError(f"A saved family is an object with a name and its parameters, not {saved!r}.")
    options = {key: value for key, value in saved.items() if key != "name"}
    if isinstance(options.get("parts"), list):
        options["parts"] = tuple(from_json(part) for part in options["parts"])
    return named(saved["name"], **options)


def _class_named(name: object) -> type[Family]:
    names = {family.name: family for family in FAMILIES}
    plain = str(name).strip().lower().replace("-", "_").replace(" ", "_")
    for family in FAMILIES:
        if isinstance(name, str) and plain.replace("_", "") == family.name.replace("_", ""):
            return family
    near = get_close_matches(plain, names, n=1)
    hint = f"Did you mean {near[0]!r}?" if near else f"There are {', '.join(names)}."
    raise DataError(f"No family is called {name!r}. {hint}")


def _argument(f: Any) -> str:
    """The constructor's word for a field, where a method has taken it."""
    return f.metadata.get("argument", f.name)


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [to_json(part) for part in value]
    if isinstance(value, Integral):
        return int(value)
    return float(value) if isinstance(value, Real) else value
