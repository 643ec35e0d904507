"""From a table to what a model is built from and fitted to, each thing decided once.

roles -> schema and groups -> terms -> families -> split by group -> standardise -> support

Of a small table every group is held out once, in folds (`validation="auto"`): a fifth of a hundred groups would be too
few to choose anything by. Each fold has units of its own, so that nothing held out is known to what is fitted to the
rest.
"""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, final

import numpy as np

from efattn.data import Groups, Roles, Schema, Table, own
from efattn.data.folds import Parts, last_groups, parts_in_turn, rows_of_one
from efattn.data.reading import Reading
from efattn.data.sampling import each_part, few, many
from efattn.data.standardiser import cost_of_one_scale
from efattn.data.stored import Stored
from efattn.errors import DataError, Note, option
from efattn.estimators import families as choosing
from efattn.estimators.looking import check_values, every_item, looked_at
from efattn.families import Categorical, Family, PerItem, Product
from efattn.inference import Fitted
from efattn.models.scoring import ItemSupport
from efattn.network import Context, without_orders
from efattn.options import check_terms
from efattn.simple import Setting
from efattn.training import teams

# folds by rows, and by groups: what takes under a minute; and the share of the groups of a larger table
SMALL, FOLDS, MEDIUM, FEW_GROUPS, FEWER_FOLDS, SHARE = 1000, 5, 5000, 100, 3, 0.2
MOST_HELD = 1_000_000  # rows, of which no more are held out unasked: their mean score has an error of a few 1e-3
COST = 0.1  # nats a value
LARGE = 2.0**20  # whole numbers beyond are counted from the family's origin: single precision has none between 2^24s


@final
@dataclass(frozen=True, eq=False)
class Blueprint:
    """family: of the value columns, in the table's units; longest: group, or piece of one; groups: all of the table, in
    its units; train, held: as a model sees them; choices: which family each column got, and why. folds: where each
    group is held out once, the same for each; here train is then all of the table, and nothing is held. fold: which of
    them this is."""

    schema: Schema
    family: Product | None
    support: ItemSupport
    terms: tuple[str, ...]
    longest: int
    groups: Groups | None = None
    train: Groups | None = None
    held: Groups | None = None
    notes: tuple[Note, ...] = ()
    choices: tuple[choosing.Choice, ...] = ()
    may_refit: bool = False  # whether the groups held out are some of the table's own
    folds: tuple["Blueprint", ...] = ()
    fold: int | None = None
    network: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # by kind of term, the sizes of a network

    @classmethod
    def of(cls, fitted: Fitted) -> "Blueprint":
        """What the networks of a fitted model are built from."""
        support: ItemSupport = "distinct" if fitted.support == "distinct" else "all"
        return cls(fitted.schema, fitted.family, support, fitted.terms, fitted.longest, network=fitted.network)

    @property
    def items(self) -> int:
        return 0 if self.schema.vocabulary is None else len(self.schema.vocabulary)

    @property
    def value_name(self) -> str:
        """The value term's name: its columns'."""
        name = "+".join(self.schema.roles.of("value"))
        return f"{name}_value" if name == "item" and "item" in self.terms else name

    def term_name(self, kind: str) -> str:
        return "item" if kind == "item" else self.value_name

    @property
    def inside_family(self) -> Product:
        """Of the values as a model sees them."""
        assert self.family is not None
        return inside(self.family, self.schema)

    @property
    def counted(self) -> tuple[bool, ...]:
        """By value column, whether it is a count to which an exposure belongs."""
        parts = () if self.family is None else self.family.parts
        return tuple(bool(part.exposures) for part in parts for _ in range(part.columns))

    def family_of(self, kind: str) -> Family:
        return Categorical(max(self.items, 2)) if kind == "item" else self.inside_family

    def setting(self, kind: str, context: Context) -> Setting:
        """What a simple model of the item or the value term is built for."""
        roles = self.schema.roles
        support: ItemSupport = self.support if kind == "item" else "all"
        attributes, lags = len(self.schema.attribute_names), self.schema.lags
        return Setting(
            self.family_of(kind),
            self.items,
            without_orders(context),
            support,
            lags,
            attributes,
            roles.ordered,
            times=self.schema.when_kind is not None,
            own_time=self.schema.own_time,
            own_attributes=self.schema.own_attributes or (),
        )

    def whole(self) -> "Blueprint":
        """The same with nothing held out, in the same units."""
        assert self.groups is not None
        return replace(self, train=self.schema.standardise(self.groups), held=None)

    @property
    def parts(self) -> tuple["Blueprint", ...]:
        """What is fitted on its own: the folds, or this."""
        return self.folds or (self,)

    def with_network(self, sizes: Mapping[str, Mapping[str, Any]]) -> "Blueprint":
        return replace(self, network=sizes, folds=tuple(replace(one, network=sizes) for one in self.folds))

    def with_features(self, known: Any) -> "Blueprint":
        """known: of items (`described`)."""
        first = known.features.first()
        each = tuple(replace(one, schema=replace(one.schema, features=first)) for one in self.folds)
        return replace(self, schema=replace(self.schema, features=first), folds=each).noted(*known.notes)

    def light(self) -> "Blueprint":
        """The same with some of the groups in memory, where all are on disk and many."""
        if self.groups is None or not many(self.groups):
            return self
        train, held = (None if part is None else few(part) for part in (self.train, self.held))
        return replace(self, groups=few(self.groups), train=train, held=held)

    def noted(self, *notes: Note) -> "Blueprint":
        return replace(self, notes=(*self.notes, *notes))


