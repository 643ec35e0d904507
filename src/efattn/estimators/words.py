"""Results as frames, and a fitted model in words."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from efattn.data import Names, Table, Vocabulary
from efattn.families import Product

if TYPE_CHECKING:
    from efattn.estimators.base import GroupEstimator


def frame(like: Table | None, columns: dict[str, Any]) -> Any:
    """A new frame of the kind of `like`; polars without one."""
    import polars as pl

    made = pl.DataFrame(columns, strict=False)
    return made if like is None else like.same_kind(made)


def item_columns(vocabulary: Vocabulary, numbers: np.ndarray) -> dict[str, list[Any]]:
    """One column per key of the items."""
    return _columns(vocabulary.known.take(np.asarray(numbers)), vocabulary.columns)


def ranked(
    like: Table | None, named: dict[str, Any], vocabulary: Vocabulary, item: np.ndarray, probability: np.ndarray
) -> Any:
    """The groups' columns, rank, the item's columns and its probability, from (group, k) arrays; without what is
    impossible."""
    import polars as pl

    rank = np.tile(np.arange(1, item.shape[1] + 1), len(item))
    names = item_columns(vocabulary, item.ravel())
    taken = {*named, *names}
    columns = {**named, **renamed({"rank": rank}, taken), **names}
    columns |= renamed({"probability": probability.ravel()}, taken)
    possible = np.nan_to_num(probability.ravel()) > 0
    made = pl.DataFrame(columns, strict=False).filter(pl.Series(possible))
    return made if like is None else like.same_kind(made)


def modes(vocabulary: Vocabulary, item: np.ndarray, probability: np.ndarray) -> dict[str, Any]:
    """<item>_mode per key of the items, and its probability."""
    named = {f"{column}_mode": values for column, values in item_columns(vocabulary, item).items()}
    return {**named, f"{'_'.join(vocabulary.columns)}_probability": probability}


def renamed(columns: dict[str, Any], taken: Iterable[str]) -> dict[str, Any]:
    """The columns, with an underscore behind a name that a column of the user's has."""
    names = set(taken)
    return {f"{name}_" if name in names else name: x for name, x in columns.items()}


def nulls(x: np.ndarray) -> Any:
    """A column that is null where x is NaN."""
    import polars as pl

    return pl.Series(x, nan_to_null=True)


def repeated_names(names: Names, columns: tuple[str, ...], times: int) -> dict[str, list[Any]]:
    return _columns(names.take(np.repeat(np.arange(len(names)), times)), columns)


def _columns(names: Names, columns: tuple[str, ...]) -> dict[str, list[Any]]:
    values = names.tolist()
    if len(columns) == 1:
        return {columns[0]: values}
    return {column: [value[c] for value in values] for c, column in enumerate(columns)}


def summary(estimator: "GroupEstimator") -> str:
    schema, sizes, model = estimator.schema_, estimator.sizes_, estimator.model_
    looks = {"past": "what came earlier", "others": "all others of its group"}[estimator.context]
    lines = [f"{type(estimator).__name__}: each observation given {looks}."]
    items = "" if schema.vocabulary is None else f", {len(schema.vocabulary)} items"
    lines.append(f"Fitted to {sizes['rows']} rows in {sizes['groups']} groups{items}.")
    several = len(estimator.members_)
    if several > 1:
        lines.append(f"{several} members, whose mixture predicts.")
    for name in model.terms:
        term = model[name]
        family = term.family
        what = ", ".join(map(repr, family.parts)) if isinstance(family, Product) else f"one of {family.size} items"
        extra = ", an item already in the group ruled out" if term.support == "distinct" and term.of_items else ""
        count = sum(p.numel() for p in term.parameters())
        lines.append(f"Term {name!r}: {what}{extra}; {count:,} parameters{' each' if several > 1 else ''}.")
        if name in estimator.beside_:
            lines.append(f"  Beside it a simple model, which has {estimator.beside_[name].share:.0%} of the mixture.")
        for member in range(several):
            mine = [r for r in estimator.history_ if r["term"] == name and r.get("member", 0) == member]
            mine = mine[max((i for i, record in enumerate(mine) if record["epoch"] == 1), default=0) :]  # the last fit
            if mine:
                lines.append(f"  {f'Member {member}: ' if several > 1 else ''}{_fit_words(mine)}")
    if schema.standardiser is not None and not schema.standardiser.is_identity:
        ways = zip(schema.roles.of("value"), schema.standardiser.methods, strict=True)
        lines.append("Standardised: " + ", ".join(f"{name} ({how})" for name, how in ways if how != "none") + ".")
    if schema.lags:
        lines.append(f"Sees {schema.lags} earlier time step{'s' if schema.lags > 1 else ''}.")
    return "\n".join([*lines, *(f"Note: {note}" for note in estimator.notes_)])


def _fit_words(records: list[dict[str, Any]]) -> str:
    last, seconds = records[-1], sum(record["seconds"] for record in records)
    told = f"{len(records)} of {last['epochs']} epochs in {seconds:.1f} s, training log-likelihood {last['train']:.4f}"
    if last["validation"] is None:
        return f"{told} per target; nothing held out."
    best = max(records, key=lambda record: record["validation"])
    if last.get("best") is not None and last["best"] > best["validation"]:
        return f"{told}; best on held-out groups {last['best']:.4f} per target, before training: the prior alone."
    return f"{told}; best on held-out groups {best['validation']:.4f} per target, at epoch {best['epoch']}."
