"""How probable whole groups are.

    log p(y_1 .. y_n; order) = sum_k log p(y_(k) | y_(1) .. y_(k-1))      y_(k) stands at rank k of the order
    log p(group)             = log 1/K sum over K orders of p(group; order)

All conditionals of an order are one pass, each of them what the model says when it is asked for that row alone, given
the rows before it. Values are given all items of their group. Of items without an order column any order is the same
set: its probability is n! times the mean over orders, or as many as there are different ones where items repeat. From
the past there is one order. Rows that are context only come first, and are given.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np

from efattn.data import Batch, Groups, Table
from efattn.errors import DataError, named, option
from efattn.inference import frames, wide
from efattn.inference.fitted import Fitted
from efattn.inference.score import term_scores
from efattn.inference.tables import Tell, announce, encoded
from efattn.models import orders as in_orders


class Joint(NamedTuple):
    """Of one term and each group: log-densities (order, group), how many targets there are (group,), and the logarithm
    of how many orders are the same (group,)."""

    by_order: np.ndarray
    targets: np.ndarray
    same: np.ndarray

    @property
    def mixture(self) -> np.ndarray:
        """(group,): log-mean-exp over orders."""
        total: np.ndarray = np.logaddexp.reduce(self.by_order, axis=0) - np.log(len(self.by_order)) + self.same
        return total

    def columns(self, name: str) -> dict[str, Any]:
        several = len(self.by_order) > 1
        apart = self.by_order.std(0, ddof=1) if several else np.zeros_like(self.same)
        return {
            f"{name}_log_density": self.mixture,
            f"{name}_orders_mean": self.by_order.mean(0) + self.same,
            f"{name}_orders_sd": apart,
            f"{name}_targets": self.targets,
        }


def joint_log_density(
    fitted: Fitted,
    tables: Iterable[Table],
    *,
    orders: int = 8,
    seed: int = 0,
    member: int | None = None,
    tell: Tell = announce,
) -> Iterator[Any]:
    """Of each table a frame with a line per group, by name: log_density, and for each term its own, mean and standard
    deviation over orders, and how many targets it is of."""
    _check(fitted, orders, seed)
    longs, last = (tables, None) if fitted.wide is None else wide.each(fitted, tables, tell)
    need = ("value",) if "value" in fitted.terms else ()
    for table, groups in encoded(wide.plain(fitted), longs, tell, need=need, sort=True):
        told = {name: of_term(fitted, name, groups, len(table), orders, seed, member) for name in fitted.names}
        columns: dict[str, Any] = {"log_density": sum(one.mixture for one in told.values())}
        for name, one in told.items():
            columns |= one.columns(name)
        if last is not None:
            yield frames.beside(last().table, columns)
            continue
        names = frames.name_columns(groups.labels, groups.columns)
        yield frames.frame(names | frames.renamed(columns, names), table.kind)


def _check(fitted: Fitted, orders: int, seed: int) -> None:
    for name, number, least in (("orders", orders, 1), ("seed", seed, 0)):
        if isinstance(number, bool) or not isinstance(number, Integral) or number < least:
            raise DataError(f"{named(name)} is a whole number >= {least}; found {number!r}.", option=name)
    if fitted.context == "others":
        raise DataError(
            "What rows are given all others is of no joint law, so that groups have no density: fit with "
            f"{option('context', 'any')}, or {option('context', 'past')} where rows come one after the other.",
            option="context",
        )


def of_term(
    fitted: Fitted, name: str, groups: Groups, rows: int, orders: int, seed: int, member: int | None = None
) -> Joint:
    """groups: in the table's units, all of a table; rows: of the table."""
    groups = replace(groups, every=replace(groups.every, weight=None))
    every, number = groups.every, len(groups)
    turns: list[Callable[[Batch], Batch] | None] = [None]
    if fitted.context == "any":
        turns = [partial(in_orders.stated, number=k, seed=seed) for k in range(orders)]
    each = [term_scores(fitted, name, groups, rows, member, order) for order in turns]
    scored = each[0].scored[every.row]
    sums = [np.bincount(groups.group[scored], one.values[every.row][scored], number) for one in each]
    targets = np.bincount(groups.group[scored], minlength=number)
    same = np.zeros(number)
    if fitted.members[0][name].of_items and not fitted.schema.roles.ordered:
        same = _log_same(groups, scored)
    return Joint(np.stack(sums), targets, same)


def _log_same(groups: Groups, scored: np.ndarray) -> np.ndarray:
    """(group,): log n! less log m! of each item that is there m times."""
    from scipy.special import gammaln

    assert groups.every.item is not None
    pairs = np.stack((groups.group[scored], groups.every.item[scored]), 1)
    pairs, often = np.unique(pairs, axis=0, return_counts=True)
    number = np.bincount(pairs[:, 0], often, len(groups))
    repeated: np.ndarray = np.bincount(pairs[:, 0], gammaln(often + 1), len(groups))
    return gammaln(number + 1) - repeated