def inside(family: Product, schema: Schema) -> Product:
    """The family of values in the units in which models see them."""
    fitted = schema.standardiser
    if fitted is None:
        return family
    parts = [
        part.in_units(float(fitted.centre[columns.start]), float(fitted.scale[columns.start]))
        for part, _, columns in family.slices()
    ]
    return Product(tuple(parts))


def prepare(
    table: Any,
    roles: Roles,
    *,
    family: Any,
    terms: Any,
    support: str,
    standardise: str,
    validation: Any,
    seed: int,
    sizes: Mapping[str, Any],
    own_time: bool = True,
    own_attributes: str | None = None,
    context: Context = "others",
    folds: bool = False,
    decide: Callable[["Blueprint"], tuple[choosing.Choice, ...]] = lambda draft: draft.choices,
) -> Blueprint:
    """sizes: lags, max_length and when, for the schema; own_time, own_attributes: what a target shows of itself; folds:
    whether validation="auto" may be several; decide: the families, from groups to train on, where their choice is
    open."""
    encode = table.fit_encode if isinstance(table, Stored) else functools.partial(Schema.fit_encode, table)
    schema, groups = teams.in_turn(lambda: encode(roles, **sizes), isinstance(table, Stored))
    notes = list(groups.notes)
    chosen = named_terms(terms, roles, len(schema.vocabulary or ()), notes)
    if terms is None and chosen == ("item", "value") and context != "past" and every_item(groups, schema):
        told = f"Every group has every item once, so that the others tell which is missing: {option('terms', 'value')}."
        notes, chosen = [*notes, Note("every item", told, option="terms")], ("value",)
    _refuse_wide(groups, roles)
    if schema.when_kind is not None:
        shown = "known" if own_time else "hidden"
        other = option("own_time", "hidden" if own_time else "known")
        text = f"Column {roles.order!r} says when rows were: attention knows the time between them. A target's own time"
        notes.append(Note("times", f"{text} is {shown}; {other} changes that.", column=roles.order, option="own_time"))
    schema = replace(schema, own_time=own_time, exposed=roles.exposure is not None and "value" in chosen)
    if "item" in chosen and own_attributes is not None and roles.of("attributes"):
        flags, said = own.decide(few(groups), schema.attribute_columns, own_attributes)
        schema, notes = replace(schema, own_attributes=flags), [*notes, *([] if said is None else [said])]
    notes += _unused(schema, chosen, own_attributes is not None)
    product: Product | None = None
    choices: tuple[choosing.Choice, ...] = ()
    if "value" in chosen:
        vocabulary, exposed = schema.vocabulary, roles.exposure is not None
        family = "gaussian" if roles.noise is not None and isinstance(family, str) and family == "auto" else family
        items = None if vocabulary is None else choosing.Items(len(vocabulary), vocabulary.name)
        value, item = looked_at(groups)
        selection = choosing.choose(value, roles.of("value"), family, item, items, exposed)
        product, choices = selection.family, selection.parts
        check_values(product, groups, roles.of("value"))
        if roles.exposure is not None and not product.exposures:
            leave = f"'poisson' and 'negative_binomial' do. Leave {option('exposure')} out."
            raise DataError(f"{product!r} takes no exposure: {leave}", option="exposure")
        if roles.noise is not None and not product.measured:
            wanted = "one value column, whose family is 'gaussian' with a variance that is learnt"
            leave = f"found {product!r}. Leave {option('noise')} out."
            raise DataError(f"Noise of known size belongs to {wanted}; {leave}", option="noise")
    longest = int(groups.lengths.max(initial=1))
    longest = longest if schema.max_length is None else min(longest, schema.max_length)
    draft = Blueprint(schema, product, "all", chosen, longest, groups, choices=choices)
    rule = _rule(validation, draft, folds, seed, context)
    if isinstance(rule, str) and rule == "last" and groups.time is None and roles.time is not None:
        groups = replace(groups, time=Reading(_in_memory(table), roles, sort=True).group_times[0])
        draft = replace(draft, groups=groups)
    if product is not None:
        parts = _own_parts(draft, rule, seed, context)
        open_ = few(parts[0][0] if len(parts) == 1 else groups)
        selection = choosing.Choices.of(decide(replace(draft, groups=open_)))
        draft = replace(draft, family=selection.family, choices=selection.parts)
        notes += selection.notes
    split_ = split(draft, rule, seed, standardise, context)
    support_ = chosen_support(support, groups, split_.held, notes) if "item" in chosen else "all"
    inner = tuple(replace(one, support=support_) for one in split_.folds)
    return replace(split_, support=support_, notes=tuple(notes), folds=inner)


