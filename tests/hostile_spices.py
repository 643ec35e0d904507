"""What is odd about a hostile table: each spice changes a table in place, or gives False where it does not apply."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import polars as pl

WORDS = (
    "", " ", "a", "A", "a ", "NA", "nan", "None", "é", "e\u0301", "☃", "a\nb", "\x1b[2J", "x" * 500, "0", "00",
    "-1", "\x02", "'",
)  # fmt: skip
HUGE = (
    9.97e36, -999.0, 1e308, -1e308, 1e-50, -1.0, 0.0, 1.0, 1e18, 1e20, 1e30, 5e-324, 0.99999999, 2.0**24 + 1,
    math.inf,
)  # fmt: skip


@dataclass
class Case:
    """A table as columns, their roles, a model and further arguments of fit; `spices` says what is odd about it."""

    draw: np.random.Generator
    columns: dict[str, pl.Series]
    roles: dict[str, Any]
    model: Any = None
    options: dict[str, Any] = field(default_factory=dict)
    spices: list[str] = field(default_factory=list)
    asked: dict[str, pl.Series] = field(default_factory=dict)  # another table, which the fitted model is asked about
    frame: Callable[[pl.DataFrame], Any] = pl.DataFrame

    @property
    def table(self) -> Any:
        return self.frame(pl.DataFrame(dict(self.columns)))

    @property
    def other(self) -> Any:
        return self.frame(pl.DataFrame(dict(self.asked)))

    def of(self, role: str) -> list[str]:
        names = self.roles.get(role) or ()
        return [names] if isinstance(names, str) else list(names)

    def put(self, name: str, values: Any, dtype: Any = None) -> None:
        self.columns[name] = pl.Series(name, values, dtype=dtype, strict=False)

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))


def fills(made: Case) -> bool | None:
    """A few entries of a column are a fill value, or another extreme."""
    name = _some(made, "value", "attributes", "weight", "exposure", "order", "time")
    if name is None or not made.columns[name].dtype.is_numeric():
        return False
    values, fill = made.columns[name].cast(pl.Float64).to_numpy().copy(), HUGE[int(made.draw.integers(len(HUGE)))]
    values[made.draw.random(len(values)) < made.draw.choice([0.05, 0.3, 1.0])] = fill
    values[int(made.draw.integers(len(values)))] = fill
    made.put(name, values)
    if made.draw.random() < 0.3:
        made.options["missing"] = fill
    return None


def absent(made: Case) -> bool | None:
    """Nulls or NaN, some, of one group, or all."""
    name = _some(made, "value", "item", "attributes", "target", "group", "order", "weight")
    if name is None:
        return False
    column, draw = made.columns[name], made.draw
    where = draw.random(len(column)) < draw.choice([0.1, 0.5, 0.9])
    if draw.random() < 0.3:
        group = made.columns.get("g", column)
        where = (
            group.eq_missing(pl.Series([group[int(draw.integers(len(group)))]], dtype=group.dtype)).to_numpy().copy()
        )
    elif draw.random() < 0.15:
        where[:] = True
    if column.dtype.is_float() and draw.random() < 0.5:
        made.put(name, np.where(where, np.nan, column.to_numpy()))
    else:
        made.put(name, column.set(pl.Series(where), None))
    return None


def constant(made: Case) -> bool | None:
    name = _some(made, "value", "attributes", "item", "order", "time", "weight", "target", "exposure", "group")
    if name is None:
        return False
    made.columns[name] = made.columns[name][pl.Series([0] * len(made))]
    return None


def one_number(made: Case) -> bool | None:
    """A constant that is 0, 1, -1 or extreme, in a column of numbers."""
    name = _some(made, "value", "attributes", "weight", "exposure", "target", "order")
    if name is None:
        return False
    number = made.draw.choice([0.0, 1.0, -1.0, 1e39, 1e-50, 0.5, 1e15, 1.7e9, 1e38])
    made.put(name, np.full(len(made), number))
    return None


def one_row(made: Case) -> None:
    _take(made, [int(made.draw.integers(len(made)))])


def no_rows(made: Case) -> bool | None:
    if made.draw.random() < 0.7:
        return False
    _take(made, [])
    return None


def twice(made: Case) -> None:
    """Rows that are there twice or three times."""
    _take(made, made.draw.integers(0, len(made), len(made) + 5).tolist())


def shuffled(made: Case) -> None:
    _take(made, made.draw.permutation(len(made)).tolist())


def groups_of_one(made: Case) -> bool | None:
    if not made.of("group"):
        return False
    made.put(made.of("group")[0], np.arange(len(made)))
    return None


def one_group(made: Case) -> None:
    made.roles.pop("group", None)


def two_keys(made: Case) -> bool | None:
    if not made.of("group"):
        return False
    made.put("g2", [f"{k % 2}" for k in range(len(made))])
    made.roles["group"] = [*made.of("group"), "g2"]
    return None


def two_item_keys(made: Case) -> bool | None:
    if not made.of("item"):
        return False
    made.put("i2", [None if k % 7 == 6 else k % 2 for k in range(len(made))])
    made.roles["item"] = [*made.of("item"), "i2"]
    return None


def all_items_distinct(made: Case) -> bool | None:
    if not made.of("item"):
        return False
    made.put(made.of("item")[0], [f"i{k}" for k in range(len(made))])
    return None


def of_another_type(made: Case) -> bool | None:
    """Numbers as text, as decimals, as categories; times as text; lists."""
    name, draw = _some(made, "value", "item", "group", "attributes", "order", "time", "weight", "target"), made.draw
    if name is None or made.columns[name].dtype in (pl.Binary, pl.Duration, pl.List):
        return False
    column, kind = made.columns[name], int(draw.integers(9))
    if kind == 0:
        made.columns[name] = column.cast(pl.String, strict=False)
    elif kind == 1:
        made.columns[name] = column.cast(pl.String, strict=False).cast(pl.Categorical)
    elif kind == 2 and column.dtype.is_numeric():
        made.columns[name] = column.cast(pl.Float64).clip(-1e9, 1e9).cast(pl.Decimal(20, 2), strict=False)
    elif kind == 3:
        made.put(name, [[1.0]] * len(made))
    elif kind == 4:
        made.put(name, [datetime(2024, 1, 1) + timedelta(hours=int(k)) for k in draw.integers(0, 99, len(made))])
    elif kind == 5:
        made.put(name, [WORDS[int(k)] for k in draw.integers(0, len(WORDS), len(made))])
    elif kind == 6:
        made.put(name, [timedelta(seconds=int(k)) for k in draw.integers(0, 99, len(made))])
    elif kind == 7:
        made.put(name, [b"\x00\xff"] * len(made), pl.Binary)
    elif column.dtype.is_integer():
        made.columns[name] = column.cast(pl.UInt8 if draw.random() < 0.5 else pl.Int8, strict=False)
    return None


def whole_and_large(made: Case) -> bool | None:
    name = _some(made, "value", "item", "group", "order", "time")
    if name is None:
        return False
    start = int(made.draw.choice([2**24, 2**31, 2**53, 2**62, 10**15, 1_700_000_000, -(2**62), 0]))
    numbers = [start + int(k) for k in made.draw.integers(0, made.draw.choice([2, 5, 1000, 2**40]), len(made))]
    made.put(name, numbers, pl.Int64)
    if made.draw.random() < 0.1:
        made.put(name, [2**63 + int(k) for k in made.draw.integers(0, 5, len(made))], pl.UInt64)
    return None


def uneven_times(made: Case) -> None:
    group = made.columns["g"] if "g" in made.columns else pl.Series("g", np.zeros(len(made)))
    codes = group.rank("dense").fill_null(1).cast(pl.Int64).to_numpy()
    steps = np.cumsum(made.draw.choice([1, 1, 2, 7, 1000], len(codes) + 2))
    made.put("t", steps[codes] if made.draw.random() < 0.7 else made.draw.normal(size=len(made)))
    made.roles["time"] = "t"


def ties_and_words(made: Case) -> None:
    made.put("at", [made.draw.choice(["1", "2", "nan", "3"]) for _ in range(len(made))])
    made.roles["order"] = "at"


def two_infinite_ends(made: Case) -> None:
    made.put("at", made.draw.choice([0.0, math.inf, -math.inf, 1.0], len(made)))
    made.roles["order"] = "at"


def no_target(made: Case) -> None:
    made.put("tw", made.draw.random(len(made)) < made.draw.choice([0.0, 0.05]))
    made.roles["target"] = "tw"


def little_weight(made: Case) -> None:
    made.put("ww", made.draw.choice([0.0, 0.0, 1e-40, 1.0, 1e17, 1e30], len(made)))
    made.roles["weight"] = "ww"


def far_exposure(made: Case) -> None:
    made.put("ew", made.draw.choice([1e-30, 1e-12, 1.0, 1e12, 1e30], len(made)))
    made.roles["exposure"] = "ew"


def far_attributes(made: Case) -> None:
    made.put("a", made.draw.normal(size=len(made)) * 10.0 ** made.draw.choice([-40, -10, 6, 12, 18, 19, 38]))
    made.roles["attributes"] = "a"


def words_as_attributes(made: Case) -> None:
    made.put("b", [WORDS[int(k)] for k in made.draw.integers(0, len(WORDS), len(made))])
    made.roles["attributes"] = (
        [*made.of("attributes"), "b"] if "b" not in made.of("attributes") else made.of("attributes")
    )


def far_values(made: Case) -> bool | None:
    """All values times a power of ten."""
    name = _some(made, "value")
    if name is None or not made.columns[name].dtype.is_numeric():
        return False
    made.put(
        name,
        made.columns[name].cast(pl.Float64) * 10.0 ** made.draw.choice([-300, -45, -30, -9, 9, 16, 17, 30, 36, 300]),
    )
    return None


def odd_roles(made: Case) -> None:
    """A role that names what is not there, one column in two roles, no name at all."""
    role = str(
        made.draw.choice(["group", "item", "value", "attributes", "order", "weight", "target", "time", "series"])
    )
    made.roles[role] = [("absent",), (), None, "g", ["y", "y"], "y"][int(made.draw.integers(6))]


def longer(made: Case) -> bool | None:
    """A group far longer than the others."""
    if len(made) < 2:
        return False
    _take(made, [*range(len(made)), *([0] * 40)])
    return None


SPICES = (
    fills, fills, fills, absent, absent, absent, constant, one_number, one_row, no_rows, twice, shuffled, groups_of_one,
    one_group, two_keys, two_item_keys, all_items_distinct, of_another_type, of_another_type, whole_and_large,
    uneven_times, ties_and_words, two_infinite_ends, no_target, little_weight, far_exposure, far_attributes,
    words_as_attributes, far_values, odd_roles, longer,
)  # fmt: skip


def _some(made: Case, *roles: str) -> str | None:
    """One column that plays one of these roles."""
    names = [name for role in roles if made.roles.get(role) for name in made.of(role) if name in made.columns]
    return names[int(made.draw.integers(len(names)))] if names else None


def _take(made: Case, rows: list[int]) -> None:
    made.columns = {name: column[pl.Series(rows, dtype=pl.Int64)] for name, column in made.columns.items()}
