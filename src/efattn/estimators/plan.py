"""What is decided before a model is built: the terms, the support, and the batch that start values are taken from."""

from dataclasses import dataclass, field
from numbers import Integral
from typing import Any, Literal

from efattn.data import Batch, Groups, Roles, Schema
from efattn.errors import DataError
from efattn.families import Product
from efattn.models.offset import Alone


@dataclass
class Plan:
    """What is known before a model is built. groups: all of the table, in its units; train, held: as the model sees
    them; longest: group, or piece of one; only: as if there were only the first so many items; beside:
    simple models that predict together with the networks, by term."""

    schema: Schema
    groups: Any
    family: Product | None
    support: str
    terms: tuple[str, ...]
    longest: int
    train: Any = None
    held: Groups | None = None
    only: int | None = None
    beside: dict[str, Alone] = field(default_factory=dict)

    @property
    def items(self) -> int:
        if self.only is not None:
            return self.only
        return 0 if self.schema.vocabulary is None else len(self.schema.vocabulary)

    @property
    def value_name(self) -> str:
        """The value term's name: its columns'."""
        name = "+".join(self.schema.roles.of("value"))
        return f"{name}_value" if name == "item" and "item" in self.terms else name

    @property
    def distinct(self) -> Literal["all", "distinct"]:
        return "distinct" if self.support == "distinct" else "all"


def named_terms(asked: Any, roles: Roles, items: int, notes: list[Any]) -> tuple[str, ...]:
    """Which of "item" and "value" are modelled; what there is no choice about is left out with a note."""
    known = tuple(role for role in ("item", "value") if roles.of(role))
    chosen = known if asked is None else (asked,) if isinstance(asked, str) else tuple(asked)
    for term in chosen:
        if term not in ("item", "value"):
            raise DataError(f"terms are 'item', 'value' or both in a list; found {term!r}.")
        if term not in known:
            raise DataError(f"terms={asked!r}: there is no {term} column to model. Pass {term}=..., or other terms.")
    if not chosen:
        raise DataError(f"terms={asked!r} leaves nothing to model. Name 'item', 'value' or both, or leave terms out.")
    if "item" in chosen and items < 2:
        only = f"Column {roles.of('item')[0]!r} has only one item"
        if asked is not None or known == ("item",):
            raise DataError(f"{only}: there is nothing to predict. Name another item column, or model the values.")
        notes.append(f"{only}: it is not modelled, terms='value'.")
        return ("value",)
    return tuple(term for term in known if term in chosen)


def chosen_support(asked: str, groups: Groups, held: Groups | None, notes: list[Any]) -> str:
    """Of an item term: "distinct" where asked for, or where nothing repeats."""
    if asked == "all":
        return "all"
    try:
        groups.check_distinct()
        if held is not None:
            held.check_distinct()
    except DataError:
        if asked == "distinct":
            raise
        return "all"
    if asked == "auto":
        notes.append("No item repeats within a group: support='distinct' (an item already there is ruled out).")
    return "distinct"


def flat(groups: Groups) -> Batch:
    """All rows as one group: for what does not depend on context."""
    return groups.flat()


def whole(number: Any, low: int) -> bool:
    return isinstance(number, Integral) and not isinstance(number, bool) and int(number) >= low