def _rule(validation: Any, draft: Blueprint, folds: bool, seed: int, context: Context) -> Any:
    """What "auto" stands for: folds of a small table, if they are allowed and each leaves something to fit to; else a
    share."""
    groups = draft.groups
    assert groups is not None
    if not isinstance(validation, str) or validation != "auto":
        return validation
    count = len(groups) if len(groups) > 1 else groups.count
    if count < 2:
        return None
    rows = groups.count
    number = FOLDS if rows < SMALL else FEWER_FOLDS if rows < MEDIUM and len(groups) < FEW_GROUPS else 0
    number = min(number, count)
    if groups.lagged is not None and groups.time is not None:
        number = min(number, len(np.unique(groups.time)))
    share = min(SHARE, MOST_HELD / rows)
    if not folds or number < 2:
        return share
    parts = _own_parts(draft, number, seed, context)
    return number if all(_fits(draft, train) for train, _ in parts) else share


def _fits(draft: Blueprint, train: Groups) -> bool:
    """Whether there is something to fit to, of every column."""
    targets = np.ones(train.count, bool) if train.target is None else train.target
    if "value" not in draft.terms or train.value is None:
        return bool(targets.any())
    return bool((~np.isnan(train.value[targets])).any(0).all())


def _own_parts(draft: Blueprint, validation: Any, seed: int, context: Context) -> list[Parts]:
    """What is trained on and what is held out of the table's own groups; empty where nothing is."""
    groups = draft.groups
    assert groups is not None
    if isinstance(validation, str) and validation == "last":
        return [last_groups(groups, SHARE)] if len(groups) > 1 else [rows_of_one(groups, SHARE, last=True)]
    if not isinstance(validation, int | float) or validation == 0:
        return []
    one = len(groups) == 1 and groups.lagged is None
    if isinstance(validation, int) and not isinstance(validation, bool) and validation > 1:
        if one and context == "past":
            return [rows_of_one(groups, 1 / validation, last=True)]
        return parts_in_turn(groups, validation, seed)
    if one and 0 < validation < 1:
        return [rows_of_one(groups, float(validation), last=context == "past", seed=seed)]
    return [groups.split(float(validation), seed)]


