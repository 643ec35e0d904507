"""Exponential families and their relatives.

    log p(y | eta) = <eta, t(y)> - A(eta) + log h(y),     eta = eta(f),   f from the head of a network

A new family is one class in one file; a line in FAMILIES makes it one of ours. One that a user defines is known by its
name as soon as its class is there.
"""

from dataclasses import MISSING, fields
from difflib import get_close_matches
from inspect import isabstract
from numbers import Integral, Real
from typing import Any

from efattn.errors import DataError
from efattn.families.base import Claim, ExponentialFamily, Family
from efattn.families.bernoulli import Bernoulli
from efattn.families.beta import Beta
from efattn.families.binomial import Binomial
from efattn.families.categorical import Categorical
from efattn.families.censored import Censored
from efattn.families.exponential import Exponential
from efattn.families.gamma import Gamma
from efattn.families.gaussian import Gaussian
from efattn.families.hurdle import Hurdle
from efattn.families.johnson import Johnson
from efattn.families.log_normal import LogNormal
from efattn.families.multivariate_gaussian import MultivariateGaussian
from efattn.families.negative_binomial import NegativeBinomial
from efattn.families.nominal import Nominal
from efattn.families.ordinal import Ordinal
from efattn.families.per_item import PerItem
from efattn.families.poisson import Poisson
from efattn.families.product import Product
from efattn.families.student_t import StudentT
from efattn.families.successes import Successes
from efattn.families.truncated import Truncated
from efattn.families.weibull import Weibull
from efattn.families.zero_inflated import ZeroInflated
from efattn.families.zero_or import ZeroOr

FAMILIES: tuple[type[Family], ...] = (
    Categorical,
    Bernoulli,
    Binomial,
    Poisson,
    Gaussian,
    StudentT,
    Johnson,
    MultivariateGaussian,
    Gamma,
    LogNormal,
    Weibull,
    Exponential,
    Beta,
    NegativeBinomial,
    Successes,
    ZeroInflated,
    Hurdle,
    ZeroOr,
    Censored,
    Truncated,
    Ordinal,
    Nominal,
    PerItem,
    Product,
)

__all__ = [*(family.__name__ for family in FAMILIES), "FAMILIES", "Claim", "ExponentialFamily", "Family"]
__all__ += ["from_json", "kind", "known", "named", "to_json", "value_families"]


def known() -> tuple[type[Family], ...]:
    """Ours, then those defined elsewhere, the latest first."""
    others = [one for one in dict.fromkeys(_below(Family)) if not isabstract(one) and one not in FAMILIES]
    return (*FAMILIES, *reversed(others))


def value_families() -> tuple[str, ...]:
    """The names of the families that a value column may have."""
    return tuple(family.name for family in known() if family.of_values)


def kind(name: object) -> type[Family]:
    """The class of a name, spelt with spaces, hyphens or capitals or not."""
    plain = str(name).strip().lower().replace("-", "_").replace(" ", "_")
    for family in known():
        if isinstance(name, str) and plain.replace("_", "") == family.name.replace("_", ""):
            return family
    near = get_close_matches(plain, [family.name for family in known()], n=1)
    hint = f"Did you mean {near[0]!r}?" if near else f"There are {', '.join(value_families())}."
    raise DataError(f"No family is called {name!r}. {hint} One of your own is known once its class is defined.")


def named(spec: str | Family, /, **options: Any) -> Family:
    """A family by its name, named("poisson", shift=1); a family itself is given back."""
    if isinstance(spec, Family):
        if options:
            raise DataError(f"{spec!r} is a family already: write {', '.join(options)} into its constructor.")
        return spec
    family = kind(spec)
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
    if isinstance(options.get("base"), dict):
        options["base"] = from_json(options["base"])
    if isinstance(options.get("kinds"), list):
        options["kinds"] = tuple(options["kinds"])
    return named(saved["name"], **options)


def _below(family: type[Any]) -> list[type[Family]]:
    """All classes that are defined as one of these, in the order of their definition."""
    return [x for one in family.__subclasses__() for x in (one, *_below(one))]


def _argument(f: Any) -> str:
    """The constructor's word for a field, where a method has taken it."""
    return f.metadata.get("argument", f.name)


def _plain(value: Any) -> Any:
    if isinstance(value, Family):
        return to_json(value)
    if isinstance(value, tuple):
        return [_plain(part) for part in value]
    if isinstance(value, Integral):
        return int(value)
    return float(value) if isinstance(value, Real) else value
