"""From a table to what a model is built from and fitted to, each thing decided once.

roles -> schema and groups -> terms -> families -> split by group -> standardise -> support
"""

import functools
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from efattn.data import Groups, Roles, Schema, Table, own
from efattn.data.positions import Positions
from efattn.data.reading import Reading
from efattn.data.sampling import each_part, few
from efattn.data.stored import Stored
from efattn.errors import DataError, Note, option
from efattn.estimators import families as choosing
from efattn.estimators.blueprint import Blueprint
from efattn.estimators.holding_out import own_parts, split, validation_rule
from efattn.estimators.looking import check_values, every_item, looked_at
from efattn.models.scoring import ItemSupport
from efattn.network import Context
from efattn.options import check_terms
from efattn.training import teams

Decide = Callable[[Blueprint], tuple[choosing.Choice, ...]]


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
    decide: Decide = lambda draft: draft.choices,
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
    chosen = _without_told_items(terms, chosen, roles, notes)
    _refuse_wide(groups, roles)
    schema = _with_what_targets_show(schema, groups, chosen, own_time, own_attributes, notes)
    if roles.ordered and not roles.item and not schema.lags and schema.max_length is None and "value" in chosen:
        schema = replace(schema, positions=Positions.of(few(groups)))
    notes += _unused(schema, chosen, own_attributes is not None)
    selection = _families(family, schema, groups) if "value" in chosen else None
    product, choices = (None, ()) if selection is None else selection
    longest = int(groups.lengths.max(initial=1))
    longest = longest if schema.max_length is None else min(longest, schema.max_length)
    draft = Blueprint(schema, product, "all", chosen, longest, groups, choices=choices)
    rule = validation_rule(validation, draft, folds, seed, context)
    if isinstance(rule, str) and rule == "last" and groups.time is None and roles.time is not None:
        groups = replace(groups, time=Reading(_in_memory(table), roles, sort=True).group_times[0])
        draft = replace(draft, groups=groups)
    if product is not None:
        parts = own_parts(draft, rule, seed, context)
        open_ = few(parts[0][0] if len(parts) == 1 else groups)
        decided = choosing.Choices.of(decide(replace(draft, groups=open_)))
        draft = replace(draft, family=decided.family, choices=decided.parts)
        notes += decided.notes
    whole = split(draft, rule, seed, standardise, context)
    among = chosen_support(support, groups, whole.held, notes) if "item" in chosen else "all"
    inner = tuple(replace(one, support=among) for one in whole.folds)
    return replace(whole, support=among, notes=(*notes, *whole.notes), folds=inner)


def _without_told_items(terms: Any, chosen: tuple[str, ...], roles: Roles, notes: list[Note]) -> tuple[str, ...]:
    """An item that another role tells, as a month that is item and order, is no target."""
    told = [n for n in roles.item if n in (*roles.of("order"), *roles.of("attributes"))]
    if not told or "item" not in chosen:
        return chosen
    said = f"Column {told[0]!r} is an item and has another role too, which tells the item"
    if terms is None and "value" in chosen:
        words = f"{said}: only values are modelled, as by {option('terms', 'value')}."
        notes.append(Note("told item", words, column=told[0], option="terms", important=True))
        return ("value",)
    raise DataError(
        f"{said} that is to be predicted. Leave it out of one of the roles, or pass {option('terms', 'value')}.",
        column=told[0],
        option="terms",
    )


def _with_what_targets_show(
    schema: Schema,
    groups: Groups,
    terms: tuple[str, ...],
    own_time: bool,
    own_attributes: str | None,
    notes: list[Note],
) -> Schema:
    """With what a target shows of itself."""
    roles = schema.roles
    if schema.when_kind is not None:
        shown = "known" if own_time else "hidden"
        other = option("own_time", "hidden" if own_time else "known")
        text = f"Column {roles.order!r} says when rows were"
        if "item" in terms:
            text += f": attention knows the time between them. A target's own time is {shown}; {other} changes that"
        notes.append(Note("times", f"{text}.", column=roles.order, option="own_time"))
    schema = replace(schema, own_time=own_time, exposed=roles.exposure is not None and "value" in terms)
    if "item" in terms and own_attributes is not None and roles.of("attributes"):
        flags, said = own.decide(few(groups), schema.attribute_columns, own_attributes)
        schema = replace(schema, own_attributes=flags)
        notes += [] if said is None else [said]
    return schema


def _families(spec: Any, schema: Schema, groups: Groups) -> choosing.Choices:
    """Of the value columns, whose values, exposure and noise they take."""
    roles, vocabulary = schema.roles, schema.vocabulary
    spec = "gaussian" if roles.noise is not None and isinstance(spec, str) and spec == "auto" else spec
    items = None if vocabulary is None else choosing.Items(len(vocabulary), vocabulary.name)
    value, item, exposure = looked_at(groups)
    found = choosing.choose(value, roles.of("value"), spec, item, items, exposure)
    check_values(found.family, groups, roles.of("value"))
    if roles.exposure is not None and not found.family.exposures:
        leave = f"'poisson', 'negative_binomial' and 'successes' do. Leave {option('exposure')} out."
        raise DataError(f"{found.family!r} takes no exposure: {leave}", option="exposure")
    if roles.noise is not None and not found.family.measured:
        wanted = "one value column, whose family is 'gaussian' with a variance that is learnt"
        leave = f"found {found.family!r}. Leave {option('noise')} out."
        raise DataError(f"Noise of known size belongs to {wanted}; {leave}", option="noise")
    return found


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