def split(
    draft: Blueprint, validation: Any, seed: int, standardise: str | None, context: Context = "others"
) -> Blueprint:
    """The same with training and held-out groups. standardise: how, None where the schema knows it already."""
    groups, schema = draft.groups, draft.schema
    assert groups is not None
    own_parts = _own_parts(draft, validation, seed, context)
    if len(own_parts) > 1:  # standardised the same way in every fold
        least = min((part[0] for part in own_parts), key=lambda train: train.count)
        ways = None if standardise is None else _ways(draft, least, standardise)
        inner = [_in_units(replace(draft, fold=k), *part, ways) for k, part in enumerate(own_parts)]
        return replace(_in_units(draft, groups, None, ways), folds=tuple(inner), may_refit=True)
    held = own_parts[0][1] if own_parts else None
    if not own_parts and not (validation is None or isinstance(validation, int | float)):
        held = schema.encode(validation, need=("value",) if "value" in draft.terms else (), sort=True)
        if draft.family is not None and held.value is not None:
            check_values(draft.family, held, schema.roles.of("value"))
    train = own_parts[0][0] if own_parts else groups
    ways = None if standardise is None else _ways(draft, train, standardise)
    return replace(_in_units(draft, train, held, ways), may_refit=bool(own_parts))


def _in_units(draft: Blueprint, train: Groups, held: Groups | None, ways: list[str] | None) -> Blueprint:
    """In units of the training groups. ways: how each column is standardised, None where the schema knows it."""
    schema, groups = draft.schema, draft.groups
    assert groups is not None
    if ways is not None:
        schema = schema.fit_standardiser(train, ways, _plain(draft))
        schema = _from_origins(draft, schema, groups)
    return replace(
        draft,
        schema=schema,
        train=schema.standardise(train),
        held=None if held is None else schema.standardise(held),
    )


def _ways(draft: Blueprint, train: Groups, standardise: str) -> list[str]:
    """Real-valued columns are standardised, by item where there is enough of each to know its mean; in units of each
    item's own where items are of different kinds, or of so different spreads that one for all would cost much."""
    if draft.family is None or train.every.value is None:
        return ["none"] * len(draft.schema.roles.of("value"))
    enough = draft.items > 1 and train.count >= 10 * draft.items
    ways = []
    for part, _, columns in draft.family.slices():
        for c in range(columns.start, columns.stop):
            way = standardise
            if way == "auto":
                way = "item" if draft.items and train.count >= 10 * draft.items else "global"
                way = "item_spread" if enough and part.scalar and _apart(train, c, draft.items) else way
            if isinstance(part, PerItem) and way != "none":
                way = "item_spread"
            if not part.units_by_item and way in ("item", "item_spread"):
                way = "global"
            ways.append(way if part.standardised else "none")
    return ways


def _apart(train: Groups, column: int, items: int) -> bool:
    """Whether items' spreads differ so much that one for all would cost a tenth of a nat a value."""
    train = few(train)
    assert train.value is not None
    assert train.item is not None
    seen = np.isfinite(train.value[:, column])
    return bool(seen.any()) and cost_of_one_scale(train.value[seen, column], train.item[seen], items) > COST


def _plain(draft: Blueprint) -> np.ndarray | None:
    """(items + 1, column): of which items a family takes values as they are."""
    if draft.family is None or not draft.family.kinds:
        return None
    columns = []
    for part in draft.family.parts:
        if isinstance(part, PerItem):
            kinds = part.kind_of(np.arange(draft.items + 1))
            columns.append(np.array([not one.standardised for one in part.parts])[kinds])
        else:
            columns += [np.zeros(draft.items + 1, bool)] * part.columns
    return np.stack(columns, 1)


