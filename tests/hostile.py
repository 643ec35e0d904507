"""Hostile tables by seed, and the law that holds of each: an error that says what is wrong, or a model that answers,
about this table and about another one.

    python tests/hostile.py 1000 2000      runs these seeds and prints what broke

A table is a plain one, of random roles, families and kinds of columns, and a few spices: what tables in the wild have
and nobody expects.
"""

import math
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import efattn
from efattn import EFA, LatentFactor, SimpleModel, Training, simple
from efattn.errors import EfattnError, EfattnWarning

TRAINING = Training(epochs=1, tokens=256, device="cpu")
NAMES = (
    "y", "x", "rating", "y_mean", "y_lower", "item", "group", "row", "rank", "probability", "item_log_likelihood", "value",
    "", " ", "a\nb", "\x1b[31mred", "naïve ☃", "\U0001f600", "a" * 300, "a'b\"c", "a\x02b\x03", "NaN", "{0}", "%s", "a.b",
    "=1+1", "y_", "y_p_1", "nan", "\ufeffbom", "e\u0301", "é", "-1", "target", "a+b", "a/b", "\t",
)  # fmt: skip
WORDS = (
    "",
    " ",
    "a",
    "A",
    "a ",
    "NA",
    "nan",
    "None",
    "é",
    "e\u0301",
    "☃",
    "a\nb",
    "\x1b[2J",
    "x" * 500,
    "0",
    "00",
    "-1",
    "\x02",
    "'",
)
HUGE = (
    9.97e36,
    -999.0,
    1e308,
    -1e308,
    1e-50,
    -1.0,
    0.0,
    1.0,
    1e18,
    1e20,
    1e30,
    5e-324,
    0.99999999,
    2.0**24 + 1,
    math.inf,
)
FAMILIES = (
    "auto", "gaussian", "poisson", "negative_binomial", "bernoulli", "binomial", "ordinal", "gamma", "exponential",
    "beta", "multivariate_gaussian",
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
    frame: Callable[[pl.DataFrame], Any] = staticmethod(lambda table: table)

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


# ---- plain tables


def case(seed: int) -> Case:
    draw = np.random.default_rng(seed)
    made = Case(draw, {}, {})
    _plain(made)
    _season(made, int(draw.choice([0, 1, 1, 2, 3])))
    _model(made)
    other = Case(draw, dict(made.columns), dict(made.roles))
    _season(other, int(draw.integers(1, 3)))
    made.asked, made.spices = other.columns, [*made.spices, "asked about", *other.spices]
    if made.asked and draw.random() < 0.1:
        made.asked.pop(list(made.asked)[int(draw.integers(len(made.asked)))])
    if draw.random() < 0.3:
        _rename(made)
    made.frame = FRAMES[int(draw.choice(len(FRAMES), p=[0.6, 0.15, 0.05, 0.15, 0.05]))]
    return made


def _season(made: Case, times: int) -> None:
    for _ in range(times):
        spice = SPICES[int(made.draw.integers(len(SPICES)))]
        if len(made) and spice(made) is not False:
            made.spices.append(spice.__name__)


def _plain(made: Case) -> None:
    draw, groups = made.draw, int(made.draw.choice([1, 2, 5, 12]))
    lengths, size = draw.integers(1, draw.choice([2, 4, 7]), groups), int(draw.choice([2, 5, 9]))
    group = np.repeat(np.arange(groups), lengths)
    distinct = draw.random() < 0.5
    items = [draw.permutation(9)[:n] % (9 if distinct else size) for n in lengths]
    what = draw.choice(["item", "value", "both"], p=[0.25, 0.25, 0.5])
    n = len(group)
    _key(made, "g", group)
    made.roles["group"] = "g"
    if what != "value":
        _key(made, "i", np.concatenate(items))
        made.roles["item"] = "i"
    if what != "item":
        made.roles["value"] = ["y", "z"] if draw.random() < 0.2 else "y"
        for name in made.of("value"):
            made.put(name, VALUES[int(draw.integers(len(VALUES)))](draw, n))
    place = np.concatenate([np.arange(k) for k in lengths])
    if draw.random() < 0.4:
        made.put("at", place if draw.random() < 0.5 else np.cumsum(draw.exponential(size=n)))
        made.roles["order"] = "at"
    elif draw.random() < 0.2:
        made.roles["order"] = "row"
    if draw.random() < 0.25:
        made.roles["attributes"] = ["a", "b"][: int(draw.integers(1, 3))]
        for name in made.of("attributes"):
            made.put(name, draw.normal(size=n))
    for role, chance in {"weight": 0.15, "exposure": 0.1, "target": 0.15}.items():
        if draw.random() < chance:
            made.put(role[0] + "w", draw.random(n) > 0.4 if role == "target" else draw.uniform(0.5, 2, n))
            made.roles[role] = role[0] + "w"
    if draw.random() < 0.2:
        made.put("t", group)
        made.roles["time"] = "t"
    if draw.random() < 0.3:
        made.put("y_mean" if draw.random() < 0.5 else "more", draw.integers(0, 5, n))


VALUES: list[Callable[[np.random.Generator, int], Any]] = [
    lambda draw, n: draw.normal(size=n),
    lambda draw, n: draw.normal(1e6, 3, n),
    lambda draw, n: draw.poisson(3, n),
    lambda draw, n: draw.integers(1, 6, n),
    lambda draw, n: draw.integers(0, 2, n),
    lambda draw, n: draw.random(n) > 0.5,
    lambda draw, n: draw.beta(1, 2, n),
    lambda draw, n: draw.gamma(0.7, 10, n),
    lambda draw, n: 1_700_000_000 + np.arange(n) % 5,
    lambda draw, n: 10**15 + np.arange(n) % 2,
    lambda draw, n: draw.normal(size=n).astype(np.float32),
    lambda draw, n: [f"{x:.2f}" for x in draw.normal(size=n)],
    lambda draw, n: pl.Series(draw.integers(0, 3, n).astype(str)).replace_strict({"0": "low", "1": "mid", "2": "top"}).cast(pl.Enum(["low", "mid", "top"])),
    lambda draw, n: draw.integers(0, 2**62, n),
    lambda draw, n: -draw.integers(0, 9, n),
]  # fmt: skip


def _key(made: Case, name: str, number: np.ndarray) -> None:
    kind = made.draw.integers(20)
    if kind < 7:
        made.put(name, number)
    elif kind < 12:
        made.put(name, [f"n{k}" for k in number])
    elif kind < 16:
        made.put(name, [WORDS[k % len(WORDS)] for k in number])
    elif kind < 19:
        made.put(name, [date(2024, 1, 1) + timedelta(days=int(k)) for k in number])
    else:
        made.put(name, number * 0.5 - 1)


def _training(draw: np.random.Generator) -> Training:
    """Mostly quick; now and then at a rate that ruins any network."""
    if draw.random() < 0.8:
        return TRAINING
    return replace(
        TRAINING,
        epochs=int(draw.choice([1, 2, 8])),
        rate=float(draw.choice([1e-30, 3e-3, 1.0, 1e3, 1e30])),
        draws=[None, 1, 2][int(draw.integers(3))],
        average=float(draw.choice([0, 0.9])),
        clip=[None, 1.0, 1e30][int(draw.integers(3))],
        decay=str(draw.choice(["plateau", "cosine", "none"])),
        patience=1 if draw.random() < 0.5 else None,
    )


def _model(made: Case) -> None:
    draw, roles, kind = made.draw, made.roles, made.draw.random()
    family = FAMILIES[int(draw.integers(len(FAMILIES)))] if draw.random() < 0.3 else "auto"
    context = "past" if ("order" in roles and draw.random() < 0.6) or draw.random() < 0.01 else "others"
    shared: dict[str, Any] = {
        "family": family,
        "context": context,
        "seed": int(draw.integers(3)),
        "training": _training(draw),
    }
    shared["support"] = str(draw.choice(["auto", "all", "distinct"], p=[0.8, 0.15, 0.05]))
    shared["standardise"] = str(draw.choice(["auto", "global", "item", "none"], p=[0.6, 0.15, 0.15, 0.1]))
    lags = int(draw.choice([0, 1, 2])) if "time" in roles else 0
    neighbours = 2 if len(made.of("attributes")) == 2 and draw.random() < 0.3 else None
    if kind < 0.7:
        more: dict[str, Any] = {"width": 8, "layers": int(draw.integers(1, 4)), "lags": lags, "neighbours": neighbours}
        more["max_length"] = int(draw.integers(1, 4)) if draw.random() < 0.15 else None
        more["ensemble"] = 2 if draw.random() < 0.08 else 1
        more["gaps"] = True if draw.random() < (0.3 if "order" in roles else 0.02) else "auto"
        more["companions"] = _companions(made)
        if draw.random() < 0.2:
            more |= {"norm": [None, "pre", "post"][int(draw.integers(3))], "feed_forward": int(draw.choice([0, 1, 8]))}
            more |= {"dropout": float(draw.choice([0, 0.9])), "context_dropout": float(draw.choice([0, 0.9]))}
        made.model = EFA(**shared, **more)
    elif kind < 0.85:
        made.model = LatentFactor(**shared, width=4, neighbours=neighbours)
    else:
        made.model = SimpleModel(_recipe(made), lags=lags, **shared)
    several = any(made.columns[name].n_unique() > 1 for name in made.of("group") if name in made.columns)
    made.options["validation"] = 0.3 if (several and draw.random() < 0.7) or draw.random() < 0.1 else None
    if kind < 0.85 and draw.random() < 0.06:
        made.model.terms = ["item", "value"][int(draw.integers(2))]


OF_VALUES = (
    simple.ItemMean, simple.ShrunkMean, simple.GaussianConditional, simple.RidgePerItem, simple.LassoPerItem,
    simple.InverseDistance, simple.Kriging, simple.Persistence,
)  # fmt: skip
OF_ITEMS = (simple.Popularity, simple.MarkovChain, simple.AdditiveLogit)


def _recipe(made: Case) -> Any:
    """A simple model of what the table has, mostly."""
    items = bool(made.of("item")) if made.draw.random() < 0.1 else not made.of("value")
    kinds = OF_ITEMS if items else OF_VALUES
    return kinds[int(made.draw.integers(len(kinds)))]()


def _companions(made: Case) -> Any:
    kind = made.draw.integers(6)
    return None if kind < 2 else "auto" if kind < 4 else [_recipe(made) for _ in range(int(made.draw.integers(1, 3)))]


# ---- spices: each changes a case in place, or gives False where it does not apply


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
        group = made.columns["g"] if "g" in made.columns else column
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
    made.columns[name] = pl.repeat(made.columns[name][0], len(made), dtype=made.columns[name].dtype, eager=True).alias(
        name
    )
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
    if name is None or made.columns[name].dtype == pl.Binary:
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


def _rename(made: Case) -> None:
    """Columns by other names, some of which nobody would choose."""
    old = list(dict.fromkeys([*made.columns, *made.asked]))
    new = dict(zip(old, (NAMES[k] for k in made.draw.permutation(len(NAMES))), strict=False))
    made.columns = {new[name]: column.alias(new[name]) for name, column in made.columns.items()}
    made.asked = {new[name]: column.alias(new[name]) for name, column in made.asked.items()}
    for role, names in made.roles.items():
        if isinstance(names, str):
            made.roles[role] = new.get(names, names)
        elif names:
            made.roles[role] = [new.get(name, name) for name in names]


# ---- kinds of frames


def _pandas(table: pl.DataFrame) -> Any:
    return table.to_pandas()


def _pandas_of_arrow(table: pl.DataFrame) -> Any:
    made = table.to_pandas(use_pyarrow_extension_array=True)
    made.index = [7] * len(made)
    return made


FRAMES: tuple[Callable[[pl.DataFrame], Any], ...] = (
    lambda table: table, _pandas, _pandas_of_arrow, lambda table: table.to_arrow(), lambda table: table.lazy()
)  # fmt: skip


def as_polars(frame: Any) -> pl.DataFrame:
    if isinstance(frame, pl.LazyFrame):
        return frame.collect()
    return frame if isinstance(frame, pl.DataFrame) else pl.DataFrame(pl.from_arrow(_arrow(frame)))


def _arrow(frame: Any) -> Any:
    import pyarrow as pa

    return frame if isinstance(frame, pa.Table) else pa.Table.from_pandas(frame, preserve_index=False)


# ---- the law


def holds(made: Case, folder: Path) -> str:
    """ "answered", or the text of the error; an AssertionError, or any other error, where the law is broken."""
    table = made.table
    try:
        model = made.model.fit(table, **made.roles, **made.options, progress=False)
    except EfattnError as error:
        _is_clear(error, made)
        return str(error)
    assert isinstance(model.summary(), str)
    score = _answers(made, model, table)
    _answers(made, model, made.other)
    path = folder / "x.efattn"
    model.save(path)
    again = efattn.load(path)
    assert again.summary() == model.summary()
    assert _answer(made, lambda: again.score(table)) == score, "a loaded model scores otherwise"
    if made.draw.random() < 0.3 and _answer(made, lambda: again.update(made.other, progress=False)) is not None:
        _answers(made, again, made.other)
    return "answered"


def _answers(made: Case, model: Any, table: Any) -> float | None:
    """The score; every verb is asked."""
    score = _answer(made, lambda: model.score(table))
    assert score is None or math.isfinite(score), f"score {score}"
    scored = _answer(made, lambda: model.log_likelihood(table))
    if scored is not None:
        _keeps(table, scored)
        _nulls_are_unscored(model, table, as_polars(scored))
    predicted = _answer(made, lambda: model.predict(table))
    if predicted is not None:
        _keeps(table, predicted)
        _is_finite(model, table, as_polars(predicted))
    if "item" in model.terms_:
        for histories in (table, None):
            best = _answer(made, lambda histories=histories: model.recommend(histories, k=3))
            if best is not None:
                _are_probabilities(model, as_polars(best))
    weights = _answer(made, lambda: model.attention(table))
    assert weights is None or np.isfinite(np.asarray(weights.weights)).all()
    return score


def _answer(made: Case, ask: Callable[[], Any]) -> Any:
    try:
        return ask()
    except EfattnError as error:
        _is_clear(error, made)
        return None


def _is_clear(error: EfattnError, made: Case) -> None:
    """It says where, and nothing that is private."""
    text = str(error)
    assert not set("\x02\x03") & set(text), f"private marks in {text!r}"
    assert len(text) > 20, text
    about = error.column is not None or error.option is not None or any(name and name in text for name in made.columns)
    assert about or "no rows" in text or "No row" in text or "Nothing to model" in text, f"about nothing: {text}"


def _keeps(table: Any, answer: Any) -> None:
    """All rows, in their order, and all of the user's columns as they were."""
    assert type(answer) is type(table)
    before, after = as_polars(table), as_polars(answer)
    assert after.columns[: len(before.columns)] == before.columns, after.columns
    assert after.height == before.height
    for name in before.columns:
        assert after[name].equals(before[name], check_dtypes=True, null_equal=True), f"column {name!r} changed"


def _nulls_are_unscored(model: Any, table: Any, answer: pl.DataFrame) -> None:
    rows = model.schema_.encode(table).every
    counted = np.ones(len(rows.row), bool) if rows.weight is None else rows.weight > 0
    counted &= True if rows.target is None else rows.target.astype(bool)
    new = answer.columns[len(as_polars(table).columns) :]
    assert len(new) == len(model.fitted_.names)
    for name, column in zip(model.fitted_.names, new, strict=True):
        term = model.model_[name]
        if term.of_items:
            known = rows.item != model.schema_.vocabulary.unknown
        else:
            seen = ~np.isnan(rows.value)
            known = np.any([seen[:, where].all(1) for _, _, where in term.family.slices()], 0)
        expected = np.zeros(len(rows.row), bool)
        expected[rows.row] = known & counted
        found = answer[column]
        assert (found.is_not_null().to_numpy() == expected).all(), f"{name!r}: other rows are scored"
        assert found.drop_nulls().is_finite().all(), f"{name!r}: {found.drop_nulls().to_list()}"


def _is_finite(model: Any, table: Any, answer: pl.DataFrame) -> None:
    new = answer.columns[len(as_polars(table).columns) :]
    assert new
    for name in new:
        column = answer[name]
        if model.terms_ == ("item",) and not column.dtype.is_float():
            continue
        assert column.null_count() == 0, f"{name!r} has nulls"
        if column.dtype.is_numeric():
            assert column.is_finite().all(), f"{name!r}: {column.to_list()}"


def _are_probabilities(model: Any, best: pl.DataFrame) -> None:
    p = best[best.columns[-1]]
    assert p.is_between(0, 1 + 1e-5).all(), p.to_list()
    rank = best[best.columns[-2 - len(model.schema_.roles.of("item"))]].to_numpy()
    totals = np.bincount(np.cumsum(rank == 1), p.to_numpy()) if len(p) else np.zeros(1)
    assert totals.max() <= 1 + 1e-5, totals


def main(first: int, last: int) -> None:
    """Every seed from first up to last; what breaks, by its last line."""
    told: dict[str, int] = {}
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(first, last):
            try:
                made = case(seed)
                said = holds(made, Path(folder))
            except Exception as error:
                said = f"BROKEN {type(error).__name__}"
                where = traceback.format_exc().strip().splitlines()
                sys.stdout.write(
                    f"---- {seed} {made.spices} {made.model!r} {made.roles}\n" + "\n".join(where[-9:]) + "\n"
                )
            told[said[:40]] = told.get(said[:40], 0) + 1
    for said, count in sorted(told.items(), key=lambda pair: -pair[1]):
        sys.stdout.write(f"{count:6d} {said!r}\n")


if __name__ == "__main__":
    import torch

    torch.set_num_threads(1)
    warnings.simplefilter("error")
    warnings.simplefilter("ignore", EfattnWarning)
    main(*map(int, sys.argv[1:]))
