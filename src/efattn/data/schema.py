"""What is learnt about a table before any model is: roles, vocabulary, standardiser, time step.

    Schema.fit(table, roles)  ->  schema;     schema.encode(any such table)  ->  Groups, values in the table's units
                                              schema.standardise(groups)     ->  Groups, values standardised

It is kept in the model file. A new table may lack value, weight and target columns, have more columns, and new items.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, final

import numpy as np

from efattn.data.duplicates import duplicated
from efattn.data.groups import Groups, Observations
from efattn.data.item_features import ItemFeatures
from efattn.data.lags import infer_step, lagged_groups, step_words
from efattn.data.mapping import BLOCK, whole_or_kept
from efattn.data.positions import Positions
from efattn.data.reading import Fill, Fills, Levels, Reading
from efattn.data.roles import SEVERAL, SINGLE, Roles
from efattn.data.sampling import few
from efattn.data.sorting import RowOrder
from efattn.data.standardiser import Standardiser, column_methods
from efattn.data.table import Table
from efattn.data.vocabulary import Vocabulary
from efattn.errors import DataError, Note, counted, option

SQUARES = 1e18  # what a model sees is squared in single precision, which ends at 3e38


@final
@dataclass(frozen=True, eq=False)
class Schema:
    """`step`: of `lags`, in microseconds where time_kind is "instant". `when_kind`: where the order column says when a
    row was, "instant" or "number", the kind of it. `levels`: the words of columns that are read by them (`reading`).
    `fills`: what stands for attributes that are null.
    `own_time`: whether a target shows its own time. `own_attributes`: by column of a batch's attributes, whether a row
    whose item is the target shows it of itself (`own`); None where item terms look at no attributes. `exposed`: whether
    networks see the exposures of rows. `features`: what is known of items beyond their names. `positions`: those that
    groups have in common, where there are no items."""

    roles: Roles
    vocabulary: Vocabulary | None = None
    standardiser: Standardiser | None = None
    lags: int = 0
    step: float | int | None = None
    time_kind: str | None = None
    max_length: int | None = None
    when_kind: str | None = None
    levels: Levels = field(default_factory=dict)
    fills: Fills = field(default_factory=dict)
    own_time: bool = True
    own_attributes: tuple[bool, ...] | None = None
    exposed: bool = False
    features: ItemFeatures | None = None
    positions: Positions | None = None

    @classmethod
    def fit(
        cls,
        table: Any,
        roles: Roles,
        *,
        standardise: str | Sequence[str] | Mapping[str, str] = "none",
        lags: int = 0,
        max_length: int | None = None,
    ) -> "Schema":
        """standardise: "none", "global" or "item", for all value columns or for each."""
        return cls.fit_encode(table, roles, standardise=standardise, lags=lags, max_length=max_length)[0]

    @classmethod
    def fit_encode(
        cls,
        table: Any,
        roles: Roles,
        *,
        standardise: str | Sequence[str] | Mapping[str, str] | None = None,
        lags: int = 0,
        max_length: int | None = None,
        when: bool | Literal["auto"] = False,
    ) -> tuple["Schema", Groups]:
        """The schema and, at no further cost, the groups of the same table, values in its own units and sorted as
        `encode` does with sort. standardise: None to leave that to `fit_standardiser`. when: whether the order column
        says when a row was; "auto" if it holds times or numbers at uneven steps, or, where there are no items, from
        which on differs between groups."""
        source = Table.read(table)
        check_sizes(roles, lags, max_length)
        methods = None if standardise is None else column_methods(standardise, roles.of("value"), bool(roles.item))
        for role in (*SEVERAL, *SINGLE):
            source.require(roles.of(role), role)
        if not len(source):
            raise DataError("The table has no rows: there is nothing to fit.")
        reading = Reading(source, roles, sort=True)
        schema = cls(roles, _vocabulary(reading), lags=lags, max_length=max_length, levels=reading.levels())
        schema = replace(schema, fills=reading.fills(schema.levels))
        if lags:
            time, series, kind = reading.group_times
            schema = replace(schema, step=infer_step(time, series), time_kind=kind)
        if when:
            schema = schema._with_when(reading, sure=when != "auto")
        groups = schema.encode_read(reading)
        twice = duplicated(groups, reading.order, reading.folded())
        groups.notes.extend([] if twice is None else [twice])
        told = uneven(groups.times_between) or (not roles.item and begin_apart(groups))
        if schema.when_kind is not None and when == "auto" and not told:
            schema, groups = replace(schema, when_kind=None), replace(groups, every=replace(groups.every, when=None))
        schema._refuse_empty(groups)
        return (schema if methods is None else schema.fit_standardiser(groups, methods)), groups

    def fit_standardiser(
        self,
        groups: Groups,
        standardise: str | Sequence[str] | Mapping[str, str],
        plain: np.ndarray | None = None,
    ) -> "Schema":
        """The same with centres and scales from these groups, for instance the training part only. plain: (items + 1,
        column), of which items values stay as they are."""
        if groups.every.value is None:
            return self
        methods = column_methods(standardise, self.roles.of("value"), bool(self.roles.item))
        some = few(groups)
        self._refuse_empty(some)
        items = len(self.vocabulary) if self.vocabulary else 0
        assert some.value is not None
        fitted = Standardiser.fit(some.value, methods, some.item, items, plain)
        return replace(self, standardiser=fitted)

    def _refuse_empty(self, groups: Groups) -> None:
        value = groups.value
        for name, y in zip(self.roles.of("value"), () if value is None else value.T, strict=value is not None):
            if np.isnan(y).all():
                items = ", or model the items alone" if self.roles.item else ""
                raise DataError(
                    f"Column {name!r} (role value) has no value at all in {len(y)} rows: every one is missing. "
                    f"Check the column and {option('missing')}{items}.",
                    column=name,
                    option="missing",
                )

    def encode(self, table: Any, need: Collection[str] = (), *, sort: bool = False) -> Groups:
        """The groups of a table, values in its own units. need: which of value, weight and target must be there. sort:
        groups by their names and, where no order is asked for and none is cut, their rows by what they hold, so that
        nothing depends on how the table came; else both as they stand in the table."""
        return self.encode_read(Reading(Table.read(table), self.roles, need, sort=sort))

    def encode_read(self, reading: Any) -> Groups:
        """The same of columns that are read already."""
        (number, labels), order, roles, notes = reading.group, reading.order, self.roles, reading.notes
        columns = self._columns(reading)
        settled = reading.sort and roles.order is None and self.max_length is None
        where = RowOrder.of(number, order, _contents(columns) if settled else ())
        if where.ties:
            name = roles.of("order")[0]
            said = f"Ties in {name!r}: {where.ties} of {len(reading)} rows have the same as the row before in their "
            notes.append(Note("ties", f"{said}group; they stay in the order of the table.", column=name))
        every = Observations(where.row, **{n: None if x is None else where.sort(x) for n, x in columns.items()})
        groups = Groups(
            every,
            where.offsets,
            labels,
            roles.of("group"),
            self.vocabulary,
            max_length=self.max_length,
            ties=where.ties,
            notes=notes,
            first_row=reading.first,
        )
        _count_lengths(groups)
        return self._with_lags(reading, groups) if self.lags else groups

    @property
    def trained_items(self) -> int:
        """How many items rows of the fit were of; the others are known by their features alone."""
        return len(self.vocabulary or ()) if self.features is None else self.features.trained

    @property
    def attribute_names(self) -> tuple[str, ...]:
        """Of the columns of a batch's attributes: a column of words has one per level, one with nulls a second one."""
        return tuple(f"{name}{rest}" for name in self.roles.of("attributes") for rest in self._parts(name))

    @property
    def attribute_columns(self) -> tuple[str, ...]:
        """The table's column that each of these belongs to."""
        return tuple(name for name in self.roles.of("attributes") for _ in self._parts(name))

    def _parts(self, attribute: str) -> list[str]:
        """What is added to its name for each of its columns."""
        if attribute in self.levels:
            return [f"={level}" for level in self.levels[attribute]]
        fill = self.fills.get(attribute)
        return ["", " is null"] if fill is not None and fill.told else [""]

    def standardise(self, groups: Groups) -> Groups:
        """The same groups with standardised values: what a model sees."""
        every, fitted = groups.every, self.standardiser
        if every.value is None or fitted is None:
            return groups
        if fitted.is_identity:
            for start in range(0, max(len(every.value), 1), BLOCK):
                self._refuse_far(every.value[start : start + BLOCK], groups, start)
            return groups
        value = whole_or_kept(every.value, fitted.digest(), lambda some: self._standardised(groups, some))
        noise = every.noise
        if noise is not None:
            noise = whole_or_kept(noise, fitted.digest(), lambda some: self._noise(groups, some))
        return replace(groups, every=replace(every, value=value, noise=noise), centres=fitted.item_shifts)

    def _standardised(self, groups: Groups, some: slice) -> np.ndarray:
        """The values of some rows."""
        every = groups.every
        assert self.standardiser is not None
        assert every.value is not None
        value = self.standardiser.apply(every.value[some], None if every.item is None else every.item[some])
        self._refuse_far(value, groups, some.start or 0)
        return value

    def _noise(self, groups: Groups, some: slice) -> np.ndarray:
        every = groups.every
        assert self.standardiser is not None
        assert every.noise is not None
        item = None if every.item is None else every.item[some]
        return self.standardiser.to_scale(every.noise[some, None], item)[:, 0]

    def _refuse_far(self, value: np.ndarray, groups: Groups, start: int = 0) -> None:
        """A DataError for a value so far from those it was fitted on that single precision cannot hold its square.
        start: the row that the first of the values is of."""
        far = np.abs(value) > SQUARES
        if far.any():
            i, c = (int(k) for k in np.argwhere(far)[0])
            i += start
            assert groups.every.value is not None
            assert self.standardiser is not None
            entry, name = groups.every.value[i, c].item(), self.roles.of("value")[c]
            whole = replace(groups, chosen=None)
            raise DataError(
                f"Column {name!r} has {entry!r} at {whole.label(i)}; a model can see values up to {SQUARES:g} in size"
                f"{'' if self.standardiser.is_identity else ', in units of the spread they were fitted on'}. If it "
                f"stands for a missing value, pass {option('missing', entry)}; else mend it, or take a larger unit.",
                column=name,
                row=groups.first_row + int(groups.every.row[i]),
                option="missing",
            )

    def with_new_items(self, table: Any) -> "Schema":
        """Items of this table that are not known yet are appended; everything else stays."""
        if self.vocabulary is None:
            return self
        source = Table.read(table)
        source.require(self.vocabulary.columns, "item")
        vocabulary = self.vocabulary.append(Reading(source, self.roles, ()).item[1])
        return self.with_vocabulary(
            vocabulary, None if self.features is None else self.features.extended(len(vocabulary))
        )

    def with_vocabulary(self, vocabulary: Vocabulary, features: ItemFeatures | None) -> "Schema":
        """The same of more items: the old ones first."""
        fitted = None if self.standardiser is None else self.standardiser.extended(len(vocabulary))
        return replace(self, vocabulary=vocabulary, standardiser=fitted, features=features)

    def to_json(self) -> dict[str, Any]:
        saved: dict[str, Any] = {"roles": self.roles.to_json(), "lags": self.lags, "step": self.step}
        saved |= {"time_kind": self.time_kind, "max_length": self.max_length, "clock": self.when_kind}
        saved["levels"] = {name: list(levels) for name, levels in self.levels.items()}
        for name, told in (("fills", True), ("usual", False)):
            saved[name] = {column: fill.number for column, fill in self.fills.items() if fill.told == told}
        saved |= {"own_time": self.own_time, "exposed": self.exposed}
        saved["own_attributes"] = None if self.own_attributes is None else list(self.own_attributes)
        saved["positions"] = None if self.positions is None else self.positions.to_json()
        saved["vocabulary"] = None if self.vocabulary is None else self.vocabulary.to_json()
        saved["standardiser"] = None if self.standardiser is None else self.standardiser.to_json()
        return saved | ({} if self.features is None else {"features": self.features.to_json()})

    def arrays(self) -> dict[str, np.ndarray]:
        """What does not fit into JSON: a million names, a centre per item."""
        parts = {"vocabulary": self.vocabulary, "standardiser": self.standardiser, "features": self.features}
        return {f"{part}.{n}": x for part, p in parts.items() if p is not None for n, x in p.arrays().items()}

    @classmethod
    def from_saved(cls, saved: Mapping[str, Any], arrays: Mapping[str, Any]) -> "Schema":
        """From `to_json` and `arrays` (numpy arrays or CPU tensors; other names among them are ignored)."""

        def part(kind: Any, name: str) -> Any:
            mine = {n.removeprefix(f"{name}."): x for n, x in arrays.items() if n.startswith(f"{name}.")}
            return None if saved.get(name) is None else kind.from_saved(saved[name], mine)

        plain = {name: saved[name] for name in ("lags", "step", "time_kind", "max_length")}
        plain["when_kind"] = saved.get("clock")  # older files have neither
        plain["levels"] = {name: tuple(levels) for name, levels in saved.get("levels", {}).items()}
        kinds = (("fills", True), ("usual", False))  # nor these
        plain["fills"] = {c: Fill(float(x), told) for name, told in kinds for c, x in saved.get(name, {}).items()}
        own = saved.get("own_attributes")  # older files: own times are seen, attributes of items and exposures are not
        plain |= {"own_time": saved.get("own_time", True), "exposed": saved.get("exposed", False)}
        plain["own_attributes"] = None if own is None else tuple(own)
        at = saved.get("positions")  # nor these
        plain["positions"] = None if at is None else Positions.from_json(at)
        roles = Roles.from_json(saved["roles"])
        plain["features"] = part(ItemFeatures, "features")
        return cls(roles, part(Vocabulary, "vocabulary"), part(Standardiser, "standardiser"), **plain)

    def _columns(self, reading: Reading) -> dict[str, np.ndarray | None]:
        """The fields of the observations but for `row`, in the order of the table."""
        return {
            "item": self._items(reading),
            "value": reading.matrix("value", self.levels, {}),
            "attributes": reading.matrix("attributes", self.levels, self.fills),
            "exposure": reading.exposure(),
            "weight": reading.weight(),
            "target": reading.target(),
            "noise": reading.noise(),
            "when": None if self.when_kind is None else self._when(reading),
        }

    def _with_when(self, reading: Reading, sure: bool) -> "Schema":
        """With the kind of the order column; sure: an error where it is no time, instead of none."""
        try:
            return replace(self, when_kind=reading.when[1])
        except DataError:
            if sure:
                raise
            return self

    def _when(self, reading: Reading) -> np.ndarray:
        time, kind = reading.when
        if kind != self.when_kind and len(time):
            raise _other_kind(self.roles.of("order")[0], "order", kind)
        return time.astype(np.float64)

    def _items(self, reading: Reading) -> np.ndarray | None:
        if self.vocabulary is None:
            return None
        number, names = reading.item
        unknown, columns = self.vocabulary.unknown, self.vocabulary.columns
        known = np.arange(unknown, dtype=np.int32) if names is self.vocabulary.known else self.vocabulary.numbers(names)
        item: np.ndarray = np.append(known, np.int32(unknown))[number]  # -1, a null, is the last
        nulls, count = int((number < 0).sum()), len(item)
        if nulls:
            said = f"No item in {nulls} of {count} rows: they count as the unknown item, and are no targets."
            reading.notes.append(Note("no item", said, column=columns[0]))
        if (known == unknown).any():
            strange = np.flatnonzero((item == unknown) & (number >= 0))
            row = int(strange[0])
            words = f"{names.words(int(number[row]), columns)} at row {reading.first + row}"
            said = f"Unknown items in {len(strange)} of {count} rows (the first: {words}): they are no targets."
            about: dict[str, Any] = {"column": columns[0], "row": reading.first + row, "important": True}
            reading.notes.append(Note("unknown items", said, **about))
        return item

    def _with_lags(self, reading: Reading, groups: Groups) -> Groups:
        if not len(reading):
            return replace(
                groups, lagged=np.zeros((0, self.lags), np.int32), time=np.zeros(0), series=np.zeros(0, np.int32)
            )
        return self.with_times(groups, *reading.group_times)

    def with_times(self, groups: Groups, time: np.ndarray, series: np.ndarray, kind: str) -> Groups:
        """The groups with their lags. time, series: (group,)."""
        assert self.step is not None
        assert self.time_kind is not None
        if kind != self.time_kind:
            raise _other_kind(str(self.roles.time), "time", kind)
        lagged = lagged_groups(time, series, self.lags, self.step, groups.group_label)
        absent = [f"{int((lagged[:, d] < 0).sum())} have no lag {d + 1}" for d in range(self.lags)]
        of = counted(len(groups), "group")
        said = f"The time step is {step_words(self.step, kind)}; of {of} {', '.join(absent)}."
        if 2 * (lagged[:, 0] < 0).sum() > len(groups):
            said += " If steps are uneven, like months, count them in a column of their own and name it in "
            said += f"{option('time')}."
        groups.notes.append(Note("time step", said, column=self.roles.time))
        return replace(groups, time=time, series=series, lagged=lagged)


