"""Which column of a table plays which part.

group       the set or sequence a row belongs to          item        its category x
value       its numbers y                                 attributes  its known covariates tau
order       its place in the group ("row": table order)   time, series, with lags: when a group was, and of which series
exposure    multiplies a rate                             weight      of the row in the objective
noise       sd of a value's own measurement error         missing     codes, such as -1, of missing values
target      true where the row is scored, false where it is context only
"""

import difflib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from itertools import combinations
from typing import Any, final

from efattn.errors import DataError, option

SEVERAL = ("group", "item", "value", "attributes", "series")
SINGLE = ("order", "time", "exposure", "weight", "target", "noise")
ROW_ORDER = "row"
Codes = tuple[float | str, ...]

# One column may serve both roles of such a pair; any other pair would show the model its own target, or says nothing.
_SHARED = {
    frozenset(pair)
    for pair in [
        ("group", "time"), ("group", "series"), ("group", "attributes"), ("order", "time"), ("attributes", "order"),
        ("attributes", "time"), ("item", "order"), ("item", "attributes"),
        ("attributes", "exposure"), ("attributes", "weight"), ("exposure", "weight"), ("attributes", "noise"),
    ]
}  # fmt: skip


@final
@dataclass(frozen=True)
class Roles:
    """A name or a sequence of names per role; sequences are kept as tuples. No group: the whole table is one group."""

    group: str | Sequence[str] = ()
    item: str | Sequence[str] = ()
    value: str | Sequence[str] = ()
    attributes: str | Sequence[str] = ()
    order: str | None = None
    time: str | None = None
    series: str | Sequence[str] | None = None
    exposure: str | None = None
    weight: str | None = None
    target: str | None = None
    missing: float | str | Sequence[float | str] | None = None
    noise: str | None = None

    def __post_init__(self) -> None:
        for role in SEVERAL:
            object.__setattr__(self, role, _names(role, getattr(self, role)))
        for role in SINGLE:
            name = getattr(self, role)
            if name is not None and not isinstance(name, str):
                raise DataError(f"The role {role} takes the name of one column; found {name!r}.", option=role)
        object.__setattr__(self, "missing", codes_of(self.missing))
        if not self.item and not self.value:
            raise DataError(
                f"Nothing to model: name an item column ({option('item')}), a value column ({option('value')}) or both."
            )
        if self.series and self.time is None:
            raise DataError(
                f"The role series needs the role time as well: pass {option('time')}, or leave series out.",
                option="time",
            )
        self._check_overlaps()

    def _check_overlaps(self) -> None:
        for role in SEVERAL:
            names = self.of(role)
            twice = [n for i, n in enumerate(names) if n in names[:i]]
            if twice:
                said = f"Column {twice[0]!r} is named twice in the role {role}. Name it once."
                raise DataError(said, column=twice[0], option=role)
        for one, two in combinations((*SEVERAL, *SINGLE), 2):
            shared = [n for n in self.of(one) if n in self.of(two)]
            if shared and frozenset((one, two)) not in _SHARED:
                raise DataError(
                    f"Column {shared[0]!r} is both {one} and {two}. Leave it out of one of the roles, "
                    "or copy it to a column of another name if that is what you mean.",
                    column=shared[0],
                    option=one,
                )

    def of(self, role: str) -> tuple[str, ...]:
        """The columns of a role; none for order="row"."""
        names = getattr(self, role)
        if names is None or (role == "order" and names == ROW_ORDER):
            return ()
        return (names,) if isinstance(names, str) else tuple(names)

    @property
    def columns(self) -> tuple[str, ...]:
        """Every column that has a role, each once."""
        return tuple(dict.fromkeys(n for role in (*SEVERAL, *SINGLE) for n in self.of(role)))

    @property
    def ordered(self) -> bool:
        return self.order is not None

    def to_json(self) -> dict[str, Any]:
        named = {f.name: getattr(self, f.name) for f in fields(self)}
        saved = {name: list(x) if isinstance(x, tuple) else x for name, x in named.items() if x not in (None, ())}
        if "missing" in saved:  # JSON has no infinity
            saved["missing"] = [{"number": str(x)} if x in (math.inf, -math.inf) else x for x in saved["missing"]]
        return saved

    @classmethod
    def from_json(cls, saved: dict[str, Any]) -> "Roles":
        codes = [float(x["number"]) if isinstance(x, dict) else x for x in saved.get("missing", ())]
        return cls(**{**saved, "missing": codes})


def nearest(name: str, known: Iterable[str]) -> str:
    """' Did you mean ...?' where a known name is near, else nothing."""
    names = [str(k) for k in known]
    lower = {k.lower().strip(): k for k in reversed(names)}
    near = difflib.get_close_matches(name.lower().strip(), list(lower), n=1, cutoff=0.6)
    return f" Did you mean {lower[near[0]]!r}?" if near else ""


def _names(role: str, given: Any) -> tuple[str, ...]:
    if given is None:
        return ()
    names = (given,) if isinstance(given, str) else tuple(given) if isinstance(given, Iterable) else (given,)
    if not all(isinstance(n, str) for n in names):
        said = f"The role {role} takes the name of a column, or several in a list; found {given!r}."
        raise DataError(f"{said} Names are text: frame.columns = frame.columns.map(str) makes them so.", option=role)
    return names


def codes_of(given: Any) -> Codes:
    """Codes that stand for a missing value: one or several, numbers or text."""
    if given is None:
        return ()
    codes = (given,) if isinstance(given, str) or not isinstance(given, Iterable) else tuple(given)
    for code in codes:
        if isinstance(code, bool) or not (isinstance(code, str) or hasattr(code, "__float__")):
            raise DataError(
                f"missing takes a number such as -1, a text such as 'n/a', or several in a list; found {code!r}.",
                option="missing",
            )
    plain = (code if isinstance(code, str) else float(code) for code in codes)
    return tuple(code for code in plain if code == code)  # NaN is missing anyway
