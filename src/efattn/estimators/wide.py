"""From a wide table to what a fit takes: its long form, and a family for each column.

    truth, words with two levels    bernoulli          words with more     nominal
    ordered categories              ordinal            numbers             yes or no, levels, counts or measures, each
                                                                           column by what it holds (kinds.py)

Where all columns are numbers of one kind they have one family between them, and where several of those are plausible,
rows that are left out decide, as in any other table.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from efattn import families
from efattn.data import Roles, Table, Wide
from efattn.data.wide import GROUP, ITEM, VALUE, WideColumn
from efattn.errors import DataError, Note, named, option
from efattn.estimators import kinds
from efattn.estimators.families import ZEROS
from efattn.families import Bernoulli, Family, Gaussian, Nominal, Ordinal, PerItem

SHOWN = 6  # columns of a family that are told by name


@final
@dataclass(frozen=True)
class Plan:
    """frames: the kind of frame that came in; family: as `fit` takes it, for the long table's one value column."""

    layout: Wide
    long: Table
    family: Any
    notes: tuple[Note, ...]
    frames: str

    @property
    def roles(self) -> Roles:
        return Roles(group=GROUP, item=ITEM, value=VALUE)

    def held(self, validation: Any) -> Any:
        """The same of a table that is held out."""
        if validation is None or isinstance(validation, int | float):
            return validation
        if isinstance(validation, str) and validation in ("auto", "last"):
            return validation
        return self.layout.long(Table.read(validation))


def plan(estimator: Any, table: Table, id: str | None, exclude: Any, missing: Any) -> Plan:
    if estimator.context == "past" or estimator.terms not in (None, "value", ["value"], ("value",)):
        asked = option("context", "others") if estimator.context == "past" else option("terms", "value")
        raise DataError(f"Cells of a wide table are values given the rest of their row: {asked}.", option="context")
    if getattr(estimator, "lags", 0):
        raise DataError(f"Rows of a wide table have no time: {option('lags', 0)}.", option="lags")
    layout, notes = Wide.fit(table, id, exclude, missing)
    codes = layout.codes(table, notes)
    family, said = _families(estimator.family, layout, codes, alike=estimator.standardise == "auto")
    notes = [note for note in notes if note.kind != "constant"] + said
    return Plan(layout, layout.long(table, codes), family, tuple(notes), table.kind)


def _families(spec: Any, layout: Wide, codes: np.ndarray, alike: bool) -> tuple[Any, list[Note]]:
    """What `fit` takes, and what there is to say of it. alike: whether columns may share a family, because a fit finds
    out by itself whether they need units of their own."""
    asked = _asked(spec, layout)
    automatic = [c for c, column in enumerate(layout.columns) if column.kind == "number" and column.name not in asked]
    numbers = _of_numbers(codes[:, automatic])
    if len(automatic) == len(layout) and numbers is None and alike:
        return "auto", []
    found: list[Family] = []
    for c, column in enumerate(layout.columns):
        if column.name in asked:
            found.append(_sized(asked[column.name], codes[:, c], column))
        elif c in automatic:
            found.append(numbers[automatic.index(c)] if numbers is not None else _alone(codes[:, c]))
        else:
            found.append(_of_words(column))
        values = codes[:, c][~np.isnan(codes[:, c])]
        found[-1].check(values, column.name)
    same = len(set(found)) == 1 and all(column.kind == "number" for column in layout.columns)
    chosen = [family if c in automatic else None for c, family in enumerate(found)]
    notes = [_told(layout, found), *_zeros(layout, codes, chosen)]
    return found[0] if same and alike else _per_item(layout, found), notes


