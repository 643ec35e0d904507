"""What a fitted model is measured by: losses over all test rows and by group, its networks alone, its intervals.

cover of a level p     the share of rows with lower <= y <= upper, by predict(interval=p); overall, and over items
shares                 of the mixture: the network's, and each companion's
"""

import copy
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import polars as pl

from efattn.data import Table
from efattn.errors import DataError
from efattn.estimators import EFA
from efattn.experiments import ranking
from efattn.experiments.records import Record
from efattn.experiments.settings import Setting
from efattn.inference import Companion, Fitted

DIGITS = 6
LEVELS = (0.5, 0.8, 0.9)  # of intervals
ENOUGH = 20  # rows of an item, for a cover of its own
ENDS = (0.1, 0.9)  # quantiles over items
DRAWS = 200  # of covers by chance


def tested(setting: Setting, estimator: Any, rows: pl.DataFrame) -> Record:
    """The metric and the full log-likelihood per scored row, over all rows and by group."""
    if setting.metric.lists is not None:
        return ranking.tested(setting, estimator, rows)
    columns = [c for c in estimator.log_likelihood(rows).iter_columns() if c.name.endswith("_log_likelihood")]
    (likely,) = (c.fill_null(np.nan).to_numpy() for c in columns)
    loss = setting.metric.losses(estimator, rows, likely)
    scored = counted(setting, rows)
    if np.isnan(loss[scored]).any() or np.isnan(likely[scored]).any():
        raise DataError(
            f"{setting.title}: a test row has no score, so that models would not be compared on equal rows."
        )
    cluster = rows[setting.cluster or setting.roles["group"]]
    table = pl.DataFrame({"group": cluster, "loss": loss, "likely": likely}).filter(scored)
    groups = table.group_by("group", maintain_order=True).agg(pl.col("loss", "likely").mean(), rows=pl.len())
    scores: Record = {"metric": setting.metric.name, "value": float(table["loss"].mean())}  # type: ignore[arg-type]
    scores |= {"log_likelihood": float(table["likely"].mean()), "rows": len(table)}  # type: ignore[arg-type]
    scores["groups"] = {
        "names": [str(name) for name in groups["group"]],
        "rows": groups["rows"].to_list(),
        "value": [float(f"{x:.{DIGITS}g}") for x in groups["loss"]],
        "log_likelihood": [float(f"{x:.{DIGITS}g}") for x in groups["likely"]],
    }
    return scores


def counted(setting: Setting, rows: pl.DataFrame) -> np.ndarray:
    """(row,): which of them are scored."""
    column = setting.scored or setting.roles.get("target")
    return np.ones(len(rows), bool) if column is None else rows[column].to_numpy()


def overall(setting: Setting, estimator: Any, rows: pl.DataFrame) -> Record:
    """The same without groups."""
    found = tested(setting, estimator, rows)
    lists = {"lists": found["lists"]} if "lists" in found else {}
    return {name: float(f"{found[name]:.{DIGITS}g}") for name in ("value", "log_likelihood")} | lists


def parts(setting: Setting, estimator: Any, rows: pl.DataFrame) -> Record:
    """Of EFA, shares, powers of a pool, if it has one, and alone: what its networks say without their companions."""
    if not isinstance(estimator, EFA):
        return {}
    fitted, alone = estimator.fitted_, copy.copy(estimator)
    alone.fitted_ = fitted.networks_alone()
    (name,) = fitted.names
    strange = _never_seen(setting, fitted, rows)
    beside = fitted.companions.get(name, ())
    mixed, pool = shares(beside, strange), Record()
    if name in fitted.powers and beside:
        mixed, pool = {"pool": mixed.pop("network"), **mixed}, {"powers": _powers(fitted.powers[name], beside)}
    return {"shares": mixed, **pool, "alone": overall(setting, alone, rows)}


def _powers(network: float, companions: Iterable[Companion]) -> dict[str, float]:
    """Of a pool, those of one kind together."""
    found = {"network": network}
    for one in companions:
        name = one.recipe.label
        found[name] = found.get(name, 0.0) + one.power
    return {name: round(power, 4) for name, power in found.items()}


def shares(companions: Iterable[Companion], strange: bool = False) -> dict[str, float]:
    """strange: of rows whose items were never seen, which may have others."""
    mine: dict[str, float] = {}
    for one in companions:
        name, share = one.recipe.label, one.new if strange and one.new is not None else one.share
        mine[name] = mine.get(name, 0.0) + share
    return {name: round(share, 4) for name, share in {"network": max(1 - sum(mine.values()), 0.0), **mine}.items()}


def _never_seen(setting: Setting, fitted: Fitted, rows: pl.DataFrame) -> bool:
    """Whether all rows that count are of items that the fit does not know."""
    if fitted.schema.vocabulary is None:
        return False
    groups = fitted.schema.encode(Table.read(rows))
    known = np.ones(len(rows), bool)
    known[groups.every.row] = groups.every.item != fitted.schema.vocabulary.unknown
    return not known[counted(setting, rows)].any()


def coverage(setting: Setting, estimator: Any, rows: pl.DataFrame) -> Record:
    """Of intervals of each level, where there are values: overall, and at both ends of the items that have enough rows,
    beside what these would be by chance alone."""
    value = setting.roles.get("value")
    if value is None or not hasattr(estimator, "fitted_"):
        return {}
    kept, actual = counted(setting, rows), rows[value].to_numpy()
    items = _items(setting.roles, rows)
    told: dict[str, Record] = {}
    for level in LEVELS:
        predicted = estimator.predict(rows, interval=level)
        lower, upper = (predicted[f"{value}_{end}"].to_numpy() for end in ("lower", "upper"))
        inside = ((lower <= actual) & (actual <= upper))[kept]
        told[f"{level:g}"] = {"all": round(float(inside.mean()), 4), **_by_item(inside, items[kept])}
    return {"coverage": told}


def _items(roles: Mapping[str, Any], rows: pl.DataFrame) -> np.ndarray:
    """(row,): which item, by number."""
    names = roles.get("item", ())
    columns = [names] if isinstance(names, str) else list(names)
    return rows.select(pl.struct(columns).rank("dense")).to_series().to_numpy() if columns else np.zeros(len(rows), int)


def _by_item(inside: np.ndarray, item: np.ndarray) -> Record:
    which = np.unique(item, return_inverse=True)[1]
    count = np.bincount(which)
    enough = count >= ENOUGH
    if enough.sum() < 2:
        return {}
    own = np.quantile((np.bincount(which, inside) / count)[enough], ENDS)
    drawn = np.random.default_rng(0).binomial(count[enough], inside.mean(), (DRAWS, int(enough.sum())))
    chance = np.quantile(drawn / count[enough], ENDS, axis=1).mean(1)
    return {"items": [round(float(x), 4) for x in own], "by_chance": [round(float(x), 4) for x in chance]}
