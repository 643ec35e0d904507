"""What is said about the row that is to come: when it comes, and its own attributes.

    at            one time for all groups, one for each by its name, or a column of the histories, of a last row
    attributes    by column, one entry for all groups or one for each by its name; the rest are those of the last row

Nothing is taken that the model does not look at: a time that it hides, an attribute that a target does not show.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from efattn.data import Groups, Table
from efattn.data.columns import moments
from efattn.data.reading import Reading
from efattn.errors import DataError, Note, named, option
from efattn.inference.fitted import Fitted, Part, models_of
from efattn.models import Conditionals, Term
from efattn.simple.additive_logit import AdditiveItems


@final
@dataclass(frozen=True)
class NextRow:
    """As the user gave it. asked: the model that is asked, for what it looks at."""

    fitted: Fitted
    parts: Sequence[Part]
    at: Any = None
    attributes: Any = None

    def __post_init__(self) -> None:
        schema = self.fitted.schema
        if self.at is not None and (schema.when_kind is None or not schema.own_time):
            why = "hides the time of the row that is predicted" if schema.when_kind else "looks at no times"
            remedy = f"fit with {option('own_time', 'known')} and an order column of times, or leave {named('at')} out"
            raise DataError(f"This model {why}, so that {named('at')} tells it nothing: {remedy}.", option="at")
        given = {} if self.attributes is None else self.attributes
        if not isinstance(given, Mapping):
            said = f"{named('attributes')} has an entry by name of column, as in attributes={{'price': 3}}"
            raise DataError(f"{said}; found {given!r}.", option="attributes")
        shown = [n for n, own in zip(schema.attribute_columns, schema.own_attributes or (), strict=False) if own]
        for name in given:
            if name not in shown:
                there = f"it looks at {', '.join(map(repr, dict.fromkeys(shown)))}" if shown else "it looks at none"
                raise DataError(
                    f"Of the next row this model does not look at an attribute {name!r}: {there}.", option="attributes"
                )

    def when(self, table: Table | None, groups: Groups | None) -> np.ndarray | None:
        """(group,), in the units of a batch; None where it is not said."""
        if self.at is None:
            return None
        column = self.at if isinstance(self.at, str) and table is not None and self.at in table.names else None
        if column is not None and groups is not None and table is not None:
            entries = table.column(column, "order").gather(_last_rows(groups))
        else:
            entries = _series(str(self.fitted.schema.roles.order), _each(self.at, groups, "at"))
        time, kind = moments(entries, "order", [])
        if kind != self.fitted.schema.when_kind and len(time):
            wanted = "dates or times" if self.fitted.schema.when_kind == "instant" else "numbers"
            raise DataError(f"{named('at')}: the model was fitted on {wanted}; found {self.at!r}.", option="at")
        return time.astype(np.float64)

    def own(self, groups: Groups | None) -> np.ndarray | None:
        """(group, attribute): those given, the rest as in each group's last row, or as usual where there is none."""
        schema = self.fitted.schema
        if not schema.roles.of("attributes"):
            return None
        if groups is None or groups.every.attributes is None:
            rows = usual_attributes(models_of(self.parts), len(schema.attribute_columns))[None]
        else:
            rows = groups.every.attributes[groups.offsets[1:] - 1].copy()
        for name, entry in (self.attributes or {}).items():
            source = Table.read(_series(name, _each(entry, groups, "attributes")).to_frame())
            read = Reading(source, schema.roles, ()).columns_of(name, "attributes", schema.levels, schema.fills)
            rows[:, [column == name for column in schema.attribute_columns]] = read
        return rows

    def notes(self, groups: Groups) -> list[Note]:
        """What is taken for granted."""
        schema, said = self.fitted.schema, list[Note]()
        if self.at is None and schema.when_kind is not None and schema.own_time and self.fitted.looks_at_times:
            words = (
                f"The next row is taken to come the usual time after the last of its group; {option('at')} says when."
            )
            said.append(Note("next time", words, option="at"))
        attributes, own = groups.every.attributes, np.array(schema.own_attributes or (), bool)
        if attributes is not None and own.any():
            same = (np.diff(attributes, axis=0) == 0) | (np.diff(groups.group) != 0)[:, None]
            varies = dict.fromkeys(np.array(schema.attribute_columns)[own & ~same.all(0)].tolist())
            left = [name for name in varies if name not in (self.attributes or {})]
            if left:
                words = f"The next row is taken to have {', '.join(map(repr, left))} as the last of its group has; "
                said.append(Note("next attributes", f"{words}{option('attributes')} says others.", option="attributes"))
        return said


def usual_attributes(models: Sequence[Conditionals], size: int) -> np.ndarray:
    """(attribute,): their means, as far as one of the models has kept them."""
    for model in models:
        if isinstance(model, Term) and model.embedding.own is not None:
            return model.embedding.own.usual().numpy()
        if isinstance(model, Term) and model.embedding.attributes is not None:
            return model.embedding.attributes.get_buffer("centre").double().cpu().numpy()
    means = np.zeros(size)
    for model in models:
        if isinstance(model, AdditiveItems):
            means[list(model.shown)] = model.get_buffer("centre").double().numpy()
    return means


def _last_rows(groups: Groups) -> np.ndarray:
    """(group,): the table's row of each group's last."""
    return groups.every.row[groups.offsets[1:] - 1]


def _each(entry: Any, groups: Groups | None, what: str) -> list[Any]:
    """One for each group."""
    count = 1 if groups is None else len(groups)
    if not isinstance(entry, Mapping):
        return [entry] * count
    names = [] if groups is None else [groups.labels[k] for k in range(count)]
    for name in names:
        if name not in entry:
            raise DataError(f"{named(what)} has no entry for the group {name!r}. Give one for each group.", option=what)
    if groups is None:
        raise DataError(f"{named(what)} is by group, and there are no histories. Give one entry.", option=what)
    return [entry[name] for name in names]


def _series(name: str, entries: list[Any]) -> Any:
    import polars as pl

    try:
        return pl.Series(name, entries, strict=False)
    except (TypeError, ValueError, pl.exceptions.PolarsError) as error:
        raise DataError(f"What is said of the next row's {name!r} is no column: {entries[0]!r}, ...") from error