def _asked(spec: Any, layout: Wide) -> dict[str, Any]:
    """By column."""
    if isinstance(spec, Mapping):
        spec = {name: one for names, one in spec.items() for name in ([names] if isinstance(names, str) else names)}
        unknown = [name for name in spec if name not in layout.names]
        if unknown:
            raise DataError(
                f"family names {unknown[0]!r}, which is no column that is modelled: {list(layout.names)}.",
                option="family",
            )
        return {name: one for name, one in spec.items() if one != "auto"}
    if isinstance(spec, str) and spec in ("auto", "per_item"):
        return {}
    if isinstance(spec, str | Family):
        return dict.fromkeys((column.name for column in layout.columns if column.kind == "number"), spec)
    raise DataError("family of a wide table is a name, a family, or a mapping from columns to them.", option="family")


def _of_numbers(codes: np.ndarray) -> list[Family] | None:
    """A family each where columns of numbers are of different kinds; None where they are not."""
    columns = codes.shape[1]
    row, item = np.nonzero(~np.isnan(codes))
    values = codes[row, item]
    if columns < 2:
        return None
    made = kinds.mixed(values, item, columns)
    if made is None and columns > kinds.MOST_ITEMS:
        made = kinds.each(values, item, columns)
    return None if made is None or len(made.parts) < 2 else [made.parts[k] for k in made.kinds]


def least_squares(layout: Wide, codes: np.ndarray) -> dict[str, str]:
    """A normal law for each column of numbers that are neither yes or no nor levels: its mean is the least squares one,
    whatever the shape of the column."""
    found = {}
    for c, column in enumerate(layout.columns):
        values = codes[:, c][~np.isnan(codes[:, c])]
        if column.kind == "number" and kinds.kind_of(values) not in ("yes or no", "levels"):
            found[column.name] = "gaussian"
    return found


def _alone(codes: np.ndarray) -> Family:
    """Of a column of numbers by itself."""
    values = codes[~np.isnan(codes)]
    return kinds.each(values, np.zeros(len(values), np.int64), 1).parts[0]


def _of_words(column: WideColumn) -> Family:
    if len(column.levels) == 2:
        return Bernoulli()
    return Ordinal(levels=len(column.levels)) if column.kind == "levels" else Nominal(levels=len(column.levels))


def _sized(spec: Any, codes: np.ndarray, column: WideColumn) -> Family:
    """A family by its name, or as it is."""
    if isinstance(spec, Family):
        return spec
    kind = families.kind(spec)
    sizes = kind.sized(codes[:, None], 1)
    if column.levels and "levels" in sizes:
        sizes |= {"levels": len(column.levels)}
    return families.named(spec, **sizes)


def _per_item(layout: Wide, found: list[Family]) -> PerItem:
    """In the order of the items' numbers, which is that of their names."""
    by_name = dict(zip(layout.names, found, strict=True))
    ordered = [by_name[name] for name in sorted(by_name)]
    parts = tuple(dict.fromkeys(ordered))
    return PerItem(parts, tuple(parts.index(one) for one in ordered))


def _zeros(layout: Wide, codes: np.ndarray, chosen: list[Family | None]) -> list[Note]:
    """Of columns of amounts, many of which are exactly 0, under a law that has none. Nothing decides between families
    here, so that zeros of their own have to be asked for. chosen: None where a family was asked for."""
    notes = []
    for c, family in enumerate(chosen):
        values = codes[:, c][~np.isnan(codes[:, c])]
        share = float(np.mean(values == 0)) if len(values) else 0.0
        if isinstance(family, Gaussian) and share > ZEROS and values.min() == 0:
            name = layout.columns[c].name
            said = f"{name!r}: {share:.0%} are exactly 0, of which a normal law knows nothing; the "
            said += f"{named('family')} zero_or for this column gives them a probability of their own."
            notes.append(Note("zeros", said, column=name, option="family"))
    return notes


def _told(layout: Wide, found: list[Family]) -> Note:
    """gaussian for age, weight; nominal for country"""
    told = []
    for family in dict.fromkeys(found):
        mine = [name for name, one in zip(layout.names, found, strict=True) if one == family]
        more = f" and {len(mine) - SHOWN} more" if len(mine) > SHOWN else ""
        told.append(f"{family.name} for {', '.join(mine[:SHOWN])}{more}")
    return Note("families", f"Families by column: {'; '.join(told)}.", option="family")
