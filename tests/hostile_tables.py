"""Hostile tables by seed: a plain table, of random roles, families and kinds of columns, and a few spices, which are
what tables in the wild have and nobody expects. `hostile.py` says what holds of each."""

from collections.abc import Callable
from dataclasses import replace
from datetime import date, timedelta
from typing import Any

import numpy as np
import polars as pl
from hostile_spices import SPICES, WORDS, Case

from efattn import EFA, LatentFactor, SimpleModel, Training, simple

TRAINING = Training(epochs=1, tokens=256, device="cpu")
NAMES = (
    "y", "x", "rating", "y_mean", "y_lower", "item", "group", "row", "rank", "probability", "item_log_likelihood",
    "value", "", " ", "a\nb", "\x1b[31mred", "naïve ☃", "\U0001f600", "a" * 300, "a'b\"c", "a\x02b\x03", "NaN", "{0}",
    "%s", "a.b", "=1+1", "y_", "y_p_1", "nan", "\ufeffbom", "e\u0301", "é", "-1", "target", "a+b", "a/b", "\t",
)  # fmt: skip
FAMILIES = (
    "auto", "gaussian", "poisson", "negative_binomial", "bernoulli", "binomial", "ordinal", "gamma", "exponential",
    "beta", "multivariate_gaussian",
)  # fmt: skip


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
    lambda draw, n: pl.Series(draw.choice(["low", "mid", "top"], n), dtype=pl.Enum(["low", "mid", "top"])),
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
            more |= {"dropout": float(draw.choice([0, 0.9])), "hide": float(draw.choice([0, 0.9]))}
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
    simple.InverseDistance, simple.Kriging, simple.Persistence, simple.Forest,
)  # fmt: skip
OF_ITEMS = (
    simple.Popularity,
    simple.LatePopularity,
    simple.MarkovChain,
    simple.ItemLogit,
    simple.AdditiveLogit,
    simple.EASE,
    simple.ItemNeighbours,
)


def _recipe(made: Case) -> Any:
    """A simple model of what the table has, mostly."""
    items = bool(made.of("item")) if made.draw.random() < 0.1 else not made.of("value")
    kinds = OF_ITEMS if items else OF_VALUES
    return kinds[int(made.draw.integers(len(kinds)))]()


def _companions(made: Case) -> Any:
    kind = made.draw.integers(6)
    return None if kind < 2 else "auto" if kind < 4 else [_recipe(made) for _ in range(int(made.draw.integers(1, 3)))]


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