def _vocabulary(reading: Reading) -> Vocabulary | None:
    columns = reading.roles.of("item")
    if not columns:
        return None
    names = reading.item[1]
    if not len(names):
        said = f"Column {columns[0]!r} (role item) is null in every row. Name another column."
        raise DataError(said, column=columns[0])
    return Vocabulary(names, columns)


def _contents(columns: Mapping[str, np.ndarray | None]) -> list[np.ndarray]:
    """What rows hold, column by column."""
    return [part for x in columns.values() if x is not None for part in (x.T if x.ndim == 2 else (x,))]


def uneven(between: np.ndarray) -> bool:
    """Whether rows follow each other now sooner, now later, as times do and ranks do not."""
    between = between[between > 0]
    return bool(len(between)) and bool((between != between[0]).any())


def begin_apart(groups: Groups) -> bool:
    """Whether groups begin at different times, so that a rank does not tell when a row was."""
    if groups.when is None or not len(groups):
        return False
    first = groups.when[np.cumsum(groups.lengths) - groups.lengths]
    return bool((first != first[0]).any())


def _other_kind(name: str, role: str, kind: str) -> DataError:
    was, now = ("dates", "numbers") if kind == "number" else ("numbers", "dates")
    said = f"Column {name!r} (role {role}) holds {now}; it was fitted on {was}. Convert it to {was}."
    return DataError(said, column=name)


def check_sizes(roles: Roles, lags: int, max_length: int | None) -> None:
    if not _whole(lags) or lags < 0:
        raise DataError(f"lags counts time steps: 0, 1, 2, ...; found {lags!r}.", option="lags")
    if lags and roles.time is None:
        raise DataError(
            f"Lags need to know when a group was: pass {option('time')}, or {option('lags', 0)}.", option="time"
        )
    if max_length is not None and (not _whole(max_length) or max_length < 1):
        raise DataError(f"max_length is a number of rows, at least 1; found {max_length!r}.", option="max_length")


def _whole(number: Any) -> bool:
    return isinstance(number, int | np.integer) and not isinstance(number, bool)


def _count_lengths(groups: Groups) -> None:
    lengths = groups.lengths
    ones = int((lengths == 1).sum())
    if ones:
        said = f"Groups of one row: {ones} of {len(groups)}; they are predicted from an empty context."
        groups.notes.append(Note("one row", said))
    long = 0 if groups.max_length is None else int((lengths > groups.max_length).sum())
    if long:
        longest = option("max_length", groups.max_length)
        said = f"Groups longer than {longest}: {long} of {len(groups)}; cut into pieces."
        groups.notes.append(Note("cut groups", said, option="max_length"))