def _from_origins(draft: Blueprint, schema: Schema, groups: Groups) -> Schema:
    """Large whole numbers are counted from their family's origin, in double precision."""
    fitted, value = schema.standardiser, groups.every.value
    if draft.family is None or fitted is None or value is None:
        return schema
    centre = fitted.centre.copy()
    for part, _, columns in draft.family.slices():
        if part.origin and abs(part.origin) >= LARGE:
            centre[columns] = part.origin
    return replace(schema, standardiser=replace(fitted, centre=centre))


def _unused(schema: Schema, terms: tuple[str, ...], items_look: bool) -> list[Note]:
    """Roles that were named and that nothing looks at. items_look: whether an item term looks at attributes."""
    roles, said = schema.roles, list[Note]()
    for role in ("exposure", "noise") if "value" not in terms else ():
        for name in roles.of(role):
            words = f"Column {name!r} (role {role}) has no effect: it belongs to values, and none are modelled."
            said.append(Note("unused role", words, column=name, option=role, important=True))
    if roles.time is not None and not schema.lags:
        words = f"Column {roles.time!r} (role time) has no effect without {option('lags', 1)} or more"
        more = f"; times of rows go into {option('order')}."
        said.append(Note("unused role", words + more, column=roles.time, option="time"))
    names = roles.of("attributes")
    if names and terms == ("item",) and not items_look:
        words = f"Column {names[0]!r} (role attributes) has no effect: this model's items look at no attributes."
        said.append(Note("unused role", words, column=names[0], option="attributes", important=True))
    return said


def _refuse_wide(groups: Groups, roles: Roles) -> None:
    names = roles.of("value")
    if len(names) > 1 and not roles.item and groups.lagged is None and len(groups) > 1 and (groups.lengths == 1).all():
        raise DataError(
            f"Every group has one row and there are {len(names)} value columns, so that no row has a context: this "
            "is a wide table. Make it long, one row per group and column, and name the new columns: "
            f"efattn.from_wide(table, group={list(roles.of('group'))!r}), then {option('item', 'item')} and "
            f"{option('value', 'value')}.",
            column=names[0],
            option="value",
        )


def named_terms(asked: Any, roles: Roles, items: int, notes: list[Note]) -> tuple[str, ...]:
    """Which of "item" and "value" are modelled; what there is no choice about is left out with a note."""
    known = tuple(role for role in ("item", "value") if roles.of(role))
    check_terms(asked)
    chosen = known if asked is None else (asked,) if isinstance(asked, str) else tuple(asked)
    for term in chosen:
        if term not in known:
            remedy = f"Pass {option(term)}, or other terms."
            raise DataError(f"{option('terms', asked)}: there is no {term} column to model. {remedy}", option="terms")
    if not chosen:
        remedy = "Name 'item', 'value' or both, or leave terms out."
        raise DataError(f"{option('terms', asked)} leaves nothing to model. {remedy}", option="terms")
    if "item" in chosen and items < 2:
        only = f"Column {roles.of('item')[0]!r} has only one item"
        if asked is not None or known == ("item",):
            raise DataError(
                f"{only}: there is nothing to predict. Name another item column, or model the values.",
                column=roles.of("item")[0],
            )
        notes.append(Note("one item", f"{only}: it is not modelled, {option('terms', 'value')}.", roles.of("item")[0]))
        return ("value",)
    return tuple(term for term in known if term in chosen)


def chosen_support(asked: str, groups: Groups, held: Groups | None, notes: list[Note]) -> ItemSupport:
    """Of an item term: "distinct" where asked for, or where nothing repeats."""
    if asked == "all":
        return "all"
    try:
        for part in (part for some in (groups, held) if some is not None for part in each_part(some)):
            part.check_distinct()
    except DataError:
        if asked == "distinct":
            raise
        return "all"
    if asked == "auto":
        rule = f"{option('support', 'distinct')} (an item already there is ruled out)"
        notes.append(Note("support", f"No item repeats within a group: {rule}.", option="support"))
    return "distinct"


def _in_memory(table: Any) -> Table:
    if isinstance(table, Stored):
        raise DataError(
            f"{option('validation', 'last')} needs a time that is the same throughout each group.", option="validation"
        )
    return Table.read(table)
