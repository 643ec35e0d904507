"""What is learnt about a table before any model is: roles, vocabulary, standardiser, time step.

    Schema.fit(table, roles)  ->  schema;     schema.encode(any such table)  ->  Groups, values in the table's units
                                              schema.standardise(groups)     ->  Groups, values standardised

It is kept in the model file. A new table may lack value, weight and target columns, have more columns, and new items.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, final

import numpy as np

from efattn.data.columns import Notes, distinct, flags, moments, numbers, ranks
from efattn.data.groups import Arrangement, Groups, Observations
from efattn.data.lags import infer_step, lagged_groups, step_words
from efattn.data.names import Names
from efattn.data.roles import SEVERAL, SINGLE, Roles, nearest
from efattn.data.standardiser import Standardiser, ways
from efattn.data.table import Table
from efattn.data.vocabulary import Vocabulary
from efattn.errors import DataError

_OPTIONAL = ("value", "weight", "target")  # roles a table to predict on may lack


@final
@dataclass(frozen=True, eq=False)
class Schema:
    """`step`: of `lags`, in microseconds where time_kind is "instant". `clock`: where the order column says when a row
    was, "instant" or "number", the kind of it."""

    roles: Roles
    vocabulary: Vocabulary | None = None
    standardiser: Standardiser | None = None
    lags: int = 0
    step: float | int | None = None
    time_kind: str | None = None
    max_length: int | None = None
    clock: str | None = None

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
        standardise: str | Sequence[str] | Mapping[str, str] = "none",
        lags: int = 0,
        max_length: int | None = None,
        clock: bool | Literal["auto"] = False,
    ) -> tuple["Schema", Groups]:
        """The schema and, at no further cost, the groups of the same table, values in its own units. clock: whether
        the order column says when a row was; "auto" if it holds times or numbers at uneven steps."""
        source = Table.read(table)
        _check_sizes(roles, lags, max_length)
        how = ways(standardise, roles.of("value"), bool(roles.item))
        for role in (*SEVERAL, *SINGLE):
            source.require(roles.of(role), role)
        if not len(source):
            raise DataError("The table has no rows: there is nothing to fit.")
        vocabulary = None
        if roles.item:
            _, names = distinct(source.columns(roles.of("item"), "item"), "item", len(source))
            if not len(names):
                raise DataError(
                    f"Column {roles.of('item')[0]!r} (role item) is null in every row. Name another column."
                )
            vocabulary = Vocabulary.of(names, roles.of("item"))
        schema = cls(roles, vocabulary, lags=lags, max_length=max_length)
        if lags:
            schema = schema._with_step(source)
        if clock and (clock != "auto" or roles.item):
            schema = schema._with_clock(source, sure=clock != "auto")
        groups = schema.encode(source)
        if schema.clock is not None and clock == "auto" and not uneven(groups.steps):
            schema, groups = replace(schema, clock=None), replace(groups, every=replace(groups.every, when=None))
        return schema.fit_standardiser(groups, how), groups

    def fit_standardiser(self, groups: Groups, standardise: str | Sequence[str] | Mapping[str, str]) -> "Schema":
        """The same with centres and scales from these groups, for instance the training part only."""
        columns = self.roles.of("value")
        value = groups.value
        if value is None:
            return self
        how = ways(standardise, columns, bool(self.roles.item))
        for name, y in zip(columns, value.T, strict=True):
            if np.isnan(y).all():
                raise DataError(
                    f"Column {name!r} (role value) has no value at all in {len(y)} rows: every one is missing. "
                    "Check the column and missing=..., or model the items alone."
                )
        fitted = Standardiser.fit(value, how, groups.item, len(self.vocabulary) if self.vocabulary else 0)
        return replace(self, standardiser=fitted)

    def encode(self, table: Any, need: Collection[str] = ()) -> Groups:
        """The groups of a table, values in its own units. need: which of value, weight and target must be there."""
        source, roles, notes = Table.read(table), self.roles, list[str]()
        number, labels = distinct(source.columns(roles.of("group"), "group"), "group", len(source))
        _refuse(number < 0, "group", roles)
        order = ranks(source.column(roles.of("order")[0], "order"), "order", notes) if roles.of("order") else None
        where = Arrangement.of(number, order)
        if where.ties:
            notes.append(
                f"Ties in {roles.of('order')[0]!r}: {where.ties} of {len(source)} rows have the same as the row before "
                "in their group; they stay in the order of the table."
            )
        every = self._observations(source, where, need, notes)
        draft = Groups(
            every,
            where.offsets,
            labels,
            roles.of("group"),
            self.vocabulary,
            max_length=self.max_length,
            ties=where.ties,
            notes=notes,
        )
        _count_lengths(draft)
        return self._with_lags(source, where, draft) if self.lags else draft

    def standardise(self, groups: Groups) -> Groups:
        """The same groups with standardised values: what a model sees."""
        every, fitted = groups.every, self.standardiser
        if every.value is None or fitted is None or fitted.is_identity:
            return groups
        return replace(groups, every=replace(every, value=fitted.apply(every.value, every.item)))

    def with_new_items(self, table: Any) -> "Schema":
        """Items of this table that are not known yet are appended; everything else stays."""
        if self.vocabulary is None:
            return self
        source = Table.read(table)
        _, names = distinct(source.columns(self.vocabulary.columns, "item"), "item", len(source))
        vocabulary = self.vocabulary.append(names)
        fitted = None if self.standardiser is None else self.standardiser.extended(len(vocabulary))
        return replace(self, vocabulary=vocabulary, standardiser=fitted)

    def to_json(self) -> dict[str, Any]:
        saved: dict[str, Any] = {"roles": self.roles.to_json(), "lags": self.lags, "step": self.step}
        saved |= {"time_kind": self.time_kind, "max_length": self.max_length, "clock": self.clock}
        saved["vocabulary"] = None if self.vocabulary is None else self.vocabulary.to_json()
        saved["standardiser"] = None if self.standardiser is None else self.standardiser.to_json()
        return saved

    def arrays(self) -> dict[str, np.ndarray]:
        """What does not fit into JSON: a million names, a centre per item."""
        parts = {"vocabulary": self.vocabulary, "standardiser": self.standardiser}
        return {f"{part}.{n}": x for part, p in parts.items() if p is not None for n, x in p.arrays().items()}

    @classmethod
    def from_saved(cls, saved: Mapping[str, Any], arrays: Mapping[str, Any]) -> "Schema":
        """From `to_json` and `arrays` (numpy arrays or CPU tensors; other names among them are ignored)."""

        def part(kind: Any, name: str) -> Any:
            mine = {n.removeprefix(f"{name}."): x for n, x in arrays.items() if n.startswith(f"{name}.")}
            return None if saved[name] is None else kind.from_saved(saved[name], mine)

        plain = {name: saved[name] for name in ("lags", "step", "time_kind", "max_length")}
        plain["clock"] = saved.get("clock")  # older files have none
        roles = Roles.from_json(saved["roles"])
        return cls(roles, part(Vocabulary, "vocabulary"), part(Standardiser, "standardiser"), **plain)

    def _observations(self, source: Table, where: Arrangement, need: Collection[str], notes: Notes) -> Observations:
        roles = self.roles
        absent = {n: r for r in _OPTIONAL if r not in need for n in roles.of(r) if n not in source.names}
        for name, role in absent.items():
            if role == "value" and nearest(name, source.names):
                notes.append(f"There is no column {name!r}: its values count as missing.{nearest(name, source.names)}")

        def column(role: str) -> np.ndarray | None:
            names = [n for n in roles.of(role) if n not in absent]
            return where.sort(numbers(source.column(names[0], role), role, notes, complete=True)) if names else None

        weight, exposure = column("weight"), column("exposure")
        if weight is not None:
            _refuse_numbers(weight < 0, weight, "weight", ">= 0", "Use 0 for rows that should not count.", roles, where)
        if exposure is not None:
            _refuse_numbers(exposure <= 0, exposure, "exposure", "> 0", "Drop rows with no exposure.", roles, where)
        flag = [n for n in roles.of("target") if n not in absent]
        return Observations(
            row=where.row,
            item=self._items(source, where, notes),
            value=self._matrix(source, "value", where, notes, absent),
            attributes=self._matrix(source, "attributes", where, notes, absent),
            exposure=exposure,
            weight=weight,
            target=where.sort(flags(source.column(flag[0], "target"), "target", notes)) if flag else None,
            when=None if self.clock is None else where.sort(self._clock(source)),
        )

    def _with_clock(self, source: Table, sure: bool) -> "Schema":
        """With the kind of the order column; sure: an error where it is no time, instead of none."""
        names = self.roles.of("order")
        try:
            if not names:
                raise DataError("The time between rows is asked for: pass order=..., a column of times or numbers.")
            return replace(self, clock=moments(source.column(names[0], "order"), "order", [])[1])
        except DataError:
            if sure:
                raise
            return self

    def _clock(self, source: Table) -> np.ndarray:
        name = self.roles.of("order")[0]
        time, kind = moments(source.column(name, "order"), "order", [])
        if kind != self.clock and len(time):
            raise DataError(_other_kind(name, "order", kind))
        return time.astype(np.float64)

    def _matrix(
        self, source: Table, role: str, where: Arrangement, notes: Notes, absent: Collection[str]
    ) -> np.ndarray | None:
        """(row, column); an absent column is NaN."""
        names = self.roles.of(role)
        if not names:
            return None
        found = np.full((len(source), len(names)), np.nan)
        for c, name in enumerate(names):
            if name not in absent:
                codes: Any = self.roles.missing if role == "value" else ()
                y = numbers(source.column(name, role), role, notes, codes, complete=role == "attributes")
                found[:, c] = where.sort(y)
                if role == "value" and np.isfinite(y).sum() > 1 and np.nanmin(y) == np.nanmax(y):
                    notes.append(f"Column {name!r} is constant ({np.nanmin(y):g}).")
        return found

    def _items(self, source: Table, where: Arrangement, notes: Notes) -> np.ndarray | None:
        if self.vocabulary is None:
            return None
        number, names = distinct(source.columns(self.vocabulary.columns, "item"), "item", len(source))
        known = self.vocabulary.numbers(names)
        unknown = self.vocabulary.unknown
        item = np.append(known, np.int32(unknown))[number]  # -1, a null, is the last
        nulls = int((number < 0).sum())
        if nulls:
            notes.append(f"No item in {nulls} of {len(item)} rows: they count as the unknown item, and are no targets.")
        strange = np.flatnonzero((item == unknown) & (number >= 0))
        if strange.size:
            row = int(strange[0])
            notes.append(
                f"Unknown items in {strange.size} of {len(item)} rows (the first: "
                f"{names.words(int(number[row]), self.vocabulary.columns)} at row {row}): they are no targets."
            )
        return where.sort(item)

    def _moments(
        self, source: Table, where: Arrangement, notes: Notes, labels: Names
    ) -> tuple[np.ndarray, np.ndarray, str]:
        """(group,): the time and the series of each group."""
        name = self.roles.of("time")[0]
        time, kind = moments(source.column(name, "time"), "time", notes)
        number, _ = distinct(source.columns(self.roles.of("series"), "series"), "series", len(source))
        _refuse(number < 0, "series", self.roles)

        def complain(role: str) -> Any:
            def words(i: int) -> str:
                group = int(np.searchsorted(where.offsets, i, "right")) - 1
                whose = labels.words(group, self.roles.of("group")) or "the only group"
                return (
                    f"With lags a group has one {role}; column {self.roles.of(role)[0]!r} differs within {whose} "
                    f"at row {int(where.row[i])}. Let each {role} be its own group."
                )

            return words

        return where.first(time, complain("time")), where.first(number, complain("series")), kind

    def _with_step(self, source: Table) -> "Schema":
        number, labels = distinct(source.columns(self.roles.of("group"), "group"), "group", len(source))
        _refuse(number < 0, "group", self.roles)
        time, series, kind = self._moments(source, Arrangement.of(number, None), [], labels)
        return replace(self, step=infer_step(time, series), time_kind=kind)

    def _with_lags(self, source: Table, where: Arrangement, groups: Groups) -> Groups:
        assert self.step is not None
        assert self.time_kind is not None
        if not len(source):
            return replace(
                groups, lagged=np.zeros((0, self.lags), np.int32), time=np.zeros(0), series=np.zeros(0, np.int32)
            )
        time, series, kind = self._moments(source, where, groups.notes, groups.labels)
        if kind != self.time_kind:
            raise DataError(_other_kind(str(self.roles.time), "time", kind))
        lagged = lagged_groups(time, series, self.lags, self.step, groups.group_label)
        absent = [f"{int((lagged[:, d] < 0).sum())} have no lag {d + 1}" for d in range(self.lags)]
        uneven = " If steps are uneven, like months, count them in a column of their own and name it in time=."
        groups.notes.append(
            f"The time step is {step_words(self.step, kind)}; of {len(groups)} groups {', '.join(absent)}."
            + (uneven if 2 * (lagged[:, 0] < 0).sum() > len(groups) else "")
        )
        return replace(groups, time=time, series=series, lagged=lagged)


def uneven(steps: np.ndarray) -> bool:
    """Whether rows follow each other now sooner, now later, as times do and ranks do not."""
    steps = steps[steps > 0]
    return bool(len(steps)) and bool((steps != steps[0]).any())


def _other_kind(name: str, role: str, kind: str) -> str:
    was, now = ("dates", "numbers") if kind == "number" else ("numbers", "dates")
    return f"Column {name!r} (role {role}) holds {now}; it was fitted on {was}. Convert it to {was}."


def _check_sizes(roles: Roles, lags: int, max_length: int | None) -> None:
    if lags < 0 or lags != int(lags):
        raise DataError(f"lags counts time steps: 0, 1, 2, ...; found {lags!r}.")
    if lags and roles.time is None:
        raise DataError("Lags need to know when a group was: pass time=..., or lags=0.")
    if max_length is not None and (max_length < 1 or max_length != int(max_length)):
        raise DataError(f"max_length is a number of rows, at least 1; found {max_length!r}.")


def _count_lengths(groups: Groups) -> None:
    lengths = groups.lengths
    ones = int((lengths == 1).sum())
    if ones:
        groups.notes.append(f"Groups of one row: {ones} of {len(groups)}; they are predicted from an empty context.")
    long = 0 if groups.max_length is None else int((lengths > groups.max_length).sum())
    if long:
        groups.notes.append(
            f"Groups longer than max_length={groups.max_length}: {long} of {len(groups)}; cut into pieces."
        )


def _refuse(null: np.ndarray, role: str, roles: Roles) -> None:
    if null.any():
        names = " or ".join(repr(n) for n in roles.of(role))
        row = int(np.flatnonzero(null)[0])
        raise DataError(
            f"The role {role} allows no nulls; column {names} is null at row {row} ({int(null.sum())} of {len(null)} "
            "rows). Fill these rows in or drop them."
        )


def _refuse_numbers(
    bad: np.ndarray, y: np.ndarray, role: str, bound: str, remedy: str, roles: Roles, where: Arrangement
) -> None:
    if bad.any():
        i = int(np.flatnonzero(bad)[0])
        raise DataError(
            f"The role {role} needs numbers {bound}; column {roles.of(role)[0]!r} has {y[i].item()!r} "
            f"at row {int(where.row[i])}. {remedy}"
        )
