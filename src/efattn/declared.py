"""Options that are declared as the fields of a dataclass: what each accepts, checked and told from its declaration.

    width: int = option_of(32, "Of the vectors.", low=1)

says that width is a whole number >= 1, 32 by default, and what it does.
"""

import functools
import inspect
import math
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, final, get_args, get_origin, get_type_hints

from efattn.errors import DataError, named, shown

T = TypeVar("T")


def option_of(default: Any, words: str, **more: Any) -> Any:
    """words: what it does, for docstrings and for a shell. more: low, high, above, below (of a number); several (words
    in a shell); zero (which stands for None there); metavar."""
    return field(default=default, metadata={"help": words, **more})


@final
@dataclass(frozen=True)
class Role:
    """A part that a column, or several, may play in fit."""

    name: str
    help: str
    several: bool = False


@final
@dataclass(frozen=True)
class Option:
    """kinds: bool, int, float, str, NoneType, or a class of ours; none for anything. choices: words among its values.
    several: given as several words in a shell. zero: 0 stands for None there."""

    name: str
    default: Any
    help: str
    kinds: tuple[type, ...]
    choices: tuple[str, ...]
    low: float | None = None
    high: float | None = None
    above: float | None = None
    below: float | None = None
    several: bool = False
    zero: bool = False
    metavar: str | None = None

    @property
    def free(self) -> bool:
        """Whether anything may be its value, as far as can be told here."""
        return not self.kinds and not self.choices

    def allows(self, value: Any) -> bool:
        if self.free or not {bool, int, float, str, NoneType}.issuperset(self.kinds):
            return True
        if value is None or isinstance(value, bool):
            return type(value) in self.kinds
        if isinstance(value, str):
            return value in self.choices or str in self.kinds
        if isinstance(value, Integral):
            return (int in self.kinds or float in self.kinds) and self._within(value)
        return isinstance(value, Real) and float in self.kinds and math.isfinite(value) and self._within(value)

    def _within(self, number: Any) -> bool:
        return not (
            (self.low is not None and number < self.low)
            or (self.high is not None and number > self.high)
            or (self.above is not None and number <= self.above)
            or (self.below is not None and number >= self.below)
        )

    @property
    def accepts(self) -> str:
        """In words, for an error."""
        words = [repr(choice) for choice in self.choices]
        if int in self.kinds or float in self.kinds:
            words.insert(0, f"a {'whole ' if int in self.kinds else ''}number{self._bounds()}")
        words += ["a text"] * (str in self.kinds) + ["True", "False"] * (bool in self.kinds)
        words += ["None"] * (NoneType in self.kinds)
        return " or ".join(filter(None, (", ".join(words[:-1]), words[-1])))

    def _bounds(self) -> str:
        if self.above is not None:
            return f" > {self.above}"
        if self.below is not None or self.high is not None:
            return f" from {self.low} to {f'below {self.below}' if self.high is None else self.high}"
        return "" if self.low is None else f" >= {self.low}"


def described(cls: type) -> dict[str, Option]:
    """The options that a dataclass declares, by name."""
    hints = get_type_hints(cls)
    return {one.name: _described(one, hints[one.name]) for one in fields(cls) if one.init}


def _described(one: Any, hint: Any) -> Option:
    parts = list(_parts(hint))
    kinds = tuple(part for part in parts if isinstance(part, type))
    choices = tuple(str(word) for part in parts if get_origin(part) is Literal for word in get_args(part))
    about = {"help": "", **one.metadata}
    return Option(one.name, one.default, kinds=kinds, choices=choices, **about)


def _parts(hint: Any) -> Iterator[Any]:
    if get_origin(hint) in (Union, UnionType):
        for part in get_args(hint):
            yield from _parts(part)
    elif hint is not Any:
        yield hint


def check(chosen: Any, whose: str = "") -> None:
    """A DataError for the first option whose value cannot be."""
    for name, one in described(type(chosen)).items():
        value = getattr(chosen, name)
        plain = value.item() if getattr(value, "ndim", None) == 0 else value  # numpy's numbers
        if not one.allows(plain):
            raise DataError(f"{whose}{named(name)} must be {one.accepts}, not {value!r}.", option=name)


def differing(chosen: Any) -> dict[str, Any]:
    """The options that are not at their default."""
    values = {one.name: (getattr(chosen, one.name), one.default) for one in fields(chosen)}
    return {name: value for name, (value, default) in values.items() if not _same(value, default)}


def _same(one: Any, other: Any) -> bool:
    return one is other or (type(one) is type(other) and bool(one == other))


def listed(words: Mapping[str, str], width: int = 100) -> str:
    """An option a line, as docstrings have them."""
    plain: Any = {"break_on_hyphens": False, "break_long_words": False}
    lines = [
        textwrap.fill(f"{name}: {shown(text)}", width, initial_indent=" " * 4, subsequent_indent=" " * 8, **plain)
        for name, text in words.items()
    ]
    return "\n".join(lines)


_EXPLAINED: list[type] = []


def explained(cls: type[T]) -> type[T]:
    """A class whose docstring lists its options, and which says of an unknown one where it belongs."""
    known = described(cls)
    words = {f"{name}={one.default!r}": one.help for name, one in known.items()}
    cls.__doc__ = f"{inspect.cleandoc(cls.__doc__ or '')}\n\nOptions:\n\n{listed(words)}\n"
    made = cls.__init__

    @functools.wraps(made)
    def init(self: Any, *given: Any, **options: Any) -> None:
        for name in options:
            if name not in known:
                raise TypeError(_unknown(cls, name, options[name], known))
        made(self, *given, **options)

    cls.__init__ = init  # type: ignore[method-assign]
    _EXPLAINED.append(cls)
    return cls


def _unknown(cls: type, name: str, value: Any, known: Mapping[str, Option]) -> str:
    mine = cls.__name__
    for other in _EXPLAINED:
        if name not in described(other):
            continue
        inner = next((n for n, one in known.items() if other in one.kinds), None)
        if inner is not None:
            return f"{name} is an option of {inner}: {mine}({inner}={other.__name__}({name}={value!r}))."
        return f"{name} is an option of {other.__name__}, not of {mine}."
    near = get_close_matches(name, known, n=1)
    return f"{mine} has no option {name!r}. " + (
        f"Did you mean {near[0]!r}?" if near else f"It has {', '.join(known)}."
    )
