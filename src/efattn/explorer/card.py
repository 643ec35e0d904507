"""What the page has to know about a model, and examples of what may be asked, from its own columns and names."""

import re
from typing import Any, NamedTuple

from efattn.explorer.examples import Examples
from efattn.inference import Fitted, wide
from efattn.inference.summary import as_data

LATITUDE, LONGITUDE = re.compile(r"^(lat|latitude|y)$", re.I), re.compile(r"^(lon|lng|long|longitude|x)$", re.I)


def card(name: str, fitted: Fitted, examples: Examples | None) -> dict[str, Any]:
    """The model card: what `efattn summary --json` tells, and what the page is laid out by."""
    schema = fitted.schema
    about = as_data(fitted)
    levels = {column: list(words) for column, words in schema.levels.items()}
    own = schema.own_attributes or ()
    shown = [n for n, seen in zip(schema.attribute_columns, own, strict=False) if seen]
    return {
        "name": name,
        **about,
        "models": list(fitted.terms),
        "attention": fitted.estimator == "EFA",
        "levels": levels,
        "next_attributes": list(dict.fromkeys(shown)),
        "place": place(fitted),
        "item_columns": [] if schema.vocabulary is None else list(schema.vocabulary.columns),
        "family": {} if fitted.family is None else _families(fitted),
        "support": fitted.support,
        "item_term": _term(fitted, True),
        "value_term": _term(fitted, False),
        "when_kind": schema.when_kind,
        "time_kind": schema.time_kind,
        "wide": None if fitted.wide is None else [one._asdict() for one in _fields(fitted)],
        "examples": 0 if examples is None else len(examples),
    }


class WideField(NamedTuple):
    name: str
    levels: list[str]
    truth: bool


def _fields(fitted: Fitted) -> list[WideField]:
    """One for each column of a wide table; of words, which there are."""
    columns = () if fitted.wide is None else fitted.wide.columns
    return [WideField(one.name, list(one.levels), one.kind == "truth") for one in columns]


def _term(fitted: Fitted, of_items: bool) -> str | None:
    """The name of the term of items, or of the one of values."""
    return next((name for name in fitted.names if fitted.members[0][name].of_items is of_items), None)


def _families(fitted: Fitted) -> dict[str, str]:
    assert fitted.family is not None
    if fitted.wide is not None:
        return {one.name: repr(wide.family_of(fitted, k)) for k, one in enumerate(fitted.wide.columns)}
    names = fitted.schema.roles.of("value")
    return {name: repr(part) for part, _, where in fitted.family.slices() for name in names[where.start : where.stop]}


def place(fitted: Fitted) -> dict[str, str] | None:
    """Which attributes are longitude and latitude, by their names; None where there is no map."""
    names = fitted.schema.roles.of("attributes")
    latitude = next((n for n in names if LATITUDE.match(n)), None)
    longitude = next((n for n in names if LONGITUDE.match(n)), None)
    return None if latitude is None or longitude is None else {"latitude": latitude, "longitude": longitude}


def items(fitted: Fitted, search: str, limit: int, offset: int) -> dict[str, Any]:
    """Names of items that hold a text, in their order, each a list of its keys."""
    names, needle = fitted.vocabulary.names, search.lower().strip()
    if needle:
        names = [name for name in names if needle in _words(name).lower()]
        names.sort(key=lambda name: (not _words(name).lower().startswith(needle), len(_words(name))))
    some = names[offset : offset + limit]
    return {"found": len(names), "items": [_keys(name) for name in some]}


def _words(name: Any) -> str:
    return " ".join(map(str, name)) if isinstance(name, tuple) else str(name)


def _keys(name: Any) -> list[Any]:
    keys = name if isinstance(name, tuple) else (name,)
    return [key if isinstance(key, str | int) else str(key) for key in keys]


def example_rows(fitted: Fitted, examples: Examples | None, rows: int = 3) -> list[dict[str, Any]]:
    """A few rows that this model can be asked about: of its example table, or made up from its columns."""
    if examples is not None and len(examples):
        return examples.group(0)["rows"][:rows]
    if fitted.wide is not None:
        return [{one.name: one.levels[0] if one.levels else 1 for one in fitted.wide.columns}]
    roles = fitted.schema.roles
    made: list[dict[str, Any]] = []
    names = [] if fitted.schema.vocabulary is None else items(fitted, "", rows, 0)["items"]
    for number in range(rows if not names else len(names)):
        row: dict[str, Any] = dict.fromkeys(roles.of("group"), "a")
        row |= dict(zip(roles.of("item"), names[number], strict=True)) if names else {}
        row |= {name: (fitted.schema.levels.get(name) or (1.0,))[0] for name in roles.of("attributes")}
        if roles.order is not None and roles.order != "row":
            row[roles.order] = f"2024-01-0{number + 1}" if fitted.schema.when_kind == "instant" else number + 1
        if roles.time is not None:
            row[roles.time] = "2024-01-01" if fitted.schema.time_kind == "instant" else 1
        row |= {name: "a" for name in roles.of("series") if name not in row}
        row |= {name: 1.0 for name in (*roles.of("exposure"), *roles.of("weight")) if name not in row}
        row |= {name: 0.0 for name in roles.of("noise") if name not in row}
        row |= _values(fitted)
        made.append(row)
    return made


def _values(fitted: Fitted) -> dict[str, float]:
    """A value of each column that its family allows."""
    names, found = fitted.schema.roles.of("value"), dict[str, float]()
    for part, _, where in () if fitted.family is None else fitted.family.slices():
        levels = getattr(part, "level_names", ())
        for name in names[where.start : where.stop]:
            found[name] = levels[0] if levels else 1 if part.discrete else 0.5
    return found


def request_examples(fitted: Fitted, examples: Examples | None) -> dict[str, dict[str, Any]]:
    """By verb, a body that this model answers."""
    table = example_rows(fitted, examples)
    item: Any = "no item" if fitted.schema.vocabulary is None else _keys(fitted.vocabulary.name(0))
    values = fitted.schema.roles.of("value") if fitted.wide is None else fitted.wide.names[:1]
    one = item[0] if isinstance(item, list) and len(item) == 1 else item
    found: dict[str, dict[str, Any]] = {
        "predict": {"table": table, "interval": 0.9},
        "distributions": {"table": table, "quantiles": [0.1, 0.5, 0.9], "events": [{"above": 1.0}]},
        "recommend": {"table": table, "k": 3},
        "similar": {"item": one, "k": 3},
        "attention": {"table": table},
        "impute": {"table": [{**row, **(dict.fromkeys(values) if k == 0 else {})} for k, row in enumerate(table)]},
        "sample": {"table": [{**row, **dict.fromkeys(values)} for row in table]}
        if values
        else {"groups": 2, "length": 3},
        "joint": {"table": table, "orders": 2},
        "forecast": {"table": table, "steps": 2, "draws": 5},
        "where-next": {"table": table[:1], "candidates": [{**row, **dict.fromkeys(values)} for row in table[1:]]}
        if fitted.wide is None
        else {"table": [{**row, **dict.fromkeys(fitted.wide.names[:2])} for row in table[:1]]},
        "explain": {"table": table, "row": 0},
        "score": {"table": table},
        "evaluate": {"table": table},
    }
    return found
