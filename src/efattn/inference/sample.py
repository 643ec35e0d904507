"""New groups, or given ones completed: items and values drawn jointly from a model.

    past      p(x, y) = product over rows of p(x_i | x_<i) p(y_i | x_<=i, y_<i): in order, each from its conditional
    any       the same in an order that is drawn at random, values given all items
    others    items, then values given items, one after the other, each given those before it; then again by turns, each
              given all the others (Gibbs)

What is given is never changed, and the rest is drawn from it: nothing is drawn and thrown away. Lengths are drawn from
those of the groups of the fit. A mixture is that of each conditional, as in every other question.
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from efattn.data import Table
from efattn.errors import DataError, Note, option
from efattn.inference import frames
from efattn.inference.blank_tables import (
    NEED,
    as_polars,
    check_count,
    group_numbers,
    lengthened,
    new_groups,
)
from efattn.inference.completing import How
from efattn.inference.drawn_tables import check_seed, check_sweeps, complete, copies
from efattn.inference.fitted import Fitted
from efattn.inference.lengths import drawn_lengths
from efattn.inference.sample_wide import sample_wide
from efattn.inference.tables import Tell, announce

if TYPE_CHECKING:
    import polars as pl

NEW = 5  # groups, unless said


def sample(
    fitted: Fitted,
    groups: int | None = None,
    length: int | None = None,
    given: Table | None = None,
    *,
    seed: int = 0,
    burn_in: int | None = None,
    member: int | None = None,
    tell: Tell = announce,
) -> Any:
    """A frame of groups as those of the fit: so many new ones, 5 unless said, or those of a table completed, with
    `groups` so many times each, told apart by a column `draw`. length: rows of each group, those given among them; by
    default drawn. Null values of given rows, and null items if the model has a term for them, are drawn. burn_in:
    sweeps over each group where cells are drawn by turns. The seed decides everything."""
    number = None if groups is None else check_count("groups", groups)
    rows = None if length is None else check_count("length", length)
    how = How(check_seed(seed), check_sweeps(burn_in), member)
    if fitted.wide is not None:
        return sample_wide(fitted, number or (NEW if given is None else 1), rows, given, how, tell)
    random = np.random.default_rng([how.seed, 1])
    if given is None:
        usual = NEW if fitted.schema.roles.of("group") else 1  # without groups a table is one
        frame = _new(fitted, usual if number is None else number, rows, random, tell)
    else:
        frame, fitted = _given(fitted, as_polars(given), number, rows, random)
    drawn = complete(fitted, frame, how, tell)
    return frames.of_kind(drawn, fitted.frames) if given is None else given.same_kind(drawn)


def _new(fitted: Fitted, number: int, length: int | None, random: np.random.Generator, tell: Tell) -> "pl.DataFrame":
    roles, vocabulary = fitted.schema.roles, fitted.schema.vocabulary
    if fitted.schema.lags:
        raise DataError(
            f"This model looks at earlier groups, so that a new one has to follow some: ask for a forecast, or {NEED}.",
            option="given",
        )
    if roles.of("attributes"):
        names = ", ".join(map(repr, roles.of("attributes")))
        raise DataError(f"This model looks at attributes, {names}, which it does not draw: {NEED}.", option="given")
    if not roles.of("group") and number > 1:
        raise DataError(
            f"This model was fitted without groups, so that a table is one: pass {option('groups', 1)}.",
            option="groups",
        )
    if roles.of("exposure"):
        tell(Note("exposure", "New rows have an exposure of 1.", column=roles.exposure))
    if roles.of("noise"):
        tell(Note("noise", "New rows have no measurement error.", column=roles.noise))
    if vocabulary is None or "item" in fitted.terms:
        return new_groups(fitted, _lengths(fitted, np.zeros(number, np.int64), length, random), None)
    items = len(vocabulary)
    longest = None if fitted.lengths is None else int(fitted.lengths[-1, 0])
    if length is not None or (longest is not None and longest < items):
        why = f"no group of the fit had all {items:,} of them" if length is None else "has no length of its own"
        said = f"This model has no term for items, so that a new group has each item once; it {why}"
        said = f"This model has no term for items, and {why}" if length is None else said
        raise DataError(f"{said}: {NEED}.", option="given" if length is None else "length")
    tell(Note("every item", f"A new group has each of the {items:,} items once: this model does not draw items."))
    return new_groups(fitted, np.full(number, items), np.tile(np.arange(items), number))


def _lengths(fitted: Fitted, at_least: np.ndarray, length: int | None, random: np.random.Generator) -> np.ndarray:
    """(group,): as said, or drawn."""
    if length is None:
        return drawn_lengths(fitted.lengths, at_least, random)
    if (at_least > length).any():
        raise DataError(
            f"A given group has {int(at_least.max()):,} rows already, more than {option('length', length)}.",
            option="length",
        )
    if fitted.support == "distinct" and "item" in fitted.terms and length > len(fitted.vocabulary):
        known = len(fitted.vocabulary)
        said = f"Items never repeat, and there are {known:,}: {option('length', known)} is the most"
        raise DataError(f"{said}; found {length:,}.", option="length")
    return np.full(len(at_least), length)


def _given(
    fitted: Fitted,
    frame: "pl.DataFrame",
    number: int | None,
    length: int | None,
    random: np.random.Generator,
) -> tuple["pl.DataFrame", Fitted]:
    """The table, lengthened and repeated, and the model that tells copies apart."""
    roles = fitted.schema.roles
    if not len(frame):
        raise DataError("The given table has no rows: leave it out for new groups.", option="given")
    Table.read(frame).require((*roles.of("group"), *roles.of("item"), *roles.of("order")), "given")
    if number is not None and number > 1:
        fitted, frame = copies(fitted, frame, number)
    fixed = bool(roles.of("item")) and "item" not in fitted.terms
    if fixed or roles.of("attributes") or fitted.schema.lags:
        if length is not None:
            why = "items" if fixed else "attributes" if roles.of("attributes") else "times"
            said = f"This model does not draw {why}, so that no rows can be added"
            raise DataError(f"{said}: {NEED}, and leave {option('length')} out.", option="length")
        return frame, fitted
    size = np.bincount(group_numbers(fitted, frame))
    return lengthened(fitted, frame, _lengths(fitted, size, length, random)), fitted
